//! Files as gzip, xz and zstd make them, searched in what they hold.
//!
//! What a file is, its first bytes say ([`Kind::of`]). The provider hands on its bytes in order, and
//! [`Unzipping`] hands what is in them to the operation, so that its offsets are those of the content. It
//! yields after each step, which takes no longer than a slice whatever the bytes are; a block of zstd cannot
//! be cut, and is decompressed where patterns are compiled (`Media::offload`). Members, streams and frames
//! may follow each other, and checksums are held to what they are of.
//!
//! Memory: what the format looks back at, at most [`WINDOW`]; a piece of what comes in (for zstd a block
//! more), and one of what comes out.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::GzDecoder;
use nearside_ndp::Flow;
use nearside_near_data::Failure;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use xxhash_rust::xxh64::Xxh64;
use xz4rust::{XzDecoder, XzError};

use crate::media::Media;
use crate::provider::Consumer;

/// Bytes that a format may look back at: an xz dictionary of `xz -9`. What wants more is refused.
const WINDOW: u64 = 64 << 20;
/// Compressed bytes that are taken at once.
const PIECE: usize = 16 << 10;
/// Bytes that are handed on at once, at most.
const CONTENT: usize = 64 << 10;
/// Bytes of gzip that are taken in a step: each may build tables anew.
const GZIP_TAKEN: usize = 256;
/// A block of zstd, at most.
const BLOCK: usize = 128 << 10;
/// A frame header of zstd, at most.
const FRAME_HEADER: usize = 18;

/// A form of compressed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gzip,
    Xz,
    Zstd,
}

impl Kind {
    /// First bytes that tell it.
    pub(crate) const MAGIC: u64 = 6;

    /// What a file is that begins so.
    pub(crate) fn of(first: &[u8]) -> Option<Kind> {
        [Kind::Gzip, Kind::Xz, Kind::Zstd].into_iter().find(|kind| kind.begins(first))
    }

    /// Whether a member, a stream or a frame of it begins so. The frames of zstd that are to be skipped begin
    /// some files.
    fn begins(self, first: &[u8]) -> bool {
        match self {
            Kind::Gzip => first.starts_with(&[0x1f, 0x8b, 8]),
            Kind::Xz => first.starts_with(b"\xfd7zXZ\0"),
            Kind::Zstd => {
                first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
                    || matches!(first, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Gzip => "gzip",
            Kind::Xz => "xz",
            Kind::Zstd => "zstd",
        }
    }

    /// Bytes to decompress in a slice.
    fn step(self) -> usize {
        match self {
            Kind::Gzip => 4 << 10,
            Kind::Xz => 128,
            Kind::Zstd => 32 << 10,
        }
    }
}

/// Compressed bytes that are at hand.
#[derive(Debug)]
struct Input {
    bytes: Vec<u8>,
    at: usize,
    /// No more follow.
    ended: bool,
    /// Bytes that may be taken before the next step.
    allowed: usize,
}

impl Default for Input {
    fn default() -> Input {
        Input { bytes: Vec::new(), at: 0, ended: false, allowed: usize::MAX }
    }
}

impl Input {
    fn give(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let allowed = self.rest().get(..self.allowed).unwrap_or(self.rest());
        match allowed.is_empty() && !(self.rest().is_empty() && self.ended) {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(allowed),
        }
    }

    fn consume(&mut self, n: usize) {
        self.at = self.at.saturating_add(n).min(self.bytes.len());
        self.allowed = self.allowed.saturating_sub(n);
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(into)?;
        self.consume(n);
        Ok(n)
    }
}

/// Why it cannot be decompressed.
enum Fault {
    Corrupt(String),
    /// It looks back at so many bytes.
    TooFar(u64),
}

impl From<&str> for Fault {
    fn from(why: &str) -> Fault {
        Fault::Corrupt(why.to_owned())
    }
}

impl Fault {
    fn of(why: impl ToString) -> Fault {
        Fault::Corrupt(why.to_string())
    }

    fn failure(self, kind: Kind) -> Failure {
        let name = kind.name();
        match self {
            Fault::Corrupt(why) => Failure::CorruptFile(format!("{name} data: {why}")),
            Fault::TooFar(bytes) => Failure::UnsupportedFeature(format!(
                "{name} data that look back at {bytes} bytes, where the most is {WINDOW}"
            )),
        }
    }
}

/// What a step came to.
enum Step {
    /// So many bytes.
    Bytes(usize),
    /// None yet.
    Again,
    /// It wants more bytes.
    Wants,
    /// All is decompressed.
    End,
}

enum Decoder {
    Gzip(Box<GzDecoder<Input>>),
    Xz(Box<XzDecoder<'static>>, Input),
    Zstd(Box<Frames>),
}

/// Frames of zstd.
struct Frames {
    input: Input,
    decoder: FrameDecoder,
    /// The frame at hand has a checksum.
    checked: bool,
    sum: Xxh64,
    /// Bytes of a frame that is skipped.
    skip: u64,
}

/// Decompresses, step by step.
struct Unzip {
    kind: Kind,
    decoder: Decoder,
    /// A member, a stream or a frame has begun and not ended.
    inside: bool,
}

impl Unzip {
    fn new(kind: Kind) -> Unzip {
        let decoder = match kind {
            Kind::Gzip => Decoder::Gzip(Box::new(GzDecoder::new(Input::default()))),
            // Zeros of the system's that nobody touches take no memory.
            Kind::Xz => Decoder::Xz(
                XzDecoder::in_heap_with_alloc_dict_size(WINDOW as usize, WINDOW as usize),
                Input::default(),
            ),
            Kind::Zstd => Decoder::Zstd(Box::new(Frames {
                input: Input::default(),
                decoder: FrameDecoder::new(),
                checked: false,
                sum: Xxh64::new(0),
                skip: 0,
            })),
        };
        Unzip { kind, decoder, inside: false }
    }

    fn input(&mut self) -> &mut Input {
        match &mut self.decoder {
            Decoder::Gzip(gzip) => gzip.get_mut(),
            Decoder::Xz(_, input) => input,
            Decoder::Zstd(frames) => &mut frames.input,
        }
    }

    /// A step, into `out`.
    async fn step<M: Media>(&mut self, media: &M, out: &mut [u8]) -> Result<Step, Fault> {
        if !self.inside
            && let Some(step) = self.between()?
        {
            return Ok(step);
        }
        if let Decoder::Gzip(gzip) = &mut self.decoder {
            gzip.get_mut().allowed = GZIP_TAKEN;
        }
        let step = match &mut self.decoder {
            Decoder::Gzip(gzip) => match gzip.read(out) {
                // It takes all that may be taken of blocks that hold nothing.
                Err(e) if e.kind() == ErrorKind::WouldBlock && !gzip.get_ref().rest().is_empty() => {
                    Step::Again
                }
                Ok(0) => {
                    self.inside = false;
                    let input = std::mem::take(gzip.get_mut());
                    gzip.reset(input);
                    Step::Again
                }
                Ok(n) => Step::Bytes(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock => Step::Wants,
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Err(CUT_SHORT.into()),
                Err(e) => return Err(Fault::of(e)),
            },
            Decoder::Xz(xz, input) => match xz.decode(input.rest(), out) {
                Ok(done) => {
                    input.consume(done.input_consumed());
                    if done.is_end_of_stream() {
                        self.inside = false;
                        xz.reset();
                    }
                    match done.output_produced() {
                        0 if done.made_progress() => Step::Again,
                        0 => Step::Wants,
                        n => Step::Bytes(n),
                    }
                }
                Err(XzError::NeedsLargerInputBuffer) => Step::Wants,
                Err(XzError::DictionaryTooLarge(bytes)) => return Err(Fault::TooFar(bytes)),
                Err(e) => return Err(Fault::of(e)),
            },
            Decoder::Zstd(frames) => {
                let step = frames.step(media, out).await?;
                self.inside = !matches!(step, Step::End);
                if self.inside { step } else { Step::Again }
            }
        };
        match step {
            Step::Wants if self.input().ended => Err(CUT_SHORT.into()),
            step => Ok(step),
        }
    }

    /// Between two: `None` where the next begins.
    fn between(&mut self) -> Result<Option<Step>, Fault> {
        let kind = self.kind;
        let input = self.input();
        // They may be padded.
        let zeros = input.rest().iter().take_while(|b| **b == 0).count();
        input.consume(zeros);
        let (len, ended) = (input.rest().len(), input.ended);
        if len == 0 && ended {
            return Ok(Some(Step::End));
        }
        if len < FRAME_HEADER && !ended {
            return Ok(Some(Step::Wants));
        }
        if !kind.begins(input.rest()) {
            return Err("something else follows".into());
        }
        self.inside = true;
        match &mut self.decoder {
            Decoder::Zstd(frames) => frames.begin()?,
            Decoder::Gzip(_) | Decoder::Xz(..) => {}
        }
        Ok(None)
    }
}

const CUT_SHORT: &str = "it ends too early";

impl Frames {
    /// A frame begins: RFC 8878, 3.1.1.1 and 3.1.2.
    fn begin(&mut self) -> Result<(), Fault> {
        let header = self.input.rest();
        let number = |at: usize, len: usize| {
            let bytes = header.get(at..at + len).ok_or(CUT_SHORT)?;
            Ok::<u64, Fault>(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        };
        if number(1, 3)? == 0x18_4d2a {
            self.skip = number(4, 4)?.saturating_add(8);
            return Ok(());
        }
        let descriptor = number(4, 1)?;
        let window = if descriptor & 0x20 == 0 {
            let (exponent, mantissa) = (number(5, 1)? >> 3, number(5, 1)? & 7);
            let base = 1u64 << (10 + exponent);
            base + base / 8 * mantissa
        } else {
            let dictionary = [0, 1, 2, 4][(descriptor & 3) as usize];
            number(5 + dictionary, [1, 2, 4, 8][(descriptor >> 6) as usize])?
        };
        if window > WINDOW {
            return Err(Fault::TooFar(window));
        }
        self.checked = descriptor & 4 != 0;
        self.sum = Xxh64::new(0);
        self.decoder.reset(&mut self.input).map_err(Fault::of)
    }

    /// `End`: of the frame.
    async fn step<M: Media>(&mut self, media: &M, out: &mut [u8]) -> Result<Step, Fault> {
        if self.skip > 0 {
            let n = self.skip.min(self.input.rest().len() as u64);
            self.input.consume(n as usize);
            self.skip -= n;
            return Ok(if self.skip == 0 { Step::End } else { Step::Wants });
        }
        if self.decoder.can_collect() > 0 {
            let n = self.decoder.read(out).map_err(Fault::of)?;
            self.sum.update(out.get(..n).unwrap_or_default());
            return Ok(Step::Bytes(n));
        }
        if self.decoder.is_finished() {
            let said = self.decoder.get_checksum_from_data();
            return match said.is_none_or(|said| said == self.sum.digest() as u32) {
                true => Ok(Step::End),
                false => Err("its checksum is another".into()),
            };
        }
        let &[a, b, c, ..] = self.input.rest() else { return Ok(Step::Wants) };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let body = if header >> 1 & 3 == 1 { 1 } else { (header >> 3) as usize };
        if body > BLOCK {
            return Err("a block is too large".into());
        }
        let sum = if header & 1 == 1 && self.checked { 4 } else { 0 };
        if self.input.rest().len() < 3 + body + sum {
            return Ok(Step::Wants);
        }
        let mut decoder = std::mem::replace(&mut self.decoder, FrameDecoder::new());
        let mut input = std::mem::take(&mut self.input);
        let work = move || {
            let result = decoder.decode_blocks(&mut input, BlockDecodingStrategy::UptoBlocks(1));
            (decoder, input, result.map(drop).map_err(Fault::of))
        };
        let (decoder, input, result) = media.offload(work).await;
        (self.decoder, self.input) = (decoder, input);
        result.map(|()| Step::Again)
    }
}

/// Takes a compressed file for a consumer of what it holds.
pub(crate) struct Unzipping<'c, C> {
    unzip: Unzip,
    consumer: &'c mut C,
    out: Vec<u8>,
    filled: usize,
    /// The content's byte that comes next.
    at: u64,
    /// The first that is wanted.
    from: u64,
}

impl<'c, C: Consumer> Unzipping<'c, C> {
    /// `from`: the content's byte that is handed on first.
    pub(crate) fn new(kind: Kind, from: u64, consumer: &'c mut C) -> Self {
        let out = vec![0; consumer.piece().clamp(kind.step(), CONTENT)];
        Unzipping { unzip: Unzip::new(kind), consumer, out, filled: 0, at: 0, from }
    }

    /// The file has ended.
    pub(crate) async fn end<M: Media>(&mut self, media: &M) -> Result<Flow, Failure> {
        self.unzip.input().ended = true;
        self.go_on(media).await
    }

    /// Decompresses what is at hand.
    async fn go_on<M: Media>(&mut self, media: &M) -> Result<Flow, Failure> {
        loop {
            let room = self.out.len().min(self.filled + self.unzip.kind.step());
            let step = self.unzip.step(media, self.out.get_mut(self.filled..room).unwrap_or_default()).await;
            media.yield_now().await;
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Bytes(n)) => {
                    self.filled += n;
                    if self.filled == self.out.len() {
                        let flow = self.hand_on(media).await?;
                        if flow != Flow::More {
                            return Ok(flow);
                        }
                    }
                }
                Ok(Step::Wants | Step::End) => return self.hand_on(media).await,
                Err(fault) => {
                    // What was good before it counts (`handler.rs`).
                    let flow = self.hand_on(media).await?;
                    let failure = fault.failure(self.unzip.kind);
                    return if flow == Flow::More { Err(failure) } else { Ok(flow) };
                }
            }
        }
    }

    async fn hand_on<M: Media>(&mut self, media: &M) -> Result<Flow, Failure> {
        let (at, len) = (self.at, std::mem::take(&mut self.filled));
        self.at = at.saturating_add(len as u64);
        let skip = usize::try_from(self.from.saturating_sub(at)).unwrap_or(len).min(len);
        if skip == len {
            return Ok(Flow::More);
        }
        let part = self.out.get(skip..len).unwrap_or_default();
        self.consumer.take(media, at.saturating_add(skip as u64), part).await
    }
}

impl<C: Consumer> Consumer for Unzipping<'_, C> {
    fn unordered(&self) -> bool {
        false
    }

    fn piece(&self) -> usize {
        PIECE
    }

    async fn take<M: Media>(&mut self, media: &M, _: u64, bytes: &[u8]) -> Result<Flow, Failure> {
        self.unzip.input().give(bytes);
        self.go_on(media).await
    }

    fn then(&mut self) -> Result<Vec<(u64, u64)>, Failure> {
        Ok(Vec::new())
    }
}

/// A file's first bytes.
#[derive(Default)]
pub(crate) struct First(pub Vec<u8>);

impl Consumer for First {
    fn unordered(&self) -> bool {
        false
    }

    fn piece(&self) -> usize {
        Kind::MAGIC as usize
    }

    async fn take<M: Media>(&mut self, _: &M, _: u64, bytes: &[u8]) -> Result<Flow, Failure> {
        self.0.extend_from_slice(bytes);
        Ok(Flow::More)
    }

    fn then(&mut self) -> Result<Vec<(u64, u64)>, Failure> {
        Ok(Vec::new())
    }
}
