#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A [`Volume`] is what the superblock (and F2FS's checkpoint) says; it holds no cache and does no I/O of its
//! own. Every method takes a [`Source`], through which it asks for *metadata blocks* and nothing else;
//! [`Volume::map`] says where a regular file's data lie. Whoever implements `Source` sees exactly which
//! blocks an answer depends on, and can cache and watch them.
//!
//! What a read passes through: `Volume::open` -> `lookup` per path component -> `inode` -> `map`.
//!
//! Every number is checked, every loop is bounded, and each [`Error`] says what was wrong and at which byte
//! of the volume.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

use std::ops::{Deref, Range};

pub mod acl;
mod attribute;
pub mod ext;
pub mod f2fs;
pub mod lvm;
pub mod magic;
mod model;
mod name;
mod pace;
pub mod partition;
pub mod raid;
mod recovery;
mod shared;

pub use attribute::Attribute;
pub use model::*;
pub use recovery::{Recovery, State};

/// Where metadata blocks come from. The volume begins at offset 0 of the source.
#[allow(async_fn_in_trait, reason = "used generically, on one thread; never as a trait object")]
pub trait Source {
    /// A block's bytes, shared with the source's cache.
    type Block: Deref<Target = [u8]> + Clone;

    /// Bytes in the volume (a partition, or the whole drive).
    fn len(&self) -> u64;

    /// Whether there is nothing at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The metadata block of `len` bytes at byte `offset`. `len` is the volume's block size, or 1024 for an
    /// ext superblock and 4096 before the block size is known.
    ///
    /// # Errors
    /// [`Error::Read`]: what the source said.
    async fn metadata(&self, offset: u64, len: u32) -> Result<Self::Block, Error>;

    /// What is read next is what the volume shows of its block at byte `offset`, wherever a log has it: the
    /// answer depends on that, and on the bytes that [`Source::metadata`] is then asked for. For whoever
    /// keeps answers while the log goes on ([`Volume::changed_since`]).
    fn shows(&self, offset: u64) {
        let _ = offset;
    }

    /// Whether `len` bytes at byte `offset`, which were read, are what a power cut would leave. A log is
    /// taken in up to the first block that is not; for a source whose host may not have flushed yet what it
    /// has written.
    fn is_durable(&self, offset: u64, len: u64) -> bool {
        let _ = (offset, len);
        true
    }

    /// Between two pieces of work that read nothing, of some microseconds each: a place to let other work go
    /// first. [`Source::metadata`] is such a place by itself.
    async fn pause(&self) {}
}

/// A volume of either kind.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one exists per volume")]
pub enum Volume {
    /// ext2, ext3 or ext4.
    Ext(ext::Volume),
    /// F2FS.
    F2fs(f2fs::Volume),
}

macro_rules! either {
    ($self:ident, $v:ident => $e:expr) => {
        match $self {
            Volume::Ext($v) => $e,
            Volume::F2fs($v) => $e,
        }
    };
    // Through what recovery would change.
    ($self:ident, $v:ident, $source:ident => $e:expr) => {
        match $self {
            Volume::Ext($v) => {
                let $source = &$v.recovered($source);
                $e
            }
            Volume::F2fs($v) => $e,
        }
    };
}

impl Volume {
    /// Recognises the file system and reads its superblock (and checkpoint).
    ///
    /// # Errors
    /// [`Error::NoFileSystem`] where there is none; [`Error::Read`] of the source, [`Error::Corrupt`] for
    /// structures that contradict themselves, [`Error::Unsupported`] for a feature that is not understood.
    pub async fn open<S: Source>(source: &S) -> Result<Volume, Error> {
        Self::open_as(source, State::Recovered).await
    }

    /// As [`Volume::open`], in the state that is asked for.
    ///
    /// # Errors
    /// As [`Volume::open`]; those of the journal or the log only where it is to be taken in.
    pub async fn open_as<S: Source>(source: &S, state: State) -> Result<Volume, Error> {
        Self::open_after(source, state, None).await
    }

    /// As [`Volume::open_as`], of what may be the same volume as before, written meanwhile: what `known` has
    /// found in its journal or log is not read again where it still stands there. Of F2FS that is believed
    /// ([`Volume::goes_on_from`]).
    ///
    /// # Errors
    /// As [`Volume::open_as`].
    pub async fn open_after<S: Source>(
        source: &S,
        state: State,
        known: Option<&Volume>,
    ) -> Result<Volume, Error> {
        if f2fs::Volume::probe(source).await? {
            let known = match known {
                Some(Volume::F2fs(known)) => Some(known),
                _ => None,
            };
            return Ok(Volume::F2fs(f2fs::Volume::open(source, state, known).await?));
        }
        if ext::Volume::probe(source).await? {
            let known = match known {
                Some(Volume::Ext(known)) => Some(known),
                _ => None,
            };
            return Ok(Volume::Ext(ext::Volume::open(source, state, known).await?));
        }
        Err(Error::NoFileSystem)
    }

    /// Where this was opened after `known` and took over what that had read of a log, unread: the bytes of
    /// the volume that may have changed since. What else `known` was made of must be as it was. Only F2FS's
    /// nodes have nothing in them by which a log that goes on could tell.
    pub fn goes_on_from(&self, known: &Volume) -> Option<[Range<u64>; 3]> {
        match (self, known) {
            (Volume::F2fs(now), Volume::F2fs(before)) => now.goes_on_from(before),
            _ => None,
        }
    }

    /// Where this is the same volume as the other one, of which the log has gone on since: the bytes at
    /// which blocks begin that it shows otherwise ([`Source::shows`]). `None` where more may have changed.
    /// It reads nothing, and lets other work go first ([`Source::pause`]).
    pub async fn changed_since<S: Source>(&self, other: &Volume, source: &S) -> Option<Vec<u64>> {
        match (self, other) {
            (Volume::Ext(now), Volume::Ext(before)) => now.changed_since(before, source).await,
            (Volume::F2fs(now), Volume::F2fs(before)) => now.changed_since(before),
            _ => None,
        }
    }

    /// Gives its memory back in pieces, between which other work can go first ([`Source::pause`]): what
    /// recovery adds can be much.
    pub async fn give_back<S: Source>(self, source: &S) {
        match self {
            Volume::Ext(volume) => volume.give_back(source).await,
            Volume::F2fs(volume) => volume.give_back(source).await,
        }
    }

    /// Bytes of memory, about, that hold what recovery adds to home locations: where its copies of blocks
    /// lie, or the inodes, nodes and names of the log.
    pub fn overlay_bytes(&self) -> u64 {
        either!(self, v => v.overlay_bytes())
    }

    /// Type, features, sizes, and whether it needs recovery.
    pub fn info(&self) -> &VolumeInfo {
        either!(self, v => v.info())
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        either!(self, v => v.root())
    }

    /// Bytes of the volume that say where inodes are and nothing else: F2FS's node address table, ext4's
    /// group descriptors where they lie together. For measurements; what is read of them goes through the
    /// source as all else.
    pub fn table(&self) -> Range<u64> {
        either!(self, v => v.table())
    }

    /// Reads and checks an inode.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where it is free, damaged or not of this volume; [`Error::Read`].
    pub async fn inode<S: Source>(&self, source: &S, ino: Ino) -> Result<Inode, Error> {
        either!(self, v, source => v.inode(source, ino).await)
    }

    /// Where the block begins that holds this inode and no other, and its bytes; for who reads several at
    /// once. `None`: inodes share blocks (ext), or there is none of this number.
    ///
    /// # Errors
    /// As [`Volume::inode`], for what says where it is.
    pub async fn inode_block<S: Source>(&self, source: &S, ino: Ino) -> Result<Option<(u64, u32)>, Error> {
        match self {
            Volume::Ext(_) => Ok(None),
            Volume::F2fs(volume) => volume.inode_block(source, ino).await,
        }
    }

    /// Appends deleted inodes from a number on, those of some block's worth, and says where to go on; `None`
    /// at the end. Begin with 1. What is damaged among them is passed over; where it cannot be said where
    /// those of a group of blocks are, [`Error::Corrupt`] is appended in their place.
    ///
    /// # Errors
    /// [`Error::Unsupported`] of F2FS, which keeps none; [`Error::Read`] of the source.
    pub async fn deleted<S: Source>(
        &self,
        source: &S,
        from: Ino,
        found: &mut Vec<Result<Deleted, Error>>,
    ) -> Result<Option<Ino>, Error> {
        match self {
            Volume::Ext(v) => v.deleted(&v.recovered(source), from, found).await,
            Volume::F2fs(_) => Err(Error::Unsupported("deleted files of F2FS".into())),
        }
    }

    /// The inode that `name` has in a directory, by its hash where the directory has one.
    ///
    ///
    /// # Errors
    /// [`Error::NotADirectory`] where `dir` is none; [`Error::Read`] of the source, [`Error::Corrupt`] for
    /// structures that contradict themselves, [`Error::Unsupported`] for a feature that is not understood.
    pub async fn lookup<S: Source>(
        &self,
        source: &S,
        dir: &Inode,
        name: &[u8],
    ) -> Result<Option<Ino>, Error> {
        either!(self, v, source => v.lookup(source, dir, name).await)
    }

    /// Appends entries from `cursor` on (one directory block's worth or more, without "." and "..", none of
    /// them before the cursor's place), and says where to go on; `None` at the end. Begin with
    /// [`DirCursor::default`]. Entries of later calls have later places. To begin in the middle costs no more
    /// than at the start.
    ///
    /// # Errors
    /// [`Error::NotADirectory`] where `dir` is none; [`Error::Read`] of the source, [`Error::Corrupt`] for
    /// structures that contradict themselves, [`Error::Unsupported`] for a feature that is not understood.
    /// What was appended before is right.
    pub async fn read_dir<S: Source>(
        &self,
        source: &S,
        dir: &Inode,
        cursor: DirCursor,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<DirCursor>, Error> {
        either!(self, v, source => v.read_dir(source, dir, cursor, entries).await)
    }

    /// Where the bytes of a file lie from byte `from` on: one run, as long as the volume's structures show it
    /// at once (adjacent runs need not be merged). `None` at or past the end of the file.
    ///
    /// # Errors
    /// [`Error::Read`] of the source, [`Error::Corrupt`] for structures that contradict themselves,
    /// [`Error::Unsupported`] for a feature that is not understood (compressed or encrypted content).
    pub async fn map<S: Source>(&self, source: &S, inode: &Inode, from: u64) -> Result<Option<Run>, Error> {
        either!(self, v, source => v.map(source, inode, from).await)
    }

    /// The bytes of a file whose content lives in its inode (`Run::place` is [`RunPlace::Inline`]), from its
    /// first byte, `i_size` of them.
    ///
    /// # Errors
    /// [`Error::WrongKind`] where the content lies elsewhere; [`Error::Read`] of the source,
    /// [`Error::Corrupt`] for structures that contradict themselves, [`Error::Unsupported`] for a feature
    /// that is not understood.
    pub async fn inline_data<S: Source>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>, Error> {
        either!(self, v, source => v.inline_data(source, inode).await)
    }

    /// The target of a symbolic link. It reads the link's block as metadata.
    ///
    /// # Errors
    /// [`Error::WrongKind`] where it is no symbolic link; [`Error::Read`] of the source, [`Error::Corrupt`]
    /// for structures that contradict themselves, [`Error::Unsupported`] for a feature that is not
    /// understood.
    pub async fn read_link<S: Source>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>, Error> {
        either!(self, v, source => v.read_link(source, inode).await)
    }

    /// Whether a link's target lies in its inode: to read it reads no block that may have become another
    /// file's.
    pub fn link_in_inode(&self, inode: &Inode) -> bool {
        either!(self, v => v.link_in_inode(inode))
    }

    /// Whether a directory's block that was freed, and used again for another file's bytes, is told from a
    /// directory's: by its checksum, which knows the inode; in F2FS, blocks that the checkpoint names are not
    /// used again before the next one.
    pub fn tells_directories(&self) -> bool {
        match self {
            Volume::Ext(v) => v.tells_directories(),
            Volume::F2fs(_) => true,
        }
    }

    /// The POSIX access ACL, where the inode has one.
    ///
    /// # Errors
    /// [`Error::Read`] of the source, [`Error::Corrupt`] for structures that contradict themselves,
    /// [`Error::Unsupported`] for a feature that is not understood.
    pub async fn acl<S: Source>(&self, source: &S, inode: &Inode) -> Result<Option<acl::Acl>, Error> {
        either!(self, v, source => v.acl(source, inode).await)
    }

    /// The extended attributes that the kernel would show of an inode to root, in the volume's order.
    ///
    /// # Errors
    /// As [`Volume::acl`].
    pub async fn attributes<S: Source>(&self, source: &S, inode: &Inode) -> Result<Vec<Attribute>, Error> {
        if !inode.may_have_attributes {
            return Ok(Vec::new());
        }
        either!(self, v, source => v.attributes(source, inode).await)
    }

    /// The value of one of the inode's attributes: at most 64 KiB, since system calls take no more.
    ///
    /// # Errors
    /// As [`Volume::acl`], for a value that lies in an inode of its own.
    pub async fn attribute_value<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        attribute: &Attribute,
    ) -> Result<Vec<u8>, Error> {
        match (&attribute.value, self) {
            (attribute::Value::Here(value), _) => Ok(value.clone()),
            (attribute::Value::Inode(number), Volume::Ext(v)) => {
                v.value_of_inode(&v.recovered(source), inode, *number, attribute.len).await
            }
            (attribute::Value::Inode(_), Volume::F2fs(_)) => Err(Error::WrongKind),
        }
    }
}
