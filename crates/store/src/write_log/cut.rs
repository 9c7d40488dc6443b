//! Which writes an instant has: all of them, or what a power cut may leave.

use nearside_random::Rng;

use super::format::{Entry, Flags};
use super::reader::LogError;

/// A power cut: what was not flushed survives in part, by a seeded draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Of the draw. How many of the writes survive, from none to all, is drawn as well.
    pub seed: u64,
    /// Whether a write may survive in some of its sectors only; no sector is ever torn.
    pub torn: bool,
}

/// A run of an entry's sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The entry.
    pub entry: Entry,
    /// Its first sector of the run, from 0.
    pub from: u64,
    /// Sectors.
    pub sectors: u64,
}

impl Part {
    /// All of an entry.
    pub fn whole(entry: Entry) -> Part {
        Part { entry, from: 0, sectors: entry.sectors }
    }
}

/// What makes an instant: the first entries, all of them and in order, then these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivors {
    /// So many first entries.
    pub first: u64,
    /// What survives of the others, in the order in which it is to be applied.
    pub then: Vec<Part>,
    /// How many of the others are left out, wholly or in part.
    pub lost: u64,
}

/// What the instant after the first `at` entries has. `entries` are the log's, from its first one or from any
/// flush on, in order.
///
/// Without a cut it is all of them. With one, it is what stands before the last flush, each write with FUA
/// behind it, and any of the other writes and discards behind it, in any order; but none that was
/// there before a write with FUA comes after that.
///
/// # Errors
/// What `entries` says; [`LogError::Beyond`] where they end before.
pub fn survivors(
    entries: impl IntoIterator<Item = Result<Entry, LogError>>,
    at: u64,
    cut: Option<Cut>,
) -> Result<Survivors, LogError> {
    let Some(cut) = cut else { return Ok(Survivors { first: at, then: Vec::new(), lost: 0 }) };
    let (mut first, mut period, mut seen) = (0, Vec::new(), 0);
    for entry in entries {
        let entry = entry?;
        if entry.index >= at {
            break;
        }
        seen = entry.index + 1;
        if entry.flags.has(Flags::FLUSH) {
            // Of an entry with data, the flush comes before them.
            first = if entry.mutates() { entry.index } else { entry.index + 1 };
            period.clear();
        }
        if entry.mutates() {
            period.push(entry);
        }
    }
    if seen < at {
        return Err(LogError::Beyond { asked: at, entries: seen });
    }
    let mut random = Rng(cut.seed);
    // Of eight: with equal odds for all writes of all cuts, hardly any cut would lose nearly all or nothing.
    let odds = random.below(9);
    let (mut then, mut lost) = (Vec::new(), 0);
    for run in period.chunk_by(|before, _| !before.flags.has(Flags::FUA)) {
        let begin = then.len();
        let durable = run.last().filter(|last| last.flags.has(Flags::FUA));
        let cached = &run[..run.len() - usize::from(durable.is_some())];
        for entry in cached {
            let kept = random.below(8) < odds;
            if kept && cut.torn && entry.sectors > 1 && random.below(2) == 0 {
                lost += u64::from(tear(entry, &mut random, &mut then));
            } else if kept {
                then.push(Part::whole(*entry));
            } else {
                lost += 1;
            }
        }
        let kept = &mut then[begin..];
        for nr in (1..kept.len()).rev() {
            kept.swap(nr, random.index(nr + 1));
        }
        then.extend(durable.map(|entry| Part::whole(*entry)));
    }
    Ok(Survivors { first, then, lost })
}

/// Sectors that are drawn one by one at most; what follows them goes with the last.
const TEARS: u64 = 4096;

/// Keeps some of a write's sectors; whether any is lost.
fn tear(entry: &Entry, random: &mut Rng, then: &mut Vec<Part>) -> bool {
    let (mut lost, mut run) = (false, 0);
    let drawn = entry.sectors.min(TEARS);
    for sector in 0..=drawn {
        let end = sector == drawn;
        let kept = !end && random.below(2) == 0;
        if kept {
            run += 1;
            continue;
        }
        let more = if end && run > 0 { entry.sectors - drawn } else { 0 };
        lost |= !end || (run == 0 && entry.sectors > drawn);
        if run > 0 {
            then.push(Part { entry: *entry, from: sector - run, sectors: run + more });
        }
        run = 0;
    }
    lost
}
