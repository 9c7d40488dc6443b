//! What the host does without the drive's knowledge of files: the paths that DAC'23 compares FSR with.
//!
//! [`Route::Blocks`], the existing near-data path: the host walks the path by reading the volume's metadata blocks
//! ([`source`], [`walk`]), makes the block list ([`locate`]) and sends it with the operation; the drive computes.
//! [`Route::Host`]: the host also reads the data and computes ([`compute`]).
//!
//! A host with a warm cache keeps metadata blocks; an uncached one reads each again. Nothing here watches for changes: a
//! session that is to see a volume change is opened without cache.

pub mod compute;
pub mod locate;
pub mod source;
pub mod walk;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use nearside_fsview::Volume;
use nearside_spec::near_data::{Counters, Operation, Record, ReplyStatus, Target};

use crate::session::{Ask, Route, Session, add};
use crate::{Error, Transport};

use source::{BlockCache, HostSource};
use walk::Found;

/// The host's own view of the volume.
pub struct Host {
    volume: Volume,
    base: u64,
    len: u64,
    cache: RefCell<BlockCache>,
    cached: bool,
}

/// Totals of a search over several files: the last record of its answer.
#[derive(Default)]
pub(crate) struct Totals {
    files: u64,
    files_matched: u64,
    matches: u64,
}

impl Totals {
    /// One more file.
    pub(crate) fn add(&mut self, matched: bool, matches: u64) {
        self.files += 1;
        self.files_matched += u64::from(matched);
        // The drive may have said anything.
        self.matches = self.matches.saturating_add(matches);
    }
}

/// One file of an operation.
struct One<'a> {
    ask: &'a Ask,
    route: Route,
    path: &'a [u8],
    inode: &'a nearside_fsview::Inode,
}

/// Runs a future that never waits (its source answers at once) to its end.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

impl Host {
    /// Opens the volume as a mount would: asks the drive where the partition lies, reads the superblock.
    pub(crate) fn open<T: Transport>(session: &mut Session<T>, cached: bool) -> Result<Host, Error> {
        if session.transport.capacity() == 0 {
            let why =
                "the host cannot locate files through this way to the drive: it carries no reads of blocks";
            return Err(Error::Unsupported(why.into()));
        }
        let info = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
        let mut place = None;
        for record in session.records(&info) {
            if let Record::Volume(volume) = record? {
                place.get_or_insert((volume.offset, volume.len));
            }
        }
        let (base, len) = place.ok_or_else(|| Error::Refused(ReplyStatus::NoVolume("none".into())))?;
        let capacity = session.transport.capacity();
        if base.checked_add(len).is_none_or(|end| end > capacity) {
            let reason = format!("a volume of {len} bytes at byte {base} of a namespace of {capacity}");
            return Err(Error::Form { what: "reply", reason });
        }
        let cache = RefCell::new(BlockCache::default());
        let source = HostSource::new(session, &cache, base, len, true);
        let volume = now(Volume::open(&source)).map_err(|e| Error::Refused(status_of(&e)))?;
        source.finish()?;
        if !cached {
            cache.borrow_mut().clear();
        }
        Ok(Host { volume, base, len, cache, cached })
    }

    pub(crate) fn stream<T: Transport>(
        &mut self,
        session: &mut Session<T>,
        ask: &Ask,
        route: Route,
        sink: &mut impl FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Counters, Error> {
        let mut counters = Counters::default();
        let mut engine = compute::Engine::new(&ask.operation)?;
        let mut totals = Totals::default();
        let mut whole = true;
        let start = session.clock.now();
        let found = self.find(session, ask)?;
        counters.locate_ns += session.clock.now().since(start);
        for found in found {
            counters.files += 1;
            let flow = match found {
                Found::Failed { path, status } => match &ask.target {
                    Target::Path(_) => return Err(Error::Refused(status)),
                    _ => sink(Record::Failed { path, status }),
                },
                Found::File { path, inode } => {
                    let one = One { ask, route, path: &path, inode: &inode };
                    self.one(session, one, &mut engine, &mut counters, &mut totals, sink)?
                }
            };
            if flow.is_break() {
                whole = false;
                break;
            }
        }
        if whole && matches!(ask.operation, Operation::Search(_)) {
            let Totals { files, files_matched, matches } = totals;
            let _ = sink(Record::Total { files, files_matched, matches });
        }
        Ok(counters)
    }

    /// The files that the target names.
    fn find<T: Transport>(&self, session: &mut Session<T>, ask: &Ask) -> Result<Vec<Found>, Error> {
        let credentials = session.credentials.clone();
        let source = HostSource::new(session, &self.cache, self.base, self.len, self.cached);
        let walk = walk::Walk { volume: &self.volume, source: &source, credentials: &credentials };
        let found = match &ask.target {
            Target::Path(path) => now(walk.path(path, ask.follow)),
            Target::Tree { root, include, exclude, max_depth } => {
                now(walk.tree(root, include, exclude, *max_depth))
            }
            Target::Volume | Target::Glob(_) | Target::Blocks { .. } => {
                let why = "the host locates paths and trees only; the drive does the rest";
                return Err(Error::Unsupported(why.into()));
            }
        };
        source.finish()?;
        Ok(found)
    }

    fn one<T: Transport>(
        &self,
        session: &mut Session<T>,
        One { ask, route, path, inode }: One<'_>,
        engine: &mut compute::Engine,
        counters: &mut Counters,
        totals: &mut Totals,
        sink: &mut impl FnMut(Record) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let start = session.clock.now();
        let source = HostSource::new(session, &self.cache, self.base, self.len, self.cached);
        let located = now(locate::locate(&self.volume, &source, inode));
        source.finish()?;
        add(counters, &Counters { locate_ns: session.clock.now().since(start), ..Counters::default() });
        let located = match located {
            Ok(located) => located,
            Err(error) => {
                let status = status_of(&error);
                return Ok(sink(Record::Failed { path: path.to_vec(), status }));
            }
        };
        match (route, located) {
            (Route::Blocks, locate::Located::Ranges(ranges)) => {
                let target = Target::Blocks { size: inode.size, ranges: locate::blocks(&ranges, self.base) };
                let ask = Ask { target, operation: ask.operation.clone(), follow: ask.follow };
                let mut flow = ControlFlow::Continue(());
                let mut named = false;
                let mut records = session.records(&ask);
                while flow.is_continue() {
                    flow = match records.next() {
                        None => break,
                        // The drive knows no name; it says where the file's records begin.
                        Some(Ok(Record::File { .. })) if named => continue,
                        Some(Ok(Record::File { .. })) => {
                            named = true;
                            sink(Record::File { path: path.to_vec(), size: inode.size })
                        }
                        Some(Ok(Record::Total { files_matched, matches, .. })) => {
                            totals.add(files_matched > 0, matches);
                            continue;
                        }
                        Some(Ok(record)) => sink(record),
                        Some(Err(Error::Refused(status))) => {
                            sink(Record::Failed { path: path.to_vec(), status })
                        }
                        Some(Err(error)) => return Err(error),
                    };
                }
                // The file is counted already; what the drive spent on the list is its own.
                add(counters, &Counters { files: 0, ..records.counters() });
                Ok(flow)
            }
            // A file that lives in its inode has come to the host with its metadata: it computes there and then.
            (_, located) => {
                let start = session.clock.now();
                let bytes = compute::Bytes { session, base: self.base, size: inode.size, located: &located };
                let clock = bytes.session.clock.clone();
                let flow = compute::compute(engine, bytes, path, inode, counters, totals, sink)?;
                add(counters, &Counters { compute_ns: clock.now().since(start), ..Counters::default() });
                Ok(flow)
            }
        }
    }
}

/// A file system's error as the drive would have said it.
pub(crate) fn status_of(error: &nearside_fsview::Error) -> ReplyStatus {
    use nearside_fsview::Error as E;
    match error {
        E::NoFileSystem => ReplyStatus::NoVolume(error.to_string()),
        E::Corrupt { what, at } => ReplyStatus::CorruptVolume(format!("{what} at byte {at}")),
        E::Unsupported(name) => ReplyStatus::UnsupportedFeature(name.clone()),
        E::NotADirectory => ReplyStatus::NotADirectory,
        E::WrongKind => ReplyStatus::NotARegularFile,
        E::Read { .. } => ReplyStatus::MediumError(error.to_string()),
    }
}
