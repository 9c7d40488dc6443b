//! A selection of rows that lie elsewhere: in the drive, over NVMe/TCP, beside databases that read the same
//! file on a mount of that drive (`nearside attach`).
//!
//! The server's thread has one CPU; the host has another, with the database and the way to the drive. What
//! the host's kernel keeps of the file is forgotten before each query: rows that it has are no rows
//! elsewhere. The image is in the page cache, and the network is this machine's own, than which none is
//! faster: a slower one leaves the drive's answer as it is, and makes the mount's later.

use std::fs::File;
use std::path::Path;

use nearside_apps::Drive;
use nearside_instrument::Failure;
use nearside_instrument::completion::unpin;
use nearside_instrument::kernel::LoopMount;

use crate::figures::Sink;
use crate::tables::{self, Ours, contest, databases};
use crate::tcp::Serving;

/// CSV and Parquet, beside each database alone.
pub fn remote(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (bytes, rounds) = if fast { (64 << 20, 3) } else { (1 << 30, 7) };
    let Some(program) = tables::nearside()? else { return Ok(()) };
    if let Some(lacks) = nearside_apps::lacks() {
        eprintln!("  left out: {lacks}");
        return Ok(());
    }
    eprintln!("remote: making a volume of {} MiB of CSV ...", bytes >> 20);
    let folder = tempfile::tempdir_in("target")?;
    let image = folder.path().join("tables.img");
    tables::volume_of_rows(&folder.path().join("tree"), &image, bytes, |_| Ok(()))?;
    let serving = Serving::with(&format!("file:{}", image.display()), nearside_embedded::firmware())?;
    // From here on what is started is the host's.
    let measured = (|| {
        let name = serving.name();
        let Some(ours) = Ours::over(Path::new(&name))? else { return Ok(()) };
        let drive = Drive::attach(&program, &name, &[])?;
        let mount = LoopMount::with(drive.device(), "ro,noatime")?;
        for (path, form) in [("/trips.csv", "CSV"), ("/trips.parquet", "CSV as Parquet")] {
            let mounted = mount.path(path);
            if !mounted.exists() {
                continue;
            }
            for peer in &mut databases() {
                let work =
                    format!("{} MiB of {form}, of a hundred rows one, in groups, over TCP", bytes >> 20);
                let mut asked = || {
                    let answer = ours.remotely(&tables::select(path));
                    forget(&mounted)?;
                    answer
                };
                contest(&work, &mut asked, std::slice::from_mut(peer), &mounted, rounds, sink)?;
            }
        }
        Ok(())
    })();
    unpin();
    measured
}

/// Nothing of the file stays in this host's page cache.
fn forget(path: &Path) -> Result<(), Failure> {
    Ok(rustix::fs::fadvise(File::open(path)?, 0, None, rustix::fs::Advice::DontNeed)?)
}
