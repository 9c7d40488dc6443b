//! The paper's second process (section 3.3): scheduled to run on the CPU of the I/O, it "continuously checked
//! CPU timestamps to detect its scheduled period at a sub-microsecond granularity".
//!
//! (The other work that it can be given is a neighbour's: see [`Walk`].)
//!
//! It runs at idle priority, so that whoever has I/O to do gets the CPU at once, and reads the counter
//! without pause; two readings that lie far apart are the end of one period and the beginning of the next.
//! The parent takes the periods from its standard output when it is told to stop.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::{Clock, TscClock};
use nearside_dma::{cpu, tsc};
use serde::{Deserialize, Serialize};

use super::counters::{Counter, Event};
use crate::Failure;

/// Two readings further apart than this were interrupted:
/// some hundred nanoseconds are what a reading with all around it takes at worst.
const GAP_NS: u64 = 400;
/// Periods that it remembers.
const MOST: usize = 4_000_000;

/// A period in which it ran: ticks of the time-stamp counter within the process,
/// nanoseconds of [`TscClock`] in its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its first reading.
    pub from: u64,
    /// Its last.
    pub to: u64,
}

/// The process's whole work, until its standard input ends:
/// `slots CORE GAP_TICKS`, or `walk CORE BYTES [EVENT]`.
///
/// # Errors
/// Words that are none, a core that it may not use.
pub fn main(words: &[String]) -> Result<(), Failure> {
    let [work, core, number, event @ ..] = words else {
        return Err("the second process takes its work, a core and a number".into());
    };
    let number: u64 = number.parse()?;
    cpu::pin_to_core(core.parse()?)?;
    cpu::be_idle_priority()?;
    let mut out = std::io::stdout().lock();
    let bytes: Vec<u8> = match &**work {
        "slots" => {
            let mut slots = Vec::with_capacity(MOST);
            ready(&mut out)?;
            slots_until(number, &mut slots);
            slots.iter().flat_map(|s| [s.from, s.to]).flat_map(u64::to_le_bytes).collect()
        }
        "walk" => {
            let event = event.first().map(|name| Event::named(name).ok_or("no event is called that"));
            let mut counter = event.transpose()?.map(Counter::open);
            let lines = ring(number as usize);
            ready(&mut out)?;
            serde_json::to_vec(&walk_until(&lines, &mut counter)?)?
        }
        _ => return Err(format!("{work:?} is no work of the second process").into()),
    };
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(())
}

/// The parent has said that it is over.
static TOLD: AtomicBool = AtomicBool::new(false);

fn ready(out: &mut impl Write) -> Result<(), Failure> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        TOLD.store(true, Ordering::Relaxed);
    });
    writeln!(out, "ready")?;
    Ok(out.flush()?)
}

/// A neighbour that walks through memory of its own, one dependent load after another:
/// what its cache keeps shows in how long a step takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Walk {
    /// Loads.
    pub steps: u64,
    /// CPU time that the process had for them, in nanoseconds.
    pub cpu_ns: u64,
    /// What the counter that was asked for counted meanwhile, in user mode, or why it did not.
    pub counted: Option<Result<f64, String>>,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// A cache line of a ring; its first word is the next line's number.
pub type Line = [u64; LINE / 8];

/// One ring through the lines of so many bytes, in a drawn order.
pub fn ring(bytes: usize) -> Vec<Line> {
    let count = (bytes / LINE).max(2);
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 7;
    for i in (1..count).rev() {
        order.swap(i, (nearside_random::draw(&mut state) % (i as u64 + 1)) as usize);
    }
    let mut lines = vec![[0; LINE / 8]; count];
    for (i, &at) in order.iter().enumerate() {
        lines[at][0] = order[(i + 1) % count] as u64;
    }
    lines
}

/// So many steps through a ring; where they lead.
#[inline]
pub fn steps(lines: &[Line], from: usize, count: usize) -> usize {
    (0..count).fold(from, |at, _| lines[at][0] as usize)
}

fn walk_until(lines: &[Line], counter: &mut Option<Result<Counter, String>>) -> Result<Walk, Failure> {
    const LOOK: usize = 256;
    let (mut at, mut taken) = (0, 0);
    let mut walk = || {
        while !TOLD.load(Ordering::Relaxed) {
            at = steps(lines, at, LOOK);
            taken += LOOK as u64;
        }
    };
    let before = cpu::thread_cpu_ns()?;
    let counted = match counter {
        Some(Ok(counter)) => Some(counter.count(walk).map(|(count, ())| count)),
        Some(Err(why)) => {
            walk();
            Some(Err(why.clone()))
        }
        None => {
            walk();
            None
        }
    };
    std::hint::black_box(at);
    Ok(Walk { steps: taken, cpu_ns: cpu::thread_cpu_ns()? - before, counted })
}

fn slots_until(gap: u64, slots: &mut Vec<Slot>) {
    let mut last = tsc::read();
    let mut slot = Slot { from: last, to: last };
    while !TOLD.load(Ordering::Relaxed) && slots.len() < MOST {
        let now = tsc::read();
        if now.saturating_sub(last) > gap {
            slot.to = last;
            slots.push(slot);
            slot.from = now;
        }
        last = now;
    }
    slots.push(Slot { to: last, ..slot });
}

/// A second process that runs.
pub struct Second {
    child: Child,
}

impl Second {
    /// One that notes its slots, on `core`; `helper` is a command that makes it call [`main`] with the words
    /// added here. Ready when this returns.
    ///
    /// # Errors
    /// That the process cannot be started, or does not get ready.
    pub fn slots(mut helper: Command, core: usize) -> Result<Second, Failure> {
        let gap = TscClock::new().ticks(GAP_NS);
        helper.args(["slots".to_owned(), core.to_string(), gap.to_string()]);
        Second::start(helper)
    }

    /// One that walks through so many bytes, and counts its own events.
    ///
    /// # Errors
    /// That the process cannot be started, or does not get ready.
    pub fn walk(
        mut helper: Command,
        core: usize,
        bytes: u64,
        event: Option<Event>,
    ) -> Result<Second, Failure> {
        let words = ["walk".to_owned(), core.to_string(), bytes.to_string()];
        helper.args(words).args(event.map(Event::name));
        Second::start(helper)
    }

    fn start(mut helper: Command) -> Result<Second, Failure> {
        let child = helper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut second = Second { child };
        let mut line = String::new();
        let out = second.child.stdout.as_mut().ok_or("the second process has no output")?;
        // Byte by byte: what follows the line is not to be lost in a buffer.
        BufReader::with_capacity(1, out).read_line(&mut line)?;
        if line != "ready\n" {
            return Err(format!("the second process did not start: {line:?}").into());
        }
        Ok(second)
    }

    /// Ends it: what it leaves.
    fn end(mut self) -> Result<Vec<u8>, Failure> {
        drop(self.child.stdin.take());
        let mut bytes = Vec::new();
        self.child.stdout.take().ok_or("the second process has no output")?.read_to_end(&mut bytes)?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("the second process ended with {status}").into());
        }
        Ok(bytes)
    }

    /// Ends one that walks.
    ///
    /// # Errors
    /// That it ended otherwise, or told something else.
    pub fn walked(self) -> Result<Walk, Failure> {
        Ok(serde_json::from_slice(&self.end()?)?)
    }

    /// Ends one that notes its slots. The caller's core should be another, or idle.
    ///
    /// # Errors
    /// That it ended otherwise, or told something else.
    pub fn stop(self) -> Result<Vec<Slot>, Failure> {
        let number = |b: &[u8]| b.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let numbers: Vec<u64> = self.end()?.chunks_exact(8).map(number).collect();
        // Both processes read one counter; its origin is that of neither clock.
        let clock = TscClock::new();
        let (now, tick, rate) = (clock.now().0, tsc::read(), clock.ticks(1_000_000_000).max(1));
        let ns = |at: u64| {
            let ago = u128::from(tick.saturating_sub(at)) * 1_000_000_000 / u128::from(rate);
            now.saturating_sub(ago as u64)
        };
        Ok(numbers.chunks_exact(2).map(|s| Slot { from: ns(s[0]), to: ns(s[1]) }).collect())
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How much of the time from `from` to `to` lies within slots; these are in order.
pub fn within(slots: &[Slot], from: u64, to: u64) -> u64 {
    let first = slots.partition_point(|s| s.to <= from);
    let overlap = |s: &Slot| s.to.min(to).saturating_sub(s.from.max(from));
    slots[first..].iter().take_while(|s| s.from < to).map(overlap).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_within_counts() {
        let slots = [(10, 20), (30, 35), (50, 90)].map(|(from, to)| Slot { from, to });
        for (from, to, ticks) in
            [(0, 10, 0), (0, 15, 5), (12, 14, 2), (15, 60, 20), (20, 30, 0), (60, 200, 30)]
        {
            assert_eq!(within(&slots, from, to), ticks, "{from} to {to}");
        }
        assert_eq!(within(&[], 0, 100), 0);
    }
}
