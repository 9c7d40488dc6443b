//! Commands as the driver takes them: a submission entry without its identifier and data pointer,
//! which the queue fills in.

use nearside_spec::command::{Bits, Field, dataset, near_data, transfer};
use nearside_spec::data::DsmRange;
use nearside_spec::{SubmissionEntry, opcode};

use crate::{Buffer, DmaBuffer};

/// What kind of work a command is, as history and models count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush, write zeroes, deallocate, compare, admin commands.
    Other,
    /// Near-data work.
    NearData,
}

impl CommandKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [CommandKind; 4] =
        [CommandKind::Read, CommandKind::Write, CommandKind::Other, CommandKind::NearData];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CommandKind::Read => "read",
            CommandKind::Write => "write",
            CommandKind::Other => "other",
            CommandKind::NearData => "near-data",
        }
    }
}

/// A command. The data pointer comes from the buffer given with it: the whole of its length.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The entry; CID, PSDT and DPTR are the queue's to fill in (DPTR
    /// only where a buffer comes with the command).
    pub entry: SubmissionEntry,
    /// How it is counted.
    pub kind: CommandKind,
}

impl Command {
    /// A command whose entry is made.
    pub const fn of(entry: SubmissionEntry) -> Command {
        Command { entry, kind: CommandKind::Other }
    }

    /// Any command by opcode, for commands that this module does not name.
    pub const fn raw(opcode: u8, nsid: u32) -> Command {
        Command { entry: SubmissionEntry::new(opcode, 0, nsid), kind: CommandKind::Other }
    }

    /// The command with a field set.
    pub fn with<T: Bits>(mut self, field: Field<T>, value: T) -> Command {
        self.entry.set(field, value);
        self
    }

    fn ranged(opcode: u8, nsid: u32, slba: u64, blocks: u32, kind: CommandKind) -> Command {
        let mut entry = SubmissionEntry::new(opcode, 0, nsid);
        entry.set(transfer::SLBA, slba);
        assert!((1..=0x1_0000).contains(&blocks), "a command carries 1 to 65,536 blocks");
        entry.set(transfer::NLB_Z, (blocks - 1) as u16);
        Command { entry, kind }
    }

    /// Read `blocks` (1 to 65,536, panics otherwise) from `slba` into the buffer.
    pub fn read(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::READ, nsid, slba, blocks, CommandKind::Read)
    }

    /// Write the buffer; as [`Command::read`].
    pub fn write(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::WRITE, nsid, slba, blocks, CommandKind::Write)
    }

    /// Compare with the buffer; as [`Command::read`].
    pub fn compare(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::COMPARE, nsid, slba, blocks, CommandKind::Other)
    }

    /// Set to zeros, without data; as [`Command::read`].
    pub fn write_zeroes(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::WRITE_ZEROES, nsid, slba, blocks, CommandKind::Other)
    }

    /// The same command with force unit access: durable when it completes.
    pub fn fua(self) -> Command {
        self.with(transfer::FUA, true)
    }

    /// Make completed writes durable.
    pub const fn flush(nsid: u32) -> Command {
        Command::raw(opcode::io::FLUSH, nsid)
    }

    /// Deallocate ranges of (first block, blocks); they are written to `buffer`, whose length is set.
    ///
    /// # Panics
    /// With no range, with more than 256, or where the buffer's capacity is less than 16 bytes for each.
    pub fn deallocate(nsid: u32, ranges: &[(u64, u32)], buffer: &mut impl Buffer) -> Command {
        assert!((1..=256).contains(&ranges.len()), "deallocate takes 1 to 256 ranges");
        buffer.set_len(DsmRange::SIZE * ranges.len());
        for (i, (slba, blocks)) in ranges.iter().enumerate() {
            let mut range = DsmRange::default();
            range.set_blocks(*blocks).set_slba(*slba);
            buffer.write(DsmRange::SIZE * i, &range.0);
        }
        Command::raw(opcode::io::DATASET_MANAGEMENT, nsid)
            .with(dataset::NR_Z, (ranges.len() - 1) as u8)
            .with(dataset::AD, true)
    }

    /// Near-data work: `request` bytes at the buffer's start are the request;
    /// the reply overwrites the buffer.
    pub fn near_data(nsid: u32, request: u32, buffer: &DmaBuffer) -> Command {
        let command = Command::raw(opcode::io::NEAR_DATA, nsid)
            .with(near_data::REQUEST, request)
            .with(near_data::BUFFER, buffer.len() as u32)
            .with(near_data::OVER, true);
        Command { kind: CommandKind::NearData, ..command }
    }
}
