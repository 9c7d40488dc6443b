//! The loop device over an attached drive's file, and the volume that is mounted on it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nearside_dma::loop_device::{LoopDevice, LoopPlace};
use nearside_dma::system;

/// What lies on the file; taken away with this value, as far as nobody uses it.
#[derive(Debug)]
pub(crate) struct Looped {
    device: Option<LoopDevice>,
    path: PathBuf,
    volume: Option<PathBuf>,
}

impl Looped {
    /// Lays a loop device over `file`, and mounts the volume on it at `volume`.
    pub(crate) fn over(
        file: &Path,
        place: LoopPlace,
        block_size: u32,
        read_only: bool,
        volume: Option<&Path>,
    ) -> io::Result<Looped> {
        let device = place.attach(file, block_size, read_only)?;
        let mut looped = Looped { path: device.path().to_owned(), device: Some(device), volume: None };
        if let Some(volume) = volume {
            mount(&looped.path, volume, read_only)?;
            looped.volume = Some(volume.to_owned());
        }
        Ok(looped)
    }

    /// The block device.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts the volume and takes the device off the file. An error with the path that is in use, or
    /// fails; `lazy`: out of sight now, and away when the last who uses it has let go of it.
    pub(crate) fn end(&mut self, lazy: bool) -> Result<(), (PathBuf, io::Error)> {
        if let Some(volume) = &self.volume {
            match system::unmount(volume, lazy) {
                // Somebody else has unmounted it.
                Err(e) if e.kind() != io::ErrorKind::InvalidInput => return Err((volume.clone(), e)),
                _ => self.volume = None,
            }
        }
        match self.device.take().map(LoopDevice::detach) {
            Some(Err(e)) => Err((self.path.clone(), e)),
            _ => Ok(()),
        }
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        if self.end(false).is_err() {
            let _ = self.end(true);
        }
    }
}

/// By the program, which knows the file system's kind.
fn mount(device: &Path, at: &Path, read_only: bool) -> io::Result<()> {
    let mut mount = Command::new("mount");
    if read_only {
        mount.args(["-o", "ro"]);
    }
    let out = mount.arg("--").arg(device).arg(at).stdin(Stdio::null()).output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&out.stderr).trim().to_owned()))
}

/// How often a file system that should be free is tried: the kernel lets go of the file below a loop device a
/// moment after its last user.
const TRIES: usize = 200;
const TRY: Duration = Duration::from_millis(10);

/// Unmounts what was just let go of.
pub(crate) fn unmount_patiently(at: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match system::unmount(at, false) {
            Err(e) if is_busy(&e) && tries < TRIES => {
                tries += 1;
                std::thread::sleep(TRY);
            }
            done => return done,
        }
    }
}

/// Whether somebody uses it; fusermount3 has only words for it.
pub(crate) fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy || error.to_string().contains("busy")
}
