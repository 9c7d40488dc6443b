//! The store suite on a block device: a loop device over a fresh image. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

use nearside_conformance::needs;
use nearside_conformance::store::suite;
use nearside_store::{Access, File, FileOptions};

/// A loop device, ended when dropped.
struct Loop {
    device: PathBuf,
    _image: tempfile::NamedTempFile,
}

impl Loop {
    fn new(dir: &Path, bytes: u64) -> Option<Loop> {
        let image = tempfile::NamedTempFile::new_in(dir).unwrap();
        image.as_file().set_len(bytes).unwrap();
        let out = Command::new("losetup").args(["--find", "--show"]).arg(image.path()).output().unwrap();
        if !out.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&out.stderr));
            return None;
        }
        let device = PathBuf::from(String::from_utf8(out.stdout).unwrap().trim());
        Some(Loop { device, _image: image })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn block_device() {
    const NAME: &str = "root_stores::block_device";
    if !needs::root(NAME) || !needs::tools(NAME, &["losetup", "blkdiscard"]) {
        return;
    }
    let Some(device) = Loop::new(Path::new("/dev/shm"), 4 << 20) else {
        return needs::left_out(NAME, "no loop device");
    };
    for (block_size, access) in [(512, Access::Serve), (4096, Access::Serve), (512, Access::ServeBuffered)] {
        suite(1, 1000, || {
            let discarded =
                Command::new("blkdiscard").args(["--zeroout", "--force"]).arg(&device.device).status();
            assert!(discarded.unwrap().success());
            File::open(&device.device, FileOptions { block_size, access, ..FileOptions::serve() }).unwrap()
        });
    }
    let serving = File::open(&device.device, FileOptions::serve()).unwrap();
    assert!(serving.is_direct(), "{:?}", serving.notes());
    assert!(File::open(&device.device, FileOptions::serve()).is_err(), "two drives on one device");
    assert!(File::open(&device.device, FileOptions::read()).is_err(), "a reader beside a writer");
    drop(serving);
    File::open(&device.device, FileOptions::read()).unwrap();
}
