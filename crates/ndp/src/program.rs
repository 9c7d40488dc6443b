//! Programs that a user brings: what the drive and whatever runs them say to each other.
//!
//! This crate runs none. A process that can has an [`Engine`] installed ([`install`]), as it may have a
//! logger; without one, programs are refused. A program gets a file's bytes in order, from where it says, and
//! emits records. It sees nothing else: no clock, no other file, no network, so that the same program over
//! the same bytes emits the same records. That is what lets a long answer go on: [`Emitted`] says from which
//! byte on, and behind how many records, a later run of it begins.

use std::fmt;
use std::sync::{Arc, OnceLock};

use nearside_near_data::Language;

/// Longest code of a program, in bytes: what compiling takes grows with it, to some seconds.
pub const fn max_code(language: Language) -> usize {
    match language {
        Language::WebAssembly => 256 << 10,
        // As text; a gzip of it is shorter.
        Language::Yara => 4 << 20,
    }
}

/// Longest record that a program emits, in bytes.
pub const MAX_EMITTED: usize = 64 << 10;
/// Bytes of a program's memory that it may use.
pub const MAX_MEMORY: usize = 16 << 20;

/// What a program may take that is asked to take so much, where 0 says nothing, over so many bytes.
pub fn fuel(asked: u64, size: u64) -> u64 {
    match asked {
        0 => 1_000_000_000u64.saturating_add(size.saturating_mul(1_000)),
        fuel => fuel,
    }
}

/// Compiles programs. It is asked where nobody's I/O waits for it.
pub trait Engine: Send + Sync {
    /// Compiles.
    ///
    /// # Errors
    /// Why it is no program, in a sentence.
    fn compile(&self, code: &[u8]) -> Result<Arc<dyn Program>, String>;

    /// Compiles with the part of a command's parameters that is
    /// [compiled in](nearside_near_data::ProgramOptions::compiled_in).
    ///
    /// # Errors
    /// The same.
    fn compile_with(&self, code: &[u8], _parameters: &[u8]) -> Result<Arc<dyn Program>, String> {
        self.compile(code)
    }
}

/// A compiled program.
pub trait Program: Send + Sync + fmt::Debug {
    /// A run of it over a file.
    ///
    /// # Errors
    /// Why there can be none: memory.
    fn begin(&self, file: Begin) -> Result<Box<dyn Run>, String>;

    /// Bytes that it holds.
    fn memory(&self) -> usize;
}

/// With what a run begins.
#[derive(Clone, Debug)]
pub struct Begin {
    /// What the user has to say to the program.
    pub parameters: Arc<[u8]>,
    /// Bytes of the file.
    pub size: u64,
    /// Its first byte for this run.
    pub offset: u64,
    /// Instructions, about, that it may take, or nanoseconds.
    pub fuel: u64,
}

/// A program over a file.
pub trait Run: Send + Sync {
    /// Goes on, for a slice at most ([`SLICE`](crate::SLICE)).
    fn step(&mut self) -> Step;

    /// Does what takes [longer](Step::Long).
    fn long(&mut self) {}

    /// Gives bytes from the offset on that was wanted last; none: the file ends there.
    fn give(&mut self, bytes: &[u8]);

    /// The oldest record that has not been [taken](Run::taken).
    fn emitted(&self) -> Option<&Emitted>;

    /// Forgets it.
    fn taken(&mut self);

    /// Bytes of memory that the program has.
    fn memory(&self) -> usize;
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its slice is spent.
    Pause,
    /// What comes next cannot be cut: [`Run::long`], where nobody's I/O waits for it.
    Long,
    /// It waits for the file's bytes from an offset on.
    Wants(u64),
    /// There are records to take, before it goes on.
    Emitted,
    /// It has ended, and all records are taken.
    Ended,
    /// It has failed; why.
    Failed(String),
}

/// What a program has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The record.
    pub bytes: Vec<u8>,
    /// A run that begins with this byte of the file emits it again...
    pub restart: u64,
    /// ...behind so many others.
    pub nth: u64,
}

/// Makes an engine; why there can be none.
pub type MakeEngine = fn() -> Result<Box<dyn Engine>, String>;

/// What runs programs of one language, once it is asked for.
struct Slot {
    make: OnceLock<MakeEngine>,
    engine: OnceLock<Result<Box<dyn Engine>, String>>,
}

static SLOTS: [Slot; Language::ALL.len()] =
    [const { Slot { make: OnceLock::new(), engine: OnceLock::new() } }; Language::ALL.len()];

fn slot(language: Language) -> &'static Slot {
    &SLOTS[language as usize]
}

/// Has this process run programs of a language by an engine, which is made once one is asked for. The first
/// stays.
pub fn install(language: Language, make: MakeEngine) {
    let _ = slot(language).make.set(make);
}

/// Whether this process runs programs of a language.
pub fn is_installed(language: Language) -> bool {
    slot(language).make.get().is_some()
}

/// What runs programs of a language here.
///
/// # Errors
/// Why nothing does.
pub fn engine(language: Language) -> Result<&'static dyn Engine, String> {
    let Slot { make, engine } = slot(language);
    let make = make.get().ok_or_else(|| "this drive runs no such programs".to_owned())?;
    engine.get_or_init(make).as_deref().map_err(Clone::clone)
}
