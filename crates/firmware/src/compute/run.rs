//! A program that is compiled, or runs over memory, as a task of the executor.

use std::sync::Arc;

use nearside_fsr::Media;
use nearside_ndp::program::{self, Begin, Program, Run, Step};
use nearside_near_data::Language;
use nearside_spec::Status;

use super::{Compute, Range};

/// Bytes that a program is given at once.
const PIECE: u64 = 64 << 10;
/// Memory of a program that is given back in a slice.
const LITTLE: usize = 2 << 20;

/// A program that is about to be ready. Where its task goes before its end, it is not.
pub(super) struct Compiling {
    compute: Arc<Compute>,
    index: u16,
    load: u64,
    program: Option<Arc<dyn Program>>,
}

impl Compiling {
    pub(super) fn new(compute: Arc<Compute>, index: u16, load: u64) -> Compiling {
        Compiling { compute, index, load, program: None }
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        self.compute.compiled(self.index, self.load, self.program.take());
    }
}

/// A program to run.
struct Execution {
    program: Arc<dyn Program>,
    ranges: Arc<[Range]>,
    /// Bytes of what it reads that there are; 0: all.
    used: u64,
    fuel: u64,
    parameters: Arc<[u8]>,
}

/// What a task does.
pub(crate) struct ProgramWork(What);

enum What {
    Compile(Compiling, Vec<u8>),
    Execute(Execution),
}

/// What it came to: a status, and what the program returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended(pub(crate) Status, pub(crate) u64);

impl Ended {
    /// As the executor's tasks end: by bytes.
    fn encode(self) -> Vec<u8> {
        let Ended(Status(status), value) = self;
        [&status.to_le_bytes()[..], &value.to_le_bytes()].concat()
    }

    /// From them.
    pub(crate) fn decode(bytes: &[u8]) -> Ended {
        let parts = bytes.split_first_chunk().and_then(|(status, rest)| Some((status, rest.first_chunk()?)));
        parts.map_or(Ended(Status::INTERNAL_ERROR, 0), |(status, value)| {
            Ended(Status(u16::from_le_bytes(*status)), u64::from_le_bytes(*value))
        })
    }
}

/// In types of their own, since a future that holds the trait objects themselves is not found to be `Send` by
/// this compiler (rust-lang/rust#110338).
struct Going(Box<dyn Run>);
struct Compiled(Arc<dyn Program>);

/// Compiles a program.
fn compiled(code: &[u8]) -> Result<Compiled, String> {
    program::engine(Language::WebAssembly)?.compile(code).map(Compiled)
}

impl ProgramWork {
    pub(super) fn compile(compiling: Compiling, code: Vec<u8>) -> ProgramWork {
        ProgramWork(What::Compile(compiling, code))
    }

    pub(super) fn execute(
        program: Arc<dyn Program>,
        ranges: Arc<[Range]>,
        (used, fuel): (u64, u64),
        parameters: &[u8],
    ) -> ProgramWork {
        ProgramWork(What::Execute(Execution { program, ranges, used, fuel, parameters: parameters.into() }))
    }

    /// Does it; what it came to, encoded.
    pub(crate) async fn run<M: Media>(self, media: &M) -> Vec<u8> {
        let ended = match self.0 {
            What::Compile(compiling, code) => compile(media, compiling, code).await,
            What::Execute(execution) => execution.run(media).await,
        };
        ended.encode()
    }
}

async fn compile<M: Media>(media: &M, mut compiling: Compiling, code: Vec<u8>) -> Ended {
    match media.offload_long(move || compiled(&code)).await {
        Some(Ok(Compiled(program))) => {
            compiling.program = Some(program);
            Ended(Status::SUCCESS, 0)
        }
        Some(Err(why)) => {
            tracing::debug!(program = compiling.index, why, "it is no program");
            Ended(Status::INVALID_PROGRAM_DATA.dnr(), 0)
        }
        // There is no thread to compile it.
        None => Ended(Status::INSUFFICIENT_PROGRAM_RESOURCES, 0),
    }
}

impl Execution {
    /// The ranges that it reads, one behind the other, and the one that it writes.
    fn sides(&self) -> (&[Range], Option<&Range>) {
        match self.ranges.split_last() {
            Some((last, before)) if !before.is_empty() => (before, Some(last)),
            _ => (&self.ranges, None),
        }
    }

    /// Bytes of what it reads, from one on: as many as are wanted at once, and lie in one range.
    fn read(&self, mut at: u64, size: u64) -> Vec<u8> {
        let wanted = size.saturating_sub(at).min(PIECE);
        for range in self.sides().0 {
            if at < range.len {
                let mut bytes = vec![0; wanted.min(range.len - at) as usize];
                range.memory.copy_out(range.start + at, &mut bytes);
                return bytes;
            }
            at -= range.len;
        }
        Vec::new()
    }

    /// Puts down what it emits behind the `at` bytes that it has emitted, as far as there is room.
    fn write(&self, at: u64, bytes: &[u8]) {
        let Some(range) = self.sides().1 else { return };
        let room = range.len.saturating_sub(at).min(bytes.len() as u64);
        if let Some(bytes) = bytes.get(..room as usize).filter(|bytes| !bytes.is_empty()) {
            range.memory.copy_in(range.start + at, bytes);
        }
    }

    async fn run<M: Media>(self, media: &M) -> Ended {
        let all: u64 = self.sides().0.iter().map(|range| range.len).sum();
        let size = if self.used == 0 { all } else { self.used };
        if size > all {
            return Ended(Status::INVALID_FIELD.dnr(), 0);
        }
        let (parameters, fuel) = (self.parameters.clone(), program::fuel(self.fuel, size));
        let mut run = match self.program.begin(Begin { parameters, size, offset: 0, fuel }) {
            Ok(run) => Going(run),
            Err(_) => return Ended(Status::INSUFFICIENT_PROGRAM_RESOURCES, 0),
        };
        let mut emitted = 0;
        let ended = loop {
            match run.0.step() {
                Step::Pause => {}
                Step::Long => {
                    let work = move || {
                        run.0.long();
                        run
                    };
                    match media.offload_long(work).await {
                        Some(back) => run = back,
                        None => return Ended(Status::INSUFFICIENT_PROGRAM_RESOURCES, 0),
                    }
                }
                Step::Wants(at) => run.0.give(&self.read(at, size)),
                Step::Emitted => {
                    if let Some(record) = run.0.emitted() {
                        self.write(emitted, &record.bytes);
                        emitted += record.bytes.len() as u64;
                    }
                    run.0.taken();
                }
                Step::Ended => break Ended(Status::SUCCESS, emitted),
                Step::Failed(why) => {
                    tracing::debug!(why, "a program failed");
                    break Ended(Status::INTERNAL_ERROR.dnr(), 0);
                }
            }
            media.yield_now().await;
        };
        if run.0.memory() > LITTLE {
            // It is given back where nobody waits for it.
            media.offload(move || drop(run)).await;
        }
        ended
    }
}
