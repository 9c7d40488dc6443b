//! What a program can ask of the drive: the functions that it imports.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use nearside_ndp::program::{Begin, Emitted, MAX_EMITTED, MAX_MEMORY};
use wasmtime::{Caller, Error, Linker, Memory, ResourceLimiter, Result};

/// The module that programs import from.
const MODULE: &str = "nearside";
/// Bytes emitted and not taken with which a program waits.
const OUTBOX: usize = 64 << 10;
/// Bytes moved that count as one instruction.
const MOVED: u64 = 16;
/// Fuel for a call of one of these.
const CALL: u64 = 32;
/// Fuel of a slice: instructions take some tenths of a nanosecond, some of them a few.
pub(crate) const SLICE: u64 = 20_000;
/// How often it may ask for memory: each time counts as one instruction, and takes many.
const MOST_ASKED: usize = 1_000;
/// Elements of a table.
const MOST_ELEMENTS: usize = 10_000;
/// The most of a text about a failure.
const MOST_TEXT: usize = 512;

/// What a program and its run have between them.
pub(crate) struct Shared {
    begin: Begin,
    /// Bytes that were given, from `read` on not asked for yet.
    inbox: Vec<u8>,
    read: usize,
    /// Place in the file of the next byte that is asked for.
    position: u64,
    ended: bool,
    /// It waits for bytes.
    pub wants: bool,
    outbox: VecDeque<Emitted>,
    outbox_len: usize,
    restart: u64,
    nth: u64,
    /// What it said when it gave up.
    pub failed: Option<String>,
    /// Bytes of its memory.
    pub memory: usize,
}

impl Shared {
    pub(crate) fn new(begin: Begin) -> Shared {
        Shared {
            position: begin.offset,
            restart: begin.offset,
            begin,
            inbox: Vec::new(),
            read: 0,
            ended: false,
            wants: false,
            outbox: VecDeque::new(),
            outbox_len: 0,
            nth: 0,
            failed: None,
            memory: 0,
        }
    }

    /// Whether it waits until what it emitted is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.outbox_len >= OUTBOX
    }

    /// Which byte it waits for.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn give(&mut self, bytes: &[u8]) {
        self.inbox.drain(..self.read);
        self.read = 0;
        self.inbox.extend_from_slice(bytes);
        self.ended = bytes.is_empty();
        self.wants = false;
    }

    /// The oldest record.
    pub(crate) fn pop(&mut self) -> Option<Emitted> {
        let gone = self.outbox.pop_front()?;
        self.outbox_len = self.outbox_len.saturating_sub(weight(&gone.bytes));
        Some(gone)
    }

    /// The bytes at hand go to a program's, as far as there is room.
    fn read(&mut self, to: &mut [u8]) -> usize {
        let from = self.inbox.get(self.read..).unwrap_or_default();
        let n = from.len().min(to.len());
        if let (Some(to), Some(from)) = (to.get_mut(..n), from.get(..n)) {
            to.copy_from_slice(from);
        }
        self.read += n;
        self.position = self.position.saturating_add(n as u64);
        n
    }

    /// Where that is a place in the file.
    fn within(&mut self, what: &str, offset: u64) -> Result<&mut Shared> {
        let size = self.begin.size;
        match offset <= size {
            true => Ok(self),
            false => Err(Error::msg(format!("{what} byte {offset} of a file of {size}"))),
        }
    }

    fn seek(&mut self, offset: u64) {
        let at_hand = self.inbox.len().saturating_sub(self.read) as u64;
        match offset.checked_sub(self.position) {
            Some(on) if on <= at_hand => self.read += usize::try_from(on).unwrap_or(0),
            _ => {
                self.inbox.clear();
                (self.read, self.ended) = (0, false);
            }
        }
        self.position = offset;
    }

    fn emit(&mut self, bytes: Vec<u8>) {
        self.outbox_len = self.outbox_len.saturating_add(weight(&bytes));
        self.outbox.push_back(Emitted { bytes, restart: self.restart, nth: self.nth });
        self.nth += 1;
    }
}

/// What a record takes, about.
fn weight(bytes: &[u8]) -> usize {
    bytes.len().max(64)
}

/// How much memory a program gets; where its own grows, that is said there.
pub(crate) struct Limits {
    shared: Arc<Mutex<Shared>>,
    /// How often it has asked for more.
    asked: usize,
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _now: usize, wants: usize, _most: Option<usize>) -> Result<bool> {
        self.asked += 1;
        if self.asked > MOST_ASKED {
            return Err(Error::msg(format!("it asked for memory more than {MOST_ASKED} times")));
        }
        let fits = wants <= MAX_MEMORY;
        if fits {
            lock(&self.shared).memory = wants;
        }
        Ok(fits)
    }

    fn table_growing(&mut self, _now: usize, wants: usize, _most: Option<usize>) -> Result<bool> {
        Ok(wants <= MOST_ELEMENTS)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        4
    }

    fn memories(&self) -> usize {
        1
    }
}

/// A program's side of it.
pub(crate) struct Host {
    shared: Arc<Mutex<Shared>>,
    pub memory: Option<Memory>,
    pub limits: Limits,
    /// Fuel that was left when it was last interrupted in a call.
    mark: u64,
}

impl Host {
    pub(crate) fn new(shared: Arc<Mutex<Shared>>, fuel: u64) -> Host {
        let limits = Limits { shared: shared.clone(), asked: 0 };
        Host { shared, memory: None, limits, mark: fuel }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

pub(crate) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(|e| e.into_inner())
}

/// Defines the functions.
pub(crate) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap_async(MODULE, "next", |mut caller: Caller<'_, Host>, (at, len): (u32, u32)| {
        Box::new(async move {
            loop {
                if let Some(n) = next(&mut caller, at, len)? {
                    charge(&mut caller, n.into()).await?;
                    return Ok(n);
                }
                pause().await;
            }
        })
    })?;
    linker.func_wrap_async(MODULE, "emit", |mut caller: Caller<'_, Host>, (at, len): (u32, u32)| {
        Box::new(async move {
            let bytes = text(&caller, at, len, MAX_EMITTED)?;
            while caller.data().shared().is_full() {
                pause().await;
            }
            caller.data().shared().emit(bytes);
            charge(&mut caller, len.into()).await
        })
    })?;
    linker.func_wrap_async(MODULE, "parameters", |mut caller: Caller<'_, Host>, (at, len): (u32, u32)| {
        Box::new(async move {
            let memory = memory(&caller)?;
            let (bytes, host) = memory.data_and_store_mut(&mut caller);
            let to = part_mut(bytes, at, len)?;
            let parameters = host.shared().begin.parameters.clone();
            let n = parameters.len().min(to.len());
            to[..n].copy_from_slice(&parameters[..n]);
            charge(&mut caller, n as u64).await?;
            Ok(u32::try_from(parameters.len()).unwrap_or(u32::MAX))
        })
    })?;
    linker.func_wrap_async(MODULE, "size", |mut caller: Caller<'_, Host>, (): ()| {
        Box::new(async move {
            charge(&mut caller, 0).await?;
            Ok(caller.data().shared().begin.size)
        })
    })?;
    linker.func_wrap_async(MODULE, "offset", |mut caller: Caller<'_, Host>, (): ()| {
        Box::new(async move {
            charge(&mut caller, 0).await?;
            Ok(caller.data().shared().position)
        })
    })?;
    linker.func_wrap_async(MODULE, "seek", |mut caller: Caller<'_, Host>, (offset,): (u64,)| {
        Box::new(async move {
            charge(&mut caller, 0).await?;
            caller.data().shared().within("it seeks", offset)?.seek(offset);
            Ok(())
        })
    })?;
    linker.func_wrap_async(MODULE, "restart", |mut caller: Caller<'_, Host>, (offset,): (u64,)| {
        Box::new(async move {
            charge(&mut caller, 0).await?;
            let mut shared = caller.data().shared();
            let shared = shared.within("it could begin at", offset)?;
            (shared.restart, shared.nth) = (offset, 0);
            Ok(())
        })
    })?;
    linker.func_wrap(MODULE, "fail", |caller: Caller<'_, Host>, at: u32, len: u32| -> Result<()> {
        let text = text(&caller, at, len.min(MOST_TEXT as u32), MOST_TEXT)?;
        caller.data().shared().failed = Some(String::from_utf8_lossy(&text).into_owned());
        Err(Error::msg("it gave up"))
    })?;
    Ok(())
}

/// Bytes of the file, as many as are at hand; `None`: none is, and more may come.
fn next(caller: &mut Caller<'_, Host>, at: u32, len: u32) -> Result<Option<u32>> {
    let (bytes, host) = memory(caller)?.data_and_store_mut(&mut *caller);
    let to = part_mut(bytes, at, len)?;
    let mut shared = host.shared();
    let n = shared.read(to);
    if n == 0 && len > 0 && !shared.ended {
        shared.wants = true;
        return Ok(None);
    }
    Ok(Some(u32::try_from(n).unwrap_or(u32::MAX)))
}

fn memory(caller: &Caller<'_, Host>) -> Result<Memory> {
    caller.data().memory.ok_or_else(|| Error::msg("it asks for something before it has begun"))
}

fn outside(at: u32, len: u32) -> Error {
    Error::msg(format!("{len} bytes at {at} are not in its memory"))
}

fn part_mut(bytes: &mut [u8], at: u32, len: u32) -> Result<&mut [u8]> {
    let (from, n) = (at as usize, len as usize);
    bytes.get_mut(from..from.saturating_add(n)).ok_or_else(|| outside(at, len))
}

/// A copy of a part of a program's memory.
fn text(caller: &Caller<'_, Host>, at: u32, len: u32, most: usize) -> Result<Vec<u8>> {
    let (from, n) = (at as usize, len as usize);
    if n > most {
        return Err(Error::msg(format!("it emits {n} bytes at once: at most {most}")));
    }
    let bytes = memory(caller)?.data(caller).get(from..from.saturating_add(n));
    bytes.map(<[u8]>::to_vec).ok_or_else(|| outside(at, len))
}

/// Takes fuel for a call that moved so many bytes. Calls are nowhere else interrupted.
async fn charge(caller: &mut Caller<'_, Host>, moved: u64) -> Result<()> {
    let fuel = CALL + moved / MOVED;
    let left = caller.get_fuel()?.saturating_sub(fuel);
    // From here on it has a whole slice again: what it took before is looked at here.
    caller.set_fuel(left)?;
    let host = caller.data_mut();
    if host.mark.saturating_sub(left) >= SLICE {
        host.mark = left;
        pause().await;
    }
    Ok(())
}

/// Pending once.
async fn pause() {
    let mut paused = false;
    poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}
