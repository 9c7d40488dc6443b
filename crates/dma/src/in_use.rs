//! Who on this machine uses a file or a block device beside whoever asks: what a program must know before it
//! writes to one, or trusts what it has read from one.
//!
//! A file or device is in use where it, one of its partitions, or the disk that it is a partition of is
//! mounted (/proc/self/mountinfo, by device number and by name), is swap (/proc/swaps) or has a holder (/sys:
//! device mapper, RAID, LVM, bcache); and where a loop device lies over it (by the kernel's own answer of
//! which inode it has open, or by name). Programs keep each other out by a lock of the whole file ([`take`]);
//! [`lockers`] names them; QEMU's that writes is seen, though it locks single bytes. What another machine, or
//! a mount namespace that is not this process's, does with a network's file or a block device is not seen; a
//! block device opened with O_EXCL sees the latter.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file::{Lock, lock, lock_over};

/// Somebody who uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// In words, as "it is mounted at /mnt".
    pub by: String,
    /// Whether its bytes may change by it.
    pub writes: bool,
    /// Whether it may just be going: a loop device that is no longer mounted lives on for some milliseconds.
    goes: bool,
}

impl User {
    fn reads_if(read_only: bool, by: String) -> User {
        User { by, writes: !read_only, goes: false }
    }
}

/// Who uses the file or block device at `path`; of several one that may write it.
///
/// # Errors
/// What kept the system from saying so.
pub fn user(path: &Path) -> io::Result<Option<User>> {
    let path = path.canonicalize()?;
    let metadata = fs::metadata(&path)?;
    let mut users = loop_devices(&path, &metadata)?;
    if metadata.file_type().is_block_device() {
        users.extend(device(&path, &metadata, &mounts()?)?);
    } else {
        users.extend(swap(&|m| (m.dev(), m.ino()) == (metadata.dev(), metadata.ino())));
    }
    users.sort_by_key(|user| !user.writes);
    Ok(users.into_iter().next())
}

/// What is mounted; long on a machine of many containers, so asked only where a device is.
fn mounts() -> io::Result<String> {
    fs::read_to_string("/proc/self/mountinfo")
}

/// Refuses what is in use: to who would write it (an exclusive lock) if anybody uses it, to who would read it
/// (a shared one) if somebody writes it.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`], with who it is; or what kept the system from saying so.
pub fn refuse(path: &Path, kind: Lock) -> io::Result<()> {
    let asked = || user(path).map(|user| user.filter(|user| user.writes || kind == Lock::Exclusive));
    let mut found = asked()?;
    for _ in 0..TRIES {
        if !found.as_ref().is_some_and(|user| user.goes) {
            break;
        }
        std::thread::sleep(TRY);
        found = asked()?;
    }
    match found {
        Some(user) => Err(io::Error::new(io::ErrorKind::ResourceBusy, user.by)),
        None => Ok(()),
    }
}

/// How often what may pass is looked at again.
const TRIES: usize = 100;
const TRY: Duration = Duration::from_millis(10);

/// Takes an open file, and keeps out who asks in this way. A lock that is held is waited for a second: a
/// program that was killed has its locks for some milliseconds after its death, until the kernel has taken
/// its io_uring apart.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`], with who has it; or the system's, where it has no locks.
pub fn take(file: &File, kind: Lock) -> io::Result<()> {
    for _ in 0..TRIES {
        if lock(file, kind)? {
            return match kind == Lock::Shared && qemu_writes(file) {
                true => Err(io::Error::new(io::ErrorKind::ResourceBusy, locked_by(file))),
                false => Ok(()),
            };
        }
        std::thread::sleep(TRY);
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, locked_by(file)))
}

/// Takes a file, open at that path, for reading whoever writes it: who that is, where somebody does.
pub fn writer(path: &Path, file: &File) -> Option<String> {
    let user = user(path).ok().flatten().filter(|user| user.writes);
    // Where there are no locks, nobody has one.
    let is_locked = || matches!(lock(file, Lock::Shared), Ok(false)) || qemu_writes(file);
    let locked = || is_locked().then(|| locked_by(file));
    user.map(|user| user.by).or_else(locked)
}

/// Whether QEMU has it open to write. Its lock is a shared one, of a byte for each thing that it may do (from
/// byte 100 on; writing is the second: `RAW_PERM_BASE` of block/file-posix.c), and keeps no reader out. Where
/// another reader's lock of the whole file is found in its place, it is not seen; but that keeps QEMU out.
fn qemu_writes(file: &File) -> bool {
    matches!(lock_over(file, QEMU_WRITES), Ok(Some(QEMU..)))
}

const QEMU: u64 = 100;
const QEMU_WRITES: u32 = 101;

fn locked_by(file: &File) -> String {
    match lockers(file) {
        nobody if nobody.is_empty() => "another program has it locked".to_owned(),
        lockers => format!("{lockers} has it locked"),
    }
}

/// A block device, its partitions and the disk that it is a part of, as "major:minor".
struct Family {
    numbers: Vec<String>,
    /// Their folders in /sys, but for the disk's.
    held: Vec<PathBuf>,
}

impl Family {
    /// Of the device with that folder in /sys.
    fn of(sys: PathBuf) -> io::Result<Family> {
        let number =
            |folder: &Path| fs::read_to_string(folder.join("dev")).map(|text| text.trim().to_owned());
        let mut numbers = vec![number(&sys)?];
        if sys.join("partition").exists()
            && let Some(disk) = sys.canonicalize()?.parent()
        {
            numbers.extend(number(disk));
        }
        let parts = fs::read_dir(&sys).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut held: Vec<PathBuf> = parts.filter(|part| part.join("partition").exists()).collect();
        numbers.extend(held.iter().flat_map(|part| number(part)));
        held.push(sys);
        Ok(Family { numbers, held })
    }
}

fn device(path: &Path, metadata: &Metadata, mounts: &str) -> io::Result<Vec<User>> {
    let family = Family::of(PathBuf::from(format!("/sys/dev/block/{}", words(metadata.rdev()))))?;
    let mut users: Vec<User> = mounted(mounts, &family.numbers, &path.to_string_lossy())
        .map(|(place, read_only)| User::reads_if(read_only, format!("it is mounted at {place}")))
        .collect();
    for held in &family.held {
        for holder in fs::read_dir(held.join("holders")).into_iter().flatten().flatten() {
            let name = holder.file_name();
            users.push(User::reads_if(
                is_read_only(&holder.path()),
                format!("{} holds it", name.to_string_lossy()),
            ));
        }
    }
    users.extend(swap(&|m| m.file_type().is_block_device() && family.numbers.contains(&words(m.rdev()))));
    Ok(users)
}

/// Whether the file system of that device number (`st_dev`) is mounted at that path, and nothing over it
/// there.
pub fn is_mounted(path: &Path, device: u64) -> bool {
    let (device, mounts) = (words(device), mounts().unwrap_or_default());
    let at = |line: &&str| {
        line.split(' ').nth(4).is_some_and(|place| Path::new(&place.replace("\\040", " ")) == path)
    };
    mounts.lines().rfind(at).and_then(|line| line.split(' ').nth(2)) == Some(&device)
}

/// "major:minor", as the kernel writes them (makedev(3) backwards).
fn words(number: u64) -> String {
    let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
    let minor = (number & 0xff) | (number >> 12 & !0xff);
    format!("{major}:{}", minor & 0xffff_ffff)
}

/// Where one of these devices, or a device of this name, is mounted, and whether only for reading (proc(5):
/// the third field is the number, the fifth the place, the second after the dash the source, which alone
/// shows Btrfs's devices, the third the file system's own options).
fn mounted<'a>(
    mountinfo: &'a str,
    family: &'a [String],
    name: &'a str,
) -> impl Iterator<Item = (String, bool)> + 'a {
    mountinfo.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let dash = fields.iter().position(|field| *field == "-")?;
        let by_number = family.iter().any(|number| fields.get(2) == Some(&number.as_str()));
        let by_name = fields.get(dash + 2) == Some(&name);
        let read_only = fields.get(dash + 3).is_some_and(|options| options.split(',').any(|o| o == "ro"));
        let place = fields.get(4).copied().unwrap_or("?").replace("\\040", " ");
        (by_number || by_name).then_some((place, read_only))
    })
}

fn swap(same: &dyn Fn(&Metadata) -> bool) -> Option<User> {
    let list = fs::read_to_string("/proc/swaps").ok()?;
    let paths = list.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let found = paths.filter_map(|path| fs::metadata(path).ok()).any(|metadata| same(&metadata));
    found.then(|| User::reads_if(false, "it is swap".to_owned()))
}

/// Whether a block device with that folder in /sys takes no writes.
fn is_read_only(sys: &Path) -> bool {
    fs::read_to_string(sys.join("ro")).is_ok_and(|text| text.trim() == "1")
}

/// The loop devices over a file or device.
fn loop_devices(path: &Path, metadata: &Metadata) -> io::Result<Vec<User>> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let sys = entry.path();
        let backing = fs::read_to_string(sys.join("loop/backing_file")).ok()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let backing = Path::new(backing.trim_end_matches('\n'));
        let by_name = fs::metadata(backing).map_or(backing == path, |m| same_bytes(&m, metadata));
        if !by_name && !lies_over(Path::new("/dev").join(&name).as_path(), metadata) {
            return None;
        }
        let numbers = Family::of(sys.clone()).map_or_else(|_| Vec::new(), |family| family.numbers);
        let mounts = match mounts() {
            Ok(mounts) => mounts,
            Err(e) => return Some(Err(e)),
        };
        let at = mounted(&mounts, &numbers, &format!("/dev/{name}")).next();
        let goes = at.is_none();
        let at = at.map_or(String::new(), |(place, _)| format!(", mounted at {place}"));
        let by = format!("the loop device /dev/{name} lies over it{at}");
        Some(Ok(User { goes, ..User::reads_if(is_read_only(&sys), by) }))
    })
    .collect()
}

/// Whether two paths lead to the same bytes.
fn same_bytes(a: &Metadata, b: &Metadata) -> bool {
    match a.file_type().is_block_device() && b.file_type().is_block_device() {
        true => a.rdev() == b.rdev(),
        false => (a.dev(), a.ino()) == (b.dev(), b.ino()),
    }
}

/// Whether that loop device lies over that file: by what the driver says it has open, which a name (of
/// another mount namespace, or of a file that was moved) does not tell.
fn lies_over(device: &Path, file: &Metadata) -> bool {
    /// `LOOP_GET_STATUS64` of linux/loop.h, and words of `struct loop_info64`: lo_device, lo_inode and
    /// lo_rdevice come first.
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
    const WORDS: usize = 232 / 8;
    let Ok(device) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(device) else {
        return false;
    };
    let mut info = [0u64; WORDS];
    // SAFETY: the kernel writes one loop_info64 of 232 bytes, owned here and aligned for it.
    if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) } != 0 {
        return false;
    }
    match file.file_type().is_block_device() {
        true => info[2] == file.rdev(),
        false => info[..2] == [file.dev(), file.ino()],
    }
}

/// The programs that hold a lock on what `file` is, as far as this user may know: "process 17 (nearside)".
/// Empty where it may not.
pub fn lockers(file: &File) -> String {
    let Ok(metadata) = file.metadata() else { return String::new() };
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name().to_string_lossy().into_owned();
        let Ok(number) = name.parse::<u32>() else { continue };
        let holds = |entry: &fs::DirEntry| {
            // The descriptor that asks holds none.
            let itself =
                number == std::process::id() && entry.file_name() == file.as_raw_fd().to_string().as_str();
            let same = || {
                fs::metadata(entry.path())
                    .is_ok_and(|m| (m.dev(), m.ino()) == (metadata.dev(), metadata.ino()))
            };
            let info = process.path().join("fdinfo").join(entry.file_name());
            !itself && same() && fs::read_to_string(info).is_ok_and(|text| text.contains("lock:"))
        };
        if fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten().any(|entry| holds(&entry))
        {
            let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            // The name of a process is its own choice.
            let program: String =
                program.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            found.push(match number == std::process::id() {
                true => "this process".to_owned(),
                false => format!("process {number} ({program})"),
            });
        }
    }
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_name() {
        let info = "22 1 8:17 / /mnt/a\\040b rw - ext4 /dev/sdb1 ro,relatime\n23 1 0:44 / /data ro shared:1 - btrfs /dev/sdc rw\n";
        let family = |numbers: &[&str]| numbers.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let find = |numbers: &[&str], name: &str| mounted(info, &family(numbers), name).next();
        assert_eq!(find(&["8:16", "8:17"], "/dev/sdb"), Some(("/mnt/a b".into(), true)));
        assert_eq!(find(&["8:32"], "/dev/sdc"), Some(("/data".into(), false)));
        assert_eq!(find(&["8:1"], "/dev/sda1"), None);
        assert_eq!(words(0x0810), "8:16");
        assert_eq!(words(259 << 8 | 3), "259:3");
    }

    #[test]
    fn who_locks_a_file_is_named() {
        let path = std::env::temp_dir().join(format!("nearside-lockers-{}", std::process::id()));
        fs::write(&path, b"bytes").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (first, second, writer) = (open(), open(), open());
        fs::remove_file(&path).unwrap();
        assert_eq!(lockers(&writer), "");
        assert!(lock(&first, Lock::Shared).unwrap() && lock(&second, Lock::Shared).unwrap());
        assert!(!lock(&writer, Lock::Exclusive).unwrap());
        assert_eq!(lockers(&writer), "this process");
        drop((first, second));
        assert!(lock(&writer, Lock::Exclusive).unwrap());
    }
}
