//! A command that is out, and how it ends.

use nearside_clock::Nanos;
use nearside_spec::fabrics::command::fctype_of;
use nearside_spec::{SubmissionEntry, opcode};

use super::stream::Buffers;
use crate::{CommandKind, Failure};

/// Which way a command's data go (opcode bits 1:0; of Fabrics commands, FCTYPE's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    None,
    ToController,
    ToHost,
}

pub(super) fn direction(entry: &SubmissionEntry) -> Option<Direction> {
    let kind = if entry.opcode() == opcode::FABRICS { fctype_of(entry) } else { entry.opcode() };
    match kind & 3 {
        0 => Some(Direction::None),
        1 => Some(Direction::ToController),
        2 => Some(Direction::ToHost),
        _ => None,
    }
}

pub(super) struct CommandSlot {
    pub(super) live: bool,
    pub(super) cid: u16,
    pub(super) cookie: u64,
    pub(super) submitted: Nanos,
    pub(super) kind: CommandKind,
    pub(super) direction: Direction,
    pub(super) buffer: Option<Vec<u8>>,
    /// Bytes received, or handed over for sending.
    pub(super) moved: usize,
    /// Bytes handed over for sending and not yet sent.
    pub(super) sending: usize,
    /// Its data went with the capsule.
    pub(super) in_capsule: bool,
    /// How it ended, where bytes of its buffer are still to be sent.
    pub(super) ended: Option<Result<u64, Failure>>,
    /// Its data's digest was wrong.
    pub(super) damaged: bool,
}

impl Buffers for Box<[CommandSlot]> {
    fn data(&self, slot: usize) -> &[u8] {
        self.get(slot).and_then(|s| s.buffer.as_deref()).unwrap_or(&[])
    }
    fn sent(&mut self, slot: usize, bytes: usize) {
        if let Some(slot) = self.get_mut(slot) {
            slot.sending -= bytes;
        }
    }
}

impl CommandSlot {
    /// Without a command.
    pub(super) fn free() -> CommandSlot {
        CommandSlot {
            live: false,
            cid: 0,
            cookie: 0,
            submitted: Nanos(0),
            kind: CommandKind::Other,
            direction: Direction::None,
            buffer: None,
            moved: 0,
            sending: 0,
            in_capsule: false,
            ended: None,
            damaged: false,
        }
    }
}
