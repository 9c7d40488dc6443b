//! I/O commands: parsed once into a checked [`Request`]. After that no code asks again whether a field is
//! valid.

use nearside_dma::Memory;
use nearside_spec::command::{common, compute, dataset, memory, near_data, reservation, transfer};
use nearside_spec::data::{CopySource, DsmRange};
use nearside_spec::opcode::io;
use nearside_spec::opcode::{compute as programs, memory as local};
use nearside_spec::reservation::{Kind, ReservationKeys};
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Operation;

use crate::fault::Fault;
use crate::firmware::{ComputeCommand, NearDataCommand};
use crate::namespace::{CommandSet, MEMORY_GRANULARITY};
use crate::pointer::Pointer;

/// Largest buffer of a near-data command.
const MAX_NEAR_DATA: u32 = nearside_near_data::MAX_BUFFER as u32;

/// All namespaces.
pub(crate) const BROADCAST: u32 = 0xffff_ffff;

/// What a command's fields are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) command_set: CommandSet,
    pub(crate) blocks: u64,
    pub(crate) lba_shift: u32,
    pub(crate) max_transfer: u64,
    pub(crate) near_data: bool,
    pub(crate) read_only: bool,
    /// Other hosts may have it as well: it can be reserved.
    pub(crate) shared: bool,
    /// Behind a fabric: an SGL is exactly as long as the command's data, and no command carries data both
    /// ways.
    pub(crate) fabric: bool,
}

impl Limits {
    /// Whether an operation of a checked command may reach the store.
    #[inline]
    pub(crate) fn allow(&self, operation: &Operation) -> bool {
        let Some((offset, len)) = operation.range() else { return true };
        let end = offset.checked_add(len);
        end.is_some_and(|end| end <= self.blocks << self.lba_shift)
            && !(self.read_only && operation.mutates())
    }
}

impl Request {
    /// Whether its blocks, as far as they are known without its data, reach beyond a byte.
    pub(crate) fn ends_beyond(&self, end: u64) -> bool {
        match *self {
            Request::Transfer { operation, .. } | Request::Plain { operation } => operation.ends_beyond(end),
            Request::Compare { offset, len, .. } => offset.saturating_add(len as u64) > end,
            Request::Fill { offset, len } | Request::Copy { offset, len, .. } => {
                offset.saturating_add(len) > end
            }
            _ => false,
        }
    }
}

/// A checked I/O command: its ranges lie within the namespace, its lengths within the limits. Its data
/// pointer is not walked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Read or Write.
    Transfer {
        operation: Operation,
        len: usize,
        pointer: Pointer,
    },
    /// Flush, Write Zeroes: no data.
    Plain {
        operation: Operation,
    },
    Compare {
        offset: u64,
        len: usize,
        pointer: Pointer,
    },
    /// Flush of all namespaces.
    FlushAll,
    /// Dataset Management with the deallocate attribute, of so many ranges.
    Deallocate {
        ranges: usize,
        pointer: Pointer,
    },
    /// Dataset Management that only hints.
    Hints {
        ranges: usize,
        pointer: Pointer,
    },
    NearData {
        command: NearDataCommand,
        request: usize,
        room: usize,
        pointer: Pointer,
    },
    Reservation {
        command: Reserve,
        len: usize,
        pointer: Pointer,
    },
    /// Memory Fill.
    Fill {
        offset: u64,
        len: u64,
    },
    /// Memory Copy, from so many sources.
    Copy {
        offset: u64,
        len: u64,
        sources: usize,
        blocks: bool,
        pointer: Pointer,
    },
}

/// What a reservation command asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reserve {
    Register {
        action: u8,
        ignore_key: bool,
        /// What PTPL becomes.
        persist: Option<bool>,
    },
    Acquire {
        action: u8,
        kind: Kind,
    },
    Release {
        action: u8,
        /// Where RTYPE names one.
        kind: Option<Kind>,
    },
    Report {
        extended: bool,
    },
}

impl Request {
    /// Checks a command of a namespace. `write_through`: every write is durable when it completes.
    #[inline]
    pub(crate) fn parse(
        entry: &SubmissionEntry,
        limits: &Limits,
        write_through: bool,
    ) -> Result<Request, Fault> {
        let opcode = entry.opcode();
        if entry.has_flags() && entry.get(common::FUSE) != 0 {
            return Err(Fault::field(common::FUSE));
        }
        if limits.command_set != CommandSet::Nvm {
            return Request::parse_of_memory(entry, limits);
        }
        match opcode {
            io::READ | io::WRITE => {
                let pointer = Pointer::of(entry)?;
                let (offset, len) = blocks(entry, limits)?;
                if len > limits.max_transfer {
                    return Err(Fault::field(transfer::NLB_Z));
                }
                pointer.fits(len, limits)?;
                let fua = entry.get(transfer::FUA) || write_through;
                let operation = if opcode == io::READ {
                    Operation::Read { offset, len }
                } else {
                    writable(limits)?;
                    Operation::Write { offset, len, fua }
                };
                Ok(Request::Transfer { operation, len: len as usize, pointer })
            }
            _ => Request::parse_other(entry, limits, write_through),
        }
    }

    fn parse_other(entry: &SubmissionEntry, limits: &Limits, write_through: bool) -> Result<Request, Fault> {
        match entry.opcode() {
            io::FLUSH => Ok(Request::Plain { operation: Operation::Flush }),
            io::WRITE_ZEROES => {
                let (offset, len) = blocks(entry, limits)?;
                writable(limits)?;
                let fua = entry.get(transfer::FUA) || write_through;
                Ok(Request::Plain { operation: Operation::WriteZeroes { offset, len, fua } })
            }
            io::COMPARE => {
                let pointer = Pointer::of(entry)?;
                let (offset, len) = blocks(entry, limits)?;
                if len > limits.max_transfer {
                    return Err(Fault::field(transfer::NLB_Z));
                }
                pointer.fits(len, limits)?;
                Ok(Request::Compare { offset, len: len as usize, pointer })
            }
            io::DATASET_MANAGEMENT => {
                let pointer = Pointer::of(entry)?;
                let ranges = usize::from(entry.get(dataset::NR_Z)) + 1;
                if !entry.get(dataset::AD) {
                    return Ok(Request::Hints { ranges, pointer });
                }
                writable(limits)?;
                Ok(Request::Deallocate { ranges, pointer })
            }
            io::NEAR_DATA | io::NEAR_DATA_EXECUTE | io::NEAR_DATA_RESULT | io::NEAR_DATA_CANCEL
                if limits.near_data && !(limits.fabric && entry.opcode() == io::NEAR_DATA) =>
            {
                near_data_request(entry)
            }
            io::RESERVATION_REGISTER
            | io::RESERVATION_REPORT
            | io::RESERVATION_ACQUIRE
            | io::RESERVATION_RELEASE
                if limits.shared =>
            {
                reservation_request(entry, limits)
            }
            _ => Err(Fault::new(Status::INVALID_OPCODE).at(0, 0)),
        }
    }

    /// A command of a memory namespace, or of a compute namespace.
    #[cold]
    fn parse_of_memory(entry: &SubmissionEntry, limits: &Limits) -> Result<Request, Fault> {
        match (limits.command_set, entry.opcode()) {
            (CommandSet::Memory, local::READ | local::WRITE) => {
                let pointer = Pointer::of(entry)?;
                let (offset, len) = bytes(entry, u64::from(entry.get(memory::LENGTH)), limits)?;
                if len == 0 || len > limits.max_transfer {
                    return Err(Fault::field(memory::LENGTH));
                }
                pointer.fits(len, limits)?;
                if entry.opcode() == local::READ {
                    let operation = Operation::Read { offset, len };
                    return Ok(Request::Transfer { operation, len: len as usize, pointer });
                }
                writable(limits)?;
                let operation = Operation::Write { offset, len, fua: false };
                Ok(Request::Transfer { operation, len: len as usize, pointer })
            }
            (CommandSet::Memory, local::FILL) => {
                writable(limits)?;
                let (offset, len) = bytes(entry, u64::from(entry.get(memory::LENGTH)), limits)?;
                Ok(Request::Fill { offset, len })
            }
            (CommandSet::Memory, local::COPY) => {
                writable(limits)?;
                let pointer = Pointer::of(entry)?;
                let len = entry.get(memory::COPY_LENGTH);
                let (offset, len) = bytes(entry, len, limits).map_err(|fault| match fault {
                    fault if fault == Fault::field(memory::LENGTH) => Fault::field(memory::COPY_LENGTH),
                    other => other,
                })?;
                let sources = usize::from(entry.get(memory::NR_Z)) + 1;
                let format = entry.get(memory::FORMAT);
                let blocks = memory::BLOCKS.contains(&format);
                if !blocks && format != memory::BYTES {
                    return Err(Fault::field(memory::FORMAT));
                }
                pointer.fits((sources * CopySource::SIZE) as u64, limits)?;
                Ok(Request::Copy { offset, len, sources, blocks, pointer })
            }
            (CommandSet::Compute, programs::EXECUTE) => {
                let pointer = Pointer::of(entry)?;
                let len = entry.get(compute::DLEN);
                if len > MAX_NEAR_DATA {
                    return Err(Fault::field(compute::DLEN));
                }
                let command = NearDataCommand::Compute(ComputeCommand::Execute {
                    index: entry.get(compute::EXECUTE_PIND),
                    set: entry.get(compute::EXECUTE_RSID),
                    ranges: entry.get(compute::EXECUTE_NUMR),
                    parameters: [entry.get(compute::CPARAM1), entry.get(compute::CPARAM2)],
                });
                Ok(Request::NearData { command, request: len as usize, room: 0, pointer })
            }
            _ => Err(Fault::new(Status::INVALID_OPCODE).at(0, 0)),
        }
    }

    /// Where its data are, for a command that has some.
    pub(crate) fn pointer(&self) -> Option<Pointer> {
        { *self }.pointer_mut().map(|pointer| *pointer)
    }

    /// The same, with its data elsewhere.
    pub(crate) fn with_pointer(mut self, pointer: Pointer) -> Request {
        if let Some(place) = self.pointer_mut() {
            *place = pointer;
        }
        self
    }

    fn pointer_mut(&mut self) -> Option<&mut Pointer> {
        match self {
            Request::Transfer { pointer, .. }
            | Request::Compare { pointer, .. }
            | Request::Deallocate { pointer, .. }
            | Request::Hints { pointer, .. }
            | Request::NearData { pointer, .. }
            | Request::Copy { pointer, .. }
            | Request::Reservation { pointer, .. } => Some(pointer),
            Request::Plain { .. } | Request::Fill { .. } | Request::FlushAll => None,
        }
    }

    /// Whether the command gives the host anything in its memory.
    pub(crate) fn gives(&self) -> bool {
        match self {
            Request::Transfer { operation, .. } => matches!(operation, Operation::Read { .. }),
            Request::NearData { room, .. } => *room > 0,
            Request::Reservation { command, .. } => matches!(command, Reserve::Report { .. }),
            _ => false,
        }
    }

    /// Checks a command whose NSID names no namespace.
    #[cold]
    pub(crate) fn without_namespace(entry: &SubmissionEntry) -> Result<Request, Fault> {
        if entry.get(common::FUSE) != 0 {
            return Err(Fault::field(common::FUSE));
        }
        match entry.opcode() {
            io::FLUSH if entry.nsid() == BROADCAST => Ok(Request::FlushAll),
            _ => Err(Fault::new(Status::INVALID_NAMESPACE).of(common::NSID)),
        }
    }
}

impl Pointer {
    /// Over fabrics the SGL's length is the command's.
    #[inline]
    fn fits(&self, len: u64, limits: &Limits) -> Result<(), Fault> {
        match self {
            Pointer::Sgl(d) if limits.fabric && u64::from(d.length()) != len => {
                Err(Fault::new(Status::INVALID_SGL_LENGTH).at(24, 0))
            }
            _ => Ok(()),
        }
    }
}

fn near_data_request(entry: &SubmissionEntry) -> Result<Request, Fault> {
    let pointer = Pointer::of(entry)?;
    let (request, room) = (entry.get(near_data::REQUEST), entry.get(near_data::BUFFER));
    let tag = entry.get(near_data::TAG);
    let (command, request, room) = match entry.opcode() {
        io::NEAR_DATA => {
            if !entry.get(near_data::OVER) {
                return Err(Fault::field(near_data::OVER));
            }
            (NearDataCommand::Bidirectional, request, room)
        }
        io::NEAR_DATA_EXECUTE => (NearDataCommand::Execute { tag }, request, 0),
        io::NEAR_DATA_RESULT => {
            (NearDataCommand::Result { tag, wait_ms: entry.get(near_data::WAIT_MS) }, 0, room)
        }
        _ => (NearDataCommand::Cancel { tag }, 0, 0),
    };
    if request > MAX_NEAR_DATA || (command == NearDataCommand::Bidirectional && request > room) {
        return Err(Fault::field(near_data::REQUEST));
    }
    if room > MAX_NEAR_DATA {
        return Err(Fault::field(near_data::BUFFER));
    }
    Ok(Request::NearData { command, request: request as usize, room: room as usize, pointer })
}

/// Reservation Register, Report, Acquire and Release (Base 2.0, 7.2 to 7.5).
fn reservation_request(entry: &SubmissionEntry, limits: &Limits) -> Result<Request, Fault> {
    let pointer = Pointer::of(entry)?;
    let action = entry.get(reservation::ACTION);
    let kind = Kind::from_field(entry.get(reservation::RTYPE));
    let ignore_key = entry.get(reservation::IEKEY);
    let mut len = ReservationKeys::SIZE;
    let command = match entry.opcode() {
        io::RESERVATION_REGISTER => {
            let persist = match entry.get(reservation::CPTPL) {
                0 => None,
                2 => Some(false),
                3 => Some(true),
                _ => return Err(Fault::field(reservation::CPTPL)),
            };
            Reserve::Register { action, ignore_key, persist }
        }
        io::RESERVATION_REPORT => {
            let bytes = (u64::from(entry.get(reservation::NUMD_Z)) + 1) * 4;
            if bytes > limits.max_transfer {
                return Err(Fault::field(reservation::NUMD_Z));
            }
            len = bytes as usize;
            Reserve::Report { extended: entry.get(reservation::EDS) }
        }
        // Only Register knows it (RESCAP, bit 7).
        _ if ignore_key => return Err(Fault::field(reservation::IEKEY)),
        io::RESERVATION_ACQUIRE => {
            Reserve::Acquire { action, kind: kind.ok_or(Fault::field(reservation::RTYPE))? }
        }
        _ => {
            // The host's key alone.
            len /= 2;
            Reserve::Release { action, kind }
        }
    };
    pointer.fits(len as u64, limits)?;
    Ok(Request::Reservation { command, len, pointer })
}

#[inline]
fn writable(limits: &Limits) -> Result<(), Fault> {
    if limits.read_only {
        return Err(Fault::new(Status::READ_ONLY_NAMESPACE));
    }
    Ok(())
}

/// SLBA and NLB as bytes, within the namespace.
#[inline]
fn blocks(entry: &SubmissionEntry, limits: &Limits) -> Result<(u64, u64), Fault> {
    let slba = entry.get(transfer::SLBA);
    let count = u64::from(entry.get(transfer::NLB_Z)) + 1;
    range(slba, count, limits).ok_or(Fault::new(Status::LBA_OUT_OF_RANGE).of(transfer::SLBA).lba(slba))
}

/// So many bytes of a memory namespace from a command's first byte on.
fn bytes(entry: &SubmissionEntry, len: u64, limits: &Limits) -> Result<(u64, u64), Fault> {
    let offset = entry.get(memory::START);
    let step = u64::from(MEMORY_GRANULARITY);
    let within = offset.checked_add(len).is_some_and(|end| end <= limits.blocks << limits.lba_shift);
    if !within || !offset.is_multiple_of(step) {
        return Err(Fault::field(memory::START));
    }
    if !len.is_multiple_of(step) {
        return Err(Fault::field(memory::LENGTH));
    }
    Ok((offset, len))
}

/// Blocks as bytes, where they lie within the namespace.
#[inline]
pub(crate) fn range(slba: u64, count: u64, limits: &Limits) -> Option<(u64, u64)> {
    let end = slba.checked_add(count)?;
    (end <= limits.blocks).then_some((slba << limits.lba_shift, count << limits.lba_shift))
}

/// The ranges of a Dataset Management command, as bytes (offset and length); empty ones left out. They are
/// checked all before the first is deallocated.
pub(crate) fn dsm_ranges(list: &[u8], limits: &Limits) -> Result<Vec<(u64, u64)>, Fault> {
    let mut ranges = Vec::with_capacity(list.len() / DsmRange::SIZE);
    for bytes in list.as_chunks::<{ DsmRange::SIZE }>().0 {
        let dsm = DsmRange(*bytes);
        let bytes = range(dsm.slba(), dsm.blocks().into(), limits)
            .ok_or(Fault::new(Status::LBA_OUT_OF_RANGE).lba(dsm.slba()))?;
        if bytes.1 > 0 {
            ranges.push(bytes);
        }
    }
    Ok(ranges)
}

/// Whether the spans' bytes equal the buffer's.
pub(crate) fn equal(memory: &Memory, layout: &crate::pointer::Layout, buffer: &[u8]) -> bool {
    let mut host = vec![0; buffer.len()];
    layout.gather(memory, &mut host);
    host == buffer
}
