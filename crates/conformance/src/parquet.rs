//! A file of Parquet selected from as the retriever does it, without a drive: the bytes that are wanted are
//! handed on in pieces, what takes long is timed, and an answer may go on with another selector after each
//! batch.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nearside_ndp::select::parquet::{TAIL, begins};
use nearside_ndp::select::{Fault, Place, Selection, Selector, Step, Table};

/// How a file is handed on.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Most bytes at once.
    pub piece: usize,
    /// Bytes that a batch may have.
    pub room: usize,
    /// After each batch another selector goes on.
    pub again: bool,
    /// Slices after which it is given up.
    pub slices: u64,
}

impl Default for How {
    fn default() -> How {
        How { piece: usize::MAX, room: 1 << 20, again: false, slices: u64::MAX }
    }
}

/// What was answered.
#[derive(Debug, Default)]
pub struct Said {
    /// Rows, as text.
    pub rows: Vec<String>,
    /// How many were passed over.
    pub bad: u64,
    /// Why there are no more.
    pub fault: Option<Fault>,
    /// It was given up.
    pub given_up: bool,
    /// Bytes of the file that were wanted, the footer's among them.
    pub bytes: u64,
    /// The longest step of what takes long.
    pub longest: Duration,
    /// The most units of a slice.
    pub most: u64,
    /// All of them.
    pub units: u64,
    /// Row groups that were looked at, and all.
    pub groups: Option<(usize, usize)>,
    slices: u64,
}

/// Polls until it is done; `None`: too many slices.
fn polled<T>(work: impl Future<Output = T>, slices: &mut u64, most: u64) -> Option<T> {
    let mut work = pin!(work);
    while *slices < most {
        *slices += 1;
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
    }
    None
}

/// Selects from a file.
pub fn select(selection: &Arc<Selection>, file: &[u8], how: How) -> Said {
    let mut said = Said::default();
    let size = file.len() as u64;
    let mut planned = || {
        let from = file.len().saturating_sub(TAIL as usize);
        let at = begins(&file[from..], size)?;
        said.bytes += size - at.min(from as u64);
        selection.plan_of(&file[at as usize..], at)
    };
    let plan = match planned() {
        Ok(plan) => Arc::new(plan),
        Err(fault) => return Said { fault: Some(fault), ..said },
    };
    said.groups = plan.row_groups();
    let mut at = Place::default();
    loop {
        let mut selector = Selector::new(selection);
        selector.begin(Arc::clone(&plan), at);
        let ended = run(&mut selector, file, how, &mut said);
        let (most, units) = selector.spent();
        (said.most, said.units) = (said.most.max(most), said.units + units);
        match ended {
            Ok(true) => return said,
            Ok(false) => {
                let next = selector.stopped();
                assert!(next.found > at.found || next.row > at.row, "no progress: {next:?}");
                at = next;
            }
            Err(fault) => {
                if selector.has_batch() {
                    take(&mut selector, &mut said, how);
                }
                said.fault = Some(fault);
                return said;
            }
        }
    }
}

/// A plan's rows by one selector; `false`: another goes on.
fn run(selector: &mut Selector, file: &[u8], how: How, said: &mut Said) -> Result<bool, Fault> {
    let (mut batches, mut ended) = (0, false);
    let mut piece: &[u8] = &[];
    loop {
        let step = match ended {
            false => polled(selector.feed(&mut piece, how.room), &mut said.slices, how.slices),
            true => polled(selector.end(how.room), &mut said.slices, how.slices),
        };
        let Some(step) = step else {
            said.given_up = true;
            return Ok(true);
        };
        match step? {
            Step::Batch if how.again && batches == 1 => return Ok(false),
            Step::Batch => {
                batches += 1;
                take(selector, said, how);
            }
            Step::Long => {
                let long = selector.long().expect("what takes long");
                let begun = Instant::now();
                let done = long.read();
                said.longest = said.longest.max(begun.elapsed());
                selector.take_long(done)?;
            }
            Step::More if !ended => {
                assert!(piece.is_empty(), "{} bytes are left", piece.len());
                let (from, to) = *selector.wants().first().expect("it wants something");
                assert!(from < to && to <= file.len() as u64, "{from} to {to} of {}", file.len());
                let (from, to) = (from as usize, to as usize);
                piece = &file[from..to.min(from.saturating_add(how.piece.max(1)))];
                said.bytes += piece.len() as u64;
            }
            Step::Done if !ended => ended = true,
            Step::More | Step::Done => break,
        }
    }
    if selector.has_batch() {
        if how.again && batches == 1 {
            return Ok(false);
        }
        take(selector, said, how);
    }
    Ok(true)
}

fn take(selector: &mut Selector, said: &mut Said, how: How) {
    let (rows, bad, stream) = selector.batch();
    let table = Table::read(stream).unwrap_or_else(|error| panic!("a batch of its own: {error}"));
    assert_eq!(table.rows() as u64, rows);
    assert!(stream.len() <= how.room || rows <= 1, "{} bytes of {rows} rows in {}", stream.len(), how.room);
    for row in 0..table.rows() {
        let values = (0..table.columns().len()).map(|column| table.value(row, column).to_string());
        said.rows.push(values.collect::<Vec<_>>().join(" "));
    }
    said.bad += bad;
    selector.taken();
}
