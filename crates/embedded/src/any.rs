//! A store named by a word, for the command line: `dram:1GiB`, `dram:IMAGE`, `file:PATH` or a plain path,
//! `pmem:PATH`, `qcow2:PATH`, `lvm:PATH?volume=VG/LV`, a modelled device (`model:nand-p3700:16GiB`), with a
//! delay or faults before it where a study wants them.
//!
//! ```text
//! STORE   = [WRAPPER ":"]... BASE
//! BASE    = "dram:" (SIZE | PATH) | "file:" PATH | PATH
//!         | "pmem:" PATH                       a file (in /dev/shm, on a DAX file system) or /dev/dax0.0
//!         | "qcow2:" PATH ["?snapshot=" NAME]  a disk image, read-only; a plain path is never taken for one
//!         | "lvm:" BASE "?volume=" VG "/" LV   a logical volume of a file or a disk image, read-only
//!         | "model:" WORD ":" SIZE             WORD: see [`Model`], a name or a file (mine.toml); a NAND
//!                                              drive's own size may be left out
//! WRAPPER = "delayed:" OPTION ["," OPTION]...  a time (100ns, 10us, 5ms), units=N, stripe=SIZE,
//!                                              perkib=TIME, stall=TIME, every=N, seed=N
//!         | "faulty:" OPTION ["," OPTION]...   permillion=N, after=N, times=N, seed=N,
//!                                              kind=any|reads|mutations|flushes, torn, full
//! SIZE    = bytes, or with k, m, g, t or KiB, MiB, GiB, TiB in any case
//! ```

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::{LentBytes, Memory};
use nearside_driver::tcp::Address;
use nearside_ftl::FlashStore;
use nearside_media::words::size;
use nearside_media::{behind, path_len};
use nearside_store::write_log::{Logged, WriteLog};
use nearside_store::{
    Backing, Channel, Completion, Data, Delay, Delayed, Disk, Dram, Fault, Faulty, File, FileOptions, Kinds,
    Lossy, Mapped, Modelled, Operation, Pmem, Qcow2, Rule, Standing, Store, Submitted, Token,
};

use crate::model::{Model, Named};
use crate::partition::Logical;

/// Any store.
#[derive(Clone, Debug)]
pub enum AnyStore {
    /// In memory.
    Dram(Dram),
    /// In a file or on a block device.
    File(File),
    /// In a mapped file.
    Pmem(Pmem),
    /// In a disk image.
    Qcow2(Qcow2),
    /// A logical volume in a file or a disk image.
    Mapped(Mapped),
    /// Any, delayed.
    Delayed(Box<Delayed<AnyStore>>),
    /// Any, with faults.
    Faulty(Box<Faulty<AnyStore>>),
    /// In memory, in a modelled device's time.
    Modelled(Box<Modelled<Dram, Model>>),
    /// On modelled flash.
    Flash(FlashStore),
    /// Any, with a write log.
    Logged(Box<Logged<AnyStore>>),
    /// In memory, and what was not flushed is lost in a crash. No word names it.
    Lossy(Lossy),
}

/// A way into any store.
pub enum AnyChannel {
    /// Of a [`Dram`].
    Dram(<Dram as Store>::Channel),
    /// Of a [`File`].
    File(Box<<File as Store>::Channel>),
    /// Of a [`Pmem`].
    Pmem(Box<<Pmem as Store>::Channel>),
    /// Of a [`Qcow2`].
    Qcow2(Box<<Qcow2 as Store>::Channel>),
    /// Of a [`Mapped`].
    Mapped(Box<<Mapped as Store>::Channel>),
    /// Of a [`Delayed`].
    Delayed(Box<<Delayed<AnyStore> as Store>::Channel>),
    /// Of a [`Faulty`].
    Faulty(Box<<Faulty<AnyStore> as Store>::Channel>),
    /// Of a [`Modelled`].
    Modelled(Box<<Modelled<Dram, Model> as Store>::Channel>),
    /// Of a [`FlashStore`].
    Flash(Box<<FlashStore as Store>::Channel>),
    /// Of a [`Logged`].
    Logged(Box<<Logged<AnyStore> as Store>::Channel>),
    /// Of a [`Lossy`].
    Lossy(Box<<Lossy as Store>::Channel>),
}

impl AnyStore {
    /// Opens what a store word names. `options` say how a file is opened and the block size of all stores.
    ///
    /// # Errors
    /// The store's own, and `InvalidInput` for a word that is none, with the part of the word that is wrong.
    pub fn open(word: &str, options: FileOptions) -> io::Result<AnyStore> {
        Word::parse(word)?.open(options)
    }

    /// What the bytes of the store that a word names lie in, and the file's path where that is one. Nothing
    /// is opened: whether there is such a file is not asked, but of `dram:`, where it could be no size.
    ///
    /// # Errors
    /// `InvalidInput` for a word that is none, with the part of the word that is wrong.
    pub fn named(word: &str) -> io::Result<(Backing, Option<PathBuf>)> {
        Ok(Word::parse(word)?.named())
    }

    /// A store's word with the path that it names made absolute, where it is relative: to `folder`.
    pub fn word_from(folder: &Path, word: &str) -> String {
        let Some(place) = path_in(word) else { return word.to_owned() };
        let path = folder.join(&word[place.clone()]);
        format!("{}{}{}", &word[..place.start], path.display(), &word[place.end..])
    }

    /// Opens what a user asks for files of, to read it: a disk image by the word `qcow2:`, a logical volume
    /// of what is opened so by the word `lvm:`, a file or block device as it is by the word `file:`. Without
    /// a word, what gzip or Zstandard have made of an image is unpacked, and a disk image is found by its
    /// first bytes ([`Qcow2::found_in`]).
    ///
    /// # Errors
    /// As [`File::open`], [`File::unpacked`], [`Qcow2::open`], [`Qcow2::found_in`] and
    /// [`AnyStore::logical_volume`].
    pub fn image(path: &Path, options: FileOptions) -> io::Result<AnyStore> {
        let word =
            |word: &str| path.as_os_str().as_bytes().strip_prefix(word.as_bytes()).map(OsStr::from_bytes);
        if let Some(rest) = word(QCOW2) {
            return qcow2(rest, options);
        }
        if let Some(rest) = word(LVM) {
            let (disk, volume) = logical(rest)?;
            return AnyStore::image(Path::new(disk), options)?.logical_volume(None, &volume);
        }
        if let Some(path) = word(FILE) {
            return Ok(AnyStore::File(File::open(path, options)?));
        }
        let file = File::open(path, options)?.unpacked(options)?;
        Ok(match Qcow2::found_in(&file, options)? {
            Some(image) => AnyStore::Qcow2(image),
            None => AnyStore::File(file),
        })
    }

    /// Who else writes it, where it is a file that was opened [beside anybody](nearside_store::Beside).
    pub fn writer(&self) -> Option<&str> {
        match self {
            AnyStore::File(file) => file.writer(),
            AnyStore::Mapped(volume) => match volume.disk() {
                Disk::File(file) => file.writer(),
                Disk::Qcow2(_) => None,
            },
            _ => None,
        }
    }

    /// What a user should know about how it was opened, one sentence each.
    pub fn notes(&self) -> &[String] {
        match self {
            AnyStore::Dram(_) | AnyStore::Modelled(_) | AnyStore::Flash(_) => &[],
            AnyStore::Qcow2(_) | AnyStore::Lossy(_) => &[],
            AnyStore::Mapped(volume) => volume.notes(),
            AnyStore::File(file) => file.notes(),
            AnyStore::Pmem(pmem) => pmem.notes(),
            AnyStore::Delayed(delayed) => delayed.inner().notes(),
            AnyStore::Faulty(faulty) => faulty.inner().notes(),
            AnyStore::Logged(logged) => logged.inner().notes(),
        }
    }

    /// The store with a write log that begins in a new file.
    ///
    /// # Errors
    /// `InvalidInput` for a store that is not written. Else as [`WriteLog::create`].
    pub fn logged(self, path: &Path) -> io::Result<AnyStore> {
        if self.read_only() {
            return Err(invalid(format!("write log {}: the store is read-only", path.display())));
        }
        let log = WriteLog::create(path, self.block_size(), self.capacity())?;
        Ok(AnyStore::Logged(Box::new(Logged::new(self, log)?)))
    }

    /// Its write log, where it has one.
    pub fn write_log(&self) -> Option<&WriteLog> {
        match self {
            AnyStore::Logged(logged) => Some(logged.log()),
            _ => None,
        }
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Whether a user's name of an image has one of the words of [`AnyStore::image`], and so is no path.
pub(crate) fn has_word(name: &OsStr) -> bool {
    [FILE, QCOW2, LVM].iter().any(|word| name.as_bytes().starts_with(word.as_bytes()))
}

/// The word of a file as it is.
const FILE: &str = "file:";

/// The word of a disk image.
const QCOW2: &str = "qcow2:";

/// The word of a logical volume.
const LVM: &str = "lvm:";

/// What stands before its names.
const VOLUME: &str = "?volume=";

/// What stands before the last such mark, and what behind it; all, where there is none.
fn split<'a>(rest: &'a OsStr, mark: &str) -> (&'a OsStr, Option<&'a OsStr>) {
    let bytes = rest.as_bytes();
    match bytes.windows(mark.len()).rposition(|part| part == mark.as_bytes()) {
        Some(at) => (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + mark.len()..]))),
        None => (rest, None),
    }
}

/// What follows the word of a disk image: a path, and the name of a snapshot where there is one.
fn disk(rest: &OsStr) -> (&OsStr, Option<&OsStr>) {
    split(rest, "?snapshot=")
}

/// What follows that of a logical volume: what names its disk, and its own names.
fn logical(rest: &OsStr) -> io::Result<(&OsStr, Logical)> {
    let wrong = |why: &str| invalid(format!("{LVM}{}: {why}", rest.display()));
    let (disk, volume) = split(rest, VOLUME);
    if disk.is_empty() {
        return Err(wrong("names no file"));
    }
    let volume = volume.ok_or_else(|| wrong("names no volume (as lvm:disk.img?volume=VG/LV)"))?;
    let volume = volume.to_string_lossy().parse::<Logical>().map_err(|why| wrong(&why))?;
    Ok((disk, volume))
}

fn qcow2(rest: &OsStr, options: FileOptions) -> io::Result<AnyStore> {
    let (path, snapshot) = disk(rest);
    if path.is_empty() {
        return Err(invalid(format!("{QCOW2}{}: names no file", rest.display())));
    }
    Ok(AnyStore::Qcow2(Qcow2::open(path, snapshot, options)?))
}

/// A logical volume of a disk that is only read. Beside a writer it is refused: runs that were read before
/// may be another volume's by now.
fn volume(disk: Word<'_>, volume: &Logical, options: FileOptions) -> io::Result<AnyStore> {
    let FileOptions { block_size, beside, .. } = options;
    let disk = disk.open(FileOptions { block_size, beside, ..FileOptions::read() })?;
    if let AnyStore::File(file) = &disk
        && let Some(writer) = file.writer()
    {
        let path = file.path().display();
        let why = format!("{path}: {writer}: a logical volume is served while nobody writes its disk");
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    disk.logical_volume(None, volume)
}

/// A store's word, taken apart. Nothing is opened yet.
enum Word<'a> {
    Delayed(Delay, Box<Word<'a>>),
    Faulty(Rule, u64, Box<Word<'a>>),
    /// Of so many bytes.
    Memory(&'a str, u64),
    /// Memory with a file's contents.
    Image(&'a str),
    Model {
        word: &'a str,
        device: Box<Named>,
        bytes: u64,
    },
    Mapped(&'a str),
    /// A disk image: its path, and maybe the name of a snapshot.
    Disk(&'a str),
    /// A logical volume of that disk.
    Volume(Box<Word<'a>>, Logical),
    File(&'a str),
}

impl<'a> Word<'a> {
    fn parse(word: &'a str) -> io::Result<Word<'a>> {
        let part = |prefix| word.strip_prefix(prefix);
        if let Some(rest) = part("delayed:") {
            let (list, below) = wrapper("delayed", rest)?;
            let delay = Delay::parse(list).map_err(|e| invalid(format!("delayed: {e}")))?;
            return Ok(Word::Delayed(delay, Box::new(Word::parse(below)?)));
        }
        if let Some(rest) = part("faulty:") {
            let (list, below) = wrapper("faulty", rest)?;
            let (rule, seed) = fault(list)?;
            return Ok(Word::Faulty(rule, seed, Box::new(Word::parse(below)?)));
        }
        if let Some(rest) = part("dram:") {
            return match size(rest) {
                Some(bytes) => Ok(Word::Memory(word, bytes)),
                None if Path::new(rest).exists() => Ok(Word::Image(rest)),
                None => {
                    Err(invalid(format!("store {word:?}: {rest:?} is neither a size (as 1GiB) nor a file")))
                }
            };
        }
        if let Some(rest) = part("model:") {
            let (device, bytes) = model(rest).map_err(|e| invalid(format!("store {word:?}: {e}")))?;
            return Ok(Word::Model { word, device: Box::new(device), bytes });
        }
        if let Some(rest) = part(QCOW2) {
            return Ok(Word::Disk(rest));
        }
        if let Some(rest) = part(LVM) {
            let (disk, volume) = logical(OsStr::new(rest))?;
            return Ok(Word::Volume(Box::new(Word::parse(&rest[..disk.len()])?), volume));
        }
        if Address::is_meant(word) {
            return Err(invalid(format!(
                "store {word:?}: a drive over the network is attached (`nearside attach`)"
            )));
        }
        let mapped = part("pmem:");
        let path = mapped.or_else(|| part(FILE)).unwrap_or(word);
        if path.is_empty() {
            return Err(invalid(format!("store {word:?} names no file")));
        }
        Ok(if mapped.is_some() { Word::Mapped(path) } else { Word::File(path) })
    }

    /// What the bytes lie in, and the file's path where that is one.
    fn named(&self) -> (Backing, Option<PathBuf>) {
        match self {
            Word::Delayed(_, below) | Word::Faulty(_, _, below) => below.named(),
            Word::Memory(..) => (Backing::Memory, None),
            Word::Image(path) => (Backing::Memory, Some(path.into())),
            Word::Model { .. } => (Backing::Model, None),
            Word::Mapped(path) => (Backing::MappedFile, Some(path.into())),
            Word::Disk(rest) => (Backing::Qcow2, Some(disk(OsStr::new(rest)).0.into())),
            Word::Volume(below, _) => (Backing::LogicalVolume, below.named().1),
            Word::File(path) => (Backing::File, Some(path.into())),
        }
    }

    fn open(self, options: FileOptions) -> io::Result<AnyStore> {
        Ok(match self {
            Word::Delayed(delay, below) => {
                AnyStore::Delayed(Box::new(Modelled::new(below.open(options)?, delay.medium())))
            }
            Word::Faulty(rule, seed, below) => {
                AnyStore::Faulty(Box::new(Faulty::new(below.open(options)?, seed, [rule])))
            }
            Word::Memory(word, bytes) => {
                let named = |e: io::Error| io::Error::new(e.kind(), format!("store {word:?}: {e}"));
                AnyStore::Dram(Dram::new(bytes, options.block_size).map_err(named)?)
            }
            Word::Image(path) => AnyStore::Dram(Dram::from_file(path, options.block_size)?),
            Word::Model { word, device, bytes } => modelled(*device, bytes, options.block_size)
                .map_err(|e| invalid(format!("store {word:?}: {e}")))?,
            Word::Mapped(path) => AnyStore::Pmem(Pmem::open(path, options)?),
            Word::Disk(rest) => return qcow2(OsStr::new(rest), options),
            Word::Volume(disk, names) => return volume(*disk, &names, options),
            Word::File(path) => AnyStore::File(File::open(path, options)?),
        })
    }
}

/// Where in a store's word the path stands that it names, if it names one.
fn path_in(word: &str) -> Option<Range<usize>> {
    // What a rest of the word has, in the word.
    let within = |rest: &str, place: Range<usize>| {
        let at = word.len() - rest.len();
        at + place.start..at + place.end
    };
    match word.split_once(':') {
        Some(("delayed" | "faulty", rest)) => {
            let (_, below) = rest.split_once(':')?;
            path_in(below).map(|place| within(below, place))
        }
        Some(("qcow2", rest)) => {
            let (path, _) = disk(OsStr::new(rest));
            (!path.is_empty()).then(|| within(rest, 0..path.len()))
        }
        Some(("lvm", rest)) => {
            let (disk, _) = split(OsStr::new(rest), VOLUME);
            let place = path_in(&rest[..disk.len()]).filter(|place| !place.is_empty())?;
            Some(within(rest, place))
        }
        Some(("dram", rest)) => size(rest).is_none().then(|| within(rest, 0..rest.len())),
        Some(("model", rest)) => {
            let device = rest.rsplit_once(':').map_or(rest, |(device, _)| device);
            let (_, model) = behind(device);
            let begins = device.len() - model.len();
            path_len(model).map(|len| within(rest, begins..begins + len))
        }
        Some(("file" | "pmem", rest)) => Some(within(rest, 0..rest.len())),
        _ => Some(0..word.len()),
    }
}

/// Options up to the next colon, and the store below.
fn wrapper<'a>(name: &str, rest: &'a str) -> io::Result<(&'a str, &'a str)> {
    rest.split_once(':')
        .ok_or_else(|| invalid(format!("{name}:{rest}: names no store (as {name}:{rest}:dram:1GiB)")))
}

/// A modelled device, and its bytes.
fn model(rest: &str) -> Result<(Named, u64), String> {
    let (word, named) = match rest.rsplit_once(':') {
        Some((word, bytes)) => {
            (word, Some(size(bytes).ok_or_else(|| format!("{bytes:?} is no size (as 16GiB)"))?))
        }
        None => (rest, None),
    };
    // Says first what is wrong with the model.
    let device = Named::parse(word)?;
    let own = match &device {
        Named::Nand(nand) => Some(nand.drive.capacity),
        Named::Behind(..) | Named::Medium(_) => None,
    };
    let bytes = named.or(own).ok_or_else(|| format!("a size is missing (as model:{word}:16GiB)"))?;
    Ok((device, bytes))
}

/// On flash of its own where it is a NAND drive by itself, else in memory.
fn modelled(device: Named, bytes: u64, block_size: u32) -> Result<AnyStore, String> {
    if let Named::Nand(nand) = device {
        let store = FlashStore::new(nand.drive.sized(bytes), nand.config, block_size);
        return store.map(AnyStore::Flash).map_err(|e| e.to_string());
    }
    let medium = device.sized(bytes)?;
    let dram = Dram::new(bytes, block_size).map_err(|e| e.to_string())?;
    Ok(AnyStore::Modelled(Box::new(Modelled::new(dram, medium))))
}

fn fault(list: &str) -> io::Result<(Rule, u64)> {
    let (mut rule, mut seed) = (Rule::new(Kinds::Any, Fault::Error), 1);
    for option in list.split(',') {
        let bad = || invalid(format!("faulty: {option:?} is no option of a fault, or has no such value"));
        let number = |n: &str| n.parse::<u64>().map_err(|_| bad());
        match option.split_once('=') {
            None if option == "torn" => rule.fault = Fault::Torn,
            None if option == "full" => rule.fault = Fault::Full,
            Some(("permillion", n)) => rule.per_million = number(n)?,
            Some(("after", n)) => rule.after = number(n)?,
            Some(("times", n)) => rule.times = Some(number(n)?),
            Some(("seed", n)) => seed = number(n)?,
            Some(("kind", kind)) => {
                rule.kinds = match kind {
                    "any" => Kinds::Any,
                    "reads" => Kinds::Reads,
                    "mutations" => Kinds::Mutations,
                    "flushes" => Kinds::Flushes,
                    _ => return Err(bad()),
                }
            }
            _ => return Err(bad()),
        }
    }
    Ok((rule, seed))
}

macro_rules! each {
    ($kind:ident, $any:expr, $it:ident => $body:expr) => {
        match $any {
            $kind::Dram($it) => $body,
            $kind::File($it) => $body,
            $kind::Pmem($it) => $body,
            $kind::Qcow2($it) => $body,
            $kind::Mapped($it) => $body,
            $kind::Delayed($it) => $body,
            $kind::Faulty($it) => $body,
            $kind::Modelled($it) => $body,
            $kind::Flash($it) => $body,
            $kind::Logged($it) => $body,
            $kind::Lossy($it) => $body,
        }
    };
}

impl Store for AnyStore {
    type Channel = AnyChannel;

    fn capacity(&self) -> u64 {
        each!(AnyStore, self, store => store.capacity())
    }

    fn resize(&self, bytes: Option<u64>) -> io::Result<u64> {
        each!(AnyStore, self, store => store.resize(bytes))
    }

    fn block_size(&self) -> u32 {
        each!(AnyStore, self, store => store.block_size())
    }

    fn read_only(&self) -> bool {
        each!(AnyStore, self, store => store.read_only())
    }

    fn backing(&self) -> Option<Backing> {
        match self {
            AnyStore::Modelled(_) => Some(Backing::Model),
            other => each!(AnyStore, other, store => store.backing()),
        }
    }

    fn standing(&self) -> &Standing {
        each!(AnyStore, self, store => store.standing())
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<AnyChannel> {
        Ok(match self {
            AnyStore::Dram(store) => AnyChannel::Dram(store.channel(memory)?),
            AnyStore::File(store) => AnyChannel::File(Box::new(store.channel(memory)?)),
            AnyStore::Pmem(store) => AnyChannel::Pmem(Box::new(store.channel(memory)?)),
            AnyStore::Qcow2(store) => AnyChannel::Qcow2(Box::new(store.channel(memory)?)),
            AnyStore::Mapped(store) => AnyChannel::Mapped(Box::new(store.channel(memory)?)),
            AnyStore::Delayed(store) => AnyChannel::Delayed(Box::new(store.channel(memory)?)),
            AnyStore::Faulty(store) => AnyChannel::Faulty(Box::new(store.channel(memory)?)),
            AnyStore::Modelled(store) => AnyChannel::Modelled(Box::new(store.channel(memory)?)),
            AnyStore::Flash(store) => AnyChannel::Flash(Box::new(store.channel(memory)?)),
            AnyStore::Logged(store) => AnyChannel::Logged(Box::new(store.channel(memory)?)),
            AnyStore::Lossy(store) => AnyChannel::Lossy(Box::new(store.channel(memory)?)),
        })
    }
}

impl Channel for AnyChannel {
    #[inline]
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        each!(AnyChannel, self, channel => channel.submit(operation, data, token, now))
    }

    #[inline]
    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        each!(AnyChannel, self, channel => channel.poll(now, sink))
    }

    #[inline]
    fn in_flight(&self) -> usize {
        each!(AnyChannel, self, channel => channel.in_flight())
    }

    #[inline]
    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        each!(AnyChannel, self, channel => channel.prefetch(offset, len, writes))
    }

    fn lend(&mut self, offset: u64, len: usize) -> Option<LentBytes> {
        each!(AnyChannel, self, channel => channel.lend(offset, len))
    }

    fn lapses(&self) -> u64 {
        each!(AnyChannel, self, channel => channel.lapses())
    }

    fn memory_changed(&mut self) {
        each!(AnyChannel, self, channel => channel.memory_changed())
    }
}
