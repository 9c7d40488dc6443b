#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! Rules look at a file as a whole, so that a [`Run`](program::Run) collects it, and matches it in one piece
//! where no I/O waits for that. boreal looks at the time now and then, not everywhere, and what rules take of
//! memory while they are compiled is theirs to say: a drive matches those of people whom its operator trusts.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod said;

use std::collections::HashSet;
use std::fmt;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boreal::compiler::{AddRuleError, CompilerBuilder, CompilerParams, ExternalValue};
use boreal::module;
use boreal::scanner::{ScanError, ScanParams, Scanner};
use nearside_dma::cpu::{thread_work_ns, worked_elsewhere};
use nearside_ndp::program::{self, Begin, Emitted, Step, max_code};
use nearside_near_data::{Language, RuleParameters, Variable};

use said::Said;

/// Largest file that rules are matched against, in bytes.
pub const MAX_FILE: u64 = 128 << 20;
/// Bytes of all files that are in memory at a time.
const ALL_FILES: u64 = 512 << 20;
/// Longest time for a file.
const LONGEST: Duration = Duration::from_secs(60);
/// Matches of a string that are found in a file.
const MATCHES: u32 = 1000;
/// Bytes of a match that are shown, as YARA's.
const SHOWN: usize = 512;
/// Stack of what compiles rules, and what more of it each byte of their text may take.
const STACK: usize = 4 << 20;
const STACK_PER_BYTE: usize = 256;

/// Has this process' drives match rules.
pub fn install() {
    program::install(Language::Yara, || Ok(Box::new(Engine::default())));
}

/// Compiles rules.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// Bytes of files that are in memory.
    taken: Arc<AtomicU64>,
}

impl program::Engine for Engine {
    fn compile(&self, code: &[u8]) -> Result<Arc<dyn program::Program>, String> {
        self.compile_with(code, &[])
    }

    fn compile_with(&self, code: &[u8], parameters: &[u8]) -> Result<Arc<dyn program::Program>, String> {
        let mut text = text(code)?;
        // A comment ends with its line, and the last line perhaps with the text.
        if text.rsplit('\n').next().is_some_and(|last| last.contains("//")) {
            text.push('\n');
        }
        let told = RuleParameters::take(parameters)?;
        let len = text.len();
        // A long row of operators is a tree as deep, which is taken apart by recursion.
        let compile = std::thread::Builder::new().stack_size(STACK + len.saturating_mul(STACK_PER_BYTE));
        let compile = compile.spawn(move || (compiled(&text, told.variables), thread_work_ns()));
        let ended = compile.map_err(|error| error.to_string())?.join();
        let (scanner, cost) = ended.map_err(|_| "what compiles them has failed".to_owned())?;
        worked_elsewhere(cost);
        let scanner = scanner?;
        Ok(Arc::new(Rules { scanner, text: len, taken: self.taken.clone() }))
    }
}

/// Compiles a text that knows these external variables.
fn compiled(text: &str, variables: Vec<(String, Variable)>) -> Result<Scanner, String> {
    let mut builder = CompilerBuilder::default();
    // Not the clock: the same rules say the same of the same bytes.
    builder = builder.add_module(module::Math).add_module(module::String_).add_module(module::Hash);
    builder = builder.add_module(module::Pe).add_module(module::Elf).add_module(module::MachO);
    builder = builder.add_module(module::Dotnet).add_module(module::Dex);
    let mut compiler = builder.build();
    compiler.set_params(CompilerParams::default().disable_includes(true));
    let names: HashSet<String> = variables.iter().map(|(name, _)| name.clone()).collect();
    for (name, value) in variables {
        compiler.define_symbol(name, external(value));
    }
    compiler.add_rules_str(text).map_err(|error| place(&error, text))?;
    let mut scanner = compiler.finalize();
    if let Some(rule) = scanner.rules().find(|rule| names.contains(rule.name)) {
        return Err(format!("rule {}: an external variable has its name", rule.name));
    }
    scanner.set_scan_params(ScanParams::default().string_max_nb_matches(MATCHES).match_max_length(SHOWN));
    Ok(scanner)
}

fn external(value: Variable) -> ExternalValue {
    match value {
        Variable::Integer(value) => value.into(),
        Variable::Float(value) => value.into(),
        // As yara's, which are compared with integers.
        Variable::Boolean(value) => i64::from(value).into(),
        Variable::Text(bytes) => bytes.into(),
    }
}

/// The rules' text.
fn text(code: &[u8]) -> Result<String, String> {
    let most = max_code(Language::Yara);
    let mut bytes = Vec::new();
    if code.starts_with(&[0x1f, 0x8b]) {
        let unpacked = flate2::read::MultiGzDecoder::new(code).take(most as u64 + 1).read_to_end(&mut bytes);
        unpacked.map_err(|error| format!("their gzip: {error}"))?;
    } else {
        bytes.extend_from_slice(code);
    }
    if bytes.len() > most {
        return Err(format!("more than {most} bytes of text"));
    }
    String::from_utf8(bytes).map_err(|error| format!("no UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}

/// Line, column and what is wrong there.
fn place(error: &AddRuleError, text: &str) -> String {
    let said = error.to_string();
    let line = said.lines().next().unwrap_or_default();
    if let Some(rest) = line.strip_prefix("mem:") {
        return format!("line {rest}");
    }
    // Of what is wrong in two places boreal says none.
    let at = error.to_diagnostic().labels.iter().map(|label| label.range.start).min();
    let Some(before) = at.and_then(|at| text.get(..at)) else { return line.to_owned() };
    let behind = before.rfind('\n').map_or(before, |newline| &before[newline + 1..]);
    format!("line {}:{}: {line}", before.matches('\n').count() + 1, behind.chars().count() + 1)
}

struct Rules {
    scanner: Scanner,
    text: usize,
    taken: Arc<AtomicU64>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("text", &self.text).finish_non_exhaustive()
    }
}

impl program::Program for Rules {
    fn begin(&self, file: Begin) -> Result<Box<dyn program::Run>, String> {
        if file.size > MAX_FILE {
            return Err(format!("rules are matched against files of at most {MAX_FILE} bytes"));
        }
        if file.offset > 0 {
            return Err("rules are matched against whole files".to_owned());
        }
        // Its variables were looked at when it was compiled: for each file that is no slice's work.
        let variables = RuleParameters::compiled(&file.parameters).len();
        let told = file.parameters.get(..file.parameters.len() - variables).unwrap_or_default();
        let RuleParameters { strings, .. } = RuleParameters::take(told)?;
        let room = Room::take(&self.taken, file.size)
            .ok_or("so much is matched here now that there is no room for the file")?;
        let params = self.scanner.scan_params().clone();
        let time = Duration::from_nanos(file.fuel).min(LONGEST);
        let mut scanner = self.scanner.clone();
        scanner.set_scan_params(params.timeout_duration(Some(time)).compute_full_matches(strings));
        Ok(Box::new(RulesRun { scanner, strings, time, room, bytes: Vec::new(), stage: Stage::Collects }))
    }

    /// About: a thousand rules took 26 times their text.
    fn memory(&self) -> usize {
        self.text.saturating_mul(32)
    }
}

/// Room for a file's bytes.
struct Room {
    taken: Arc<AtomicU64>,
    bytes: u64,
}

impl Room {
    fn take(taken: &Arc<AtomicU64>, bytes: u64) -> Option<Room> {
        let room = Room { taken: taken.clone(), bytes };
        let before = taken.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= ALL_FILES).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a run does next.
enum Stage {
    /// Has the file's bytes given.
    Collects,
    /// Matches.
    Matches,
    /// Says what matched.
    Says(Said),
    /// Has failed.
    Failed(String),
}

/// Rules over a file.
struct RulesRun {
    scanner: Scanner,
    strings: bool,
    time: Duration,
    room: Room,
    bytes: Vec<u8>,
    stage: Stage,
}

impl program::Run for RulesRun {
    fn step(&mut self) -> Step {
        match &self.stage {
            Stage::Collects if (self.bytes.len() as u64) < self.room.bytes => {
                Step::Wants(self.bytes.len() as u64)
            }
            Stage::Collects | Stage::Matches => Step::Long,
            Stage::Says(said) if said.next().is_some() => Step::Emitted,
            Stage::Says(_) => Step::Ended,
            Stage::Failed(why) => Step::Failed(why.clone()),
        }
    }

    fn long(&mut self) {
        self.stage = match self.scanner.scan_mem(&self.bytes) {
            Ok(result) => Stage::Says(Said::of(&self.scanner, &result, self.strings)),
            Err((ScanError::Timeout, _)) => {
                Stage::Failed(format!("to match the rules takes longer than {:?}", self.time))
            }
            Err((error, _)) => Stage::Failed(error.to_string()),
        };
        self.bytes = Vec::new();
    }

    fn give(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            // It ends sooner than its inode said.
            self.stage = Stage::Matches;
            return;
        }
        let more = usize::try_from(self.room.bytes).unwrap_or(usize::MAX).saturating_sub(self.bytes.len());
        if self.bytes.capacity() == 0 && self.bytes.try_reserve_exact(more).is_err() {
            self.stage = Stage::Failed("there is no memory for the file".to_owned());
            return;
        }
        self.bytes.extend_from_slice(bytes.get(..more).unwrap_or(bytes));
    }

    fn emitted(&self) -> Option<&Emitted> {
        match &self.stage {
            Stage::Says(said) => said.next(),
            _ => None,
        }
    }

    fn taken(&mut self) {
        if let Stage::Says(said) = &mut self.stage {
            said.taken();
        }
    }

    fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}
