//! Long runs of zeros (holes), handled without looking at each of them.
//!
//! A matcher that has read enough NULs goes around in circles: whether a line matches depends then only on
//! where in the circle it leaves. [`Holes`] knows from the expression how many NULs are enough and how long
//! the circles are; so a run of any length is searched as one of the least length that no expression could
//! tell from it. A CRC of zeros is put together from its halves.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Longest circle that is followed. Expressions with longer ones count NULs, and see them all.
const CIRCLE: u64 = 8;
/// The most NULs that stand for a run.
const MOST: u64 = 1 << 20;

/// How a run of zeros is shortened for a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holes {
    /// So many are enough.
    least: u64,
    /// Longer runs that differ by a multiple of this are alike.
    period: u64,
}

impl Holes {
    /// For strings, of at most `longest` bytes.
    pub(crate) fn of_strings(longest: usize) -> Holes {
        // One byte more on either side, for the ends of words.
        Holes { least: longest as u64 + 2, period: 1 }
    }

    /// For an expression; `None` where only its matcher knows.
    pub(crate) fn of(hir: &Hir) -> Option<Holes> {
        let mut circles = Circles { period: 1, count: 0 };
        let longest = circles.longest(hir)?;
        // By the way through the matcher: a path without circles, then circles, of which whole multiples of
        // the period can be left out as long as fewer of each length would not do; one of each stays, since
        // others may begin in it.
        let least = longest + CIRCLE * circles.period + CIRCLE * circles.count + 2;
        (least + circles.period <= MOST).then_some(Holes { least, period: circles.period })
    }

    /// How many zeros stand for `len` of them.
    pub(crate) fn stand_in(self, len: u64) -> u64 {
        match len.checked_sub(self.least) {
            None => len,
            Some(more) => self.least + more % self.period,
        }
    }
}

struct Circles {
    period: u64,
    count: u64,
}

impl Circles {
    /// The most NULs on a way through the expression that goes around no circle twice; `None`: too many, or
    /// in too long circles.
    fn longest(&mut self, hir: &Hir) -> Option<u64> {
        let most = |len: u64| (len <= MOST).then_some(len);
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Some(0),
            HirKind::Literal(literal) => most(literal.0.iter().filter(|b| **b == 0).count() as u64),
            HirKind::Class(class) => Some(u64::from(holds_nul(class))),
            HirKind::Capture(capture) => self.longest(&capture.sub),
            HirKind::Concat(all) => all.iter().try_fold(0, |sum: u64, hir| most(sum + self.longest(hir)?)),
            HirKind::Alternation(all) => {
                all.iter().try_fold(0, |max: u64, hir| Some(max.max(self.longest(hir)?)))
            }
            HirKind::Repetition(repetition) => {
                let before = self.count;
                let once = self.longest(&repetition.sub)?;
                let times = u64::from(repetition.max.unwrap_or(repetition.min.saturating_add(1)));
                self.count = most(before + (self.count - before).checked_mul(times)?)?;
                let Some(max) = repetition.max else {
                    if let Some(circle) = only_nuls(&repetition.sub) {
                        if circle > CIRCLE {
                            return None;
                        }
                        self.count += 1;
                        self.period = (1..=circle).fold(self.period, lcm);
                    }
                    return most(once.checked_mul(u64::from(repetition.min) + 1)?);
                };
                most(once.checked_mul(u64::from(max))?)
            }
        }
    }
}

/// The most NULs of which one pass of an expression can consist, where nothing else is in it.
fn only_nuls(hir: &Hir) -> Option<u64> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(0),
        HirKind::Literal(literal) => literal.0.iter().all(|b| *b == 0).then_some(literal.0.len() as u64),
        HirKind::Class(class) => holds_nul(class).then_some(1),
        HirKind::Capture(capture) => only_nuls(&capture.sub),
        HirKind::Concat(all) => {
            all.iter().try_fold(0u64, |sum, hir| Some(sum.saturating_add(only_nuls(hir)?)))
        }
        HirKind::Alternation(all) => all.iter().filter_map(only_nuls).max(),
        HirKind::Repetition(repetition) => match only_nuls(&repetition.sub) {
            None => (repetition.min == 0).then_some(0),
            // Without a bound it is a circle of its own, once around which is enough here.
            Some(once) => {
                let times = repetition.max.unwrap_or(repetition.min.saturating_add(1));
                Some(once.saturating_mul(u64::from(times)))
            }
        },
    }
}

fn holds_nul(class: &Class) -> bool {
    match class {
        Class::Unicode(class) => class.ranges().first().is_some_and(|range| range.start() == '\0'),
        Class::Bytes(class) => class.ranges().first().is_some_and(|range| range.start() == 0),
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}

/// The CRC-32C of so many zeros.
#[must_use]
pub(crate) fn crc32c(mut len: u64) -> u32 {
    let (mut all, mut power, mut width) = (0, ::crc32c::crc32c(&[0]), 1usize);
    while len > 0 {
        if len & 1 == 1 {
            all = ::crc32c::crc32c_combine(all, power, width);
        }
        len >>= 1;
        if len > 0 {
            power = ::crc32c::crc32c_combine(power, power, width);
            width *= 2;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_automata::dfa::{Automaton, dense};

    fn hir(pattern: &str) -> Hir {
        regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).unwrap()
    }

    #[test]
    fn crc_of_zeros_is_the_plain_one() {
        for len in [0u64, 1, 2, 3, 7, 8, 255, 4096, 4097, 65_535, 1_000_003] {
            assert_eq!(crc32c(len), ::crc32c::crc32c(&vec![0; len as usize]), "{len}");
        }
        // Of more than fits memory: the same by another way.
        let (a, b) = (0x0123_4567_89AB_u64, 0xFFF_FFFF_F123_u64);
        assert_eq!(crc32c(a + b), ::crc32c::crc32c_combine(crc32c(a), crc32c(b), b as usize));
    }

    #[test]
    fn what_is_known_of_expressions() {
        assert_eq!(Holes::of(&hir("abc")).unwrap().period, 1);
        assert_eq!(Holes::of(&hir("(?s-u:a.*b)")).unwrap().period, 1);
        assert_eq!(Holes::of(&hir(r"a(?:\x00\x00)*b")).unwrap().period, 2);
        assert_eq!(Holes::of(&hir(r"(?:\x00{3}|\x00{2})+b")).unwrap().period, 6);
        assert_eq!(Holes::of(&hir(r"(?:a\x00{9})*b")).unwrap().period, 1);
        assert!(Holes::of(&hir(r"(?:\x00{500})+b")).is_none());
        assert_eq!(Holes::of(&hir(r"\x00{500}b")).unwrap().least, 510);
        assert_eq!(Holes { least: 10, period: 6 }.stand_in(9), 9);
        assert_eq!(Holes { least: 10, period: 6 }.stand_in(10 + 6 * 1000 + 4), 14);
    }

    /// A run and what stands for it: found or not, in lines of all shapes.
    #[test]
    fn no_expression_tells_a_run_from_what_stands_for_it() {
        for pattern in [
            "ab",
            r"a\x00b",
            r"a\x00{3,}b",
            r"a\x00{2,5}b",
            r"^(?:\x00\x00)*$",
            r"^a?(?:\x00{3})*b?$",
            r"^(?:\x00{2}|\x00{5})*$",
            r"^(?:(?:\x00{3})*\x00{5})*b",
            r"(?s-u:a.{7}b)",
            r"(?s-u:^.{40,}b)",
            r"^(?:\x00{5}(?:\x00{2})?)+$",
            r"\x00\b",
            r"(?-u)a[^b]*b\x00",
            r"(?:\x00{4})+a(?:\x00{6})+b$",
        ] {
            let hir = hir(pattern);
            let holes = Holes::of(&hir).unwrap_or_else(|| panic!("{pattern}"));
            let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
            let dfa = dense::Builder::new().syntax(syntax).build(pattern).unwrap();
            let found = |line: &[u8]| {
                dfa.try_search_fwd(&regex_automata::Input::new(line).earliest(true)).unwrap().is_some()
            };
            for run in (0..120).chain([holes.least, 5000, 5001, 5002, 5003, 5039, 5040, 6719, 9240]) {
                let short = holes.stand_in(run);
                assert!(short <= run && short < holes.least + holes.period);
                for (before, after) in [("", ""), ("a", "b"), ("a", "b\0"), ("x", "ab"), ("", "b"), ("a", "")]
                {
                    let line = |n: u64| [before.as_bytes(), &vec![0; n as usize], after.as_bytes()].concat();
                    assert_eq!(
                        found(&line(run)),
                        found(&line(short)),
                        "{pattern}: {run} by {short}, {before:?} {after:?}"
                    );
                }
            }
        }
    }
}
