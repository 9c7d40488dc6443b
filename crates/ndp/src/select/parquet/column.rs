//! A column's chunk of a row group: its pages as they come, and the values of the rows at hand.

use super::super::value::Cell;
use super::decode::{Decoding, Dictionary};
use super::footer::{Chunk, Codec};
use super::kind::{Kind, Physical};
use super::page::{Header, Page, Unpacking};
use super::thrift::Wrong;

/// A column that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) physical: Physical,
    pub(super) optional: bool,
}

/// What a column waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// Nothing: a value is there.
    Ready,
    /// [Bytes](Column::wants) of the file.
    Bytes,
    /// Its turn, later.
    Later,
}

/// How much a turn may do, and hold.
#[derive(Debug)]
pub(super) struct Turn {
    /// Bytes that are made.
    pub(super) left: usize,
    /// Bytes that this column may hold.
    pub(super) room: usize,
    /// Rows that are decoded at once.
    pub(super) rows: usize,
    /// Bytes that are read beyond what is known to be wanted.
    pub(super) ahead: u64,
    /// Bytes of texts that are made at once.
    pub(super) texts: usize,
}

/// Bytes of a header, as most are, and more.
const HEADER: u64 = 1 << 10;
/// Bytes that a row's value counts for.
const CELL: usize = size_of::<Cell>();

/// A chunk that is gone through.
#[derive(Default)]
pub(super) struct Column {
    /// Where the next page begins, and where the last ends.
    at: u64,
    to: u64,
    codec: Option<Codec>,
    /// Bytes of the file from `base` on, and up to where they are wanted.
    buffer: Vec<u8>,
    base: u64,
    wants: Option<u64>,
    /// Rows of pages that have not been opened.
    left: u64,
    /// Rows to pass over before the next that is wanted.
    skip: u64,
    dictionary: Option<Dictionary>,
    unpacking: Option<Unpacking>,
    page: Option<Decoding>,
    cells: Vec<Cell>,
    next: usize,
}

const LIMIT: Wrong = "its pages and those of the other columns have more than 128 MiB together";

impl Column {
    pub(super) fn new(chunk: &Chunk, rows: u64) -> Column {
        let (at, to) = (chunk.from, chunk.to);
        Column { at, to, codec: Some(chunk.codec), base: at, left: rows, ..Column::default() }
    }

    /// Passes over rows.
    pub(super) fn pass(&mut self, rows: u64) {
        let there = (self.cells.len() - self.next) as u64;
        self.next += rows.min(there) as usize;
        self.skip += rows.saturating_sub(there);
    }

    /// How many values are there.
    pub(super) fn ready(&self) -> usize {
        self.cells.len() - self.next
    }

    /// One of them.
    pub(super) fn cell(&self, nth: usize) -> Cell {
        self.cells.get(self.next.saturating_add(nth)).copied().unwrap_or_default()
    }

    /// What their texts lie in.
    pub(super) fn text(&self) -> &[u8] {
        self.page.as_ref().map(|page| page.text(self.dictionary.as_ref())).unwrap_or_default()
    }

    /// Which bytes it waits for.
    pub(super) fn wants(&self) -> Option<(u64, u64)> {
        Some((self.base + self.buffer.len() as u64, self.wants?))
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
        let buffer = self.wants.map_or(self.buffer.len(), |to| (to - self.base) as usize);
        buffer
            + self.unpacking.as_ref().map_or(0, |page| Unpacking::held(&page.header))
            + self.page.as_ref().map_or(0, Decoding::held)
            + self.dictionary.as_ref().map_or(0, Dictionary::held)
            + self.cells.len() * CELL
    }

    /// Asks for the bytes up to there, and some more.
    fn want(&mut self, to: u64, turn: &Turn) -> Result<Now, Wrong> {
        // Of pages that are passed over the headers alone are looked at.
        let ahead = if self.skip > 0 { turn.ahead.min(HEADER) } else { turn.ahead };
        let to = to.saturating_add(ahead).min(self.to);
        self.wants = Some(to);
        if self.held() > turn.room {
            return Err(LIMIT);
        }
        let more = (to - self.base) as usize - self.buffer.len();
        self.buffer.reserve_exact(more);
        Ok(Now::Bytes)
    }

    /// The next page begins there: what is before it is forgotten.
    fn go_to(&mut self, at: u64) {
        let gone = usize::try_from(at - self.base).unwrap_or(usize::MAX).min(self.buffer.len());
        self.buffer.drain(..gone);
        (self.at, self.base) = (at, at);
    }

    /// Goes on until a value is there, or something is missing.
    pub(super) fn advance(&mut self, asked: &Asked, turn: &mut Turn) -> Result<Now, Wrong> {
        loop {
            let passed = self.skip.min(self.ready() as u64);
            self.next += passed as usize;
            self.skip -= passed;
            if self.ready() > 0 {
                return Ok(Now::Ready);
            }
            if turn.left == 0 {
                return Ok(Now::Later);
            }
            self.cells.clear();
            self.next = 0;
            if let Some(page) = self.page.as_mut().filter(|page| page.left > 0) {
                let made = page.take(turn.rows, turn.texts, self.dictionary.as_ref(), &mut self.cells)?;
                turn.left = turn.left.saturating_sub(self.cells.len() * CELL + made);
                if self.held() > turn.room {
                    return Err(LIMIT);
                }
                continue;
            }
            if let Some(unpacking) = &mut self.unpacking {
                let (whole, made) = unpacking.step()?;
                turn.left = turn.left.saturating_sub(made);
                if whole {
                    self.open(asked)?;
                }
                continue;
            }
            self.page = None;
            if self.next_page(asked, turn)? == Now::Bytes {
                return Ok(Now::Bytes);
            }
        }
    }

    /// Looks at the next page's header, and begins with the page.
    fn next_page(&mut self, asked: &Asked, turn: &mut Turn) -> Result<Now, Wrong> {
        let codec = self.codec.unwrap_or(Codec::None);
        if self.left == 0 || self.at >= self.to {
            return Err("it ends before the rows of its row group");
        }
        let end = self.base + self.buffer.len() as u64;
        turn.left = turn.left.saturating_sub(CELL);
        let header = Header::read(&self.buffer, codec, end < self.to)?;
        let Some(header) = header else { return self.want(end + 1, turn) };
        let body = self.at + header.len as u64;
        let to = body + header.stored as u64;
        if to > self.to {
            return Err("a page beyond its end");
        }
        let rows = u64::from(header.values);
        match header.page {
            Page::Other => {
                self.go_to(to);
                return Ok(Now::Later);
            }
            Page::Dictionary if self.dictionary.is_some() => return Err("more than one dictionary"),
            Page::Dictionary => {}
            _ if rows > self.left => return Err("more values than its row group has rows"),
            // No byte of it is wanted.
            _ if rows <= self.skip => {
                self.skip -= rows;
                self.left -= rows;
                self.go_to(to);
                return Ok(Now::Later);
            }
            _ => {}
        }
        if end < to {
            return self.want(to, turn);
        }
        let mut held = self.held() + header.size;
        if header.page == Page::Dictionary {
            held += Dictionary::beside(asked.physical, header.values);
        }
        if held > turn.room {
            return Err(LIMIT);
        }
        let rest = self.buffer.split_off((to - self.base) as usize);
        let mut stored = std::mem::replace(&mut self.buffer, rest);
        stored.drain(..header.len);
        (self.at, self.base) = (to, to);
        self.unpacking = Some(Unpacking::new(header, codec, stored)?);
        Ok(Now::Later)
    }

    /// A page is decompressed.
    fn open(&mut self, asked: &Asked) -> Result<(), Wrong> {
        let Some(unpacking) = self.unpacking.take() else { return Ok(()) };
        let Header { page, values, .. } = unpacking.header;
        let bytes = unpacking.into_bytes();
        let (levels, encoding) = match page {
            Page::Dictionary => {
                self.dictionary = Some(Dictionary::new(bytes, values, asked.physical)?);
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
