//! Makes the small volumes that ship with the demo: `cargo run --release -p nearside-demo --example ship`,
//! from the root of the checkout. Needs mke2fs, mkfs.f2fs, sload.f2fs and zstd.

use std::path::Path;
use std::process::Command;

use nearside_demo::act2::{SEED, SHIPPED};
use nearside_instrument::dataset::write_deep;
use nearside_instrument::volume::{Kind, make};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let tree = folder.path().join("tree");
    write_deep(&tree, SHIPPED, SEED, |_| {})?;
    for kind in [Kind::Ext4, Kind::F2fs] {
        let image = folder.path().join(format!("{}.img", kind.name().to_lowercase()));
        make(kind, &image, &tree, 160 << 20)?;
        let to = Path::new("fixtures/demo").join(format!("{}.img.zst", kind.name().to_lowercase()));
        let status =
            Command::new("zstd").args(["-q", "-f", "-19"]).arg(&image).arg("-o").arg(&to).status()?;
        assert!(status.success(), "zstd failed");
        println!("{} bytes in {}", to.metadata()?.len(), to.display());
    }
    Ok(())
}
