//! A disk whose bytes are runs of another's, which is only read: a logical volume in an image.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use nearside_dma::Memory;

use crate::reading::{ReadAt, ReadingChannel};
use crate::{Backing, File, Qcow2, Standing, Store};

/// What the runs are of.
#[derive(Clone, Debug)]
pub enum Disk {
    /// The file's own bytes.
    File(File),
    /// The disk in an image.
    Qcow2(Qcow2),
}

impl Disk {
    /// Bytes.
    pub fn capacity(&self) -> u64 {
        match self {
            Disk::File(file) => file.capacity(),
            Disk::Qcow2(image) => image.capacity(),
        }
    }

    /// Reads it.
    pub fn reader(&self) -> Box<dyn ReadAt> {
        match self {
            Disk::File(file) => Box::new(file.clone()),
            Disk::Qcow2(image) => image.reader(),
        }
    }

    /// The file, of an image the uppermost.
    pub fn path(&self) -> &Path {
        match self {
            Disk::File(file) => file.path(),
            Disk::Qcow2(image) => image.path(),
        }
    }

    fn block_size(&self) -> u32 {
        match self {
            Disk::File(file) => file.block_size(),
            Disk::Qcow2(image) => image.block_size(),
        }
    }
}

impl ReadAt for File {
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.file.read_exact_at(into, at).map_err(|e| {
            let why = match e.kind() {
                io::ErrorKind::UnexpectedEof => "it has become shorter".to_owned(),
                _ => e.to_string(),
            };
            io::Error::new(e.kind(), format!("{}: {why}", self.path().display()))
        })
    }
}

/// Runs of a disk's bytes, one after another. Clones share the disk's files.
#[derive(Clone, Debug)]
pub struct Mapped {
    disk: Disk,
    /// Each with the place of its first byte here.
    runs: Arc<[(u64, Range<u64>)]>,
    capacity: u64,
    notes: Arc<[String]>,
    standing: Arc<Standing>,
}

impl Mapped {
    /// The runs of a disk, in this order. What is left after the last whole block is not part of the store.
    ///
    /// # Errors
    /// `InvalidInput` where a run does not lie within the disk, or all together have not one block.
    pub fn new(disk: Disk, runs: impl IntoIterator<Item = Range<u64>>) -> io::Result<Mapped> {
        let invalid = |why: String| {
            let why = format!("{}: {why}", disk.path().display());
            io::Error::new(io::ErrorKind::InvalidInput, why)
        };
        let (mut placed, mut len) = (Vec::new(), 0u64);
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            if run.end > disk.capacity() {
                let has = disk.capacity();
                return Err(invalid(format!("bytes {} to {} are not within its {has}", run.start, run.end)));
            }
            let bytes = run.end - run.start;
            placed.push((len, run));
            len = len.checked_add(bytes).ok_or_else(|| invalid("more bytes than there can be".into()))?;
        }
        let capacity = len - len % u64::from(disk.block_size());
        if capacity == 0 {
            return Err(invalid(format!("{len} bytes: not one block")));
        }
        let (runs, notes) = (placed.into(), Vec::<String>::new().into());
        Ok(Mapped { disk, runs, capacity, notes, standing: Arc::default() })
    }

    /// With what a user should know of it, one sentence each.
    pub fn with_notes(self, notes: Vec<String>) -> Mapped {
        Mapped { notes: notes.into(), ..self }
    }

    /// With what is known of its bytes.
    pub fn with_standing(self, standing: Standing) -> Mapped {
        Mapped { standing: standing.into(), ..self }
    }

    /// What a user should know of it.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What its runs are of.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Reads it.
    pub fn reader(&self) -> Box<dyn ReadAt> {
        Box::new(Reader { below: self.disk.reader(), runs: self.runs.clone() })
    }
}

struct Reader {
    below: Box<dyn ReadAt>,
    runs: Arc<[(u64, Range<u64>)]>,
}

impl ReadAt for Reader {
    fn read_at(&mut self, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
        let mut nr = self.runs.partition_point(|(first, _)| *first <= at).saturating_sub(1);
        while !into.is_empty() {
            let is_in = |(first, run): &&(u64, Range<u64>)| at - first < run.end - run.start;
            let Some((first, run)) = self.runs.get(nr).filter(is_in) else {
                return Err(io::Error::other(format!("byte {at} is behind the last run")));
            };
            let from = run.start + (at - first);
            let here = usize::try_from(run.end - from).unwrap_or(usize::MAX).min(into.len());
            let (piece, rest) = into.split_at_mut(here);
            self.below.read_at(from, piece)?;
            (at, into, nr) = (at + here as u64, rest, nr + 1);
        }
        Ok(())
    }
}

impl Store for Mapped {
    type Channel = ReadingChannel;

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> u32 {
        self.disk.block_size()
    }

    fn read_only(&self) -> bool {
        true
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing::LogicalVolume)
    }

    fn standing(&self) -> &Standing {
        &self.standing
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<ReadingChannel> {
        Ok(ReadingChannel::new(self.reader(), self.capacity, self.block_size(), memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_log::{Logged, WriteLog};
    use crate::{Delay, Faulty, FileOptions, Modelled};

    /// As of a mirror's member, and however many stores stand before it.
    #[test]
    fn what_is_known_of_the_bytes_passes_through_other_stores() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("disk"), [7; 4096]).unwrap();
        let file = File::open(folder.path().join("disk"), FileOptions::read()).unwrap();
        assert_eq!(file.standing(), &Standing::default());
        let standing = Standing { unsure: vec!["first".into()], known: vec!["second".into()] };
        let mapped =
            Mapped::new(Disk::File(file), std::iter::once(0..4096)).unwrap().with_standing(standing.clone());
        assert_eq!(mapped.standing(), &standing);
        let log = WriteLog::create(folder.path().join("log"), 512, 4096).unwrap();
        let delayed = Modelled::new(Faulty::new(mapped, 0, []), Delay::parse("10us").unwrap().medium());
        let all = Logged::new(delayed, log).unwrap();
        assert!(all.standing() == &standing && all.standing().all().eq(["first", "second"]));
    }

    #[test]
    fn runs_follow_one_another() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..64 << 10).map(|n: u32| (n / 7) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let disk = || Disk::File(File::open(file.path(), FileOptions::read()).unwrap());
        let runs = [4096..8192u64, 0..512, 600..600, 60_000..61_024, 512..1024];
        let expected: Vec<u8> =
            runs.iter().flat_map(|run| bytes[run.start as usize..run.end as usize].to_vec()).collect();
        let mapped = Mapped::new(disk(), runs).unwrap();
        assert_eq!(mapped.capacity() as usize, expected.len());
        let mut reader = mapped.reader();
        for (at, len) in [(0, expected.len()), (4095, 2), (4000, 2000), (4608, 1024), (6143, 1), (5632, 512)]
        {
            let mut into = vec![0; len];
            reader.read_at(at as u64, &mut into).unwrap();
            assert!(into == expected[at..at + len], "{len} bytes at {at}");
        }
        assert!(reader.read_at(6143, &mut [0; 2]).is_err());
        for (runs, says) in [
            (vec![0..512, 0..65_537], "bytes 0 to 65537 are not within its 65536"),
            (vec![5..5, 9..20], "11 bytes: not one block"),
        ] {
            let refused = Mapped::new(disk(), runs).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
