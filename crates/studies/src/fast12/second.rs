//! The paper's second process (section 3.3): scheduled to run on the CPU of the I/O, it "continuously checked CPU timestamps to detect its
//! scheduled period at a sub-microsecond granularity".
//!
//! It runs at idle priority, so that whoever has I/O to do gets the CPU at once, and reads the counter without pause; two readings that lie far apart
//! are the end of one period and the beginning of the next. The parent takes the periods from its standard output when it is told to stop.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nearside_dma::{cpu, tsc};

use crate::Failure;

/// Two readings further apart than this were interrupted: some hundred nanoseconds are what a reading with all around it takes at worst.
const GAP_NS: u64 = 400;
/// Periods that it remembers.
const MOST: usize = 4_000_000;

/// A period in which it ran, in ticks of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its first reading.
    pub from: u64,
    /// Its last.
    pub to: u64,
}

/// The process's whole work: `core ticks-of-the-gap`; runs until its standard input ends.
///
/// # Errors
/// Words that are none, a core that it may not use.
pub fn main(words: &[String]) -> Result<(), Failure> {
    let [core, gap] = words else { return Err("the second process takes a core and a gap".into()) };
    let (core, gap) = (core.parse()?, gap.parse()?);
    cpu::pin_to_core(core)?;
    cpu::be_idle_priority()?;
    let mut slots = Vec::with_capacity(MOST);
    static TOLD: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        TOLD.store(true, Ordering::Relaxed);
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    slots_until(&TOLD, gap, &mut slots);
    // It may take its time now: at its priority it would not get any where the core is taken.
    for slot in &slots {
        out.write_all(&slot.from.to_le_bytes())?;
        out.write_all(&slot.to.to_le_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn slots_until(told: &AtomicBool, gap: u64, slots: &mut Vec<Slot>) {
    let mut last = tsc::read();
    let mut slot = Slot { from: last, to: last };
    while !told.load(Ordering::Relaxed) && slots.len() < MOST {
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
    /// Starts it on `core`, by a command that makes it call [`main`] with the words added here. Ready when this returns.
    pub fn start(mut helper: Command, core: usize, ticks: impl Fn(u64) -> u64) -> Result<Second, Failure> {
        helper.args([core.to_string(), ticks(GAP_NS).to_string()]);
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

    /// Ends it: the periods in which it ran. The caller's core should be another, or idle.
    pub fn stop(mut self) -> Result<Vec<Slot>, Failure> {
        drop(self.child.stdin.take());
        let mut bytes = Vec::new();
        self.child.stdout.take().ok_or("the second process has no output")?.read_to_end(&mut bytes)?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("the second process ended with {status}").into());
        }
        let number = |b: &[u8]| b.try_into().map(u64::from_le_bytes).unwrap_or_default();
        Ok(bytes.chunks_exact(16).map(|b| Slot { from: number(&b[..8]), to: number(&b[8..]) }).collect())
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many of the ticks from `from` to `to` lie within slots; these are in order.
pub fn within(slots: &[Slot], from: u64, to: u64) -> u64 {
    let first = slots.partition_point(|s| s.to <= from);
    let overlap = |s: &Slot| s.to.min(to).saturating_sub(s.from.max(from));
    slots[first..].iter().take_while(|s| s.from < to).map(overlap).sum()
}

/// How long a second process is given to see that it runs at all.
pub const SETTLE: Duration = Duration::from_millis(20);

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
