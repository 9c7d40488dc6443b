//! Literals that every match must hold, wherever in it: where they are rare, only the lines around them need the regex.
//!
//! Looking for literals costs a fraction of a DFA's pass over all bytes. Where they turn out to be frequent, the look at single lines
//! costs more than it saves: then the regex runs over everything, as without them.

use regex_automata::{MatchKind, util::prefilter::Prefilter};
use regex_syntax::hir::{Hir, HirKind, literal};

/// Shorter literals are too frequent to help.
const MIN_LEN: usize = 3;
/// More literals than that are not looked for together.
const MAX_LITERALS: usize = 64;
/// Candidates looked at before the first judgement.
const TRIAL: u64 = 64;
/// Bytes between candidates below which they do not pay.
const PAYS: u64 = 256;

/// The literals of an expression.
#[derive(Debug)]
pub(crate) struct Inner {
    prefilter: Prefilter,
    /// Of the literals.
    pub longest: usize,
}

/// How well it went with one searcher's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    candidates: u64,
    bytes: u64,
}

impl Tally {
    /// Notes that a candidate was found so many bytes on.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.candidates += 1;
        self.bytes += bytes as u64;
        if self.candidates > 16 * TRIAL {
            // Older bytes count for less.
            self.candidates /= 2;
            self.bytes /= 2;
        }
    }

    pub(crate) fn pays(&self) -> bool {
        self.candidates < TRIAL || self.bytes / self.candidates >= PAYS
    }

    /// After a stretch without candidates' help, another trial.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }
}

impl Inner {
    /// The best set of literals, if there is a good one.
    pub(crate) fn of(hir: &Hir) -> Option<Self> {
        let mut best = None;
        look(hir, 0, &mut best);
        let (_, literals) = best?;
        let prefilter = Prefilter::new(MatchKind::LeftmostFirst, &literals)?;
        let good = prefilter.is_fast() && crate::engine::is_gentle(&literals);
        good.then(|| Self { longest: literals.iter().map(Vec::len).max().unwrap_or(0), prefilter })
    }

    pub(crate) fn find(&self, hay: &[u8]) -> Option<usize> {
        self.prefilter.find(hay, (0..hay.len()).into()).map(|span| span.start)
    }
}

type Best = Option<(usize, Vec<Vec<u8>>)>;

/// Whatever follows a place in a concatenation begins with one of its prefixes: tries each place.
fn look(hir: &Hir, depth: u32, best: &mut Best) {
    if depth > 20 {
        return;
    }
    match hir.kind() {
        HirKind::Concat(parts) => {
            for (at, part) in parts.iter().enumerate().take(100) {
                let rest = parts.get(at..).unwrap_or_default();
                // A short stretch is enough for a literal, and keeps long expressions linear.
                offer(&Hir::concat(rest.iter().take(32).cloned().collect()), best);
                look(part, depth + 1, best);
            }
        }
        HirKind::Repetition(repetition) if repetition.min > 0 => look(&repetition.sub, depth + 1, best),
        _ => offer(hir, best),
    }
}

fn offer(hir: &Hir, best: &mut Best) {
    let mut extractor = literal::Extractor::new();
    extractor.limit_total(MAX_LITERALS).limit_class(10);
    let mut found = extractor.extract(hir);
    found.optimize_for_prefix_by_preference();
    let (Some(len), Some(literals)) = (found.min_literal_len(), found.literals()) else { return };
    if len < MIN_LEN || literals.is_empty() || literals.len() > MAX_LITERALS {
        return;
    }
    // Long and few.
    let worth = 16 * len.min(16) - literals.len().min(16);
    if best.as_ref().is_none_or(|(other, _)| worth > *other) {
        *best = Some((worth, literals.iter().map(|l| l.as_bytes().to_vec()).collect()));
    }
}
