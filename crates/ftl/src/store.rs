//! A store over flash: real bytes, in the drive's time.
//!
//! An operation changes the drive when it is submitted and completes at the drive's time. All channels share
//! one drive. Memory is taken by what is written, and given back when it is overwritten or deallocated.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_clock::{Nanos, RateLimits, event_at};
use nearside_dma::{Memory, Span};
use nearside_media::nand::NandDrive;
use nearside_store::{
    Backing, Channel, Completion, Data, Operation, Store, Submitted, TimerQueue, Token, UNMAPPED, check,
};
use tracing::Level;

use crate::{Config, Cut, Flash, Halt, Recovered, SLOT_BYTES, Stats};

const BYTES: usize = SLOT_BYTES as usize;

/// A handle of 4 KiB of data. None: zeros.
#[derive(Clone, Debug, Default)]
pub struct Page(Option<Arc<[u8; BYTES]>>);

impl Page {
    fn bytes(&self) -> &[u8; BYTES] {
        const ZEROS: &[u8; BYTES] = &[0; BYTES];
        self.0.as_deref().unwrap_or(ZEROS)
    }

    /// `old` with other bytes in `part`, which `fill` gives.
    fn changed(old: Option<&Page>, part: Range<usize>, fill: impl FnOnce(&mut [u8])) -> Page {
        let mut bytes = Arc::new(match old {
            Some(old) if part.len() < BYTES => *old.bytes(),
            _ => [0; BYTES],
        });
        if let Some(bytes) = Arc::get_mut(&mut bytes) {
            fill(&mut bytes[part]);
        }
        Page(Some(bytes))
    }
}

/// A store whose bytes lie on modelled flash. Clones share it.
#[derive(Clone, Debug)]
pub struct FlashStore {
    shared: Arc<Mutex<FlashShared>>,
    capacity: u64,
    block_size: u32,
}

/// How often the log says the same of one store.
const REPORT_EVERY_NS: u64 = 10_000_000_000;

#[derive(Debug)]
struct FlashShared {
    flash: Flash<Page>,
    /// What the log was told.
    reports: RateLimits<Halt>,
    /// The latest time that it was told: two channels' times may come in either order.
    now: u64,
}

impl FlashStore {
    /// An empty store over `drive`, as large as the drive is; blocks of 512 or 4096 bytes.
    ///
    /// # Errors
    /// `InvalidInput` where the block size is another, the capacity is not whole blocks, or [`Flash::new`]
    /// refuses the drive.
    pub fn new(drive: NandDrive, config: Config, block_size: u32) -> io::Result<FlashStore> {
        let capacity = drive.capacity;
        if ![512, 4096].contains(&block_size) || !capacity.is_multiple_of(u64::from(block_size)) {
            let reason = format!("{capacity} bytes are not whole blocks of {block_size} (512 or 4096)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let flash = Flash::new(drive, config)?;
        let shared = FlashShared { flash, reports: RateLimits::new(REPORT_EVERY_NS), now: 0 };
        Ok(FlashStore { shared: Arc::new(Mutex::new(shared)), capacity, block_size })
    }

    fn lock(&self) -> MutexGuard<'_, FlashShared> {
        self.shared.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        self.lock().flash.stats()
    }

    /// Dies with something to do at `now`.
    pub fn busy_dies(&self, now: Nanos) -> usize {
        self.lock().flash.busy_dies(now.0)
    }

    /// Cuts the power after so many more operations on the flash: whatever would change it then fails until
    /// [`FlashStore::recover`]. What buffers or the flash still have is still read and buffered, as between
    /// the cut and the moment in which a host sees it; none of it is durable.
    pub fn cut_after(&self, cut: Cut) {
        self.lock().flash.cut_after(cut);
    }

    /// Cuts the power, gives it back and finds everything again. Nothing may be in flight.
    ///
    /// # Errors
    /// Those of [`Flash::recover`]. The store is then empty.
    pub fn recover(&self) -> io::Result<Recovered> {
        let mut shared = self.lock();
        let (drive, config) = (*shared.flash.drive(), shared.flash.config());
        let empty = Flash::new(drive.sized(1 << 20), config)?;
        let array = std::mem::replace(&mut shared.flash, empty).power_cut();
        let (flash, recovered) = Flash::recover(drive, config, array)?;
        shared.flash = flash;
        Ok(recovered)
    }
}

impl Store for FlashStore {
    type Channel = FlashChannel;

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing::Model)
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<FlashChannel> {
        Ok(FlashChannel { store: self.clone(), memory, due: TimerQueue::default() })
    }
}

/// A way into a [`FlashStore`].
pub struct FlashChannel {
    store: FlashStore,
    memory: Arc<Memory>,
    due: TimerQueue<(Token, Completion)>,
}

/// Host memory, from front to back.
struct Cursor<'a> {
    memory: &'a Memory,
    spans: &'a [Span],
    buffer: &'a mut [u8],
    at: usize,
    /// Some of the memory was not the host's any more.
    gone: bool,
}

impl Cursor<'_> {
    /// Calls `each` with parts of the next `len` bytes: a span of host memory, or a place in the buffer.
    fn walk(&mut self, len: usize, mut each: impl FnMut(&Memory, Option<Span>, &mut [u8], Range<usize>)) {
        if self.spans.is_empty() {
            let part = &mut self.buffer[self.at..self.at + len];
            each(self.memory, None, part, 0..len);
            self.at += len;
            return;
        }
        let mut done = 0;
        while done < len {
            let Some(span) = self.spans.first() else { return };
            let take = (span.len() - self.at).min(len - done);
            each(self.memory, span.part(self.at, take), &mut [], done..done + take);
            done += take;
            self.at += take;
            if self.at == span.len() {
                (self.spans, self.at) = (&self.spans[1..], 0);
            }
        }
    }

    fn take(&mut self, into: &mut [u8]) {
        let mut gone = false;
        self.walk(into.len(), |memory, span, buffer, part| match span {
            Some(span) => gone |= !memory.read(span, &mut into[part]),
            None => into[part].copy_from_slice(buffer),
        });
        self.gone |= gone;
    }

    fn put(&mut self, from: &[u8]) {
        let mut gone = false;
        self.walk(from.len(), |memory, span, buffer, part| match span {
            Some(span) => gone |= !memory.write(span, &from[part]),
            None => buffer.copy_from_slice(&from[part]),
        });
        self.gone |= gone;
    }
}

impl FlashShared {
    /// Tells the log that the flash does not work.
    #[cold]
    fn report(&mut self, halt: Halt, operation: &Operation) {
        let level = match halt {
            // Whoever cut it knows.
            Halt::PowerCut => Level::WARN,
            Halt::NoBlock => Level::ERROR,
        };
        if let Some(suppressed) = self.reports.admit(halt, Nanos(self.now)) {
            event_at!(level, operation = operation.name(), %halt, suppressed, "the flash does not work");
        }
    }

    fn run(&mut self, operation: Operation, cursor: &mut Cursor<'_>) -> Result<u64, Halt> {
        let now = self.now;
        let flash = &mut self.flash;
        let zero =
            |_, part: Range<usize>, old: Option<&Page>| Page::changed(old, part, |bytes| bytes.fill(0));
        match operation {
            Operation::Read { offset, len } => {
                let (mut at, end) = (offset, offset + len);
                while at < end {
                    let from = (at % SLOT_BYTES) as usize;
                    let part = from..BYTES.min(from + (end - at) as usize);
                    at += part.len() as u64;
                    let page = flash.peek(((at - 1) / SLOT_BYTES) as u32).cloned().unwrap_or_default();
                    cursor.put(&page.bytes()[part]);
                }
                Ok(flash.read(offset, len, now))
            }
            Operation::Write { offset, len, fua } => flash.write(offset, len, fua, now, |_, part, old| {
                Page::changed(old, part, |bytes| cursor.take(bytes))
            }),
            Operation::WriteZeroes { offset, len, fua } => flash.deallocate(offset, len, fua, now, zero),
            Operation::Deallocate { offset, len } => flash.deallocate(offset, len, false, now, zero),
            Operation::Flush => flash.flush(now),
        }
    }
}

impl Channel for FlashChannel {
    fn submit(&mut self, operation: Operation, mut data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        let store = &self.store;
        if let Err(error) = check(&operation, &data, store.capacity, store.block_size, false) {
            return Submitted::done(Err(error), data);
        }
        let (spans, buffer): (&[Span], &mut [u8]) = match &mut data {
            Data::None => (&[], &mut []),
            Data::Spans(spans) => (spans, &mut []),
            Data::Owned(buffer) => (&[], buffer),
        };
        let mut cursor = Cursor { memory: &self.memory, spans, buffer, at: 0, gone: false };
        let mut shared = store.lock();
        shared.now = shared.now.max(now.0);
        let done = shared.run(operation, &mut cursor);
        if let Err(halt) = done {
            shared.report(halt, &operation);
        }
        drop(shared);
        let gone = cursor.gone;
        match done {
            Ok(_) if gone => Submitted::done(Err(operation.failed(UNMAPPED)), data),
            Err(halt) => Submitted::done(Err(operation.failed(halt)), data),
            Ok(finish) if finish <= now.0 => Submitted::done(Ok(()), data),
            Ok(finish) => {
                let completion = Completion { result: Ok(()), buffer: data.into_buffer() };
                self.due.push(Nanos(finish), (token, completion));
                Submitted::Pending
            }
        }
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        while let Some((token, completion)) = self.due.pop(now) {
            sink(token, completion);
        }
        self.due.next_due()
    }

    fn in_flight(&self) -> usize {
        self.due.len()
    }
}
