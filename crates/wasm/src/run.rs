//! A program over a file.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use nearside_ndp::program::{Begin, Emitted, Run, Step};
use wasmtime::{InstancePre, Result, Store, Trap, WasmBacktrace};

use crate::host::{Host, SLICE, Shared, lock};

type Going = Pin<Box<dyn Future<Output = (Result<()>, Store<Host>)> + Send>>;

pub(crate) struct WasmRun {
    /// Behind a lock that nobody takes: what cannot be shared between threads may be part of what can.
    going: Mutex<Option<Going>>,
    /// What is left of it: the program's memory, which goes with the run and not in a step of it.
    rest: Mutex<Option<Store<Host>>>,
    shared: Arc<Mutex<Shared>>,
    /// The oldest record, taken out of what is shared.
    emitted: Option<Emitted>,
    failed: Option<String>,
    _place: Place,
}

/// Runs that there may be at a time: each has up to 16 MiB.
const MOST: usize = 64;

/// One of the places for runs.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes one, where one is free.
    pub(crate) fn take(taken: &Arc<AtomicUsize>) -> Option<Place> {
        let place = Place(taken.clone());
        (taken.fetch_add(1, Ordering::Relaxed) < MOST).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn run(ready: &InstancePre<Host>, store: &mut Store<Host>) -> Result<()> {
    let instance = ready.instantiate_async(&mut *store).await?;
    store.data_mut().memory = instance.get_memory(&mut *store, "memory");
    let run = instance.get_typed_func::<(), ()>(&mut *store, "run")?;
    run.call_async(store, ()).await
}

impl WasmRun {
    pub(crate) fn begin(ready: &InstancePre<Host>, begin: Begin, place: Place) -> Result<WasmRun> {
        let fuel = begin.fuel;
        let shared = Arc::new(Mutex::new(Shared::new(begin)));
        let mut store = Store::new(ready.module().engine(), Host::new(shared.clone(), fuel));
        store.limiter(|host| &mut host.limits);
        store.set_fuel(fuel)?;
        store.fuel_async_yield_interval(Some(SLICE))?;
        let ready = ready.clone();
        let going: Going = Box::pin(async move { (run(&ready, &mut store).await, store) });
        let (going, rest) = (Mutex::new(Some(going)), Mutex::default());
        Ok(WasmRun { going, rest, shared, emitted: None, failed: None, _place: place })
    }
}

impl Run for WasmRun {
    fn step(&mut self) -> Step {
        let going = self.going.get_mut().unwrap_or_else(|e| e.into_inner());
        let mut full = self.emitted.is_some();
        if let Some(on) = going.as_mut().filter(|_| !full) {
            match on.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready((result, store)) => {
                    (*going, self.rest) = (None, Mutex::new(Some(store)));
                    let said = lock(&self.shared).failed.take();
                    self.failed = result.err().map(|e| said.unwrap_or_else(|| why(&e)));
                }
                Poll::Pending => full = lock(&self.shared).is_full(),
            }
        }
        let mut shared = lock(&self.shared);
        if full || going.is_none() {
            // Once it waits for that, all goes.
            self.emitted = self.emitted.take().or_else(|| shared.pop());
            if self.emitted.is_some() {
                return Step::Emitted;
            }
        }
        match (&*going, &self.failed) {
            (None, Some(why)) => Step::Failed(why.clone()),
            (None, None) => Step::Ended,
            (Some(_), _) if shared.wants => Step::Wants(shared.position()),
            (Some(_), _) => Step::Pause,
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        lock(&self.shared).give(bytes);
    }

    fn emitted(&self) -> Option<&Emitted> {
        self.emitted.as_ref()
    }

    fn taken(&mut self) {
        self.emitted = lock(&self.shared).pop();
    }

    fn memory(&self) -> usize {
        lock(&self.shared).memory
    }
}

/// Why a program ended before its end, and in which function.
fn why(error: &wasmtime::Error) -> String {
    let what = match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => "it has used up its fuel".to_owned(),
        Some(trap) => trap.to_string(),
        None => error.root_cause().to_string(),
    };
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames).unwrap_or_default();
    match frames.iter().find_map(|frame| frame.func_name()) {
        Some(name) => format!("{what} (in {name})"),
        None => what,
    }
}
