//! How large it is, as it is installed: what `make install`, `make static` and `make deb` have left in
//! `target`, without what is for a debugger.

use std::path::{Path, PathBuf};
use std::process::Command;

use nearside_instrument::Failure;
use nearside_instrument::volume::tool;
use nearside_loadgen::record::Figure;

use crate::figures::Sink;

/// What is built, and how it is called here.
const BUILT: [(&str, &str); 4] = [
    ("release/nearside", "the command"),
    ("release/nearside-sql", "the program for SQL"),
    ("release/nearside-ballista", "the program for a cluster"),
    ("release/libnearside.so", "FSRLib, shared"),
];

/// All rows; what is not built is left out, with a word.
pub fn sizes(_fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let Some(strip) = tool("strip") else {
        eprintln!("  left out: strip is not installed (binutils)");
        return Ok(());
    };
    let target = Path::new("target");
    let folder = tempfile::tempdir_in(target)?;
    let musl = format!("{}-unknown-linux-musl/release/nearside", std::env::consts::ARCH);
    for (file, name) in BUILT.into_iter().chain([(&*musl, "the command, static")]) {
        let file = target.join(file);
        if !file.exists() {
            eprintln!("  left out: {} is not built", file.display());
            continue;
        }
        let stripped = folder.path().join("stripped");
        if !Command::new(&strip).arg("-o").arg(&stripped).arg(&file).status()?.success() {
            return Err(format!("strip failed over {}", file.display()).into());
        }
        sink(kib(&format!("size: {name}"), std::fs::metadata(&stripped)?.len()));
    }
    for deb in packages(&target.join("debian"))? {
        let package = field(&deb, "Package")?;
        sink(kib(&format!("size: the package {package}, packed"), std::fs::metadata(&deb)?.len()));
        let installed: u64 = field(&deb, "Installed-Size")?.parse()?;
        sink(kib(&format!("size: the package {package}, installed"), installed << 10));
    }
    Ok(())
}

fn kib(name: &str, bytes: u64) -> Figure {
    Figure::of(name, "KiB", &[(bytes >> 10) as f64])
}

/// The packages in a folder, which need not be there, by name.
fn packages(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        eprintln!("  left out: no packages in {} (make deb)", folder.display());
        return Ok(Vec::new());
    };
    let mut found = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Failure>>()?;
    found.retain(|path| path.extension().is_some_and(|end| end == "deb"));
    found.sort();
    Ok(found)
}

/// What a package says of itself.
fn field(deb: &Path, name: &str) -> Result<String, Failure> {
    let output = Command::new("dpkg-deb").arg("-f").arg(deb).arg(name).output()?;
    if !output.status.success() {
        return Err(format!("dpkg-deb does not read {}", deb.display()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
