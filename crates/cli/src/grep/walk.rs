//! A path of the command line, and the files of its tree that are chosen.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use nearside_fsrlib::{Ask, Failure as Refusal, Operation, Record, Target};

use super::Found;
use super::choose::Choice;
use crate::drive::{self, Drive};
use crate::failure::Failure;
use crate::format::is_directory;
use crate::mounted::join;

/// Files that are asked about together.
const TOGETHER: usize = 64;
/// The type bits of a mode.
const REGULAR: u16 = 0o100_000;

/// How paths become files.
pub struct Walk<'a> {
    pub choice: &'a Choice,
    pub recursive: bool,
    /// Paths are the command line's.
    pub named: bool,
    pub max_depth: u32,
}

/// A directory on the way: its path, and what of it is left, the last first.
struct Level {
    path: Vec<u8>,
    ino: u64,
    left: Vec<(Vec<u8>, u16)>,
}

impl Walk<'_> {
    /// Before the paths are searched ([`Drive::expect`]); but where files are chosen here one by one.
    pub fn expect(&self, paths: &[OsString], drive: &mut Drive) -> Result<(), Failure> {
        let include = self.choice.in_drive();
        if self.recursive && include.is_none() {
            return Ok(());
        }
        let include = include.unwrap_or_default();
        drive.expect(paths.iter().map(|path| self.target(path, include.clone())), drive::stored)
    }

    /// The file at a path, or those below it whose names match.
    fn target(&self, path: &OsString, include: Vec<Vec<u8>>) -> Target {
        match self.recursive {
            false => drive::target(path),
            true => Target::Tree {
                root: path.as_bytes().to_vec(),
                include,
                exclude: Vec::new(),
                max_depth: self.max_depth,
            },
        }
    }

    /// Searches a path, or the files below it.
    pub fn path(
        &self,
        path: &OsString,
        operation: &Operation,
        drive: &mut Drive,
        found: &mut Found,
    ) -> Result<(), Failure> {
        let include = self.choice.in_drive();
        if !self.choice.is_all()
            && let Some((_, directory)) = look_up(path.as_bytes(), drive)?
        {
            if self.named && !self.choice.takes_named(path.as_bytes(), directory) {
                return Ok(());
            }
            if directory && self.recursive && include.is_none() {
                return self.tree(path.as_bytes(), operation, drive, found);
            }
            // Its name was judged above: it is searched as it is.
            if !directory {
                return self.ask(path, drive::target(path), operation, drive, found);
            }
        }
        self.ask(path, self.target(path, include.unwrap_or_default()), operation, drive, found)
    }

    fn ask(
        &self,
        path: &OsString,
        target: Target,
        operation: &Operation,
        drive: &mut Drive,
        found: &mut Found,
    ) -> Result<(), Failure> {
        let ask = Ask { target, operation: operation.clone(), follow: true };
        let answer = drive.ask(&ask, |record| {
            found.record(record)?;
            Ok(if found.enough() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if let Err(refusal) = answer {
            found.refused(path.as_bytes(), &refusal);
        }
        Ok(())
    }

    /// Searches the files of a tree that are chosen, in the tree's order.
    fn tree(
        &self,
        root: &[u8],
        operation: &Operation,
        drive: &mut Drive,
        found: &mut Found,
    ) -> Result<(), Failure> {
        let mut levels: Vec<Level> = Vec::new();
        levels.extend(self.level(root.to_vec(), &[], drive, found)?);
        let mut files = Vec::new();
        while let Some(level) = levels.last_mut() {
            let next = level.left.pop();
            if let Some((path, REGULAR)) = next {
                files.push(path);
                if files.len() < TOGETHER {
                    continue;
                }
                search(&mut files, operation, drive, found)?;
            } else {
                search(&mut files, operation, drive, found)?;
                match next {
                    Some((path, _)) => {
                        let next = self.level(path, &levels, drive, found)?;
                        levels.extend(next);
                    }
                    None => drop(levels.pop()),
                }
            }
            if found.enough() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What is chosen of a directory below those above; `None`: it is too deep, or cannot be read, or is one
    /// of those, which is said.
    fn level(
        &self,
        path: Vec<u8>,
        above: &[Level],
        drive: &mut Drive,
        found: &mut Found,
    ) -> Result<Option<Level>, Failure> {
        if above.len() >= self.max_depth as usize {
            return Ok(None);
        }
        let ino = look_up(&path, drive)?.map_or(0, |(ino, _)| ino);
        if ino != 0 && above.iter().any(|above| above.ino == ino) {
            let failure = Refusal::CorruptVolume(format!("directory {ino} lies within itself"));
            found.record(Record::Failed { path: path.into(), failure })?;
            return Ok(None);
        }
        let mut level = Level { path, ino, left: Vec::new() };
        let ask = Ask { target: Target::Path(level.path.clone()), operation: Operation::Names, follow: true };
        let answer = drive.ask(&ask, |record| {
            match record {
                Record::Name { path: name, kind } => {
                    let path = join(&level.path, &name);
                    let directory = is_directory(kind);
                    if (directory || kind == REGULAR) && self.choice.takes(&path, directory) {
                        level.left.push((path, kind));
                    }
                }
                Record::Failed { path: name, failure } => {
                    found.record(Record::Failed { path: join(&level.path, &name).into(), failure })?;
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        level.left.reverse();
        match answer {
            Ok(()) => Ok(Some(level)),
            Err(failure) => {
                found.record(Record::Failed { path: level.path.into(), failure })?;
                Ok(None)
            }
        }
    }
}

/// Searches files together.
fn search(
    files: &mut Vec<Vec<u8>>,
    operation: &Operation,
    drive: &mut Drive,
    found: &mut Found,
) -> Result<(), Failure> {
    let files = std::mem::take(files);
    let ask = |path: &Vec<u8>| Ask {
        target: Target::Path(path.clone()),
        operation: operation.clone(),
        follow: false,
    };
    let asks: Vec<Ask> = files.iter().map(ask).collect();
    drive.ask_each(&asks, |nth, answer| match answer {
        Ok(record) => found.record(record),
        Err(failure) => found.record(Record::Failed { path: files[nth].clone().into(), failure }),
    })
}

/// A path's inode number, and whether it is a directory; `None`: it leads nowhere, as its search will say.
fn look_up(path: &[u8], drive: &mut Drive) -> Result<Option<(u64, bool)>, Failure> {
    let ask = Ask { target: Target::Path(path.to_vec()), operation: Operation::Stat, follow: true };
    let mut found = None;
    let _: Result<(), Refusal> = drive.ask(&ask, |record| {
        if let Record::Entry(entry) = record {
            found = Some((entry.ino, is_directory(entry.mode)));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
