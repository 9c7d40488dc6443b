//! F2FS: from the superblock over the checkpoint and the node address table to nodes, entries and blocks.
//!
//! A [`Volume`] holds what the superblock and the newest checkpoint say: the areas, the NAT's version bitmap
//! and its journal. `open` reads a handful of blocks (a superblock, both ends of both checkpoint packs, one
//! summary, the roll-forward chain) and is meant to be run again whenever one of them has been written. What
//! it shows is the tree of that checkpoint with what fsync has added since, as a mount would recover it
//! (`recovery`, `roll`); at home, the checkpoint's alone.
//!
//! A look-up passes: `dir` (which block) -> `node` (where is it) -> `nat` (where is the node) -> `dentry` ->
//! `inode`.

#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

use std::ops::Range;
use std::sync::Arc;

use crate::acl::Acl;
use crate::pace::Pace;
use crate::{
    Attribute, DirCursor, DirEntry, Error, FileKind, Ino, Inode, Run, RunPlace, Source, State, VolumeInfo,
    name,
};

mod checkpoint;
mod dentry;
mod dir;
mod fields;
mod hash;
mod inode;
mod nat;
mod node;
mod recovery;
mod roll;
mod summary;
mod superblock;
mod xattr;

use checkpoint::Checkpoint;
use dir::Dir;
use fields::{Nid, corrupt};
pub(crate) use inode::Body;
use recovery::Walked;
use superblock::Superblock;

/// A volume, by its newest valid checkpoint.
#[derive(Debug, Clone)]
pub struct Volume {
    sb: Arc<Superblock>,
    cp: Checkpoint,
    info: Arc<VolumeInfo>,
    /// How far its log has been read, where that is shown.
    walked: Option<Arc<Walked>>,
    /// Of memory, about, that its log takes.
    overlay_bytes: u64,
}

impl Volume {
    pub(crate) async fn probe<S: Source>(source: &S) -> Result<bool, Error> {
        if source.len() < 8192 {
            return Ok(false);
        }
        let first = source.metadata(0, fields::BLOCK_U32).await?;
        if superblock::has_magic(&first) {
            return Ok(true);
        }
        // The second copy alone counts only where nothing else has taken the first one's place.
        let ext = fields::u16_at(&first, 1024 + 0x38) == 0xEF53;
        Ok(!ext && superblock::has_magic(&source.metadata(4096, fields::BLOCK_U32).await?))
    }

    pub(crate) async fn open<S: Source>(
        source: &S,
        state: State,
        known: Option<&Volume>,
    ) -> Result<Volume, Error> {
        let sb = Superblock::read(source).await?;
        let mut cp = Checkpoint::read(source, &sb).await?;
        let (mut needs_recovery, mut walked) = (false, None);
        match state {
            State::Home => needs_recovery = recovery::needed(source, &sb, &cp).await?,
            State::Recovered => {
                let known = known.filter(|known| *known.sb == sb && known.cp.is_as(&cp));
                let known = known.and_then(|known| Some((known.walked.as_deref()?, &*known.cp.roll)));
                let (log, roll) = recovery::roll_forward(source, &sb, &cp, known).await?;
                (walked, cp.roll) = (Some(Arc::new(log)), Arc::new(roll));
            }
        }
        let nodes = cp.roll.nodes;
        let overlay_bytes =
            cp.roll.bytes().saturating_add(walked.as_ref().map_or(0, |walked| walked.bytes()));
        let info = VolumeInfo {
            file_system: "f2fs",
            label: sb.label.clone(),
            uuid: sb.uuid,
            block_size: fields::BLOCK_U32,
            blocks: sb.blocks,
            inodes: u64::from(sb.max_nid()),
            inodes_used: u64::from(cp.inodes),
            features: superblock::feature_names(sb.features),
            needs_recovery,
            recovery: crate::Recovery {
                nodes,
                up_to: if nodes > 0 { cp.version } else { 0 },
                ..crate::Recovery::default()
            },
            stale: match cp.has(checkpoint::UMOUNT) {
                // Nothing that a mount would not give as well.
                _ if state == State::Recovered => None,
                _ if needs_recovery => Some(
                    "its log needs recovery, and the last checkpoint alone is shown, which is older than what \
                     fsync wrote after it",
                ),
                // Files may be overwritten in place after their permissions were changed in memory.
                false => Some("it is mounted or was not unmounted cleanly"),
                true => None,
            },
            warnings: warnings(&sb, &cp, needs_recovery),
        };
        Ok(Volume { sb: Arc::new(sb), cp, info: Arc::new(info), walked, overlay_bytes })
    }

    /// Where the log that `known` has read goes on here: the bytes of the volume that may have changed since.
    /// Superblocks and checkpoints were read anew and say the same, and before the block behind the log's
    /// end it had ended.
    pub(crate) fn goes_on_from(&self, known: &Volume) -> Option<[Range<u64>; 3]> {
        let before = self.walked.as_ref().and(known.walked.as_ref())?;
        let range = |from: u64, blocks: u32| {
            from..from.saturating_add(u64::from(blocks).saturating_mul(fields::BLOCK_U32.into()))
        };
        let packs = range(self.sb.checkpoint.byte(), superblock::SEGMENT.saturating_mul(2));
        let same = self.sb == known.sb && self.cp.is_as(&known.cp);
        same.then(|| [range(0, 2), packs, range(before.end().byte(), 1)])
    }

    pub(crate) fn changed_since(&self, before: &Volume) -> Option<Vec<u64>> {
        let (log, then) = (self.walked.as_ref()?, before.walked.as_ref()?);
        let shown = log.since(then)?;
        (self.sb == before.sb && self.cp.is_as(&before.cp)).then(|| shown.to_vec())
    }

    pub(crate) async fn give_back<S: Source>(self, source: &S) {
        let pace = &mut Pace::new(source);
        if let Some(log) = self.walked.and_then(Arc::into_inner) {
            log.give_back(pace).await;
        }
        if let Some(roll) = Arc::into_inner(self.cp.roll) {
            roll.give_back(pace).await;
        }
    }

    pub(crate) fn overlay_bytes(&self) -> u64 {
        self.overlay_bytes
    }

    pub(crate) fn info(&self) -> &VolumeInfo {
        &self.info
    }

    pub(crate) fn root(&self) -> Ino {
        Ino(self.sb.root)
    }

    /// Both copies of the node address table, whose segments alternate.
    pub(crate) fn table(&self) -> Range<u64> {
        let both =
            u64::from(self.sb.nat_blocks).saturating_mul(2).saturating_mul(u64::from(fields::BLOCK_U32));
        let from = self.sb.nat.byte();
        from..from.saturating_add(both)
    }

    pub(crate) async fn inode<S: Source>(&self, source: &S, ino: Ino) -> Result<Inode, Error> {
        inode::read(source, &self.sb, &self.cp, ino).await
    }

    pub(crate) async fn inode_block<S: Source>(
        &self,
        source: &S,
        ino: Ino,
    ) -> Result<Option<(u64, u32)>, Error> {
        let block = inode::block_of(source, &self.sb, &self.cp, ino).await?;
        Ok(block.map(|block| (block.byte(), fields::BLOCK_U32)))
    }

    pub(crate) async fn lookup<S: Source>(
        &self,
        source: &S,
        dir: &Inode,
        name: &[u8],
    ) -> Result<Option<Ino>, Error> {
        Dir::new(source, &self.sb, &self.cp, dir, own(dir)?)?.lookup(name).await
    }

    pub(crate) async fn read_dir<S: Source>(
        &self,
        source: &S,
        dir: &Inode,
        cursor: DirCursor,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<DirCursor>, Error> {
        Dir::new(source, &self.sb, &self.cp, dir, own(dir)?)?.list(cursor, entries).await
    }

    pub(crate) async fn map<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        from: u64,
    ) -> Result<Option<Run>, Error> {
        let body = readable(inode)?;
        if inode.kind != FileKind::Regular {
            return Err(Error::WrongKind);
        }
        let Some(left) = inode.size.checked_sub(from).filter(|left| *left > 0) else { return Ok(None) };
        if body.inline {
            return Ok(Some(Run { from, len: left, place: RunPlace::Inline }));
        }
        let (block, inside) = (from / 4096, from % 4096);
        let blocks = body.tree.map(source, &self.sb, &self.cp, block).await?;
        let place = match blocks.first {
            None => RunPlace::Zeros,
            Some(address) => RunPlace::Volume(address.byte().saturating_add(inside)),
        };
        let len = blocks.count.saturating_mul(4096).saturating_sub(inside).min(left);
        Ok(Some(Run { from, len, place }))
    }

    pub(crate) async fn inline_data<S: Source>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>, Error> {
        let body = readable(inode)?;
        if !body.inline || inode.kind == FileKind::Directory {
            return Err(Error::WrongKind);
        }
        let (from, room) = body.inline_area;
        let node = node::read_at(source, body.tree.inode, Nid(inode.ino.0), inode.ino.0, 0).await?;
        let len = usize::try_from(inode.size).ok().filter(|len| *len <= room);
        len.and_then(|len| node.block.get(from..)?.get(..len))
            .map(<[u8]>::to_vec)
            .ok_or_else(|| corrupt(format!("inode {}: {} bytes inline", inode.ino.0, inode.size), node.at()))
    }

    pub(crate) async fn read_link<S: Source>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>, Error> {
        let body = readable(inode)?;
        if inode.kind != FileKind::Symlink {
            return Err(Error::WrongKind);
        }
        let bad = |what: String| {
            corrupt(format!("symbolic link, inode {}: {what}", inode.ino.0), body.tree.inode.byte())
        };
        let target = if body.inline {
            self.inline_data(source, inode).await?
        } else {
            let block = body.tree.block(source, &self.sb, &self.cp, 0).await?;
            let block = block.ok_or_else(|| bad("no block for its target".into()))?;
            let len = usize::try_from(inode.size).unwrap_or(usize::MAX);
            block.get(..len).unwrap_or(&block).to_vec()
        };
        name::check_target(&target, inode.size).map_err(bad)?;
        Ok(target)
    }

    pub(crate) fn link_in_inode(&self, inode: &Inode) -> bool {
        own(inode).is_ok_and(|body| body.inline)
    }

    pub(crate) async fn acl<S: Source>(&self, source: &S, inode: &Inode) -> Result<Option<Acl>, Error> {
        let body = own(inode)?;
        if !inode.may_have_acl {
            return Ok(None);
        }
        xattr::acl(source, &self.sb, &self.cp, inode.ino, body).await
    }

    pub(crate) async fn attributes<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
    ) -> Result<Vec<Attribute>, Error> {
        xattr::attributes(source, &self.sb, &self.cp, inode.ino, own(inode)?).await
    }
}

/// The part of an inode that this volume put there.
fn own(inode: &Inode) -> Result<&Body, Error> {
    match &inode.body {
        crate::Body::F2fs(body) => Ok(body),
        crate::Body::Ext(_) => Err(Error::WrongKind),
    }
}

/// F2FS's part of an inode whose content can be read.
fn readable(inode: &Inode) -> Result<&Body, Error> {
    let body = own(inode)?;
    if body.encrypted {
        return Err(Error::Unsupported("encryption".into()));
    }
    if body.compressed {
        return Err(Error::Unsupported("compression".into()));
    }
    Ok(body)
}

fn warnings(sb: &Superblock, cp: &Checkpoint, needs_recovery: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |on: bool, what: &str| {
        if on {
            warnings.push(what.to_owned());
        }
    };
    warn(sb.second_copy, "the first superblock is damaged; the second is used");
    warn(
        cp.roll.nodes > 0,
        "not unmounted cleanly, or mounted now; what is shown is the last checkpoint's state and what fsync \
         wrote after it",
    );
    warn(
        !needs_recovery && cp.roll.nodes == 0 && !cp.has(checkpoint::UMOUNT),
        "not unmounted cleanly, or mounted now; what is shown is the last checkpoint's state",
    );
    warn(cp.has(checkpoint::ERROR), "the kernel has recorded an error");
    warn(cp.has(checkpoint::FSCK), "the kernel has asked for fsck");
    warn(cp.has(checkpoint::QUOTA_NEED_FSCK), "the kernel has asked for fsck of the quotas");
    warn(cp.has(checkpoint::DISABLED), "checkpoints are disabled: what was written since is not durable");
    warn(cp.has(checkpoint::RESIZE), "a resize was interrupted");
    warnings
}
