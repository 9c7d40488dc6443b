//! Literals that every match must hold, wherever in it: where they are rare, only the lines around them need
//! the regex.
//!
//! Looking for literals costs a fraction of a DFA's pass over all bytes. Where they turn out to be frequent,
//! the look at single lines costs more than it saves: then the regex runs over everything, as without them,
//! and after a while they are tried again.

use aho_corasick::packed;
use regex_automata::{MatchKind, util::prefilter::Prefilter};
use regex_syntax::hir::{Hir, HirKind, literal};

use crate::engine::Windows;

/// More literals than that are not looked for together.
const MAX_LITERALS: usize = 64;
/// So few are taken as they are, and not only by what is best of them.
const FEW: usize = 16;
/// Candidates looked at before a judgement.
const TRIAL: u64 = 32;
/// What a candidate costs beside the bytes of its line, in bytes that the automaton passes.
const CANDIDATE: u64 = 48;
/// Bytes searched without candidates' help before the next trial.
const AGAIN: u64 = 1 << 20;

/// The literals of an expression.
#[derive(Debug)]
pub(crate) struct InnerLiterals {
    means: Means,
    /// Of the literals.
    longest: usize,
    several: bool,
    /// Every match begins with one.
    pub prefix: bool,
}

#[derive(Debug)]
enum Means {
    Prefilter(Prefilter),
    /// For several strings of two bytes, which a prefilter thinks too short: where they are frequent, the
    /// tally says so.
    Pairs(packed::Searcher),
}

/// How well it went with one searcher's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    candidates: u64,
    /// Bytes that are done with.
    passed: u64,
    /// Of them, those that the automaton looked at.
    searched: u64,
    /// Searched by the automaton alone, since the candidates were found not to pay.
    alone: u64,
}

impl Tally {
    /// Notes a candidate: bytes that it brought the search on, and how long its line is.
    pub(crate) fn note(&mut self, passed: usize, line: usize) {
        self.candidates += 1;
        self.passed += passed as u64;
        self.searched += line as u64;
        if self.candidates > 16 * TRIAL {
            // Older bytes count for less.
            self.candidates /= 2;
            self.passed /= 2;
            self.searched /= 2;
        }
    }

    /// Notes bytes that were searched without candidates.
    pub(crate) fn note_alone(&mut self, bytes: usize) {
        self.alone += bytes as u64;
        if self.alone >= AGAIN {
            self.begin();
        }
    }

    /// Whether candidates save more than they cost.
    pub(crate) fn pays(&self) -> bool {
        self.candidates < TRIAL || self.passed >= self.searched + CANDIDATE * self.candidates
    }

    /// Another trial.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }
}

impl InnerLiterals {
    /// The best set of literals, if there is a good one.
    pub(crate) fn of(hir: &Hir) -> Option<Self> {
        let mut best = None;
        look(hir, 0, &mut best);
        let Best { prefix, literals, .. } = best?;
        if !crate::engine::is_gentle(&literals) {
            return None;
        }
        let pairs = literals.len() > 1 && literals.iter().map(Vec::len).min() == Some(2);
        let means = if pairs {
            Means::Pairs(packed::Searcher::new(&literals)?)
        } else {
            Means::Prefilter(Prefilter::new(MatchKind::LeftmostFirst, &literals).filter(Prefilter::is_fast)?)
        };
        let longest = literals.iter().map(Vec::len).max().unwrap_or(0);
        Some(Self { longest, several: literals.len() > 1, prefix, means })
    }

    pub(crate) fn windows(&self) -> Windows {
        if self.several { Windows::several(self.longest) } else { Windows::single(self.longest) }
    }

    pub(crate) fn find(&self, hay: &[u8]) -> Option<usize> {
        match &self.means {
            Means::Prefilter(prefilter) => prefilter.find(hay, (0..hay.len()).into()).map(|span| span.start),
            Means::Pairs(searcher) => searcher.find(hay).map(|found| found.start()),
        }
    }
}

/// The best literals so far.
struct Best {
    worth: usize,
    prefix: bool,
    literals: Vec<Vec<u8>>,
}

/// Whatever follows a place in a concatenation begins with one of its prefixes: tries each place.
fn look(hir: &Hir, depth: u32, best: &mut Option<Best>) {
    if depth > 20 {
        return;
    }
    match hir.kind() {
        HirKind::Concat(parts) => {
            for (at, part) in parts.iter().enumerate().take(100) {
                let rest = parts.get(at..).unwrap_or_default();
                // A short stretch is enough for a literal, and keeps long expressions linear.
                offer(&Hir::concat(rest.iter().take(32).cloned().collect()), depth == 0 && at == 0, best);
                look(part, depth + 1, best);
            }
        }
        HirKind::Repetition(repetition) if repetition.min > 0 => look(&repetition.sub, depth + 1, best),
        _ => offer(hir, depth == 0, best),
    }
}

fn offer(hir: &Hir, prefix: bool, best: &mut Option<Best>) {
    let mut extractor = literal::Extractor::new();
    extractor.limit_total(MAX_LITERALS).limit_class(10);
    let mut found = extractor.extract(hir);
    if found.len().is_some_and(|len| len <= FEW) {
        take_if_better(&found, prefix, best);
    }
    found.optimize_for_prefix_by_preference();
    take_if_better(&found, prefix, best);
}

fn take_if_better(found: &literal::Seq, prefix: bool, best: &mut Option<Best>) {
    let (Some(len), Some(literals)) = (found.min_literal_len(), found.literals()) else { return };
    let fast = match len {
        0 => false,
        1 => literals.len() <= 3 && found.max_literal_len() == Some(1),
        _ => literals.len() <= MAX_LITERALS,
    };
    if literals.is_empty() || !fast {
        return;
    }
    // Long and few.
    let worth = (16 * len.min(16)).saturating_sub(literals.len().min(16));
    if best.as_ref().is_none_or(|other| worth > other.worth) {
        let literals = literals.iter().map(|l| l.as_bytes().to_vec()).collect();
        *best = Some(Best { worth, prefix, literals });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes a candidate `times` times over.
    fn noted(tally: &mut Tally, times: u64, passed: usize, line: usize) {
        (0..times).for_each(|_| tally.note(passed, line));
    }

    #[test]
    fn candidates_pay_that_save_more_than_their_lines_and_themselves() {
        for (passed, line, pays) in [(148, 100, true), (147, 100, false), (48, 0, true), (100, 100, false)] {
            let mut tally = Tally::default();
            noted(&mut tally, TRIAL - 1, passed, line);
            assert!(tally.pays(), "no judgement before the trial's end");
            noted(&mut tally, 1, passed, line);
            assert_eq!(tally.pays(), pays, "{passed} bytes passed by lines of {line}");
        }
    }

    #[test]
    fn what_is_long_past_does_not_carry_what_is_bad_now() {
        let mut tally = Tally::default();
        noted(&mut tally, 1_000_000, 10_000, 100);
        let mut bad = 0;
        while tally.pays() {
            tally.note(50, 50);
            bad += 1;
            assert!(bad < 100 * TRIAL);
        }
        assert!(bad > TRIAL);
    }

    #[test]
    fn candidates_that_do_not_pay_are_tried_again_after_a_mebibyte() {
        let mut tally = Tally::default();
        noted(&mut tally, TRIAL, 10, 10);
        for bytes in [1 << 19, (1 << 19) - 1] {
            tally.note_alone(bytes);
            assert!(!tally.pays());
        }
        tally.note_alone(1);
        assert!(tally.pays());
        noted(&mut tally, TRIAL, 10, 10);
        assert!(!tally.pays());
        tally.note_alone(1);
        assert!(!tally.pays(), "the bytes before the trial count no more");
    }

    /// What is looked for, by spaces; whether every match begins with it.
    fn picked(expression: &str) -> Option<(String, bool)> {
        let hir = regex_syntax::parse(expression).unwrap();
        let inner = InnerLiterals::of(&hir)?;
        let mut best = None;
        look(&hir, 0, &mut best);
        let Best { prefix, literals, .. } = best.unwrap();
        assert_eq!((inner.prefix, inner.several), (prefix, literals.len() > 1), "{expression}");
        assert_eq!(Some(inner.longest), literals.iter().map(Vec::len).max(), "{expression}");
        for literal in &literals {
            assert_eq!(inner.find(&[b"~~", &literal[..]].concat()), Some(2), "{expression}");
        }
        assert_eq!(inner.find(b"~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~"), None, "{expression}");
        let words: Vec<_> = literals.iter().map(|l| String::from_utf8_lossy(l)).collect();
        Some((words.join(" "), prefix))
    }

    #[test]
    fn the_longest_and_fewest_literals_are_picked() {
        for (expression, literals, prefix) in [
            ("error", "error", true),
            // Ten are few enough to be one byte longer.
            ("err[0-9]+", "err0 err1 err2 err3 err4 err5 err6 err7 err8 err9", true),
            ("foo|bar", "foo bar", true),
            ("(ab|cd)e[a-z]", "abe cde", true),
            ("(foo)+z*", "foo", true),
            ("[a-z]+foo", "foo", false),
            ("[0-9]+(foo|quux)x", "foox quuxx", false),
            (r"\w+\s+needle", "needle", false),
            // Not what comes first, but what is longest; not what may be missing.
            ("a.*longer", "longer", false),
            ("x?needle", "needle", false),
            // What is repeated is not asked whether it comes first.
            ("(foo)+", "foo", false),
            // Two bytes each, and single ones: three at most.
            ("ab|cd", "ab cd", true),
            ("[ab]c", "ac bc", true),
            (r"a\b", "a", true),
            ("a|b|c", "a b c", true),
        ] {
            assert_eq!(picked(expression), Some((literals.to_owned(), prefix)), "{expression}");
        }
        // Of a word in any case the first bytes, in all sixteen ways.
        let (words, prefix) = picked("(?i)needlelong").unwrap();
        assert!(prefix && words.split(' ').count() == 16 && words.split(' ').all(|word| word.len() == 4));
    }

    #[test]
    fn what_every_match_need_not_hold_and_what_is_everywhere_is_not_looked_for() {
        for expression in ["x*", ".*", "(foo)*z*", "[a-d]x*", "a|b|c|d", "foo|x?"] {
            assert_eq!(picked(expression), None, "{expression}");
        }
    }
}
