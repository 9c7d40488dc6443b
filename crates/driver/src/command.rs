//! Commands as the driver takes them: a submission entry without its identifier and data pointer, which the queue fills in.

use nearside_spec::{SubmissionEntry, opcode};

use crate::DmaBuffer;

/// What kind of work a command is, as history and models count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush, write zeroes, deallocate, compare, admin commands.
    Other,
    /// Near-data work.
    NearData,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Other, Kind::NearData];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Other => "other",
            Kind::NearData => "near-data",
        }
    }
}

/// A command. The data pointer comes from the buffer given with it: the whole of its length.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The entry; CID, PSDT and DPTR are the queue's to fill in (DPTR only where a buffer comes with the command).
    pub entry: SubmissionEntry,
    /// How it is counted.
    pub kind: Kind,
}

/// CDW12 bit 30: force unit access.
const FUA: u32 = 1 << 30;

impl Command {
    /// Any command by opcode, for commands that this module does not name.
    pub const fn raw(opcode: u8, nsid: u32) -> Command {
        Command { entry: SubmissionEntry::new(opcode, 0, nsid), kind: Kind::Other }
    }

    /// The same with a command dword (10 to 15) set. Panics for others.
    pub const fn with(mut self, cdw: usize, value: u32) -> Command {
        assert!(cdw >= 10 && cdw <= 15);
        self.entry.cdw[cdw] = value;
        self
    }

    const fn ranged(opcode: u8, nsid: u32, slba: u64, blocks: u32, kind: Kind) -> Command {
        let mut entry = SubmissionEntry::new(opcode, 0, nsid);
        entry.set_quad(10, slba);
        assert!(blocks >= 1 && blocks <= 0x1_0000, "a command carries 1 to 65,536 blocks");
        entry.cdw[12] = blocks - 1;
        Command { entry, kind }
    }

    /// Read `blocks` (1 to 65,536, panics otherwise) from `slba` into the buffer.
    pub const fn read(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::READ, nsid, slba, blocks, Kind::Read)
    }

    /// Write the buffer; as [`Command::read`].
    pub const fn write(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::WRITE, nsid, slba, blocks, Kind::Write)
    }

    /// Compare with the buffer; as [`Command::read`].
    pub const fn compare(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::COMPARE, nsid, slba, blocks, Kind::Other)
    }

    /// Set to zeros, without data; as [`Command::read`].
    pub const fn write_zeroes(nsid: u32, slba: u64, blocks: u32) -> Command {
        Command::ranged(opcode::io::WRITE_ZEROES, nsid, slba, blocks, Kind::Other)
    }

    /// The same command with force unit access: durable when it completes.
    pub const fn fua(mut self) -> Command {
        self.entry.cdw[12] |= FUA;
        self
    }

    /// Make completed writes durable.
    pub const fn flush(nsid: u32) -> Command {
        Command::raw(opcode::io::FLUSH, nsid)
    }

    /// Deallocate ranges of (first block, blocks); they are written to `buffer`, whose length is set. At most 256, and at
    /// least one; panics otherwise.
    pub fn deallocate(nsid: u32, ranges: &[(u64, u32)], buffer: &mut DmaBuffer) -> Command {
        assert!((1..=256).contains(&ranges.len()), "deallocate takes 1 to 256 ranges");
        buffer.set_len(16 * ranges.len());
        for (i, (slba, blocks)) in ranges.iter().enumerate() {
            let mut range = [0; 16];
            range[4..8].copy_from_slice(&blocks.to_le_bytes());
            range[8..].copy_from_slice(&slba.to_le_bytes());
            buffer.write(16 * i, &range);
        }
        // CDW11 bit 2: attribute deallocate.
        Command::raw(opcode::io::DATASET_MANAGEMENT, nsid).with(10, ranges.len() as u32 - 1).with(11, 1 << 2)
    }

    /// Near-data work: `request` bytes at the buffer's start are the request; the reply overwrites the buffer.
    pub fn near_data(nsid: u32, request: u32, buffer: &DmaBuffer) -> Command {
        let command = Command::raw(opcode::io::NEAR_DATA, nsid)
            .with(10, request)
            .with(11, buffer.len() as u32)
            .with(12, 1);
        Command { kind: Kind::NearData, ..command }
    }
}
