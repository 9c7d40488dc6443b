//! The largest multiple that passes: doubled until one fails, then halved between. A drive that passes at
//! some multiple is taken to pass below it, as ACT takes it.

use serde::{Deserialize, Serialize};

use super::judge::Failed;

/// One multiple that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Times the unit.
    pub multiple: u32,
    /// By what it failed.
    pub failed: Option<Failed>,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Largest {
    /// The largest multiple that passed; 0: not even one.
    pub multiple: u32,
    /// It passed at the bound of the search: the drive may take more.
    pub at_least: bool,
    /// In the order of trying.
    pub tried: Vec<Tried>,
}

/// Searches from `first` up to `most`, with one run (`try_one`) for each multiple. Errors are the run's.
///
/// # Errors
/// The first error of `try_one`.
pub fn largest<E>(
    first: u32,
    most: u32,
    mut try_one: impl FnMut(u32) -> Result<Result<(), Failed>, E>,
) -> Result<Largest, E> {
    let most = most.max(1);
    let mut tried = Vec::new();
    let mut passes = |multiple: u32| -> Result<bool, E> {
        let failed = try_one(multiple)?.err();
        let passed = failed.is_none();
        tried.push(Tried { multiple, failed });
        Ok(passed)
    };
    let (mut good, mut bad) = (0, most.saturating_add(1));
    let mut next = first.clamp(1, most);
    while good + 1 < bad {
        if passes(next)? {
            good = next;
        } else {
            bad = next;
        }
        next = if bad > most { good.saturating_mul(2).min(most) } else { good + (bad - good) / 2 };
    }
    Ok(Largest { multiple: good, at_least: good == most, tried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_from_anywhere() {
        for limit in [0u32, 1, 2, 7, 40, 150, 999, 1000] {
            for first in [1, 10, 150, 1000] {
                let found = largest::<()>(first, 1000, |m| {
                    Ok(if m <= limit { Ok(()) } else { Err(Failed::NothingJudged) })
                })
                .unwrap();
                assert_eq!((found.multiple, found.at_least), (limit, limit == 1000), "from {first}");
                assert!(found.tried.len() <= 21, "{} tries for {limit} from {first}", found.tried.len());
            }
        }
        assert_eq!(largest(1, 10, |_| Err::<Result<(), Failed>, _>("broken")), Err("broken"));
    }
}
