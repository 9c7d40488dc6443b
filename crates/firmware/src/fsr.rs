//! [`Fsr`], a drive's [`Firmware`]: it holds the [`Retriever`] that all reactors share, tells its monitor of
//! every change of the namespace, and gives each reactor an [`FsrWorker`].

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nearside_clock::{Clock, Nanos};
use nearside_device::Namespace;
use nearside_device::firmware::{Firmware, Observer, Seat};
use nearside_dma::Memory;
use nearside_fsr::{Beneath, Config, Monitor, Retriever, Trace};
use nearside_near_data::{Digest, KINDS, MAX_BUFFER, MAX_GROUPS, MAX_PATH, MAX_REQUEST, Operation};
use nearside_spec::identify::IdentifyCompute;
use nearside_spec::log::{NearDataLog, encoding};
use nearside_store::{Standing, Store};

use crate::compute::Compute;
use crate::executor::Executor;
use crate::lanes::{FsrLane, LaneHandle};
use crate::mailbox::Mailbox;
use crate::meters::{Held, LOOKS_PER_SAMPLE, LookMeter, Meters, Slices, Use, UseMeter, ViewCost};
use crate::tags::Tags;
use crate::worker::{FsrWorker, MAX_WAIT_MS, Site};
use crate::workers::{WorkerHandle, WorkerPool};

/// Where tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskPlace {
    /// On the reactors of that number of all controllers, between their I/O.
    Reactor(usize),
    /// On that thread of the [`Workers`](crate::Workers).
    Thread(usize),
}

impl fmt::Display for TaskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskPlace::Reactor(index) => write!(f, "reactor {index}"),
            TaskPlace::Thread(index) => write!(f, "thread {index}"),
        }
    }
}

/// What a namespace's firmware does.
enum Role {
    /// It knows the files of the volumes there.
    Files,
    /// Nothing: the bytes are those of programs.
    Memory,
    /// It runs programs.
    Programs(Arc<Compute>),
}

/// The firmware: a retriever for one namespace.
pub struct Fsr {
    retriever: Arc<Retriever>,
    /// Each command has a retriever of its own, made so.
    alone: Option<Config>,
    /// What its namespace is there for.
    role: Role,
    clock: Arc<dyn Clock>,
    tags: Mutex<Tags>,
    pool: Option<Arc<WorkerPool>>,
    in_place: bool,
    /// The namespace's lane on each thread, while there is one.
    lanes: Mutex<Vec<Weak<LaneHandle>>>,
    meters: Mutex<BTreeMap<TaskPlace, Arc<Meters>>>,
    /// By the operation's number.
    uses: [UseMeter; KINDS.len()],
    /// Of workers and of tasks.
    next: AtomicU64,
    /// Looks at writes that passed the monitor's filter by, and the others.
    passed: LookMeter,
    watched: LookMeter,
}

thread_local! {
    /// Looks of this thread until the next is timed.
    static UNTIMED: Cell<u32> = const { Cell::new(LOOKS_PER_SAMPLE) };
}

impl Fsr {
    /// With the drive's clock, by which slices end.
    pub fn new(clock: Arc<dyn Clock>, config: Config) -> Fsr {
        Fsr::of(clock, Retriever::new(config))
    }

    /// Firmware with a retriever of its own; `trace` is told where the time of every near-data command goes.
    pub fn traced(clock: Arc<dyn Clock>, config: Config, trace: Arc<Trace>) -> Fsr {
        Fsr::of(clock, Retriever::traced(config, trace))
    }

    fn of(clock: Arc<dyn Clock>, retriever: Retriever) -> Fsr {
        Fsr {
            retriever: Arc::new(retriever),
            alone: None,
            role: Role::Files,
            clock,
            tags: Mutex::default(),
            pool: None,
            in_place: false,
            lanes: Mutex::default(),
            meters: Mutex::default(),
            uses: Default::default(),
            next: AtomicU64::new(0),
            passed: LookMeter::default(),
            watched: LookMeter::default(),
        }
    }

    /// The firmware of a memory namespace: what lies there is nobody's volume.
    pub fn of_memory(clock: Arc<dyn Clock>) -> Fsr {
        Fsr { role: Role::Memory, ..Fsr::new(clock, Config::default()) }
    }

    /// The firmware of a compute namespace.
    pub fn of_programs(clock: Arc<dyn Clock>, compute: Compute) -> Fsr {
        Fsr { role: Role::Programs(Arc::new(compute)), ..Fsr::new(clock, Config::default()) }
    }

    /// What runs programs over memory, if this is a compute namespace's.
    pub(crate) fn compute(&self) -> Option<&Arc<Compute>> {
        match &self.role {
            Role::Programs(compute) => Some(compute),
            Role::Files | Role::Memory => None,
        }
    }

    /// This firmware with its tasks on these threads instead of the reactors. The threads have to outlive the
    /// drive's reactors; commands that they leave are answered as aborted.
    pub fn on(self, handle: Option<WorkerHandle>) -> Fsr {
        Fsr { pool: handle.map(|WorkerHandle(pool)| pool), ..self }
    }

    /// This firmware with what takes longer than a slice, and cannot be cut, in its place on the reactor and
    /// not in a thread beside it, but for what may take seconds: of a drive that serves its own process, in
    /// which nobody else waits meanwhile.
    pub fn in_place(self) -> Fsr {
        Fsr { in_place: true, ..self }
    }

    /// Slices so far, by where they ran.
    pub fn slices(&self) -> Vec<(TaskPlace, Slices)> {
        lock(&self.meters).iter().map(|(place, meters)| (*place, meters.slices())).collect()
    }

    /// What near-data work holds at this moment.
    pub fn held(&self) -> Held {
        let mut held = Held::default();
        lock(&self.meters).values().for_each(|meters| held.merge(meters.held()));
        held
    }

    /// Tags under which something is kept for a host, and `result`s that wait.
    pub fn tags_kept(&self) -> usize {
        self.tags().len()
    }

    /// Commands by their operations: each operation's name, what runs, and what it took.
    pub fn uses(&self) -> impl Iterator<Item = (&'static str, Use)> {
        KINDS.iter().zip(&self.uses).map(|(kind, meter)| (kind.name, meter.read()))
    }

    /// A command of an operation begins.
    pub(crate) fn begins(&self, operation: u16) -> Nanos {
        self.uses.get(usize::from(operation)).inspect(|meter| meter.begin());
        self.clock.now()
    }

    /// One that began then has ended.
    pub(crate) fn ends(&self, operation: u16, begun: Nanos) {
        let ns = self.clock.now().since(begun);
        self.uses.get(usize::from(operation)).inspect(|meter| meter.end(ns));
    }

    /// One that began then was answered at once.
    pub(crate) fn answered(&self, operation: u16, begun: Nanos) {
        let ns = self.clock.now().since(begun);
        self.uses.get(usize::from(operation)).inspect(|meter| meter.answered(ns));
    }

    /// The drive's time.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The retriever, where a command may have what others have found out.
    pub(crate) fn keeps(&self) -> Option<&Retriever> {
        self.alone.is_none().then_some(&*self.retriever)
    }

    fn meters(&self, place: TaskPlace) -> Arc<Meters> {
        lock(&self.meters).entry(place).or_default().clone()
    }

    pub(crate) fn next_key(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Firmware over bytes that change behind the drive's back: no command takes anything that another has
    /// read for what it is now. What changes while a command runs may still show in its answer as it was when
    /// it was read, or half of each.
    pub fn distrusting(clock: Arc<dyn Clock>, config: Config) -> Fsr {
        Fsr { alone: Some(config), ..Fsr::new(clock, config) }
    }

    /// What answers a command.
    pub(crate) fn for_command(&self) -> Arc<Retriever> {
        match self.alone {
            Some(config) => {
                let retriever = Retriever::new(config);
                retriever.set_beneath(self.retriever.beneath().clone());
                Arc::new(retriever)
            }
            None => self.retriever.clone(),
        }
    }

    /// What the drive knows of its files; its monitor's counters.
    pub fn retriever(&self) -> &Retriever {
        &self.retriever
    }

    /// What the view of its host's volumes costs, so far and at this moment.
    pub fn view_cost(&self) -> ViewCost {
        ViewCost {
            seen: self.retriever.monitor().counters(),
            overlay_bytes: self.retriever.overlay_bytes(),
            passed: self.passed.looks(),
            watched: self.watched.looks(),
        }
    }

    /// The monitor's look at a write, timed where it is its turn.
    #[inline]
    fn look(&self, look: impl FnOnce(&Monitor) -> bool) {
        if !matches!(self.role, Role::Files) {
            return;
        }
        let left = UNTIMED.get() - 1;
        if left == 0 {
            return self.timed(look);
        }
        UNTIMED.set(left);
        look(self.retriever.monitor());
    }

    #[cold]
    fn timed(&self, look: impl FnOnce(&Monitor) -> bool) {
        UNTIMED.set(LOOKS_PER_SAMPLE);
        let begun = self.clock.now();
        let asked = look(self.retriever.monitor());
        let ns = self.clock.now().since(begun);
        if asked { &self.watched } else { &self.passed }.add(ns);
    }

    pub(crate) fn tags(&self) -> MutexGuard<'_, Tags> {
        lock(&self.tags)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// The lanes of a namespace, made where there are none.
fn lanes<S: Store>(
    namespace: &Arc<Namespace<S, Fsr>>,
    pool: &Arc<WorkerPool>,
) -> io::Result<Vec<Arc<LaneHandle>>> {
    let fsr = namespace.observer();
    let mut lanes = lock(&fsr.lanes);
    lanes.resize(pool.threads(), Weak::new());
    let mut handles = Vec::new();
    for (thread, lane) in lanes.iter_mut().enumerate() {
        if let Some(handle) = lane.upgrade().filter(|handle| !handle.is_closed()) {
            handles.push(handle);
            continue;
        }
        let access = namespace.access(Arc::new(Memory::new()))?;
        let executor = Executor::new(access, fsr.clock.clone(), fsr.meters(TaskPlace::Thread(thread)));
        let handle = Arc::new(LaneHandle::new(pool.clone()));
        *lane = Arc::downgrade(&handle);
        let (running, finished) = (Vec::new(), Vec::new());
        pool.give(thread, Box::new(FsrLane { handle: handle.clone(), executor, running, finished }));
        handles.push(handle);
    }
    Ok(handles)
}

impl Observer for Fsr {
    fn is_told(&self, standing: &Standing) {
        let Standing { unsure, known } = standing.clone();
        self.retriever.set_beneath(Arc::new(Beneath { unsure, known }));
    }

    #[inline]
    fn begin(&self, offset: u64, len: u64) {
        self.look(|monitor| monitor.begin(offset, len));
    }

    #[inline]
    fn end(&self, offset: u64, len: u64, durable: bool) {
        self.look(|monitor| monitor.end(offset, len, durable));
    }

    fn flush_begins(&self) -> u64 {
        self.retriever.monitor().flush_begins()
    }

    fn flushed(&self, ticket: u64) {
        self.retriever.monitor().flushed(ticket);
    }
}

/// What log page D5h says of each operation's options.
fn options() -> [u8; 128] {
    let mut bytes = [0; 128];
    for (place, options) in bytes.chunks_exact_mut(4).zip(nearside_fsr::options()) {
        place.copy_from_slice(&options.to_le_bytes());
    }
    bytes
}

impl<S: Store> Firmware<S> for Fsr {
    type Worker = FsrWorker;

    fn worker(namespace: &Arc<Namespace<S, Fsr>>, seat: &Seat<'_>) -> io::Result<FsrWorker> {
        let fsr = namespace.observer();
        let site = match fsr.pool.as_ref().filter(|pool| !pool.is_stopped()) {
            Some(pool) => Site::Elsewhere(lanes(namespace, pool)?),
            None => {
                let access = namespace.access(seat.memory.clone())?;
                let meters = fsr.meters(TaskPlace::Reactor(seat.reactor));
                Site::Here(Executor::new(access, fsr.clock.clone(), meters).in_place(fsr.in_place))
            }
        };
        let (id, mailbox) = (fsr.next_key(), Arc::new(Mailbox::new(seat.wakeup.clone())));
        fsr.tags().with(seat.host, |tags| tags.join(id, mailbox.clone()));
        Ok(FsrWorker::new(namespace.clone(), seat, id, mailbox, site))
    }

    fn is_present(&self) -> bool {
        matches!(self.role, Role::Files)
    }

    fn programs(&self) -> Option<IdentifyCompute> {
        self.compute().map(|compute| compute.identify())
    }

    fn capabilities(&self, fabric: bool) -> NearDataLog {
        let mut page = NearDataLog::default();
        let encodings = encoding::TAG | encoding::GET_FEATURE | encoding::SET_FEATURE;
        page.set_magic(NearDataLog::MAGIC)
            .set_version(1)
            .set_length(64)
            .set_max_request(MAX_REQUEST as u32)
            .set_max_buffer(MAX_BUFFER as u32)
            .set_max_path(MAX_PATH as u32)
            .set_max_groups(MAX_GROUPS as u32)
            .set_operations(nearside_fsr::operations())
            .set_targets(nearside_near_data::wire::TARGETS)
            .set_checksums(Operation::Checksum(Digest::Crc32c).kind().options)
            .set_options(options())
            .set_encodings(if fabric { encodings } else { encodings | encoding::COMMAND })
            .set_max_wait_ms(MAX_WAIT_MS);
        let ViewCost { seen, overlay_bytes, passed, watched } = self.view_cost();
        page.set_statistics(NearDataLog::STATISTICS)
            .set_suspected(seen.suspected)
            .set_invalidated(seen.invalidated)
            .set_published(seen.published)
            .set_scans_touched(seen.scans_touched)
            .set_looked_again(seen.looked_again)
            .set_repeated(seen.repeated)
            .set_watched(seen.watched)
            .set_overlay_bytes(overlay_bytes)
            .set_passed_looks(passed.timed)
            .set_passed_ns(passed.total_ns)
            .set_passed_worst_ns(passed.worst_ns)
            .set_watched_looks(watched.timed)
            .set_watched_ns(watched.total_ns)
            .set_watched_worst_ns(watched.worst_ns);
        page
    }
}

#[cfg(test)]
mod tests {
    use nearside_clock::SimClock;
    use nearside_store::Dram;

    use super::*;
    use crate::meters::Looks;

    /// A clock that goes on by so much each time it is asked.
    struct Ticking(AtomicU64);

    impl Clock for Ticking {
        fn now(&self) -> nearside_clock::Nanos {
            nearside_clock::Nanos(self.0.fetch_add(30, Ordering::Relaxed))
        }
    }

    /// Looks at a host's writes are timed by the drive's clock, one of so many; those that pass the filter by
    /// apart from the others; and the log page says what `view_cost` does.
    #[test]
    fn the_monitors_time_is_sampled() {
        let fsr = Fsr::new(Arc::new(Ticking(AtomicU64::new(0))), Config::default());
        UNTIMED.set(LOOKS_PER_SAMPLE);
        let looks = u64::from(LOOKS_PER_SAMPLE);
        for at in 0..looks {
            fsr.begin(at * 4096, 4096);
            fsr.end(at * 4096, 4096, false);
        }
        let cost = fsr.view_cost();
        assert_eq!(cost.passed, Looks { timed: 2, total_ns: 60, worst_ns: 30 });
        assert_eq!((cost.watched, cost.passed.mean_ns()), (Looks::default(), Some(30)));
        // A change of more than the filter is asked about goes to the table.
        for _ in 0..looks {
            fsr.begin(0, 1 << 40);
        }
        let cost = fsr.view_cost();
        assert_eq!((cost.passed.timed, cost.watched.timed, cost.seen.suspected), (2, 1, looks));
        let page = Firmware::<Dram>::capabilities(&fsr, false);
        assert_eq!((page.passed_looks(), page.passed_ns(), page.passed_worst_ns()), (2, 60, 30));
        assert_eq!((page.watched_looks(), page.suspected(), page.statistics()), (1, looks, 120));
    }

    #[test]
    fn golden_page_of_capabilities() {
        let fsr = Fsr::new(Arc::new(SimClock::new()), Config::default());
        #[rustfmt::skip]
        let mut page = [
            b'N', b'D', b'C', b'P', 1, 0, 64, 0,
            0, 0, 2, 0, // 131,072 bytes of request
            0, 0, 0x10, 0, // 1,048,576 of buffer
            0xff, 0x0f, 0, 0, // 4,095 of a path
            0, 4, 0, 0, // 1,024 groups
            0xff, 0x3f, 0, 0, // fourteen operations: this process runs no programs
            0x3f, 0, 0, 0, // six targets
            0x0e, 0, 0, 0, // checksums 1 to 3
            0x0f, 0, 0, 0, // four commands
            0x88, 0x13, 0, 0, // 5,000 ms
            120, 0, 0, 0, // bytes of statistics
        ].to_vec();
        page.resize(NearDataLog::SIZE, 0);
        // Options of a search, a checksum, and those on tables.
        page[184 + 2 * 4..][..2].copy_from_slice(&[0xff, 0x1f]);
        page[184 + 4 * 4] = 0x0e;
        page[184 + 10 * 4..][..6].copy_from_slice(&[0x1f, 0x0f, 0, 0, 0x1f, 3]);
        page[184 + 13 * 4..][..2].copy_from_slice(&[7, 0x1f]);
        page[184 + 14 * 4] = 3;
        let capabilities = |fabric| Firmware::<Dram>::capabilities(&fsr, fabric).0;
        assert_eq!(capabilities(false)[..], page);
        // Over fabrics all but the bidirectional command.
        page[36] = 0x0e;
        assert_eq!(capabilities(true)[..], page);
    }
}
