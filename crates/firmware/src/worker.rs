//! The near-data commands of one reactor. A command passes: [`FsrWorker::start`] (decodes the request,
//! refuses what is not one) -> a task of the executor -> [`Retriever::run`] -> the reply's bytes -> the
//! reactor, which copies them to the host.
//!
//! Every command leads to the same task. The bidirectional command and DAC'23's Get Features are one command
//! each; `execute` and `result` meet under their tag in either order; Set Features keeps its reply for Get
//! Features to fetch.

use std::collections::BTreeSet;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_device::firmware::{Job, NearDataCommand, Outcome, Progress, Seat, Turn, Worker};
use nearside_device::throttle::Account;
use nearside_device::{Host, Identity, Namespace};
use nearside_fsr::{Retriever, WireSink};
use nearside_near_data::wire::{REPLY_HEADER, decode_request};
use nearside_near_data::{Failure, MAX_BUFFER, Operation, Request};
use nearside_spec::Status;
use nearside_store::{Store, Token};

use crate::compute::{Answer, Ended, ProgramWork};
use crate::executor::{Executor, Finished, Payer};
use crate::fsr::Fsr;
use crate::identity;
use crate::lanes::LaneHandle;
use crate::mailbox::Mailbox;
use crate::tags::{self, Claim, HostTags, Kept, Owner};

/// Longest that a `result` waits.
pub(crate) const MAX_WAIT_MS: u32 = 5_000;

/// For whom a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// A command of this reactor.
    Command(Token),
    /// Whoever asks for its tag by `result`.
    Tag,
    /// Whoever asks for its tag by Get Features.
    Feature,
    /// A command about programs.
    Program(Token),
}

struct Running {
    key: u64,
    whose: For,
    /// Where there are several lanes: which.
    lane: usize,
    /// Its number.
    operation: u16,
    begun: Nanos,
}

/// A `result` whose task runs or whose `execute` has not come.
struct Waiting {
    token: Token,
    queue: u16,
    tag: u64,
    room: usize,
    until: Nanos,
    /// Its task runs.
    runs: bool,
}

/// What a task does, and who pays for it.
pub(crate) struct Work {
    what: What,
    payer: Payer,
}

#[allow(clippy::large_enum_variant, reason = "nearly all work is of the larger kind")]
enum What {
    Files(FileWork),
    Program(ProgramWork),
}

struct FileWork {
    retriever: Arc<Retriever>,
    request: Request,
    identity: Identity,
    room: usize,
}

impl Work {
    pub(crate) fn spawn(self, key: u64, executor: &mut Executor<Vec<u8>>) {
        match self.what {
            What::Files(files) => files.spawn((key, self.payer), executor),
            What::Program(program) => {
                executor.spawn_for(key, self.payer, |media| async move { program.run(&media).await });
            }
        }
    }
}

impl FileWork {
    fn spawn(mut self, (key, payer): (u64, Payer), executor: &mut Executor<Vec<u8>>) {
        executor.spawn_for(key, payer, |media| async move {
            match identity::apply(self.identity, &mut self.request.credentials) {
                Ok(squashed) => {
                    let mut sink = WireSink::new(self.room, squashed);
                    let answer = self.retriever.run(&media, &self.request, &mut sink).await;
                    sink.finish(answer)
                }
                Err(why) => WireSink::new(self.room, None).refuse(&Failure::DeniedAs(why)),
            }
        });
    }
}

/// Where a reactor's tasks run.
pub(crate) enum Site {
    Here(Executor<Vec<u8>>),
    Elsewhere(Vec<Arc<LaneHandle>>),
}

/// What keeps the firmware: its namespace, of whatever store.
pub(crate) trait Keeps: Send + Sync {
    fn fsr(&self) -> &Fsr;
}

impl<S: Store> Keeps for Namespace<S, Fsr> {
    fn fsr(&self) -> &Fsr {
        self.observer()
    }
}

/// The near-data commands of one reactor.
pub struct FsrWorker {
    namespace: Arc<dyn Keeps>,
    host: Host,
    /// Its name.
    name: Arc<str>,
    /// Those that its controller may have; `None`: all.
    namespaces: Option<BTreeSet<u32>>,
    id: u64,
    mailbox: Arc<Mailbox>,
    site: Site,
    running: Vec<Running>,
    waiting: Vec<Waiting>,
    outcomes: Vec<(Token, Outcome)>,
    finished: Finished<Vec<u8>>,
    /// When to look again whether somebody still asks for what runs under tags.
    claims: Nanos,
    /// What the host's time is taken from.
    account: Arc<Account>,
}

fn done(status: Status, result: u32, reply: Vec<u8>) -> Outcome {
    Outcome { status, result: result.into(), reply }
}

fn replied(reply: Vec<u8>) -> Outcome {
    done(Status::SUCCESS, reply.len() as u32, reply)
}

/// What a task about programs came to.
fn returned(reply: &[u8]) -> Outcome {
    let Ended(status, result) = Ended::decode(reply);
    Outcome { status, result, reply: Vec::new() }
}

/// A request's bytes, checked. What is not a request is refused as a field of the command.
fn checked(bytes: &[u8], room: usize) -> Result<Request, Status> {
    if room < REPLY_HEADER {
        return Err(Status::INVALID_FIELD.dnr());
    }
    decode_request(bytes).map_err(|_| Status::INVALID_FIELD.dnr())
}

impl FsrWorker {
    pub(crate) fn new(
        namespace: Arc<dyn Keeps>,
        seat: &Seat<'_>,
        id: u64,
        mailbox: Arc<Mailbox>,
        site: Site,
    ) -> FsrWorker {
        FsrWorker {
            namespace,
            name: seat.host.nqn.as_str().into(),
            host: seat.host.clone(),
            namespaces: seat.namespaces.cloned(),
            id,
            mailbox,
            site,
            running: Vec::new(),
            waiting: Vec::new(),
            outcomes: Vec::new(),
            finished: Vec::new(),
            claims: Nanos(0),
            account: Arc::default(),
        }
    }

    /// What the drive keeps under this host's tags.
    fn tags<R>(&self, with: impl FnOnce(&mut HostTags) -> R) -> R {
        self.namespace.fsr().tags().with(&self.host, with)
    }

    fn owner(&self, queue: u16) -> Owner {
        Owner { worker: self.id, queue }
    }

    /// Runs a command, or answers it where that takes no task.
    fn run_command(&mut self, key: u64, request: Request, room: usize, token: Token) {
        match self.at_once(&request, room) {
            Some(reply) => self.outcomes.push((token, replied(reply))),
            None => self.run(key, request, room, For::Command(token)),
        }
    }

    /// The reply to what is answered at once.
    fn at_once(&self, request: &Request, room: usize) -> Option<Vec<u8>> {
        let fsr = self.namespace.fsr();
        // A task counts what it takes of a quota.
        let apart = self.host.identity == Identity::Trust && !self.account.counts();
        let retriever = fsr.keeps().filter(|_| apart)?;
        let begun = fsr.now();
        let now = || fsr.now().0;
        let (sink, outcome) = retriever.run_at_once(request, now, || WireSink::new(room, None))?;
        fsr.answered(request.operation.number(), begun);
        Some(sink.finish(outcome))
    }

    fn run(&mut self, key: u64, request: Request, room: usize, whose: For) {
        let retriever = self.namespace.fsr().for_command();
        let operation = request.operation.number();
        let begun = self.namespace.fsr().begins(operation);
        let files = FileWork { retriever, request, identity: self.host.identity, room };
        self.begin(key, What::Files(files), whose, (operation, begun));
    }

    /// Hands a task to where it runs.
    fn begin(&mut self, key: u64, what: What, whose: For, (operation, begun): (u16, Nanos)) {
        let payer = Payer { host: self.name.clone(), account: self.account.clone() };
        let work = Work { what, payer };
        let mut lane = 0;
        match &mut self.site {
            Site::Here(executor) => work.spawn(key, executor),
            Site::Elsewhere(handles) => {
                lane = (0..handles.len()).min_by_key(|&at| handles[at].load()).unwrap_or(0);
                match handles.get(lane) {
                    Some(handle) => handle.start(key, Box::new(work), self.mailbox.clone()),
                    None => self.mailbox.reply(key, None),
                }
            }
        }
        self.running.push(Running { key, whose, lane, operation, begun });
    }

    /// What runs no more.
    fn take(&mut self, at: usize) -> Running {
        let running = self.running.swap_remove(at);
        self.namespace.fsr().ends(running.operation, running.begun);
        running
    }

    /// Ends a task; whether there was one.
    fn stop(&mut self, which: impl Fn(&Running) -> bool) -> bool {
        let Some(at) = self.running.iter().position(which) else { return false };
        let Running { key, lane, .. } = self.take(at);
        match &mut self.site {
            Site::Here(executor) => {
                executor.cancel(key);
            }
            Site::Elsewhere(handles) => {
                if let Some(handle) = handles.get(lane) {
                    handle.cancel(key);
                }
            }
        }
        true
    }

    /// A task has ended; `None`: without a reply.
    fn ended(&mut self, key: u64, reply: Option<Vec<u8>>) {
        let Some(at) = self.running.iter().position(|r| r.key == key) else { return };
        match self.take(at).whose {
            For::Command(token) => {
                let aborted = || done(Status::ABORT_REQUESTED, 0, Vec::new());
                self.outcomes.push((token, reply.map_or_else(aborted, replied)));
            }
            For::Program(token) => {
                let aborted = || done(Status::ABORT_REQUESTED, 0, Vec::new());
                self.outcomes.push((token, reply.map_or_else(aborted, |reply| returned(&reply))));
            }
            For::Tag => self.tags(|tags| tags.ended(key, reply)),
            For::Feature => self.tags(|tags| tags.kept_ended(key, reply)),
        }
    }

    /// A `result`: its reply, or a place among those that wait. `None`: answered later.
    fn result(&mut self, mut waiting: Waiting, again: bool, now: Nanos) -> Option<Outcome> {
        let Waiting { token, tag, room, until, .. } = waiting;
        let (owner, key) = (self.owner(waiting.queue), self.namespace.fsr().next_key());
        let ended = match self.tags(|tags| tags.claim((tag, room), (owner, token), key, again, now)) {
            Claim::Reply(reply) => replied(reply),
            Claim::Failed(status) => done(status, 0, Vec::new()),
            Claim::Start(request) => {
                self.run(key, *request, room, For::Tag);
                self.claims = self.claims.min(now);
                waiting.runs = true;
                if now < until {
                    self.waiting.push(waiting);
                    return None;
                }
                done(Status::SUCCESS, 0, Vec::new())
            }
            Claim::Wait(runs) if now < until => {
                waiting.runs = runs;
                self.waiting.push(waiting);
                return None;
            }
            // That it runs: success without bytes.
            Claim::Wait(true) => done(Status::SUCCESS, 0, Vec::new()),
            Claim::Wait(false) => done(Status::COMMAND_SEQUENCE_ERROR, 0, Vec::new()),
        };
        self.tags(|tags| tags.stop_waiting(tag, self.id, token));
        Some(ended)
    }

    /// Looks again at the `result`s that wait: at all, or at those whose time is over.
    fn look(&mut self, all: bool, now: Nanos) {
        let due: Vec<Waiting> = self.waiting.extract_if(.., |w| all || w.until <= now).collect();
        for waiting in due {
            let token = waiting.token;
            if let Some(outcome) = self.result(waiting, true, now) {
                self.outcomes.push((token, outcome));
            }
        }
    }

    /// Ends what runs under tags that nobody asks for.
    fn give_up(&mut self, now: Nanos) {
        let of_tags = self.running.iter().filter(|r| r.whose == For::Tag).map(|r| r.key);
        let keys: Vec<u64> = of_tags.collect();
        let due = self.tags(|tags| keys.iter().filter_map(|&key| tags.give_up(key, now)).min());
        self.claims = due.unwrap_or(now + tags::UNCLAIMED_NS);
    }
}

/// What ran here under tags has failed, and what came by this reactor is kept no longer.
impl Drop for FsrWorker {
    fn drop(&mut self) {
        while let Some(Running { key, .. }) = self.running.last() {
            let key = *key;
            self.stop(|r| r.key == key);
        }
        self.tags(|tags| tags.part(self.id));
        if let Site::Elsewhere(handles) = &mut self.site {
            LaneHandle::release(std::mem::take(handles));
        }
    }
}

impl Worker for FsrWorker {
    fn start(&mut self, job: Job, now: Nanos) -> Result<(), Status> {
        let Job { token, queue, command, request, room, account } = job;
        self.account = account;
        let key = self.namespace.fsr().next_key();
        let outcome = match command {
            NearDataCommand::Bidirectional => {
                let request = checked(&request, room)?;
                self.run_command(key, request, room, token);
                return Ok(());
            }
            NearDataCommand::Feature { .. } if request.starts_with(b"NDRQ") => {
                let request = checked(&request, room)?;
                self.run_command(key, request, room, token);
                return Ok(());
            }
            NearDataCommand::Feature { tag, offset } => {
                match self.tags(|tags| tags.kept(tag, offset, room)) {
                    Kept::Part(part, len) => done(Status::SUCCESS, len, part),
                    Kept::Running => done(Status::SUCCESS, 0, Vec::new()),
                    Kept::Unknown => return Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
                }
            }
            NearDataCommand::SetFeature { tag } => {
                let request = checked(&request, MAX_BUFFER)?;
                let owner = self.owner(queue);
                self.tags(|tags| tags.keep(tag, key, owner, now))?;
                self.run(key, request, MAX_BUFFER, For::Feature);
                done(Status::SUCCESS, 0, Vec::new())
            }
            NearDataCommand::Execute { tag } => {
                let parsed = checked(&request, MAX_BUFFER);
                let status = parsed.as_ref().err().copied().unwrap_or(Status::SUCCESS);
                let owner = self.owner(queue);
                self.tags(|tags| tags.execute(tag, (parsed, request.len()), owner, now))?;
                // A failed `execute` fails its `result` as well.
                done(status, 0, Vec::new())
            }
            NearDataCommand::Result { tag, wait_ms } => {
                let until = now + u64::from(wait_ms.min(MAX_WAIT_MS)) * 1_000_000;
                if room < REPLY_HEADER {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                let waiting = Waiting { token, queue, tag, room, until, runs: false };
                match self.result(waiting, false, now) {
                    Some(outcome) => outcome,
                    None => return Ok(()),
                }
            }
            NearDataCommand::Compute(command) => {
                let compute = self.namespace.fsr().compute().ok_or(Status::INVALID_OPCODE.dnr())?;
                let has = |nsid: u32| self.namespaces.as_ref().is_none_or(|these| these.contains(&nsid));
                match compute.command(command, &request, &has)? {
                    Answer::Now(result) => Outcome { status: Status::SUCCESS, result, reply: Vec::new() },
                    Answer::Later(work) => {
                        let operation = Operation::Program(Box::default()).number();
                        let begun = self.namespace.fsr().begins(operation);
                        self.begin(key, What::Program(work), For::Program(token), (operation, begun));
                        return Ok(());
                    }
                }
            }
            NearDataCommand::Cancel { tag } => {
                let known = self.tags(|tags| tags.cancel(tag));
                done(Status::SUCCESS, u32::from(known), Vec::new())
            }
        };
        self.outcomes.push((token, outcome));
        Ok(())
    }

    fn step(&mut self, now: Nanos, turn: &mut Turn, answer: &mut impl FnMut(Token, Outcome)) -> Progress {
        // First, so that what is cancelled here runs no more.
        let mut news = self.read_mail();
        let mut progress = Progress { worked: news, ..Progress::default() };
        if let Site::Here(executor) = &mut self.site {
            let mut finished = std::mem::take(&mut self.finished);
            let ran = executor.step(now, turn, &mut finished);
            progress = Progress { worked: ran.worked || news, ..ran };
            for (key, reply) in finished.drain(..) {
                self.ended(key, Some(reply));
            }
            self.finished = finished;
            // A reply that has just come under a tag is answered in this step.
            news |= self.read_mail();
        }
        if !self.waiting.is_empty() {
            self.look(news, now);
            progress.at(self.waiting.iter().map(|w| w.until).min());
        }
        if self.running.iter().any(|r| r.whose == For::Tag) {
            if self.claims <= now {
                self.give_up(now);
            }
            progress.at(Some(self.claims));
        }
        for (token, outcome) in self.outcomes.drain(..) {
            progress.worked = true;
            answer(token, outcome);
        }
        progress
    }

    fn cancel(&mut self, token: Token) {
        if self.stop(|r| [For::Command(token), For::Program(token)].contains(&r.whose)) {
        } else if let Some(at) = self.waiting.iter().position(|w| w.token == token) {
            let Waiting { tag, runs, .. } = self.waiting.swap_remove(at);
            // Its task goes along, unless another asks for it.
            self.tags(|tags| {
                if !tags.stop_waiting(tag, self.id, token) && runs {
                    tags.cancel(tag);
                }
            });
        } else {
            // Its outcome is on its way.
            return;
        }
        self.outcomes.push((token, done(Status::ABORT_REQUESTED, 0, Vec::new())));
    }

    fn leave(&mut self, queue: Option<u16>) {
        self.tags(|tags| tags.leave(self.id, queue));
    }

    fn in_flight(&self) -> usize {
        match &self.site {
            Site::Here(executor) => executor.in_flight(),
            Site::Elsewhere(_) => 0,
        }
    }

    fn is_quiet(&self) -> bool {
        !self.mailbox.is_full()
    }
}

impl FsrWorker {
    /// What has come from elsewhere; whether something has.
    fn read_mail(&mut self) -> bool {
        if !self.mailbox.is_full() {
            return false;
        }
        let mail = self.mailbox.take();
        for key in mail.cancelled {
            self.stop(|r| r.key == key);
        }
        for (key, reply) in mail.replies {
            self.ended(key, reply);
        }
        true
    }
}
