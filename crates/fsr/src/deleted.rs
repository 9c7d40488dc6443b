//! Files of a volume that have no name any more.

use nearside_fsview::Ino;
use nearside_near_data::{Failure, FileEntry};

use crate::Retriever;
use crate::media::Media;
use crate::model::{file_entry, of_view};
use crate::view::{Tally, View};

/// A file that has no name any more. What it named may be another file's by now, but of an orphan.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// What is left of it, with its inode's number as debugfs has it in the path's place: `<14>`.
    pub entry: FileEntry<'static>,
    /// When it was deleted, in seconds since 1970, where that is noted.
    pub when: Option<i64>,
    /// Whether it still has its blocks: it was open when it lost its last name.
    pub orphan: bool,
}

impl Retriever {
    /// Appends the deleted files of a volume (0: the only one) from an inode on, those of some block's worth,
    /// and says where to go on; `None` at the end. Begin with 1. Where it cannot be said where those of a
    /// part of the volume are, that stands in their place.
    ///
    /// # Errors
    /// [`Failure`]: no such volume, one that keeps none (F2FS), or a read that failed.
    pub async fn deleted<M: Media>(
        &self,
        media: &M,
        partition: u32,
        from: u32,
        found: &mut Vec<Result<Deleted, Failure>>,
    ) -> Result<Option<u32>, Failure> {
        let tally = Tally::default();
        let open = self.volume(media, &tally, partition).await?;
        let view = View::new(self, media, &tally, open.offset, open.len);
        let mut inodes = Vec::new();
        let next = open.volume.deleted(&view, Ino(from), &mut inodes).await.map_err(of_view)?;
        found.extend(inodes.into_iter().map(|deleted| {
            let deleted = deleted.map_err(of_view)?;
            let path = format!("<{}>", deleted.inode.ino.0);
            let entry = file_entry(path.as_bytes(), &deleted.inode, None).into_owned();
            Ok(Deleted { entry, when: deleted.when, orphan: deleted.orphan })
        }));
        Ok(next.map(|ino| ino.0))
    }
}
