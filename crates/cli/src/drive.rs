//! A command's way to its drive: opened, asked, its warnings passed on, its cost shown at the end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_embedded::partition::Wanted;
use nearside_embedded::{AnyStore, LogicalVolume};
use nearside_fsrlib::{
    Ask, Completion, Counters, Credentials, Deleted, Error, Failure as Refusal, FileEntry, InAll, MAX_PATH,
    NearDataLog, Operation, Part, Record, Route, Seen, Session, State, Target, Totals, Transport,
    VolumeRecord, describe,
};
use nearside_store::File;
use serde_json::json;

use crate::args::{DriveArgs, Threads, Where};
use crate::failure::{Failure, Outcome, complain, complain_of, hint_at_root};
use crate::interrupt::is_told;
use crate::mounted::{self, Places};
use crate::progress::Progress;
use crate::{format, open, parts, timing};

/// An open drive.
pub struct Drive {
    session: Session<Box<dyn Transport>>,
    clock: Arc<TscClock>,
    opened: Nanos,
    /// What had been moved when it was open.
    opened_with: Totals,
    asked: Nanos,
    counters: Counters,
    /// Warnings that were said; true with what says that the volume is unstable.
    warned: BTreeMap<String, bool>,
    args: DriveArgs,
    places: Places,
    progress: Progress,
    /// Another drive gives the same answers.
    alike: bool,
    /// Of a drive of this process.
    store: Option<AnyStore>,
}

impl Drive {
    /// Opens the drive that the arguments name, or on which the paths are mounted. Paths that are meant as
    /// patterns become those that they match.
    pub fn open_for(args: &DriveArgs, paths: &mut Vec<OsString>) -> Result<Drive, Failure> {
        let mut args = args.clone();
        let places = mounted::resolve(&mut args, paths)?;
        let mut drive = Drive { places, ..Drive::open(&args)? };
        if args.glob {
            drive.expand(paths)?;
        }
        Ok(drive)
    }

    /// Expands patterns as a shell does: what matches nothing stays as it is,
    /// and the command says that it is not there.
    fn expand(&mut self, paths: &mut Vec<OsString>) -> Result<(), Failure> {
        for pattern in std::mem::take(paths) {
            let target = Target::Glob(pattern.as_bytes().to_vec());
            let ask = Ask { target, operation: Operation::Stat, follow: false };
            let mut found = Vec::new();
            // A directory that may not be read has no names to match.
            let _refused = self.ask(&ask, |record| {
                match record {
                    Record::Entry(entry) => found.push(OsString::from_vec(entry.path.into_owned())),
                    Record::Name { path, .. } => found.push(OsString::from_vec(path.into_owned())),
                    _ => {}
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if found.is_empty() {
                found.push(pattern);
            }
            found.sort();
            paths.append(&mut found);
        }
        Ok(())
    }

    /// Opens the drive that the arguments name.
    pub fn open(args: &DriveArgs) -> Result<Drive, Failure> {
        let route = match (args.locate, args.compute) {
            (Where::Drive, Where::Drive) => Route::Drive,
            (Where::Host, Where::Drive) => Route::Blocks,
            (Where::Host, Where::Host) => Route::Host,
            (Where::Drive, Where::Host) => {
                return Err(Failure::Message("--compute host needs --locate host".into()));
            }
        };
        let clock = Arc::new(TscClock::new());
        let opened = clock.now();
        let failed = |e: Error| Failure::Message(format!("{}: {e}", args.drive.to_string_lossy()));
        let Begun { session, number, alike, store } = begin(args, clock.clone())?;
        let mut session = session.with_route(route).with_host_cache(args.host_cache);
        // A host that locates files has the volume mounted: that is no part of what an operation costs.
        session.mount().map_err(failed)?;
        let progress = Progress::of("in the drive", session.seen());
        let opened_with = session.totals();
        let asked = clock.now();
        Ok(Drive {
            session,
            opened_with,
            clock,
            opened,
            asked,
            counters: Counters::default(),
            warned: BTreeMap::new(),
            args: DriveArgs { partition: Some(Wanted::Number(number)), ..args.clone() },
            places: Places::default(),
            progress,
            alike,
            store,
        })
    }

    /// A larger buffer, for commands whose answers are long.
    pub fn with_buffer(mut self, bytes: usize) -> Drive {
        self.session = self.session.with_buffer(bytes);
        self
    }

    /// A command's own progress in place of the drive's.
    pub fn with_progress(mut self, progress: Progress) -> Drive {
        self.progress.end();
        self.progress = progress;
        self
    }

    /// The drive's name, as it was given.
    pub fn name(&self) -> String {
        self.args.drive.to_string_lossy().into_owned()
    }

    /// Which completion model holds.
    pub fn completion(&self) -> Completion {
        self.session.transport().completion()
    }

    /// The drive's statistics, where this way to it carries them.
    pub fn statistics(&mut self) -> Result<Option<NearDataLog>, Failure> {
        let page = self.session.transport_mut().statistics();
        page.map_err(|error| Failure::Message(format!("{}: {error}", self.name())))
    }

    /// The drive's partitions; none where it has no table, or where this way to it does not say.
    pub fn partitions(&mut self) -> Vec<Part> {
        self.session.partitions().unwrap_or_default()
    }

    /// The logical volumes of an image or a block device that this command has opened whole. What is damaged
    /// beside them is said.
    pub fn logical_volumes(&mut self) -> Result<Vec<LogicalVolume>, Failure> {
        let found = self.store.as_ref().map(AnyStore::logical_volumes).transpose();
        let (found, damaged) = found.map_err(|e| Failure::Message(e.to_string()))?.unwrap_or_default();
        damaged.into_iter().for_each(|text| warn(&mut self.warned, text.into(), false));
        Ok(found)
    }

    /// Bytes in the namespace, and in its blocks.
    pub fn size(&self) -> (u64, u32) {
        (self.session.transport().capacity(), self.session.transport().block_size())
    }

    /// The image, where its bytes are those that operations see, and how these are done is left to the
    /// command.
    pub fn image(&self) -> Option<File> {
        match &self.store {
            Some(AnyStore::File(image)) if self.args.threads.is_none() && is_free(&self.args, self.alike) => {
                Some(image.clone())
            }
            _ => None,
        }
    }

    /// How far it has come, as progress shows it.
    pub fn seen(&self) -> Arc<Seen> {
        self.session.seen()
    }

    /// Before `bytes` of each of the files are seen: where a person watches, how many that will be is asked,
    /// from which it follows how long it takes. Of trees it is counted meanwhile ([`Drive::count`]).
    pub fn expect(
        &mut self,
        targets: impl Iterator<Item = Target>,
        mut bytes: impl FnMut(&FileEntry<'_>) -> u64 + Send + 'static,
    ) -> Result<(), Failure> {
        if !self.may_ask_ahead() {
            return Ok(());
        }
        let ask = |target| Ask { target, operation: Operation::Stat, follow: true };
        let asks: Vec<Ask> = targets.map(ask).collect();
        if asks.iter().any(|ask| matches!(ask.target, Target::Tree { .. })) {
            return self.count(asks, self.seen(), bytes);
        }
        let mut all = 0u64;
        self.ask_each(&asks, |_, answer| {
            if let Ok(Record::Entry(entry)) = answer {
                all = all.saturating_add(of_file(&entry, &mut bytes));
            }
            Ok(())
        })?;
        self.seen().begin(InAll::Bytes(all));
        Ok(())
    }

    /// Before `bytes` of each of the files that are asked about are seen: where a person watches, and once
    /// it takes long, another drive over the same image finds out meanwhile how many that will be. Not where
    /// that may see other files, nor for a drive that is elsewhere: it would be asked beside the work. Such a
    /// drive is asked before the work how many files there are at most, where all of a volume are meant.
    pub fn count(
        &mut self,
        asks: Vec<Ask>,
        seen: Arc<Seen>,
        bytes: impl FnMut(&FileEntry<'_>) -> u64 + Send + 'static,
    ) -> Result<(), Failure> {
        let Some(store) = self.store.clone().filter(|_| is_free(&self.args, self.alike)) else {
            // Where the host sends lists of a file's blocks, it is seen twice.
            let lists = (self.args.locate, self.args.compute) == (Where::Host, Where::Drive);
            return match &asks[..] {
                [ask] if !lists => self.expect_inodes(&ask.target, &seen, InAll::FilesAtMost),
                _ => Ok(()),
            };
        };
        let enter = |ask: Ask| Ask { target: self.places.enter(&ask.target).0, ..ask };
        let asks: Vec<Ask> = asks.into_iter().map(enter).collect();
        let (args, clock) = (self.args.clone(), self.clock.clone());
        self.progress.count(move |is_wanted| {
            let Ok(session) = another(&args, &store, clock) else { return };
            // As the whole's own session (`Drive::finish`): not given back bit by bit.
            let mut session = ManuallyDrop::new(session);
            if let Some(all) = counted(&mut session, &asks, bytes, is_wanted) {
                seen.expect(InAll::Bytes(all));
            }
        });
        Ok(())
    }

    /// Before the entries of trees are listed, to their last level: where a person watches and a tree is the
    /// volume's whole, about how many these are is asked.
    pub fn expect_entries(&mut self, paths: &[OsString]) -> Result<(), Failure> {
        match paths {
            [path] => self.expect_inodes(&tree(path), &self.seen(), InAll::Files),
            _ => Ok(()),
        }
    }

    /// Where a person watches, and all files of the volume are meant: it counts from here on, and there is as
    /// much `in_all` as inodes are in use. These are more than files by those of the file system's own, and
    /// less than names by those that a file has beside its first.
    fn expect_inodes(
        &mut self,
        target: &Target,
        seen: &Seen,
        in_all: fn(u64) -> InAll,
    ) -> Result<(), Failure> {
        if self.may_ask_ahead() && is_whole(&self.places.enter(target).0) {
            let inodes = self.volume()?.and_then(|volume| volume.inodes);
            inodes.into_iter().for_each(|inodes| seen.begin(in_all(inodes.used)));
        }
        Ok(())
    }

    /// Whether more may be asked than the command is about, for who watches it.
    fn may_ask_ahead(&self) -> bool {
        !self.args.timing && self.progress.is_watched()
    }

    /// Asks, and hands each record to `sink`. `Ok(Err(refusal))`: the drive refused, for a reason that
    /// concerns what was asked and not the drive or the volume.
    pub fn ask(
        &mut self,
        ask: &Ask,
        mut sink: impl FnMut(Record<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<Result<(), Refusal>, Failure> {
        let Drive { session, warned, places, clock, args, alike, store, .. } = self;
        let (target, back) = places.enter(&ask.target);
        if let Some(refusal) = hopeless(&target) {
            return Ok(Err(refusal));
        }
        let ask = Ask { target, operation: ask.operation.clone(), follow: ask.follow };
        let mut failure = None;
        let sink = |record: Record<'_>| match record {
            Record::Warning { text, unstable } => {
                warn(warned, text, unstable);
                ControlFlow::Continue(())
            }
            mut record => {
                if let Some(back) = &back {
                    back.rename(&mut record);
                }
                sink(record).unwrap_or_else(|f| {
                    failure = Some(f);
                    ControlFlow::Break(())
                })
            }
        };
        let result = match (threads_for(args, *alike, &ask), store) {
            (1, _) | (_, None) => session.stream(&ask, sink),
            (threads, Some(store)) => {
                let open = || another(args, store, clock.clone());
                parts::stream(session, &open, threads, &ask, sink)
            }
        };
        if let Some(failure) = failure {
            return Err(failure);
        }
        match result {
            Err(_) if is_told() => Err(Failure::Interrupted),
            Ok(summary) => {
                add(&mut self.counters, &summary.counters);
                Ok(Ok(()))
            }
            Err(Error::Refused(refusal)) => refused(&self.name(), refusal).map(Err),
            Err(error) => Err(Failure::Message(format!("{}: {error}", self.name()))),
        }
    }

    /// What the volume is; `None` where its file system is none that is known.
    pub fn volume(&mut self) -> Result<Option<VolumeRecord<'static>>, Failure> {
        let ask = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
        let mut known = None;
        let answer = self.ask(&ask, |record| {
            if let Record::Volume(volume) = record
                && !volume.file_system.is_empty()
            {
                known.get_or_insert(volume.into_owned());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        answer.map_err(|refusal| Failure::Message(format!("{}: {}", self.name(), describe(&refusal))))?;
        Ok(known)
    }

    /// Asks for several things together, each about a path, and hands each record, or why there is none, to
    /// `sink` with the place of what it answers in `asks`, in that order.
    pub fn ask_each(
        &mut self,
        asks: &[Ask],
        mut sink: impl FnMut(usize, Result<Record<'_>, Refusal>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.ask_each_until(asks, |place, answer| sink(place, answer).map(ControlFlow::<()>::Continue))
            .map(drop)
    }

    /// As [`Drive::ask_each`], until `sink` breaks: with what it does.
    pub fn ask_each_until<B>(
        &mut self,
        asks: &[Ask],
        mut sink: impl FnMut(usize, Result<Record<'_>, Refusal>) -> Result<ControlFlow<B>, Failure>,
    ) -> Result<Option<B>, Failure> {
        let name = self.name();
        let Drive { session, warned, places, counters, .. } = self;
        let mut first = 0;
        while first < asks.len() {
            let (mut entered, mut backs, mut refusal) = (Vec::new(), Vec::new(), None);
            for ask in &asks[first..] {
                let (target, back) = places.enter(&ask.target);
                refusal = hopeless(&target);
                if refusal.is_some() {
                    break;
                }
                entered.push(Ask { target, operation: ask.operation.clone(), follow: ask.follow });
                backs.push(back);
            }
            let (mut failure, mut broken) = (None, None);
            let result = session.stream_each(&entered, |nth, answer| {
                let taken = match answer {
                    Ok(Record::Warning { text, unstable }) => {
                        warn(warned, text, unstable);
                        Ok(ControlFlow::Continue(()))
                    }
                    Ok(mut record) => {
                        if let Some(back) = &backs[nth] {
                            back.rename(&mut record);
                        }
                        sink(first + nth, Ok(record))
                    }
                    Err(refusal) => {
                        refused(&name, refusal).and_then(|refusal| sink(first + nth, Err(refusal)))
                    }
                };
                taken.map_or_else(
                    |f| {
                        failure = Some(f);
                        ControlFlow::Break(())
                    },
                    |flow| flow.map_break(|with| broken = Some(with)),
                )
            });
            match (failure, result) {
                (Some(failure), _) => return Err(failure),
                (None, Err(_)) if is_told() => return Err(Failure::Interrupted),
                (None, Err(error)) => return Err(Failure::Message(format!("{name}: {error}"))),
                (None, Ok(summary)) => add(counters, &summary.counters),
            }
            if broken.is_some() {
                return Ok(broken);
            }
            first += entered.len();
            if let Some(refusal) = refusal {
                if let ControlFlow::Break(with) = sink(first, Err(refusal))? {
                    return Ok(Some(with));
                }
                first += 1;
            }
        }
        Ok(None)
    }

    /// Says now what would be said where [`Drive::deleted`] begins and cannot.
    pub fn may_list_deleted(&mut self) -> Result<(), Failure> {
        let may = self.session.may_list_deleted();
        may.map_err(|error| self.not_deleted(error))
    }

    /// Hands on the volume's files that have no name any more. Where those of a part of the volume are not
    /// known, that is said on standard error. Whether they are all that there are.
    pub fn deleted(
        &mut self,
        mut sink: impl FnMut(Deleted) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<bool, Failure> {
        // What the drive says of the volume comes with an answer of its own.
        let root = Ask { target: Target::Path(b"/".to_vec()), operation: Operation::Stat, follow: false };
        let _damaged = self.ask(&root, |_| Ok(ControlFlow::Continue(())))?;
        let name = self.name();
        let (mut failure, mut all) = (None, true);
        let found = self.session.deleted(|deleted| match deleted {
            Ok(deleted) => sink(deleted).unwrap_or_else(|f| {
                failure = Some(f);
                ControlFlow::Break(())
            }),
            Err(damaged) => {
                all = false;
                complain(&format!("{name}: {}", describe(&damaged)));
                ControlFlow::Continue(())
            }
        });
        match (failure, found) {
            (Some(failure), _) => Err(failure),
            (None, found) => found.map(|()| all).map_err(|error| self.not_deleted(error)),
        }
    }

    fn not_deleted(&self, error: Error) -> Failure {
        let name = self.name();
        Failure::Message(match error {
            Error::Refused(refusal @ Refusal::DeniedAs(_)) => {
                format!("{name}: {} (--as 0:0)", describe(&refusal))
            }
            Error::Refused(refusal) => format!("{name}: {}", describe(&refusal)),
            error => format!("{name}: {error}"),
        })
    }

    /// Asks about a path: a refusal is said on standard error. Whether it went well.
    pub fn ask_about(
        &mut self,
        path: &[u8],
        ask: &Ask,
        sink: impl FnMut(Record) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<bool, Failure> {
        match self.ask(ask, sink)? {
            Ok(()) => Ok(true),
            Err(refusal) => {
                complain_of(path, &refusal);
                Ok(false)
            }
        }
    }

    /// Does an operation on each path, or on every regular file below it, and hands each result to `sink`
    /// with its file's name, also what failed. That is said on standard error before, but that a file of a
    /// tree is no table. The exit status.
    pub fn each_file(
        &mut self,
        paths: &[OsString],
        recursive: bool,
        operation: &Operation,
        mut sink: impl FnMut(&[u8], Record<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let mut code = 0;
        for (path, target) in paths.iter().zip(files(paths, recursive)) {
            let ask = Ask { target, operation: operation.clone(), follow: true };
            let mut name = path.as_bytes().to_vec();
            let answer = self.ask(&ask, |record| {
                if let Record::File { path, .. } | Record::Failed { path, .. } = &record {
                    path.as_ref().clone_into(&mut name);
                }
                if let Record::Failed { failure, .. } = &record
                    && !matches!(failure, Refusal::NotATable(_))
                {
                    code = 1;
                    complain_of(&name, failure);
                }
                sink(&name, record)?;
                Ok(ControlFlow::Continue(()))
            })?;
            if let Err(failure) = answer {
                code = 1;
                complain_of(path.as_bytes(), &failure);
                sink(path.as_bytes(), Record::Failed { path: path.as_bytes().into(), failure })?;
            }
        }
        Ok(code)
    }

    /// The end: the warnings as JSON has them, and what it cost where that was asked for.
    pub fn finish(mut self, out: &mut crate::out::Out) -> Result<(), Failure> {
        use std::io::Write;
        self.progress.end();
        if self.args.json {
            for (text, unstable) in &self.warned {
                out.json(&json!({ "type": "warning", "text": text, "unstable": unstable }))?;
            }
        }
        out.flush()?;
        if self.args.timing {
            let cost = timing::Cost {
                located: self.args.locate,
                computed: self.args.compute,
                counters: self.counters,
                totals: self.totals(),
                open_ns: self.asked.since(self.opened),
                wall_ns: self.clock.now().since(self.asked),
                completion: self.completion(),
            };
            if self.args.json {
                out.json(&cost.json())?;
                out.flush()?;
            } else {
                timing::print(&cost);
            }
        }
        if self.alike {
            // Of an image that is only read nothing is to be ended, and the process goes: to give its caches
            // back one by one would take a twentieth of a search.
            std::mem::forget(self.session);
        }
        Ok(())
    }

    /// Bytes that operations saw, nanoseconds that they took in the drive, and all since it was asked.
    pub fn spent(&self) -> (u64, u64, u64) {
        let Counters { bytes_scanned, locate_ns, compute_ns, .. } = self.counters;
        (bytes_scanned, locate_ns + compute_ns, self.clock.now().since(self.asked))
    }

    /// What has been moved so far, since it was open.
    pub fn totals(&self) -> Totals {
        self.session.totals().since(&self.opened_with)
    }
}

/// Says a warning, once.
fn warn(warned: &mut BTreeMap<String, bool>, text: Cow<'_, str>, unstable: bool) {
    if !warned.contains_key(&*text) {
        complain(&format!("warning: {text}"));
        warned.insert(text.into_owned(), unstable);
    }
}

/// A drive's refusal, as it is said of the path; an error where it would be the same for every path.
fn refused(drive: &str, refusal: Refusal) -> Result<Refusal, Failure> {
    if concerns_the_drive(&refusal) {
        return Err(Failure::Message(format!("{drive}: {}", describe(&refusal))));
    }
    Ok(match refusal {
        // What is wrong with the volume is said of the drive as well as of the path.
        Refusal::CorruptVolume(what) => Refusal::CorruptVolume(format!("{what} ({drive})")),
        Refusal::MediumError(what) => Refusal::MediumError(format!("{what} ({drive})")),
        Refusal::UnsupportedFeature(what) => Refusal::UnsupportedFeature(format!("{what} ({drive})")),
        refusal => refusal,
    })
}

/// A session on the partition that is meant.
struct Begun {
    session: Session<Box<dyn Transport>>,
    number: u32,
    alike: bool,
    store: Option<AnyStore>,
}

fn begin(args: &DriveArgs, clock: Arc<TscClock>) -> Result<Begun, Failure> {
    if args.drive.is_empty() {
        return Err(Failure::Message("no drive (-d DRIVE)".into()));
    }
    let failed = |e: Error| Failure::Message(format!("{}: {e}", args.drive.to_string_lossy()));
    let credentials = open::credentials(args)?;
    let open::Opened { transport, own, alike, store, scanned, beneath, state } = open::transport(args)?;
    if own && args.identity.is_none() && credentials.uid != 0 {
        hint_at_root();
    }
    let mut session = session_over(args, transport, state, clock, credentials).with_beneath(beneath);
    scanned.into_iter().for_each(|scanned| session.seen().follow(scanned));
    // Beside a logical volume, it says where that volume's group is.
    let wanted = args.partition.as_ref().filter(|_| args.volume.is_none());
    let number = number_of(&mut session, wanted).map_err(failed)?;
    Ok(Begun { session: session.with_partition(number), number, alike, store })
}

/// A session with the drive that the arguments name, for a program that asks by itself.
///
/// # Errors
/// The drive cannot be opened, or has no such partition.
pub fn session(args: &DriveArgs) -> Result<Session<Box<dyn Transport>>, Failure> {
    begin(args, Arc::new(TscClock::new())).map(|begun| begun.session)
}

/// A session as the arguments want it.
fn session_over(
    args: &DriveArgs,
    transport: Box<dyn Transport>,
    state: State,
    clock: Arc<TscClock>,
    credentials: Credentials,
) -> Session<Box<dyn Transport>> {
    Session::new(transport, clock)
        .with_credentials(credentials)
        .with_allow_unrecovered(args.allow_unrecovered)
        .with_state(state)
}

/// The number of the partition that is meant; 0: the only one that has a volume.
pub fn number_of(session: &mut Session<Box<dyn Transport>>, wanted: Option<&Wanted>) -> Result<u32, Error> {
    match wanted {
        None => Ok(0),
        Some(Wanted::Number(number)) => Ok(*number),
        Some(known) => known.among(&session.partitions()?).map_err(Error::Unsupported),
    }
}

/// A session of another thread's, with a drive of its own.
fn another(
    args: &DriveArgs,
    store: &AnyStore,
    clock: Arc<TscClock>,
) -> Result<Session<Box<dyn Transport>>, Error> {
    let failed = |failure: Failure| Error::Unsupported(failure.to_string());
    let credentials = open::credentials(args).map_err(failed)?;
    let transport = open::once_more(args, store).map_err(failed)?;
    let mut session = session_over(args, transport, open::state(args), clock, credentials);
    let number = number_of(&mut session, args.partition.as_ref())?;
    Ok(session.with_partition(number))
}

/// Whether an answer may be made in any way. What an operation costs is told of one drive and its commands.
fn is_free(args: &DriveArgs, alike: bool) -> bool {
    !args.timing && (args.locate, args.compute) == (Where::Drive, Where::Drive) && alike
}

/// On how many threads an answer is made.
fn threads_for(args: &DriveArgs, alike: bool, ask: &Ask) -> usize {
    let may = parts::wants(ask)
        // There each piece is a line, which begins and ends where one drive has it.
        && !(args.json && matches!(ask.operation, Operation::Read { .. }))
        && is_free(args, alike);
    match args.threads {
        _ if !may => 1,
        Some(Threads::Threaded) => 1,
        Some(Threads::Inline(threads)) => threads,
        // Asked for a tree only: the files by which the system says it take as long to read as a small one.
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// What the drive need not be asked: a path that is none. The messages are the drive's own.
fn hopeless(target: &Target) -> Option<Refusal> {
    let path = match target {
        Target::Path(path) | Target::Glob(path) | Target::Tree { root: path, .. } => path,
        Target::Volume | Target::Blocks { .. } | Target::Paths(_) => return None,
    };
    if path.is_empty() {
        return Some(Refusal::NotFound);
    }
    if path.len() > MAX_PATH {
        return Some(Refusal::NameTooLong);
    }
    (path.first() != Some(&b'/')).then_some(Refusal::NotAbsolute)
}

/// Whether the refusal would be the same for every path.
fn concerns_the_drive(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoVolume(_) | Refusal::InvalidPattern(_) | Refusal::InvalidRequest(_))
}

/// What a path on the command line names: itself.
pub fn target(path: &OsStr) -> Target {
    Target::Path(path.as_bytes().to_vec())
}

/// All that is below a path.
pub fn tree(path: &OsStr) -> Target {
    let root = path.as_bytes().to_vec();
    Target::Tree { root, include: vec![], exclude: vec![], max_depth: u32::MAX }
}

/// Whether it is a tree of all that there is.
fn is_whole(target: &Target) -> bool {
    let Target::Tree { root, include, exclude, max_depth } = target else { return false };
    let is_root = !root.is_empty() && root.iter().all(|byte| *byte == b'/');
    is_root && include.is_empty() && exclude.is_empty() && *max_depth == u32::MAX
}

/// The files at these paths, or below them.
pub fn files(paths: &[OsString], recursive: bool) -> impl Iterator<Item = Target> {
    paths.iter().map(move |path| if recursive { tree(path) } else { target(path) })
}

/// Bytes of a file that lie on the volume: what looks for something does not look at holes.
pub fn stored(entry: &FileEntry<'_>) -> u64 {
    entry.size.min(entry.sectors.saturating_mul(512))
}

/// `bytes` of an entry, where it is a regular file: of others there are none.
pub fn of_file(entry: &FileEntry<'_>, bytes: &mut impl FnMut(&FileEntry<'_>) -> u64) -> u64 {
    if format::letter(entry.mode) == '-' { bytes(entry) } else { 0 }
}

/// How many `bytes` the files have together that are asked about; `None`: that is not wanted any more, or it
/// is not to be had.
fn counted(
    session: &mut Session<Box<dyn Transport>>,
    asks: &[Ask],
    mut bytes: impl FnMut(&FileEntry<'_>) -> u64,
    is_wanted: &dyn Fn() -> bool,
) -> Option<u64> {
    let mut all = 0u64;
    for ask in asks {
        let listed = session.stream(ask, |record| {
            if let Record::Entry(entry) = record {
                all = all.saturating_add(of_file(&entry, &mut bytes));
            }
            if is_wanted() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        // What is refused is so to the command as well, and it says so.
        if !matches!(listed, Ok(_) | Err(Error::Refused(_))) || !is_wanted() {
            return None;
        }
    }
    Some(all)
}

pub fn add(to: &mut Counters, from: &Counters) {
    to.bytes_scanned += from.bytes_scanned;
    to.blocks_read += from.blocks_read;
    to.cache_hits += from.cache_hits;
    to.cache_misses += from.cache_misses;
    to.files += from.files;
    to.locate_ns += from.locate_ns;
    to.compute_ns += from.compute_ns;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_none() {
        assert_eq!(hopeless(&Target::Path(b"etc".to_vec())), Some(Refusal::NotAbsolute));
        assert_eq!(hopeless(&Target::Path(vec![b'/'; 4096])), Some(Refusal::NameTooLong));
        assert_eq!(hopeless(&Target::Path(b"/etc".to_vec())), None);
        assert_eq!(hopeless(&Target::Path(vec![])), Some(Refusal::NotFound));
    }

    #[test]
    fn what_all_there_is_is() {
        assert!(["/", "//"].iter().all(|root| is_whole(&tree(OsStr::new(root)))));
        assert!(["", "/etc", "/."].iter().all(|root| !is_whole(&tree(OsStr::new(root)))));
        let of = |include: Vec<Vec<u8>>, exclude, max_depth| {
            is_whole(&Target::Tree { root: b"/".to_vec(), include, exclude, max_depth })
        };
        assert!(of(vec![], vec![], u32::MAX));
        assert!(!of(vec![b"*.c".to_vec()], vec![], u32::MAX) && !of(vec![], vec![b"*".to_vec()], u32::MAX));
        assert!(!of(vec![], vec![], 9) && !is_whole(&target(OsStr::new("/"))));
    }
}
