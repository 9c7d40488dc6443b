//! Where a file's bytes lie: the block list.

use nearside_fsview::{Error, Inode, Place, Source, Volume};
use nearside_spec::near_data::BlockRange;

/// A run of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Byte of the volume, `None` for a hole.
    pub at: Option<u64>,
    /// Bytes.
    pub len: u64,
}

/// A located file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// In blocks of the volume, in file order, neighbours merged.
    Ranges(Vec<Range>),
    /// In its inode; here are its bytes.
    Inline(Vec<u8>),
}

/// Runs that one file may have; a volume that claims more is not believed.
const MOST_RUNS: usize = 16 << 20;

/// Maps a whole file.
pub async fn locate<S: Source>(volume: &Volume, source: &S, inode: &Inode) -> Result<Located, Error> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut from = 0;
    while let Some(run) = volume.map(source, inode, from).await? {
        let at = match run.place {
            Place::Volume(at) => Some(at),
            Place::Zeros => None,
            Place::Inline => return Ok(Located::Inline(volume.inline_data(source, inode).await?)),
        };
        if run.len == 0 || ranges.len() >= MOST_RUNS {
            let what = format!("inode {} maps without end", inode.ino.0);
            return Err(Error::Corrupt { what, at: 0 });
        }
        match ranges.last_mut() {
            Some(last) if joins(last, at) => last.len += run.len,
            _ => ranges.push(Range { at, len: run.len }),
        }
        from += run.len;
    }
    Ok(Located::Ranges(ranges))
}

fn joins(last: &Range, next: Option<u64>) -> bool {
    match (last.at, next) {
        (Some(at), Some(next)) => at.checked_add(last.len) == Some(next),
        (None, None) => true,
        _ => false,
    }
}

/// The block list on the wire: offsets in the namespace, lengths in whole 512-byte blocks.
pub fn blocks(ranges: &[Range], base: u64) -> Vec<BlockRange> {
    ranges
        .iter()
        .map(|r| BlockRange {
            offset: r.at.map_or(u64::MAX, |at| base + at),
            len: r.len.next_multiple_of(512),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_holes_stay() {
        assert!(joins(&Range { at: Some(4096), len: 4096 }, Some(8192)));
        assert!(!joins(&Range { at: Some(4096), len: 4096 }, Some(4096)));
        assert!(joins(&Range { at: None, len: 1 }, None));
        assert!(!joins(&Range { at: None, len: 4096 }, Some(4096)));
        let list = blocks(&[Range { at: Some(1024), len: 700 }, Range { at: None, len: 512 }], 1 << 20);
        assert_eq!(list[0], BlockRange { offset: (1 << 20) + 1024, len: 1024 });
        assert_eq!(list[1].offset, u64::MAX);
    }
}
