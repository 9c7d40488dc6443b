//! Pages: their headers, checked, and their bytes, decompressed in steps (apache/parquet-format,
//! parquet.thrift and Compression.md). What a page takes is known, and bounded, before anything is made of
//! its bytes.
#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::footer::Codec;
use super::thrift::{Thrift, Wire, Wrong, is};

/// Most bytes of a page, compressed and not.
pub(super) const MAX_PAGE: usize = 32 << 20;
/// Most bytes of a page's header.
pub(super) const MAX_HEADER: usize = 64 << 10;
/// Bytes that are decompressed in a step, where that can be cut.
const STEP: usize = 1 << 20;
/// Bytes that zstd may look back at: no frame needs more than its page.
const WINDOW: u64 = 32 << 20;

/// How values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Dictionary,
    Rle,
    Delta,
    DeltaLength,
    DeltaText,
    Split,
}

impl Encoding {
    fn of(number: i64) -> Result<Encoding, Wrong> {
        Ok(match number {
            0 => Encoding::Plain,
            2 | 8 => Encoding::Dictionary,
            3 => Encoding::Rle,
            5 => Encoding::Delta,
            6 => Encoding::DeltaLength,
            7 => Encoding::DeltaText,
            9 => Encoding::Split,
            4 => return Err("bit-packed values, which are not read"),
            _ => return Err("values of an encoding that is not known"),
        })
    }
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Dictionary,
    /// Levels lie before the values, behind their length.
    First(Encoding),
    /// So many bytes of levels lie before the values, and are not compressed.
    Second {
        encoding: Encoding,
        levels: usize,
        compressed: bool,
    },
    /// One that nobody needs.
    Other,
}

/// A page's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) page: Page,
    /// Its own bytes.
    pub(super) len: usize,
    /// Bytes of the page as it is stored.
    pub(super) stored: usize,
    /// And decompressed.
    pub(super) size: usize,
    pub(super) values: u32,
    pub(super) crc: Option<u32>,
}

/// A header as it is written.
#[derive(Default)]
struct Fields {
    kind: Option<i64>,
    size: u64,
    stored: u64,
    crc: Option<u32>,
    values: u64,
    encoding: Option<i64>,
    levels: Option<i64>,
    definition: u64,
    repetition: u64,
    plain: bool,
}

impl Fields {
    fn read(r: &mut Thrift<'_>) -> Result<Fields, Wrong> {
        let mut all = Fields::default();
        r.fields(|r, number, wire| {
            match number {
                1 => all.kind = Some(r.int(wire)?),
                2 => all.size = r.size(wire)?,
                3 => all.stored = r.size(wire)?,
                4 => all.crc = i32::try_from(r.int(wire)?).ok().map(i32::cast_unsigned),
                5 | 7 | 8 => {
                    is(wire, Wire::Struct)?;
                    all.of_page(r, number == 8)?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(all)
    }

    fn of_page(&mut self, r: &mut Thrift<'_>, second: bool) -> Result<(), Wrong> {
        r.fields(|r, number, wire| {
            match (number, second) {
                (1, _) => self.values = r.size(wire)?,
                (2, false) | (4, true) => self.encoding = Some(r.int(wire)?),
                (3, false) if wire == Wire::Int => self.levels = Some(r.int(wire)?),
                (5, true) => self.definition = r.size(wire)?,
                (6, true) => self.repetition = r.size(wire)?,
                (7, true) => {
                    self.plain = wire == Wire::False;
                    return Ok(false);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
    }
}

impl Header {
    /// Reads a header from the front of what there is. `None`: it goes on, where there may be more.
    pub(super) fn read(bytes: &[u8], codec: Codec, more: bool) -> Result<Option<Header>, Wrong> {
        let mut r = Thrift::new(bytes);
        let fields = match Fields::read(&mut r) {
            Ok(fields) => fields,
            Err(_) if more && bytes.len() < MAX_HEADER => return Ok(None),
            Err(what) => return Err(what),
        };
        let bound = |size: u64| match usize::try_from(size) {
            Ok(size) if size <= MAX_PAGE => Ok(size),
            _ => Err("more than 32 MiB, which are not read at once"),
        };
        let (stored, size) = (bound(fields.stored)?, bound(fields.size)?);
        let encoding = Encoding::of(fields.encoding.unwrap_or(0));
        let page = match fields.kind {
            Some(0) => match fields.levels {
                None | Some(3) => Page::First(encoding?),
                Some(_) => return Err("levels that are no runs, which are not read"),
            },
            Some(2) => match encoding? {
                Encoding::Plain | Encoding::Dictionary => Page::Dictionary,
                _ => return Err("a dictionary that is not plain"),
            },
            Some(3) => {
                if fields.repetition > 0 {
                    return Err("repeated values in a column that is not nested");
                }
                let levels = bound(fields.definition)?;
                if levels > size.min(stored) {
                    return Err("levels beyond its end");
                }
                Page::Second { encoding: encoding?, levels, compressed: !fields.plain }
            }
            Some(_) => Page::Other,
            None => return Err("a page of no type"),
        };
        let compressed = codec != Codec::None && !matches!(page, Page::Second { compressed: false, .. });
        if !compressed && stored != size && page != Page::Other {
            return Err("a page that is not compressed, and of another size");
        }
        let values = u32::try_from(fields.values).map_err(|_| "more values than a page may have")?;
        let len = bytes.len().saturating_sub(r.left());
        Ok(Some(Header { page, len, stored, size, values, crc: fields.crc }))
    }
}

/// A page that is being decompressed.
pub(super) struct Unpacking {
    pub(super) header: Header,
    stored: Vec<u8>,
    /// Where what is compressed begins.
    from: usize,
    /// Bytes of it that are not compressed.
    plain: usize,
    bytes: Vec<u8>,
    by: By,
}

enum By {
    None,
    Snappy,
    Lz4,
    Gzip(Box<MultiGzDecoder<Bytes>>),
    Zstd(Box<FrameDecoder>, Bytes),
}

/// Bytes that are read to their end.
type Bytes = std::io::Cursor<Vec<u8>>;

impl Unpacking {
    /// Begins with a page's bytes as they are stored, behind its header, which begins at a place of them.
    /// `into`: what they are decompressed into, whatever lies in it.
    pub(super) fn new(
        header: Header,
        codec: Codec,
        (mut stored, from): (Vec<u8>, usize),
        into: Vec<u8>,
    ) -> Result<Unpacking, Wrong> {
        let from = from.saturating_add(header.len).min(stored.len());
        let body = stored.get(from..).unwrap_or_default();
        if header.crc.is_some_and(|crc| crc32fast::hash(body) != crc) {
            return Err("its checksum is another");
        }
        let (plain, compressed) = match header.page {
            Page::Second { levels, compressed, .. } => (levels, compressed),
            _ => (0, true),
        };
        if codec == Codec::None || !compressed {
            stored.drain(..from);
            return Ok(Unpacking { header, stored: Vec::new(), from: 0, plain, bytes: stored, by: By::None });
        }
        let (levels, packed) = body.split_at(plain.min(body.len()));
        let mut bytes = into;
        // What is decompressed at once is written over what lies there.
        if matches!(codec, Codec::Snappy | Codec::Lz4) && !packed.is_empty() {
            bytes.resize(header.size, 0);
            bytes.iter_mut().zip(levels).for_each(|(byte, level)| *byte = *level);
        } else {
            bytes.clear();
            bytes.extend_from_slice(levels);
        }
        let from = stored.len().saturating_sub(packed.len());
        if packed.is_empty() && bytes.len() == header.size {
            // Nothing but levels.
            return Ok(Unpacking { header, stored, from, plain, bytes, by: By::None });
        }
        let reader = |stored: Vec<u8>| {
            let mut reader = Bytes::new(stored);
            reader.set_position(u64::try_from(from).unwrap_or(u64::MAX));
            reader
        };
        let (by, stored) = match codec {
            Codec::None => (By::None, stored),
            Codec::Snappy => (By::Snappy, stored),
            Codec::Lz4 => (By::Lz4, stored),
            Codec::Gzip => {
                let reader = MultiGzDecoder::new(reader(stored));
                (By::Gzip(Box::new(reader)), Vec::new())
            }
            Codec::Zstd => {
                let mut decoder = FrameDecoder::new();
                decoder.set_max_window_size(WINDOW);
                let mut packed = reader(stored);
                begin(&mut decoder, &mut packed)?;
                (By::Zstd(Box::new(decoder), packed), Vec::new())
            }
        };
        Ok(Unpacking { header, stored, from, plain, bytes, by })
    }

    /// What it holds beside its column.
    pub(super) fn held(header: &Header) -> usize {
        header.stored.saturating_add(header.size)
    }

    /// Goes on. Whether all is there, and how many bytes were made.
    pub(super) fn step(&mut self) -> Result<(bool, usize), Wrong> {
        let before = match self.by {
            By::Snappy | By::Lz4 => self.plain,
            _ => self.bytes.len(),
        };
        let whole = self.go_on()?;
        let made = self.bytes.len().saturating_sub(before);
        Ok((whole, if whole { made } else { made.max(STEP) }))
    }

    fn go_on(&mut self) -> Result<bool, Wrong> {
        const CORRUPT: Wrong = "compressed data that are corrupt";
        let size = self.header.size;
        let packed = self.stored.get(self.from..).unwrap_or_default();
        match &mut self.by {
            By::None => {}
            By::Snappy => {
                let left = size.saturating_sub(self.plain);
                if snap::raw::decompress_len(packed).ok() != Some(left) {
                    return Err(SIZE);
                }
                let into = self.bytes.get_mut(self.plain..).unwrap_or_default();
                let done = snap::raw::Decoder::new().decompress(packed, into);
                done.map_err(|_| CORRUPT)?;
            }
            By::Lz4 => {
                let into = self.bytes.get_mut(self.plain..).unwrap_or_default();
                let done = lz4_flex::block::decompress_into(packed, into).map_err(|_| CORRUPT)?;
                self.bytes.truncate(self.plain.saturating_add(done));
            }
            By::Gzip(reader) => {
                // One byte more shows what is longer than it says.
                let left = size.saturating_sub(self.bytes.len()).saturating_add(1).min(STEP);
                let mut part = reader.by_ref().take(u64::try_from(left).unwrap_or(0));
                let more = part.read_to_end(&mut self.bytes).map_err(|_| CORRUPT)?;
                if self.bytes.len() <= size && more == left {
                    return Ok(false);
                }
            }
            By::Zstd(decoder, packed) => {
                let strategy = BlockDecodingStrategy::UptoBytes(STEP);
                let ended = decoder.decode_blocks(&mut *packed, strategy).map_err(|_| CORRUPT)?;
                let left = size.saturating_sub(self.bytes.len()).saturating_add(1);
                let mut part = (&mut **decoder).take(u64::try_from(left).unwrap_or(0));
                part.read_to_end(&mut self.bytes).map_err(|_| CORRUPT)?;
                if self.bytes.len() <= size && !(ended && at_end(packed)) {
                    if ended {
                        begin(decoder, packed)?;
                    }
                    return Ok(false);
                }
            }
        }
        match self.bytes.len() == size {
            true => Ok(true),
            false => Err(SIZE),
        }
    }

    /// The page, and a buffer that is done with.
    pub(super) fn into_bytes(self) -> (Vec<u8>, Vec<u8>) {
        (self.bytes, self.stored)
    }
}

const SIZE: Wrong = "compressed data of another size than the header's";

fn at_end(packed: &Bytes) -> bool {
    usize::try_from(packed.position()).is_ok_and(|at| at >= packed.get_ref().len())
}

/// A frame of zstd.
fn begin(decoder: &mut FrameDecoder, packed: &mut Bytes) -> Result<(), Wrong> {
    decoder.reset(packed).map_err(|_| "a frame of zstd that is corrupt, or looks back too far")
}
