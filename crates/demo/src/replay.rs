//! A recorded life of a volume, replayed: every block write that a stock kernel made on an ext4
//! and an F2FS volume, as writes to the drive; at each mark, after a sync, the drive's answers
//! must equal what that kernel said was there.
//!
//! The traces ship with the program (`fixtures/trace`;
//! their form is in `fixtures/README.md`), so this needs no root.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_driver::Command;
use nearside_embedded::{AnyStore, Embedded, Options, firmware};
use nearside_fsrlib::{Ask, Digest, Operation, Record, Session, Transport};
use nearside_store::Dram;

use crate::act3::Score;
use crate::stage::Failure;

/// One recorded life.
pub struct Trace {
    /// Its file system.
    pub name: &'static str,
    image: &'static [u8],
    trace: &'static [u8],
    manifests: &'static [u8],
}

macro_rules! trace {
    ($name:literal, $file:literal) => {
        Trace {
            name: $name,
            image: include_bytes!(concat!("../../../fixtures/trace/", $file, ".img.zst")),
            trace: include_bytes!(concat!("../../../fixtures/trace/", $file, ".trace.zst")),
            manifests: include_bytes!(concat!("../../../fixtures/trace/", $file, ".txt.zst")),
        }
    };
}

/// Those that ship.
pub const TRACES: [Trace; 2] = [trace!("ext4", "ext4"), trace!("F2FS", "f2fs")];

type Embed = Embedded<AnyStore, nearside_firmware::Fsr>;
/// SHA-256 by path, of every regular file.
type Files = BTreeMap<String, String>;

/// Replays a trace; an answer that differs from the manifest is an error.
/// With `monitor` off the drive keeps believing its cache.
///
/// # Errors
/// The drive's, of a command.
pub fn replay(trace: &Trace, monitor: bool) -> Result<Score, Failure> {
    let image = unpack(trace.image)?;
    let events = unpack(trace.trace)?;
    let manifests = String::from_utf8(unpack(trace.manifests)?)?;
    let manifests: Vec<Files> = manifests.split("# mark ").skip(1).map(files_of).collect();

    let block = 512;
    let mut session = {
        let store = AnyStore::Dram(Dram::new(image.len() as u64, block)?);
        let drive = Embedded::start(store, firmware(), &Options::default())?;
        Session::new(drive, Arc::new(TscClock::new()))
    };
    session.transport().namespace().observer().retriever().monitor().set_enabled(monitor);
    write(&mut session, 0, &image)?;

    let mut score = Score::default();
    let mut rest = events.strip_prefix(b"NEARTRC1").ok_or("the trace has no magic")?;
    number(&mut rest)?;
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        match kind {
            b'W' => {
                let offset = number(&mut rest)?;
                let len = take::<4>(&mut rest)?;
                let data = rest.split_off(..u32::from_le_bytes(len) as usize).ok_or("the trace is cut")?;
                write(&mut session, offset, data)?;
                score.writes += 1;
            }
            b'D' => drop((number(&mut rest)?, number(&mut rest)?)),
            b'F' => flush(&mut session)?,
            b'M' => {
                let mark = number(&mut rest)? as usize;
                let expected = manifests.get(mark).ok_or("a mark without a manifest")?;
                let start = std::time::Instant::now();
                let (found, hits, misses) = ask(&mut session)?;
                score.search_ns += start.elapsed().as_nanos() as u64;
                if found != *expected {
                    let wrong = expected.iter().find(|(path, sum)| found.get(*path) != Some(*sum));
                    return Err(format!(
                        "{} at mark {mark}: the drive's answer differs: {wrong:?}",
                        trace.name
                    )
                    .into());
                }
                score.rounds += 1;
                score.compared += expected.len();
                score.hits += hits;
                score.misses += misses;
            }
            other => return Err(format!("the trace has an event {other}").into()),
        }
    }
    Ok(score)
}

/// A write as a host makes it: NVMe commands.
fn write(session: &mut Session<Embed>, offset: u64, data: &[u8]) -> Result<(), Failure> {
    let way = session.transport_mut().transport();
    let block = u64::from(way.block_size());
    let nsid = way.namespace().nsid;
    for (i, piece) in data.chunks(64 << 10).enumerate() {
        let initiator = way.initiator();
        let mut buffer = initiator.buffer(piece.len())?;
        buffer.write(0, piece);
        let slba = (offset + (i as u64) * (64 << 10)) / block;
        let command = Command::write(nsid, slba, (piece.len() as u64 / block) as u32);
        let done = initiator.execute(&command, Some(buffer)).map_err(|e| e.to_string())?;
        done.outcome.map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// From here on a power cut leaves what was written, and the drive shows it.
fn flush(session: &mut Session<Embed>) -> Result<(), Failure> {
    let way = session.transport_mut().transport();
    let command = Command::flush(way.namespace().nsid);
    let done = way.initiator().execute(&command, None).map_err(|e| e.to_string())?;
    Ok(done.outcome.map(drop).map_err(|e| e.to_string())?)
}

fn ask(session: &mut Session<Embed>) -> Result<(Files, u64, u64), Failure> {
    let (mut found, mut file, mut failed) = (Files::new(), String::new(), None);
    let summary = session.stream(&Ask::tree("/", Operation::Checksum(Digest::Sha256)), |record| {
        match record {
            Record::File { path, .. } => file = escaped(&path),
            Record::Digest { value, .. } => {
                let mut hex = String::new();
                for byte in value.iter() {
                    let _ = write!(hex, "{byte:02x}");
                }
                found.insert(file.clone(), hex);
            }
            Record::Failed { path, failure } => failed = Some(format!("{}: {failure:?}", escaped(&path))),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    match failed {
        Some(failed) => Err(failed.into()),
        None => Ok((found, summary.counters.cache_hits, summary.counters.cache_misses)),
    }
}

/// The regular files of a manifest.
fn files_of(text: &str) -> Files {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let sum = fields.get(8).filter(|s| s.len() == 64)?;
            Some(((*fields.first()?).to_owned(), (*sum).to_owned()))
        })
        .collect()
}

/// A path as manifests write it.
fn escaped(path: &[u8]) -> String {
    path.iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_graphic() && byte != b'\\' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
        text
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Failure> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or("the trace is cut")?;
    *rest = after;
    Ok(*taken)
}

fn number(rest: &mut &[u8]) -> Result<u64, Failure> {
    take::<8>(rest).map(u64::from_le_bytes)
}

/// What a zstd frame holds.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    decoder.read_to_end(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_of_every_trace_is_answered_right() {
        for trace in &TRACES {
            let score = replay(trace, true).unwrap();
            assert!(score.rounds >= 10 && score.compared > 100, "{}: {score:?}", trace.name);
            assert!(score.hits > 0, "{}: the cache was never used", trace.name);
        }
    }

    #[test]
    fn without_the_monitor_the_answers_go_wrong() {
        for trace in &TRACES {
            assert!(replay(trace, false).is_err(), "{}: right without a monitor", trace.name);
        }
    }
}
