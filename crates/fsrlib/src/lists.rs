//! Which of several asks one command can be about: those that differ by their paths alone.

use std::borrow::Cow;
use std::ops::Range;

use nearside_near_data::{MAX_PATH, MAX_PATHS, MAX_REQUEST, Operation, Paths, Record, Target};

use crate::Ask;

/// Bytes to keep of a request for what is beside the paths: a header, and as many groups as there may be.
const BESIDE: usize = 8 << 10;
/// Bytes of what is answered about a path, about: its name is left out. A link's target may be longer; then
/// the rest of the list is asked about once more.
const ANSWER: usize = 192;
/// Bytes of a reply to a list beside the answers: a header, warnings, and what the drive keeps for a cursor.
const BESIDE_ANSWERS: usize = 8 << 10;
/// Most files in one command whose content is read: a command is one piece of work of the drive's.
const MOST_READ: usize = 64;

/// Bytes that the reply to a list of so many paths may need.
pub(crate) fn room(paths: usize) -> usize {
    paths.saturating_mul(ANSWER).saturating_add(BESIDE_ANSWERS).next_multiple_of(4096)
}

/// Takes one command's part after the other.
pub(crate) struct Lists<'a> {
    asks: &'a [Ask],
    /// Where those end that differ by their paths alone, and how many of them make a command.
    alike: usize,
    each: usize,
    at: usize,
    wanted: bool,
    buffer: usize,
    at_once: usize,
}

impl<'a> Lists<'a> {
    /// From the `at`th on; lists where they are wanted. Replies may have so many bytes; so many commands are
    /// under way together, which are to have their parts of what is alike.
    pub(crate) fn new(asks: &'a [Ask], at: usize, wanted: bool, buffer: usize, at_once: usize) -> Self {
        Lists { asks, alike: at, each: 1, at, wanted, buffer, at_once }
    }

    /// The next one's first ask, and the list, with how long it is, where it is about more.
    pub(crate) fn next(&mut self) -> Option<(&'a Ask, Option<Paths>)> {
        let first = self.asks.get(self.at)?;
        if self.wanted && self.at >= self.alike {
            let rest = &self.asks[self.at..];
            let alike = rest.iter().take_while(|ask| is_listed(ask) && are_alike(first, ask)).count();
            let most = match first.operation {
                Operation::Nop | Operation::Stat => MAX_PATHS,
                _ => MOST_READ,
            };
            let room = self.buffer.saturating_sub(BESIDE_ANSWERS) / ANSWER;
            self.alike = self.at + alike;
            self.each = alike.div_ceil(self.at_once.max(1)).min(most).min(room);
        }
        let list = self.list(self.at..self.alike.min(self.at.saturating_add(self.each)));
        self.at += list.as_ref().map_or(1, Paths::len);
        Some((first, list))
    }

    fn list(&self, asks: Range<usize>) -> Option<Paths> {
        let paths = || self.asks.get(asks.clone()).into_iter().flatten().filter_map(path);
        let (mut len, mut count) = (0, 0);
        for path in paths() {
            len += Paths::wire_len(path.len());
            if len > MAX_REQUEST - BESIDE {
                break;
            }
            count += 1;
        }
        if count < 2 {
            return None;
        }
        let mut list = Paths::with_capacity(len);
        for path in paths().take(count) {
            list.push(path);
        }
        Some(list)
    }
}

fn path(ask: &Ask) -> Option<&[u8]> {
    match &ask.target {
        Target::Path(path) => Some(path),
        _ => None,
    }
}

fn is_listed(ask: &Ask) -> bool {
    ask.operation.kind().brief && path(ask).is_some_and(|path| path.len() <= MAX_PATH)
}

fn are_alike(one: &Ask, other: &Ask) -> bool {
    one.follow == other.follow && one.operation == other.operation
}

/// What a list is answered about a path, as it would be alone.
pub(crate) fn of_path<'r>(record: Record<'r>, ask: &'r Ask) -> Record<'r> {
    let path = || Cow::Borrowed(path(ask).unwrap_or_default());
    match record {
        Record::Entry(mut entry) if entry.path.is_empty() => {
            entry.path = path();
            Record::Entry(entry)
        }
        Record::File { path: none, size } if none.is_empty() => Record::File { path: path(), size },
        record => record,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_near_data::Digest;

    /// How many asks each command is about.
    fn parts(asks: &[Ask], wanted: bool, buffer: usize, at_once: usize) -> Vec<usize> {
        let mut lists = Lists::new(asks, 0, wanted, buffer, at_once);
        let mut seen = 0;
        let parts = std::iter::from_fn(|| {
            let (first, list) = lists.next()?;
            assert_eq!(path(first), path(&asks[seen]));
            let list: Vec<Vec<u8>> = list.iter().flat_map(Paths::iter).map(<[u8]>::to_vec).collect();
            assert!(list.iter().zip(&asks[seen..]).all(|(path, ask)| Some(&path[..]) == super::path(ask)));
            seen += list.len().max(1);
            Some(list.len().max(1))
        });
        parts.collect()
    }

    #[test]
    fn what_differs_by_its_path_alone_is_one_commands() {
        let asks = |count: usize, operation: Operation| -> Vec<Ask> {
            (0..count).map(|n| Ask::path(format!("/{n}"), operation.clone())).collect()
        };
        let buffer = 256 << 10;
        assert_eq!(parts(&asks(1000, Operation::Stat), true, buffer, 1), [1000]);
        assert_eq!(parts(&asks(1000, Operation::Stat), false, buffer, 1), [1; 1000]);
        // Commands that can be under way together have a part each.
        assert_eq!(parts(&asks(1000, Operation::Stat), true, buffer, 4), [250; 4]);
        assert_eq!(parts(&asks(3, Operation::Stat), true, buffer, 16), [1; 3]);
        assert_eq!(parts(&asks(130, Operation::Count), true, buffer, 1), [64, 64, 2]);
        // Replies bound them, and requests do.
        assert_eq!(parts(&asks(100, Operation::Stat), true, 4096, 1), [1; 100]);
        assert_eq!(parts(&asks(100, Operation::Nop), true, 16 << 10, 1), [42, 42, 16]);
        let long = vec![Ask::path(vec![b'/'; 4000], Operation::Stat); 40];
        assert_eq!(parts(&long, true, buffer, 1), [30, 10]);
        // No path, one that is too long, another operation, another way to take links.
        let mut mixed = asks(4, Operation::Stat);
        mixed.extend(asks(2, Operation::Checksum(Digest::Crc32c)));
        mixed.extend(asks(2, Operation::Checksum(Digest::Sha256)));
        mixed.extend(asks(2, Operation::List));
        mixed.push(Ask::path(vec![b'/'; MAX_PATH + 1], Operation::Stat));
        mixed.push(Ask::tree("/", Operation::Stat));
        mixed.extend(asks(3, Operation::Stat));
        mixed[1].follow = false;
        mixed[0].follow = false;
        assert_eq!(parts(&mixed, true, buffer, 1), [2, 2, 2, 2, 1, 1, 1, 1, 3]);
    }
}
