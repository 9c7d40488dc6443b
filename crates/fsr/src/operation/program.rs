//! A program over each file, and what it emits.

use std::sync::Arc;

use nearside_ndp::Flow;
use nearside_ndp::program::{self, Begin, Emitted, Program, Run, Step};
use nearside_near_data::{
    Code, Cursor, Failure, Language, Operation, ProgramOptions, Record, Request, Target,
};

use super::{ByteOperation, Bytes, Ended, Job, ReadFiles, Work};
use crate::Retriever;
use crate::kept::Weight;
use crate::media::Media;
use crate::model::{Full, Mark, Sink};

/// Bytes of a file that it is given at once.
const PIECE: usize = 64 << 10;
/// Memory of a program that is given back in a slice.
const LITTLE: usize = 2 << 20;
/// Bytes that a program skips by reading them.
const SKIPPED: u64 = 128 << 10;

/// A compiled program and what it was compiled from.
pub(crate) struct Compiled {
    source: Source,
    program: Arc<dyn Program>,
}

/// What a program is compiled from.
#[derive(PartialEq, Eq)]
struct Source {
    language: Language,
    code: Vec<u8>,
    /// What of the command's parameters is compiled in.
    parameters: Vec<u8>,
}

/// Why there is none that runs programs of a language.
fn missing(language: Language) -> &'static str {
    match language {
        Language::WebAssembly => {
            "this drive runs no programs (nearside serve does with --programs, a build with the feature wasm)"
        }
        Language::Yara => {
            "this drive has no rules matched (nearside serve does with --rules, a build with the feature yara)"
        }
    }
}

impl Weight for Compiled {
    fn memory(&self) -> usize {
        let Source { code, parameters, .. } = &self.source;
        self.program.memory() + code.len() + parameters.len()
    }
}

/// A program over the file at hand; in a type of its own, since a future that holds the trait object itself
/// is not found to be `Send` by this compiler (rust-lang/rust#110338).
struct Going(Box<dyn Run>);

/// Runs a program over files.
pub(crate) struct ProgramOverFiles {
    program: Arc<Compiled>,
    parameters: Arc<[u8]>,
    fuel: u64,
    run: Option<Going>,
    /// Why there is none, or why it ended.
    failed: Option<String>,
    ended: bool,
    /// Which byte it wants.
    wants: u64,
    /// The last range that was asked for is left.
    moved: bool,
    /// Records of it that an answer before had.
    skip: u64,
    /// Bytes of the next that it had too.
    within: usize,
    /// Whether the file's record is written.
    named: bool,
    /// Where another run would go on.
    next: Cursor,
}

impl ProgramOverFiles {
    /// Compiles the program, where that was not done before; `stored`: its code, where that is in the volume.
    ///
    /// # Errors
    /// It is none, it cannot be read, or nothing here runs programs.
    pub(crate) async fn new<M: Media>(
        retriever: &Retriever,
        media: &M,
        options: &ProgramOptions,
        stored: Vec<u8>,
    ) -> Result<ProgramOverFiles, Failure> {
        let language = options.language;
        if !program::is_installed(language) {
            return Err(Failure::UnsupportedFeature(missing(language).to_owned()));
        }
        let code = match &options.code {
            Code::Given(code) => code.clone(),
            Code::Stored(_) => stored,
        };
        let invalid = |why| invalid("", why);
        let source = Source { language, code, parameters: options.compiled_in().to_vec() };
        let kept = retriever.programs.clone();
        let known = media.offload(move || match kept.get(|one: &Compiled| one.source == source) {
            Some(program) => Ok(program),
            None => Err(source),
        });
        let program = match known.await {
            Ok(program) => program,
            Err(source) => {
                let kept = retriever.programs.clone();
                let compile = move || -> Result<_, String> {
                    // Another command may have been before.
                    if let Some(program) = kept.get(|one: &Compiled| one.source == source) {
                        return Ok(program);
                    }
                    let program =
                        program::engine(language)?.compile_with(&source.code, &source.parameters)?;
                    Ok(kept.keep(Compiled { source, program }))
                };
                let busy = || Err("there is no thread to compile it, try it again".to_owned());
                media.offload_long(compile).await.unwrap_or_else(busy).map_err(invalid)?
            }
        };
        Ok(ProgramOverFiles {
            program,
            parameters: options.parameters.as_slice().into(),
            fuel: options.fuel,
            run: None,
            failed: None,
            ended: false,
            wants: 0,
            moved: false,
            skip: 0,
            within: 0,
            named: false,
            next: Cursor::default(),
        })
    }

    /// Has the program go on until it wants bytes, or has ended, or there is no room for what it emits.
    async fn go<M: Media, S: Sink>(&mut self, media: &M, job: &mut Job<'_, S>) -> Result<Flow, Failure> {
        loop {
            let Some(run) = self.run.as_mut().filter(|_| !self.ended) else { return Ok(Flow::Done) };
            match run.0.step() {
                Step::Pause => {}
                Step::Long => self.go_long(media).await,
                Step::Wants(at) => {
                    self.wants = at;
                    return Ok(Flow::More);
                }
                Step::Emitted => {
                    if !self.write(job) {
                        return Ok(Flow::Full);
                    }
                }
                Step::Ended => self.ended = true,
                Step::Failed(why) => (self.failed, self.ended) = (Some(why), true),
            }
            media.yield_now().await;
        }
    }

    /// Has what cannot be cut done elsewhere.
    async fn go_long<M: Media>(&mut self, media: &M) {
        let Some(mut run) = self.run.take() else { return };
        let work = move || {
            run.0.long();
            run
        };
        self.run = media.offload_long(work).await;
        if self.run.is_none() {
            self.failed = Some("there is no thread for what takes long, try it again".to_owned());
        }
    }

    /// Writes the oldest record, unless it was answered before. `false`: there is no room for all of it.
    fn write<S: Sink>(&mut self, job: &mut Job<'_, S>) -> bool {
        let Some(run) = &mut self.run else { return true };
        let Some(Emitted { bytes, restart, nth }) = run.0.emitted() else { return true };
        if self.skip > 0 {
            self.skip -= 1;
            run.0.taken();
            return true;
        }
        let left = bytes.get(self.within..).unwrap_or_default();
        self.next = Cursor { offset: *restart, found: *nth, within: self.within as u64, ..Cursor::default() };
        let mark = job.sink.mark();
        let named = self.named || job.file();
        let n = job.room().min(left.len());
        let continues = n < left.len();
        let part = left.get(..n).unwrap_or_default();
        let some = n > 0 || !continues;
        if !(named && some && job.push(Record::Emitted { bytes: part.into(), continues })) {
            // The file's record has no worth alone.
            job.sink.rollback(mark);
            return false;
        }
        self.named = true;
        if continues {
            self.next.within += n as u64;
            return false;
        }
        self.within = 0;
        run.0.taken();
        true
    }
}

impl ByteOperation for ProgramOverFiles {
    fn range(&self, size: u64, at: &Cursor) -> (u64, u64) {
        // Of one that begins behind the last byte, that: it may go back. What comes next it says itself.
        let from = at.offset.min(size.saturating_sub(1));
        (from, from.saturating_add(PIECE as u64).min(size))
    }

    fn begin<S: Sink>(&mut self, job: &Job<'_, S>) {
        let Cursor { offset, found, within, .. } = job.at;
        (self.skip, self.within) = (found, usize::try_from(within).unwrap_or(usize::MAX));
        (self.named, self.moved, self.ended, self.failed) = (false, false, false, None);
        self.next = job.at.clone();
        self.wants = offset.min(job.size);
        let fuel = program::fuel(self.fuel, job.size);
        let parameters = self.parameters.clone();
        let begin = Begin { parameters, size: job.size, offset: self.wants, fuel };
        match self.program.program.begin(begin) {
            Ok(run) => self.run = Some(Going(run)),
            Err(why) => (self.run, self.failed, self.ended) = (None, Some(why), true),
        }
    }

    fn piece(&self) -> usize {
        PIECE
    }

    async fn take<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        self.moved = false;
        let end = offset + bytes.len() as u64;
        loop {
            let at = self.wants.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
            let part = at.and_then(|at| bytes.get(at..)).unwrap_or_default();
            if part.is_empty() && self.wants < job.size {
                // What is skipped is read where that is little.
                let skips = (end..end.saturating_add(SKIPPED)).contains(&self.wants);
                self.moved = !skips;
                return Ok(if skips { Flow::More } else { Flow::Done });
            }
            if let Some(run) = &mut self.run {
                // Behind the last byte: that there is none.
                run.0.give(part);
            }
            let flow = self.go(media, job).await?;
            if flow != Flow::More {
                return Ok(flow);
            }
        }
    }

    fn is_elsewhere(&self) -> bool {
        self.moved
    }

    fn then(&mut self, size: u64) -> Result<Vec<(u64, u64)>, Failure> {
        self.moved = false;
        let wants = !self.ended && self.wants < size;
        Ok(if wants { vec![(self.wants, size)] } else { Vec::new() })
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        flow: Flow,
    ) -> Result<Ended, Failure> {
        let mut flow = flow;
        while flow == Flow::More {
            // The file is empty.
            if let Some(run) = &mut self.run {
                run.0.give(&[]);
            }
            flow = self.go(media, job).await?;
        }
        let run = self.run.take();
        if run.as_ref().is_some_and(|run| run.0.memory() > LITTLE) {
            // It is given back where nobody waits for it.
            media.offload(move || drop(run)).await;
        }
        if flow == Flow::Full {
            return Ok(Ended::Full(std::mem::take(&mut self.next)));
        }
        if let Some(why) = self.failed.take() {
            return Err(Failure::ProgramFailed(why));
        }
        if !self.named && !job.file() {
            return Ok(Ended::Full(std::mem::take(&mut self.next)));
        }
        Ok(Ended::Done)
    }
}

/// What has to be read before the program can be run: its code, from a file of the volume that is asked
/// about, as the user may read it.
pub(crate) fn stored(request: &Request) -> Option<(Request, Work, Collected)> {
    let Operation::Program(options) = &request.operation else { return None };
    let Code::Stored(path) = &options.code else { return None };
    let len = program::max_code(options.language) as u64 + 1;
    let read = Request {
        partition: request.partition,
        credentials: request.credentials.clone(),
        target: Target::Path(path.clone()),
        operation: Operation::Read { offset: 0, len },
        follow: true,
        resume: None,
    };
    Some((read, Work::Bytes(Bytes::Read(ReadFiles::new(0, len))), Collected(Vec::new())))
}

/// Takes a file's bytes.
pub(crate) struct Collected(Vec<u8>);

impl Collected {
    /// What was read; why it could not be.
    pub(crate) fn code(self, read: &Request, failure: Option<Failure>) -> Result<Vec<u8>, Failure> {
        let Some(failure) = failure else { return Ok(self.0) };
        let why = match &failure {
            Failure::NotFound => "no such file or directory",
            Failure::PermissionDenied => "permission denied",
            Failure::IsADirectory => "is a directory",
            other => other.code().1,
        };
        let Target::Path(path) = &read.target else { return Err(failure) };
        let path = String::from_utf8_lossy(path);
        Err(invalid(&format!(" {path}"), format!("it cannot be read: {why}")))
    }
}

/// There is no such program: which, and why.
fn invalid(which: &str, why: String) -> Failure {
    Failure::InvalidRequest(format!("the program{which}: {why}"))
}

impl Sink for Collected {
    fn push(&mut self, record: Record<'_>, _path_len: usize) -> Result<(), Full> {
        if let Record::Data { bytes, .. } = record {
            self.0.extend_from_slice(&bytes);
        }
        Ok(())
    }

    fn room(&self, _path_len: usize) -> usize {
        PIECE
    }

    fn mark(&self) -> Mark {
        Mark(self.0.len(), 0)
    }

    fn rollback(&mut self, Mark(len, _): Mark) {
        self.0.truncate(len);
    }
}
