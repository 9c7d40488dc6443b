//! Near-data figures: locating, searching, and what FSR saves against the paths that DAC'23 compares it with.

use std::ops::ControlFlow;
use std::sync::Arc;

use nearside_clock::{Clock, TscClock};
use nearside_embedded::{AnyStore, Embedded, Options, firmware};
use nearside_firmware::Fsr;
use nearside_fsrlib::{
    Answer, Ask, Operation, Record, Route, SearchOptions, SearchTotals, Session, Summary, Transport,
};
use nearside_store::FileOptions;

use crate::Failure;

/// A drive with firmware over any store.
pub type Drive = Embedded<AnyStore, Fsr>;

/// A session with a drive over the store that `word` names (see [`AnyStore`]).
///
/// # Errors
/// What is wrong with the word, or why the drive cannot be.
pub fn session(word: &str, options: &Options) -> Result<Session<Drive>, Failure> {
    let store = AnyStore::open(word, FileOptions::read())?;
    Ok(Session::new(Embedded::start(store, firmware(), options)?, Arc::new(TscClock::new())))
}

/// A literal search that answers how many lines match in all.
pub fn count_of(pattern: &str) -> Operation {
    Operation::Search(SearchOptions {
        patterns: vec![pattern.into()],
        fixed: true,
        text: true,
        answer: Answer::Total,
        ..SearchOptions::default()
    })
}

/// Lines found by an operation of [`count_of`], what it cost, and how long it took by the session's clock.
///
/// # Errors
/// The command's.
pub fn search<T: Transport>(session: &mut Session<T>, ask: &Ask) -> Result<(u64, Summary, u64), Failure> {
    let mut found = 0;
    let clock = session.clock().clone();
    let start = clock.now();
    let summary = session.stream(ask, |record| {
        if let Record::Total(SearchTotals { matches, .. }) = record {
            found += matches;
        }
        ControlFlow::Continue(())
    })?;
    Ok((found, summary, clock.now().since(start)))
}

/// What one operation on one path costs by each route, averaged over `paths`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteCost {
    /// Nanoseconds per file, from asking to having the answer.
    pub total_ns: f64,
    /// Of those, locating (in the drive or on the host).
    pub locate_ns: f64,
    /// Commands per file.
    pub commands: f64,
    /// Bytes moved per file, both ways.
    pub bytes: f64,
    /// Lines found in all.
    pub found: u64,
}

/// Searches each of `paths` by a route.
///
/// # Errors
/// The first command's that fails.
pub fn by_route(
    session: Session<Drive>,
    route: Route,
    host_cache: bool,
    paths: &[String],
    pattern: &str,
) -> Result<(RouteCost, Session<Drive>), Failure> {
    let mut session = session.with_route(route).with_host_cache(host_cache);
    let mut cost = RouteCost::default();
    let n = paths.len().max(1) as f64;
    for path in paths {
        let (found, summary, ns) = search(&mut session, &Ask::path(path.as_str(), count_of(pattern)))?;
        cost.found += found;
        cost.total_ns += ns as f64 / n;
        cost.locate_ns += summary.counters.locate_ns as f64 / n;
        cost.commands += summary.moved.commands() as f64 / n;
        cost.bytes += (summary.moved.bytes_in + summary.moved.bytes_out) as f64 / n;
    }
    Ok((cost, session))
}
