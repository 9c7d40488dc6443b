//! Act 3, DAC'23's metadata monitor: files are created, renamed, appended to and removed on the live volume
//! between searches, and every search is right.
//!
//! As root the host is this machine's own kernel: the drive's namespace appears as a file
//! through FUSE, and the volume on it is mounted. Otherwise recorded traces of a real
//! kernel's block writes are replayed ([`replay`]).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_embedded::{AnyStore, Loopback, firmware};
use nearside_front_fuse::{AttachOptions, attach};
use nearside_fsrlib::{Answer, Ask, Operation, Record, SearchOptions, Session, SocketTransport};
use nearside_instrument::report::Page;
use nearside_instrument::volume::{self, Kind};
use nearside_random::Rng;
use nearside_store::Dram;

use crate::replay::{TRACES, replay};
use crate::stage::{Failure, Headline, Stage, table};

/// What the rounds did and found.
#[derive(Debug, Default)]
pub struct Score {
    /// Rounds of changes with a search after each.
    pub rounds: usize,
    /// Block writes that the drive got from a trace; 0 where a kernel made them.
    pub writes: usize,
    /// Files created, appended to, renamed, removed.
    pub changes: [usize; 4],
    /// Answers (files and lines) that were compared.
    pub compared: usize,
    /// Names and inodes that the crawler's cache answered, and those that it did not.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
    /// Nanoseconds of searching, all rounds.
    pub search_ns: u64,
}

/// Why the live form cannot be played here; `None`: it can.
pub fn obstacle() -> Option<&'static str> {
    let root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|s| s.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(1) == Some("0")));
    if !root {
        return Some("not root");
    }
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        return Some("no FUSE or no loop devices");
    }
    (!Kind::Ext4.tools_are_here()).then_some("no mke2fs")
}

/// Plays it with this machine's kernel; the number that it comes to.
///
/// # Errors
/// The drive's, or the kernel's.
pub fn play(stage: &Stage, page: &mut Page) -> Result<Headline, Failure> {
    page.heading("Act 3: the metadata monitor under a live ext4");
    page.text(
        "The drive's namespace is a file (FUSE) on which this machine's kernel has mounted ext4. Between searches files are \
         created, appended to, renamed and removed through the kernel; after each sync the drive is asked for all lines \
         with a word, and its answer is compared with what the files hold. The crawler's cache stays warm throughout.",
    );
    let rounds = if stage.small { 5 } else { 60 };
    let progress = stage.progress("act 3: a live volume", rounds as u64);
    let score = live(&stage.out, rounds, 7, &mut |n| progress.set_position(n as u64))?;
    progress.finish_and_clear();
    show(page, &score);
    Ok(hits(&score))
}

/// How often the crawler's cache knew what it was asked while the volume changed below it.
fn hits(score: &Score) -> Headline {
    let asked = score.hits + score.misses;
    let number = format!("{:.1} %", 100.0 * score.hits as f64 / asked.max(1) as f64);
    let changes = match (score.changes.iter().sum::<usize>(), score.writes) {
        (0, writes) => format!("{writes} block writes of a real kernel"),
        (changes, _) => format!("{changes} changes through a live kernel"),
    };
    let sentence = format!(
        "Of {asked} names and inodes the drive's cache had so many, beneath {changes}; all {} answers compared were right.",
        score.compared
    );
    (number, sentence)
}

/// Plays it without root, from recorded traces; the number that it comes to.
///
/// # Errors
/// A trace that cannot be read, or the drive's.
pub fn play_recorded(stage: &Stage, page: &mut Page, why: &str) -> Result<Headline, Failure> {
    page.heading("Act 3: the metadata monitor under a recorded life of two volumes");
    page.text(&format!(
        "Not with a live kernel ({why}): every block write that a stock Linux made on an ext4 and an F2FS volume, recorded \
         once, is written to the drive again. At each of the kernel's sync points the drive is asked for the SHA-256 of every \
         file, and its answer is compared with what that kernel saw. The crawler's cache stays warm throughout.",
    ));
    println!("\n  act 3 without a live kernel: {why}");
    let progress = stage.progress("act 3: replaying recorded writes", TRACES.len() as u64);
    let head = [
        "volume",
        "block writes",
        "sync points",
        "files compared",
        "wrong",
        "cache hits",
        "misses",
        "ms an answer",
    ];
    let mut rows = Vec::new();
    let mut all = Score::default();
    for trace in &TRACES {
        let score = replay(trace, true)?;
        all.hits += score.hits;
        all.misses += score.misses;
        all.writes += score.writes;
        all.compared += score.compared;
        rows.push(vec![
            trace.name.into(),
            score.writes.to_string(),
            score.rounds.to_string(),
            score.compared.to_string(),
            "0".into(),
            score.hits.to_string(),
            score.misses.to_string(),
            per_round(&score),
        ]);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let caption = "A real kernel's block writes between searches; a wrong answer would have ended the act";
    table(caption, &head, &rows);
    page.table(caption, &head, &rows);
    Ok(hits(&all))
}

fn per_round(score: &Score) -> String {
    format!("{:.2}", score.search_ns as f64 / 1e6 / score.rounds.max(1) as f64)
}

fn show(page: &mut Page, score: &Score) {
    let [created, appended, renamed, removed] = score.changes.map(|n| n.to_string());
    let head = [
        "rounds",
        "created",
        "appended",
        "renamed",
        "removed",
        "compared",
        "wrong",
        "cache hits",
        "misses",
        "ms a search",
    ];
    let (hits, misses) = (score.hits.to_string(), score.misses.to_string());
    let (rounds, compared) = (score.rounds.to_string(), score.compared.to_string());
    let rows = vec![vec![
        rounds,
        created,
        appended,
        renamed,
        removed,
        compared,
        "0".into(),
        hits,
        misses,
        per_round(score),
    ]];
    let caption = "Changes between searches; a wrong answer would have ended the act";
    table(caption, &head, &rows);
    page.table(caption, &head, &rows);
}

/// The mounted volume; goes when this does.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).status();
        if !done.is_ok_and(|s| s.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// Rounds of seeded changes and searches on an ext4 that this
/// machine's kernel has mounted on an attached drive.
///
/// # Errors
/// The drive's, or the kernel's: it needs root and a loop device.
pub fn live(work: &Path, rounds: usize, seed: u64, tick: &mut dyn FnMut(usize)) -> Result<Score, Failure> {
    let folder = tempfile::tempdir_in(work)?;
    let image = folder.path().join("live.img");
    let (tree, points) =
        (folder.path().join("tree"), [folder.path().join("drive"), folder.path().join("mount")]);
    fs::create_dir_all(tree.join("a/b/c"))?;
    for point in &points {
        fs::create_dir_all(point)?;
    }
    volume::make(Kind::Ext4, &image, &tree, 96 << 20)?;

    let store = AnyStore::Dram(Dram::from_file(&image, 512)?);
    let drive = Loopback::threaded(store, firmware(), Config::default(), Rest::default())?;
    let socket = folder.path().join("socket");
    let mut options = AttachOptions::new(&points[0]);
    options.socket = Some(socket.clone());
    let attached = attach(drive.function.clone(), &options)?;
    let played = {
        let out = Command::new("mount").args(["-o", "loop"]).arg(attached.file()).arg(&points[1]).output()?;
        if !out.status.success() {
            return Err(format!("mount: {}", String::from_utf8_lossy(&out.stderr).trim()).into());
        }
        let mounted = Mounted(points[1].clone());
        let session = Session::new(SocketTransport::connect(&socket)?, Arc::new(TscClock::new()));
        rounds_on(&mounted.0, session, rounds, seed, tick)
    };
    attached.detach().map_err(|(e, _)| e)?;
    played
}

fn rounds_on(
    mount: &Path,
    mut session: Session<SocketTransport>,
    rounds: usize,
    seed: u64,
    tick: &mut dyn FnMut(usize),
) -> Result<Score, Failure> {
    let mut rng = Rng(seed);
    let mut score = Score { rounds, ..Score::default() };
    // What each file holds: path below the mount -> lines with the word.
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let dirs = ["a", "a/b", "a/b/c"];
    let mut serial = 0;
    for round in 0..rounds {
        for _ in 0..1 + rng.below(12) {
            let chosen = (!files.is_empty()).then(|| rng.below(files.len() as u64) as usize);
            let chosen = chosen.and_then(|i| files.keys().nth(i).cloned());
            match (rng.below(5), chosen) {
                (0 | 1, _) | (_, None) => {
                    serial += 1;
                    let path = format!("{}/file-{serial:05}.txt", dirs[rng.below(3) as usize]);
                    let line = format!("word {serial} written in round {round}");
                    fs::write(mount.join(&path), format!("first line\n{line}\n"))?;
                    files.insert(path, vec![line]);
                    score.changes[0] += 1;
                }
                (2, Some(path)) => {
                    let line = format!("word appended in round {round}");
                    let padding = "-".repeat(rng.below(9000) as usize);
                    let mut file = fs::OpenOptions::new().append(true).open(mount.join(&path))?;
                    writeln!(file, "{padding}\n{line}")?;
                    files.entry(path).or_default().push(line);
                    score.changes[1] += 1;
                }
                (3, Some(path)) => {
                    serial += 1;
                    let to = format!("{}/renamed-{serial:05}.txt", dirs[rng.below(3) as usize]);
                    fs::rename(mount.join(&path), mount.join(&to))?;
                    if let Some(lines) = files.remove(&path) {
                        files.insert(to, lines);
                    }
                    score.changes[2] += 1;
                }
                (_, Some(path)) => {
                    fs::remove_file(mount.join(&path))?;
                    files.remove(&path);
                    score.changes[3] += 1;
                }
            }
        }
        let synced = Command::new("sync").arg("-f").arg(mount).status()?;
        if !synced.success() {
            return Err("sync failed".into());
        }
        let (found, hits, misses, ns) = ask(&mut session)?;
        score.compared += files.len() + files.values().map(Vec::len).sum::<usize>();
        (score.hits, score.misses, score.search_ns) =
            (score.hits + hits, score.misses + misses, score.search_ns + ns);
        if found != files {
            let wrong = files.iter().find(|(path, lines)| found.get(*path) != Some(lines));
            return Err(format!("round {round}: the drive's answer differs from the files: {wrong:?}").into());
        }
        tick(round + 1);
    }
    Ok(score)
}

type Found = (BTreeMap<String, Vec<String>>, u64, u64, u64);

/// All lines with "word" below /a, by file, from the drive.
fn ask(session: &mut Session<SocketTransport>) -> Result<Found, Failure> {
    let search = SearchOptions {
        patterns: vec![b"word".to_vec()],
        fixed: true,
        text: true,
        answer: Answer::Lines,
        ..SearchOptions::default()
    };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut file = String::new();
    let mut failed = None;
    let start = std::time::Instant::now();
    let summary = session.stream(&Ask::tree("/a", Operation::Search(search)), |record| {
        match record {
            Record::File { path, .. } => {
                file = String::from_utf8_lossy(&path).trim_start_matches('/').to_owned();
                found.entry(file.clone()).or_default();
            }
            Record::Line { bytes, .. } => {
                found.entry(file.clone()).or_default().push(String::from_utf8_lossy(&bytes).into_owned());
            }
            Record::Failed { path, failure } => {
                failed = Some(format!("{}: {failure:?}", String::from_utf8_lossy(&path)))
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    let ns = start.elapsed().as_nanos() as u64;
    match failed {
        Some(failed) => Err(failed.into()),
        None => Ok((found, summary.counters.cache_hits, summary.counters.cache_misses, ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_part_that_the_cache_knew() {
        let score = Score { hits: 999, misses: 1, writes: 7, compared: 5, ..Score::default() };
        let (number, sentence) = hits(&score);
        assert_eq!(number, "99.9 %");
        assert!(sentence.contains("Of 1000 names") && sentence.contains("7 block writes"), "{sentence}");
        let live = Score { changes: [1, 2, 3, 4], ..score };
        assert!(hits(&live).1.contains("10 changes through a live kernel"));
        assert_eq!(hits(&Score::default()).0, "0.0 %");
    }
}
