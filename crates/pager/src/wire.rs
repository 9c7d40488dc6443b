//! How a memory is handed to a pager in another process: one message over a Unix socket, with two descriptors
//! (the faults', the memory's); one byte back. Who ends the connection ends the service.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nearside_clock::Clock;
use nearside_dma::userfault::UserFault;
use nearside_driver::{Initiator, Peer};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::Error;
use crate::pager::{Config, Counts, Pager};

/// What the message begins with: name and version.
const MAGIC: u64 = 0x6e73_7067_0000_0001;
/// Magic, address, bytes, budget in pages.
const WORDS: usize = 4;
/// It is taken.
const TAKEN: u8 = 1;

pub(crate) fn hand_over(
    mut stream: &UnixStream,
    faults: &UserFault,
    memory: &OwnedFd,
    budget: usize,
) -> Result<(), Error> {
    let failed = Error::system("the pager's socket");
    let (base, len) = faults.place();
    let words = [MAGIC, base, len as u64, budget as u64].map(u64::to_le_bytes).concat();
    let descriptors = [faults.as_fd(), memory.as_fd()];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(stream, &[IoSlice::new(&words)], &mut control, SendFlags::NOSIGNAL);
    if sent.map_err(|e| Error::system("the pager's socket")(e.into()))? != words.len() {
        return Err(Error::Invalid("the pager's socket took a part of a message".into()));
    }
    let mut answer = [0];
    stream.read_exact(&mut answer).map_err(failed)?;
    match answer[0] {
        TAKEN => Ok(()),
        _ => Err(Error::Invalid("the pager refused the memory".into())),
    }
}

/// Returns when the other side has ended.
pub(crate) fn wait_for_end(mut stream: &UnixStream) {
    let mut bytes = [0; 16];
    while !matches!(stream.read(&mut bytes), Ok(0) | Err(_)) {}
}

/// Serves the memory that a process hands over by a connection, from a namespace of `room` bytes, until the
/// connection's end. Of the configuration the budget is what the other asks for, and at most what it says.
///
/// # Errors
/// A message that is none; as [`Pager::new`] and [`Pager::run`].
pub fn accept<P: Peer, C: Clock>(
    mut stream: &UnixStream,
    io: Initiator<P, C>,
    room: u64,
    config: Config,
) -> Result<Counts, Error> {
    let mut words = [0u8; WORDS * 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut words)], &mut control, flags);
    let got = got.map_err(|e| Error::system("the application's socket")(e.into()))?.bytes;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    let mut word = words
        .chunks_exact(8)
        .map(|word| word.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)));
    let mut next = || word.next().unwrap_or_default();
    let (magic, base, len, budget) = (next(), next(), next(), next());
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let budget = usize::try_from(budget).unwrap_or(usize::MAX).min(config.budget);
    let (2, true, true) = (descriptors.len(), got == WORDS * 8, magic == MAGIC) else {
        return Err(Error::Invalid("the application's message is none".into()));
    };
    let (Some(memory), Some(faults)) = (descriptors.pop(), descriptors.pop()) else {
        return Err(Error::Invalid("the application's message has no descriptors".into()));
    };
    let faults = UserFault::foreign(faults, base, len);
    let faults = faults.map_err(Error::system("the application's descriptor"))?;
    let mut pager = Pager::new(io, faults, memory, room, Config { budget, ..config })?;
    stream.write_all(&[TAKEN]).map_err(Error::system("the application's socket"))?;
    pager.run(stream)
}
