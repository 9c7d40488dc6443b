//! `nearside cp`: files and trees out of a volume, by the habits of GNU cp, or as a tar archive.
//!
//! How a file passes: [`walk`] lists its directory by one command of the drive's, takes small files from
//! where the page cache has them or asks for many at a time, has large ones handed on as `cat` does, and
//! hands what comes to a [`Destination`]: a folder of this host ([`folder`]), an archive ([`archive`]), or
//! for one file an open pipe ([`stream`]). Names come from the volume, which may be anybody's: below the
//! folder that the command line names no link is followed. Of a file that does not come whole nothing is
//! left, also where the drive fails or the user ends the command.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use nearside_dma::file::{Lock, lock_over};
use nearside_dma::in_use;
use nearside_fsrlib::{Ask, FileEntry, Operation, Record};
use rustix::io::Errno;

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain, complain_of, words};
use crate::format;
use crate::hand_on::Piece;
use crate::interrupt;
use crate::mounted::join;
use crate::out::Out;
use crate::users::{NamesArgs, Users};

mod archive;
mod attributes;
mod folder;
mod stream;
mod walk;

use archive::Archive;
use attributes::{Attribute, Which};
use folder::{Folder, Half, Top};
use stream::Stream;
use walk::Copy;

const EXAMPLES: &str = "\
Examples:
  nearside cp -d disk.img /etc/passwd .
  nearside cp -d disk.img -r /etc ./etc             # links stay links, modes as the umask lets them
  nearside cp -d disk.img -a /etc /home -t .        # with times, hard links and, as root, owners and devices
  nearside cp -d disk.img --tar - /etc | tar -tf -
  nearside cp -d disk.img --tar home.tar --names /home    # owners by the volume's own names, and by numbers

Exit status: 0 all is copied, 1 something is not, 2 the drive failed. A file that does not come whole is removed, or left empty
where there was one, also after Ctrl-C; an archive then has no end. A file that a program has locked, as this one has the image,
is not written to, nor replaced. Below DEST no symbolic link is followed: one that is in a file's place is an error, and so is a
file there of another source (where directories of theirs meet, GNU cp keeps the last).
-p keeps ACLs with modes, -a other extended attributes too, as far as the caller may set them and the destination keeps them; an
archive has both (tar --xattrs --acls unpacks them).";

/// Copy files and trees to this host, or into a tar archive
#[derive(Args)]
#[command(
    after_long_help = crate::args::flowing(EXAMPLES),
    override_usage = "nearside cp -d DRIVE [OPTIONS] PATH... DEST\n       \
                      nearside cp -d DRIVE [OPTIONS] PATH... -t FOLDER\n       \
                      nearside cp -d DRIVE [OPTIONS] PATH... --tar FILE"
)]
pub struct CpArgs {
    /// Absolute paths in the volume, and behind them where the copies go
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Directories with all that is in them; symbolic links are copied as links
    #[arg(short = 'r', long, short_alias = 'R')]
    recursive: bool,
    /// -r, -p, extended attributes, hard links as hard links, and pipes, sockets and (as root) devices
    #[arg(short = 'a', long)]
    archive: bool,
    /// Keep mode, ACLs, times and, as root, owner and group
    #[arg(short = 'p', long)]
    preserve: bool,
    /// Copy a symbolic link that is named as a link
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// Leave what is there already
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// Into this folder
    #[arg(short = 't', long, value_name = "FOLDER", conflicts_with_all = ["no_target_directory", "tar"])]
    target_directory: Option<PathBuf>,
    /// DEST is the copy's own name, also where it is a folder
    #[arg(short = 'T', long, conflicts_with = "tar")]
    no_target_directory: bool,
    /// Say what is copied
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Write a tar archive (pax) with owners, times, links, extended attributes and ACLs; - is standard
    /// output
    #[arg(long, value_name = "FILE", conflicts_with = "no_clobber")]
    tar: Option<PathBuf>,
    #[command(flatten)]
    names: NamesArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

/// One thing to copy.
pub struct Item {
    /// Its path in the volume.
    pub from: Vec<u8>,
    /// Its path below the destination; empty: what the destination itself is.
    pub to: Vec<u8>,
    /// What the volume says of it.
    pub entry: FileEntry<'static>,
    /// Those of its extended attributes that are copied, where it is about to be.
    pub attributes: Vec<Attribute>,
    /// They are not to be had, an ACL among them or not.
    pub withheld: bool,
}

impl Item {
    fn new(from: Vec<u8>, to: Vec<u8>, entry: FileEntry<'static>) -> Item {
        Item { from, to, entry, attributes: Vec::new(), withheld: false }
    }
}

/// A mode's bits for all but the owner. Of a file with an ACL, those for the group are its mask, and those
/// for others are of whom it does not name: without it they would give what the ACL may deny.
const BY_ACL: u16 = 0o077;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
}

impl Range {
    /// What of it lies before that byte.
    fn before(self, at: u64) -> u64 {
        at.saturating_sub(self.offset).min(self.len)
    }

    /// What of it lies from that byte on; `None`: nothing.
    fn from(self, at: u64) -> Option<Range> {
        let passed = self.before(at);
        let is_left = passed < self.len || at == 0;
        is_left.then_some(Range { offset: self.offset + passed, len: self.len - passed })
    }
}

/// Refuses a file that anybody uses and that is to be emptied, or to lose a name: it may be the image that
/// copies come from.
fn refuse_in_use(file: &fs::File) -> io::Result<()> {
    match in_use::take(file, Lock::Exclusive) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(error),
        // Who may only read it cannot have that lock, and asks who would keep it out.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::BADF) => match lock_over(file, 0) {
            Ok(Some(_)) => {
                let who = Some(in_use::lockers(file)).filter(|who| !who.is_empty());
                let who = who.as_deref().unwrap_or("another program");
                Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{who} has it locked")))
            }
            _ => Ok(()),
        },
        // Where there are no locks, nobody has one.
        _ => Ok(()),
    }
}

/// Empties a file that copies go to, unless anybody uses it. What is no regular file is left as it is.
fn empty(file: &fs::File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        refuse_in_use(file)?;
        file.set_len(0)?;
    }
    Ok(())
}

/// No more can be written to `place`: that ends it all.
fn broken(place: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Pipe,
        _ => Failure::Message(format!("{}: {}", place.display(), words(error))),
    }
}

/// Why something is not copied.
pub enum Trouble {
    /// It concerns that one.
    Item(String),
    /// It concerns all.
    Command(Failure),
}

/// What became of it.
pub type Done = Result<(), Trouble>;

impl From<rustix::io::Errno> for Trouble {
    fn from(errno: rustix::io::Errno) -> Trouble {
        Trouble::Item(words(&errno.into()))
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Item(words(&error))
    }
}

/// Where copies go. Directories come before what is in them. Who writes need not be who reads: see [`walk`].
pub trait Destination: Send {
    /// How messages name an item.
    fn shown(&self, item: &Item) -> Vec<u8>;
    /// Whether a directory gets its attributes when all that is in it has come; else when it is made.
    fn ends_directories(&self) -> bool;
    /// Whether it is to be copied, as far as what is there already has a say.
    fn wants(&mut self, item: &Item) -> Result<bool, Trouble>;
    /// A directory; whether it was not there before.
    fn directory(&mut self, item: &Item) -> Result<bool, Trouble>;
    /// All that is in that directory has come.
    fn leave(&mut self, item: &Item) -> Done;
    /// Another name of what was copied to `first`.
    fn hard_link(&mut self, item: &Item, first: &[u8]) -> Done;
    /// A symbolic link, device, pipe or socket.
    fn special(&mut self, item: &Item) -> Done;
    /// A regular file, of which these bytes will come, in order, and all others are zeros.
    fn begin(&mut self, item: &Item, ranges: &[Range]) -> Done;
    /// Bytes of that file.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Done;
    /// Whether it takes pieces of files.
    fn takes_pieces(&self) -> bool {
        false
    }
    /// A piece of that file, as the kernel has it; how many of its bytes were taken. Where that is none it is
    /// written.
    fn hand_on(&mut self, _offset: u64, _len: usize, _piece: Piece<'_>) -> usize {
        0
    }
    /// The end of that file, of which all has come or not.
    fn end(&mut self, item: &Item, whole: bool) -> Done;
    /// The end.
    fn finish(&mut self) -> Result<(), Failure>;
}

/// What is copied, and how.
#[derive(Clone, Copy)]
pub struct How {
    /// Directories.
    pub recursive: bool,
    /// Mode, times, owners.
    pub preserve: bool,
    /// Extended attributes.
    pub attributes: Which,
    /// Hard links, devices, pipes and sockets.
    pub all: bool,
    /// What is there stays.
    pub no_clobber: bool,
    /// A symbolic link that is named is what it leads to.
    pub follow: bool,
    /// Say each.
    pub verbose: bool,
    /// Several sources, so that one may be in another's place.
    pub several: bool,
}

pub fn run(mut args: CpArgs) -> Outcome {
    let mut sources = std::mem::take(&mut args.paths);
    let named = match args.target_directory.is_none() && args.tar.is_none() {
        true => sources.pop(),
        false => None,
    };
    if sources.is_empty() {
        complain(&format!("missing destination behind {:?}", named.unwrap_or_default().to_string_lossy()));
        return Ok(1);
    }
    let to_output = args.tar.as_deref() == Some(Path::new("-"));
    if to_output && (args.verbose || args.drive.json || crate::terminal::output()) {
        complain("--tar -: standard output is the archive's: no terminal, and neither -v nor --json");
        return Ok(1);
    }
    if args.names.are_asked() && args.tar.is_none() {
        return Err(Failure::Message("cp: --names is of archives (--tar): copies have numbers".into()));
    }
    let half = Half::default();
    if args.tar.is_none() {
        let half = half.clone();
        interrupt::to_end(move || half.abandon())?;
    }
    let mut drive = Drive::open_for(&args.drive, &mut sources)?.with_buffer(1 << 20);
    let users = Users::of(&args.names, &mut drive)?;
    let all = args.archive || args.tar.is_some();
    let recursive = args.recursive || all;
    let how = How {
        recursive,
        preserve: args.preserve || args.archive,
        attributes: match (all, args.preserve) {
            (true, _) => Which::All,
            (false, true) => Which::Acls,
            (false, false) => Which::None,
        },
        all,
        no_clobber: args.no_clobber,
        follow: !(recursive || args.no_dereference),
        verbose: args.verbose,
        several: sources.len() > 1,
    };
    let mut copy = Copy::new(drive, how);
    let found = look_up(&mut copy, &sources)?;
    copy.expect(&found)?;
    let copied = match (&args.tar, named.as_deref()) {
        (Some(file), _) => into_archive(&mut copy, file, users, found),
        (None, Some(named)) if is_for_stream(named.as_ref(), &copy, &found) => {
            into_stream(&mut copy, named.as_ref(), found)
        }
        (None, named) => into_folder(&mut copy, &args, named, found, half),
    };
    if let Err(Refused { place, why }) = copied? {
        copy.failed(place.as_os_str().as_bytes(), &why);
    }
    let mut out = Out::new();
    if args.drive.json {
        out.json(&copy.summary())?;
    }
    let code = copy.code();
    copy.into_drive().finish(&mut out)?;
    Ok(code)
}

/// A destination that cannot be one.
struct Refused {
    place: PathBuf,
    why: String,
}

type Placed = Result<Result<(), Refused>, Failure>;

/// What the sources are; what is wrong with one is said.
fn look_up(copy: &mut Copy, sources: &[OsString]) -> Result<Vec<(Vec<u8>, FileEntry<'static>)>, Failure> {
    let follow = copy.how.follow;
    let ask = |path: &OsString| Ask { target: drive::target(path), operation: Operation::Stat, follow };
    let asks: Vec<Ask> = sources.iter().map(ask).collect();
    let mut found = Vec::new();
    let mut bad = 0;
    copy.drive.ask_each(&asks, |nth, answer| {
        let path = sources[nth].as_bytes();
        match answer {
            Ok(Record::Entry(entry)) => found.push((path.to_vec(), entry.into_owned())),
            Ok(Record::Failed { failure, .. }) | Err(failure) => {
                bad += 1;
                complain_of(path, &failure);
            }
            Ok(_) => {}
        }
        Ok(())
    })?;
    copy.add_failed(bad);
    Ok(found)
}

fn into_archive(
    copy: &mut Copy,
    file: &Path,
    users: Users,
    found: Vec<(Vec<u8>, FileEntry<'static>)>,
) -> Placed {
    let mut archive = match Archive::create(file, users) {
        Ok(archive) => archive,
        Err(error) => return Ok(Err(Refused { place: file.to_owned(), why: words(&error) })),
    };
    for (from, entry) in found {
        let to = archive::member(&from);
        if let Err(failure) = copy.source(&mut archive, Item::new(from, to, entry)) {
            archive.abandon();
            return Err(failure);
        }
    }
    archive.finish().map(Ok)
}

/// Whether it is one regular file, and goes where a link of the user's leads that is no file: as /dev/stdout
/// and /dev/fd/N lead to a pipe that has no name of its own, or to the terminal at standard output. Another
/// pipe or device is refused, as a thing in a copy's place.
fn is_for_stream(named: &Path, copy: &Copy, found: &[(Vec<u8>, FileEntry<'static>)]) -> bool {
    let [(_, entry)] = found else { return false };
    let (Ok(link), Ok(kind)) = (fs::symlink_metadata(named), fs::metadata(named)) else { return false };
    let is_output = || {
        fs::metadata("/proc/self/fd/1").is_ok_and(|out| (out.dev(), out.ino()) == (kind.dev(), kind.ino()))
    };
    !copy.how.several
        && format::letter(entry.mode) == '-'
        && link.is_symlink()
        && !(kind.is_file() || kind.is_dir())
        && (fs::canonicalize(named).is_err() || is_output())
}

fn into_stream(copy: &mut Copy, place: &Path, found: Vec<(Vec<u8>, FileEntry<'static>)>) -> Placed {
    let mut stream = match Stream::open(place, copy.how.no_clobber) {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(Refused { place: place.to_owned(), why: words(&error) })),
    };
    for (from, entry) in found {
        let to = base(&from).to_vec();
        copy.source(&mut stream, Item::new(from, to, entry))?;
    }
    stream.finish().map(Ok)
}

fn into_folder(
    copy: &mut Copy,
    args: &CpArgs,
    named: Option<&OsStr>,
    found: Vec<(Vec<u8>, FileEntry<'static>)>,
    half: Half,
) -> Placed {
    let several = copy.how.several;
    let typed = args.target_directory.as_ref().map_or(named.unwrap_or_default(), |folder| folder.as_os_str());
    let (root, name) = match place(args, named, several, found.first().map(|(_, entry)| entry)) {
        Ok(place) => place,
        Err(refused) => return Ok(Err(refused)),
    };
    let mut folder = match Folder::open(&root, copy.how, half) {
        Ok(folder) => folder,
        Err(error) => return Ok(Err(Refused { place: root, why: words(&error) })),
    };
    for (from, entry) in found {
        let to = name.clone().unwrap_or_else(|| base(&from).to_vec());
        let shown = match (&name, last(&from)) {
            (Some(_), _) => typed.as_bytes().to_vec(),
            (None, b"..") => join(typed.as_bytes(), b"."),
            (None, last) => join(typed.as_bytes(), last),
        };
        folder.top = Top { to: to.clone(), shown, own: name.is_some() };
        copy.source(&mut folder, Item::new(from, to, entry))?;
    }
    folder.finish().map(Ok)
}

/// The folder that takes the copies, and what name the only one has in it (empty: it is that folder);
/// without a name, each has its own. As GNU cp chooses.
fn place(
    args: &CpArgs,
    named: Option<&OsStr>,
    several: bool,
    first: Option<&FileEntry>,
) -> Result<(PathBuf, Option<Vec<u8>>), Refused> {
    let named = match (&args.target_directory, named) {
        (Some(folder), _) => return Ok((folder.clone(), None)),
        (None, named) => Path::new(named.unwrap_or_default()),
    };
    let refused = |why: &str| Refused { place: named.to_owned(), why: why.to_owned() };
    let directory = first.is_some_and(|entry| format::is_directory(entry.mode));
    let own_name = args.no_target_directory;
    if own_name && several {
        return Err(refused("several files have not one name (-T)"));
    }
    let kind = if own_name { fs::symlink_metadata(named) } else { fs::metadata(named) };
    match kind {
        // What is no directory takes no directory's place: that is an error below, and not one where what is
        // there stays.
        Ok(kind) if kind.is_dir() && own_name && (directory || args.no_clobber) => {
            return Ok((named.to_owned(), Some(vec![])));
        }
        Ok(kind) if kind.is_dir() && !own_name => return Ok((named.to_owned(), None)),
        Err(error) if several => return Err(refused(&words(&error))),
        Ok(_) if several => return Err(refused("Not a directory")),
        _ => {}
    }
    let mut named = named.to_owned();
    let link = fs::symlink_metadata(&named).is_ok_and(|kind| kind.is_symlink());
    // Where links are kept, a file of several names is not written into: the copy takes the link's place.
    let gives_way = args.archive && fs::metadata(&named).is_ok_and(|file| file.is_file() && file.nlink() > 1);
    if link && !gives_way && first.is_some_and(|entry| format::letter(entry.mode) == '-') {
        // The user's own link, which was named.
        named = fs::canonicalize(&named).map_err(|error| refused(&words(&error)))?;
    }
    if named.as_os_str().as_bytes().ends_with(b"/") && !directory {
        return Err(refused("Not a directory"));
    }
    let name = named.file_name().ok_or_else(|| refused("No such file or directory"))?;
    let parent = named.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), Some(name.as_bytes().to_vec())))
}

/// A path's last name; none of the root's.
fn last(path: &[u8]) -> &[u8] {
    path.split(|b| *b == b'/').rfind(|name| !name.is_empty()).unwrap_or_default()
}

/// The name that a copy has in a folder; none: what is in the directory goes into the folder itself.
fn base(path: &[u8]) -> &[u8] {
    let last = last(path);
    if matches!(last, b"." | b"..") { b"" } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies() {
        for (path, name) in
            [("/etc/passwd", "passwd"), ("/etc/", "etc"), ("/etc/.", ""), ("/", ""), ("/a/..", "")]
        {
            assert_eq!(base(path.as_bytes()), name.as_bytes(), "{path}");
        }
    }
}
