//! `nearside find`: a tree listed by the drive in one command,
//! and an expression ([`expression`]) on each entry.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;
use nearside_fsrlib::{Ask, Deleted, Failure as Refusal, FileEntry, Operation, Record, Target};

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Failure, Outcome, complain_of};
use crate::format::{self, Times};
use crate::out::Out;
use crate::users::{NamesArgs, Users};

mod deleted;
mod exec;
pub mod expression;
mod numbers;
mod printf;
mod regex;

pub use deleted::Gone;
use exec::Command;
use expression::{Action, Candidate, Expression, Test};
use numbers::Number;

const EXAMPLES: &str = "\
Examples:
  nearside find -d disk.img /etc -name '*.conf'
  nearside find -d disk.img / -type f -size +10M -maxdepth 4
  nearside find -d disk.img / -perm -4000 -print0
  nearside find -d disk.img /var '(' -empty -o -name '*.log' ')' ! -path '*/old/*'
  nearside find -d disk.img / -name proc -prune -o -type f -mtime -7 -printf '%s %p\\n'
  nearside find -d disk.img /var -newer /etc/passwd -ls
  nearside find -d disk.img /home -user root -o -nouser
  nearside find -d disk.img /usr -regextype posix-extended -regex '.*\\.(so|a)' -quit
  nearside find -d disk.img /etc -name '*.conf' -exec nearside cat -d disk.img {} +
  nearside find -d disk.img --as 0:0 --deleted -type f -mtime -7

All words mean what they mean in GNU find (with one dash or two), for paths of the volume; volumes hold no mounts.
Tests:
  -name, -iname, -path, -ipath, -lname, -ilname GLOB    of the base name, the whole path, a link's target; -i ignores case
  -regex, -iregex REGEX         the whole path; -regextype emacs (as without it), posix-basic, posix-extended for those behind it
  -type C                       f file, d directory, l symbolic link, p fifo, s socket, b and c devices; several with commas
  -size N[cwbkMG]               units, rounded up; +N more, -N fewer
  -perm MODE                    octal or chmod's letters: MODE exactly, -MODE all of them, /MODE any
  -mtime, -atime, -ctime N      days ago; -mmin, -amin, -cmin N minutes; +N more, -N fewer
  -newer FILE                   modified later than FILE of the volume was; -anewer, -cnewer; -newerXY with a, B, c, m, and t for a time
  -user, -group NAME            names or numbers; -nouser, -nogroup. Names are those of the volume's /etc/passwd and /etc/group, this
                                host's with --names=host or --mounted
  -uid, -gid, -inum, -links N   numbers; +N more, -N fewer; -samefile FILE
  -empty                        files without a byte, directories without an entry
  -true, -false
  -maxdepth N, -mindepth N      levels below the paths; -depth directories after what they hold; -xdev, -mount always hold
Operators, the strongest first: ( TESTS ), ! TEST or -not TEST, TEST [-a] TEST, TEST -o TEST, TEST , TEST.
Actions: -print (what is done without one), -print0, -printf FORMAT (but %D %Y %Z), -ls, -prune, -quit, and -exec PROGRAM ... ; or {} +,
which runs a program of this host with paths of the volume: one that asks the drive again.
--deleted lists what no directory names any more, in place of trees: of ext volumes, for root (--as 0:0), as debugfs's lsdel and ils do,
by reads of all inode tables. A line has inode, mode, user, group, size, and when it was deleted, or the word orphan: it was open
then, and still has its blocks. Of the others the kernel's ext4 leaves size 0 and no map; what a map names may be another file's by now.
Where a part of a volume does not say where its inodes are, that is said, the others are listed, and the exit status is 1.
Tests are as of other files, a path is the inode's number as debugfs takes it (<14>), and -print prints the line; -exec is refused.
Other words of find's are refused, exit status 2. Entries come in byte order of names, but for those of directories of more
than 128 KiB, which come in the directory's own order.";

/// Find files in a tree
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES), override_usage = "nearside find -d DRIVE [OPTIONS] [PATH]... [TEST]...")]
pub struct FindArgs {
    /// Absolute paths in the volume; the root without any
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// find's words, as [`crate::words`] sets them apart
    #[arg(long, hide = true, require_equals = true)]
    expression: Vec<OsString>,
    /// Find deleted files of an ext volume, as root
    #[arg(long, conflicts_with_all = ["paths", "mounted"])]
    deleted: bool,
    #[command(flatten)]
    names: NamesArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

/// What entries are seen with, beside themselves.
pub struct Visit<'a> {
    /// The path that was asked for.
    root: &'a [u8],
    /// Its levels.
    top: usize,
    users: &'a Users,
    times: &'a Times,
    /// What the volume is, where that is asked for.
    file_system: &'a str,
    /// Nanoseconds since 1970.
    now: i128,
}

/// A tree's entries on their way through the expression.
struct Walk<'a> {
    expression: &'a Expression,
    commands: &'a mut [Command],
    visit: Visit<'a>,
    json: bool,
    /// What directories say of their entries is enough.
    names: bool,
    /// They are printed, and nothing else is done: what follows each.
    prints: Option<u8>,
    /// Directories that wait for what comes after them: whether they are empty shows there, and where they
    /// are to come after what they hold, each waits within the one before it.
    held: Vec<Held>,
    /// The path that could not be read, said last: such a directory is not known to be empty.
    failed: Vec<u8>,
    /// Of a deleted file: since when.
    gone: Option<Gone>,
    /// The directory that is not gone into.
    pruned: Option<Vec<u8>>,
    quit: bool,
    code: u8,
}

struct Held {
    entry: FileEntry<'static>,
    filled: bool,
}

/// Why an expression is not done to its end.
enum Halt {
    Quit,
    Failed(Failure),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Failed(failure)
    }
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Halt {
        Halt::Failed(error.into())
    }
}

/// A type, as a directory may know it: of all that is asked of it, only that it is known.
const FIFO: u16 = 0o010_000;

fn levels(path: &[u8]) -> usize {
    path.split(|&b| b == b'/').filter(|c| !c.is_empty()).count()
}

/// Whether a path is a directory's own or lies below it.
fn within(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

impl Visit<'_> {
    /// Levels below the path that was asked for.
    fn depth(&self, path: &[u8]) -> u32 {
        levels(path).saturating_sub(self.top) as u32
    }
}

impl Walk<'_> {
    fn record(&mut self, record: Record<'_>, out: &mut Out) -> Result<(), Failure> {
        let maxdepth = self.expression.maxdepth;
        match record {
            Record::Entry(entry) => self.entry(entry, out),
            Record::Name { path, kind } if self.names && kind != 0 => match self.prints {
                Some(end) => Ok(out.name(&path).and_then(|()| out.write_all(&[end]))?),
                None => self.entry(FileEntry::of_name(path, kind), out),
            },
            // In a directory that may be read and not searched there are names alone,
            // into which find does not come.
            Record::Name { path, kind } => {
                let inside = kind == 0o040_000 && maxdepth.is_none_or(|most| self.visit.depth(&path) < most);
                let unknown = self.expression.needs_attributes(kind);
                if (inside || unknown) && !self.is_left_out(&path) {
                    self.complain(&path, &Refusal::PermissionDenied);
                }
                match unknown {
                    true => Ok(()),
                    false => self.entry(FileEntry::of_name(path, kind), out),
                }
            }
            Record::Failed { path, failure } => {
                self.release(Some(&path), out)?;
                self.failed = path.to_vec();
                // Deeper than was asked for, it is of no concern.
                if maxdepth.is_none_or(|most| self.visit.depth(&path) <= most) && !self.is_left_out(&path) {
                    self.complain(&path, &failure);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn complain(&mut self, path: &[u8], refusal: &Refusal) {
        self.code = 1;
        complain_of(path, refusal);
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        self.quit || self.pruned.as_deref().is_some_and(|directory| within(path, directory))
    }

    fn entry(&mut self, entry: FileEntry<'_>, out: &mut Out) -> Result<(), Failure> {
        self.release(Some(&entry.path), out)?;
        if self.is_left_out(&entry.path) {
            return Ok(());
        }
        let waits = self.expression.asks_empty || self.expression.depth_first;
        if waits && format::is_directory(entry.mode) {
            let filled = self.failed[..] == *entry.path;
            self.held.push(Held { entry: entry.into_owned(), filled });
            return Ok(());
        }
        self.test(&entry, false, out)
    }

    fn deleted(&mut self, deleted: Deleted, out: &mut Out) -> Result<ControlFlow<()>, Failure> {
        let Deleted { entry, when, orphan } = deleted;
        self.gone = Some(Gone { when, orphan });
        self.test(&entry, false, out)?;
        Ok(if self.quit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Tests the directories that were held back, now that `next` comes.
    fn release(&mut self, next: Option<&[u8]>, out: &mut Out) -> Result<(), Failure> {
        while let Some(mut held) = self.held.pop() {
            if next.is_some_and(|next| within(next, &held.entry.path)) {
                held.filled = true;
                if self.expression.depth_first {
                    self.held.push(held);
                    break;
                }
            }
            self.test(&held.entry, !held.filled, out)?;
        }
        Ok(())
    }

    fn test(&mut self, entry: &FileEntry, empty_directory: bool, out: &mut Out) -> Result<(), Failure> {
        // To see what is in the last directories, the drive was asked for a level more.
        let Expression { mindepth, maxdepth, .. } = *self.expression;
        let limited = mindepth > 0 || maxdepth.is_some();
        let shown = |depth| depth >= mindepth && maxdepth.is_none_or(|most| depth <= most);
        if self.quit || limited && !shown(self.visit.depth(&entry.path)) {
            return Ok(());
        }
        let candidate = Candidate { entry, empty_directory, users: self.visit.users };
        let expression = self.expression;
        match expression.apply(&candidate, &mut |action| self.act(action, entry, out)) {
            Ok(()) => Ok(()),
            Err(Halt::Failed(failure)) => Err(failure),
            Err(Halt::Quit) => {
                self.quit = true;
                Ok(())
            }
        }
    }

    fn act(&mut self, action: &Action, entry: &FileEntry, out: &mut Out) -> Result<bool, Halt> {
        match action {
            Action::Print(_) | Action::Ls if self.json => {
                let mut value = crate::ls::json(&entry.path, entry);
                if let Some(gone) = self.gone {
                    gone.add_to(&mut value);
                }
                out.json(&value)?;
            }
            Action::Print(end) => {
                match self.gone {
                    Some(gone) => gone.print(entry, &self.visit, out)?,
                    None => out.name(&entry.path)?,
                }
                out.write_all(&[*end])?;
            }
            Action::Printf(format) => format.print(entry, &self.visit, out)?,
            Action::Ls => printf::line(entry, &self.visit, out)?,
            Action::Exec(nth) => {
                // What was printed before stands before what the program prints.
                out.flush()?;
                return Ok(self.commands[*nth].call(&entry.path));
            }
            Action::Prune => {
                if format::is_directory(entry.mode) && !self.expression.depth_first {
                    self.pruned = Some(entry.path.to_vec());
                }
            }
            Action::Quit => return Err(Halt::Quit),
        }
        Ok(true)
    }
}

/// Looks up what tests name: users and groups by their numbers, files by their times and inodes.
fn look_up(expression: &mut Expression, users: &Users, drive: &mut Drive) -> Result<(), Failure> {
    expression.each_test(|test| {
        let file = |path: &[u8], drive: &mut Drive| {
            let (found, _) = crate::ls::stat(drive, &OsString::from_vec(path.to_vec()), false)?;
            let file = found.into_iter().find(|entry| !entry.is_name_alone());
            let name = String::from_utf8_lossy(path);
            file.ok_or_else(|| Failure::Message(format!("find: {name:?} is not there to compare with")))
        };
        let unknown = |what: &str, name: &str| format!("find: {name:?} is no {what} that is known");
        let found = match test {
            Test::User(name) => {
                let uid = users.uid(name).ok_or_else(|| unknown("user", name))?;
                Test::Uid(Number::exactly(uid.into()))
            }
            Test::Group(name) => {
                let gid = users.gid(name).ok_or_else(|| unknown("group", name))?;
                Test::Gid(Number::exactly(gid.into()))
            }
            Test::SameFile(path) => Test::Inode(Number::exactly(file(path, drive)?.ino)),
            Test::NewerThan(stamp, than, path) => {
                let kept = than.from(&file(path, drive)?);
                let kept = kept.ok_or_else(|| "find: the volume does not keep times of birth".to_owned())?;
                Test::Newer(*stamp, kept)
            }
            _ => return Ok(()),
        };
        *test = found;
        Ok(())
    })
}

/// The name of the volume's file system, where that is asked for.
fn file_system(expression: &Expression, drive: &mut Drive) -> Result<String, Failure> {
    Ok(match expression.needs_file_system() {
        true => drive.volume()?.map(|volume| volume.file_system.into_owned()).unwrap_or_default(),
        false => String::new(),
    })
}

pub fn run(mut args: FindArgs) -> Outcome {
    let mut paths = std::mem::take(&mut args.paths);
    if paths.is_empty() {
        paths.push("/".into());
    }
    let (now, times) = (format::now(), Times::new());
    let mut expression = Expression::of(std::mem::take(&mut args.expression), now, &times)?;
    let json = args.drive.json;
    if json && expression.has_own_output() {
        return Err(Failure::Message("find: --json says what there is to say: no -printf, no -exec".into()));
    }
    let mut out = Out::new();
    // Of what follows in another command each directory on the way is listed anew.
    let mut drive = Drive::open_for(&args.drive, &mut paths)?.with_buffer(1 << 18);
    let users = match expression.needs_names() {
        true => Users::needed(&args.names, args.drive.mounted, &mut drive)?,
        false => Users::of(&args.names, &mut drive)?,
    };
    look_up(&mut expression, &users, &mut drive)?;
    let file_system = file_system(&expression, &mut drive)?;
    let mut commands = std::mem::take(&mut expression.commands);
    if args.deleted && !commands.is_empty() {
        return Err(Failure::Message(
            "find: --deleted: there is no path to give to a program (-exec)".into(),
        ));
    }
    // What directories say of their entries is enough where no test asks for more.
    let names = !json && !expression.needs_attributes(FIFO);
    let deeper = u32::from(expression.asks_empty);
    if !args.deleted && expression.maxdepth.is_none() {
        drive.expect_entries(&paths)?;
    }
    let mut code = 0;
    for path in &paths {
        let root = path.as_bytes();
        let target = Target::Tree {
            root: root.to_vec(),
            include: vec![],
            exclude: vec![],
            max_depth: expression.maxdepth.map_or(u32::MAX, |most| most.saturating_add(deeper)),
        };
        let operation = if names { Operation::Names } else { Operation::List };
        let ask = Ask { target, operation, follow: false };
        let visit =
            Visit { root, top: levels(root), users: &users, times: &times, file_system: &file_system, now };
        let mut walk = Walk {
            expression: &expression,
            commands: &mut commands,
            visit,
            json,
            names,
            prints: expression.only_prints(),
            held: Vec::new(),
            failed: Vec::new(),
            gone: None,
            pruned: None,
            quit: false,
            code: 0,
        };
        let good = match args.deleted {
            true => drive.deleted(|deleted| walk.deleted(deleted, &mut out))?,
            false => drive.ask_about(root, &ask, |record| {
                walk.record(record, &mut out)?;
                Ok(if walk.quit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?,
        };
        walk.release(None, &mut out)?;
        code = if good { code.max(walk.code) } else { 1 };
        if walk.quit {
            break;
        }
    }
    out.flush()?;
    for command in &mut commands {
        command.finish();
        code = code.max(u8::from(command.has_failed()));
    }
    drive.finish(&mut out)?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn below_or_not() {
        for (path, directory, is) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/", true),
            ("/b", "/a/", false),
        ] {
            assert_eq!(within(path.as_bytes(), directory.as_bytes()), is, "{path} {directory}");
        }
    }
}
