//! A host that goes on while a command runs, at every point at which it can: nobody sees a byte of another
//! file, and each answer is that of one state of the volume. Needs root, for the states: the kernel makes
//! them.

#[path = "fsr/common/mod.rs"]
mod common;

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, must, tool};
use nearside_fsr::{Config, Media, MediaError, MemoryBatch, MemoryMedia, Retriever};
use nearside_near_data::{Answer, Credentials, Failure, Operation, Request, SearchOptions, Target};

const PUBLIC: u8 = b'P';
const SECRET: &[u8] = b"SECRET\n";
/// More than half of what the volume has room for, so that blocks of the one become the other's.
const FILE: usize = 3 << 19;

/// A drive's bytes, of which the host writes the next state when the command that runs gives way for the
/// times that are set.
struct Hosted<'a> {
    media: MemoryMedia,
    retriever: &'a Retriever,
    states: &'a [Vec<u8>],
    /// Whether its writes are durable when they end: without, a host that mounts without barriers.
    flushes: bool,
    /// After how many turns which state comes, the soonest first.
    turns: [(usize, usize); 2],
    turn: Cell<usize>,
    state: Cell<usize>,
}

impl Hosted<'_> {
    fn go_to(&self, state: usize) {
        let (old, new) = (&self.states[self.state.replace(state)], &self.states[state]);
        let blocks = old.chunks(4096).zip(new.chunks(4096)).enumerate();
        for (nr, (_, bytes)) in blocks.filter(|(_, (old, new))| old != new) {
            let (at, len) = (nr as u64 * 4096, bytes.len() as u64);
            self.retriever.monitor().begin(at, len);
            self.media.write(at, bytes);
            self.retriever.monitor().end(at, len, self.flushes);
        }
    }
}

impl Media for Hosted<'_> {
    type Buffer = Vec<u8>;
    type Batch = MemoryBatch;

    fn len(&self) -> u64 {
        self.media.len()
    }

    fn block_size(&self) -> u32 {
        self.media.block_size()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, MediaError> {
        self.media.read(offset, len).await
    }

    fn batch(&self) -> MemoryBatch {
        self.media.batch()
    }

    fn now_ns(&self) -> u64 {
        self.media.now_ns()
    }

    async fn yield_now(&self) {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        for (_, state) in self.turns.iter().filter(|(at, _)| *at == turn) {
            self.go_to(*state);
        }
    }
}

/// The public file; it gone; its blocks the secret's. Each as `fsync` leaves the drive.
fn states(dir: &Path, options: &[&str], mount: &str) -> Vec<Vec<u8>> {
    let (image, at) = (dir.join("image"), dir.join("volume"));
    fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    fs::create_dir_all(&at).unwrap();
    must(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-b", "1024"]).args(options).arg(&image));
    let mounted = Mounted::new(&["-o", mount], &image, &at);
    let write = |name: &str, mode: u32, bytes: &[u8]| {
        let open = fs::OpenOptions::new().write(true).create(true).mode(mode).open(at.join(name));
        let mut file = open.unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
        fs::read(&image).unwrap()
    };
    // Others may read the file itself, and not come to it: its inode has the public one's number.
    fs::DirBuilder::new().mode(0o700).create(at.join("hidden")).unwrap();
    let public = write("public", 0o644, &[PUBLIC; FILE]);
    fs::remove_file(at.join("public")).unwrap();
    fs::File::open(&at).unwrap().sync_all().unwrap();
    let gone = fs::read(&image).unwrap();
    let secret = write("hidden/secret", 0o644, &SECRET.repeat(FILE / SECRET.len()));
    drop(mounted);
    vec![public, gone, secret]
}

fn search() -> Operation {
    Operation::Search(SearchOptions {
        patterns: vec![SECRET[..6].to_vec(), vec![PUBLIC; 8]],
        text: true,
        fixed: true,
        answer: Answer::Count,
        ..SearchOptions::default()
    })
}

/// What is asked, and of whom.
struct Question<'a> {
    states: &'a [Vec<u8>],
    target: &'a Target,
    operation: &'a Operation,
    warm: bool,
    flushes: bool,
}

/// What nobody is told while the states change at these turns; how many turns it took.
fn asked(
    Question { states, target, operation, warm, flushes }: &Question<'_>,
    turns: [(usize, usize); 2],
) -> (Vec<Got>, Option<Failure>, usize) {
    let retriever = Retriever::new(Config::default());
    let media = MemoryMedia::new(states[0].clone());
    let (turn, state, flushes) = (Cell::new(0), Cell::new(0), *flushes);
    let hosted = Hosted { media, retriever: &retriever, states, flushes, turns, turn, state };
    let credentials = Credentials { uid: 65534, gid: 65534, groups: vec![] };
    let request = Request { credentials, ..request(Target::clone(target), Operation::clone(operation)) };
    if *warm {
        hosted.turn.set(usize::MAX / 2);
        ask(&retriever, &hosted, &request);
        hosted.turn.set(0);
    }
    let (got, answer) = ask(&retriever, &hosted, &request);
    (got, answer.failure, hosted.turn.get())
}

#[test]
fn a_host_that_goes_on_at_any_point_of_a_command() {
    let Some(dir) = needs::folder("a_host_that_goes_on_at_any_point_of_a_command", &["mke2fs", "mount"])
    else {
        return;
    };
    if !needs::root("a_host_that_goes_on_at_any_point_of_a_command") {
        return;
    }
    let read = Operation::Read { offset: 0, len: u64::MAX };
    let questions = [(path("/public"), read), (path("/public"), search()), (tree("/"), search())];
    for (options, mount) in [
        (&["-J", "size=1"][..], "loop,commit=900"),
        (&["-J", "size=1", "-O", "^metadata_csum"], "loop,commit=900"),
        (&["-J", "size=1"], "loop,commit=900,data=journal"),
    ] {
        let states = states(dir.path(), options, mount);
        for (target, operation) in &questions {
            for (warm, flushes) in [(false, true), (true, true), (true, false)] {
                if !flushes && mount.contains("data=journal") {
                    // Its bytes lie in the log, which is not used again so soon.
                    continue;
                }
                let states = &states[..];
                let question = Question { states, target, operation, warm, flushes };
                let ask = |turns| asked(&question, turns);
                let never = (usize::MAX, 0);
                let (whole, none, count) = ask([never, never]);
                assert_eq!(none, None);
                let (step, mut repeated) = (1 + count / if flushes { 150 } else { 50 }, 0);
                // To the next state but one at once, and by way of the next.
                for first in (0..count).step_by(step) {
                    for second in [first, first + 1, first + 7] {
                        let (got, failure, turns) = ask([(first, 1), (second, 2)]);
                        repeated += usize::from(turns > count);
                        let what = format!(
                            "{mount} {operation:?} warm {warm}, flushed {flushes}, at {first} and {second} of {count}"
                        );
                        check(&got, failure, &whole, &what);
                    }
                }
                assert!(count > 3, "{count} turns");
                eprintln!(
                    "{mount} {target:?} warm {warm}, flushed {flushes}: {count} turns, {repeated} of {} longer",
                    3 * count.div_ceil(step)
                );
            }
        }
    }
}

fn check(got: &[Got], failure: Option<Failure>, whole: &[Got], what: &str) {
    assert!(
        matches!(failure, None | Some(Failure::NotFound | Failure::ChangedDuringScan)),
        "{what}: {failure:?}"
    );
    for record in got {
        match record {
            Got::Data(at, bytes) => {
                let foreign = bytes.iter().position(|byte| *byte != PUBLIC);
                assert_eq!(foreign, None, "{what}: another file's byte behind {at}");
            }
            Got::Failed(_, failure) => assert!(
                matches!(failure, Failure::PermissionDenied | Failure::ChangedDuringScan | Failure::NotFound),
                "{what}: {failure:?}"
            ),
            Got::Matches(lines) => assert_eq!(*lines, 1, "{what}: lines of another file"),
            _ => {}
        }
    }
    let is_about = |got: &[Got]| got.iter().any(|got| matches!(got, Got::Matches(_) | Got::Data(..)));
    if is_about(got) {
        let about = |got: &[Got]| {
            got.iter()
                .filter(|g| !matches!(g, Got::Warning(..) | Got::Failed(..) | Got::Total(_)))
                .cloned()
                .collect()
        };
        let (told, all): (Vec<Got>, Vec<Got>) = (about(got), about(whole));
        assert_eq!(told.len(), all.len(), "{what}: a part of the public file");
    }
}
