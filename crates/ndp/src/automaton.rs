//! A regular expression's matcher that can be interrupted anywhere: a DFA that is made while it runs, over
//! the library's NFA.
//!
//! A state is the list of NFA states that the last byte led to, best first, before the empty steps behind
//! them are taken. Those are taken for a state and a next byte together: then both sides of the place are
//! known, and `^`, `$` and `\b` need no delay. What came out is kept in a table, so that the next time costs
//! one look-up. Where nothing is kept yet, or where it cannot be kept (a list that is too long; a Unicode
//! word boundary beside a byte that is not ASCII), the NFA is followed state by state, and can stop between
//! any two. So the cost of a byte is bounded by the size of the NFA, and the cost of a call by its fuel.

use std::ops::Range;
use std::task::Poll;

use regex_automata::nfa::thompson::{self, NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::Hir;

use crate::fuel::Fuel;

/// Bound on the size of a compiled expression, in bytes.
pub(crate) const PROGRAM_LIMIT: usize = 10 << 20;
/// States that are kept at once.
const STATES: usize = 2048;
/// NFA states in all lists that are kept.
const ARENA: usize = 1 << 18;
/// Longer lists are not kept.
const LIST: usize = 512;
/// Units for one NFA state: it may have to come from memory.
const VISIT: u64 = 12;
/// Units for keeping a state.
const KEEP: u64 = 200;
/// Units for forgetting all.
const FORGET: u64 = 4000;

/// A table's entry is the row of the next state, and these.
const MATCH: u32 = 1 << 31;
/// Not computed yet, or never kept.
const UNKNOWN: u32 = 1 << 30;
/// Nothing can match any more.
const DEAD: u32 = 1 << 29;
/// The state is not kept: its list is in [`Machine::list`].
const LOOSE: u32 = 1 << 28;

/// One expression, in one direction.
#[derive(Debug)]
pub(crate) struct Automaton {
    nfa: NFA,
    start: StateID,
    /// From a match's end to the left: to its first byte.
    reverse: bool,
    classes: Box<[u16; 256]>,
    /// The class of "no byte": the end of the input.
    end: u16,
    /// What is behind a place matters.
    looks: bool,
    unicode_words: bool,
}

/// The bytes around a place that the look-arounds tell apart.
const CONTEXTS: usize = 6;
const NOT_ASCII: u8 = 5;

fn context(byte: Option<u8>) -> u8 {
    match byte {
        None => 0,
        Some(b'\n') => 1,
        Some(b'\r') => 2,
        Some(b) if b.is_ascii_alphanumeric() || b == b'_' => 3,
        Some(b) if b.is_ascii() => 4,
        Some(_) => NOT_ASCII,
    }
}

/// What an automaton writes to.
#[derive(Debug)]
pub(crate) struct Machine {
    /// By state, then by class.
    table: Vec<u32>,
    kept: Vec<Kept>,
    arena: Vec<StateID>,
    /// Kept states by their lists' hash: number + 1.
    hashed: Vec<u16>,
    /// Rows of the start states by context + 1.
    starts: [u32; CONTEXTS],
    /// By NFA state: the step that visited it, and the one that put it on the next list.
    visited: Vec<[u32; 2]>,
    step: u32,
    stack: Vec<(StateID, u32)>,
    list: Vec<StateID>,
    next: Vec<StateID>,
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    from: u32,
    to: u32,
    context: u8,
}

/// A search that is under way.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: usize,
    /// A state's row, or [`LOOSE`], or [`DEAD`].
    state: u32,
    last: Option<usize>,
    step: Option<Step>,
}

/// A step whose outcome is not known yet.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// Of the state's list.
    done: usize,
    matched: bool,
    /// It depends on more than the bytes on both sides.
    far: bool,
}

/// What a search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// The first place at which any match ends.
    First,
    /// The end of the best match; in reverse, the leftmost start.
    Best,
}

impl Automaton {
    /// Compiles. The error is for the user.
    pub(crate) fn new(hir: &Hir, reverse: bool) -> Result<Self, String> {
        let config = thompson::Config::new()
            .utf8(false)
            .reverse(reverse)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(PROGRAM_LIMIT));
        let built = thompson::Compiler::new().configure(config).build_from_hir(hir);
        let nfa = built.map_err(|e| match e.size_limit() {
            Some(_) => format!(
                "the patterns need more than {} MiB when compiled: repeat less, search for some at a time, or for strings (-F)",
                PROGRAM_LIMIT >> 20
            ),
            None => e.to_string(),
        })?;
        let looks = nfa.look_set_any();
        let unicode_words = looks.contains_word_unicode();
        let mut classes = Box::new([0u16; 256]);
        let mut last = None;
        let mut end = 0;
        for (byte, class) in (0..=u8::MAX).zip(classes.iter_mut()) {
            // What is kept for a class of bytes holds for all of them.
            let kind = (nfa.byte_classes().get(byte), unicode_words && !byte.is_ascii());
            if last.is_some_and(|last| last != kind) {
                end += 1;
            }
            last = Some(kind);
            *class = end;
        }
        let start = if reverse { nfa.start_anchored() } else { nfa.start_unanchored() };
        Ok(Self { start, reverse, classes, end: end + 1, looks: !looks.is_empty(), unicode_words, nfa })
    }

    pub(crate) fn memory(&self) -> usize {
        self.nfa.memory_usage() + size_of::<[u16; 256]>()
    }

    fn width(&self) -> usize {
        usize::from(self.end) + 1
    }

    /// A fresh machine. What grows has its room from the start, so that it is never moved.
    pub(crate) fn machine(&self) -> Machine {
        Machine {
            table: Vec::with_capacity(STATES * self.width()),
            kept: Vec::with_capacity(STATES),
            arena: Vec::with_capacity(ARENA),
            hashed: vec![0; 2 * STATES],
            starts: [0; CONTEXTS],
            visited: vec![[0; 2]; self.nfa.states().len()],
            step: 0,
            stack: Vec::new(),
            list: Vec::new(),
            next: Vec::new(),
            run: None,
        }
    }

    /// The byte that a step at `at` is about.
    fn unit(&self, hay: &[u8], at: usize) -> Option<u8> {
        let at = if self.reverse { at.checked_sub(1)? } else { at };
        hay.get(at).copied()
    }

    /// The byte before it.
    fn behind(&self, hay: &[u8], at: usize) -> Option<u8> {
        let at = if self.reverse { at } else { at.checked_sub(1)? };
        hay.get(at).copied()
    }

    /// Searches a part of `hay`: to the right for the end of a match, in reverse from the part's end for the
    /// start of one. Pending: the fuel is spent, and the same call goes on where it was.
    pub(crate) fn find(
        &self,
        m: &mut Machine,
        hay: &[u8],
        part: Range<usize>,
        want: Want,
        fuel: &mut Fuel,
    ) -> Poll<Option<usize>> {
        let (from, to) = if self.reverse { (part.end, part.start) } else { (part.start, part.end) };
        let mut run = match m.run.take() {
            Some(run) => run,
            None => {
                Run { at: from, state: self.begin(m, self.behind(hay, from), fuel), last: None, step: None }
            }
        };
        loop {
            if fuel.is_spent() {
                m.run = Some(run);
                return Poll::Pending;
            }
            if run.state == DEAD {
                return Poll::Ready(run.last);
            }
            if run.step.is_none() && run.state != LOOSE && !self.reverse {
                let most = usize::try_from(fuel.left()).unwrap_or(usize::MAX).min(to - run.at);
                let bytes = hay.get(run.at..run.at + most).unwrap_or_default();
                let passed = self.pass(&m.table, bytes, &mut run.state);
                run.at += passed;
                if !fuel.take(passed as u64) {
                    continue;
                }
            }
            let unit = self.unit(hay, run.at);
            let class = unit.map_or(self.end, |byte| self.classes[usize::from(byte)]);
            let mut entry = UNKNOWN;
            if run.step.is_none() && run.state != LOOSE {
                entry = m.table.get(run.state as usize + usize::from(class)).copied().unwrap_or(UNKNOWN);
            }
            if entry & UNKNOWN != 0 {
                let mut step = run.step.take().unwrap_or_else(|| m.begin_step());
                if self.step(m, &mut step, run.state, (hay, run.at), unit, fuel).is_pending() {
                    run.step = Some(step);
                    m.run = Some(run);
                    return Poll::Pending;
                }
                entry = self.keep(m, step, run.state, (unit, class), fuel);
            }
            if entry & MATCH != 0 {
                run.last = Some(run.at);
                if want == Want::First {
                    return Poll::Ready(run.last);
                }
            }
            if run.at == to {
                return Poll::Ready(run.last);
            }
            run.state = entry & !MATCH;
            run.at = if self.reverse { run.at - 1 } else { run.at + 1 };
            fuel.take(2);
        }
    }

    /// Follows known entries without a match; how many.
    #[inline]
    fn pass(&self, table: &[u32], bytes: &[u8], state: &mut u32) -> usize {
        let classes = &*self.classes;
        let mut now = *state;
        for (passed, byte) in bytes.iter().enumerate() {
            let entry = table.get(now as usize + usize::from(classes[usize::from(*byte)])).copied();
            let entry = entry.unwrap_or(UNKNOWN);
            if entry >= LOOSE {
                *state = now;
                return passed;
            }
            now = entry;
        }
        *state = now;
        bytes.len()
    }

    /// The state at the start of a search.
    fn begin(&self, m: &mut Machine, behind: Option<u8>, fuel: &mut Fuel) -> u32 {
        let context = if self.looks { context(behind) } else { 0 };
        if let Some(row) = m.starts.get(usize::from(context)).and_then(|row| row.checked_sub(1)) {
            return row;
        }
        m.next.clear();
        m.next.push(self.start);
        let row = self.state(m, context, fuel);
        if let Some(start) = m.starts.get_mut(usize::from(context)) {
            *start = row + 1;
        }
        row
    }

    /// Follows the NFA from a state's list over a byte to the next list. Ready: the list is in
    /// [`Machine::next`].
    fn step(
        &self,
        m: &mut Machine,
        step: &mut Step,
        state: u32,
        (hay, at): (&[u8], usize),
        unit: Option<u8>,
        fuel: &mut Fuel,
    ) -> Poll<()> {
        const ENTER: u32 = u32::MAX;
        loop {
            if fuel.is_spent() {
                return Poll::Pending;
            }
            let (id, alternate) = match m.stack.pop() {
                Some(top) => top,
                None => {
                    let Some(id) = m.listed(state, self.width()).get(step.done).copied() else {
                        return Poll::Ready(());
                    };
                    step.done += 1;
                    (id, ENTER)
                }
            };
            fuel.take(VISIT);
            if alternate == ENTER {
                let [visited, _] = &mut m.visited[id.as_usize()];
                if std::mem::replace(visited, m.step) == m.step {
                    continue;
                }
            }
            let target = match self.nfa.state(id) {
                State::ByteRange { trans } => unit.filter(|b| trans.matches_byte(*b)).map(|_| trans.next),
                State::Sparse(sparse) => {
                    fuel.take(sparse.transitions.len() as u64);
                    unit.and_then(|b| sparse.matches_byte(b))
                }
                State::Dense(dense) => unit.and_then(|b| dense.matches_byte(b)),
                State::Look { look, next } => {
                    if self.look(*look, hay, at, unit, step) {
                        m.stack.push((*next, ENTER));
                    }
                    None
                }
                State::Union { alternates } => {
                    let nr = if alternate == ENTER { 0 } else { alternate };
                    if let Some(first) = alternates.get(nr as usize) {
                        m.stack.push((id, nr + 1));
                        m.stack.push((*first, ENTER));
                    }
                    None
                }
                State::BinaryUnion { alt1, alt2 } => {
                    m.stack.push((*alt2, ENTER));
                    m.stack.push((*alt1, ENTER));
                    None
                }
                State::Capture { next, .. } => {
                    m.stack.push((*next, ENTER));
                    None
                }
                State::Fail => None,
                State::Match { .. } => {
                    step.matched = true;
                    if !self.reverse {
                        // Whatever comes later is worse than this match.
                        m.stack.clear();
                        return Poll::Ready(());
                    }
                    None
                }
            };
            if let Some(target) = target {
                let [_, listed] = &mut m.visited[target.as_usize()];
                if std::mem::replace(listed, m.step) != m.step {
                    m.next.push(target);
                }
            }
        }
    }

    fn look(&self, look: Look, hay: &[u8], at: usize, unit: Option<u8>, step: &mut Step) -> bool {
        let look = if self.reverse { look.reversed() } else { look };
        let (mut hay, mut at) = (hay, at);
        if self.unicode_words {
            let far = |byte: Option<u8>| byte.is_some_and(|b| !b.is_ascii());
            step.far |= far(unit) || far(self.behind(hay, at));
            // Half a character at a line's start is not part of the newline before it.
            let behind = hay.get(at.saturating_sub(4)..at).unwrap_or_default();
            if step.far
                && let Some(newline) = memchr::memrchr(b'\n', behind)
            {
                let start = at - behind.len() + newline + 1;
                (hay, at) = (hay.get(start..).unwrap_or_default(), at - start);
            }
        }
        self.nfa.look_matcher().matches(look, hay, at)
    }

    /// Ends a step: the entry that it found, kept where that can be.
    fn keep(
        &self,
        m: &mut Machine,
        step: Step,
        state: u32,
        (unit, class): (Option<u8>, u16),
        fuel: &mut Fuel,
    ) -> u32 {
        let context = if self.looks { context(unit) } else { 0 };
        let before = m.kept.len();
        let mut entry = self.state(m, context, fuel);
        if step.matched {
            entry |= MATCH;
        }
        // Where all was forgotten, the state's row is gone.
        if state != LOOSE
            && entry & LOOSE == 0
            && !step.far
            && m.kept.len() >= before
            && let Some(place) = m.table.get_mut(state as usize + usize::from(class))
        {
            *place = entry;
        }
        entry
    }

    /// The state of the list in [`Machine::next`].
    fn state(&self, m: &mut Machine, context: u8, fuel: &mut Fuel) -> u32 {
        let len = m.next.len();
        if len == 0 {
            return DEAD;
        }
        if len > LIST {
            std::mem::swap(&mut m.list, &mut m.next);
            return LOOSE;
        }
        fuel.take(KEEP + 4 * len as u64);
        let mut hash = u32::from(context);
        for id in &m.next {
            hash = (hash.rotate_left(5) ^ id.as_u32()).wrapping_mul(0x9e37_79b1);
        }
        let width = self.width();
        let slots = m.hashed.len();
        let mut slot = hash as usize % slots;
        while let Some(nr) = m.hashed.get(slot).and_then(|nr| nr.checked_sub(1)) {
            if let Some(kept) = m.kept.get(usize::from(nr))
                && kept.context == context
                && m.arena.get(kept.from as usize..kept.to as usize) == Some(&m.next[..])
            {
                return (usize::from(nr) * width) as u32;
            }
            slot = (slot + 1) % slots;
        }
        if m.kept.len() >= STATES || m.arena.len() + len > ARENA {
            fuel.take(FORGET);
            m.forget();
            slot = hash as usize % slots;
        }
        let nr = m.kept.len();
        let from = m.arena.len();
        m.arena.extend_from_slice(&m.next);
        m.kept.push(Kept { from: from as u32, to: (from + len) as u32, context });
        m.table.resize(m.table.len() + width, UNKNOWN);
        m.hashed[slot] = nr as u16 + 1;
        (nr * width) as u32
    }
}

impl Machine {
    /// Forgets a search that was under way.
    pub(crate) fn stop(&mut self) {
        self.run = None;
        self.stack.clear();
    }

    fn forget(&mut self) {
        self.table.clear();
        self.kept.clear();
        self.arena.clear();
        self.hashed.fill(0);
        self.starts = [0; CONTEXTS];
    }

    fn begin_step(&mut self) -> Step {
        if self.step == u32::MAX {
            self.visited.fill([0; 2]);
            self.step = 0;
        }
        self.step += 1;
        self.next.clear();
        Step::default()
    }

    /// A state's list.
    fn listed(&self, state: u32, width: usize) -> &[StateID] {
        if state == LOOSE {
            return &self.list;
        }
        let kept = self.kept.get(state as usize / width);
        kept.and_then(|kept| self.arena.get(kept.from as usize..kept.to as usize)).unwrap_or_default()
    }
}
