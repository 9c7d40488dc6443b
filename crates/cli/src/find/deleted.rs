//! `find --deleted`: the inodes of an ext volume that no directory names any more, instead of a tree.

use std::io::Write;

use nearside_fsrlib::FileEntry;

use super::Visit;
use crate::failure::Failure;
use crate::format;
use crate::out::Out;

/// When a file was deleted, and whether it still has its blocks.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    /// Seconds since 1970.
    pub when: Option<i64>,
    pub orphan: bool,
}

impl Gone {
    /// What is printed of one, without the line's end: there is no path.
    pub fn print(self, entry: &FileEntry, visit: &Visit<'_>, out: &mut Out) -> Result<(), Failure> {
        let FileEntry { ino, mode, uid, gid, size, .. } = *entry;
        let (mode, user, group) = (format::mode(mode), visit.users.user(uid), visit.users.group(gid));
        out.text(&format!("{ino:>9} {mode} {user:<8} {group:<8} {size:>12} "))?;
        match self.when {
            Some(seconds) => write!(out, "{}", visit.times.strftime((seconds, 0), "%Y-%m-%d %H:%M:%S %z"))?,
            None => out.write_all(if self.orphan { b"orphan" } else { b"-" })?,
        }
        Ok(())
    }

    /// What JSON has more of one.
    pub fn add_to(self, value: &mut serde_json::Value) {
        value["deleted"] = self.when.into();
        value["orphan"] = self.orphan.into();
    }
}
