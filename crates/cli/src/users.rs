//! Names of users and groups: the volume's own, or this host's, where they are asked for. Otherwise numbers,
//! since the numbers of a volume of another machine mean that machine's users.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::{Args, ValueEnum};
use nearside_fsrlib::{Ask, Operation, Record, Target, describe};

use crate::drive::Drive;
use crate::failure::{Failure, complain_about, complain_of};

/// Whose names are shown.
#[derive(Args, Clone, Debug)]
pub struct NamesArgs {
    /// Show names of users and groups: the volume's own (its /etc/passwd and /etc/group), or this host's
    #[arg(long, value_enum, value_name = "WHOSE", num_args = 0..=1, require_equals = true, default_missing_value = "volume")]
    names: Option<Whose>,
}

/// Whose tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whose {
    /// The volume's own
    Volume,
    /// This host's
    Host,
}

/// passwd(5) or group(5): of several lines of a number or a name the first counts.
#[derive(Default)]
struct Table {
    names: HashMap<u32, String>,
    numbers: HashMap<String, u32>,
}

/// Names by number.
#[derive(Default)]
pub struct Users {
    users: Table,
    groups: Table,
    /// Whether names were asked for.
    pub named: bool,
}

/// Longest table that is read of a volume.
const MOST: u64 = 16 << 20;

impl NamesArgs {
    /// Whether there is a word of theirs.
    pub fn are_asked(&self) -> bool {
        self.names.is_some()
    }
}

impl Users {
    /// The tables that the arguments ask for. A table that cannot be read is said; its numbers stay numbers.
    pub fn of(args: &NamesArgs, drive: &mut Drive) -> Result<Users, Failure> {
        args.names.map_or_else(|| Ok(Users::default()), |whose| Users::read(whose, drive))
    }

    /// The tables that the arguments ask for; without a word of theirs the volume's own, or the host's where
    /// that has it mounted.
    pub fn needed(args: &NamesArgs, mounted: bool, drive: &mut Drive) -> Result<Users, Failure> {
        let own = if mounted { Whose::Host } else { Whose::Volume };
        Users::read(args.names.unwrap_or(own), drive)
    }

    fn read(whose: Whose, drive: &mut Drive) -> Result<Users, Failure> {
        let mut read = |path: &'static str| match whose {
            Whose::Volume => of_the_volume(path, drive),
            Whose::Host => std::fs::read(path).map_err(|e| Failure::Message(format!("{path}: {e}"))),
        };
        let users = table(&read("/etc/passwd")?);
        Ok(Users { users, groups: table(&read("/etc/group")?), named: true })
    }

    /// A user's number.
    pub fn uid(&self, name: &str) -> Option<u32> {
        self.users.numbers.get(name).copied()
    }

    /// A group's number.
    pub fn gid(&self, name: &str) -> Option<u32> {
        self.groups.numbers.get(name).copied()
    }

    /// Whether a user has the number.
    pub fn has_user(&self, uid: u32) -> bool {
        self.users.names.contains_key(&uid)
    }

    /// Whether a group has the number.
    pub fn has_group(&self, gid: u32) -> bool {
        self.groups.names.contains_key(&gid)
    }

    /// A user's name, else the number.
    pub fn user(&self, uid: u32) -> String {
        self.users.names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// A group's name, else the number.
    pub fn group(&self, gid: u32) -> String {
        self.groups.names.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }

    /// The names of a user and a group, where they have some.
    pub fn names(&self, uid: u32, gid: u32) -> [Option<&str>; 2] {
        [(&self.users, uid), (&self.groups, gid)].map(|(table, id)| table.names.get(&id).map(String::as_str))
    }

    /// Numbers as stat shows them, with names where they were asked for.
    pub fn numbers_and_names(&self, uid: u32, gid: u32) -> [String; 2] {
        [(&self.users.names, uid), (&self.groups.names, gid)].map(|(names, id)| match self.named {
            true => format!("({id:5}/{:>8})", names.get(&id).map_or("UNKNOWN", |name| name)),
            false => format!("({id:5})"),
        })
    }
}

fn of_the_volume(path: &'static str, drive: &mut Drive) -> Result<Vec<u8>, Failure> {
    let target = Target::Path(path.into());
    let ask = Ask { target, operation: Operation::Read { offset: 0, len: MOST }, follow: true };
    let mut text = Vec::new();
    let answer = drive.ask(&ask, |record| {
        match record {
            Record::Data { bytes, .. } => text.extend_from_slice(&bytes),
            Record::Failed { path, failure } => complain_of(&path, &failure),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if let Err(failure) = answer {
        complain_about(std::ffi::OsStr::new(path).as_bytes(), &format!("{} (--names)", describe(&failure)));
    }
    Ok(text)
}

/// As getpwuid(3) and getpwnam(3) have them.
fn table(text: &[u8]) -> Table {
    let mut table = Table::default();
    for line in String::from_utf8_lossy(text).lines() {
        let mut fields = line.split(':');
        let (name, id) = (fields.next(), fields.nth(1).and_then(|id| id.parse().ok()));
        if let (Some(name), Some(id)) = (name.filter(|n| !n.is_empty()), id) {
            table.names.entry(id).or_insert_with(|| name.to_owned());
            table.numbers.entry(name.to_owned()).or_insert(id);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn the_first_of_a_number_counts() {
        let table = table(b"root:x:0:0::/:/bin/sh\ntoor:x:0:\n# no\n:x:5:\nbad:x:-1:\n\xff:x:7:\nlast:x:8");
        assert_eq!((table.numbers.get("toor"), table.numbers.get("bad")), (Some(&0), None));
        let mut all: Vec<_> = table.names.into_iter().collect();
        all.sort();
        assert_eq!(all, [(0, "root".into()), (7, "\u{fffd}".into()), (8, "last".into())]);
    }
}
