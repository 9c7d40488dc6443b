//! Near-data commands through the firmware's worker: every command, slow and fast stores, cancelling, and the
//! monitor.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};

use nearside_clock::{Clock, Nanos, SimClock, TscClock};
use nearside_conformance::{needs, volume};
use nearside_device::Namespace;
use nearside_device::firmware::{Firmware, Job, NearDataCommand, Outcome, Seat, Turn, Worker as _};
use nearside_dma::{IoBuffer, Memory, Wakeup};
use nearside_embedded::AnyStore;
use nearside_firmware::{Fsr, Workers};
use nearside_fsr::Config;
use nearside_ndp::program::{Engine, Program, install};
use nearside_near_data::wire::{decode_reply, encode_request};
use nearside_near_data::{
    Answer, Code, Credentials, Digest, Failure, Language, MAX_BUFFER, Operation, ProgramOptions, Record,
    Reply, Request, SearchOptions, SearchTotals, Target,
};
use nearside_spec::Status;
use nearside_store::{Data, Delay, Dram, Modelled, Submitted, Token};

type Worker = <Fsr as Firmware<AnyStore>>::Worker;

fn dram(image: &Path) -> AnyStore {
    AnyStore::Dram(Dram::from_file(image, 512).unwrap())
}

fn delayed(store: AnyStore, delay: Delay) -> AnyStore {
    AnyStore::Delayed(Box::new(Modelled::new(store, delay.medium())))
}

fn image(test: &str, fill: impl FnOnce(&Path)) -> Option<tempfile::NamedTempFile> {
    let dir = needs::folder(test, &["mke2fs"])?;
    fill(dir.path());
    let image = tempfile::NamedTempFile::new().unwrap();
    volume::ext(image.path(), 64, Some(dir.path()), &["-t", "ext4", "-b", "4096"]);
    Some(image)
}

/// A worker as a reactor has it.
fn another(namespace: &Arc<Namespace<AnyStore, Fsr>>, memory: &Arc<Memory>) -> Worker {
    of_host(namespace, memory, &nearside_device::Host::default())
}

fn of_host(
    namespace: &Arc<Namespace<AnyStore, Fsr>>,
    memory: &Arc<Memory>,
    host: &nearside_device::Host,
) -> Worker {
    let wakeup = Arc::new(Wakeup::new().unwrap());
    let seat = Seat { memory, wakeup: &wakeup, host, namespaces: None, reactor: 0 };
    <Fsr as Firmware<AnyStore>>::worker(namespace, &seat).unwrap()
}

struct WorkerDrive {
    namespace: Arc<Namespace<AnyStore, Fsr>>,
    worker: Worker,
    clock: SimClock,
    memory: Arc<Memory>,
    next: u64,
}

impl WorkerDrive {
    fn new(store: AnyStore) -> WorkerDrive {
        WorkerDrive::with(store, Config::default())
    }

    fn with(store: AnyStore, config: Config) -> WorkerDrive {
        let clock = SimClock::new();
        let firmware = Fsr::new(Arc::new(clock.clone()), config);
        let namespace = Arc::new(Namespace::new(store, firmware, 512, [1; 16], false).unwrap());
        let memory = Arc::new(Memory::new());
        let worker = another(&namespace, &memory);
        WorkerDrive { namespace, worker, clock, memory, next: 0 }
    }

    fn start(&mut self, command: NearDataCommand, request: Vec<u8>, room: usize) -> Result<Token, Status> {
        let token = Token(self.next);
        self.next += 1;
        self.worker
            .start(
                Job { token, queue: 1, command, request, room, account: Default::default() },
                self.clock.now(),
            )
            .map(|()| token)
    }

    /// Steps until that command is answered; time goes on to what the worker waits for.
    fn finish(&mut self, token: Token) -> Outcome {
        for _ in 0..10_000_000 {
            let mut outcome = None;
            let progress = self.worker.step(self.clock.now(), &mut Turn::new(), &mut |t, o| {
                assert_eq!(t, token);
                outcome = Some(o);
            });
            if let Some(outcome) = outcome {
                return outcome;
            }
            if let Some(next) = progress.next {
                self.clock.advance_to(next);
            } else {
                assert!(progress.worked, "nothing to do and nothing to wait for");
            }
        }
        panic!("no end");
    }

    fn ask(&mut self, request: &Request) -> Reply<'static> {
        let token = self.start(NearDataCommand::Bidirectional, encode_request(request), MAX_BUFFER).unwrap();
        let outcome = self.finish(token);
        assert_eq!(outcome.status, Status::SUCCESS);
        assert_eq!(outcome.result as usize, outcome.reply.len());
        decode_reply(&outcome.reply).unwrap().into_owned()
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut access = self.namespace.access(self.memory.clone()).unwrap();
        let mut buffer = IoBuffer::new(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        let operation = nearside_store::Operation::Write { offset, len: bytes.len() as u64, fua: false };
        match access.submit(operation, Data::Owned(buffer), Token(0), self.clock.now()) {
            Submitted::Done(completion) => completion.result.unwrap(),
            Submitted::Pending => panic!("memory is slow"),
        }
    }
}

fn request(target: Target, operation: Operation) -> Request {
    Request {
        partition: 0,
        credentials: Credentials::default(),
        target,
        operation,
        follow: true,
        resume: None,
    }
}

fn grep(pattern: &str) -> Operation {
    Operation::Search(SearchOptions {
        patterns: vec![pattern.into()],
        only_matching_files: true,
        numbers: true,
        ..SearchOptions::default()
    })
}

fn tree(root: &str) -> Target {
    Target::Tree { root: root.into(), include: vec![], exclude: vec![], max_depth: u32::MAX }
}

fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("a/b/c")).unwrap();
    fs::write(dir.join("a/b/c/log"), "one\ntwo ERROR\nthree\n").unwrap();
    fs::write(dir.join("a/other"), "ERROR\n".repeat(1000)).unwrap();
    fs::write(dir.join("big"), (0..400_000).map(|n| format!("{n} line\n")).collect::<String>()).unwrap();
}

#[test]
fn a_search_by_every_door_gives_the_same_bytes() {
    let Some(image) = image("a_search_by_every_door_gives_the_same_bytes", fill) else { return };
    let mut drive = WorkerDrive::new(dram(image.path()));
    let asked = request(tree("/a"), grep("two"));
    let bytes = encode_request(&asked);
    let reply = drive.ask(&asked);
    assert_eq!(reply.failure, None);
    let found =
        Record::Line { number: 2, offset: 4, bytes: b"two ERROR".into(), context: false, continues: false };
    assert_eq!(reply.records[0], Record::File { path: b"/a/b/c/log".into(), size: 20 });
    assert_eq!(reply.records[1], found);
    assert_eq!(reply.records[2], Record::Total(SearchTotals { files: 2, files_matched: 1, matches: 1 }));
    let same = |outcome: Outcome| {
        assert_eq!(outcome.status, Status::SUCCESS);
        assert_eq!(decode_reply(&outcome.reply).unwrap().records, reply.records);
    };
    // DAC'23's: the buffer of a Get Features, longer than the request.
    let mut buffer = bytes.clone();
    buffer.resize(4096, 0);
    let token = drive.start(NearDataCommand::Feature { tag: 0, offset: 0 }, buffer, 4096).unwrap();
    same(drive.finish(token));
    // Execute first, and result first.
    let token = drive.start(NearDataCommand::Execute { tag: 7 }, bytes.clone(), 0).unwrap();
    assert_eq!(drive.finish(token).status, Status::SUCCESS);
    let token = drive.start(NearDataCommand::Result { tag: 7, wait_ms: 100 }, vec![], 4096).unwrap();
    same(drive.finish(token));
    let result = drive.start(NearDataCommand::Result { tag: 8, wait_ms: 100 }, vec![], 4096).unwrap();
    let execute = drive.start(NearDataCommand::Execute { tag: 8 }, bytes.clone(), 0).unwrap();
    assert_eq!(drive.finish(execute).status, Status::SUCCESS);
    same(drive.finish(result));
    // Set Features, then Get Features in pieces.
    let token = drive.start(NearDataCommand::SetFeature { tag: 3 }, bytes, 0).unwrap();
    assert_eq!(drive.finish(token).status, Status::SUCCESS);
    let mut whole = Vec::new();
    loop {
        let command = NearDataCommand::Feature { tag: 3, offset: whole.len() as u32 };
        let token = drive.start(command, vec![0; 100], 100).unwrap();
        let outcome = drive.finish(token);
        whole.extend(&outcome.reply);
        if outcome.result > 0 && whole.len() == outcome.result as usize {
            break;
        }
    }
    assert_eq!(decode_reply(&whole).unwrap().records, reply.records);
}

#[test]
fn what_is_not_a_request_is_refused_by_its_status() {
    let mut drive = WorkerDrive::new(AnyStore::Dram(Dram::new(1 << 20, 512).unwrap()));
    let invalid = Err(Status::INVALID_FIELD.dnr());
    assert_eq!(drive.start(NearDataCommand::Bidirectional, vec![0; 64], 4096), invalid);
    let asked = encode_request(&request(tree("/"), grep("x")));
    assert_eq!(drive.start(NearDataCommand::Bidirectional, asked.clone(), 95), invalid);
    assert_eq!(drive.start(NearDataCommand::Bidirectional, asked[..80].to_vec(), 4096), invalid);
    // The shortest buffer holds an answer, if only that it is too short.
    let token = drive.start(NearDataCommand::Bidirectional, asked.clone(), 96).unwrap();
    assert!(decode_reply(&drive.finish(token).reply).is_ok());
    // A namespace without a file system is an answer, not a fault.
    let reply = drive.ask(&request(tree("/"), grep("x")));
    assert!(matches!(reply.failure, Some(Failure::NoVolume(_))));
    // A result that nobody executes ends when its time is over.
    let token = drive.start(NearDataCommand::Result { tag: 1, wait_ms: 50 }, vec![], 4096).unwrap();
    assert_eq!(drive.finish(token).status, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(drive.clock.now(), Nanos(50_000_000));
    // An execute that is no request fails, and so does its result.
    let token = drive.start(NearDataCommand::Execute { tag: 2 }, vec![1, 2, 3], 0).unwrap();
    assert_eq!(drive.finish(token).status, Status::INVALID_FIELD.dnr());
    let token = drive.start(NearDataCommand::Result { tag: 2, wait_ms: 50 }, vec![], 4096).unwrap();
    assert_eq!(drive.finish(token).status, Status::INVALID_FIELD.dnr());
}

/// DAC'23 III-C: blocks in any order use all of the medium's units, an ordered range does not.
#[test]
fn unordered_reading_uses_all_units_and_ordered_reading_does_not() {
    let test = "unordered_reading_uses_all_units_and_ordered_reading_does_not";
    let large = |dir: &Path| {
        fs::write(dir.join("big"), (0..3_000_000).map(|n| format!("{n} line\n")).collect::<String>())
            .unwrap();
    };
    let Some(image) = image(test, large) else { return };
    // Each unit serves 128 KiB at a time, as much as the provider reads at once.
    let took = |units, config, operation: &Operation| {
        let delay = Delay { units, stripe: 128 << 10, ..Delay::fixed(1_000_000) };
        let store = delayed(dram(image.path()), delay);
        let mut drive = WorkerDrive::with(store, config);
        let asked = request(Target::Path(b"/big".to_vec()), operation.clone());
        drive.ask(&asked);
        let before = drive.clock.now();
        let reply = drive.ask(&asked);
        assert_eq!(reply.failure, None);
        (drive.clock.now().since(before) as f64, reply.records)
    };
    let plain = Config { ahead: 1, ..Config::default() };
    let deep = Config { depth: 16, ..Config::default() };
    let crc = Operation::Checksum(Digest::Crc32c);
    let count = Operation::Search(SearchOptions {
        patterns: vec![b"77".to_vec()],
        answer: Answer::Count,
        ..SearchOptions::default()
    });
    for operation in [&crc, &count, &Operation::Count] {
        let (one, records) = took(1, deep, operation);
        let (eight, same) = took(8, deep, operation);
        assert_eq!(records, same);
        assert!(one / eight > 7.0, "{one} by one unit, {eight} by eight");
    }
    // The same bytes in order: a read at a time, and four ahead.
    let sha = Operation::Checksum(Digest::Sha256);
    let (unordered, _) = took(8, deep, &crc);
    let (ordered, records) = took(8, plain, &sha);
    let (ahead, same) = took(8, Config::default(), &sha);
    assert_eq!(records, same);
    assert!(ordered > 3.0 * unordered && ahead < ordered, "{unordered} {ahead} {ordered}");
}

#[test]
fn a_cancelled_command_is_answered_and_leaves_nothing() {
    let Some(image) = image("a_cancelled_command_is_answered_and_leaves_nothing", fill) else { return };
    let store = dram(image.path());
    let mut drive = WorkerDrive::new(delayed(store, Delay::fixed(50_000)));
    let bytes = encode_request(&request(tree("/"), grep("line")));
    let token = drive.start(NearDataCommand::Bidirectional, bytes.clone(), MAX_BUFFER).unwrap();
    let now = drive.clock.now();
    drive.worker.step(now, &mut Turn::new(), &mut |_, _| panic!("too early"));
    drive.worker.cancel(token);
    assert_eq!(drive.finish(token).status, Status::ABORT_REQUESTED);
    let token = drive.start(NearDataCommand::Execute { tag: 5 }, bytes, 0).unwrap();
    drive.finish(token);
    let result = drive.start(NearDataCommand::Result { tag: 5, wait_ms: 1000 }, vec![], MAX_BUFFER).unwrap();
    let cancel = drive.start(NearDataCommand::Cancel { tag: 5 }, vec![], 0).unwrap();
    let mut outcomes = Vec::new();
    let now = drive.clock.now();
    drive.worker.step(now, &mut Turn::new(), &mut |t, o| outcomes.push((t, o.status)));
    outcomes.sort_by_key(|o| o.0);
    assert_eq!(outcomes, [(result, Status::ABORT_REQUESTED), (cancel, Status::SUCCESS)]);
    // The store's answers to reads that nobody waits for any more do no harm.
    let reply = drive.ask(&request(tree("/a"), grep("two")));
    assert_eq!(reply.records.len(), 3);
}

#[test]
fn a_cancel_by_another_reactor_ends_what_runs() {
    let Some(image) = image("a_cancel_by_another_reactor_ends_what_runs", fill) else { return };
    let store = dram(image.path());
    let mut drive = WorkerDrive::new(delayed(store, Delay::fixed(50_000)));
    let mut other = another(&drive.namespace, &drive.memory);
    let bytes = encode_request(&request(tree("/"), grep("line")));
    let token = drive.start(NearDataCommand::Execute { tag: 5 }, bytes.clone(), 0).unwrap();
    drive.finish(token);
    let result = drive.start(NearDataCommand::Result { tag: 5, wait_ms: 1000 }, vec![], MAX_BUFFER).unwrap();
    let now = drive.clock.now();
    drive.worker.step(now, &mut Turn::new(), &mut |_, _| panic!("too early"));
    let cancel = Job {
        token: Token(99),
        queue: 1,
        command: NearDataCommand::Cancel { tag: 5 },
        request: vec![],
        room: 0,
        account: Default::default(),
    };
    other.start(cancel, now).unwrap();
    let mut said = None;
    other.step(now, &mut Turn::new(), &mut |token, outcome| {
        said = Some((token, outcome.status, outcome.result))
    });
    assert_eq!(said, Some((Token(99), Status::SUCCESS, 1)));
    assert_eq!(drive.finish(result).status, Status::ABORT_REQUESTED);
    // The tag is free again, and what runs under it is not taken for what was cancelled.
    let token = drive.start(NearDataCommand::Execute { tag: 5 }, bytes, 0).unwrap();
    drive.finish(token);
    let result = drive.start(NearDataCommand::Result { tag: 5, wait_ms: 1000 }, vec![], MAX_BUFFER).unwrap();
    assert_eq!(drive.finish(result).status, Status::SUCCESS);
}

/// Two hosts with one identifier, one of which may only claim it: what is kept under a tag of the one is not
/// there for the other.
#[test]
fn a_tag_is_of_its_host_s_name_and_identifier() {
    let Some(image) = image("a_tag_is_of_its_host_s_name_and_identifier", fill) else { return };
    let mut drive = WorkerDrive::new(dram(image.path()));
    let worker = |name: &str, drive: &WorkerDrive| {
        let host = nearside_device::Host { nqn: name.to_owned(), identifier: [7; 16], ..Default::default() };
        of_host(&drive.namespace, &drive.memory, &host)
    };
    drive.worker = worker("nqn.2026-11.dev.nearside:one", &drive);
    let mut same = worker("nqn.2026-11.dev.nearside:one", &drive);
    let mut other = worker("nqn.2026-11.dev.nearside:other", &drive);
    let bytes = encode_request(&request(tree("/"), grep("line")));
    // By `execute` and `result`, and by Set and Get Features.
    let token = drive.start(NearDataCommand::Execute { tag: 5 }, bytes.clone(), 0).unwrap();
    assert_eq!(drive.finish(token).status, Status::SUCCESS);
    let token = drive.start(NearDataCommand::Result { tag: 5, wait_ms: 0 }, vec![], MAX_BUFFER).unwrap();
    assert_eq!(drive.finish(token).reply.len(), 0, "it runs, and its reply stays");
    let token = drive.start(NearDataCommand::SetFeature { tag: 5 }, bytes, 0).unwrap();
    drive.finish(token);
    for _ in 0..10_000 {
        drive.worker.step(drive.clock.now(), &mut Turn::new(), &mut |_, _| {});
    }
    let now = drive.clock.now();
    let ask = |worker: &mut Worker, command| {
        let job = Job {
            token: Token(99),
            queue: 1,
            command,
            request: vec![],
            room: MAX_BUFFER,
            account: Default::default(),
        };
        worker.start(job, now).map(|()| {
            let mut said = None;
            let mut done = |_, outcome: Outcome| said = Some((outcome.status, outcome.reply.len()));
            worker.step(now, &mut Turn::new(), &mut done);
            said.unwrap()
        })
    };
    let feature = NearDataCommand::Feature { tag: 5, offset: 0 };
    assert_eq!(ask(&mut other, feature), Err(Status::COMMAND_SEQUENCE_ERROR.dnr()));
    let result = NearDataCommand::Result { tag: 5, wait_ms: 0 };
    assert_eq!(ask(&mut other, result), Ok((Status::COMMAND_SEQUENCE_ERROR, 0)));
    assert_eq!(ask(&mut other, NearDataCommand::Cancel { tag: 5 }), Ok((Status::SUCCESS, 0)));
    for command in [feature, result] {
        let (status, len) = ask(&mut same, command).unwrap();
        assert!(status.is_success() && len > 0);
    }
}

/// Compiles none; of some it takes until it is let.
struct Holding {
    gate: Mutex<Receiver<()>>,
}

impl Engine for Holding {
    fn compile(&self, code: &[u8]) -> Result<Arc<dyn Program>, String> {
        if code.starts_with(b"hold") {
            let _ = self.gate.lock().unwrap().recv();
        }
        Err("none of mine".to_owned())
    }
}

static GATE: Mutex<Option<Receiver<()>>> = Mutex::new(None);

/// What one host has compiled, which nobody can interrupt, is no wait of another's.
#[test]
fn a_host_whose_programs_take_long_holds_up_no_other() {
    let Some(image) = image("a_host_whose_programs_take_long_holds_up_no_other", fill) else { return };
    let (open, gate) = mpsc::channel();
    *GATE.lock().unwrap() = Some(gate);
    let make = || -> Result<Box<dyn Engine>, String> {
        Ok(Box::new(Holding { gate: Mutex::new(GATE.lock().unwrap().take().unwrap()) }))
    };
    install(Language::WebAssembly, make);
    // Its time is the machine's: under a simulated clock all is done at once, here.
    let clock = Arc::new(TscClock::new());
    let firmware = Fsr::new(clock.clone(), Config::default());
    let namespace = Arc::new(Namespace::new(dram(image.path()), firmware, 512, [1; 16], false).unwrap());
    let memory = Arc::new(Memory::new());
    let mut workers = ["one", "other"].map(|name| {
        let host = nearside_device::Host { nqn: name.to_owned(), ..Default::default() };
        of_host(&namespace, &memory, &host)
    });
    let run = |worker: &mut Worker, token: u64, code: &[u8]| {
        let options = ProgramOptions { code: Code::Given(code.to_vec()), ..ProgramOptions::default() };
        let target = Target::Path("/big".into());
        let request = encode_request(&request(target, Operation::Program(Box::new(options))));
        let (token, command) = (Token(token), NearDataCommand::Bidirectional);
        let job = Job { token, queue: 1, command, request, room: MAX_BUFFER, account: Default::default() };
        worker.start(job, clock.now()).unwrap();
    };
    let deadline = clock.now() + 60_000_000_000;
    let step = |worker: &mut Worker, ended: &mut Vec<u64>| {
        assert!(clock.now() < deadline, "it waits for another's");
        worker.step(clock.now(), &mut Turn::new(), &mut |Token(token), outcome: Outcome| {
            assert_eq!(outcome.status, Status::SUCCESS);
            let reply = decode_reply(&outcome.reply).unwrap();
            let Some(Failure::InvalidRequest(why)) = reply.failure else { panic!("{reply:?}") };
            assert!(why.ends_with("none of mine"), "{why}");
            ended.push(token);
        });
        std::thread::yield_now();
    };
    let many = 12;
    let (mut ended, mut others) = (Vec::new(), Vec::new());
    (0..many).for_each(|token| run(&mut workers[0], token, format!("hold {token}").as_bytes()));
    (0..1_000).for_each(|_| step(&mut workers[0], &mut ended));
    for token in 100..103 {
        run(&mut workers[1], token, format!("quick {token}").as_bytes());
        while others.last() != Some(&token) {
            workers.iter_mut().zip([&mut ended, &mut others]).for_each(|(worker, to)| step(worker, to));
        }
    }
    assert_eq!((ended.len(), others), (0, vec![100, 101, 102]));
    drop(open);
    while ended.len() < many as usize {
        step(&mut workers[0], &mut ended);
    }
}

#[test]
fn the_monitor_sees_writes_and_an_unrelated_one_invalidates_nothing() {
    let test = "the_monitor_sees_writes_and_an_unrelated_one_invalidates_nothing";
    let Some(image) = image(test, fill) else { return };
    let Some(other) = self::image(test, |dir| {
        fs::create_dir_all(dir.join("a/b/c")).unwrap();
        fs::write(dir.join("a/b/c/log"), "now something two else\n").unwrap();
    }) else {
        return;
    };
    let mut drive = WorkerDrive::new(dram(image.path()));
    let asked = request(tree("/a"), grep("two"));
    assert_eq!(drive.ask(&asked).records.len(), 3);
    let map = drive.ask(&request(Target::Path(b"/big".to_vec()), Operation::Map));
    let Some(Record::Extent { offset, .. }) = map.records.get(1) else { panic!("{map:?}") };
    let invalidated = |d: &WorkerDrive| d.namespace.observer().retriever().monitor().counters().invalidated;
    let before = invalidated(&drive);
    drive.write(*offset, &[b'x'; 65536]);
    assert_eq!(invalidated(&drive), before);
    let reply = drive.ask(&asked);
    assert_eq!((reply.records.len(), reply.counters.cache_misses), (3, 0));
    // Another volume, block by block: what the drive cached of the first must not show.
    let new = fs::read(other.path()).unwrap();
    for (n, block) in new.chunks(65536).enumerate() {
        drive.write(n as u64 * 65536, block);
    }
    assert!(invalidated(&drive) > before);
    let reply = drive.ask(&asked);
    assert_eq!(reply.failure, None);
    assert_eq!(reply.records[0], Record::File { path: b"/a/b/c/log".into(), size: 23 });
    let Record::Total(SearchTotals { files: 1, matches: 1, .. }) = reply.records[2] else {
        panic!("{reply:?}")
    };
}

/// What a path leads to that was asked for before is answered when the command is taken: no slice is spent on
/// it. For another user, for a host whose word is not believed, after a host's write and by a drive that
/// trusts nothing it is a task.
#[test]
fn a_path_that_was_walked_before_takes_no_task() {
    let test = "a_path_that_was_walked_before_takes_no_task";
    let Some(image) = image(test, fill) else { return };
    let mut drive = WorkerDrive::new(dram(image.path()));
    let slices = |drive: &WorkerDrive| {
        drive.namespace.observer().slices().iter().map(|(_, slices)| slices.count).sum::<u64>()
    };
    let log = |operation| request(Target::Path(b"/a/b/c/log".to_vec()), operation);
    let mut asked = 0;
    for operation in [Operation::Stat, Operation::Nop] {
        let question = log(operation.clone());
        let uses = |drive: &WorkerDrive| {
            drive.namespace.observer().uses().find(|(name, _)| *name == operation.kind().name).unwrap().1
        };
        let first = drive.ask(&question);
        drive.ask(&question);
        let (before, counted) = (slices(&drive), uses(&drive).ended);
        let at_once = drive.ask(&question);
        assert_eq!((slices(&drive), uses(&drive).ended), (before, counted + 1), "{operation:?}");
        assert_eq!(at_once.records, first.records);
        assert_eq!((at_once.failure, at_once.counters.cache_misses), (None, 0));
        asked += u32::from(at_once.counters.cache_hits > 0);
        // Who has not asked yet.
        let credentials = Credentials { uid: 1000 + asked, gid: 1000, groups: vec![] };
        drive.ask(&Request { credentials, ..question.clone() });
        assert!(slices(&drive) > before, "another user's answer");
    }
    assert_eq!(asked, 2);
    // The same bytes, written by a host.
    let before = slices(&drive);
    for (n, block) in fs::read(image.path()).unwrap().chunks(65536).enumerate() {
        drive.write(n as u64 * 65536, block);
    }
    drive.ask(&log(Operation::Stat));
    assert!(slices(&drive) > before, "it may have changed");
    let identity = nearside_device::Identity::SquashAll { uid: 1000, gid: 1000 };
    let host = nearside_device::Host { identity, ..nearside_device::Host::default() };
    drive.worker = of_host(&drive.namespace, &drive.memory, &host);
    for _ in 0..3 {
        let before = slices(&drive);
        drive.ask(&log(Operation::Stat));
        assert!(slices(&drive) > before, "a squashed user");
    }
    let clock = SimClock::new();
    let firmware = Fsr::distrusting(Arc::new(clock.clone()), Config::default());
    let store = dram(image.path());
    let namespace = Arc::new(Namespace::new(store, firmware, 512, [1; 16], false).unwrap());
    let worker = another(&namespace, &drive.memory);
    let mut drive = WorkerDrive { namespace, worker, clock, ..drive };
    for _ in 0..3 {
        let before = slices(&drive);
        drive.ask(&log(Operation::Stat));
        assert!(slices(&drive) > before, "a drive that trusts nothing");
    }
}

#[test]
fn long_lines_come_in_parts_and_nothing_is_lost() {
    let long: String = (0..50_000).map(|n| format!("{n:x},")).collect();
    let text = format!("short needle\n{long}needle\nend needle\n");
    let Some(image) =
        image("long_lines_come_in_parts_and_nothing_is_lost", |dir| fs::write(dir.join("f"), &text).unwrap())
    else {
        return;
    };
    let mut drive = WorkerDrive::new(dram(image.path()));
    for room in [512, 4096, 65536] {
        let mut asked = request(Target::Path(b"/f".to_vec()), grep("needle"));
        let mut got: Vec<(u64, Vec<u8>, bool)> = Vec::new();
        loop {
            let token = drive.start(NearDataCommand::Bidirectional, encode_request(&asked), room).unwrap();
            let outcome = drive.finish(token);
            assert!(outcome.reply.len() <= room);
            let reply = decode_reply(&outcome.reply).unwrap().into_owned();
            assert_eq!(reply.failure, None);
            for record in reply.records {
                if let Record::Line { number, bytes, continues, .. } = record {
                    match got.last_mut() {
                        Some((n, all, true)) if *n == number => {
                            all.extend_from_slice(&bytes);
                            got.last_mut().unwrap().2 = continues;
                        }
                        _ => got.push((number, bytes.into_owned(), continues)),
                    }
                }
            }
            let Some(more) = reply.more else { break };
            assert_ne!(asked.resume.as_ref(), Some(&more));
            asked.resume = Some(more);
        }
        let lines: Vec<_> = text.lines().enumerate().map(|(n, l)| (n as u64 + 1, l.into(), false)).collect();
        assert!(got == lines, "by {room}");
    }
    let reply = drive.ask(&request(
        Target::Path(b"/f".to_vec()),
        Operation::Search(SearchOptions {
            patterns: vec![b"needle".to_vec()],
            answer: Answer::Count,
            ..SearchOptions::default()
        }),
    ));
    assert_eq!(reply.records[1], Record::Matches(3));
}

#[test]
fn a_cursor_fits_after_any_name_and_small_buffers_say_so() {
    // Short names, then long ones deep down: the path at which an answer goes on is longer than those before
    // it.
    let deep = format!("dir/{}", ["d".repeat(200), "e".repeat(200)].join("/"));
    let store = image("a_cursor_fits_after_any_name_and_small_buffers_say_so", |dir| {
        fs::create_dir_all(dir.join(&deep)).unwrap();
        for n in 0..400 {
            fs::write(dir.join(format!("dir/a{n}")), "x").unwrap();
            fs::write(dir.join(&deep).join(format!("{n:03}{}", "n".repeat(n % 250))), "x").unwrap();
        }
    });
    let Some(store) = store else { return };
    let mut drive = WorkerDrive::new(dram(store.path()));
    let list = |target: Target| request(target, Operation::List);
    let asks = [
        (list(Target::Path(format!("/{deep}").into_bytes())), 400),
        (list(Target::Path(b"/dir".to_vec())), 401),
        (list(tree("/dir")), 803),
        (request(tree("/dir"), Operation::Checksum(Digest::Xxh3)), 800),
    ];
    for (ask, expected) in &asks {
        for room in (4096..9000).step_by(104) {
            let mut ask = ask.clone();
            let mut seen = 0;
            loop {
                let token = drive.start(NearDataCommand::Bidirectional, encode_request(&ask), room).unwrap();
                let reply = decode_reply(&drive.finish(token).reply).unwrap().into_owned();
                assert_eq!(reply.failure, None, "{room} bytes");
                let counts = |r: &&Record| matches!(r, Record::Entry(_) | Record::Digest { .. });
                seen += reply.records.iter().filter(counts).count();
                match reply.more {
                    Some(more) => ask.resume = Some(more),
                    None => break,
                }
            }
            assert_eq!(seen, *expected, "{room} bytes");
        }
    }
    // Where not even the cursor fits, the answer is a refusal, never nothing.
    for room in (104..900).step_by(8) {
        let Ok(token) = drive.start(NearDataCommand::Bidirectional, encode_request(&asks[0].0), room) else {
            continue;
        };
        let reply = decode_reply(&drive.finish(token).reply).unwrap().into_owned();
        let refused = matches!(reply.failure, Some(Failure::InvalidRequest(_)));
        assert!(refused || reply.more.is_some(), "{room} bytes: {reply:?}");
    }
}

/// The name and the nice value of a thread of this process (proc_pid_stat(5)).
fn niceness(thread: &Path) -> Option<(String, i32)> {
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    let (head, rest) = stat.rsplit_once(')')?;
    Some((head.split_once('(')?.1.to_owned(), rest.split_whitespace().nth(16)?.parse().ok()?))
}

fn nice_of(name: &str) -> Option<i32> {
    let mut all = fs::read_dir("/proc/self/task").unwrap().flatten();
    all.find_map(|task| niceness(&task.path()).filter(|(is, _)| is == name)).map(|(_, nice)| nice)
}

/// Where hosts wait for a core as well, they have it first.
#[test]
fn threads_behind_hosts_are_of_a_low_priority() {
    let (clock, own) = (TscClock::new(), niceness(Path::new("/proc/thread-self")).unwrap().1);
    let begun = clock.now();
    let of = |threads: Workers, expected: i32| {
        // It says so itself once it runs.
        while nice_of("near-data0") != Some(expected) {
            assert!(clock.now().since(begun) < 60_000_000_000, "{:?}, not {expected}", nice_of("near-data0"));
            std::thread::yield_now();
        }
        drop(threads);
    };
    of(Workers::start(1, clock).unwrap().unwrap(), own);
    of(Workers::behind_hosts(1, clock).unwrap().unwrap(), (own + 10).min(19));
}
