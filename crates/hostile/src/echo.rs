//! Programs that need no compiler: their first byte says what they do. So drives here run programs without
//! what runs WebAssembly, which has targets of its own (`crates/wasm`).

use std::sync::Arc;

use nearside_ndp::program::{self, Begin, Emitted, Engine, Program, Run, Step};
use nearside_near_data::Language;

/// What a program emits before it is taken.
const PIECE: usize = 1000;

struct Echoes;

#[derive(Debug)]
struct Echo(u8);

/// Emits what it reads, by pieces; some fail, or go on for long.
struct Echoing {
    how: u8,
    begin: Begin,
    at: u64,
    steps: u64,
    emitted: Option<Emitted>,
    ended: bool,
}

impl Engine for Echoes {
    fn compile(&self, code: &[u8]) -> Result<Arc<dyn Program>, String> {
        match code.first() {
            Some(how) if *how < 0xf0 => Ok(Arc::new(Echo(*how))),
            _ => Err("no program".to_owned()),
        }
    }
}

impl Program for Echo {
    fn begin(&self, begin: Begin) -> Result<Box<dyn Run>, String> {
        let at = begin.offset;
        Ok(Box::new(Echoing { how: self.0, begin, at, steps: 0, emitted: None, ended: false }))
    }

    fn memory(&self) -> usize {
        1
    }
}

impl Run for Echoing {
    fn step(&mut self) -> Step {
        self.steps += 1;
        match self.how {
            _ if self.emitted.is_some() => Step::Emitted,
            1 => Step::Failed("it fails".to_owned()),
            2 if self.steps < self.begin.fuel.min(1_000) => Step::Pause,
            3 if self.steps == 1 => Step::Long,
            _ if self.ended => Step::Ended,
            4 => Step::Wants(self.begin.size.saturating_add(u64::from(self.how))),
            _ => Step::Wants(self.at),
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        let piece = bytes.get(..PIECE.min(bytes.len())).unwrap_or_default();
        self.ended = piece.is_empty();
        self.at += piece.len() as u64;
        let emitted = Emitted { bytes: piece.to_vec(), restart: self.at, nth: 0 };
        self.emitted = (!self.ended).then_some(emitted);
    }

    fn emitted(&self) -> Option<&Emitted> {
        self.emitted.as_ref()
    }

    fn taken(&mut self) {
        self.emitted = None;
    }

    fn memory(&self) -> usize {
        1
    }
}

/// Has the drives of this process run them.
pub fn install() {
    program::install(Language::WebAssembly, || Ok(Box::new(Echoes)));
}
