//! Computational Programs: programs that hosts load into a compute namespace, and run over ranges of memory
//! namespaces (docs/NVME.md, docs/PROGRAMS.md).
//!
//! A command passes: [`FsrWorker`](crate::FsrWorker) -> [`Compute::command`], which answers what is a matter
//! of the tables here -> or a task of the executor, which compiles a program or runs one. What a program
//! reads are the ranges but the last, one behind the other; what it emits goes to the last. It is the program
//! of `nearside run`: what it is over is nothing that it knows.

mod run;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_device::MEMORY_GRANULARITY;
use nearside_device::firmware::ComputeCommand;
use nearside_ndp::program::{self, Program, max_code};
use nearside_near_data::Language;
use nearside_spec::Status;
use nearside_spec::data::MemoryRange;
use nearside_spec::identify::IdentifyCompute;
use nearside_store::Dram;

pub(crate) use run::{Ended, ProgramWork};

/// The program type (PTYPE) of WebAssembly, vendor specific.
pub const WEB_ASSEMBLY: u8 = 0xc0;
/// Programs' indexes are below this.
const PROGRAMS: u16 = 64;
/// Programs that may be active.
const ACTIVE: usize = 16;
/// Bytes of all programs.
const PROGRAM_BYTES: usize = 16 << 20;
/// Sets of memory ranges.
const SETS: usize = 64;
/// Ranges of a set, or of a command.
const RANGES: usize = 16;

/// A part of a memory namespace.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    nsid: u32,
    memory: Dram,
    start: u64,
    len: u64,
}

/// Whether a host has a namespace of that identifier.
type Has<'a> = &'a dyn Fn(u32) -> bool;

/// A compute namespace: its programs, its sets of ranges, and the memory that those may be of.
pub struct Compute {
    memories: BTreeMap<u32, Dram>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    programs: BTreeMap<u16, Slot>,
    sets: BTreeMap<u16, Arc<[Range]>>,
    /// How many programs were loaded: each has another number.
    loads: u64,
}

/// A program that is being loaded, or is.
struct Slot {
    load: u64,
    size: usize,
    code: Vec<u8>,
    state: Ready,
}

enum Ready {
    No,
    /// It is being compiled.
    Soon,
    Yes(Arc<dyn Program>),
}

impl Slot {
    fn is_whole(&self) -> bool {
        self.code.len() == self.size
    }

    /// Whether it runs, or is about to: it is held here and by whoever runs it.
    fn is_used(&self) -> bool {
        matches!(&self.state, Ready::Yes(program) if Arc::strong_count(program) > 1)
    }
}

/// What becomes of a command.
pub(crate) enum Answer {
    /// It is done, with that result.
    Now(u64),
    /// A task answers it.
    Later(ProgramWork),
}

impl Compute {
    /// Over these memory namespaces, by their identifiers.
    pub fn over(memories: impl IntoIterator<Item = (u32, Dram)>) -> Compute {
        Compute { memories: memories.into_iter().collect(), tables: Mutex::default() }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What hosts are told of it.
    pub(crate) fn identify(&self) -> IdentifyCompute {
        let mut id = IdentifyCompute::default();
        id.set_maxact(ACTIVE as u16)
            .set_maxmemrs(SETS as u16)
            .set_mrsg(MEMORY_GRANULARITY.trailing_zeros() as u16)
            .set_maxmemr(RANGES as u8)
            .set_maxpb((PROGRAM_BYTES >> 20) as u64)
            .set_lpg(0);
        id
    }

    /// Executes a command, with the bytes that came with it, of a host that `has` some of the namespaces.
    ///
    /// # Errors
    /// The status of its refusal.
    pub(crate) fn command(
        self: &Arc<Self>,
        command: ComputeCommand,
        bytes: &[u8],
        has: Has<'_>,
    ) -> Result<Answer, Status> {
        let done = match command {
            ComputeCommand::Load { index, kind, size, at } => {
                self.load(index, kind, (size as usize, at as usize), bytes)?
            }
            ComputeCommand::Unload { index } => self.unload(index)?,
            ComputeCommand::Activate { index, active: true } => return self.activate(index),
            ComputeCommand::Activate { index, active: false } => self.deactivate(index)?,
            ComputeCommand::CreateSet => self.create_set(bytes, has)?,
            ComputeCommand::DeleteSet { set } => self.delete_set(set)?,
            ComputeCommand::Execute { index, set, ranges, parameters } => {
                return self.execute(index, (set, ranges), parameters, bytes, has).map(Answer::Later);
            }
        };
        Ok(Answer::Now(done))
    }

    fn load(&self, index: u16, kind: u8, (size, at): (usize, usize), bytes: &[u8]) -> Result<u64, Status> {
        known(index)?;
        if kind != WEB_ASSEMBLY {
            return Err(Status::INVALID_PROGRAM_TYPE.dnr());
        }
        if size > max_code(Language::WebAssembly) || at.saturating_add(bytes.len()) > size {
            return Err(Status::PROGRAM_TOO_BIG.dnr());
        }
        let mut tables = self.tables();
        if at == 0 {
            // One that was not loaded to its end is begun anew.
            if tables.programs.get(&index).is_some_and(Slot::is_whole) {
                return Err(Status::PROGRAM_IN_USE.dnr());
            }
            let others = tables.programs.iter().filter(|(other, _)| **other != index);
            let taken: usize = others.map(|(_, slot)| slot.size).sum();
            if taken + size > PROGRAM_BYTES {
                return Err(Status::PROGRAM_BYTES_EXCEEDED.dnr());
            }
            tables.loads += 1;
            let slot = Slot { load: tables.loads, size, code: Vec::new(), state: Ready::No };
            tables.programs.insert(index, slot);
        }
        let slot = tables.programs.get_mut(&index).ok_or(Status::NO_PROGRAM.dnr())?;
        // Its parts come in order, and all say how long it is.
        if slot.size != size || slot.code.len() != at {
            return Err(Status::INVALID_PROGRAM_DATA.dnr());
        }
        slot.code.extend_from_slice(bytes);
        Ok(0)
    }

    fn unload(&self, index: u16) -> Result<u64, Status> {
        known(index)?;
        let mut tables = self.tables();
        let slot = tables.programs.get(&index).ok_or(Status::NO_PROGRAM.dnr())?;
        if !matches!(slot.state, Ready::No) {
            return Err(Status::PROGRAM_IN_USE.dnr());
        }
        tables.programs.remove(&index);
        Ok(0)
    }

    fn activate(self: &Arc<Self>, index: u16) -> Result<Answer, Status> {
        known(index)?;
        if !program::is_installed(Language::WebAssembly) {
            return Err(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr());
        }
        let mut tables = self.tables();
        let active = tables.programs.values().filter(|slot| !matches!(slot.state, Ready::No)).count();
        let slot = tables.programs.get_mut(&index).ok_or(Status::NO_PROGRAM.dnr())?;
        match slot.state {
            Ready::Yes(_) => return Ok(Answer::Now(0)),
            // Another command does it.
            Ready::Soon => return Err(Status::PROGRAM_IN_USE),
            Ready::No if !slot.is_whole() => return Err(Status::INVALID_PROGRAM_DATA.dnr()),
            Ready::No if active >= ACTIVE => return Err(Status::PROGRAMS_ACTIVATED.dnr()),
            Ready::No => slot.state = Ready::Soon,
        }
        let (load, code) = (slot.load, slot.code.clone());
        Ok(Answer::Later(ProgramWork::compile(run::Compiling::new(self.clone(), index, load), code)))
    }

    /// A program that was loaded as the number `load` is ready, or is none.
    fn compiled(&self, index: u16, load: u64, program: Option<Arc<dyn Program>>) {
        if let Some(slot) = self.tables().programs.get_mut(&index)
            && slot.load == load
        {
            slot.state = program.map_or(Ready::No, Ready::Yes);
        }
    }

    fn deactivate(&self, index: u16) -> Result<u64, Status> {
        known(index)?;
        let mut tables = self.tables();
        let slot = tables.programs.get_mut(&index).ok_or(Status::NO_PROGRAM.dnr())?;
        if slot.is_used() || matches!(slot.state, Ready::Soon) {
            return Err(Status::PROGRAM_IN_USE);
        }
        slot.state = Ready::No;
        Ok(0)
    }

    fn create_set(&self, bytes: &[u8], has: Has<'_>) -> Result<u64, Status> {
        let ranges = self.ranges(bytes, has)?;
        let sets = &mut self.tables().sets;
        let free = (1..=SETS as u16).find(|id| !sets.contains_key(id));
        let id = free.ok_or(Status::MEMORY_RANGE_SETS_EXCEEDED.dnr())?;
        sets.insert(id, ranges.into());
        Ok(id.into())
    }

    fn delete_set(&self, set: u16) -> Result<u64, Status> {
        let sets = &mut self.tables().sets;
        let ranges = sets.get(&set).ok_or(Status::INVALID_MEMORY_RANGE_SET_ID.dnr())?;
        if Arc::strong_count(ranges) > 1 {
            return Err(Status::MEMORY_RANGE_SET_IN_USE);
        }
        sets.remove(&set);
        Ok(0)
    }

    /// The ranges that a host names, checked.
    fn ranges(&self, bytes: &[u8], has: Has<'_>) -> Result<Vec<Range>, Status> {
        let (named, _) = bytes.as_chunks::<{ MemoryRange::SIZE }>();
        if named.len() > RANGES {
            return Err(Status::MEMORY_RANGES_EXCEEDED.dnr());
        }
        let mut ranges = Vec::with_capacity(named.len());
        for (nth, bytes) in named.iter().enumerate() {
            let range = MemoryRange(*bytes);
            let (start, len, step) =
                (range.start(), u64::from(range.length()), u64::from(MEMORY_GRANULARITY));
            let memory = self.memories.get(&range.nsid()).filter(|_| has(range.nsid()));
            let memory = memory.ok_or(Status::INVALID_MEMORY_NAMESPACE.dnr())?;
            let end = start.checked_add(len).filter(|end| *end <= nearside_store::Store::capacity(memory));
            if len == 0 || end.is_none() || !start.is_multiple_of(step) || !len.is_multiple_of(step) {
                return Err(Status::INVALID_MEMORY_RANGE_SET.dnr());
            }
            let before = named.iter().take(nth).map(|bytes| MemoryRange(*bytes));
            let overlaps = |other: MemoryRange| {
                let others = other.start()..other.start() + u64::from(other.length());
                other.nsid() == range.nsid() && others.start < start + len && start < others.end
            };
            if before.into_iter().any(overlaps) {
                return Err(Status::OVERLAPPING_MEMORY_RANGES.dnr());
            }
            ranges.push(Range { nsid: range.nsid(), memory: memory.clone(), start, len });
        }
        Ok(ranges)
    }

    fn execute(
        &self,
        index: u16,
        (set, count): (u16, u32),
        [used, fuel]: [u64; 2],
        bytes: &[u8],
        has: Has<'_>,
    ) -> Result<ProgramWork, Status> {
        known(index)?;
        if set != 0 && count != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if count as usize > RANGES {
            return Err(Status::MEMORY_RANGES_EXCEEDED.dnr());
        }
        let (named, data) =
            bytes.split_at_checked(count as usize * MemoryRange::SIZE).ok_or(Status::INVALID_FIELD.dnr())?;
        let program = {
            let tables = self.tables();
            let slot = tables.programs.get(&index).ok_or(Status::NO_PROGRAM.dnr())?;
            match &slot.state {
                Ready::Yes(program) => program.clone(),
                Ready::No | Ready::Soon => return Err(Status::PROGRAM_NOT_ACTIVATED.dnr()),
            }
        };
        let ranges: Arc<[Range]> = match set {
            0 => self.ranges(named, has)?.into(),
            set => {
                let tables = self.tables();
                tables.sets.get(&set).ok_or(Status::INVALID_MEMORY_RANGE_SET_ID.dnr())?.clone()
            }
        };
        // A set may be another host's, which has more of them.
        if !ranges.iter().all(|range| has(range.nsid)) {
            return Err(Status::INVALID_MEMORY_NAMESPACE.dnr());
        }
        Ok(ProgramWork::execute(program, ranges, (used, fuel), data))
    }
}

/// Whether a program may have that index.
fn known(index: u16) -> Result<(), Status> {
    if index < PROGRAMS { Ok(()) } else { Err(Status::INVALID_PROGRAM_INDEX.dnr()) }
}
