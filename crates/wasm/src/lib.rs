#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A program is compiled once ([`Engine`]), after `check` has looked at what cannot be interrupted: Wasmtime
//! counts fuel at the beginning of functions and of loops, so that what lies between two of them is bounded.
//! A [`Run`](nearside_ndp::program::Run) is a store with a future that runs in it, on a stack of its own;
//! polled, it goes on until its slice is spent, until it waits for bytes, or until what it has emitted is to
//! be taken. `host` is what the program can ask for.
//!
//! Nothing here relies on signals: bounds are compared. A drive may so be part of any process.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod check;
mod host;
mod run;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use nearside_ndp::program::{self, Begin, MAX_MEMORY, max_code};
use nearside_near_data::Language;
use wasmtime::{Config, InstancePre, Linker, Module, OptLevel};

use host::Host;
use run::{Place, WasmRun};

/// Stack of a program.
const STACK: usize = 256 << 10;

/// Compiles programs for this machine.
pub struct Engine {
    engine: wasmtime::Engine,
    linker: Linker<Host>,
    /// Runs that there are.
    runs: Arc<AtomicUsize>,
}

impl Engine {
    /// An engine.
    ///
    /// # Errors
    /// This processor is none that programs can be compiled for.
    pub fn new() -> Result<Engine, String> {
        let engine = wasmtime::Engine::new(&config()).map_err(|e| format!("{e:#}"))?;
        let mut linker = Linker::new(&engine);
        host::define(&mut linker).map_err(|e| format!("{e:#}"))?;
        Ok(Engine { engine, linker, runs: Arc::default() })
    }
}

/// Has this process' drives run programs.
pub fn install() {
    program::install(Language::WebAssembly, || Ok(Box::new(Engine::new()?)));
}

/// How programs are compiled and run.
fn config() -> Config {
    let mut config = Config::new();
    config.async_support(true).consume_fuel(true);
    config.max_wasm_stack(STACK).async_stack_size(STACK + (256 << 10));
    config.cranelift_opt_level(OptLevel::Speed);
    // The process' signals are its own.
    config.signals_based_traps(false);
    config.memory_reservation(MAX_MEMORY as u64).memory_guard_size(64 << 10);
    config.memory_reservation_for_growth(0);
    // One instruction of these does as much as its operand says, and counts as one.
    config.wasm_bulk_memory(false);
    // Others do what the processor does, which may be another's tomorrow.
    config.wasm_relaxed_simd(false);
    config.wasm_memory64(false).wasm_multi_memory(false).wasm_tail_call(false);
    config
}

impl program::Engine for Engine {
    fn compile(&self, code: &[u8]) -> Result<Arc<dyn program::Program>, String> {
        let most = max_code(Language::WebAssembly);
        if code.len() > most {
            return Err(format!("{} bytes: a program has at most {most}", code.len()));
        }
        check::check(code)?;
        let module = Module::new(&self.engine, code).map_err(|e| sentence(&e))?;
        let ready = self.linker.instantiate_pre(&module).map_err(|e| sentence(&e))?;
        Ok(Arc::new(WasmProgram { ready, code: code.len(), runs: self.runs.clone() }))
    }
}

/// An error of Wasmtime's, in one line.
fn sentence(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().to_owned()
}

struct WasmProgram {
    ready: InstancePre<Host>,
    code: usize,
    runs: Arc<AtomicUsize>,
}

impl fmt::Debug for WasmProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmProgram").field("code", &self.code).finish_non_exhaustive()
    }
}

impl program::Program for WasmProgram {
    fn begin(&self, file: Begin) -> Result<Box<dyn program::Run>, String> {
        let place = Place::take(&self.runs)
            .ok_or("so many programs run here now that there is no room for one more")?;
        Ok(Box::new(WasmRun::begin(&self.ready, file, place).map_err(|e| sentence(&e))?))
    }

    fn memory(&self) -> usize {
        let image = self.ready.module().image_range();
        (image.end as usize).saturating_sub(image.start as usize).saturating_add(self.code)
    }
}
