//! Which of many cases a run takes. `NEARSIDE_DAY` is the number that says it, which `make test` takes from
//! the calendar: what is left to other days is tried within as many of them. Without it a run takes all.

/// Whether the case of this number, from 0, is one of today's, of which there are one in `days`.
///
/// # Panics
/// Where `NEARSIDE_DAY` is no number.
pub fn takes(nth: usize, days: usize) -> bool {
    match std::env::var("NEARSIDE_DAY") {
        Ok(day) if !day.is_empty() => {
            // As `date +%j` has it, with zeros before it.
            let day: usize = day.parse().unwrap_or_else(|e| panic!("NEARSIDE_DAY={day}: {e}"));
            nth % days == day % days
        }
        _ => true,
    }
}

/// Today's of some cases, one in `days`.
pub fn of<T>(cases: impl IntoIterator<Item = T>, days: usize) -> impl Iterator<Item = T> {
    cases.into_iter().enumerate().filter(move |(nth, _)| takes(*nth, days)).map(|(_, case)| case)
}
