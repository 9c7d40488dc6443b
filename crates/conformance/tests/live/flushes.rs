//! A host's life, written a second time to a drive that is asked after each write what it shows: what the
//! host has flushed, or, where it has gone on without, all that it has written.

use std::io;
use std::sync::Arc;

use nearside_clock::{Nanos, TscClock};
use nearside_device::Access;
use nearside_dma::{IoBuffer, Memory};
use nearside_embedded::{AnyStore, Embedded, Options, firmware};
use nearside_firmware::Fsr;
use nearside_fsrlib::{Record, Session};
use nearside_random::Rng;
use nearside_store::write_log::{Entry, Flags, Image, LogReader, Part};
use nearside_store::{Data, Dram, Operation, Submitted, Token};

use super::rig;

/// How often a drive was asked, and what it showed where what is written makes other files of a volume than
/// what is flushed, if only by an extent that counts as written now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    pub points: u64,
    /// Nothing is otherwise, or only bytes within files were written, in their place.
    pub alike: u64,
    pub flushed: u64,
    pub written: u64,
}

/// The drive, as its host reaches it.
struct Host(Access<AnyStore, Fsr>);

impl Host {
    fn does(&mut self, operation: Operation, data: Data<'_>) {
        match self.0.submit(operation, data, Token(0), Nanos(0)) {
            Submitted::Done(done) => done.result.unwrap(),
            Submitted::Pending => panic!("memory waits"),
        }
    }
}

impl Image for Host {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut buffer = IoBuffer::new(bytes.len())?;
        buffer.copy_from_slice(bytes);
        let operation = Operation::Write { offset, len: bytes.len() as u64, fua: false };
        self.does(operation, Data::Owned(buffer));
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.does(Operation::WriteZeroes { offset, len, fua: false }, Data::None);
        Ok(())
    }
}

/// Goes through a log of a drive that held these bytes before, and asks at about so many points.
pub fn follow(log: &LogReader, base: Vec<u8>, points: u64, seed: u64) -> Result<Came, String> {
    let entries: Vec<Entry> = log.entries().map(Result::unwrap).collect();
    let store = AnyStore::Dram(Dram::new(base.len() as u64, 512).unwrap());
    let drive = Embedded::start(store, firmware(), &Options::default()).unwrap();
    let mut host = Host(drive.namespace().access(Arc::new(Memory::new())).unwrap());
    for (nr, block) in base.chunks(4096).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0)) {
        host.write(nr as u64 * 4096, block).unwrap();
    }
    let mut session = Session::new(drive, Arc::new(TscClock::new()));
    let mut written = base;
    let (mut flushed, mut came, mut rng) = (written.clone(), Came::default(), Rng(seed));
    for (nr, entry) in entries.iter().enumerate() {
        if entry.flags.has(Flags::FLUSH) {
            host.does(Operation::Flush, Data::None);
            flushed = written.clone();
        }
        let part = Part::whole(*entry);
        log.apply(&part, &mut written).unwrap();
        log.apply(&part, &mut host).unwrap();
        // A commit is on its way most of all before a flush.
        let weight = if entries.get(nr + 1).is_some_and(|next| next.flags.has(Flags::FLUSH)) { 4 } else { 1 };
        // The volume is there from its first flush on.
        let is_there = flushed[1080..1082] == [0x53, 0xef] || flushed[1024..1028] == [0x10, 0x20, 0xf5, 0xf2];
        if !is_there || rng.below(entries.len() as u64) >= points * weight {
            continue;
        }
        let first = rig::all(&mut session);
        came.points += 1;
        let durable = rig::image(&flushed);
        let all = rig::image(&written);
        if first == durable {
            if first == all {
                came.alike += 1;
            } else {
                came.flushed += 1;
            }
            continue;
        }
        let shown = if first == all {
            first
        } else {
            // It may have turned to what is written between two files.
            rig::all(&mut session)
        };
        let is_entry = |record: &&Record<'_>| matches!(record, Record::Entry(_));
        if all.iter().filter(is_entry).eq(durable.iter().filter(is_entry)) {
            came.alike += 1;
        } else {
            came.written += 1;
        }
        if shown != all {
            let unlike = shown.iter().zip(&all).find(|(a, b)| a != b);
            return Err(format!("seed {seed}, entry {}: {unlike:?}", entry.index));
        }
    }
    Ok(came)
}
