//! Requests and replies by io_uring: a thread with a ring serves some of the kernel's queues.
//!
//! Each entry of a queue is a buffer of the drive's driver, which the kernel writes a request's bytes to and
//! takes a reply's from. One call of the kernel's sends all replies that there are and brings all requests. A
//! thread with nothing to do sleeps in its ring, which an interrupt of the drive ends as well.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use nearside_dma::fuse::FuseDevice;
use nearside_dma::fuse::ring::{FuseRing, RingEvent};
use nearside_driver::DmaBuffer;

use crate::engine::{Answer, Answered, Engine};
use crate::wire::{ARGUMENTS, Request, out_header};

/// What one thread serves.
pub(crate) struct Share {
    /// The kernel's queues.
    pub(crate) queues: Vec<u16>,
    /// Entries of each.
    pub(crate) depth: usize,
    /// Bytes of an entry's buffer.
    pub(crate) payload: usize,
}

impl Share {
    /// Entries of all of its queues.
    pub(crate) fn entries(&self) -> usize {
        self.queues.len() * self.depth
    }
}

/// An entry.
struct Place {
    unique: u64,
    /// Where no request has it.
    buffer: Option<DmaBuffer>,
}

/// How the thread and who starts it speak.
pub(crate) struct Talk {
    /// Whether the ring is there; then whether its entries were taken.
    pub(crate) says: Sender<io::Result<()>>,
    /// Whether to register the entries, once the kernel takes them.
    pub(crate) hears: Receiver<()>,
}

/// Serves until the kernel has given all entries back.
///
/// # Errors
/// The system's: the ring was not to be had, or cannot be entered.
pub(crate) fn serve(
    device: &Arc<FuseDevice>,
    mut engine: Engine<'_>,
    share: &Share,
    talk: Talk,
) -> io::Result<()> {
    let made = ring_and_buffers(device, &engine, share);
    let (mut ring, mut places) = match made {
        Ok(made) => {
            let _ = talk.says.send(Ok(()));
            made
        }
        Err(e) => {
            let _ = talk.says.send(Err(e));
            return Ok(());
        }
    };
    if talk.hears.recv().is_err() {
        engine.close();
        return Ok(());
    }
    register(&mut ring, &places, share);
    engine.events().into_iter().flatten().for_each(|event| ring.watch(event));
    let entered = ring.enter();
    // The kernel gives entries back at once where it does not take them.
    let first: Vec<RingEvent> = std::iter::from_fn(|| ring.take()).collect();
    let refused = first.iter().find_map(|event| match event {
        RingEvent::Gone(_, errno) => Some(io::Error::from_raw_os_error(*errno)),
        _ => None,
    });
    let _ = talk.says.send(entered.and(refused.map_or(Ok(()), Err)));
    drop(talk);
    let result = turns(&mut ring, &mut engine, &mut places, first);
    if result.is_ok() {
        engine.close();
    }
    result
}

type Made = (FuseRing, Vec<Place>);

fn ring_and_buffers(device: &Arc<FuseDevice>, engine: &Engine<'_>, share: &Share) -> io::Result<Made> {
    let ring = FuseRing::new(device.clone(), share.entries())?;
    let place = |_| Ok(Place { unique: 0, buffer: Some(engine.buffer(share.payload)?) });
    Ok((ring, (0..share.entries()).map(place).collect::<io::Result<_>>()?))
}

/// Entries of one queue follow one another.
fn register(ring: &mut FuseRing, places: &[Place], share: &Share) {
    for (place, queue) in
        places.iter().zip(share.queues.iter().flat_map(|q| std::iter::repeat_n(*q, share.depth)))
    {
        if let Some(buffer) = &place.buffer {
            let (region, offset) = buffer.region();
            ring.register(queue, region, offset, share.payload);
        }
    }
}

fn turns(
    ring: &mut FuseRing,
    engine: &mut Engine<'_>,
    places: &mut [Place],
    first: Vec<RingEvent>,
) -> io::Result<()> {
    let mut first = first.into_iter();
    // Requests whose replies the kernel still waits for have entries, too.
    let mut held = 0usize;
    loop {
        let mut worked = false;
        while let Some(event) = first.next().or_else(|| ring.take()) {
            worked = true;
            if let RingEvent::Request(index) = event {
                held += 1;
                begin(ring, engine, places, index);
            }
        }
        engine.look();
        while let Some(answered) = engine.next() {
            (worked, held) = (true, held - 1);
            reply(ring, places, answered);
        }
        if worked {
            continue;
        }
        if ring.out() == 0 && held == 0 {
            return Ok(());
        }
        if engine.spins() {
            if ring.has_work() {
                ring.enter()?;
            } else {
                std::hint::spin_loop();
            }
            continue;
        }
        let most = engine.arm();
        if most == Some(Duration::ZERO) {
            ring.enter()?;
        } else {
            ring.wait(most)?;
        }
        engine.disarm();
    }
}

fn begin(ring: &mut FuseRing, engine: &mut Engine<'_>, places: &mut [Place], index: usize) {
    let entry = ring.request(index);
    let buffer = places[index].buffer.take();
    // A name is short, or none that there is.
    let mut text = [0; ARGUMENTS];
    if let (Some(buffer), Some(text)) = (&buffer, text.get_mut(..entry.payload)) {
        let (region, offset) = buffer.region();
        region.read(offset, text);
    }
    let request = Request::of_entry(&entry.head, &entry.args, &text, entry.payload);
    places[index].unique = request.header.unique;
    engine.begin(index, &request, buffer);
}

fn reply(ring: &mut FuseRing, places: &mut [Place], answered: Answered) {
    let Answered { slot, answer, buffer } = answered;
    let place = &mut places[slot];
    place.buffer = buffer;
    let (errno, len) = match (answer, &mut place.buffer) {
        (Answer::Nothing, _) => (0, 0),
        (Answer::Error(errno), _) => (errno, 0),
        (Answer::Data(len), Some(_)) => (0, len),
        (Answer::Body(body), Some(buffer)) => {
            let (region, offset) = buffer.region();
            region.write(offset, body.bytes());
            (0, body.len())
        }
        (Answer::Data(_) | Answer::Body(_), None) => (libc::EIO, 0),
    };
    let len = len as u32;
    ring.reply(slot, &out_header(len, errno, place.unique), len);
}
