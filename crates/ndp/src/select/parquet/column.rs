//! A column's chunk of a row group: its pages as they come, and the value of the row at hand.

use super::super::needed::Needed;
use super::super::value::Cell;
use super::decode::{Decoding, Dictionary};
use super::footer::{Chunk, Codec};
use super::kind::{Kind, Physical};
use super::page::{Header, Page, Unpacking};
use super::spare::Spares;
use super::thrift::Wrong;
use crate::fuel::Fuel;

/// A column that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) physical: Physical,
    pub(super) optional: bool,
    /// Comparisons of its values, without which no row is wanted, where rows are looked for by them.
    pub(super) needed: Vec<Needed>,
}

/// Whether the value of a row is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// It is.
    Ready,
    /// In another slice.
    Going,
    /// Its page is not, which [`advance`](Column::advance) makes.
    Page,
}

/// What is to be done before there is a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    #[default]
    Nothing,
    /// A step of work.
    Work,
    /// [Bytes](Column::wants) of the file come first.
    Bytes,
}

/// How much a turn may do, and hold.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    /// Bytes that are made.
    pub(super) left: usize,
    /// Bytes that this column may hold.
    pub(super) room: usize,
    /// Bytes that are read beyond what is known to be wanted.
    pub(super) ahead: u64,
    /// Buffers for what is read and made.
    pub(super) spares: &'t mut Spares,
}

/// Bytes of a header, as most are, and more.
const HEADER: u64 = 1 << 10;
/// Bytes that are read ahead of the column that rows are looked for by.
const LEAD: u64 = 256 << 10;
/// Rows of a small page.
const SMALL: u64 = 2_000;
/// Bytes that a page counts for of which none are made.
const PASSED: usize = 16;

/// A chunk that is gone through.
#[derive(Default)]
pub(super) struct Column {
    /// Where the next page begins, and where the last ends.
    at: u64,
    to: u64,
    codec: Option<Codec>,
    /// Bytes of the file, behind `gone` others from `base` on, and up to where they are wanted.
    buffer: Vec<u8>,
    gone: usize,
    base: u64,
    wants: Option<u64>,
    /// Rows of pages that have not been opened.
    left: u64,
    /// Rows to pass over before the next that is wanted.
    skip: u64,
    dictionary: Option<Dictionary>,
    unpacking: Option<Unpacking>,
    page: Option<Decoding>,
    /// It lacks the page of the row at hand.
    pub(super) lacks: bool,
    /// The value of the row at hand, once it is there: those of the rows behind it are next.
    value: Option<Cell>,
}

const LIMIT: Wrong = "its pages and those of the other columns have more than 128 MiB together";

impl Column {
    pub(super) fn new(chunk: &Chunk, rows: u64) -> Column {
        let (at, to) = (chunk.from, chunk.to);
        Column { at, to, codec: Some(chunk.codec), base: at, left: rows, ..Column::default() }
    }

    /// The row at hand is so many rows on.
    pub(super) fn pass(&mut self, rows: u64) {
        let seen = rows > 0 && self.value.take().is_some();
        self.skip += rows - u64::from(seen);
    }

    /// The value of the row at hand.
    pub(super) fn value(&self) -> Cell {
        self.value.unwrap_or_default()
    }

    /// What its text lies in.
    pub(super) fn text(&self) -> &[u8] {
        self.page.as_ref().map(|page| page.text(self.dictionary.as_ref())).unwrap_or_default()
    }

    /// Which bytes it waits for.
    pub(super) fn wants(&self) -> Option<(u64, u64)> {
        Some((self.end(), self.wants?))
    }

    /// Where the bytes that are there end.
    fn end(&self) -> u64 {
        self.base + (self.buffer.len() - self.gone) as u64
    }

    /// Takes what it waits for off the front of a piece.
    pub(super) fn give(&mut self, piece: &mut &[u8]) {
        let Some((from, to)) = self.wants() else { return };
        let taken = usize::try_from(to - from).unwrap_or(usize::MAX).min(piece.len());
        let (bytes, rest) = piece.split_at(taken);
        self.buffer.extend_from_slice(bytes);
        *piece = rest;
        if from + taken as u64 == to {
            self.wants = None;
        }
    }

    /// What it holds, and has asked for.
    pub(super) fn held(&self) -> usize {
        let buffer = self.wants.map_or(self.buffer.len(), |to| self.gone + (to - self.base) as usize);
        buffer
            + self.unpacking.as_ref().map_or(0, |page| Unpacking::held(&page.header))
            + self.page.as_ref().map_or(0, Decoding::held)
            + self.dictionary.as_ref().map_or(0, Dictionary::held)
    }

    /// Asks for the bytes up to there, and some more.
    fn want(&mut self, to: u64, asked: &Asked, turn: &mut Turn<'_>) -> Result<Doing, Wrong> {
        // Of pages that are passed over the headers alone are looked at; few have fewer rows.
        let ahead = match self.skip {
            // Every value of it is looked at.
            0 if !asked.needed.is_empty() => turn.ahead.max(LEAD),
            0..=SMALL => turn.ahead,
            _ => turn.ahead.min(HEADER),
        };
        // What is then left of the chunk is read as well, where that is little.
        let to = to.saturating_add(ahead);
        let to = if to.saturating_add(ahead / 8) >= self.to { self.to } else { to };
        self.wants = Some(to);
        self.buffer.drain(..std::mem::take(&mut self.gone));
        if self.held() > turn.room {
            return Err(LIMIT);
        }
        let all = (to - self.base) as usize;
        if self.buffer.is_empty() {
            turn.spares.give(std::mem::take(&mut self.buffer));
            self.buffer = turn.spares.take(all);
            self.buffer.clear();
        } else {
            self.buffer.reserve_exact(all - self.buffer.len());
        }
        Ok(Doing::Bytes)
    }

    /// The next page begins there: what is before it is forgotten.
    fn go_to(&mut self, at: u64) {
        let gone = usize::try_from(at - self.base).unwrap_or(usize::MAX);
        self.gone = self.gone.saturating_add(gone);
        if self.gone >= self.buffer.len() {
            (self.gone, self.buffer) = (0, Vec::new());
        }
        (self.at, self.base) = (at, at);
    }

    /// Goes on to the value of the row at hand.
    pub(super) fn take(&mut self, fuel: &mut Fuel) -> Result<Now, Wrong> {
        if self.value.is_none() {
            match self.reach(fuel)? {
                Now::Ready => {}
                now => return Ok(now),
            }
            let Some(page) = &mut self.page else { return Ok(Now::Page) };
            self.value = Some(page.take(self.dictionary.as_ref(), fuel)?);
        }
        Ok(Now::Ready)
    }

    /// Goes on to a row for whose value the comparisons are true, over so many rows at most: over how many it
    /// went, and whether it is there, with its value.
    pub(super) fn find(
        &mut self,
        rows: u64,
        needed: &[Needed],
        fuel: &mut Fuel,
    ) -> Result<(u64, Now), Wrong> {
        if self.value.is_some() {
            return Ok((0, Now::Ready));
        }
        match self.reach(fuel)? {
            Now::Ready => {}
            now => return Ok((0, now)),
        }
        let Some(page) = &mut self.page else { return Ok((0, Now::Page)) };
        let (passed, value) = page.pass_unwanted(rows, needed, self.dictionary.as_ref(), fuel)?;
        self.value = value;
        Ok((passed, if value.is_some() { Now::Ready } else { Now::Going }))
    }

    /// Goes on to the row at hand in its page, if that is there.
    fn reach(&mut self, fuel: &mut Fuel) -> Result<Now, Wrong> {
        self.lacks = !self.has_page();
        let Some(page) = self.page.as_mut().filter(|_| !self.lacks) else { return Ok(Now::Page) };
        if self.skip > 0 {
            self.skip -= page.skip(self.skip, fuel)?;
        }
        Ok(if self.skip > 0 || fuel.is_spent() { Now::Going } else { Now::Ready })
    }

    /// Whether the page is there that has the row at hand.
    fn has_page(&self) -> bool {
        self.page.as_ref().is_some_and(|page| self.skip < page.left.into())
    }

    /// Gives the page back, if the row at hand is in another.
    pub(super) fn drop_page(&mut self, spares: &mut Spares) {
        if self.value.is_none()
            && !self.has_page()
            && let Some(page) = self.page.take()
        {
            self.skip -= u64::from(page.left);
            spares.give(page.into_bytes());
        }
    }

    /// Gives its buffers back.
    pub(super) fn end_with(self, spares: &mut Spares) {
        spares.give(self.buffer);
        self.page.into_iter().for_each(|page| spares.give(page.into_bytes()));
        self.dictionary.into_iter().for_each(|dictionary| spares.give(dictionary.into_bytes()));
    }

    /// Goes on until the page of the row at hand is there, bytes are missing, or the turn is over.
    pub(super) fn advance(&mut self, asked: &Asked, turn: &mut Turn<'_>) -> Result<Doing, Wrong> {
        while !self.has_page() {
            self.drop_page(turn.spares);
            if turn.left == 0 {
                return Ok(Doing::Work);
            }
            if let Some(unpacking) = &mut self.unpacking {
                let (whole, made) = unpacking.step()?;
                turn.left = turn.left.saturating_sub(made);
                if whole {
                    self.open(asked, turn.spares)?;
                }
            } else if self.next_page(asked, turn)? == Doing::Bytes {
                return Ok(Doing::Bytes);
            }
        }
        self.lacks = false;
        Ok(Doing::Nothing)
    }

    /// Looks at the next page's header, and begins with the page.
    fn next_page(&mut self, asked: &Asked, turn: &mut Turn<'_>) -> Result<Doing, Wrong> {
        let codec = self.codec.unwrap_or(Codec::None);
        if self.left == 0 || self.at >= self.to {
            return Err("it ends before the rows of its row group");
        }
        let end = self.end();
        turn.left = turn.left.saturating_sub(PASSED);
        let here = self.buffer.get(self.gone..).unwrap_or_default();
        let header = Header::read(here, codec, end < self.to)?;
        let Some(header) = header else { return self.want(end + 1, asked, turn) };
        let body = self.at + header.len as u64;
        let to = body + header.stored as u64;
        if to > self.to {
            return Err("a page beyond its end");
        }
        let rows = u64::from(header.values);
        match header.page {
            Page::Other => {
                self.go_to(to);
                return Ok(Doing::Work);
            }
            Page::Dictionary if self.dictionary.is_some() => return Err("more than one dictionary"),
            Page::Dictionary => {}
            _ if rows > self.left => return Err("more values than its row group has rows"),
            // No byte of it is wanted.
            _ if rows <= self.skip => {
                self.skip -= rows;
                self.left -= rows;
                self.go_to(to);
                return Ok(Doing::Work);
            }
            _ => {}
        }
        if end < to {
            return self.want(to, asked, turn);
        }
        let beside = match header.page {
            Page::Dictionary => Dictionary::beside(asked.physical, header.values, &asked.needed),
            Page::First(encoding) | Page::Second { encoding, .. } => Decoding::beside(encoding, header.size),
            Page::Other => 0,
        };
        if self.held() + header.size + beside > turn.room {
            return Err(LIMIT);
        }
        // Whichever is less is moved: the page, or what is behind it.
        let (own, rest) = here.split_at((to - self.base) as usize);
        let mut moved = turn.spares.take(own.len().min(rest.len()));
        moved.clear();
        let (stored, from) = if own.len() < rest.len() {
            moved.extend_from_slice(own);
            self.go_to(to);
            (moved, 0)
        } else {
            moved.extend_from_slice(rest);
            self.buffer.truncate(self.gone + own.len());
            (self.at, self.base) = (to, to);
            (std::mem::replace(&mut self.buffer, moved), std::mem::take(&mut self.gone))
        };
        let bytes = if codec == Codec::None { Vec::new() } else { turn.spares.take(header.size) };
        self.unpacking = Some(Unpacking::new(header, codec, (stored, from), bytes)?);
        Ok(Doing::Work)
    }

    /// A page is decompressed.
    fn open(&mut self, asked: &Asked, spares: &mut Spares) -> Result<(), Wrong> {
        let Some(unpacking) = self.unpacking.take() else { return Ok(()) };
        let Header { page, values, .. } = unpacking.header;
        let (bytes, stored) = unpacking.into_bytes();
        spares.give(stored);
        let (levels, encoding) = match page {
            Page::Dictionary => {
                let of = (asked.kind, asked.physical);
                self.dictionary = Some(Dictionary::new(bytes, values, of, &asked.needed)?);
                return Ok(());
            }
            Page::First(encoding) => (None, encoding),
            Page::Second { levels, encoding, .. } => (Some(levels), encoding),
            Page::Other => return Ok(()),
        };
        self.left -= u64::from(values);
        let of = (asked.kind, asked.physical);
        let page = Decoding::new(bytes, of, (asked.optional, levels), encoding, values)?;
        if page.wants_dictionary() && self.dictionary.is_none() {
            return Err("numbers of a dictionary that is not there");
        }
        self.page = Some(page);
        Ok(())
    }
}
