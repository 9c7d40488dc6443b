//! Copies in a folder of this host.
//!
//! All is done by descriptors of folders that were opened one name after the other, without a link: whatever
//! the volume's names and links are, and whatever else goes on in the folder, nothing outside is touched.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, chmod, chmodat,
    chownat, copy_file_range, fchmod, fchown, fstat, fstatfs, ftruncate, futimens, linkat, makedev, mkdirat,
    mknodat, openat, seek, sendfile, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::attributes::{Attribute, Copied};
use super::{BY_ACL, Destination, Done, How, Item, Range, Trouble, empty, refuse_in_use};
use crate::failure::{Failure, words};
use crate::format;
use crate::hand_on::Piece;
use crate::mounted::join;

/// A folder, without leave to read it.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A file to write.
const TO_WRITE: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A device, pipe or socket, which is not opened itself.
const NODE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What a file does not replace.
const DIRECTORY_THERE: &str = "A directory is in its place";
/// File systems in which two files share no blocks: ext2 to ext4, tmpfs (magic.h).
const SHARE_NO_BLOCKS: [u64; 2] = [0xef53, 0x0102_1994];
/// Bytes that are written from a mapping in one call.
const WRITTEN: usize = 128 << 10;
/// Bits of a mode that say what may be done with the file.
const BITS: u16 = 0o7777;
/// Those of them that give nobody the rights of another, and those of a directory: in one, the sticky bit
/// takes rights away.
const PLAIN: u16 = 0o777;
const PLAIN_OF_A_DIRECTORY: u16 = 0o1777;
/// How often, and after what time each, who ends the program asks for a file that is just written to.
const TRIES: usize = 100;
const TRY: Duration = Duration::from_millis(10);

/// What the copy of a source is called.
#[derive(Default)]
pub struct Top {
    /// Below the root.
    pub to: Vec<u8>,
    /// As the command line has it.
    pub shown: Vec<u8>,
    /// Which names the copy itself, and not the folder that it goes to.
    pub own: bool,
}

/// A folder that takes copies.
pub struct Folder {
    /// The source that is copied.
    pub top: Top,
    root: Arc<OwnedFd>,
    /// Whether a copy in it may share the image's blocks.
    may_share: bool,
    how: How,
    /// The last folder that was opened, and its path below the root.
    here: (Vec<u8>, Arc<OwnedFd>),
    /// Of each directory that copies are under way in, whether it was made.
    made: Vec<bool>,
    half: Half,
}

/// A file that is being written.
struct Open {
    file: File,
    /// Its folder, and its name there, where it was made for this.
    made: Option<(Arc<OwnedFd>, Vec<u8>)>,
}

impl Open {
    /// Half of it is not to be taken for it. What was there before is empty again.
    fn undo(self) -> rustix::io::Result<()> {
        match self.made {
            Some((folder, name)) => unlinkat(&folder, &name[..], AtFlags::empty()),
            None => ftruncate(&self.file, 0),
        }
    }
}

/// The file of which a part is written, if there is one: a thread that ends the program undoes it, too.
#[derive(Clone, Default)]
pub struct Half(Arc<Mutex<Option<Open>>>);

impl Half {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn undo(&self) -> rustix::io::Result<()> {
        self.lock().take().map_or(Ok(()), Open::undo)
    }

    /// Undoes it before the program ends, and has no other begun. A call that writes to it is waited for a
    /// second.
    pub fn abandon(&self) {
        for _ in 0..TRIES {
            let mut open = match self.0.try_lock() {
                Ok(open) => open,
                Err(TryLockError::Poisoned(open)) => open.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(TRY);
                    continue;
                }
            };
            let _ = open.take().map(Open::undo);
            std::mem::forget(open);
            return;
        }
    }

    /// The file, where one is open, as it is; from here on it is whole, with its length, as it may end in a
    /// hole.
    fn whole(&self, size: u64) -> Result<Option<(File, Stat)>, Trouble> {
        let mut open = self.lock();
        let Some(Open { file, .. }) = &*open else { return Ok(None) };
        let is = fstat(file)?;
        // A change that changes nothing costs its file system as much as another.
        if u64::try_from(is.st_size) != Ok(size) {
            file.set_len(size)?;
        }
        Ok(open.take().map(|open| (open.file, is)))
    }
}

/// A path's directory and name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn mode(bits: u16) -> Mode {
    Mode::from_raw_mode(bits.into())
}

fn times(item: &Item) -> Timestamps {
    // From a second of nanoseconds on a number has a meaning of its own (UTIME_NOW).
    let time = |(seconds, nanoseconds): (i64, u32)| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.min(999_999_999).into(),
    };
    Timestamps { last_access: time(item.entry.times[0]), last_modification: time(item.entry.times[1]) }
}

/// Gives the item's owners, by `chown`; the mode that the copy may have. Where the caller may not give them
/// away, nobody gets the rights of another (as GNU cp has it).
fn own(
    item: &Item,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
) -> Result<Mode, Trouble> {
    let user = (item.entry.uid != u32::MAX).then(|| Uid::from_raw(item.entry.uid));
    let group = (item.entry.gid != u32::MAX).then(|| Gid::from_raw(item.entry.gid));
    match chown(user, group) {
        Ok(()) => Ok(mode(item.entry.mode & BITS)),
        Err(Errno::PERM | Errno::INVAL) if !geteuid().is_root() => {
            let _ = chown(None, group);
            let directory = format::is_directory(item.entry.mode);
            Ok(mode(item.entry.mode & if directory { PLAIN_OF_A_DIRECTORY } else { PLAIN }))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the item's mode, by `chmod`, and its ACLs, which the mode is a part of. ACLs of the folder that it
/// was made in are gone before the mode would let their users in; and nobody but the owner is let in by the
/// mode of a file whose ACL is not there (yet, or at all): setting an ACL sets those bits.
fn permit(
    copied: &Copied<'_>,
    item: &Item,
    bits: Mode,
    chmod: impl Fn(Mode) -> rustix::io::Result<()>,
) -> Done {
    let removed = copied.remove_acls();
    let masks = item.withheld || removed.is_err() || item.attributes.iter().any(Attribute::is_access_acl);
    chmod(if masks { bits.difference(mode(BY_ACL)) } else { bits })?;
    let given = copied.give_acls(&item.attributes);
    let why = |errno: Errno| Trouble::Item(format!("Its ACL is not copied: {}", words(&errno.into())));
    given.and(removed).map_err(why)
}

/// Whether it is a regular file of several names, or, where `flags` follow it, a link to one.
fn has_other_names(folder: &OwnedFd, name: &[u8], flags: AtFlags) -> Result<bool, Trouble> {
    let stat = statat(folder, name, flags)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink > 1)
}

/// Takes a name away from what is in a copy's place, unless that is a file that anybody uses.
fn make_way(folder: &OwnedFd, name: &[u8]) -> Done {
    let kind = FileType::from_raw_mode(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
    if kind == FileType::RegularFile {
        let open = |flags: OFlags| openat(folder, name, flags | OFlags::NONBLOCK, Mode::empty());
        let only_read = TO_WRITE.difference(OFlags::WRONLY) | OFlags::RDONLY;
        // Who may not read it has no image there.
        if let Ok(file) = open(TO_WRITE).or_else(|_| open(only_read)) {
            refuse_in_use(&File::from(file))?;
        }
    }
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => Err(Trouble::Item(DIRECTORY_THERE.into())),
        gone => Ok(gone?),
    }
}

impl Folder {
    /// The folder that the user names.
    pub fn open(path: &Path, how: How, half: Half) -> io::Result<Folder> {
        let root = Arc::new(rustix::fs::open(path, FOLDER, Mode::empty())?);
        let here = (Vec::new(), root.clone());
        let may_share = !SHARE_NO_BLOCKS.contains(&(fstatfs(&root)?.f_type as u64));
        Ok(Folder { top: Top::default(), root, may_share, how, here, made: Vec::new(), half })
    }

    /// A folder below the root, by its path.
    fn folder(&mut self, path: &[u8]) -> Result<Arc<OwnedFd>, Trouble> {
        if self.here.0 == path {
            return Ok(self.here.1.clone());
        }
        let (mut at, rest) = match path.strip_prefix(&self.here.0[..]).and_then(|r| r.strip_prefix(b"/")) {
            Some(rest) if !self.here.0.is_empty() => (self.here.1.clone(), rest),
            _ => (self.root.clone(), path),
        };
        for name in rest.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = Arc::new(openat(&at, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?);
        }
        self.here = (path.to_vec(), at.clone());
        Ok(at)
    }

    /// The folder that an item goes to.
    fn above(&mut self, item: &Item) -> Result<Arc<OwnedFd>, Trouble> {
        self.folder(split(&item.to).0)
    }

    /// Does what makes a name, in the place of another file where it has to be.
    fn replacing(
        &mut self,
        item: &Item,
        make: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<()>,
    ) -> Result<Arc<OwnedFd>, Trouble> {
        let folder = self.above(item)?;
        let name = split(&item.to).1;
        match make(&folder, name) {
            Err(Errno::EXIST) => {
                make_way(&folder, name)?;
                make(&folder, name)?;
            }
            made => made?,
        }
        Ok(folder)
    }

    /// The file, made or emptied.
    fn create(&mut self, item: &Item) -> Result<Open, Trouble> {
        let folder = self.above(item)?;
        let name = split(&item.to).1;
        // Nobody else reads it before it has its owner.
        let bits = if self.how.preserve { 0o600 } else { item.entry.mode & 0o777 };
        let make = || openat(&folder, name, TO_WRITE | OFlags::CREATE | OFlags::EXCL, mode(bits));
        let named = self.top.own && item.to == self.top.to;
        let look = if named { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let made = match make() {
            // What has other names is not written into where links are kept, nor through a link to it.
            Err(Errno::EXIST) if self.how.all && has_other_names(&folder, name, look)? => {
                make_way(&folder, name)?;
                make()
            }
            made => made,
        };
        match made {
            Ok(file) => Ok(Open { file: file.into(), made: Some((folder.clone(), name.to_vec())) }),
            // Whoever is to read a pipe is not waited for.
            Err(Errno::EXIST) => match openat(&folder, name, TO_WRITE | OFlags::NONBLOCK, Mode::empty()) {
                Ok(file) => {
                    let file = File::from(file);
                    if !file.metadata()?.is_file() {
                        return Err(Trouble::Item("What is no regular file is in its place".into()));
                    }
                    empty(&file)?;
                    Ok(Open { file, made: None })
                }
                Err(Errno::NXIO) => Err(Trouble::Item("What is no regular file is in its place".into())),
                Err(Errno::LOOP) => Err(Trouble::Item("A symbolic link is in its place".into())),
                Err(Errno::ISDIR) => Err(Trouble::Item(DIRECTORY_THERE.into())),
                Err(errno) => Err(errno.into()),
            },
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Destination for Folder {
    fn ends_directories(&self) -> bool {
        // Its default ACL would be that of all that is made in it.
        true
    }

    fn shown(&self, item: &Item) -> Vec<u8> {
        let Top { to, shown, .. } = &self.top;
        match item.to.strip_prefix(&to[..]) {
            None | Some([]) => shown.clone(),
            Some(below) => join(shown, below.strip_prefix(b"/").unwrap_or(below)),
        }
    }

    fn wants(&mut self, item: &Item) -> Result<bool, Trouble> {
        if !self.how.no_clobber {
            return Ok(true);
        }
        if item.to.is_empty() {
            // The root itself is there.
            return Ok(false);
        }
        let folder = self.above(item)?;
        match statat(&folder, split(&item.to).1, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(false),
            Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    fn directory(&mut self, item: &Item) -> Result<bool, Trouble> {
        if item.to.is_empty() {
            self.made.push(false);
            return Ok(false);
        }
        let folder = self.above(item)?;
        let name = split(&item.to).1;
        let bits = if self.how.preserve { 0 } else { item.entry.mode & 0o1777 };
        let made = match mkdirat(&folder, name, mode(bits | 0o700)) {
            Ok(()) => true,
            Err(Errno::EXIST) => {
                match openat(&folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
                    Err(Errno::NOTDIR | Errno::LOOP) => {
                        return Err(Trouble::Item("What is no directory is in its place".into()));
                    }
                    opened => drop(opened?),
                }
                false
            }
            Err(errno) => return Err(errno.into()),
        };
        self.made.push(made);
        Ok(made)
    }

    fn leave(&mut self, item: &Item) -> Done {
        let made = self.made.pop().unwrap_or_default();
        let folder = self.folder(&item.to)?;
        if self.how.preserve {
            let bits = own(item, |user, group| chownat(&folder, ".", user, group, AtFlags::empty()))?;
            let copied = Copied::Named(&folder, b".");
            copied.give(&item.attributes);
            permit(&copied, item, bits, |bits| chmodat(&folder, ".", bits, AtFlags::empty()))?;
            utimensat(&folder, ".", &times(item), AtFlags::empty())?;
        } else if made && item.entry.mode & 0o700 != 0o700 {
            // What was lent to its owner, to fill it.
            let is = Mode::from_raw_mode(statat(&folder, ".", AtFlags::empty())?.st_mode);
            chmodat(&folder, ".", is.difference(mode(!item.entry.mode & 0o700)), AtFlags::empty())?;
        }
        Ok(())
    }

    fn hard_link(&mut self, item: &Item, first: &[u8]) -> Done {
        let from = self.folder(split(first).0)?;
        let first = split(first).1;
        let folder = self.above(item)?;
        let inode = |folder: &OwnedFd, name: &[u8]| {
            statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat.st_dev, stat.st_ino))
        };
        if inode(&folder, split(&item.to).1).is_ok_and(|is| inode(&from, first) == Ok(is)) {
            return Ok(());
        }
        self.replacing(item, |folder, name| linkat(&from, first, folder, name, AtFlags::empty()))?;
        Ok(())
    }

    fn special(&mut self, item: &Item) -> Done {
        let name = split(&item.to).1;
        if let Some(target) = &item.entry.link {
            let folder = self.replacing(item, |folder, name| symlinkat(&target[..], folder, name))?;
            if self.how.preserve {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                own(item, |user, group| chownat(&folder, name, user, group, flags))?;
                Copied::Named(&folder, name).give(&item.attributes);
                utimensat(&folder, name, &times(item), flags)?;
            }
            return Ok(());
        }
        let kind = match format::letter(item.entry.mode) {
            'p' => FileType::Fifo,
            's' => FileType::Socket,
            'c' => FileType::CharacterDevice,
            'b' => FileType::BlockDevice,
            'l' => return Err(Trouble::Item("Where the link leads is not to be had".into())),
            _ => return Err(Trouble::Item("A file of no known kind".into())),
        };
        let (major, minor) = item.entry.rdev;
        let device = if format::is_device(item.entry.mode) { makedev(major, minor) } else { 0 };
        let folder = self.replacing(item, |folder, name| mknodat(folder, name, kind, mode(0o600), device))?;
        let made = openat(&folder, name, NODE, Mode::empty())?;
        let stat = fstat(&made)?;
        if FileType::from_raw_mode(stat.st_mode) != kind || stat.st_rdev != device || stat.st_nlink != 1 {
            return Err(Trouble::Item("Another file has taken its place".into()));
        }
        let bits = own(item, |user, group| chownat(&made, "", user, group, AtFlags::EMPTY_PATH))?;
        let (copied, itself) = (Copied::Path(&made), Copied::itself(&made));
        copied.give(&item.attributes);
        permit(&copied, item, bits, |bits| chmod(&itself, bits))?;
        utimensat(CWD, &itself, &times(item), AtFlags::empty())?;
        Ok(())
    }

    fn begin(&mut self, item: &Item, _ranges: &[Range]) -> Done {
        let half = self.half.clone();
        // What is made is known before anybody ends the program.
        let mut open = half.lock();
        *open = Some(self.create(item)?);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Done {
        match &*self.half.lock() {
            Some(open) => Ok(open.file.write_all_at(bytes, offset)?),
            None => Ok(()),
        }
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn hand_on(&mut self, offset: u64, len: usize, piece: Piece<'_>) -> usize {
        let open = self.half.lock();
        let Some(Open { file, .. }) = &*open else { return 0 };
        let Piece::Image(image, at) = piece else {
            // It was empty, and has its length at the end.
            return len;
        };
        // Where both lie in one file system that can, they share blocks.
        if self.may_share
            && let Ok(copied @ 1..) =
                copy_file_range(image, Some(&mut { at }), file, Some(&mut { offset }), len)
        {
            return copied;
        }
        // From where the page cache has them, in one copy. Why not is said by who writes it in the end.
        if let Some(lent) = image.lend(at, len) {
            let mut pieces = lent.as_ref().chunks(WRITTEN).zip((offset..).step_by(WRITTEN));
            let written = pieces.try_for_each(|(bytes, offset)| file.write_all_at(bytes, offset));
            return if written.is_ok() && !image.has_lapsed() { len } else { 0 };
        }
        let sent =
            seek(file, SeekFrom::Start(offset)).and_then(|_| sendfile(file, image, Some(&mut { at }), len));
        sent.unwrap_or(0)
    }

    fn end(&mut self, item: &Item, whole: bool) -> Done {
        if !whole {
            return Ok(self.half.undo()?);
        }
        let is_whole = self.half.whole(item.entry.size);
        if is_whole.is_err() {
            let _ = self.half.undo();
        }
        let Some((file, is)) = is_whole? else { return Ok(()) };
        if self.how.preserve {
            let is_own = |user: Option<Uid>, group: Option<Gid>| {
                user.is_none_or(|user| user.as_raw() == is.st_uid)
                    && group.is_none_or(|group| group.as_raw() == is.st_gid)
            };
            let bits = own(item, |user, group| match is_own(user, group) {
                true => Ok(()),
                false => fchown(&file, user, group),
            })?;
            let copied = Copied::Open(&file);
            // Where the mode would forbid it, it is too late afterwards; a new owner takes capabilities away.
            copied.give(&item.attributes);
            permit(&copied, item, bits, |bits| fchmod(&file, bits))?;
            futimens(&file, &times(item))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Drop for Folder {
    /// Whatever has ended the copying.
    fn drop(&mut self) {
        let _ = self.half.undo();
    }
}
