//! Commands of a host whose memory the drive has to ask for, by messages.
//!
//! A question may be answered late or never, so nothing of the drive's waits for it but the command itself:
//! its lists are fetched and its data pointer is walked; data from the host come into a piece of the drive's
//! own memory ([`Bounce`]) *before* the command is executed, which takes a store's locks; then it is executed
//! as any other, with that piece as its data; what it gives goes from there to the host *after* the store has
//! ended, and only then is it answered. Queues whose memory is such are fetched and written by the same
//! questions. A command whose host does not answer in time, or wrongly, ends with Data Transfer Error; a
//! queue ends its controller (CSTS.CFS).

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use nearside_clock::Nanos;
use nearside_dma::{Memory, Span};
use nearside_spec::data::{SglDescriptor, SglType};
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::{Operation, Store};
use slab::Slab;

use super::{BATCH, Reactor, Step};
use crate::bounce::{Bounce, Room};
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::io::Request;
use crate::pointer::{self, Addresses, Elsewhere, Layout, Pointer};
use crate::queue::CompletionSlot;
use crate::shared::Message;

/// How long a host may take to give a command's lists, its data, or to take them.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Commands above which no new ones are taken.
const MOST: usize = 128;
/// Questions of one command that are out at a time.
const WINDOW: usize = 16;
/// Lists of one command that are asked for.
const LISTS: usize = 16;

const UNANSWERED: Fault = Fault::transient(Status::DATA_TRANSFER_ERROR);

/// A command that was taken, and is executed with its data elsewhere.
pub(crate) enum Task {
    Io { place: usize, nsid: u32, request: Request },
    Admin(SubmissionEntry),
}

impl Task {
    fn pointer(&self) -> Result<Pointer, Fault> {
        match self {
            Task::Io { request, .. } => request.pointer().ok_or(UNANSWERED),
            Task::Admin(entry) => Pointer::of(entry),
        }
    }

    fn nsid(&self) -> u32 {
        match self {
            Task::Io { nsid, .. } => *nsid,
            Task::Admin(entry) => entry.nsid(),
        }
    }

    /// Whether its data begin with what the host has there. What a command may leave as it was has to be
    /// there first, since all of it goes back: only a read changes all.
    fn takes(&self) -> bool {
        !matches!(self, Task::Io { request: Request::Transfer { operation: Operation::Read { .. }, .. }, .. })
    }

    /// Whether they go to the host in the end.
    fn gives(&self) -> bool {
        match self {
            Task::Io { request, .. } => request.gives(),
            // Bits 1:0 of an opcode say which way data go (Base 2.0, figure 88).
            Task::Admin(entry) => entry.opcode() & 2 != 0,
        }
    }
}

/// Data of a command in the host's memory.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Near(Span),
    Far(u64, usize),
}

/// The host's addresses, with the lists that it has given so far.
struct Asking<'a> {
    memory: &'a Memory,
    lists: &'a [(u64, Vec<u8>)],
    /// The list that it has to be asked for next.
    wanted: Cell<Option<(u64, usize)>>,
}

impl Addresses for Asking<'_> {
    type Piece = Piece;

    fn piece(&self, iova: u64, len: usize) -> Option<Piece> {
        let near = self.memory.piece(iova, len).map(Piece::Near);
        // Which way they go is looked at when it is asked for.
        let far =
            || self.memory.remote().holds(iova, len, false) || self.memory.remote().holds(iova, len, true);
        near.or_else(|| far().then_some(Piece::Far(iova, len)))
    }

    fn list(&self, iova: u64, into: &mut [u8]) -> bool {
        if self.memory.list(iova, into) {
            return true;
        }
        match self.lists.iter().find(|(at, bytes)| *at == iova && bytes.len() == into.len()) {
            Some((_, bytes)) => {
                into.copy_from_slice(bytes);
                true
            }
            None => {
                self.wanted.set(Some((iova, into.len())));
                false
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its data pointer is to be walked, now or when a list has come.
    Looking,
    /// There is no room for its data yet.
    Waiting,
    Filling,
    /// It is executed; its slot is there.
    Running,
    Draining,
}

struct Stage {
    task: Task,
    elsewhere: Elsewhere,
    phase: Phase,
    /// `None` while it runs.
    slot: Option<CompletionSlot>,
    lists: Vec<(u64, Vec<u8>)>,
    layout: Layout<Piece>,
    room: Option<Room>,
    /// The piece that comes next, the bytes of it that are done, and where in the room it begins.
    next: (usize, usize, usize),
    /// Questions that are out.
    out: usize,
    until: Nanos,
    /// What the command ended with.
    result: u64,
}

impl Stage {
    /// Whether the host has the next move. (What waits for room waits for others that have less than so
    /// long.)
    fn waits_for_host(&self) -> bool {
        !matches!(self.phase, Phase::Running | Phase::Waiting)
    }
}

/// What a question is about.
#[derive(Clone, Copy)]
enum About {
    List { stage: usize, at: u64 },
    Fill { stage: usize, at: usize },
    Drain { stage: usize },
    Sq(u16),
    Cq(u16),
}

impl About {
    fn stage(&self) -> Option<usize> {
        match *self {
            About::List { stage, .. } | About::Fill { stage, .. } | About::Drain { stage } => Some(stage),
            About::Sq(_) | About::Cq(_) => None,
        }
    }
}

/// A reactor's.
#[derive(Default)]
pub(super) struct Stages {
    all: Slab<Stage>,
    /// Those to look at, and those without room, in order.
    fresh: Vec<usize>,
    waiting: VecDeque<usize>,
    bounce: Option<Bounce>,
    /// What questions are out, each with when it has to be answered.
    questions: HashMap<u64, (About, Nanos)>,
    last: u64,
    /// Until when a reset waits for what the host was asked to write.
    settle_until: Option<Nanos>,
}

impl Stages {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether so many are there that no new commands are taken.
    pub(super) fn are_full(&self) -> bool {
        self.all.len() >= MOST
    }

    /// Those that do not run.
    pub(super) fn waiting(&self) -> usize {
        self.all.iter().filter(|(_, stage)| stage.slot.is_some()).count()
    }

    /// Whether one is of a namespace.
    pub(super) fn are_of(&self, of: usize) -> bool {
        self.all.iter().any(|(_, s)| matches!(s.task, Task::Io { place, .. } if place == of))
    }

    /// Nobody is left to answer to.
    pub(super) fn forget(&mut self) {
        for stage in self.all.drain() {
            stage.slot.into_iter().for_each(CompletionSlot::forget);
        }
        (self.fresh, self.waiting) = (Vec::new(), VecDeque::new());
        self.questions.clear();
    }

    fn token(&mut self, about: About, until: Nanos) -> u64 {
        self.last += 1;
        self.questions.insert(self.last, (about, until));
        self.last
    }
}

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    fn memory(&self) -> &Memory {
        &self.shared.function.memory
    }

    /// A command was not executed: it fails, or the host is asked for its data first.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        nsid: u32,
        request: &Request,
        fault: &Fault,
        now: Nanos,
    ) {
        match fault.elsewhere {
            Some(elsewhere) => {
                self.stage(slot, Task::Io { place, nsid, request: *request }, elsewhere, now);
            }
            None => self.fail(slot, nsid, fault, now),
        }
    }

    /// Begins with a command whose data may lie in memory that the host is asked for.
    #[cold]
    pub(crate) fn stage(&mut self, slot: CompletionSlot, task: Task, elsewhere: Elsewhere, now: Nanos) {
        let key = self.stages.all.insert(Stage {
            task,
            elsewhere,
            phase: Phase::Looking,
            slot: Some(slot),
            lists: Vec::new(),
            layout: Layout::default(),
            room: None,
            next: (0, 0, 0),
            out: 0,
            until: now + PATIENCE_NS,
            result: 0,
        });
        self.stages.fresh.push(key);
    }

    /// Takes what the host has answered, and asks for more. Returns what it did.
    #[cold]
    pub(super) fn ask(&mut self, now: Nanos, step: &mut Step) -> usize {
        let answers = match self.memory().remote().has_news(self.id) {
            true => self.memory().remote().take(self.id),
            false => Vec::new(),
        };
        let mut work = answers.len();
        if self.resetting.is_some() {
            // All of them are to nobody; the reset waits for the last of what is written.
            step.at(self.stages.settle_until);
            return work;
        }
        for (token, bytes) in answers {
            if let Some((about, _)) = self.stages.questions.remove(&token) {
                self.answered(token, about, bytes, now);
            }
        }
        self.give_up_late(now);
        loop {
            let (fresh, ended) =
                (std::mem::take(&mut self.stages.fresh), std::mem::take(&mut self.queues.staged));
            if fresh.is_empty() && ended.is_empty() {
                break;
            }
            work += fresh.len() + ended.len();
            fresh.into_iter().for_each(|key| self.look(key, now));
            for (slot, result, status) in ended {
                self.ended(slot, result, status, now);
            }
        }
        if self.queues.remote {
            work += self.ask_for_queues(now);
        }
        let stages = self.stages.all.iter().filter(|(_, s)| s.waits_for_host()).map(|(_, s)| s.until);
        let questions = self.stages.questions.values().map(|(_, until)| *until);
        step.at(stages.chain(questions).min());
        work
    }

    fn answered(&mut self, token: u64, about: About, bytes: Option<Vec<u8>>, now: Nanos) {
        match about {
            About::Sq(id) => {
                let sq = self.queues.sqs.get_mut(usize::from(id)).and_then(Option::as_mut);
                if sq.is_some_and(|sq| !sq.fetched(token, bytes.as_deref())) {
                    self.lose_queue(id);
                }
            }
            About::Cq(id) => self.completions_written(token, id, bytes.is_some(), now),
            About::List { stage, .. } | About::Fill { stage, .. } | About::Drain { stage } => {
                let Some(bytes) = bytes else { return self.end_stage(stage, &UNANSWERED, now) };
                let Some(found) = self.stages.all.get_mut(stage) else { return };
                found.out -= 1;
                match about {
                    About::List { at, .. } => {
                        found.lists.push((at, bytes));
                        self.stages.fresh.push(stage);
                    }
                    About::Fill { at, .. } => {
                        if let Some(bounce) = &self.stages.bounce {
                            bounce.region().write(at, &bytes);
                        }
                        self.go_on(stage, now);
                    }
                    _ => self.go_on(stage, now),
                }
            }
        }
    }

    /// What the host has not answered in time ends.
    fn give_up_late(&mut self, now: Nanos) {
        let late = |until: Nanos| until <= now;
        let stages = self.stages.all.iter();
        let late_stages: Vec<usize> =
            stages.filter(|(_, s)| s.waits_for_host() && late(s.until)).map(|(key, _)| key).collect();
        for key in late_stages {
            self.end_stage(key, &UNANSWERED, now);
        }
        let questions = self.stages.questions.iter();
        let late_queues: Vec<_> = questions
            .filter(|(_, (_, until))| late(*until))
            .map(|(token, (about, _))| (*token, *about))
            .collect();
        for (token, about) in late_queues {
            self.stages.questions.remove(&token);
            self.memory().remote().forget(self.id, |other| other == token);
            if about.stage().is_none() {
                self.answered(token, about, None, now);
            }
        }
    }

    /// Walks a command's data pointer, as far as its lists are there.
    fn look(&mut self, key: usize, now: Nanos) {
        let Some(stage) = self.stages.all.get_mut(key) else { return };
        let Elsewhere { len, from_host } = stage.elsewhere;
        let memory = &self.shared.function.memory;
        let asking = Asking { memory, lists: &stage.lists, wanted: Cell::new(None) };
        let walked = stage
            .task
            .pointer()
            .and_then(|pointer| pointer::walk_in(&asking, &pointer, len, from_host, &mut stage.layout));
        let wanted = asking.wanted.get();
        match (walked, wanted) {
            (Ok(()), _) => {
                stage.phase = Phase::Waiting;
                self.stages.waiting.push_back(key);
                self.find_room(now);
            }
            (Err(fault), Some((at, len))) if stage.lists.len() < LISTS => {
                stage.out += 1;
                let token = self.stages.token(About::List { stage: key, at }, now + PATIENCE_NS);
                if !self.memory().remote().read(self.id, token, at, len) {
                    self.stages.questions.remove(&token);
                    self.end_stage(key, &fault, now);
                }
            }
            (Err(fault), _) => self.end_stage(key, &fault, now),
        }
    }

    /// Gives room to those who wait for it, in order.
    fn find_room(&mut self, now: Nanos) {
        while let Some(&key) = self.stages.waiting.front() {
            let Some(len) = self.stages.all.get(key).map(|stage| stage.elsewhere.len) else {
                self.stages.waiting.pop_front();
                continue;
            };
            if self.stages.bounce.is_none() {
                let most = self.shared.config.max_transfer() as usize;
                match Bounce::new(self.memory(), self.id, most) {
                    Ok(bounce) => self.stages.bounce = Some(bounce),
                    Err(_) => return self.end_stage(key, &Fault::transient(Status::INTERNAL_ERROR), now),
                }
            }
            let Some(bounce) = &mut self.stages.bounce else { return };
            if !bounce.has(len) {
                self.end_stage(key, &Fault::transient(Status::INTERNAL_ERROR), now);
                continue;
            }
            let Some(room) = bounce.take(len) else { return };
            self.stages.waiting.pop_front();
            let Some(stage) = self.stages.all.get_mut(key) else { continue };
            stage.next = (0, 0, room.at);
            stage.room = Some(room);
            stage.until = now + PATIENCE_NS;
            stage.phase = Phase::Filling;
            if stage.task.takes() {
                self.go_on(key, now);
            } else {
                self.execute_staged(key, now);
            }
        }
    }

    /// Moves more of a command's data, or goes on with the command where all have been.
    fn go_on(&mut self, key: usize, now: Nanos) {
        loop {
            let Some(stage) = self.stages.all.get_mut(key) else { return };
            let Some(bounce) = &self.stages.bounce else { return };
            let filling = stage.phase == Phase::Filling;
            let (index, done, mut at) = stage.next;
            if done == 0 && !filling {
                // Bit buckets take theirs.
                at += stage.layout.buckets.iter().filter(|(i, _)| *i == index).map(|(_, n)| n).sum::<usize>();
            }
            let Some(&piece) = stage.layout.spans.get(index) else { break };
            match piece {
                Piece::Near(span) => {
                    let mut bytes = vec![0; span.len()];
                    let memory = &self.shared.function.memory;
                    if filling {
                        memory.read(span, &mut bytes);
                        bounce.region().write(at, &bytes);
                    } else {
                        bounce.region().read(at, &mut bytes);
                        memory.write(span, &bytes);
                    }
                    stage.next = (index + 1, 0, at + span.len());
                }
                Piece::Far(iova, len) => {
                    if stage.out >= WINDOW {
                        return;
                    }
                    let n = (len - done).min(self.shared.function.memory.remote().most()).max(1);
                    stage.out += 1;
                    let end = done + n;
                    stage.next = if end < len { (index, end, at + n) } else { (index + 1, 0, at + n) };
                    if !self.ask_for(key, iova + done as u64, at, n, filling, now) {
                        return self.end_stage(key, &UNANSWERED, now);
                    }
                }
            }
        }
        match self.stages.all.get(key) {
            Some(stage) if stage.out > 0 => {}
            Some(Stage { phase: Phase::Filling, .. }) => self.execute_staged(key, now),
            Some(stage) => {
                let result = stage.result;
                if let Some(slot) = self.remove_stage(key, now) {
                    self.conclude(slot, result, Status::SUCCESS, now);
                }
            }
            None => {}
        }
    }

    /// One question for a command's data, which lie at `at` in the drive's memory; whether it can be asked.
    fn ask_for(&mut self, stage: usize, iova: u64, at: usize, len: usize, fills: bool, now: Nanos) -> bool {
        let about = if fills { About::Fill { stage, at } } else { About::Drain { stage } };
        let token = self.stages.token(about, now + PATIENCE_NS);
        let remote = self.shared.function.memory.remote();
        if fills {
            return remote.read(self.id, token, iova, len);
        }
        let mut bytes = vec![0; len];
        if let Some(bounce) = &self.stages.bounce {
            bounce.region().read(at, &mut bytes);
        }
        remote.write(self.id, token, iova, bytes)
    }

    /// Executes a command with its data in the drive's memory.
    fn execute_staged(&mut self, key: usize, now: Nanos) {
        let Some(stage) = self.stages.all.get_mut(key) else { return };
        let (Some(bounce), Some(room)) = (&self.stages.bounce, &stage.room) else { return };
        let len = stage.elsewhere.len as u32;
        let descriptor = SglDescriptor::new(SglType::DataBlock, bounce.iova(room), len);
        let Some(mut slot) = stage.slot.take() else { return };
        stage.phase = Phase::Running;
        slot.stage = key as u16 + 1;
        match &stage.task {
            Task::Io { place, nsid, request } => {
                let (place, nsid) = (*place, *nsid);
                let request = request.with_pointer(Pointer::Sgl(descriptor));
                if let Err((slot, fault)) = self.execute(slot, place, &request, (now, now)) {
                    self.fail(slot, nsid, &fault, now);
                }
            }
            Task::Admin(entry) => {
                let mut entry = *entry;
                entry.set_sgl1(&descriptor);
                match self.admin.take() {
                    Some(mut admin) => {
                        admin.execute(self, slot, &entry, now);
                        self.admin = Some(admin);
                    }
                    None => self.fail(slot, entry.nsid(), &UNANSWERED, now),
                }
            }
        }
    }

    /// A command has ended that was executed so: what it gives goes to the host, then it is answered.
    fn ended(&mut self, mut slot: CompletionSlot, result: u64, status: Status, now: Nanos) {
        let key = usize::from(slot.stage) - 1;
        slot.stage = 0;
        let Some(stage) = self.stages.all.get_mut(key) else {
            return self.conclude(slot, result, status, now);
        };
        if status.is_success() && stage.task.gives() {
            stage.slot = Some(slot);
            stage.phase = Phase::Draining;
            stage.result = result;
            stage.until = now + PATIENCE_NS;
            stage.next = (0, 0, stage.room.as_ref().map_or(0, |room| room.at));
            return self.go_on(key, now);
        }
        self.remove_stage(key, now);
        self.conclude(slot, result, status, now);
    }

    /// A command that does not run fails.
    fn end_stage(&mut self, key: usize, fault: &Fault, now: Nanos) {
        let Some(nsid) = self.stages.all.get(key).map(|stage| stage.task.nsid()) else { return };
        if let Some(slot) = self.remove_stage(key, now) {
            self.fail(slot, nsid, fault, now);
        }
    }

    /// Lets go of all that a command has.
    fn remove_stage(&mut self, key: usize, now: Nanos) -> Option<CompletionSlot> {
        let mut stage = self.stages.all.try_remove(key)?;
        let Stages { questions, waiting, fresh, bounce, .. } = &mut self.stages;
        if stage.out > 0 {
            let is_its = |token| questions.get(&token).is_some_and(|(about, _)| about.stage() == Some(key));
            self.shared.function.memory.remote().forget(self.id, is_its);
            questions.retain(|_, (about, _)| about.stage() != Some(key));
        }
        waiting.retain(|other| *other != key);
        fresh.retain(|other| *other != key);
        if let (Some(bounce), Some(room)) = (bounce, stage.room.take()) {
            bounce.give_back(room);
            self.find_room(now);
        }
        stage.slot
    }

    /// A namespace goes, or becomes shorter: what `which` names by its place, and is not executed yet, is
    /// refused.
    pub(super) fn unstage(
        &mut self,
        nsid: u32,
        fault: &Fault,
        now: Nanos,
        which: impl Fn(usize, &Request) -> bool,
    ) {
        let is_its = |stage: &Stage| {
            stage.slot.is_some()
                && matches!(&stage.task, Task::Io { place, request, .. } if which(*place, request))
        };
        let all = self.stages.all.iter();
        let gone: Vec<usize> = all.filter(|(_, stage)| is_its(stage)).map(|(key, _)| key).collect();
        for key in gone {
            if let Some(slot) = self.remove_stage(key, now) {
                self.fail(slot, nsid, fault, now);
            }
        }
    }

    /// All queues go. What the host was asked to write is waited for, a while: it is not to find its memory
    /// written once the controller says that it has stopped.
    pub(super) fn reset_stages(&mut self, now: Nanos) {
        self.stages.settle_until = Some(now + PATIENCE_NS);
        for (_, stage) in &mut self.stages.all {
            stage.slot.take().into_iter().for_each(CompletionSlot::forget);
        }
    }

    /// Whether a reset need not wait for the host any more. Then all is as before the first command.
    pub(super) fn stages_have_settled(&mut self, now: Nanos) -> bool {
        let remote = self.shared.function.memory.remote();
        let late = self.stages.settle_until.is_none_or(|until| until <= now);
        if remote.settle(self.id) > 0 && !late {
            return false;
        }
        remote.forget(self.id, |_| true);
        for (_, stage) in &mut self.stages.all {
            if let (Some(bounce), Some(room)) = (&mut self.stages.bounce, stage.room.take()) {
                bounce.give_back(room);
            }
        }
        self.stages.forget();
        self.stages.settle_until = None;
        true
    }

    /// Fetches what waits in queues, and writes completions.
    fn ask_for_queues(&mut self, now: Nanos) -> usize {
        let mut asked = 0;
        for id in 0..self.queues.sqs.len() {
            let wants =
                self.queues.sqs.get(id).and_then(Option::as_ref).and_then(|sq| sq.wants(BATCH as u32));
            if let Some((iova, len)) = wants {
                asked += 1;
                let token = self.stages.token(About::Sq(id as u16), now + PATIENCE_NS);
                let taken = self.memory().remote().read(self.id, token, iova, len);
                if let Some(Some(sq)) = self.queues.sqs.get_mut(id) {
                    sq.is_asked_for(taken.then_some(token));
                }
                self.queue_is_asked_for(id as u16, token, taken);
            }
            let wants = self.queues.cqs.get(id).and_then(Option::as_ref).and_then(|cq| cq.wants());
            if let Some((iova, bytes)) = wants {
                asked += 1;
                let token = self.stages.token(About::Cq(id as u16), now + PATIENCE_NS);
                let taken = self.memory().remote().write(self.id, token, iova, bytes);
                if let Some(Some(cq)) = self.queues.cqs.get_mut(id) {
                    cq.is_asked_for(taken.then_some(token));
                }
                self.queue_is_asked_for(id as u16, token, taken);
            }
        }
        asked
    }

    /// The host was asked for a queue's memory, or could not be.
    fn queue_is_asked_for(&mut self, id: u16, token: u64, taken: bool) {
        if !taken {
            self.stages.questions.remove(&token);
            self.lose_queue(id);
        }
    }

    /// Completions are where the host looks for them, or about to be, or nowhere.
    fn completions_written(&mut self, token: u64, id: u16, done: bool, now: Nanos) {
        let Some(Some(cq)) = self.queues.cqs.get_mut(usize::from(id)) else { return };
        match cq.written(token, done, now) {
            Ok(Some((iova, bytes))) => {
                let token = self.stages.token(About::Cq(id), now + PATIENCE_NS);
                let taken = self.shared.function.memory.remote().write(self.id, token, iova, bytes);
                cq.is_asked_again(taken.then_some(token));
                self.queue_is_asked_for(id, token, taken);
            }
            Ok(None) if cq.unsignalled > 0 && cq.vector.is_some() => self.queues.dirty |= 1 << id,
            Ok(None) => {}
            Err(()) => self.lose_queue(id),
        }
    }

    /// A queue cannot be reached that its host said is there.
    fn lose_queue(&mut self, id: u16) {
        let host = &self.shared.config.host.nqn;
        tracing::warn!(host, queue = id, "a host does not let its queue be reached: the controller stops");
        self.tell(0, Message::Fatal);
    }
}
