//! Copies as a tar archive: ustar headers, and in pax records what has no room there: long names, parts of
//! seconds, holes (as GNU tar's sparse format 1.0 has them), extended attributes and ACLs (as star, GNU
//! tar and libarchive have them).
//!
//! Owners are numbers, with names beside them where these are asked for: whoever unpacks the archive as root
//! then goes by names, where the machine knows them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use nearside_fsrlib::Acl;

use super::attributes::Attribute;
use super::{BY_ACL, Destination, Done, Item, Range, Trouble, broken, empty};
use crate::failure::{Failure, complain_about};
use crate::format;
use crate::users::Users;

/// Bytes of a block.
const BLOCK: u64 = 512;
/// Bytes of a name in a header.
const NAME: usize = 100;
/// Bytes of a user's or a group's name in a header, which end with a zero byte.
const OWNER: usize = 31;

/// An archive that is being written.
pub struct Archive {
    builder: Builder<BufWriter<File>>,
    name: PathBuf,
    users: Users,
    /// Bytes that the file's header promised, and that have come.
    promised: u64,
    came: u64,
}

/// A path's name in an archive: no more than what is behind the last `..`.
pub fn member(path: &[u8]) -> Vec<u8> {
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !matches!(*n, b"" | b".")).collect();
    let from = names.iter().rposition(|name| *name == b"..").map_or(0, |at| at + 1);
    names[from..].join(&b'/')
}

/// Seconds as pax has them.
fn seconds((seconds, nanoseconds): (i64, u32)) -> String {
    let all = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let (sign, all) = (if all < 0 { "-" } else { "" }, all.unsigned_abs());
    format!("{sign}{}.{:09}", all / 1_000_000_000, all % 1_000_000_000)
}

/// A pax record's keyword and value for an extended attribute; an ACL is a text. `None`: it is none.
fn record(attribute: &Attribute) -> Option<(Vec<u8>, Vec<u8>)> {
    if attribute.is_acl() {
        let which = if attribute.is_default_acl() { "default" } else { "access" };
        let text = Acl::of_attribute(&attribute.value)?.text();
        return Some((format!("SCHILY.acl.{which}").into_bytes(), text.into_bytes()));
    }
    let mut keyword = b"SCHILY.xattr.".to_vec();
    for byte in &attribute.name {
        // As GNU tar has what a keyword may not hold.
        match byte {
            b'=' | b'%' => keyword.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            byte => keyword.push(*byte),
        }
    }
    Some((keyword, attribute.value.clone()))
}

/// A pax record: its whole length, with that number's own digits, the keyword and the value.
fn put_record(out: &mut Vec<u8>, keyword: &[u8], value: &[u8]) {
    let rest = keyword.len() + value.len() + 3;
    let mut len = rest;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    out.extend_from_slice(format!("{len} ").as_bytes());
    out.extend_from_slice(&[keyword, b"=", value, b"\n"].concat());
}

/// Puts what fits of a text into a field of a header.
fn put(field: &mut [u8], text: &[u8]) {
    let n = text.len().min(field.len());
    field[..n].copy_from_slice(&text[..n]);
}

/// The map of a sparse file, as its data begin: how many pieces, where each begins and how long it is.
fn map(size: u64, ranges: &[Range]) -> Vec<u8> {
    let end = Range { offset: size, len: 0 };
    let pieces: Vec<&Range> = ranges.iter().filter(|range| range.len > 0).chain([&end]).collect();
    let mut text = format!("{}\n", pieces.len());
    for Range { offset, len } in pieces {
        text.push_str(&format!("{offset}\n{len}\n"));
    }
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK as usize), 0);
    map
}

impl Archive {
    /// A new file, or standard output for `-`.
    pub fn create(path: &Path, users: Users) -> io::Result<Archive> {
        let file = match path == Path::new("-") {
            true => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            false => {
                let file = File::options().write(true).create(true).truncate(false).open(path)?;
                empty(&file)?;
                file
            }
        };
        let builder = Builder::new(BufWriter::with_capacity(64 << 10, file));
        Ok(Archive { builder, name: path.to_owned(), users, promised: 0, came: 0 })
    }

    /// Leaves it as far as it has come, without its end, which would make it look whole.
    pub fn abandon(mut self) {
        let _ = self.builder.get_mut().flush();
        // The builder would write the end.
        std::mem::forget(self);
    }

    fn done(&self, result: io::Result<()>) -> Done {
        result.map_err(|error| Trouble::Command(broken(&self.name, &error)))
    }

    /// A header; a link leads to `link`, and data of `len` bytes follow, of which a file of so many is made
    /// (`sparse`).
    fn header(&mut self, item: &Item, kind: EntryType, link: &[u8], len: u64, sparse: Option<u64>) -> Done {
        let entry = &item.entry;
        let mut path = if item.to.is_empty() { b".".to_vec() } else { item.to.clone() };
        if kind == EntryType::Directory {
            path.push(b'/');
        }
        let mut records = Vec::new();
        let mut add = |key: &str, value: &[u8]| put_record(&mut records, key.as_bytes(), value);
        if path.len() > NAME {
            add("path", &path);
        }
        if link.len() > NAME {
            add("linkpath", link);
        }
        for (key, time) in [("mtime", entry.times[1]), ("atime", entry.times[0])] {
            add(key, seconds(time).as_bytes());
        }
        for (key, value, most) in [
            ("uid", entry.uid.into(), 0o7_777_777),
            ("gid", entry.gid.into(), 0o7_777_777),
            ("size", len, 0o77_777_777_777),
        ] {
            if value > most {
                add(key, value.to_string().as_bytes());
            }
        }
        if let Some(size) = sparse {
            add("GNU.sparse.major", b"1");
            add("GNU.sparse.minor", b"0");
            add("GNU.sparse.name", &path);
            add("GNU.sparse.realsize", size.to_string().as_bytes());
        }
        let [user, group] = self.users.names(entry.uid, entry.gid).map(|name| name.unwrap_or_default());
        for (key, name) in [("uname", user), ("gname", group)] {
            if name.len() > OWNER || !name.is_ascii() {
                add(key, name.as_bytes());
            }
        }
        for (key, value) in item.attributes.iter().filter_map(record) {
            put_record(&mut records, &key, &value);
        }
        let lost = |attribute: &Attribute| attribute.is_access_acl() && record(attribute).is_none();
        let withheld = item.withheld || item.attributes.iter().any(lost);
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(u32::from(entry.mode & 0o7777 & if withheld { !BY_ACL } else { u16::MAX }));
        header.set_uid(entry.uid.into());
        header.set_gid(entry.gid.into());
        header.set_size(len);
        header.set_mtime(entry.times[1].0.try_into().unwrap_or(0));
        put(&mut header.as_old_mut().name, &path);
        put(&mut header.as_old_mut().linkname, link);
        if let Some(header) = header.as_ustar_mut() {
            put(&mut header.uname[..OWNER], user.as_bytes());
            put(&mut header.gname[..OWNER], group.as_bytes());
        }
        if format::is_device(entry.mode) {
            let set =
                header.set_device_major(entry.rdev.0).and_then(|()| header.set_device_minor(entry.rdev.1));
            self.done(set)?;
        }
        header.set_cksum();
        let written =
            self.extend(&records).and_then(|()| self.builder.get_mut().write_all(header.as_bytes()));
        self.done(written)
    }

    /// The records of the header that follows.
    fn extend(&mut self, records: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(records.len() as u64);
        header.set_cksum();
        self.builder.append(&header, records)
    }

    fn zeros(&mut self, mut n: u64) -> Done {
        while n > 0 {
            let some = n.min(BLOCK);
            let written = self.builder.get_mut().write_all(&[0; BLOCK as usize][..some as usize]);
            self.done(written)?;
            n -= some;
        }
        Ok(())
    }
}

impl Destination for Archive {
    fn ends_directories(&self) -> bool {
        false
    }

    fn shown(&self, item: &Item) -> Vec<u8> {
        item.to.clone()
    }

    fn wants(&mut self, _item: &Item) -> Result<bool, Trouble> {
        Ok(true)
    }

    fn directory(&mut self, item: &Item) -> Result<bool, Trouble> {
        self.header(item, EntryType::Directory, b"", 0, None).map(|()| true)
    }

    fn leave(&mut self, _item: &Item) -> Done {
        Ok(())
    }

    fn hard_link(&mut self, item: &Item, first: &[u8]) -> Done {
        self.header(item, EntryType::Link, first, 0, None)
    }

    fn special(&mut self, item: &Item) -> Done {
        if let Some(target) = &item.entry.link {
            return self.header(item, EntryType::Symlink, target, 0, None);
        }
        let kind = match format::letter(item.entry.mode) {
            'p' => EntryType::Fifo,
            'c' => EntryType::Char,
            'b' => EntryType::Block,
            's' => return Err(Trouble::Item("An archive holds no socket".into())),
            'l' => return Err(Trouble::Item("Where the link leads is not to be had".into())),
            _ => return Err(Trouble::Item("A file of no known kind".into())),
        };
        self.header(item, kind, b"", 0, None)
    }

    fn begin(&mut self, item: &Item, ranges: &[Range]) -> Done {
        let size = item.entry.size;
        let data = ranges.iter().map(|range| range.len).sum();
        (self.promised, self.came) = (data, 0);
        if data == size {
            return self.header(item, EntryType::Regular, b"", size, None);
        }
        let map = map(size, ranges);
        self.header(item, EntryType::Regular, b"", map.len() as u64 + data, Some(size))?;
        let written = self.builder.get_mut().write_all(&map);
        self.done(written)
    }

    fn write(&mut self, _offset: u64, bytes: &[u8]) -> Done {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.builder.get_mut().write(rest) {
                Ok(0) => return self.done(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.came += n as u64;
                    rest = &rest[n..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // They lie in a mapping, and are gone: zeros take their place.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::FAULT) => return Err(error.into()),
                Err(error) => return self.done(Err(error)),
            }
        }
        Ok(())
    }

    fn end(&mut self, item: &Item, whole: bool) -> Done {
        if !whole {
            complain_about(&item.to, "What could not be read is zeros in the archive");
        }
        let missing = self.promised.saturating_sub(self.came);
        self.zeros(missing + (BLOCK - self.promised % BLOCK) % BLOCK)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let ended = self.builder.finish().and_then(|()| self.builder.get_mut().flush());
        ended.map_err(|error| broken(&self.name, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_members() {
        for (path, name) in [
            ("/etc/passwd", "etc/passwd"),
            ("/", ""),
            ("//a/./b/", "a/b"),
            ("/a/../b/c", "b/c"),
            ("/a/..", ""),
        ] {
            assert_eq!(member(path.as_bytes()), name.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for (len, whole) in [(0, 5), (4, 9), (5, 11), (93, 99), (94, 101), (992, 999), (993, 1001)] {
            let mut out = Vec::new();
            put_record(&mut out, b"k", &vec![b'v'; len]);
            assert_eq!(out.len(), whole, "{len}");
            assert!(out.starts_with(format!("{whole} k=").as_bytes()), "{len}");
        }
    }

    #[test]
    fn times_before_1970() {
        assert_eq!(seconds((1, 5)), "1.000000005");
        assert_eq!(seconds((-1, 500_000_000)), "-0.500000000");
    }
}
