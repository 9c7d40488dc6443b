//! Near-data commands: the firmware that understands files.
//!
//! [`Fsr`] is a drive's [`Firmware`]: it holds the [`Retriever`] that all reactors share, tells its monitor of every change of the
//! namespace, and gives each reactor an [`FsrWorker`]. A command passes: [`FsrWorker::start`] (decodes the request, refuses what is not one)
//! -> a task of the executor -> [`Retriever::run`] -> the reply's bytes -> the reactor, which copies them to the host.
//!
//! Every door leads to the same task. The bidirectional command and DAC'23's Get Features are one command each; `execute` and
//! `result` meet under their tag in either order; Set Features keeps its reply for Get Features to fetch.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nearside_clock::{Clock, Nanos};
use nearside_dma::Memory;
use nearside_fsr::Retriever;
pub use nearside_fsr::{Breakdown, Config, Part, Trace};
use nearside_spec::Status;
use nearside_spec::near_data::wire::{REPLY_HEADER, decode_request};
use nearside_spec::near_data::{MAX_BUFFER, MAX_GROUPS, MAX_PATH, MAX_REQUEST, ReplyStatus};
use nearside_store::{Store, Token};

use crate::executor::{Executor, Finished};
use crate::firmware::{Door, Firmware, Job, Observer, Outcome, Progress, Worker};
use crate::{Host, Namespace};

mod identity;
mod tags;
mod translate;

use tags::{HostTags, Kept, Meeting, Tags};

/// Longest that a `result` waits.
const MAX_WAIT_MS: u32 = 5_000;
/// How often a `result` looks whether its `execute` has come by another reactor.
const LOOK_NS: u64 = 200_000;

/// The firmware: a retriever for one namespace.
pub struct Fsr {
    retriever: Arc<Retriever>,
    clock: Arc<dyn Clock>,
    tags: Mutex<Tags>,
    /// Counts cancellations of what another reactor runs.
    cancelled: AtomicU64,
}

impl Fsr {
    /// With the drive's clock, by which slices end.
    pub fn new(clock: Arc<dyn Clock>, config: Config) -> Fsr {
        Fsr {
            retriever: Arc::new(Retriever::new(config)),
            clock,
            tags: Mutex::default(),
            cancelled: AtomicU64::new(0),
        }
    }

    /// As [`Fsr::new`]; `trace` is told where the time of every near-data command goes.
    pub fn traced(clock: Arc<dyn Clock>, config: Config, trace: Arc<Trace>) -> Fsr {
        Fsr {
            retriever: Arc::new(Retriever::traced(config, trace)),
            clock,
            tags: Mutex::default(),
            cancelled: AtomicU64::new(0),
        }
    }

    /// What the drive knows of its files; its monitor's counters.
    pub fn retriever(&self) -> &Retriever {
        &self.retriever
    }

    fn tags(&self) -> std::sync::MutexGuard<'_, Tags> {
        self.tags.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Observer for Fsr {
    #[inline]
    fn begin(&self, offset: u64, len: u64) {
        self.retriever.monitor().begin(offset, len);
    }

    #[inline]
    fn end(&self, offset: u64, len: u64, _durable: bool) {
        self.retriever.monitor().end(offset, len);
    }
}

impl<S: Store> Firmware<S> for Fsr {
    type Worker = FsrWorker<S>;

    fn worker(
        namespace: &Arc<Namespace<S, Fsr>>,
        memory: &Arc<Memory>,
        host: &Host,
    ) -> io::Result<FsrWorker<S>> {
        let clock = namespace.observer().clock.clone();
        let executor = Executor::new(namespace.access(memory.clone())?, clock);
        namespace.observer().tags().with(host, |tags| tags.workers += 1);
        Ok(FsrWorker {
            namespace: namespace.clone(),
            host: host.clone(),
            executor,
            next: 0,
            running: Vec::new(),
            waiting: Vec::new(),
            outcomes: Vec::new(),
            finished: Vec::new(),
            seen: namespace.observer().cancelled.load(Ordering::Acquire),
        })
    }

    /// Log page D5h, 64 bytes, little-endian: magic "NDCP", version u16 (1), length u16 (64), the longest request u32,
    /// the largest buffer u32, the longest path u32, the most groups u32; then as bits by their numbers on the wire
    /// operations u32, targets u32, checksums u32, and doors u32 (0 the bidirectional command, not over fabrics, 1 execute and result, 2 Get Features,
    /// 3 Set Features); the longest wait of a `result` in milliseconds u32; zeros.
    fn capabilities(&self, fabric: bool) -> Vec<u8> {
        let mut page = Vec::with_capacity(64);
        page.extend_from_slice(b"NDCP");
        page.extend_from_slice(&1u16.to_le_bytes());
        page.extend_from_slice(&64u16.to_le_bytes());
        let numbers = [
            MAX_REQUEST as u32,
            MAX_BUFFER as u32,
            MAX_PATH as u32,
            MAX_GROUPS as u32,
            0b1_1111_1111,
            0b1_1111,
            0b1110,
            if fabric { 0b1110 } else { 0b1111 },
            MAX_WAIT_MS,
        ];
        page.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        page.resize(64, 0);
        page
    }
}

/// For whom a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// A command of this reactor.
    Command(Token),
    /// Whoever asks for the tag by `result`.
    Tag(u64),
    /// Whoever asks for it by Get Features.
    Feature(u32),
}

struct Running {
    key: u64,
    whose: For,
}

/// A `result` whose `execute` has not come, or a result that was asked to wait.
struct Waiting {
    token: Token,
    tag: u64,
    room: usize,
    until: Nanos,
}

/// The near-data commands of one reactor.
pub struct FsrWorker<S: Store> {
    namespace: Arc<Namespace<S, Fsr>>,
    host: Host,
    executor: Executor<S, Fsr, Vec<u8>>,
    next: u64,
    running: Vec<Running>,
    waiting: Vec<Waiting>,
    outcomes: Vec<(Token, Outcome)>,
    finished: Finished<Vec<u8>>,
    /// Cancellations that were looked at.
    seen: u64,
}

fn done(status: Status, result: u32, reply: Vec<u8>) -> Outcome {
    Outcome { status, result, reply }
}

fn replied(reply: Vec<u8>) -> Outcome {
    done(Status::SUCCESS, reply.len() as u32, reply)
}

/// A request's bytes, checked. What is not a request is refused as a field of the command.
fn checked(bytes: &[u8], room: usize) -> Result<nearside_fsr::Request, Status> {
    if room < REPLY_HEADER {
        return Err(Status::INVALID_FIELD.dnr());
    }
    match decode_request(bytes) {
        Ok(request) => Ok(translate::request(request)),
        Err(_) => Err(Status::INVALID_FIELD.dnr()),
    }
}

impl<S: Store> FsrWorker<S> {
    /// What the drive keeps under this host's tags.
    fn tags<R>(&self, with: impl FnOnce(&mut HostTags) -> R) -> R {
        self.namespace.observer().tags().with(&self.host, with)
    }

    fn run(&mut self, mut request: nearside_fsr::Request, room: usize, whose: For) {
        let key = self.next;
        self.next += 1;
        let retriever = self.namespace.observer().retriever.clone();
        let identity = identity::apply(self.host.identity, &mut request.credentials);
        self.executor.spawn(key, |media| async move {
            match identity {
                Ok(squashed) => {
                    let mut sink = translate::WireSink::new(room, squashed);
                    let answer = retriever.run(&media, &request, &mut sink).await;
                    sink.finish(answer)
                }
                Err(why) => translate::WireSink::new(room, None).refuse(&ReplyStatus::DeniedAs(why)),
            }
        });
        self.running.push(Running { key, whose });
    }

    /// Ends what runs for someone; whether there was something.
    fn stop(&mut self, whose: For) -> bool {
        let Some(at) = self.running.iter().position(|r| r.whose == whose) else { return false };
        let Running { key, .. } = self.running.swap_remove(at);
        self.executor.cancel(key);
        true
    }

    /// A `result`: its reply, or a place among those that wait. `None`: answered later.
    fn result(&mut self, waiting: Waiting, now: Nanos) -> Option<Outcome> {
        let meeting = self.tags(|tags| tags.meet(waiting.tag, waiting.room));
        match meeting {
            Meeting::Reply(reply) => Some(replied(reply)),
            Meeting::Failed(status) => Some(done(status, 0, Vec::new())),
            Meeting::Start(request) => {
                let Waiting { tag, room, .. } = waiting;
                self.run(*request, room, For::Tag(tag));
                self.wait(waiting, now)
            }
            Meeting::Running => self.wait(waiting, now),
            Meeting::Unknown if now >= waiting.until => {
                Some(done(Status::COMMAND_SEQUENCE_ERROR, 0, Vec::new()))
            }
            Meeting::Unknown => self.wait(waiting, now),
        }
    }

    /// Every `result` that waits here for a tag ends as aborted.
    fn end_waiting(&mut self, tag: u64) {
        for waiting in self.waiting.extract_if(.., |w| w.tag == tag) {
            self.outcomes.push((waiting.token, done(Status::ABORT_REQUESTED, 0, Vec::new())));
        }
    }

    /// Ends what runs here and was cancelled by way of another reactor.
    fn see_cancelled(&mut self) {
        let cancelled = self.namespace.observer().cancelled.load(Ordering::Acquire);
        if std::mem::replace(&mut self.seen, cancelled) == cancelled {
            return;
        }
        let tag = |running: &Running| match running.whose {
            For::Tag(tag) => Some(tag),
            For::Command(_) | For::Feature(_) => None,
        };
        for tag in self.running.iter().filter_map(tag).collect::<Vec<_>>() {
            if self.tags(|tags| tags.see_cancelled(tag)) {
                self.stop(For::Tag(tag));
                self.end_waiting(tag);
            }
        }
    }

    /// Waits, or says that it runs: success without bytes.
    fn wait(&mut self, waiting: Waiting, now: Nanos) -> Option<Outcome> {
        if now >= waiting.until {
            return Some(done(Status::SUCCESS, 0, Vec::new()));
        }
        self.waiting.push(waiting);
        None
    }
}

/// What ran here under a tag has failed; when a host's last worker goes, so do its tags.
impl<S: Store> Drop for FsrWorker<S> {
    fn drop(&mut self) {
        let running = std::mem::take(&mut self.running);
        self.tags(|tags| {
            for running in running {
                match running.whose {
                    For::Command(_) => {}
                    For::Tag(tag) => tags.failed(tag),
                    For::Feature(tag) => tags.kept_failed(tag),
                }
            }
            tags.workers -= 1;
        });
    }
}

impl<S: Store> Worker for FsrWorker<S> {
    fn start(&mut self, job: Job, now: Nanos) -> Result<(), Status> {
        let Job { token, door, request, room } = job;
        let outcome = match door {
            Door::Command => {
                let request = checked(&request, room)?;
                self.run(request, room, For::Command(token));
                return Ok(());
            }
            Door::Feature { .. } if request.starts_with(b"NDRQ") => {
                let request = checked(&request, room)?;
                self.run(request, room, For::Command(token));
                return Ok(());
            }
            Door::Feature { tag, offset } => match self.tags(|tags| tags.kept(tag, offset, room)) {
                Kept::Part(part, len) => done(Status::SUCCESS, len, part),
                Kept::Running => done(Status::SUCCESS, 0, Vec::new()),
                Kept::Unknown => return Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            },
            Door::SetFeature { tag } => {
                let request = checked(&request, MAX_BUFFER)?;
                self.stop(For::Feature(tag));
                self.tags(|tags| tags.keep(tag))?;
                self.run(request, MAX_BUFFER, For::Feature(tag));
                done(Status::SUCCESS, 0, Vec::new())
            }
            Door::Execute { tag } => {
                let parsed = checked(&request, MAX_BUFFER);
                let status = parsed.as_ref().err().copied().unwrap_or(Status::SUCCESS);
                self.tags(|tags| tags.execute(tag, parsed, request.len()))?;
                // A failed `execute` fails its `result` as well.
                done(status, 0, Vec::new())
            }
            Door::Result { tag, wait_ms } => {
                let until = now + u64::from(wait_ms.min(MAX_WAIT_MS)) * 1_000_000;
                if room < REPLY_HEADER {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                match self.result(Waiting { token, tag, room, until }, now) {
                    Some(outcome) => outcome,
                    None => return Ok(()),
                }
            }
            Door::Cancel { tag } => {
                let here = self.stop(For::Tag(tag));
                let known = self.tags(|tags| tags.cancel(tag, here));
                if known && !here {
                    // Release: who sees the count finds the tag cancelled.
                    self.namespace.observer().cancelled.fetch_add(1, Ordering::Release);
                }
                self.end_waiting(tag);
                done(Status::SUCCESS, u32::from(known), Vec::new())
            }
        };
        self.outcomes.push((token, outcome));
        Ok(())
    }

    fn step(&mut self, now: Nanos, answer: &mut impl FnMut(Token, Outcome)) -> Progress {
        self.see_cancelled();
        let mut finished = std::mem::take(&mut self.finished);
        let mut progress = self.executor.step(now, &mut finished);
        for (key, reply) in finished.drain(..) {
            let Some(at) = self.running.iter().position(|r| r.key == key) else { continue };
            match self.running.swap_remove(at).whose {
                For::Command(token) => self.outcomes.push((token, replied(reply))),
                For::Tag(tag) => self.tags(|tags| tags.replied(tag, reply)),
                For::Feature(tag) => self.tags(|tags| tags.kept_reply(tag, reply)),
            }
        }
        self.finished = finished;
        if !self.waiting.is_empty() {
            for waiting in std::mem::take(&mut self.waiting) {
                let token = waiting.token;
                if let Some(outcome) = self.result(waiting, now) {
                    self.outcomes.push((token, outcome));
                }
            }
            let due = self.waiting.iter().map(|w| w.until.min(now + LOOK_NS)).min();
            progress.next = match (progress.next, due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        for (token, outcome) in self.outcomes.drain(..) {
            progress.worked = true;
            answer(token, outcome);
        }
        progress
    }

    fn cancel(&mut self, token: Token) {
        if self.stop(For::Command(token)) {
        } else if let Some(at) = self.waiting.iter().position(|w| w.token == token) {
            self.waiting.swap_remove(at);
        } else {
            // Its outcome is on its way.
            return;
        }
        self.outcomes.push((token, done(Status::ABORT_REQUESTED, 0, Vec::new())));
    }
}
