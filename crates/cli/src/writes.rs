//! `nearside writes`: what a write log holds, and images of any instant of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use nearside_dma::file::{next_data, size};
use nearside_fsrlib::{InAll, Seen};
use nearside_store::write_log::{Cut, Entry, Flags, Image, ImageFile, LogError, LogReader, survivors};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::out::{self, Out};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  nearside writes disk.log                          # its entries: what was written where, flushes, marks
  nearside writes disk.log --summary --json
  nearside writes disk.log --base before.img --at 900 -o at900.img          # after the first 900 entries
  nearside writes disk.log --base before.img --at-mark upgraded -o marked.img  # when that mark was put
  nearside writes disk.log --base before.img --at 900 --seed 1 -o cut.img   # a power cut there
  nearside writes disk.log --base before.img --at 900 --seed 1 --torn -o torn.img

The log is of `attach --log-writes` or `serve --log-writes`, of Linux's dm-log-writes or of QEMU's blklogwrites. The base is what
the disk held when the log began; without it, zeros. A power cut keeps what stands before the last flush and each
write with FUA; of the writes and discards after that flush it loses some, by a draw of the seed, and does the
others in any order. With --torn a write may survive in some of its sectors only. A sector is never torn.";

/// List what a drive's write log holds, and make images of any instant of it
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct WritesArgs {
    /// The log
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Counts instead of entries
    #[arg(long, conflicts_with = "output")]
    summary: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Make an image, in a new file that only its owner may read, sparse where the file system can
    #[arg(short, long, value_name = "IMAGE", requires = "instant")]
    output: Option<PathBuf>,
    /// Of the instant after the first N entries; 0: before all
    #[arg(long, value_name = "N", group = "instant", requires = "output")]
    at: Option<u64>,
    /// Of the instant when the first such mark was put
    #[arg(long, value_name = "MARK", group = "instant", requires = "output")]
    at_mark: Option<OsString>,
    /// What the disk held when the log began
    #[arg(long, value_name = "IMAGE", requires = "output")]
    base: Option<PathBuf>,
    /// Cut the power at that instant: what was not flushed survives in part, by this seed
    #[arg(long, value_name = "SEED", requires = "output")]
    seed: Option<u64>,
    /// The power cut tears writes, between sectors
    #[arg(long, requires = "seed")]
    torn: bool,
}

pub fn run(args: WritesArgs) -> Outcome {
    let file = File::open(&args.log).map_err(|e| about(&args.log, &e))?;
    let seen = Arc::<Seen>::default();
    seen.begin(InAll::Bytes(size(&file).unwrap_or(0)));
    let log = LogReader::of(file).map_err(|e| about(&args.log, &e))?;
    let log = Log { log, seen: seen.clone(), progress: Progress::of("read", seen) };
    let mut out = Out::new();
    match &args.output {
        Some(image) => make(&args, &log, image, &mut out)?,
        None if args.summary => summary(&args, &log, &mut out)?,
        None => list(&args, &log, &mut out)?,
    }
    out.flush()?;
    Ok(0)
}

/// The log, and how far it is read.
struct Log {
    log: LogReader,
    seen: Arc<Seen>,
    progress: Progress,
}

impl Log {
    /// Its entries, from the first on.
    fn entries(&self) -> impl Iterator<Item = Result<Entry, LogError>> {
        let mut at = 0;
        self.log.entries().inspect(move |entry| {
            if let Ok(entry) = entry {
                self.seen.add(1, entry.offset.saturating_sub(at));
                at = entry.offset;
            }
        })
    }

    /// From here on an image is made of so many bytes and of what the first entries wrote: how much that is
    /// their heads say, which are read for it where a person watches.
    fn begins(&self, bytes: u64, at: u64) {
        if self.progress.is_watched() {
            let entries = self.log.entries().map_while(Result::ok).take_while(|entry| entry.index < at);
            let written = entries.filter(Entry::has_data).map(|entry| entry.sectors);
            let sectors = written.fold(0, u64::saturating_add);
            let written = sectors.saturating_mul(self.log.sector_bytes());
            self.seen.begin(InAll::Bytes(bytes.saturating_add(written)));
        }
    }
}

/// An image that is being made.
struct Made<'a> {
    file: ImageFile,
    seen: &'a Seen,
}

impl Image for Made<'_> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write(offset, bytes)?;
        self.seen.add(0, bytes.len() as u64);
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.file.zero(offset, len)
    }
}

fn about(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}

/// What an entry is, in a word or a few.
fn kind(entry: &Entry) -> String {
    let write = entry.has_data() && !entry.flags.has(Flags::MARK);
    let names = write.then_some("write").into_iter().chain(entry.flags.names());
    match names.collect::<Vec<_>>().join("+") {
        nothing if nothing.is_empty() => "none".into(),
        kind => kind,
    }
}

fn list(args: &WritesArgs, from: &Log, out: &mut Out) -> Result<(), Failure> {
    let log = &from.log;
    for entry in from.entries() {
        let entry = entry.map_err(|e| about(&args.log, &e))?;
        let mark = match entry.flags.has(Flags::MARK) {
            true => Some(log.mark(&entry).map_err(|e| about(&args.log, &e))?),
            false => None,
        };
        let (at, len) = (entry.sector * log.sector_bytes(), entry.sectors * log.sector_bytes());
        if args.json {
            out.json(&json!({
                "type": "entry", "entry": entry.index, "flags": entry.flags.names().collect::<Vec<_>>(),
                "offset": at, "bytes": len, "mark": mark.as_deref().map(out::text), "log_offset": entry.offset,
            }))?;
            continue;
        }
        let line = format!("{:>8}  {:<12}", entry.index, kind(&entry));
        match mark {
            Some(mark) => {
                out.text(&line)?;
                out.write_all(b" ")?;
                out.name(&mark)?;
                out.line(b"")?;
            }
            None if len > 0 => out.lines(&format!("{line} {len:>10} bytes at {at}"))?,
            None => out.lines(line.trim_end())?,
        }
    }
    Ok(())
}

#[derive(Default)]
struct Totals {
    entries: u64,
    writes: u64,
    written: u64,
    discards: u64,
    discarded: u64,
    fua: u64,
    flushes: u64,
    /// Those with something to make durable.
    periods: u64,
    marks: u64,
    /// Writes and discards after the last flush.
    open: u64,
}

fn summary(args: &WritesArgs, from: &Log, out: &mut Out) -> Result<(), Failure> {
    let (log, mut t) = (&from.log, Totals::default());
    for entry in from.entries() {
        let entry = entry.map_err(|e| about(&args.log, &e))?;
        let (bytes, count) = (entry.sectors * log.sector_bytes(), |is: bool| u64::from(is));
        t.entries += 1;
        t.marks += count(entry.flags.has(Flags::MARK));
        t.fua += count(entry.flags.has(Flags::FUA));
        if entry.flags.has(Flags::FLUSH) {
            t.flushes += 1;
            t.periods += count(t.open > 0);
            t.open = 0;
        }
        t.open += count(entry.mutates());
        let discard = entry.flags.has(Flags::DISCARD);
        let (of, sum) =
            if discard { (&mut t.discards, &mut t.discarded) } else { (&mut t.writes, &mut t.written) };
        *of += count(entry.mutates());
        *sum = sum.saturating_add(bytes);
    }
    if args.json {
        out.json(&json!({
            "type": "summary", "entries": t.entries, "sector_bytes": log.sector_bytes(), "writes": t.writes,
            "bytes_written": t.written, "discards": t.discards, "bytes_discarded": t.discarded, "fua": t.fua,
            "flushes": t.flushes, "flush_periods": t.periods, "marks": t.marks, "not_flushed": t.open,
        }))?;
        return Ok(());
    }
    out.lines(&format!("{} entries, in sectors of {} bytes", t.entries, log.sector_bytes()))?;
    out.lines(&format!("{} writes of {} bytes, {} with FUA", t.writes, t.written, t.fua))?;
    out.lines(&format!("{} discards of {} bytes", t.discards, t.discarded))?;
    out.lines(&format!("{} flushes, {} of them of something", t.flushes, t.periods))?;
    out.lines(&format!("{} writes and discards after the last flush", t.open))?;
    out.lines(&format!("{} marks", t.marks))?;
    Ok(())
}

/// The instant that was asked for, as so many first entries.
fn instant(args: &WritesArgs, from: &Log) -> Result<u64, Failure> {
    let Some(wanted) = &args.at_mark else { return Ok(args.at.unwrap_or(0)) };
    let log = &from.log;
    for entry in from.entries() {
        let entry = entry.map_err(|e| about(&args.log, &e))?;
        if entry.flags.has(Flags::MARK)
            && log.mark(&entry).map_err(|e| about(&args.log, &e))? == wanted.as_bytes()
        {
            return Ok(entry.index + 1);
        }
    }
    Err(about(&args.log, &format_args!("there is no mark {wanted:?}")))
}

fn make(args: &WritesArgs, from: &Log, path: &Path, out: &mut Out) -> Result<(), Failure> {
    let (log, at) = (&from.log, instant(args, from)?);
    let cut = args.seed.map(|seed| Cut { seed, torn: args.torn });
    let left = survivors(from.entries(), at, cut).map_err(|e| about(&args.log, &e))?;
    let base = args.base.as_deref().map(|base| File::open(base).map_err(|e| about(base, &e))).transpose()?;
    let bytes = match &base {
        Some(file) => size(file).map_err(|e| about(args.base.as_deref().unwrap_or(path), &e))?,
        None => log.capacity().map_err(|e| about(&args.log, &e))?,
    };
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|e| about(path, &e))?;
    from.begins(if base.is_some() { bytes } else { 0 }, at);
    let made = || -> Result<(), Failure> {
        file.set_len(bytes).map_err(|e| about(path, &e))?;
        let image = ImageFile::new(file.try_clone()?).map_err(|e| about(path, &e))?;
        let mut image = Made { file: image, seen: &from.seen };
        if let Some(base) = &base {
            copy(base, bytes, &mut image).map_err(|e| about(path, &e))?;
        }
        log.replay(0, left.first, &mut image).map_err(|e| about(&args.log, &e))?;
        left.then.iter().try_for_each(|part| log.apply(part, &mut image)).map_err(|e| about(&args.log, &e))
    };
    if let Err(e) = made() {
        // Half an image is none.
        let _ = std::fs::remove_file(path);
        return Err(e);
    }
    if args.json {
        out.json(&json!({
            "type": "image", "path": out::text(path.as_os_str().as_bytes()), "bytes": bytes, "entries": at,
            "of": log.count(), "seed": args.seed, "torn": args.torn, "lost": left.lost,
        }))?;
        return Ok(());
    }
    let cut = match cut {
        Some(Cut { seed, .. }) => format!(", a power cut by seed {seed}: {} of them lost or torn", left.lost),
        None => String::new(),
    };
    out.name(path.as_os_str().as_bytes())?;
    out.lines(&format!(": {bytes} bytes, after {at} of {} entries{cut}", log.count()))?;
    Ok(())
}

/// Copies what a file holds; holes stay holes.
fn copy(from: &File, len: u64, to: &mut Made<'_>) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while let Some((start, end)) = next_data(from, at)? {
        to.seen.add(0, start.min(len).saturating_sub(at));
        at = start;
        while at < end.min(len) {
            let part = usize::try_from(end.min(len) - at).unwrap_or(usize::MAX).min(buffer.len());
            from.read_exact_at(&mut buffer[..part], at)?;
            to.write(at, &buffer[..part])?;
            at += part as u64;
        }
        if at >= len {
            break;
        }
    }
    Ok(())
}
