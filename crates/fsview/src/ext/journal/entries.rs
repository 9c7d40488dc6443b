//! Entries put into a directory's block or inline area, and taken out, as the kernel does: in the first place
//! that has room, and given to the one before.

use super::super::bytes::{put16, put32};
use super::super::dir::{Entries, Form, raw_record_len};
use crate::FileKind;

/// An entry to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: u32,
    pub(super) kind: FileKind,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// The name is there already.
    Exists,
    /// There is no room.
    Full,
}

const CUT: &str = "a directory block is cut short";

/// Bytes of an entry's record.
pub(super) fn record(name_len: usize) -> usize {
    name_len.saturating_add(8).next_multiple_of(4)
}

/// The byte that says what an entry is.
fn kind_byte(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// Writes an entry with a record of so many bytes.
pub(super) fn write(area: &mut [u8], at: usize, len: usize, form: Form, entry: &NewEntry<'_>) -> Option<()> {
    put32(area, at, entry.ino)?;
    set_record(area, at, len, form)?;
    put16(area, at.checked_add(6)?, u16::try_from(entry.name.len()).ok()?)?;
    if form.typed {
        *area.get_mut(at.checked_add(7)?)? = kind_byte(entry.kind);
    }
    area.get_mut(at.checked_add(8)?..)?.get_mut(..entry.name.len())?.copy_from_slice(entry.name);
    Some(())
}

pub(super) fn set_record(area: &mut [u8], at: usize, len: usize, form: Form) -> Option<()> {
    put16(area, at.checked_add(4)?, raw_record_len(len, form.block_size)?)
}

/// Puts an entry into the first place that has room. `area`: without a checksum behind it.
pub(super) fn insert(area: &mut [u8], form: Form, entry: &NewEntry<'_>) -> Result<Put, &'static str> {
    let need = record(entry.name.len());
    let Some(last) = area.len().checked_sub(need) else { return Ok(Put::Full) };
    let mut all = Entries::new(area, form);
    let (at, used, len) = loop {
        let at = all.at;
        if at > last {
            return Ok(Put::Full);
        }
        let Some(here) = all.next() else { return Ok(Put::Full) };
        let here = here?;
        if here.ino != 0 && here.name == entry.name {
            return Ok(Put::Exists);
        }
        let used = if here.ino == 0 { 0 } else { record(here.name.len()) };
        if here.record.saturating_sub(used) >= need {
            break (at, used, here.record);
        }
    };
    let done = if used == 0 {
        write(area, at, len, form, entry)
    } else {
        let (next, rest) = (at.saturating_add(used), len.saturating_sub(used));
        set_record(area, at, used, form).and_then(|()| write(area, next, rest, form, entry))
    };
    done.map(|()| Put::Done).ok_or(CUT)
}

/// Takes the entry at byte `gone` out.
pub(super) fn remove(area: &mut [u8], form: Form, gone: usize) -> Result<(), &'static str> {
    let mut all = Entries::new(area, form);
    let mut before: Option<(usize, usize)> = None;
    let len = loop {
        let at = all.at;
        let here = all.next().ok_or("a directory entry is not where it was")??;
        if at == gone {
            break here.record;
        }
        before = Some((at, here.record));
    };
    let done = match before {
        Some((at, record)) => {
            let room = area.get_mut(gone..).and_then(|rest| rest.get_mut(..len)).ok_or(CUT)?;
            room.fill(0);
            set_record(area, at, record.saturating_add(len), form)
        }
        None => {
            let room = area.get_mut(gone..).and_then(|rest| rest.get_mut(..len)).ok_or(CUT)?;
            room.get_mut(6..).ok_or(CUT)?.fill(0);
            put32(area, gone, 0)
        }
    };
    done.ok_or(CUT)
}

/// At which byte the last entry begins.
pub(super) fn last(area: &[u8], form: Form) -> Result<Option<usize>, &'static str> {
    let (mut all, mut last) = (Entries::new(area, form), None);
    loop {
        let at = all.at;
        let Some(entry) = all.next() else { return Ok(last) };
        entry?;
        last = Some(at);
    }
}
