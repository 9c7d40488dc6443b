//! Where a command's data lie in host memory: PRPs and SGLs, walked and checked (Base 2.0, 4.1).
//!
//! Lists and segments are copied out of host memory once, then checked. What comes out are spans of mapped
//! memory, exactly as long together as the command's data; nothing else of the host's addresses is used
//! after.

use nearside_dma::{Memory, PAGE_SIZE, Span};
use nearside_spec::command::common;
use nearside_spec::data::{SglDescriptor, SglType};
use nearside_spec::{Status, SubmissionEntry};

use crate::fault::Fault;

const PAGE: u64 = PAGE_SIZE as u64;
const PRP1: u8 = 24;
const PRP2: u8 = 32;
const SGL1: u8 = 24;

/// Most SGL descriptors that one command may have, segments included.
const MAX_DESCRIPTORS: usize = 4096;

/// A command's data pointer, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    Prp(u64, u64),
    Sgl(SglDescriptor),
}

impl Pointer {
    /// From a submission entry. Checks PSDT.
    #[inline]
    pub(crate) fn of(entry: &SubmissionEntry) -> Result<Pointer, Fault> {
        match entry.psdt() {
            0 => Ok(Pointer::Prp(entry.prp1(), entry.prp2())),
            1 | 2 => Ok(Pointer::Sgl(entry.sgl1())),
            _ => Err(Fault::field(common::PSDT)),
        }
    }
}

/// The memory of a command's data, in order.
#[derive(Debug)]
pub(crate) struct Layout<P = Span> {
    pub(crate) spans: Vec<P>,
    /// Bit buckets: so many bytes are thrown away before the span of that index.
    pub(crate) buckets: Vec<(usize, usize)>,
}

impl<P> Default for Layout<P> {
    fn default() -> Layout<P> {
        Layout { spans: Vec::new(), buckets: Vec::new() }
    }
}

impl<P> Layout<P> {
    fn clear(&mut self) {
        self.spans.clear();
        self.buckets.clear();
    }
}

/// Whose addresses a walk goes by.
pub(crate) trait Addresses {
    /// What an address and a length become.
    type Piece;
    /// Bytes of data that lie there, in one piece.
    fn piece(&self, iova: u64, len: usize) -> Option<Self::Piece>;
    /// Copies out a list that lies there; whether it could be.
    fn list(&self, iova: u64, into: &mut [u8]) -> bool;
}

impl Addresses for Memory {
    type Piece = Span;

    #[inline]
    fn piece(&self, iova: u64, len: usize) -> Option<Span> {
        self.resolve(iova, len).ok()
    }

    #[inline]
    fn list(&self, iova: u64, into: &mut [u8]) -> bool {
        let span = self.resolve(iova, into.len());
        span.map(|span| self.read(span, into)).is_ok()
    }
}

/// Data or lists of a command lie where the drive cannot look: it may have to ask for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Bytes of its data.
    pub(crate) len: usize,
    /// As [`walk`] has it.
    pub(crate) from_host: bool,
}

impl Layout {
    /// Copies bytes from the host's memory into `into`, as far as both reach.
    pub(crate) fn gather(&self, memory: &Memory, mut into: &mut [u8]) {
        for &span in &self.spans {
            let n = span.len().min(into.len());
            let (now, later) = into.split_at_mut(n);
            if let Some(span) = span.part(0, n) {
                memory.read(span, now);
            }
            into = later;
        }
    }

    /// Copies bytes to the host's memory, as far as both reach; bit buckets take theirs.
    pub(crate) fn scatter(&self, memory: &Memory, mut from: &[u8]) {
        let mut buckets = self.buckets.iter().peekable();
        for (index, &span) in self.spans.iter().enumerate() {
            while let Some((_, len)) = buckets.next_if(|(at, _)| *at == index) {
                from = from.get(*len..).unwrap_or(&[]);
            }
            let n = span.len().min(from.len());
            let (now, later) = from.split_at(n);
            if let Some(span) = span.part(0, n) {
                memory.write(span, now);
            }
            from = later;
        }
    }
}

/// The common case, without a list: one or two pages by PRP, or an SGL of one data block. `None`: walk.
#[inline]
pub(crate) fn short(memory: &Memory, pointer: &Pointer, len: usize, spans: &mut [Span; 2]) -> Option<usize> {
    let (prp1, prp2) = match pointer {
        Pointer::Prp(prp1, prp2) => (*prp1, *prp2),
        Pointer::Sgl(d) if d.id() == SglType::DataBlock.to_field() << 4 && d.length() as usize == len => {
            spans[0] = memory.resolve(d.address(), len).ok()?;
            return Some(1);
        }
        Pointer::Sgl(_) => return None,
    };
    let first = PAGE_SIZE - (prp1 % PAGE) as usize;
    if prp1 & 3 != 0 {
        return None;
    }
    if len <= first {
        spans[0] = memory.resolve(prp1, len).ok()?;
        return Some(1);
    }
    if len - first > PAGE_SIZE || !prp2.is_multiple_of(PAGE) {
        return None;
    }
    if prp1.wrapping_add(first as u64) == prp2
        && let Ok(both) = memory.resolve(prp1, len)
    {
        spans[0] = both;
        return Some(1);
    }
    spans[0] = memory.resolve(prp1, first).ok()?;
    spans[1] = memory.resolve(prp2, len - first).ok()?;
    Some(2)
}

/// Finds the memory of `len` bytes of data. `from_host`: the data go to the controller, so that bit buckets
/// are empty. Where they may lie in memory that is reached by messages, the fault says so.
pub(crate) fn walk(
    memory: &Memory,
    pointer: &Pointer,
    len: usize,
    from_host: bool,
    layout: &mut Layout,
) -> Result<(), Fault> {
    let unreachable = unreachable_memory(0).status;
    walk_in(memory, pointer, len, from_host, layout).map_err(|fault| {
        let elsewhere = fault.status == unreachable && memory.remote().is_used();
        Fault { elsewhere: elsewhere.then_some(Elsewhere { len, from_host }), ..fault }
    })
}

/// As [`walk`], by any addresses.
pub(crate) fn walk_in<A: Addresses>(
    memory: &A,
    pointer: &Pointer,
    len: usize,
    from_host: bool,
    layout: &mut Layout<A::Piece>,
) -> Result<(), Fault> {
    layout.clear();
    match pointer {
        Pointer::Prp(prp1, prp2) => walk_prp(memory, *prp1, *prp2, len, &mut layout.spans),
        Pointer::Sgl(descriptor) => walk_sgl(memory, descriptor, len, from_host, layout),
    }
}

const fn prp_offset(byte: u8) -> Fault {
    Fault::new(Status::INVALID_PRP_OFFSET).at(byte, 0)
}

const fn unreachable_memory(byte: u8) -> Fault {
    Fault::new(Status::DATA_TRANSFER_ERROR).at(byte, 0)
}

/// Runs of pages that follow each other in the host's addresses, resolved as one.
struct Runs<'a, A: Addresses> {
    memory: &'a A,
    spans: &'a mut Vec<A::Piece>,
    start: u64,
    len: usize,
}

impl<A: Addresses> Runs<'_, A> {
    fn add(&mut self, iova: u64, len: usize) -> Result<(), Fault> {
        if self.len > 0 && self.start.checked_add(self.len as u64) == Some(iova) {
            self.len += len;
            return Ok(());
        }
        self.finish()?;
        (self.start, self.len) = (iova, len);
        Ok(())
    }

    /// Regions may lie side by side: what does not resolve as one is tried page by page.
    fn finish(&mut self) -> Result<(), Fault> {
        let (mut at, mut left) = (self.start, self.len);
        self.len = 0;
        if left == 0 {
            return Ok(());
        }
        if let Some(span) = self.memory.piece(at, left) {
            self.spans.push(span);
            return Ok(());
        }
        while left > 0 {
            let n = left.min(PAGE_SIZE - (at % PAGE) as usize);
            self.spans.push(self.memory.piece(at, n).ok_or(unreachable_memory(PRP1))?);
            at += n as u64;
            left -= n;
        }
        Ok(())
    }
}

fn walk_prp<A: Addresses>(
    memory: &A,
    prp1: u64,
    prp2: u64,
    len: usize,
    spans: &mut Vec<A::Piece>,
) -> Result<(), Fault> {
    if len == 0 {
        return Ok(());
    }
    if prp1 & 3 != 0 {
        return Err(prp_offset(PRP1));
    }
    let mut runs = Runs { memory, spans, start: 0, len: 0 };
    let first = len.min(PAGE_SIZE - (prp1 % PAGE) as usize);
    runs.add(prp1, first)?;
    let mut left = len - first;
    if left == 0 {
        return runs.finish();
    }
    if left <= PAGE_SIZE {
        if !prp2.is_multiple_of(PAGE) {
            return Err(prp_offset(PRP2));
        }
        runs.add(prp2, left)?;
        return runs.finish();
    }
    let mut list = prp2;
    let mut bytes = [0u8; PAGE_SIZE];
    while left > 0 {
        // A list's address has to be a multiple of 8, and only the first may begin within its page.
        if list & 7 != 0 || (list != prp2 && !list.is_multiple_of(PAGE)) {
            return Err(prp_offset(PRP2));
        }
        let room = (PAGE_SIZE - (list % PAGE) as usize) / 8;
        let wanted = left.div_ceil(PAGE_SIZE);
        let entries = wanted.min(room);
        let chained = wanted > room;
        let bytes = &mut bytes[..entries * 8];
        if !memory.list(list, bytes) {
            return Err(unreachable_memory(PRP2));
        }
        for (i, entry) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            if chained && i + 1 == entries {
                if !entry.is_multiple_of(PAGE) {
                    return Err(prp_offset(PRP2));
                }
                list = entry;
            } else {
                if !entry.is_multiple_of(PAGE) {
                    return Err(prp_offset(PRP2));
                }
                let n = left.min(PAGE_SIZE);
                runs.add(entry, n)?;
                left -= n;
            }
        }
    }
    runs.finish()
}

const fn sgl(status: Status) -> Fault {
    Fault::new(status).at(SGL1, 0)
}

fn walk_sgl<A: Addresses>(
    memory: &A,
    first: &SglDescriptor,
    len: usize,
    from_host: bool,
    layout: &mut Layout<A::Piece>,
) -> Result<(), Fault> {
    let mut left = len;
    let mut seen = 1;
    let (mut next, mut last) = match kind(first)? {
        SglType::Segment => (segment(first)?, false),
        SglType::LastSegment => (segment(first)?, true),
        SglType::DataBlock | SglType::BitBucket => {
            data(memory, first, &mut left, from_host, layout)?;
            return if left == 0 { Ok(()) } else { Err(sgl(Status::INVALID_SGL_LENGTH)) };
        }
    };
    let mut bytes = [0u8; PAGE_SIZE];
    'segments: loop {
        let (mut at, count) = next;
        let mut done = 0;
        while done < count {
            let batch = (count - done).min(PAGE_SIZE / SglDescriptor::SIZE);
            seen += batch;
            if seen > MAX_DESCRIPTORS {
                return Err(sgl(Status::INVALID_SGL_COUNT));
            }
            let bytes = &mut bytes[..batch * SglDescriptor::SIZE];
            if !memory.list(at, bytes) {
                return Err(unreachable_memory(SGL1));
            }
            for descriptor in bytes.as_chunks::<{ SglDescriptor::SIZE }>().0 {
                let descriptor = SglDescriptor(*descriptor);
                done += 1;
                match kind(&descriptor)? {
                    SglType::Segment | SglType::LastSegment if last => {
                        return Err(sgl(Status::INVALID_SGL_SEGMENT));
                    }
                    SglType::Segment | SglType::LastSegment if done != count => {
                        return Err(sgl(Status::INVALID_SGL_COUNT));
                    }
                    other @ (SglType::Segment | SglType::LastSegment) => {
                        // All that is wanted has been found: what follows is not looked at.
                        if left == 0 {
                            return Ok(());
                        }
                        next = segment(&descriptor)?;
                        last = other == SglType::LastSegment;
                        continue 'segments;
                    }
                    SglType::DataBlock | SglType::BitBucket => {
                        data(memory, &descriptor, &mut left, from_host, layout)?;
                    }
                }
            }
            at += bytes.len() as u64;
        }
        // A segment that is not the last has to end with the way to the next.
        if !last {
            return Err(sgl(Status::INVALID_SGL_SEGMENT));
        }
        return if left == 0 { Ok(()) } else { Err(sgl(Status::INVALID_SGL_LENGTH)) };
    }
}

/// A descriptor's type; sub-types other than an address belong to fabrics.
fn kind(descriptor: &SglDescriptor) -> Result<SglType, Fault> {
    match descriptor.kind() {
        Some(kind) if descriptor.sub_type() == 0 => Ok(kind),
        _ => Err(sgl(Status::INVALID_SGL_TYPE)),
    }
}

/// Where a segment is, and how many descriptors it has.
fn segment(descriptor: &SglDescriptor) -> Result<(u64, usize), Fault> {
    let (address, length) = (descriptor.address(), descriptor.length() as usize);
    let ends = address.checked_add(length as u64).is_some();
    if length == 0 || !length.is_multiple_of(SglDescriptor::SIZE) || address & 7 != 0 || !ends {
        return Err(sgl(Status::INVALID_SGL_SEGMENT));
    }
    Ok((address, length / SglDescriptor::SIZE))
}

/// A data block or bit bucket: takes what is still wanted of it.
fn data<A: Addresses>(
    memory: &A,
    descriptor: &SglDescriptor,
    left: &mut usize,
    from_host: bool,
    layout: &mut Layout<A::Piece>,
) -> Result<(), Fault> {
    let n = (descriptor.length() as usize).min(*left);
    match descriptor.kind() {
        Some(SglType::BitBucket) if from_host => return Ok(()),
        Some(SglType::BitBucket) => layout.buckets.push((layout.spans.len(), n)),
        _ if n == 0 => return Ok(()),
        _ => {
            let span = memory.piece(descriptor.address(), n).ok_or(unreachable_memory(SGL1))?;
            layout.spans.push(span);
        }
    }
    *left -= n;
    Ok(())
}
