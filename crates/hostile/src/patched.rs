//! A volume's bytes with others laid over them, without a copy of what is not touched.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use nearside_fsview::{Error, Source};

/// Blocks that one input may ask for. The volumes have a twentieth of that:
/// whoever asks for more is in a loop.
const ASKS_MAX: u32 = 500_000;

/// A source in memory.
pub struct Patched<'a> {
    bytes: &'a [u8],
    patches: Vec<(u64, Vec<u8>)>,
    asks: Cell<u32>,
    log: Option<RefCell<Vec<(u64, u32)>>>,
}

/// A block: of the volume itself, or with patches in it.
#[derive(Clone)]
pub enum Block<'a> {
    /// The volume's own bytes.
    Seed(&'a [u8]),
    /// Changed.
    Changed(Rc<[u8]>),
}

impl Deref for Block<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Block::Seed(bytes) => bytes,
            Block::Changed(bytes) => bytes,
        }
    }
}

impl<'a> Patched<'a> {
    /// The bytes as they are.
    pub fn new(bytes: &'a [u8]) -> Patched<'a> {
        Patched { bytes, patches: Vec::new(), asks: Cell::new(0), log: None }
    }

    /// A volume without patches that notes what is asked for.
    pub fn logged(bytes: &'a [u8]) -> Patched<'a> {
        Patched { log: Some(RefCell::default()), ..Patched::new(bytes) }
    }

    /// What was asked for since the last time, in order.
    pub fn take_log(&self) -> Vec<(u64, u32)> {
        self.log.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// Lays bytes over those at `at`; later ones over earlier ones. What lies beyond the end does not count.
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        self.patches.push((at, bytes.to_vec()));
    }

    /// `len` bytes as they are now; `None` beyond the end.
    pub fn get(&self, at: u64, len: usize) -> Option<Block<'a>> {
        let seed = self.bytes.get(usize::try_from(at).ok()?..)?.get(..len)?;
        let end = at + len as u64;
        let touches = |(start, patch): &&(u64, Vec<u8>)| *start < end && at < start + patch.len() as u64;
        let mut patches = self.patches.iter().filter(touches).peekable();
        if patches.peek().is_none() {
            return Some(Block::Seed(seed));
        }
        let mut bytes = seed.to_vec();
        for (start, patch) in patches {
            let (from, to) = (at.max(*start), end.min(start + patch.len() as u64));
            let new = &patch[(from - start) as usize..(to - start) as usize];
            bytes[(from - at) as usize..(to - at) as usize].copy_from_slice(new);
        }
        Some(Block::Changed(bytes.into()))
    }

    /// A little-endian word, zero beyond the end.
    pub fn word(&self, at: u64) -> u32 {
        self.get(at, 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}

impl<'a> Source for Patched<'a> {
    type Block = Block<'a>;

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn metadata(&self, at: u64, len: u32) -> Result<Block<'a>, Error> {
        self.asks.set(self.asks.get() + 1);
        assert!(self.asks.get() < ASKS_MAX, "blocks are asked for without end");
        if let Some(log) = &self.log {
            log.borrow_mut().push((at, len));
        }
        self.get(at, len as usize).ok_or_else(|| Error::Read { at, len, reason: "past the end".into() })
    }
}

/// Runs a future over a source that is always ready.
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a source in memory made someone wait"),
    }
}
