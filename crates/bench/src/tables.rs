//! Rows, vectors and tables in the drive, each beside what its user would take in its place: a selection
//! beside DuckDB and DataFusion, the nearest rows beside NumPy, on a mount of the same image, all on one
//! CPU, since a database that is told to take one thread has others read for it; rows by their numbers
//! beside a host that reads the pages they lie in over the same connection; a user's program beside the same
//! in Rust, over the mounted file.
//!
//! Peers are there before they are asked, so that no start of theirs is measured; ours is a whole
//! process. Rounds take turns, and who answers otherwise has no figure.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside_clock::TscClock;
use nearside_driver::Policy;
use nearside_embedded::Drive;
use nearside_fsrlib::{
    Ask, GatherOptions, NearestOptions, Operation, Pooling, Record, Session, TcpTransport,
};
use nearside_instrument::Failure;
use nearside_instrument::completion::{pin, unpin};
use nearside_instrument::kernel::LoopMount;
use nearside_instrument::volume::{self, Kind};
use nearside_loadgen::record::Figure;
use nearside_random::Rng;

use crate::figures::Sink;
use crate::tcp::{Load, Serving};

/// Numbers of a vector.
const COLUMNS: usize = 128;
const CITIES: [&str; 8] = ["Berlin", "Paris", "Rome", "Oslo", "Bern", "Madrid", "Lisbon", "Vienna"];
/// Bags of rows that are pooled, and rows of each.
const BAGS: usize = 64;
const ROWS: usize = 80;
/// Bytes that a host reads for a row.
const PAGE: usize = 4096;

/// What a peer does at each line that it is told: how many milliseconds it took, and what came of it.
const DUCKDB: &str = r#"
import duckdb, sys, time
duckdb.sql('set threads = 1')
duckdb.sql('set enable_progress_bar = false')
for path in map(str.strip, sys.stdin):
    begun = time.perf_counter()
    read = 'read_parquet' if path.endswith('.parquet') else 'read_csv'
    rows = duckdb.sql(f"select city, count(*), sum(distance) from {read}('{path}') where price >= 99 group by city").fetchall()
    took = time.perf_counter() - begun
    print(took * 1e3, ' '.join(sorted(f'{c},{n},{s}' for c, n, s in rows)), flush=True)
"#;
const DATAFUSION: &str = r#"
import sys, time
from datafusion import SessionConfig, SessionContext
for path in map(str.strip, sys.stdin):
    context = SessionContext(SessionConfig().with_target_partitions(1))
    begun = time.perf_counter()
    (context.register_parquet if path.endswith('.parquet') else context.register_csv)('t', path)
    batches = context.sql('select city, count(*) n, sum(distance) s from t where price >= 99 group by city').collect()
    took = time.perf_counter() - begun
    rows = [row for batch in batches for row in batch.to_pylist()]
    print(took * 1e3, ' '.join(sorted(f"{r['city']},{r['n']},{r['s']}" for r in rows)), flush=True)
"#;
const NUMPY: &str = r#"
import numpy as np, sys, time
query, table = None, None
for path in map(str.strip, sys.stdin):
    if table is None:
        table, query = np.load(path), np.full(128, 0.5, '<f4')
        query[::3] = -1
    begun = time.perf_counter()
    score = table @ query
    first = np.argpartition(-score, 10)[:10]
    first = first[np.argsort(-score[first])]
    took = time.perf_counter() - begun
    print(took * 1e3, ' '.join(map(str, first)), flush=True)
"#;

/// The same rows as Parquet, as DuckDB writes it: row groups of 122,880 rows, Snappy.
const TO_PARQUET: &str = r#"
import duckdb, sys
duckdb.sql('set threads = 1')
duckdb.sql(f"copy (from read_csv('{sys.argv[1]}')) to '{sys.argv[2]}' (format parquet)")
"#;
/// A program counts words, by what programs/words.rs counts by in the drive.
const WORDS: &str = r#"
use std::io::{BufRead, Read};
fn main() {
    for path in std::io::stdin().lock().lines().map_while(Result::ok) {
        let begun = std::time::Instant::now();
        let mut file = std::fs::File::open(path).unwrap();
        let mut buffer = vec![0; 64 << 10];
        let mut counted = count::Counted::default();
        loop {
            let n = file.read(&mut buffer).unwrap();
            if n == 0 {
                break;
            }
            counted.add(&buffer[..n]);
        }
        let count::Counted { lines, words, bytes, .. } = counted;
        println!("{} {lines} {words} {bytes}", begun.elapsed().as_secs_f64() * 1e3);
    }
}
"#;
pub const ORACLES: &str = "target/oracles/bin/python";

/// Whether a Python has modules.
pub fn imports(mut python: Command, modules: &str) -> bool {
    let ran = python.args(["-c", &format!("import {modules}")]).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

/// Our command; `None`, with a word: it is not built.
pub fn nearside() -> Result<Option<PathBuf>, Failure> {
    let nearside = std::env::current_exe()?.with_file_name("nearside");
    if !nearside.exists() {
        eprintln!("  left out: {} is not built (cargo build --release -p nearside-cli)", nearside.display());
        return Ok(None);
    }
    Ok(Some(nearside))
}

/// A peer that waits for what it is asked.
pub struct Peer {
    name: &'static str,
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// `None`, with a word: it is not here.
    fn start(name: &'static str, needs: &str, script: &str) -> Option<Peer> {
        if !imports(Command::new(ORACLES), needs) {
            eprintln!(
                "  left out beside the others: {name} is not in target/oracles (scripts/setup.sh bench)"
            );
            return None;
        }
        let mut command = Command::new(ORACLES);
        command.args(["-c", script]);
        for libraries in ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"] {
            command.env(libraries, "1");
        }
        Peer::of(name, command)
    }

    /// One that a program of its own is.
    pub fn of(name: &'static str, mut command: Command) -> Option<Peer> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().ok()?;
        let (ask, answers) = (process.stdin.take()?, BufReader::new(process.stdout.take()?));
        Some(Peer { name, process, ask, answers })
    }

    fn ask(&mut self, path: &Path) -> Result<(f64, String), Failure> {
        writeln!(self.ask, "{}", path.display())?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let (took, answer) = line.trim().split_once(' ').ok_or_else(|| format!("{} ended", self.name))?;
        Ok((took.parse()?, answer.to_owned()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Our command as its user runs it.
pub struct Ours {
    nearside: PathBuf,
    image: PathBuf,
}

impl Ours {
    /// `None`, with a word: it is not built.
    pub fn over(image: &Path) -> Result<Option<Ours>, Failure> {
        Ok(nearside()?.map(|nearside| Ours { nearside, image: image.to_owned() }))
    }

    /// What it answers, in the peers' form, and how many milliseconds the whole process took.
    pub fn run(&self, words: &[&str], answer: fn(&str) -> String) -> Result<(f64, String), Failure> {
        let mut command = Command::new(&self.nearside);
        command.arg(words[0]).arg("-d").arg(&self.image).args(["--threads", "1"]).args(&words[1..]);
        timed(command, answer)
    }

    /// The same of rows, from a drive that is elsewhere.
    pub fn remotely(&self, words: &[&str]) -> Result<(f64, String), Failure> {
        let mut command = Command::new(&self.nearside);
        command.arg(words[0]).arg("-d").arg(&self.image).args(&words[1..]);
        timed(command, rows)
    }

    /// The same of a query in SQL.
    fn query(&self, query: &str) -> Result<(f64, String), Failure> {
        let mut command = Command::new(&self.nearside);
        command.args(["sql", "--output", "csv", query, "-d"]);
        command.arg(&self.image);
        timed(command, rows)
    }
}

fn timed(mut command: Command, answer: fn(&str) -> String) -> Result<(f64, String), Failure> {
    let begun = Instant::now();
    let out = command.stdin(Stdio::null()).output()?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    if !out.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    Ok((took, answer(&String::from_utf8_lossy(&out.stdout))))
}

/// The rows behind the names' row, sorted.
fn rows(text: &str) -> String {
    let mut rows: Vec<&str> = text.lines().skip(1).collect();
    rows.sort_unstable();
    rows.join(" ")
}

/// The first word of each line.
fn first_words(text: &str) -> String {
    let words: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    words.join(" ")
}

/// The text without the newline behind it.
fn line(text: &str) -> String {
    text.trim().to_owned()
}

/// Has this thread, and the processes that it starts, share one CPU.
pub fn on_one_cpu(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    pin(0);
    let done = work();
    unpin();
    done
}

/// All rounds of one work, the first for the caches.
pub fn contest(
    work: &str,
    ours: &mut dyn FnMut() -> Result<(f64, String), Failure>,
    peers: &mut [Peer],
    path: &Path,
    rounds: usize,
    sink: Sink<'_>,
) -> Result<(), Failure> {
    let mut times = vec![Vec::new(); peers.len() + 1];
    for round in 0..=rounds {
        let (took, expected) = ours()?;
        let mut all = vec![took];
        for peer in &mut *peers {
            let (took, answer) = peer.ask(path)?;
            if answer != expected {
                let [answer, expected] = [&answer, &expected].map(|text| text.get(..200).unwrap_or(text));
                return Err(format!("{work}: {} says {answer}, the drive {expected}", peer.name).into());
            }
            all.push(took);
        }
        if round > 0 {
            all.into_iter().zip(&mut times).for_each(|(took, times)| times.push(took));
        }
    }
    let (ours, theirs) = times.split_at(1);
    for (peer, times) in peers.iter().zip(theirs) {
        let name = format!("{work}: ext4 / {}", peer.name);
        sink(Figure::of(&name, "ms", &ours[0]).beside(&Figure::of(peer.name, "ms", times)));
    }
    Ok(())
}

/// So many bytes of CSV; of a hundred rows one has a price of 99 and more.
fn write_csv(path: &Path, bytes: u64) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random = Rng(2026);
    let (mut written, mut id) = (0, 0u64);
    let mut line = Vec::new();
    out.write_all(b"id,city,price,distance,note\n")?;
    while written < bytes {
        line.clear();
        let (city, price) = (random.pick(&CITIES), random.below(10_000));
        let (distance, note) = (random.below(10_000), random.below(1_000));
        writeln!(line, "{id},{city},{}.{:02},{distance},some text of {note}", price / 100, price % 100)?;
        out.write_all(&line)?;
        written += line.len() as u64;
        id += 1;
    }
    Ok(out.flush()?)
}

/// So many vectors as NumPy keeps them. Whole numbers, whose sums are exact in any order.
fn write_vectors(path: &Path, rows: usize) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {COLUMNS}), }}");
    while !(10 + head.len() + 1).is_multiple_of(64) {
        head.push(' ');
    }
    head.push('\n');
    out.write_all(b"\x93NUMPY\x01\0")?;
    out.write_all(&(head.len() as u16).to_le_bytes())?;
    out.write_all(head.as_bytes())?;
    let mut random = Rng(7);
    for _ in 0..rows * COLUMNS {
        out.write_all(&(random.below(2001) as f32 - 1000.0).to_le_bytes())?;
    }
    Ok(out.flush()?)
}

/// A volume with so many bytes of CSV, with the same rows as Parquet, and with what `more` makes in a tree,
/// which is in the way of nobody.
pub fn volume_of_rows(
    tree: &Path,
    image: &Path,
    csv_bytes: u64,
    more: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    std::fs::create_dir(tree)?;
    write_csv(&tree.join("trips.csv"), csv_bytes)?;
    more(tree)?;
    let made = Command::new(ORACLES)
        .args(["-c", TO_PARQUET])
        .args([tree.join("trips.csv"), tree.join("trips.parquet")])
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("  left out: Parquet, which DuckDB of {ORACLES} writes (scripts/setup.sh bench)");
    }
    volume::make(Kind::Ext4, image, tree, 3 << 30)?;
    Ok(std::fs::remove_dir_all(tree)?)
}

/// The selection, in the drive.
pub fn select(path: &str) -> [&str; 10] {
    [
        "select",
        path,
        "--where",
        "price >= 99",
        "--group-by",
        "city",
        "--aggregate",
        "count(*), sum(distance)",
        "--output",
        "csv",
    ]
}

/// What does the same on a file.
pub fn databases() -> Vec<Peer> {
    [("DuckDB", "duckdb", DUCKDB), ("DataFusion", "datafusion", DATAFUSION)]
        .into_iter()
        .filter_map(|(name, needs, script)| Peer::start(name, needs, script))
        .collect()
}

/// All rows.
pub fn tables(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (csv_bytes, count, rounds) = if fast { (64 << 20, 100_000, 3) } else { (1 << 30, 1_000_000, 7) };
    // Embeddings are tables larger than any cache.
    let embeddings = count * 10;
    eprintln!("tables: making a volume of {} MiB of CSV and {count} vectors ...", csv_bytes >> 20);
    let folder = tempfile::tempdir_in("target")?;
    let (tree, image) = (folder.path().join("tree"), folder.path().join("tables.img"));
    volume_of_rows(&tree, &image, csv_bytes, |tree| write_vectors(&tree.join("vectors.npy"), count))?;
    on_one_cpu(|| beside_python(&image, csv_bytes, count, rounds, sink))?;
    std::fs::remove_file(&image)?;
    eprintln!("tables: making a volume of {embeddings} vectors ...");
    std::fs::create_dir(&tree)?;
    write_vectors(&tree.join("vectors.npy"), embeddings)?;
    let bytes = (embeddings * COLUMNS * size_of::<f32>()) as u64;
    volume::make(Kind::Ext4, &image, &tree, bytes + bytes / 8 + (64 << 20))?;
    std::fs::remove_dir_all(&tree)?;
    gathered(&image, embeddings, rounds, sink)
}

fn beside_python(
    image: &Path,
    csv_bytes: u64,
    count: usize,
    rounds: usize,
    sink: Sink<'_>,
) -> Result<(), Failure> {
    let Some(ours) = Ours::over(image)? else { return Ok(()) };
    let mount = match LoopMount::new(image) {
        Ok(mount) => mount,
        Err(e) => {
            eprintln!("  left out: no loop mount to stand beside: {e}");
            return Ok(());
        }
    };
    let mut peers = databases();
    for (path, form) in [("/trips.csv", "CSV"), ("/trips.parquet", "CSV as Parquet")] {
        let mounted = mount.path(path);
        if mounted.exists() {
            let work = format!("{} MiB of {form}, of a hundred rows one, in groups", csv_bytes >> 20);
            contest(
                &format!("{work}, one CPU"),
                &mut || ours.run(&select(path), rows),
                &mut peers,
                &mounted,
                rounds,
                sink,
            )?;
            if ours.nearside.with_file_name("nearside-sql").exists() {
                let function = if form == "CSV" { "csv" } else { "parquet" };
                let query = format!(
                    "select city, count(*), sum(distance) from {function}('{path}') where price >= 99 group by city"
                );
                let work = format!("{work}, in SQL, one CPU");
                contest(&work, &mut || ours.query(&query), &mut peers, &mounted, rounds, sink)?;
            } else {
                eprintln!("  left out: nearside-sql is not built (make sql)");
            }
        }
    }
    drop(peers);
    words(&ours, &mount.path("/trips.csv"), csv_bytes, rounds, sink)?;
    nearest(&ours, &mount.path("/vectors.npy"), count, rounds, sink)
}

/// Words counted by a program of WebAssembly in the drive, and by one of Rust on the mounted file.
fn words(ours: &Ours, path: &Path, bytes: u64, rounds: usize, sink: Sink<'_>) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (source, native) = (folder.path().join("words.rs"), folder.path().join("words"));
    let count = std::path::absolute("programs/count.rs")?;
    std::fs::write(&source, format!("#[path = {count:?}]\nmod count;\n{WORDS}"))?;
    let module = folder.path().join("words.wasm");
    let rustc = |words: &[&str], source: &Path, to: &Path| {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-C", "opt-level=3", "-C", "panic=abort"]).args(words);
        let ran = rustc.arg(source).arg("-o").arg(to).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let wasm = ["--target", "wasm32v1-none", "--crate-type", "cdylib", "-C", "strip=debuginfo"];
    if !rustc(&wasm, Path::new("programs/words.rs"), &module) || !rustc(&[], &source, &native) {
        eprintln!("  left out: rustc cannot compile programs/words.rs for wasm32v1-none");
        return Ok(());
    }
    let mut peers: Vec<Peer> = Peer::of("Rust", Command::new(native)).into_iter().collect();
    let module = module.to_string_lossy().into_owned();
    if ours.run(&["run", &module, "/none"], line).is_err_and(|e| e.to_string().contains("runs no programs")) {
        eprintln!(
            "  left out: this build of nearside runs no programs (cargo build --release -p nearside-cli)"
        );
        return Ok(());
    }
    let work = format!("{} MiB of CSV, words counted by a program, one CPU", bytes >> 20);
    let asked = ["run", &module, "/trips.csv"];
    contest(&work, &mut || ours.run(&asked, line), &mut peers, path, rounds, sink)
}

/// The nearest rows: by a whole process, and in a session that has been asked before. The image is in the
/// page cache, as NumPy's array is in its own memory.
fn nearest(ours: &Ours, path: &Path, count: usize, rounds: usize, sink: Sink<'_>) -> Result<(), Failure> {
    let query: Vec<f32> = (0..COLUMNS).map(|n| if n % 3 == 0 { -1.0 } else { 0.5 }).collect();
    let words = query.iter().map(f32::to_string).collect::<Vec<_>>().join(",");
    let words = ["nearest", "/vectors.npy", "--query", &words, "-k", "10"];
    let mut peers: Vec<Peer> = Peer::start("NumPy", "numpy", NUMPY).into_iter().collect();
    let work = format!("nearest of {count} rows of {COLUMNS} f32");
    let whole = format!("{work}, one CPU");
    contest(&whole, &mut || ours.run(&words, first_words), &mut peers, path, rounds, sink)?;
    let mut drive = Drive::open(&ours.image)?;
    let session = drive.session();
    let options = NearestOptions { count: 10, query, ..Default::default() };
    let ask = Ask::path("/vectors.npy", Operation::Nearest(options));
    let mut asked = || {
        let (begun, mut found) = (Instant::now(), Vec::new());
        session.stream(&ask, |record| {
            if let Record::Near { row, .. } = record {
                found.push(row.to_string());
            }
            ControlFlow::Continue(())
        })?;
        Ok((begun.elapsed().as_secs_f64() * 1e3, found.join(" ")))
    };
    contest(&format!("{work}, a warm session, one CPU"), &mut asked, &mut peers, path, rounds, sink)
}

/// Rows by their numbers over the network, pooled in the drive, and a host that reads their pages.
fn gathered(image: &Path, count: usize, rounds: usize, sink: Sink<'_>) -> Result<(), Failure> {
    eprintln!("tables: rows by their numbers over NVMe/TCP ...");
    let serving = Serving::with(&format!("file:{}", image.display()), nearside_embedded::firmware())?;
    let controller = serving.connect()?;
    let transport = TcpTransport::over(&controller, Policy::Polled, TscClock::new())?;
    let mut session = Session::new(transport, Arc::new(TscClock::new()));
    let mut pages = Load::new(&controller, 32, PAGE)?;
    let mut random = Rng(80);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut moved = 0;
    for round in 0..=rounds {
        let indices: Vec<u64> = (0..BAGS * ROWS).map(|_| random.below(count as u64)).collect();
        let options = GatherOptions {
            pooling: Pooling::Sum,
            indices,
            bags: vec![ROWS as u32; BAGS],
            ..Default::default()
        };
        let ask = Ask::path("/vectors.npy", Operation::Gather(options));
        let (begun, mut answered) = (Instant::now(), 0);
        let summary = session.stream(&ask, |record| {
            answered += usize::from(matches!(record, Record::Row { .. }));
            ControlFlow::Continue(())
        })?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        if answered != BAGS {
            return Err(format!("{answered} bags were answered of {BAGS}").into());
        }
        moved = summary.moved.bytes_out + summary.moved.bytes_in;
        let rate = pages.reads(32, Duration::from_millis(300))?;
        if round > 0 {
            ours.push(took);
            theirs.push((BAGS * ROWS) as f64 / rate * 1e3);
        }
    }
    let work = format!("TCP: {BAGS} bags of {ROWS} of {count} rows of {COLUMNS} f32, summed");
    let theirs = Figure::of("their pages, read at QD32", "ms", &theirs);
    sink(Figure::of(&work, "ms", &ours).beside(&theirs));
    let all = Figure::of("their pages", "B", &[(BAGS * ROWS * PAGE) as f64]);
    sink(Figure::of(&format!("{work}: bytes moved"), "B", &[moved as f64]).beside(&all));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_in_one_form() {
        assert_eq!(rows("city,n\nb,2\na,1\n"), "a,1 b,2");
        assert_eq!(first_words("7 0.5\n3 0.25\n"), "7 3");
    }

    #[test]
    fn a_table_is_as_numpy_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v.npy");
        write_vectors(&path, 3).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let head = usize::from(u16::from_le_bytes([bytes[8], bytes[9]])) + 10;
        assert!(head.is_multiple_of(64) && bytes[head - 1] == b'\n');
        assert_eq!(bytes.len(), head + 3 * COLUMNS * 4);
    }
}
