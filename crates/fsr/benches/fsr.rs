//! What the retriever costs beside memory: locating a warm path, searching a tree of small files and one
//! large file, and the monitor's look at a write. `cargo bench -p nearside-fsr`.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use std::{fs, mem};

use nearside_conformance::{needs, volume};
use nearside_fsr::{Batch, Config, Full, Mark, Media, MediaError, Retriever, Sink};
use nearside_near_data::{Answer, Credentials, Operation, Record, Request, SearchOptions, Target};

/// Memory, copied into one buffer that is used again, as the drive does.
struct Dram {
    bytes: Arc<Vec<u8>>,
    spare: Arc<std::sync::Mutex<Vec<Vec<u8>>>>,
    start: Instant,
}

struct Buffer(Vec<u8>, Arc<std::sync::Mutex<Vec<Vec<u8>>>>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(mem::take(&mut self.0));
    }
}

struct One {
    bytes: Arc<Vec<u8>>,
    spare: Arc<std::sync::Mutex<Vec<Vec<u8>>>>,
    ready: std::collections::VecDeque<(u32, Buffer)>,
}

fn copy(bytes: &[u8], spare: &Arc<std::sync::Mutex<Vec<Vec<u8>>>>, offset: u64, len: usize) -> Buffer {
    let mut buffer = spare.lock().unwrap().pop().unwrap_or_default();
    buffer.clear();
    buffer.extend_from_slice(&bytes[offset as usize..][..len]);
    Buffer(buffer, spare.clone())
}

impl Batch for One {
    type Buffer = Buffer;
    fn start(&mut self, offset: u64, len: usize, tag: u32) -> bool {
        self.ready.push_back((tag, copy(&self.bytes, &self.spare, offset, len)));
        true
    }
    async fn next(&mut self) -> Option<(u32, Result<Buffer, MediaError>)> {
        self.ready.pop_front().map(|(tag, buffer)| (tag, Ok(buffer)))
    }
    fn in_flight(&self) -> usize {
        self.ready.len()
    }
}

impl Media for Dram {
    type Buffer = Buffer;
    type Batch = One;
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn block_size(&self) -> u32 {
        512
    }
    async fn read(&self, offset: u64, len: usize) -> Result<Buffer, MediaError> {
        Ok(copy(&self.bytes, &self.spare, offset, len))
    }
    fn batch(&self) -> One {
        One { bytes: self.bytes.clone(), spare: self.spare.clone(), ready: Default::default() }
    }
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    async fn yield_now(&self) {
        black_box(self.start.elapsed());
    }
}

struct Nowhere(usize);

impl Sink for Nowhere {
    fn push(&mut self, _: Record<'_>, _: usize) -> Result<(), Full> {
        self.0 += 1;
        Ok(())
    }
    fn room(&self, _: usize) -> usize {
        1 << 20
    }
    fn mark(&self) -> Mark {
        Mark(self.0, self.0 as u32)
    }
    fn rollback(&mut self, mark: Mark) {
        self.0 = mark.0;
    }
}

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("memory is always ready"),
    }
}

fn best(name: &str, per: f64, unit: &str, runs: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    if unit == "GB/s" {
        println!("{name:<58} {:>9.2} {unit} (median {:.2})", per / best / 1e9, per / median / 1e9);
    } else {
        println!("{name:<58} {:>9.1} {unit} (median {:.1})", best / per * 1e9, median / per * 1e9);
    }
    best
}

fn image(fill: impl FnOnce(&std::path::Path), mib: u64) -> Option<Vec<u8>> {
    let dir = needs::folder("fsr", &["mke2fs"])?;
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    fs::create_dir(&source).unwrap();
    fill(&source);
    volume::ext(&image, mib, Some(&source), &["-t", "ext4", "-b", "4096"]);
    Some(fs::read(image).unwrap())
}

fn media(image: Vec<u8>) -> Dram {
    Dram { bytes: Arc::new(image), spare: Arc::default(), start: Instant::now() }
}

fn request(target: Target, operation: Operation) -> Request {
    Request {
        partition: 0,
        credentials: Credentials { uid: 1000, gid: 1000, groups: vec![4, 27] },
        target,
        operation,
        follow: true,
        resume: None,
    }
}

fn search(answer: Answer) -> Operation {
    let options = SearchOptions {
        patterns: vec![b"needle".to_vec()],
        fixed: true,
        answer,
        numbers: answer.shows(),
        only_matching_files: true,
        ..Default::default()
    };
    Operation::Search(options)
}

fn main() {
    let fast = std::env::var_os("FAST").is_some() || std::env::args().any(|a| a == "--test");
    let files = if fast { 2_000 } else { 20_000 };
    let deep: String = (0..19).map(|n| format!("/level{n:02}")).collect();
    let Some(small) = small_files(&deep[1..], files, if fast { 128 } else { 512 }) else { return };
    let drive = media(small);
    let retriever = Retriever::new(Config::default());
    let path = format!("{deep}/d007/file00400").into_bytes();
    let nop = request(Target::Path(path), Operation::Nop);
    let rounds = 10_000;
    best("locate a depth-20 path, warm, through the handler", f64::from(rounds), "ns", 20, || {
        for _ in 0..rounds {
            let answer = now(retriever.run(&drive, black_box(&nop), &mut Nowhere(0)));
            assert!(answer.failure.is_none());
        }
    });
    for (name, operation) in [
        ("search a tree of 16 KiB files, depth 20: lines", search(Answer::Lines)),
        ("search a tree of 16 KiB files, depth 20: count", search(Answer::Count)),
        ("list a tree, depth 20", Operation::List),
    ] {
        let all = request(
            Target::Tree { root: b"/".to_vec(), include: vec![], exclude: vec![], max_depth: u32::MAX },
            operation,
        );
        best(name, f64::from(files), "ns per file", 5, || {
            let answer = now(retriever.run(&drive, &all, &mut Nowhere(0)));
            assert!(answer.failure.is_none(), "{answer:?}");
            black_box(answer);
        });
    }
    let one = request(Target::Path(format!("{deep}/d007/file00400").into_bytes()), search(Answer::Lines));
    best("search one 16 KiB file by its path, depth 20", 1000.0, "ns", 20, || {
        for _ in 0..1000 {
            assert!(now(retriever.run(&drive, &one, &mut Nowhere(0))).failure.is_none());
        }
    });
    let monitor = retriever.monitor();
    let writes = |name| {
        best(name, 1e6, "ns", 10, || {
            for n in 0..1_000_000u64 {
                let at = black_box((1 << 40) + n % 100_000 * 4096);
                monitor.begin(at, 4096);
                monitor.end(at, 4096, false);
            }
        });
    };
    writes("the monitor, begin and end of an unwatched 4 KiB write");
    // From now on it notes which writes a flush has covered.
    assert!(monitor.is_durable(0, 4096));
    writes("the same, once a log has been read");
    drop(drive);
    large_file(if fast { 128 } else { 1024 });
}

/// Files of 16 KiB below `deep`, on a volume of so many MiB.
fn small_files(deep: &str, files: u32, mib: u64) -> Option<Vec<u8>> {
    let text: String =
        (0..).map(|n| format!("{n:08} some text of a line in a log file\n")).take(400).collect();
    image(
        |root| {
            for n in 0..files {
                let dir = root.join(format!("{deep}/d{:03}", n / 55));
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join(format!("file{n:05}")), &text.as_bytes()[..16384.min(text.len())])
                    .unwrap();
            }
        },
        mib,
    )
}

fn large_file(mib: u64) {
    let large = image(
        |root| {
            let line = b"a line of a large log file without what is looked for, as most lines are\n";
            let text: Vec<u8> = line.iter().copied().cycle().take((mib as usize) << 20).collect();
            fs::write(root.join("large"), text).unwrap();
        },
        mib + 256,
    );
    let drive = media(large.unwrap_or_default());
    let retriever = Retriever::new(Config::default());
    for (name, operation) in [
        ("literal in one large file: lines", search(Answer::Lines)),
        ("literal in one large file: count", search(Answer::Count)),
    ] {
        let one = request(Target::Path(b"/large".to_vec()), operation);
        best(name, (mib << 20) as f64, "GB/s", 5, || {
            let answer = now(retriever.run(&drive, &one, &mut Nowhere(0)));
            assert!(answer.failure.is_none(), "{answer:?}");
        });
    }
    let mut sum = 0u64;
    best("beside it: memory, read once", drive.bytes.len() as f64, "GB/s", 5, || {
        sum ^= drive.bytes.chunks_exact(8).fold(0, |s, c| s ^ u64::from_le_bytes(c.try_into().unwrap()));
    });
    black_box(sum);
}
