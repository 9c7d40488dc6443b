//! Requests of the kernel as commands of the drive: many in flight by one thread, none waited for.
//!
//! A request passes so: whoever receives it gives it to [`Engine::begin`] with the buffer that its bytes lie
//! in, or are to lie in. What needs no drive is answered at once. A read or write of whole blocks, a flush,
//! whole blocks to be zeroed become a command on the thread's own queue, with that very buffer; everything
//! else goes to the [`Helper`]. [`Engine::next`] gives what is done, in any order.
//!
//! A write shares the host's lock of writes until it is done. It never waits for it: where somebody has it
//! alone, the helper waits.

use std::collections::VecDeque;
use std::io;
use std::sync::RwLockReadGuard;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::EventFd;
use nearside_driver::policy::Path;
use nearside_driver::{Command, DmaBuffer, Finished, Policy, RejectReason};

use crate::files::Files;
use crate::helper::{Chore, Helper};
use crate::host::{HostError, Queue};
use crate::wire::{Body, Operation, Request};

/// The reply to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// None: it asks for nothing.
    Nothing,
    Error(i32),
    Body(Body),
    /// So many bytes of its buffer.
    Data(usize),
}

/// One that is done.
pub(crate) struct Answered {
    /// The caller's number of it.
    pub(crate) slot: usize,
    pub(crate) answer: Answer,
    /// Its buffer; `None` where a drive that has gone may still write to it.
    pub(crate) buffer: Option<DmaBuffer>,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize, fua: bool },
    Flush,
    Zero { at: u64, end: u64, free: bool },
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Read { .. } => "read",
            Work::Write { .. } => "write",
            Work::Flush => "flush",
            Work::Zero { free: true, .. } => "deallocate",
            Work::Zero { free: false, .. } => "write zeroes",
        }
    }

    /// What of the file it is about.
    fn range(self) -> (u64, u64) {
        match self {
            Work::Read { offset, len } | Work::Write { offset, len, .. } => (offset, len as u64),
            Work::Flush => (0, 0),
            Work::Zero { at, end, .. } => (at, end - at),
        }
    }
}

struct Job<'h> {
    work: Work,
    /// Where it is not in a command.
    buffer: Option<DmaBuffer>,
    /// Other writes of whole blocks may be under way, none that reads blocks first.
    _shared: Option<RwLockReadGuard<'h, ()>>,
}

/// One thread's requests.
pub(crate) struct Engine<'h> {
    files: &'h Files,
    queue: Queue,
    policy: Policy,
    helper: Helper,
    /// By slot.
    jobs: Vec<Option<Job<'h>>>,
    /// By the index of a command's handle: whose it is.
    owners: Vec<usize>,
    /// Slots whose commands found no place.
    backlog: VecDeque<usize>,
    done: VecDeque<Answered>,
    /// With the helper.
    helped: usize,
    /// While commands are out: until when their completions are looked for without sleeping.
    spin_until: Nanos,
}

/// Of commands that take longer than this in the mean, in nanoseconds, completions are slept for by the
/// hybrid policy: a wake-up costs about as much.
const SPIN_BELOW_NS: u64 = 20_000;
/// The longest that a sleeper goes without looking whether the drive was stopped behind its back.
const LOOK: Duration = Duration::from_millis(50);
/// The same where the queue has no interrupt.
const LOOK_WITHOUT: Duration = Duration::from_micros(50);

impl<'h> Engine<'h> {
    /// For so many requests at a time.
    pub(crate) fn new(
        files: &'h Files,
        queue: Queue,
        policy: Policy,
        slots: usize,
    ) -> io::Result<Engine<'h>> {
        Ok(Engine {
            files,
            helper: Helper::start(files.host.clone())?,
            jobs: (0..slots).map(|_| None).collect(),
            owners: vec![0; queue.depth()],
            queue,
            policy,
            backlog: VecDeque::new(),
            done: VecDeque::new(),
            helped: 0,
            spin_until: Nanos(0),
        })
    }

    /// A buffer for requests with so many bytes.
    pub(crate) fn buffer(&self, len: usize) -> io::Result<DmaBuffer> {
        self.queue.buffer(len).map_err(io::Error::other)
    }

    /// Takes a request; its slot must be free. [`Engine::next`] gives the reply, at once or later.
    pub(crate) fn begin(&mut self, slot: usize, request: &Request<'_>, buffer: Option<DmaBuffer>) {
        let (answer, buffer) = match self.parse(request) {
            Err(0) => (Answer::Nothing, buffer),
            Err(errno) => (Answer::Error(errno), buffer),
            Ok(Wanted::Answer(answer)) => (answer, buffer),
            Ok(Wanted::Work(work)) => match buffer {
                Some(buffer) => return self.start(slot, work, buffer),
                None => (Answer::Error(libc::EIO), None),
            },
        };
        self.done.push_back(Answered { slot, answer, buffer });
    }

    fn parse(&self, request: &Request<'_>) -> Result<Wanted, i32> {
        let Request { header, name, payload, .. } = *request;
        let operation = request.operation()?;
        self.files.admits(&header, operation)?;
        let capacity = self.files.host.capacity();
        let left = |offset| capacity.saturating_sub(offset);
        match operation {
            Operation::Read { offset, size } => {
                // Past the end there is nothing to read.
                let len = u64::from(size).min(left(offset)) as usize;
                Ok(if len == 0 {
                    Wanted::Answer(Answer::Data(0))
                } else {
                    Wanted::Work(Work::Read { offset, len })
                })
            }
            Operation::Write { size, .. } if size as usize != payload => Err(libc::EINVAL),
            Operation::Write { size: 0, .. } => Ok(Wanted::Answer(Answer::Body(Body::written(0)))),
            Operation::Write { offset, size, flags } => match u64::from(size).min(left(offset)) as usize {
                0 => Err(libc::ENOSPC),
                len => {
                    let fua = flags & (libc::O_SYNC | libc::O_DSYNC) as u32 != 0;
                    Ok(Wanted::Work(Work::Write { offset, len, fua }))
                }
            },
            Operation::Fsync => Ok(Wanted::Work(Work::Flush)),
            Operation::Fallocate { offset, len, .. } if len > left(offset) || offset > capacity => {
                Err(libc::ENOSPC)
            }
            Operation::Fallocate { offset, len, mode } => {
                let zero = |free| Wanted::Work(Work::Zero { at: offset, end: offset + len, free });
                match mode as i32 & !libc::FALLOC_FL_KEEP_SIZE {
                    // All of it is allocated, as far as a host can see.
                    0 => Ok(Wanted::Answer(Answer::Body(Body::EMPTY))),
                    _ if len == 0 => Err(libc::EINVAL),
                    libc::FALLOC_FL_PUNCH_HOLE => Ok(zero(true)),
                    libc::FALLOC_FL_ZERO_RANGE => Ok(zero(false)),
                    _ => Err(libc::EOPNOTSUPP),
                }
            }
            _ => self.files.answer(&header, operation, name).map(|body| Wanted::Answer(Answer::Body(body))),
        }
    }

    fn start(&mut self, slot: usize, work: Work, mut buffer: DmaBuffer) {
        let block = u64::from(self.files.host.info().block_size);
        let (offset, len) = work.range();
        let whole = (offset | len).is_multiple_of(block);
        if let Work::Read { len, .. } | Work::Write { len, .. } = work {
            if len > buffer.capacity() {
                let answer = Answer::Error(libc::EINVAL);
                return self.done.push_back(Answered { slot, answer, buffer: Some(buffer) });
            }
            buffer.set_len(len);
        }
        let shared = match work {
            Work::Read { .. } | Work::Flush => Some(None),
            Work::Write { .. } | Work::Zero { .. } => self.files.host.try_share_writes().map(Some),
        };
        match shared.filter(|_| whole) {
            Some(shared) => {
                self.jobs[slot] = Some(Job { work, buffer: Some(buffer), _shared: shared });
                self.submit(slot);
            }
            None => self.help(slot, work, buffer),
        }
    }

    fn help(&mut self, slot: usize, work: Work, buffer: DmaBuffer) {
        let chore = match work {
            Work::Read { offset, len } => Chore::Read { offset, len },
            Work::Write { offset, len, fua } => Chore::Write { offset, len, fua },
            Work::Zero { at, end, free } => Chore::Zero { offset: at, len: end - at, free },
            // Never: a flush needs no help.
            Work::Flush => Chore::Zero { offset: 0, len: 0, free: false },
        };
        match self.helper.give(slot, chore, buffer) {
            Ok(()) => {
                self.jobs[slot] = Some(Job { work, buffer: None, _shared: None });
                self.helped += 1;
            }
            Err(buffer) => {
                let answer = Answer::Error(libc::EIO);
                self.done.push_back(Answered { slot, answer, buffer: Some(buffer) });
            }
        }
    }

    /// Sends the next command of a request.
    fn submit(&mut self, slot: usize) {
        let Some(Job { work, buffer, .. }) = self.jobs.get_mut(slot).and_then(Option::as_mut) else { return };
        if buffer.is_none() {
            let error = HostError::Driver { operation: work.name(), error: "its buffer is lost".into() };
            return self.end(slot, Err(error), None);
        }
        let (command, takes) = command(&self.files.host, *work, buffer.as_mut());
        let bytes = buffer.as_ref().filter(|_| takes).map_or(0, DmaBuffer::len);
        let sent = self.queue.submit(&command, if takes { buffer.take() } else { None });
        match sent {
            Ok(handle) => {
                self.owners[handle.index()] = slot;
                let now = self.queue.clock().now();
                self.spin_until = self.spin_until.max(now + self.spin_ns(&command, bytes));
            }
            Err(rejected) => {
                if takes {
                    *buffer = rejected.buffer;
                }
                if rejected.reason == RejectReason::Full {
                    return self.backlog.push_back(slot);
                }
                let error = rejected.reason.to_string();
                let error = HostError::Driver { operation: work.name(), error };
                self.end(slot, Err(error), None);
            }
        }
    }

    /// How long to look for its completion, in nanoseconds.
    fn spin_ns(&self, command: &Command, bytes: usize) -> u64 {
        match self.policy {
            // A year: the sum with a time has room.
            Policy::Polled => 1 << 55,
            Policy::Interrupt => 0,
            Policy::Hybrid => {
                let expected = self.queue.expectation(command.kind, bytes);
                let slow = expected.latency_ns.is_some_and(|ns| ns > SPIN_BELOW_NS);
                let asleep = slow || expected.plan.path == Path::Asynchronous;
                if asleep { 0 } else { expected.plan.spin_budget_ns }
            }
        }
    }

    /// Looks what has ended.
    pub(crate) fn look(&mut self) {
        if self.queue.outstanding() > 0 {
            self.queue.look();
            while let Some((handle, finished)) = self.queue.take_any() {
                self.finished(self.owners[handle.index()], finished);
            }
            for _ in 0..self.backlog.len() {
                if self.queue.outstanding() == self.queue.depth() {
                    break;
                }
                let Some(slot) = self.backlog.pop_front() else { break };
                self.submit(slot);
            }
        }
        while self.helped > 0
            && let Some((slot, result, buffer)) = self.helper.take()
        {
            self.helped -= 1;
            self.end(slot, result, Some(buffer));
        }
    }

    fn finished(&mut self, slot: usize, finished: Finished) {
        let Some(job) = self.jobs.get_mut(slot).and_then(Option::as_mut) else { return };
        let (operation, (offset, len)) = (job.work.name(), job.work.range());
        job.buffer = finished.buffer.or(job.buffer.take());
        if let Err(failure) = finished.outcome {
            let error = HostError::Command { operation, offset, len, failure };
            return self.end(slot, Err(error), None);
        }
        if let Work::Zero { at, end, free } = job.work {
            let at = at + part(&self.files.host, at, end, free);
            if at < end {
                job.work = Work::Zero { at, end, free };
                return self.submit(slot);
            }
        }
        self.end(slot, Ok(()), None);
    }

    fn end(&mut self, slot: usize, result: Result<(), HostError>, buffer: Option<DmaBuffer>) {
        let Some(job) = self.jobs.get_mut(slot).and_then(Option::take) else { return };
        let answer = match (result, job.work) {
            (Err(error), _) => Answer::Error(self.files.errno(&error)),
            (Ok(()), Work::Read { len, .. }) => Answer::Data(len),
            (Ok(()), Work::Write { len, .. }) => Answer::Body(Body::written(len as u32)),
            (Ok(()), Work::Flush | Work::Zero { .. }) => Answer::Body(Body::EMPTY),
        };
        self.done.push_back(Answered { slot, answer, buffer: buffer.or(job.buffer) });
    }

    /// One that is done.
    pub(crate) fn next(&mut self) -> Option<Answered> {
        self.done.pop_front()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.outstanding() == 0 && self.helped == 0 && self.done.is_empty() && self.backlog.is_empty()
    }

    /// Whether to look again at once rather than to sleep.
    pub(crate) fn spins(&self) -> bool {
        self.queue.outstanding() > 0 && self.queue.clock().now() < self.spin_until
    }

    /// Before a sleep: how long it may be at most (`None`: until an event is raised). `Some(ZERO)`: not at
    /// all.
    pub(crate) fn arm(&mut self) -> Option<Duration> {
        let most = match self.queue.outstanding() {
            0 => return None,
            _ if self.queue.event().is_none() => LOOK_WITHOUT,
            _ => LOOK,
        };
        Some(if self.queue.arm() { most } else { Duration::ZERO })
    }

    /// After it.
    pub(crate) fn disarm(&mut self) {
        self.queue.disarm();
    }

    /// What ends a sleep: raised by the drive, where it can, and by the helper.
    pub(crate) fn events(&self) -> [Option<&EventFd>; 2] {
        [self.queue.event(), Some(self.helper.event())]
    }

    /// Ends the thread's queue, once nothing is under way.
    pub(crate) fn close(self) {
        // Where the drive is gone already, so is the queue.
        let _ = self.queue.close();
    }
}

enum Wanted {
    Answer(Answer),
    Work(Work),
}

/// The next command of a request, and whether it takes the buffer.
fn command(host: &crate::Host, work: Work, buffer: Option<&mut DmaBuffer>) -> (Command, bool) {
    let (nsid, block) = (host.info().nsid, u64::from(host.info().block_size));
    match work {
        Work::Read { offset, len } => {
            (Command::read(nsid, offset / block, (len as u64 / block) as u32), true)
        }
        Work::Write { offset, len, fua } => {
            let write = Command::write(nsid, offset / block, (len as u64 / block) as u32);
            (if fua { write.fua() } else { write }, true)
        }
        Work::Flush => (Command::flush(nsid), false),
        Work::Zero { at, end, free } => {
            let (lba, blocks) = (at / block, (part(host, at, end, free) / block) as u32);
            match buffer {
                Some(list) if free => (Command::deallocate(nsid, &[(lba, blocks)], list), true),
                _ => (Command::write_zeroes(nsid, lba, blocks), false),
            }
        }
    }
}

/// Bytes that one command zeroes of a range of whole blocks.
fn part(host: &crate::Host, at: u64, end: u64, free: bool) -> u64 {
    (end - at).min(host.most_zeroed(free))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use nearside_clock::TscClock;
    use nearside_device::Config;
    use nearside_device::runner::Rest;
    use nearside_driver::{DriverConfig, Threaded};
    use nearside_embedded::Loopback;
    use nearside_random::Rng;
    use nearside_store::Dram;

    use super::*;
    use crate::Host;
    use crate::wire::InHeader;

    const BYTES: u64 = 1 << 20;
    const SLOTS: usize = 16;

    type Drive = Loopback<Dram, (), Threaded>;

    /// A drive, and what serves its file.
    pub(crate) fn files() -> (Drive, Files) {
        let store = Dram::new(BYTES, 512).unwrap();
        let mut drive = Loopback::threaded(store, (), Config::default(), Rest::default()).unwrap();
        let driver = drive.driver(DriverConfig::default(), &TscClock::new()).unwrap();
        let host = Arc::new(Host::serving(driver, Policy::Interrupt, 2, 1).unwrap());
        (drive, Files::new(host, (0, 0), false, UNIX_EPOCH))
    }

    fn header(opcode: u32, node: u64) -> InHeader {
        InHeader { len: 0, opcode, unique: 1, node, uid: 0 }
    }

    /// Waits for one to be done.
    fn one(engine: &mut Engine<'_>) -> Answered {
        loop {
            engine.look();
            if let Some(answered) = engine.next() {
                return answered;
            }
            std::thread::yield_now();
        }
    }

    /// The arguments of a read or write of so many bytes there.
    fn at(offset: u64, size: u32) -> [u8; 40] {
        let mut args = [0; 40];
        args[8..16].copy_from_slice(&offset.to_ne_bytes());
        args[16..20].copy_from_slice(&size.to_ne_bytes());
        args
    }

    #[test]
    fn what_is_written_is_read_wherever_it_begins() {
        let (_drive, files) = files();
        let mut engine =
            Engine::new(&files, files.host.take_served().unwrap(), Policy::Interrupt, 1).unwrap();
        let mut buffer = Some(engine.buffer(64 << 10).unwrap());
        let mut random = Rng(11);
        let mut model = vec![0; BYTES as usize];
        for round in 0..400 {
            let whole = if random.below(2) == 0 { 512 } else { 1 };
            let offset = random.below(BYTES / whole) * whole;
            let len = ((1 + random.below(20_000) / whole) * whole).min(BYTES - offset) as usize;
            let range = offset as usize..offset as usize + len;
            let args = at(offset, len as u32);
            let mut held = buffer.take().unwrap();
            let opcode = if round % 2 == 0 { 16 } else { 15 };
            if opcode == 16 {
                let data = random.bytes(len);
                held.set_len(len);
                held.write(0, &data);
                model[range.clone()].copy_from_slice(&data);
            }
            let payload = if opcode == 16 { len } else { 0 };
            let request = Request { header: header(opcode, 2), args: &args, name: &[], payload };
            engine.begin(0, &request, Some(held));
            let answered = one(&mut engine);
            match answered.answer {
                Answer::Data(n) => {
                    assert_eq!(n, len);
                    let mut bytes = vec![0; n];
                    answered.buffer.as_ref().unwrap().read(0, &mut bytes);
                    assert!(bytes == model[range], "{len} bytes at {offset}");
                }
                Answer::Body(body) => assert_eq!(body.bytes()[..4], (len as u32).to_ne_bytes()),
                other => panic!("{other:?}"),
            }
            buffer = answered.buffer;
        }
        assert!(engine.is_idle());
        engine.close();
    }

    /// Any bytes: each request has one answer, and none ends it.
    #[test]
    fn whatever_is_asked_is_answered() {
        let (_drive, files) = files();
        let queue = files.host.take_served().unwrap();
        let mut engine = Engine::new(&files, queue, Policy::Interrupt, SLOTS).unwrap();
        let mut buffers: Vec<_> = (0..SLOTS).map(|_| Some(engine.buffer(16 << 10).unwrap())).collect();
        let mut free: Vec<usize> = (0..SLOTS).collect();
        let mut random = Rng(5);
        let near = [0, 1, 511, 512, 4096, 16 << 10, BYTES - 1, BYTES, BYTES + 1, u64::MAX - 511, u64::MAX];
        for _ in 0..20_000 {
            let Some(slot) = free.pop() else {
                let answered = one(&mut engine);
                buffers[answered.slot] = Some(answered.buffer.unwrap());
                free.push(answered.slot);
                continue;
            };
            let mut args = random.bytes(40);
            for word in args.chunks_exact_mut(8) {
                if random.below(4) > 0 {
                    word.copy_from_slice(&random.pick(&near).to_ne_bytes());
                }
            }
            args.truncate(random.pick(&[40, 40, 40, 36, 28, 20, 4, 0]));
            let any = random.index(70) as u32;
            let opcode = random.pick(&[1, 3, 4, 14, 15, 15, 16, 16, 20, 28, 43, 43, any]);
            let size = args.get(16..20).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
            let payload = if random.below(2) == 0 { size as usize } else { random.index(1 << 20) };
            let header = header(opcode, random.pick(&[2, 2, 2, 1, 3, 0]));
            let request = Request { header, args: &args, name: b"namespace\0", payload };
            engine.begin(slot, &request, buffers[slot].take());
        }
        while free.len() < SLOTS {
            free.push(one(&mut engine).slot);
        }
        assert!(engine.is_idle());
        engine.close();
    }
}
