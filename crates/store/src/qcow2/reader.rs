//! From a place of the disk to its bytes: through the L1 and L2 tables of each file, from the uppermost down.
//!
//! Tables are read by pages of 4 KiB, of which the last used are kept, and so are compressed clusters. What a
//! table says is believed only as far as the file goes.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::io;
use std::sync::Arc;

use super::chain::Layer;
use super::header::Header;
use super::part::{be64, long};
use super::recent::Recent;
use super::unpack::unpack;

/// Bytes of a page of a table, as a power of two.
const PAGE_BITS: u32 = 12;
/// Pages kept: a mebibyte.
const PAGES: usize = 256;
/// Bytes of compressed clusters kept, and how many of them where they are small; two in any case.
const CLUSTER_BYTES: u64 = 4 << 20;
const CLUSTERS: u64 = 64;

/// The bits of an entry that are a place in the file.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
const PACKED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// What a file has at a place of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Nothing: what is below shows.
    Below,
    Zeros,
    /// Bytes from here on in the file.
    Data(u64),
    /// A compressed cluster, by its entry.
    Packed(u64),
}

/// Reads an image.
#[derive(Debug)]
pub(super) struct Reader {
    layers: Arc<[Layer]>,
    /// By file and page.
    pages: Recent<(usize, u64), Vec<u8>>,
    /// By file and entry.
    clusters: Recent<(usize, u64), Vec<u8>>,
}

impl Reader {
    pub(super) fn new(layers: Arc<[Layer]>) -> Reader {
        let largest = layers.iter().filter_map(|l| l.header.as_ref()).map(Header::cluster).max();
        let clusters = CLUSTER_BYTES.checked_div(largest.unwrap_or(1)).unwrap_or(0).clamp(2, CLUSTERS);
        let clusters = usize::try_from(clusters).unwrap_or(2);
        Reader { layers, pages: Recent::new(PAGES), clusters: Recent::new(clusters) }
    }

    /// Fills `into` with the disk's bytes from `at` on, which are within the disk.
    pub(super) fn read(&mut self, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
        let layers = self.layers.clone();
        while !into.is_empty() {
            let done = self.piece(&layers, at, into)?;
            at = at.saturating_add(long(done));
            into = into.get_mut(done..).unwrap_or_default();
        }
        Ok(())
    }

    /// Fills the beginning of `into`, as far as all of it comes from one place; how much that is, which is
    /// more than nothing.
    fn piece(&mut self, layers: &[Layer], at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut len = into.len();
        for (nr, layer) in layers.iter().enumerate() {
            // A disk that is smaller than the one above it has zeros behind its end.
            let Some(left) = layer.size.checked_sub(at).filter(|left| *left > 0) else { break };
            let (content, run) = match &layer.header {
                None => (Content::Data(at), left),
                Some(header) => self.content(nr, layer, header, at)?,
            };
            len = len.min(usize::try_from(run.min(left)).unwrap_or(usize::MAX));
            let piece = into.get_mut(..len).unwrap_or_default();
            match (content, &layer.header) {
                (Content::Below, _) => continue,
                (Content::Zeros, _) => piece.fill(0),
                (Content::Data(place), _) => layer.part.read_padded("data", place, piece)?,
                (Content::Packed(entry), header) => {
                    self.packed(nr, layer, header.as_ref(), entry, at, piece)?
                }
            }
            return Ok(len);
        }
        into.get_mut(..len).unwrap_or_default().fill(0);
        Ok(len)
    }

    /// What a file has at a place of the disk, and for how many bytes from there on.
    fn content(&mut self, nr: usize, layer: &Layer, header: &Header, at: u64) -> io::Result<(Content, u64)> {
        let cluster = header.cluster();
        let within = at & cluster.wrapping_sub(1);
        let run = cluster.wrapping_sub(within);
        let index = at.wrapping_shr(header.cluster_bits);
        let first = index.wrapping_shr(header.l2_bits());
        let second = index & 1u64.wrapping_shl(header.l2_bits()).wrapping_sub(1);
        let entry_at = header.table.saturating_add(first.saturating_mul(8));
        let table = self.word(nr, layer, "L1 table", entry_at)? & PLACE;
        if table == 0 {
            return Ok((Content::Below, run));
        }
        let wrong = |what: &str, place: u64| {
            layer
                .part
                .wrong(format_args!("{what} of byte {at} of the disk at {place}, where no cluster begins"))
        };
        if table & cluster.wrapping_sub(1) != 0 {
            return Err(wrong("L2 table", table));
        }
        let entry_len = if header.extended { 16 } else { 8 };
        let entry_at = table.saturating_add(second.saturating_mul(entry_len));
        let entry = self.word(nr, layer, "L2 table", entry_at)?;
        if entry & PACKED != 0 {
            return Ok((Content::Packed(entry), run));
        }
        let data = entry & PLACE;
        if data & cluster.wrapping_sub(1) != 0 {
            return Err(wrong("data", data));
        }
        let place = Content::Data(data.saturating_add(within));
        if header.extended {
            let bitmap = self.word(nr, layer, "L2 table", entry_at.saturating_add(8))?;
            return subcluster(header, within, bitmap, (data != 0).then_some(place))
                .ok_or_else(|| layer.part.wrong(format_args!("L2 entry at {entry_at}: {bitmap:#018x}")));
        }
        match (entry & ZERO != 0, data) {
            (true, _) if header.version == 2 => {
                Err(layer.part.wrong(format_args!("L2 entry at {entry_at}: zeros, which version 2 has not")))
            }
            (true, _) => Ok((Content::Zeros, run)),
            (false, 0) => Ok((Content::Below, run)),
            (false, _) => Ok((place, run)),
        }
    }

    /// The word of a table at a place of a file.
    fn word(&mut self, nr: usize, layer: &Layer, table: &str, at: u64) -> io::Result<u64> {
        let outside = || layer.part.outside(table, at, 8);
        if at.checked_add(8).is_none_or(|end| end > layer.part.len()) {
            return Err(outside());
        }
        let page = at.wrapping_shr(PAGE_BITS);
        let bytes = self.pages.get_or((nr, page), || {
            let mut bytes = vec![0; 1usize.wrapping_shl(PAGE_BITS)];
            layer.part.read_padded(table, page.wrapping_shl(PAGE_BITS), &mut bytes)?;
            Ok::<_, io::Error>(bytes)
        })?;
        let within = at & 1u64.wrapping_shl(PAGE_BITS).wrapping_sub(1);
        usize::try_from(within).ok().and_then(|within| be64(bytes, within)).ok_or_else(outside)
    }

    /// Fills `piece` from a compressed cluster.
    fn packed(
        &mut self,
        nr: usize,
        layer: &Layer,
        header: Option<&Header>,
        entry: u64,
        at: u64,
        piece: &mut [u8],
    ) -> io::Result<()> {
        let Some(header) = header else { return Ok(()) };
        let within = usize::try_from(at & header.cluster().wrapping_sub(1)).unwrap_or(usize::MAX);
        let cluster = self.clusters.get_or((nr, entry), || cluster(layer, header, entry))?;
        let there = cluster.get(within..).and_then(|rest| rest.get(..piece.len()));
        piece.copy_from_slice(there.ok_or_else(|| layer.part.wrong("a compressed cluster is too short"))?);
        Ok(())
    }
}

/// What a bitmap says of a subcluster, and for how many bytes from there on; `data`: where the cluster has
/// this byte. `None`: it contradicts itself.
fn subcluster(header: &Header, within: u64, bitmap: u64, data: Option<Content>) -> Option<(Content, u64)> {
    let size = header.cluster().wrapping_shr(5);
    let nr = u32::try_from(within.checked_div(size)?).ok()?;
    let run = size.wrapping_sub(within & size.wrapping_sub(1));
    let bit = |nr: u32| bitmap.wrapping_shr(nr) & 1 == 1;
    match (bit(nr), bit(nr.wrapping_add(32))) {
        (true, true) => None,
        (true, false) => Some((data?, run)),
        (false, true) => Some((Content::Zeros, run)),
        (false, false) => Some((Content::Below, run)),
    }
}

/// A compressed cluster: its entry has the first byte and how many sectors follow the one that it is in.
fn cluster(layer: &Layer, header: &Header, entry: u64) -> io::Result<Vec<u8>> {
    let sector_bits = header.cluster_bits.wrapping_sub(8);
    let place_bits = 62u32.wrapping_sub(sector_bits);
    let low = |word: u64, bits: u32| word & 1u64.wrapping_shl(bits).wrapping_sub(1);
    let place = low(entry, place_bits);
    let sectors = low(entry.wrapping_shr(place_bits), sector_bits).saturating_add(1);
    let len = sectors.saturating_mul(512).saturating_sub(place & 511);
    // The last one's sectors may reach behind the file's end.
    let len = len.min(layer.part.len().saturating_sub(place));
    let mut packed = vec![0; usize::try_from(len).unwrap_or(0)];
    layer.part.read_padded("compressed cluster", place, &mut packed)?;
    unpack(header.packing, &packed, usize::try_from(header.cluster()).unwrap_or(0))
        .map_err(|why| layer.part.wrong(format_args!("compressed cluster at {place}: {why}")))
}
