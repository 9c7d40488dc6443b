//! Near-data work and reads over a way whose commands move data in one direction:
//! NVMe over Fabrics, and a kernel's passthrough.
//!
//! A near-data operation is two commands: `execute` carries the request under a tag, `result` the reply. Both
//! are sent at once and meet in the drive: one round trip. A `result` that comes back empty says that the
//! drive is still at work, and is posted again; an operation that fails or is given up is cancelled.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_driver::{Buffer, Command, CommandKind, NamespaceInfo};
use nearside_near_data::{Failure, wire};
use nearside_spec::command::near_data;
use nearside_spec::opcode::io;

use crate::Error;

/// Milliseconds for which a `result` may wait in the drive; less than the 5 s that it allows.
pub(crate) const WAIT_MS: u32 = 4_000;
/// How often a wait looks whether it was given up, in nanoseconds.
pub(crate) const LOOK_NS: u64 = 50_000_000;
/// Commands that a carrier has to have room for.
pub(crate) const DEPTH: u16 = 8;

/// What names a command among those that are out; a read's is its place, which is less.
const EXECUTE: u64 = u64::MAX;
pub(crate) const RESULT: u64 = u64::MAX - 1;
const CANCEL: u64 = u64::MAX - 2;

/// The command of a cookie, in words.
pub(crate) fn what(cookie: u64) -> &'static str {
    match cookie {
        EXECUTE => "a near-data command",
        RESULT => "the result of a near-data command",
        CANCEL => "cancel",
        _ => "a read",
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) cookie: u64,
    /// Bytes of its data that count, as its kind says.
    pub(crate) moved: Result<usize, Error>,
    /// The data that were given.
    pub(crate) data: Vec<u8>,
}

/// Tags for operations: none is guessed, and none comes twice.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    hasher: RandomState,
    used: u64,
}

impl Tags {
    /// The next.
    pub(crate) fn next(&mut self) -> u64 {
        self.used += 1;
        self.hasher.hash_one(self.used)
    }
}

/// The flag by which another thread gives up what is under way, where there is one.
#[derive(Debug, Default)]
pub(crate) struct Stop(pub(crate) Option<Arc<AtomicBool>>);

impl Stop {
    /// Whether a wait has to look at it now and then.
    pub(crate) fn is_possible(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// A way for commands, [`DEPTH`] of them at once.
pub(crate) trait Carrier {
    /// Sends a command. `data` are its data, whole dwords.
    fn send(&mut self, command: &Command, data: Vec<u8>, cookie: u64) -> Result<(), Error>;

    /// Waits until one of those that are out has ended, or (always allowed) less. An error:
    /// nothing ends any more.
    fn wait(&mut self, sink: impl FnMut(Ended)) -> Result<(), Error>;

    /// Commands that are out.
    fn outstanding(&self) -> usize;

    /// Milliseconds for which a `result` may wait in the drive.
    fn wait_ms(&self) -> u32 {
        WAIT_MS
    }

    /// Whether what is under way is to be given up.
    fn is_stopped(&self) -> bool;
}

/// A command of an operation's.
pub(crate) fn half(opcode: u8, nsid: u32, tag: u64) -> Command {
    Command { kind: CommandKind::NearData, ..Command::raw(opcode, nsid).with(near_data::TAG, tag) }
}

/// Sends `request` under a tag and puts its reply in `reply`. `buffer` is what the reply may fill;
/// it comes back for the next.
pub(crate) fn near_data(
    carrier: &mut impl Carrier,
    nsid: u32,
    tag: u64,
    request: &[u8],
    buffer: Vec<u8>,
    reply: &mut Vec<u8>,
) -> Result<Vec<u8>, Error> {
    let answered = answer(carrier, nsid, tag, request, buffer);
    if answered.is_err() {
        cancel(carrier, nsid, tag);
    }
    let (buffer, moved) = answered?;
    take_reply(&buffer, moved, reply)?;
    Ok(buffer)
}

fn answer(
    carrier: &mut impl Carrier,
    nsid: u32,
    tag: u64,
    request: &[u8],
    buffer: Vec<u8>,
) -> Result<(Vec<u8>, usize), Error> {
    let wait_ms = carrier.wait_ms();
    let ask = |carrier: &mut _, buffer: Vec<u8>| {
        let result = half(io::NEAR_DATA_RESULT, nsid, tag)
            .with(near_data::BUFFER, buffer.len() as u32)
            .with(near_data::WAIT_MS, wait_ms);
        Carrier::send(carrier, &result, buffer, RESULT)
    };
    let execute = half(io::NEAR_DATA_EXECUTE, nsid, tag).with(near_data::REQUEST, request.len() as u32);
    let mut sent = request.to_vec();
    sent.resize(request.len().next_multiple_of(4), 0);
    carrier.send(&execute, sent, EXECUTE)?;
    ask(carrier, buffer)?;
    let (mut executed, mut answered) = (None, None);
    loop {
        if let Some(moved) = executed.take() {
            let _: usize = moved?;
            executed = Some(Ok(0));
            if let Some(Ended { moved, data, .. }) = answered.take() {
                match moved? {
                    0 => ask(carrier, data)?,
                    moved => return Ok((data, moved)),
                }
            }
        }
        if carrier.is_stopped() {
            return Err(Error::Refused(Failure::Cancelled));
        }
        carrier.wait(|ended| match ended.cookie {
            EXECUTE => executed = Some(ended.moved),
            _ => answered = Some(ended),
        })?;
    }
}

/// The drive is to forget the tag. What is out comes back first.
fn cancel(carrier: &mut impl Carrier, nsid: u32, tag: u64) {
    let mut going = carrier.send(&half(io::NEAR_DATA_CANCEL, nsid, tag), Vec::new(), CANCEL);
    while going.is_ok() && carrier.outstanding() > 0 {
        going = carrier.wait(drop);
    }
}

/// Fills `into` from byte `offset` of the namespace by reads of at most `most` bytes. Returns how many.
pub(crate) fn read(
    carrier: &mut impl Carrier,
    namespace: &NamespaceInfo,
    most: usize,
    offset: u64,
    into: &mut [u8],
) -> Result<u64, Error> {
    let block = namespace.block_size as usize;
    let piece = (most / block * block).max(block);
    let commands = into.len().div_ceil(piece);
    let (mut sent, mut done) = (0, 0);
    let mut failure = None;
    while done < commands {
        while sent < commands && failure.is_none() && sent - done < usize::from(DEPTH) {
            let at = sent * piece;
            let len = piece.min(into.len() - at);
            let slba = (offset + at as u64) / block as u64;
            let read = Command::read(namespace.nsid, slba, (len / block) as u32);
            match carrier.send(&read, vec![0; len], at as u64) {
                Ok(()) => sent += 1,
                Err(error) => failure = Some(error),
            }
        }
        if failure.is_some() && sent == done {
            break;
        }
        carrier.wait(|ended| {
            done += 1;
            match ended.moved {
                Ok(_) => {
                    let at = ended.cookie as usize;
                    into[at..at + ended.data.len()].copy_from_slice(&ended.data);
                }
                Err(error) => failure = Some(failure.take().unwrap_or(error)),
            }
        })?;
    }
    failure.map_or(Ok(commands as u64), Err)
}

/// Whether a request and its buffer fit.
pub(crate) fn fits(request: &[u8], capacity: usize, most: usize) -> Result<(), Error> {
    if request.len() > most || !(wire::REPLY_HEADER..=most).contains(&capacity) {
        let reason = format!("{} bytes, and a buffer of {capacity}; the most is {most}", request.len());
        return Err(Error::Form { what: "request", reason });
    }
    Ok(())
}

/// The reply in the first `moved` bytes of a buffer.
pub(crate) fn take_reply(buffer: &impl Buffer, moved: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
    let form = |reason: String| Error::Form { what: "reply", reason };
    let mut header = [0; wire::REPLY_HEADER];
    let moved = moved.min(buffer.len());
    if moved < header.len() {
        return Err(form(format!("{moved} bytes hold none")));
    }
    buffer.read(0, &mut header);
    let len = wire::reply_len(&header).map_err(|e| form(e.to_string()))?;
    if len > moved {
        return Err(form(format!("it claims {len} bytes of {moved}")));
    }
    reply.clear();
    reply.resize(len, 0);
    buffer.read(0, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that works for ever, through a kernel that takes one command after another.
    #[derive(Default)]
    struct Endless {
        /// Opcode, tag, and for how long a `result` may wait.
        sent: Vec<(u8, u64, u32)>,
        ended: Vec<Ended>,
        /// Answers after which it is given up.
        patience: usize,
    }

    impl Carrier for Endless {
        fn send(&mut self, command: &Command, data: Vec<u8>, cookie: u64) -> Result<(), Error> {
            let cdw = &command.entry.cdw;
            let tag = u64::from(cdw[12]) | u64::from(cdw[13]) << 32;
            self.sent.push((command.entry.opcode(), tag, cdw[14]));
            self.ended.push(Ended { cookie, moved: Ok(0), data });
            Ok(())
        }

        fn wait(&mut self, sink: impl FnMut(Ended)) -> Result<(), Error> {
            self.ended.drain(..).for_each(sink);
            Ok(())
        }

        fn outstanding(&self) -> usize {
            self.ended.len()
        }

        fn wait_ms(&self) -> u32 {
            7
        }

        fn is_stopped(&self) -> bool {
            self.sent.iter().filter(|(opcode, ..)| *opcode == io::NEAR_DATA_RESULT).count() > self.patience
        }
    }

    #[test]
    fn what_is_given_up_is_cancelled_in_the_drive() {
        for patience in [0, 1, 5] {
            let mut carrier = Endless { patience, ..Endless::default() };
            let tag = 0x1234_5678_9abc_def0;
            let given_up = near_data(&mut carrier, 1, tag, b"request", vec![0; 4096], &mut Vec::new());
            assert!(matches!(given_up, Err(Error::Refused(Failure::Cancelled))), "{given_up:?}");
            let mut want = vec![(io::NEAR_DATA_EXECUTE, tag, 0)];
            want.extend(std::iter::repeat_n((io::NEAR_DATA_RESULT, tag, 7), patience + 1));
            want.push((io::NEAR_DATA_CANCEL, tag, 0));
            assert_eq!(carrier.sent, want);
            assert_eq!(carrier.outstanding(), 0);
        }
    }
}
