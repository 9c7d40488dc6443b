//! Images with damage, and a drive's questions asked of them until a budget of blocks is spent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use nearside_fsview::{DirCursor, Error, FileKind, Source, Volume};

use super::{Bytes, Memory, now};

/// An image with bytes changed, that counts and remembers what is read.
pub struct Damaged {
    base: Memory,
    /// Where, and the byte that is there instead.
    pub changes: Vec<(u64, u8)>,
    /// Blocks that may still be read.
    pub left: Cell<u32>,
    /// The blocks that were.
    pub seen: RefCell<BTreeSet<u64>>,
}

/// What `Damaged` answers when its budget is spent.
pub const SPENT: &str = "the budget is spent";

impl Damaged {
    pub fn new(base: &Memory, budget: u32) -> Damaged {
        Damaged { base: base.clone(), changes: Vec::new(), left: Cell::new(budget), seen: RefCell::default() }
    }

    fn block(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(offset).ok()?;
        let mut bytes = self.base.0.get(from..)?.get(..len)?.to_vec();
        for (at, byte) in &self.changes {
            if let Some(place) =
                at.checked_sub(offset).and_then(|p| usize::try_from(p).ok()).and_then(|p| bytes.get_mut(p))
            {
                *place = *byte;
            }
        }
        Some(bytes)
    }

    /// Makes the checksums of both checkpoint packs' blocks right again, so that damage in them is not merely
    /// refused.
    pub fn mend_checkpoints(&mut self) {
        let Some(superblock) = self.block(0, 4096) else { return };
        let cp = u64::from(u32::from_le_bytes(superblock[1024 + 76..][..4].try_into().unwrap())) * 4096;
        for pack in [cp, cp.saturating_add(512 * 4096)] {
            let Some(head) = self.block(pack, 4096) else { continue };
            let blocks = u64::from(u32::from_le_bytes(head[136..140].try_into().unwrap()));
            for at in [pack, pack.saturating_add(blocks.saturating_sub(1).saturating_mul(4096))] {
                let Some(bytes) = self.block(at, 4096) else { continue };
                let offset = u32::from_le_bytes(bytes[164..168].try_into().unwrap()) as usize;
                if !(192..=4092).contains(&offset) {
                    continue;
                }
                let mut crc = crc32(0xF2F5_2010, &bytes[..offset]);
                if offset < 4092 {
                    crc = crc32(crc, &bytes[offset + 4..]);
                }
                for (i, byte) in crc.to_le_bytes().into_iter().enumerate() {
                    self.changes.push((at + (offset + i) as u64, byte));
                }
            }
        }
    }
}

/// The plain way, bit by bit: also a twin of the view's checksum.
pub fn crc32(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xEDB8_8320 } else { c >> 1 })
    })
}

impl Source for Damaged {
    type Block = Bytes;
    fn len(&self) -> u64 {
        self.base.0.len() as u64
    }
    async fn metadata(&self, offset: u64, len: u32) -> Result<Bytes, Error> {
        let failed = |reason: &str| Error::Read { at: offset, len, reason: reason.into() };
        self.left.set(self.left.get().checked_sub(1).ok_or_else(|| failed(SPENT))?);
        self.seen.borrow_mut().insert(offset);
        self.block(offset, len as usize).map(|b| Bytes(b.into())).ok_or_else(|| failed("past the end"))
    }
}

/// Asks everything of a volume, taking errors as they come, until the tree or the budget ends. What it learns
/// is not judged: only that it ends, without a panic.
pub fn exercise(source: &Damaged) {
    let Ok(volume) = now(Volume::open(source)) else { return };
    let _ = format!("{:?}", volume.info());
    let mut todo = vec![volume.root()];
    let mut entries = Vec::new();
    while let Some(ino) = todo.pop() {
        if source.left.get() == 0 {
            return;
        }
        let Ok(inode) = now(volume.inode(source, ino)) else { continue };
        let _ = now(volume.acl(source, &inode));
        match inode.kind {
            FileKind::Directory => {
                let mut cursor = Some(DirCursor::default());
                while let Some(at) = cursor {
                    entries.clear();
                    cursor = now(volume.read_dir(source, &inode, at, &mut entries)).unwrap_or(None);
                    for entry in entries.iter().take(8) {
                        let _ = now(volume.lookup(source, &inode, &entry.name));
                    }
                    todo.extend(entries.iter().map(|e| e.ino));
                    if todo.len() > 100_000 {
                        return;
                    }
                }
                let _ = now(volume.lookup(source, &inode, b"no such name"));
            }
            FileKind::Regular => {
                let mut at = 0;
                for _ in 0..64 {
                    match now(volume.map(source, &inode, at)) {
                        Ok(Some(run)) => {
                            assert!(run.len > 0 && run.from == at && run.len <= inode.size - at, "{run:?}");
                            at += run.len;
                        }
                        _ => break,
                    }
                }
                for at in [inode.size / 2, inode.size.saturating_sub(1), u64::MAX] {
                    let _ = now(volume.map(source, &inode, at));
                }
                let _ = now(volume.inline_data(source, &inode));
            }
            _ => {
                let _ = now(volume.read_link(source, &inode));
            }
        }
    }
}
