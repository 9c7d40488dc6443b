//! Who goes away stops costing: by every way in which a host can leave, its near-data work ends, and leaves
//! no lock, buffer, tag or task.

#[path = "../../device/tests/device/rig/mod.rs"]
mod rig;

use std::sync::Arc;

use nearside_clock::{Clock, Nanos, SimClock};
use nearside_device::Namespace;
use nearside_device::firmware::{Firmware, Job, NearDataCommand, Outcome, Seat, Turn, Worker};
use nearside_dma::{IoBuffer, Memory, Wakeup};
use nearside_embedded::AnyStore;
use nearside_firmware::Fsr;
use nearside_firmware::{Held, TaskPlace, Workers};
use nearside_fsr::Config as FsrConfig;
use nearside_near_data::wire::{decode_reply, encode_request};
use nearside_near_data::{BlockRange, Credentials, Digest, MAX_BUFFER, Operation, Request, Target};
use nearside_spec::Status;
use nearside_store::{Data, Delay, Modelled, Submitted, Token};
use rig::{Config, Controller, Dram, FREE, Host, SubmissionEntry, admin, command, io};

type FsrWorker = <Fsr as Firmware<AnyStore>>::Worker;

fn slow(delay_ns: u64, bytes: u64) -> AnyStore {
    let store = AnyStore::Dram(Dram::new(bytes, 512).unwrap());
    AnyStore::Delayed(Box::new(Modelled::new(store, Delay::fixed(delay_ns).medium())))
}

/// A checksum of the first so many bytes.
fn request(bytes: u64) -> Vec<u8> {
    encode_request(&Request {
        partition: 0,
        credentials: Credentials::default(),
        target: Target::Blocks { size: bytes, ranges: vec![BlockRange { offset: 0, len: bytes }] },
        operation: Operation::Checksum(Digest::Crc32c),
        follow: true,
        resume: None,
    })
}

/// A namespace, and reactors' workers.
struct Bench {
    namespace: Arc<Namespace<AnyStore, Fsr>>,
    clock: SimClock,
    wakeup: Arc<Wakeup>,
    workers: Vec<FsrWorker>,
}

impl Bench {
    fn new(delay_ns: u64, workers: usize) -> Bench {
        let clock = SimClock::new();
        let firmware = Fsr::new(Arc::new(clock.clone()), FsrConfig::default());
        Bench::of(firmware, clock, delay_ns, workers)
    }

    fn of(firmware: Fsr, clock: SimClock, delay_ns: u64, workers: usize) -> Bench {
        let store = slow(delay_ns, 4 << 20);
        let namespace = Arc::new(Namespace::new(store, firmware, 512, [1; 16], true).unwrap());
        let wakeup = Arc::new(Wakeup::new().unwrap());
        let mut bench = Bench { namespace, clock, wakeup, workers: Vec::new() };
        for reactor in 0..workers {
            let host = nearside_device::Host::default();
            let memory = Arc::new(Memory::new());
            let seat =
                Seat { memory: &memory, wakeup: &bench.wakeup, host: &host, namespaces: None, reactor };
            bench.workers.push(<Fsr as Firmware<AnyStore>>::worker(&bench.namespace, &seat).unwrap());
        }
        bench
    }

    /// By which worker and which queue.
    fn start(&mut self, at: usize, queue: u16, token: u64, command: NearDataCommand, request: Vec<u8>) {
        let now = self.clock.now();
        let job = Job {
            token: Token(token),
            queue,
            command,
            request,
            room: MAX_BUFFER,
            account: Default::default(),
        };
        self.workers[at].start(job, now).unwrap();
    }

    fn step(&mut self, at: usize) -> Vec<(u64, Status, usize)> {
        let mut said = Vec::new();
        let mut done =
            |Token(token): Token, outcome: Outcome| said.push((token, outcome.status, outcome.reply.len()));
        self.workers[at].step(self.clock.now(), &mut Turn::new(), &mut done);
        said
    }

    /// Steps a worker until it answers; time goes on.
    fn finish(&mut self, at: usize) -> (u64, Status, usize) {
        for _ in 0..1_000_000 {
            if let Some(said) = self.step(at).pop() {
                return said;
            }
            self.clock.advance(50_000);
        }
        panic!("no end");
    }

    /// Nothing is left, once the store has ended what it had begun.
    #[track_caller]
    fn nothing_left(&mut self) {
        for _ in 0..100 {
            self.clock.advance(1_000_000);
            for worker in 0..self.workers.len() {
                assert_eq!(self.step(worker), []);
            }
            self.namespace.poll_orphans(self.clock.now());
        }
        nothing_held(&self.namespace);
    }

    fn tasks(&self) -> usize {
        self.namespace.observer().held().tasks
    }
}

#[track_caller]
fn nothing_held(namespace: &Namespace<AnyStore, Fsr>) {
    let fsr = namespace.observer();
    assert_eq!((fsr.held(), fsr.tags_kept()), (Held::default(), 0));
    assert_eq!((namespace.stripes_held(), namespace.orphans_in_flight()), (0, 0));
}

const WAIT: u32 = 5_000;

#[test]
fn a_write_that_was_left_ends_and_lets_go_of_its_blocks() {
    let namespace = Arc::new(Namespace::new(slow(50_000, 1 << 20), (), 512, [1; 16], true).unwrap());
    let memory = Arc::new(Memory::new());
    let (mut one, mut other) = (namespace.access(memory.clone()).unwrap(), namespace.access(memory).unwrap());
    let write = nearside_store::Operation::Write { offset: 0, len: 4096, fua: false };
    let buffer = || Data::Owned(IoBuffer::new(4096).unwrap());
    assert!(matches!(one.submit(write, buffer(), Token(1), Nanos(0)), Submitted::Pending));
    drop(one);
    assert_eq!((namespace.orphans_in_flight(), namespace.stripes_held()), (1, 1));
    let mut again = |now| match other.submit(write, buffer(), Token(2), now) {
        Submitted::Done(completion) => completion.result.is_err().then_some(()),
        Submitted::Pending => None,
    };
    assert!(again(Nanos(0)).is_some(), "the blocks are written just now");
    // Whoever finds them locked sees to it that what was left ends.
    again(Nanos(60_000));
    assert_eq!(namespace.orphans_in_flight(), 0);
    assert!(again(Nanos(60_000)).is_none());
}

#[test]
fn a_cancel_ends_a_result_at_another_reactor_whose_execute_never_came() {
    let mut bench = Bench::new(50_000, 2);
    bench.start(1, 2, 7, NearDataCommand::Result { tag: 5, wait_ms: WAIT }, vec![]);
    assert_eq!(bench.step(1), []);
    assert!(bench.workers[1].is_quiet());
    bench.start(0, 1, 8, NearDataCommand::Cancel { tag: 5 }, vec![]);
    assert_eq!(bench.step(0), [(8, Status::SUCCESS, 0)]);
    assert!(!bench.workers[1].is_quiet(), "it is woken");
    assert_eq!(bench.step(1), [(7, Status::ABORT_REQUESTED, 0)]);
    bench.nothing_left();
    // And one that comes late finds what it waits for, also from elsewhere, without looking for it in vain.
    bench.start(1, 2, 9, NearDataCommand::Result { tag: 5, wait_ms: WAIT }, vec![]);
    assert_eq!(bench.step(1), []);
    bench.start(0, 1, 10, NearDataCommand::Execute { tag: 5 }, request(4096));
    assert!(!bench.workers[1].is_quiet(), "it is woken");
    assert_eq!(bench.step(0), [(10, Status::SUCCESS, 0)]);
    let (token, status, len) = bench.finish(1);
    assert!(token == 9 && status == Status::SUCCESS && len > 0);
    bench.nothing_left();
}

#[test]
fn what_came_by_a_queue_ends_with_it_wherever_it_runs() {
    for gone in 0..4 {
        let mut bench = Bench::new(50_000, 2);
        bench.start(0, 1, 1, NearDataCommand::Execute { tag: 5 }, request(4 << 20));
        assert_eq!(bench.step(0), [(1, Status::SUCCESS, 0)]);
        let wait_ms = if gone == 3 { 0 } else { WAIT };
        bench.start(1, 2, 2, NearDataCommand::Result { tag: 5, wait_ms }, vec![]);
        let said = bench.step(1);
        assert_eq!((said.len(), bench.tasks()), (usize::from(gone == 3), 1));
        match gone {
            // The queue of its `execute`, at another reactor than the one that runs it.
            0 => {
                bench.workers[0].leave(Some(1));
                assert_eq!(bench.step(1), [(2, Status::ABORT_REQUESTED, 0)]);
            }
            // The queue of its `result`: the controller has cancelled the command before.
            1 => {
                bench.workers[1].cancel(Token(2));
                bench.workers[1].leave(Some(2));
                assert_eq!(bench.step(1), [(2, Status::ABORT_REQUESTED, 0)]);
            }
            // Another queue is none of its business.
            2 => {
                bench.workers[0].leave(Some(3));
                assert_eq!(bench.step(1), []);
                assert_eq!(bench.tasks(), 1);
                assert!(bench.finish(1).2 > 0);
            }
            // All of the reactor's, while it runs for no command.
            _ => {
                bench.workers[1].leave(None);
                assert_eq!(bench.step(1), []);
                assert_eq!(bench.tasks(), 0);
                // Whoever comes with the other half's queue is told at once.
                bench.start(0, 1, 3, NearDataCommand::Result { tag: 5, wait_ms: WAIT }, vec![]);
                assert_eq!(bench.step(0), [(3, Status::ABORT_REQUESTED, 0)]);
            }
        }
        assert_eq!(bench.tasks(), 0);
        bench.nothing_left();
    }
}

#[test]
fn an_aborted_result_takes_its_task_along_unless_another_waits() {
    let mut bench = Bench::new(50_000, 1);
    bench.start(0, 1, 1, NearDataCommand::Execute { tag: 5 }, request(4 << 20));
    for token in [2, 3] {
        bench.start(0, 1, token, NearDataCommand::Result { tag: 5, wait_ms: WAIT }, vec![]);
    }
    assert_eq!(bench.step(0), [(1, Status::SUCCESS, 0)]);
    bench.workers[0].cancel(Token(2));
    assert_eq!(bench.step(0), [(2, Status::ABORT_REQUESTED, 0)]);
    assert_eq!(bench.tasks(), 1);
    bench.workers[0].cancel(Token(3));
    assert_eq!(bench.step(0), [(3, Status::ABORT_REQUESTED, 0)]);
    assert_eq!(bench.tasks(), 0);
    bench.nothing_left();
}

#[test]
fn what_nobody_asks_for_any_more_ends() {
    // Each read takes a minute.
    let mut bench = Bench::new(60_000_000_000, 1);
    bench.start(0, 1, 1, NearDataCommand::Execute { tag: 5 }, request(4 << 20));
    bench.start(0, 1, 2, NearDataCommand::Result { tag: 5, wait_ms: 0 }, vec![]);
    assert_eq!(bench.step(0).len(), 2);
    for token in 3..6 {
        bench.clock.advance(9_000_000_000);
        bench.start(0, 1, token, NearDataCommand::Result { tag: 5, wait_ms: 0 }, vec![]);
        assert_eq!(bench.step(0), [(token, Status::SUCCESS, 0)]);
        assert_eq!(bench.tasks(), 1);
    }
    bench.start(0, 1, 9, NearDataCommand::SetFeature { tag: 1 }, request(4096));
    bench.step(0);
    bench.clock.advance(9_000_000_000);
    bench.step(0);
    assert_eq!(bench.namespace.observer().tags_kept(), 2, "what is asked for stays");
    // What Set Features began stays until its tag is used again, or its host goes.
    for _ in 0..3 {
        bench.clock.advance(1_500_000_000);
        bench.step(0);
    }
    assert_eq!((bench.tasks(), bench.namespace.observer().tags_kept()), (1, 1));
    bench.workers[0].leave(None);
    bench.clock.advance(200_000_000_000);
    bench.nothing_left();
}

#[test]
fn a_feature_s_task_that_another_reactor_replaces_ends_and_its_reply_is_not_the_other_s() {
    let mut bench = Bench::new(50_000, 2);
    bench.start(0, 0, 1, NearDataCommand::SetFeature { tag: 3 }, request(4 << 20));
    bench.step(0);
    bench.start(1, 0, 2, NearDataCommand::SetFeature { tag: 3 }, request(8192));
    bench.step(1);
    assert_eq!(bench.tasks(), 2);
    bench.step(0);
    assert_eq!(bench.tasks(), 1);
    for _ in 0..20 {
        bench.clock.advance(50_000);
        bench.step(1);
    }
    let job = |token| {
        let command = NearDataCommand::Feature { tag: 3, offset: 0 };
        Job {
            token: Token(token),
            queue: 0,
            command,
            request: vec![],
            room: MAX_BUFFER,
            account: Default::default(),
        }
    };
    bench.workers[1].start(job(4), bench.clock.now()).unwrap();
    assert!(bench.step(1)[0].2 > 0);
    // A worker that goes takes along what came by it; the last leaves nothing.
    bench.workers.clear();
    assert_eq!(bench.namespace.observer().tags_kept(), 0);
    bench.nothing_left();
}

/// The same through the controller: a hundred abandoned searches of every kind.
#[test]
fn a_hundred_abandoned_searches_leave_nothing() {
    abandoned_a_hundred_times(1);
    abandoned_a_hundred_times(3);
}

fn abandoned_a_hundred_times(reactors: usize) {
    let clock = SimClock::new();
    let firmware = Fsr::new(Arc::new(clock.clone()), FsrConfig::default());
    let config = Config { reactors, ..Config::default() };
    let (controller, namespace) = Controller::alone(slow(50_000, 4 << 20), firmware, config).unwrap();
    let mut host = Host::of(controller);
    let asked = request(4 << 20);
    let begin = |host: &mut Host<AnyStore, Fsr>| {
        host.enable();
        host.create_pair(1, None);
        host.create_pair(2, None);
        host.put(FREE, &encode_padded(&asked));
    };
    let near_data = |opcode, tag: u32, wait: u32| {
        let mut entry = command(opcode, 1, &[asked.len() as u32, 4096, tag, 0, wait]);
        entry.set_cid(opcode.into());
        entry
    };
    begin(&mut host);
    for round in 0..100u32 {
        let way = round % 5;
        clock.advance_to(host.now);
        if way < 2 {
            host.submit(1, near_data(io::NEAR_DATA, 1, 0));
        } else {
            let done = host.run(1, near_data(io::NEAR_DATA_EXECUTE, round, 0));
            assert_eq!(done.status(), Status::SUCCESS);
            // One of them has been told that it runs, and is nobody's just now.
            let wait = if way == 4 { 0 } else { 5_000 };
            host.submit(2, near_data(io::NEAR_DATA_RESULT, round, wait));
        }
        for _ in 0..10 {
            host.step();
        }
        assert_eq!(namespace.observer().held().tasks, 1, "round {round}");
        assert!(namespace.observer().held().reads > 0);
        match way {
            0 | 4 => {
                host.disable();
                begin(&mut host);
            }
            1 => {
                let abort = u32::from(io::NEAR_DATA) << 16 | 1;
                assert_eq!(host.admin(command(admin::ABORT, 0, &[abort])), Ok(0));
            }
            // The queue of its `result`, and that of its `execute`.
            _ => {
                let id = if way == 2 { 2 } else { 1 };
                delete_pair(&mut host, id);
                host.create_pair(id, None);
            }
        }
        host.settle(10_000_000);
        assert_eq!(namespace.observer().held().tasks, 0, "round {round}");
        (1..3).for_each(|id| host.reap(id));
        host.queues.iter_mut().for_each(|queue| queue.done.clear());
        if reactors > 1 {
            assert_eq!(namespace.stripes_held(), 0, "round {round}");
        }
        nothing_held(&namespace);
    }
    // The drive itself goes.
    clock.advance_to(host.now);
    host.submit(1, near_data(io::NEAR_DATA, 1, 0));
    for _ in 0..10 {
        host.step();
    }
    let later = host.now + 1_000_000;
    drop(host);
    assert!(namespace.orphans_in_flight() > 0);
    namespace.poll_orphans(later);
    nothing_held(&namespace);
}

fn delete_pair(host: &mut Host<AnyStore, Fsr>, id: u16) {
    for opcode in [admin::DELETE_SQ, admin::DELETE_CQ] {
        host.admin(command(opcode, 0, &[id.into()])).unwrap();
    }
    host.queues.retain(|queue| queue.id != id);
    host.memory.fill(usize::from(id) * 0x4000, 0x4000, 0);
}

/// The request at the beginning of a page.
fn encode_padded(request: &[u8]) -> Vec<u8> {
    let mut page = request.to_vec();
    page.resize(4096, 0);
    page
}

/// However many reactors a thread has, near-data work has one slice between two looks at their I/O, and each
/// has its turn.
#[test]
fn reactors_on_one_thread_share_a_slice() {
    let firmware = Fsr::new(Arc::new(SimClock::new()), FsrConfig::default());
    let config = Config { reactors: 4, ..Config::default() };
    let (controller, namespace) = Controller::alone(slow(0, 64 << 20), firmware, config).unwrap();
    let mut host = Host::of(controller);
    host.enable();
    let asked = request(64 << 20);
    for id in 1..=4 {
        host.create_pair(id, None);
    }
    let slices = || namespace.observer().slices();
    let count = || slices().iter().map(|(_, slices)| slices.count).sum::<u64>();
    for id in 1..=4u16 {
        let at = FREE + u64::from(id) * 4096;
        host.put(at, &encode_padded(&asked));
        let mut entry: SubmissionEntry = command(io::NEAR_DATA, 1, &[asked.len() as u32, 4096, 1]);
        entry.set_quad(6, at);
        host.submit(id, entry);
    }
    let mut ran = 0;
    while namespace.observer().held().tasks > 0 || ran == 0 {
        let before = count();
        host.step();
        assert!(count() - before <= 1, "two slices between two looks");
        ran += 1;
        let each: Vec<u64> = slices().iter().map(|(_, slices)| slices.count).collect();
        if namespace.observer().held().tasks == 4 {
            assert!(each.iter().max().unwrap() - each.iter().min().unwrap() <= 1, "{each:?}");
        }
    }
    assert!(
        slices().iter().all(|(place, slices)| matches!(place, TaskPlace::Reactor(_)) && slices.count > 1)
    );
}

/// On threads of their own: tasks end there with their answers, by cancelling, and when the threads go.
#[test]
fn tasks_on_threads_of_their_own_answer_and_leave_nothing() {
    let clock = nearside_clock::TscClock::new();
    let threads = Workers::start(2, clock).unwrap().unwrap();
    let firmware = Fsr::new(Arc::new(clock), FsrConfig::default()).on(Some(threads.handle()));
    let mut bench = Bench::of(firmware, SimClock::new(), 100_000, 2);
    let begun = clock.now();
    let patience = || assert!(clock.now().since(begun) < 120_000_000_000, "no end");
    let await_outcome = |bench: &mut Bench, at: usize| loop {
        let mut said = None;
        let progress = bench.workers[at].step(bench.clock.now(), &mut Turn::new(), &mut |Token(t), o| {
            said = Some((t, o));
        });
        if let Some(said) = said {
            return said;
        }
        patience();
        if progress.next.is_none_or(|next| next > bench.clock.now()) {
            bench.wakeup.sleep(Some(std::time::Duration::from_secs(60)), || bench.workers[at].is_quiet());
        }
    };
    for at in 0..2 {
        bench.start(at, 1, 1, NearDataCommand::Bidirectional, request(1 << 20));
        let (token, outcome) = await_outcome(&mut bench, at);
        assert_eq!((token, outcome.status), (1, Status::SUCCESS));
        assert_eq!(decode_reply(&outcome.reply).unwrap().failure, None);
    }
    // By the two halves, at two reactors.
    bench.start(0, 1, 2, NearDataCommand::Execute { tag: 1 }, request(1 << 20));
    bench.start(1, 1, 3, NearDataCommand::Result { tag: 1, wait_ms: WAIT }, vec![]);
    assert_eq!(await_outcome(&mut bench, 0).1.status, Status::SUCCESS);
    assert!(!await_outcome(&mut bench, 1).1.reply.is_empty());
    let places: Vec<TaskPlace> =
        bench.namespace.observer().slices().iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [TaskPlace::Thread(0), TaskPlace::Thread(1)]);
    // Abandoned: by an abort, and with its reactor.
    bench.start(0, 1, 4, NearDataCommand::Bidirectional, request(4 << 20));
    bench.workers[0].cancel(Token(4));
    assert_eq!(await_outcome(&mut bench, 0).1.status, Status::ABORT_REQUESTED);
    bench.start(1, 1, 5, NearDataCommand::Bidirectional, request(4 << 20));
    bench.workers.truncate(1);
    let settled = |bench: &Bench| {
        while bench.namespace.observer().held() != Held::default()
            || bench.namespace.stripes_held() + bench.namespace.orphans_in_flight() > 0
        {
            patience();
            std::thread::yield_now();
        }
    };
    settled(&bench);
    assert_eq!(bench.namespace.observer().tags_kept(), 0);
}

#[test]
fn threads_that_go_first_answer_what_they_had() {
    let clock = nearside_clock::TscClock::new();
    let threads = Workers::start(1, clock).unwrap().unwrap();
    let firmware = Fsr::new(Arc::new(clock), FsrConfig::default()).on(Some(threads.handle()));
    // Each read takes an hour.
    let mut bench = Bench::of(firmware, SimClock::new(), 3_600_000_000_000, 1);
    bench.start(0, 1, 6, NearDataCommand::Bidirectional, request(4 << 20));
    drop(threads);
    assert_eq!(bench.step(0), [(6, Status::ABORT_REQUESTED, 0)]);
    bench.start(0, 1, 7, NearDataCommand::Bidirectional, request(4096));
    assert_eq!(bench.step(0), [(7, Status::ABORT_REQUESTED, 0)]);
    bench.workers.clear();
    assert_eq!(bench.namespace.poll_orphans(Nanos(u64::MAX)), None);
    nothing_held(&bench.namespace);
}
