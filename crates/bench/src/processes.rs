//! Whole processes beside whole processes: what who types a command waits for, from the start of the process
//! to its end, Nearside on an image beside ripgrep, grep, find, cat and cp on a loop mount of the same image,
//! and debugfs on the image.
//!
//! All have all cores, and their files in the page cache. ripgrep runs as its users run it, with the
//! threads and the mapping that it chooses itself, and in a second row as the targets name it. Rounds take
//! turns, so that what else the machine does falls on all of them. A warm session, which starts nothing, is
//! a row of its own.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use nearside_embedded::Drive;
use nearside_fsrlib::Ask;
use nearside_instrument::Failure;
use nearside_instrument::dataset::{self, NEEDLE, Shape};
use nearside_instrument::kernel::LoopMount;
use nearside_instrument::near_data::{count_of, search};
use nearside_instrument::volume::{self, Kind, tool};
use nearside_loadgen::record::Figure;

use crate::figures::Sink;
use crate::tables::nearside;

/// One of those that do the same work.
struct Contestant {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    /// Where its copies go, which is empty when it begins.
    into: Option<Rc<Scratch>>,
    times_ms: Vec<f64>,
}

/// What a process said, as far as it is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    bytes: u64,
    /// Newlines, of an answer of less than [`KEPT`] bytes.
    lines: u64,
    /// The sum of what those lines say, where they are numbers.
    sum: u64,
}

/// Longer answers are compared by their length: to keep them would take longer than to make them.
const KEPT: usize = 16 << 20;

impl Said {
    fn of(bytes: u64, kept: &[u8]) -> Said {
        let number = |line: &[u8]| std::str::from_utf8(line).ok()?.trim().parse::<u64>().ok();
        let lines = kept.split_inclusive(|b| *b == b'\n');
        let sum = lines.clone().filter_map(number).sum();
        Said { bytes, lines: lines.count() as u64, sum }
    }
}

impl Contestant {
    fn new(name: &str, program: &Path, arguments: &[&str]) -> Contestant {
        let arguments = arguments.iter().map(|&a| a.to_owned()).collect();
        let (name, program) = (name.to_owned(), program.to_owned());
        Contestant { name, program, arguments, into: None, times_ms: Vec::new() }
    }

    /// The same, whose copies go there.
    fn copying_to(self, scratch: &Rc<Scratch>) -> Contestant {
        Contestant { into: Some(scratch.clone()), ..self }
    }

    /// Runs it once; its time in milliseconds, and what it said.
    fn run(&self, buffer: &mut [u8]) -> Result<(f64, Said), Failure> {
        if let Some(scratch) = &self.into {
            scratch.clear()?;
        }
        let start = Instant::now();
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (mut bytes, mut kept) = (0, Vec::new());
        let Some(mut out) = child.stdout.take() else { return Err("no pipe".into()) };
        loop {
            let n = out.read(buffer)?;
            if n == 0 {
                break;
            }
            bytes += n as u64;
            if bytes < KEPT as u64 {
                kept.extend_from_slice(&buffer[..n]);
            }
        }
        let status = child.wait()?;
        let took = start.elapsed().as_secs_f64() * 1e3;
        match status.code() {
            Some(0 | 1) => Ok((took, Said::of(bytes, &kept))),
            _ => Err(format!("{}: {status}", self.name).into()),
        }
    }
}

/// A file system for copies, made anew for each. Where 20,000 files have just been deleted, ext4 looks for
/// minutes at each of their inodes before it takes another for a new file (`recently_deleted` of
/// fs/ext4/ialloc.c): that took ten times as long as the copies themselves.
struct Scratch {
    bytes: u64,
    mount: LoopMount,
}

impl Scratch {
    /// Room for so many bytes, in a file of the folder; `None`, with a word: it cannot be mounted.
    fn new(folder: &Path, bytes: u64) -> Result<Option<Rc<Scratch>>, Failure> {
        let image = folder.join("scratch.img");
        make_empty(&image, bytes)?;
        Ok(match LoopMount::with(&image, "loop,noatime,noinit_itable") {
            Ok(mount) => Some(Rc::new(Scratch { bytes, mount })),
            Err(e) => {
                eprintln!("  left out: no file system to copy to: {e}");
                None
            }
        })
    }

    fn clear(&self) -> Result<(), Failure> {
        self.mount.anew(|image| make_empty(image, self.bytes))?;
        Ok(std::fs::create_dir(self.path())?)
    }

    /// The folder that copies go to.
    fn path(&self) -> PathBuf {
        self.mount.path("copies")
    }
}

fn make_empty(image: &Path, bytes: u64) -> std::io::Result<()> {
    volume::make(Kind::Ext4, image, tempfile::tempdir()?.path(), bytes)
}

/// Runs all of them in turns, the first round for the caches. `same`: what of an answer all must agree on.
fn contest(
    who: &mut [Contestant],
    rounds: usize,
    same: impl Fn(&Said) -> u64,
    expected: u64,
) -> Result<(), Failure> {
    let mut buffer = vec![0; 1 << 20];
    for round in 0..=rounds {
        for one in &mut *who {
            let (took, said) = one.run(&mut buffer)?;
            if same(&said) != expected {
                let what = format!("{} answered {said:?}, where {expected} was expected", one.name);
                return Err(what.into());
            }
            if round > 0 {
                one.times_ms.push(took);
            }
        }
    }
    Ok(())
}

/// One's figure beside another's.
fn beside(work: &str, ours: &Contestant, peer: &Contestant, sink: Sink<'_>) {
    let name = format!("{work}, whole process: {} / {}", ours.name, peer.name);
    let peer = Figure::of(&peer.name, "ms", &peer.times_ms);
    sink(Figure::of(&name, "ms", &ours.times_ms).beside(&peer));
}

/// The tools that are here, and where everything lies.
struct Peers {
    nearside: PathBuf,
    rg: Option<PathBuf>,
    rounds: usize,
}

impl Peers {
    fn find(fast: bool) -> Result<Option<Peers>, Failure> {
        let Some(nearside) = nearside()? else { return Ok(None) };
        let rg = tool("rg");
        if rg.is_none() {
            eprintln!("  left out beside the others: ripgrep is not installed");
        }
        Ok(Some(Peers { nearside, rg, rounds: if fast { 5 } else { 15 } }))
    }

    fn ours(&self, name: &str, image: &Path, words: &[&str]) -> Contestant {
        let image = image.display().to_string();
        let mut arguments = vec![words[0], "-d", &image];
        arguments.extend(&words[1..]);
        Contestant::new(name, &self.nearside, &arguments)
    }

    /// ripgrep in its users' way, with words that say what else.
    fn rg(&self, name: &str, more: &[&str], pattern: &str, at: &str) -> Option<Contestant> {
        let mut arguments = vec!["--no-config", "-c", "--no-filename", "-F"];
        arguments.extend(more);
        arguments.extend([pattern, at]);
        Some(Contestant::new(name, self.rg.as_ref()?, &arguments))
    }
}

/// All rows.
pub fn processes(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    eprintln!("whole processes ...");
    let Some(peers) = Peers::find(fast)? else { return Ok(()) };
    let folder = tempfile::tempdir_in("target")?;
    on_a_tree(&peers, folder.path(), sink)?;
    on_large_files(&peers, folder.path(), sink)
}

/// Brings an image into the page cache as reading it from a disk does, in large folios where the file system
/// has them. mkfs has just left it there in pages of 4 KiB, which are slower to map.
fn read_anew(image: &Path) -> Result<(), Failure> {
    let mut file = std::fs::File::open(image)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    std::io::copy(&mut file, &mut std::io::sink())?;
    Ok(())
}

fn mounted(image: &Path) -> Option<LoopMount> {
    LoopMount::new(image).map_err(|e| eprintln!("  left out: no loop mount to stand beside: {e}")).ok()
}

/// Searching in and listing 20,000 files.
fn on_a_tree(peers: &Peers, folder: &Path, sink: Sink<'_>) -> Result<(), Failure> {
    let tree = folder.join("tree");
    let written = dataset::write_deep(&tree, Shape::PAPER, 2023, |_| {})?;
    let image = |kind: Kind| folder.join(format!("{}.img", kind.name()));
    let kinds: Vec<Kind> = [Kind::Ext4, Kind::F2fs].into_iter().filter(|k| k.tools_are_here()).collect();
    for &kind in &kinds {
        volume::make(kind, &image(kind), &tree, written.bytes * 5 / 4 + (160 << 20))?;
        read_anew(&image(kind))?;
    }
    std::fs::remove_dir_all(&tree)?;
    let ext4 = image(Kind::Ext4);
    let Some(mount) = mounted(&ext4) else { return Ok(()) };
    let each = |words: &[&str]| -> Vec<Contestant> {
        kinds.iter().map(|&kind| peers.ours(kind.name(), &image(kind), words)).collect()
    };

    let work = "20,000 files of 16 KiB";
    let at = mount.path("/deep").display().to_string();
    let mut who = each(&["grep", "-r", "-F", "-c", "-h", NEEDLE, "/deep"]);
    who.extend(peers.rg("rg -j1", &["-j1"], NEEDLE, &at));
    who.extend(peers.rg("rg", &[], NEEDLE, &at));
    contest(&mut who, peers.rounds, |said| said.sum, written.needles)?;
    let (ours, theirs) = who.split_at(kinds.len());
    for peer in theirs {
        beside(work, &ours[0], peer, sink);
    }
    if let [ext4, f2fs] = ours {
        beside(work, f2fs, ext4, sink);
    }
    if let Some(peer) = theirs.last() {
        sink(warm_session(peers, &ext4, &written)?.beside(&Figure::of(&peer.name, "ms", &peer.times_ms)));
    }

    if let Some(scratch) = Scratch::new(folder, written.bytes * 5 / 4 + (160 << 20))? {
        let out = scratch.path().display().to_string();
        let mut who = vec![
            peers.ours("ext4", &ext4, &["cp", "-a", "/deep", &out]),
            Contestant::new("cp -a", Path::new("cp"), &["-a", &at, &out]),
        ];
        who.extend(tool("debugfs").map(|debugfs| {
            let image = ext4.display().to_string();
            Contestant::new("debugfs rdump", &debugfs, &["-R", &format!("rdump /deep {out}"), &image])
        }));
        copied(
            "20,000 files of 16 KiB copied to an empty ext4",
            who,
            &scratch,
            peers.rounds,
            written.bytes,
            sink,
        )?;
    }

    let work = "find / over 20,000 files";
    let Some(find) = tool("find") else { return Ok(()) };
    let root = mount.path("/").display().to_string();
    let mut who = each(&["find", "/"]);
    who.push(Contestant::new("find", &find, &[root.trim_end_matches('/')]));
    // sload.f2fs makes no lost+found.
    let (_, names) = who[who.len() - 1].run(&mut [0; 1 << 16])?;
    contest(&mut who, peers.rounds, |said| said.lines.next_multiple_of(2), names.lines.next_multiple_of(2))?;
    let (ours, theirs) = who.split_at(kinds.len());
    for one in ours {
        beside(work, one, &theirs[0], sink);
    }
    kinds.iter().try_for_each(|&kind| std::fs::remove_file(image(kind)))?;
    Ok(())
}

/// Copies of so many bytes: ours beside each of the others'.
fn copied(
    work: &str,
    who: Vec<Contestant>,
    scratch: &Rc<Scratch>,
    rounds: usize,
    bytes: u64,
    sink: Sink<'_>,
) -> Result<(), Failure> {
    let mut who: Vec<Contestant> = who.into_iter().map(|one| one.copying_to(scratch)).collect();
    for one in &who {
        one.run(&mut [0; 4096])?;
        let copied = bytes_in(&scratch.path())?;
        if copied != bytes {
            return Err(format!("{} copied {copied} bytes of {bytes}", one.name).into());
        }
    }
    contest(&mut who, rounds, |_| 0, 0)?;
    who[1..].iter().for_each(|peer| beside(work, &who[0], peer, sink));
    Ok(())
}

/// Bytes of all regular files below a folder.
fn bytes_in(folder: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let is = entry.metadata()?;
        Ok(sum + if is.is_dir() { bytes_in(&entry.path())? } else { is.len() })
    })
}

/// The same search in a session that is there already, its caches filled.
fn warm_session(peers: &Peers, image: &Path, written: &dataset::Written) -> Result<Figure, Failure> {
    let mut drive = Drive::open(image)?;
    let ask = Ask::tree("/deep", count_of(NEEDLE));
    let mut times = Vec::new();
    for _ in 0..=peers.rounds {
        let (found, _, ns) = search(drive.session(), &ask)?;
        if found != written.needles {
            return Err(format!("the warm session found {found} lines of {}", written.needles).into());
        }
        times.push(ns as f64 / 1e6);
    }
    Ok(Figure::of("20,000 files of 16 KiB, a warm session: ext4 / rg", "ms", &times[1..]))
}

/// One file of 16 KiB and one of 1 GiB, searched; one of 256 MiB, read.
fn on_large_files(peers: &Peers, folder: &Path, sink: Sink<'_>) -> Result<(), Failure> {
    const GIB: usize = 1 << 30;
    let (tree, piece) = (folder.join("large"), folder.join("piece"));
    std::fs::create_dir_all(&tree)?;
    let shape = Shape { files: 1, file_bytes: 16 << 20, depth: 3, fan: 2 };
    let text = dataset::write_deep(&piece, shape, 9, |_| {})?;
    let text = std::fs::read(piece.join(text.files[0].trim_start_matches('/')))?;
    let pattern = format!("{NEEDLE}-here");
    for (name, bytes) in [("large", GIB), ("part", GIB / 4), ("small", 16 << 10)] {
        let mut file = std::fs::File::create(tree.join(name))?;
        let last = format!("\nthe only {pattern}\n");
        let mut left = bytes - last.len();
        while left > 0 {
            let n = left.min(text.len());
            file.write_all(&text[..n])?;
            left -= n;
        }
        file.write_all(last.as_bytes())?;
    }
    let image = folder.join("large.img");
    volume::make(Kind::Ext4, &image, &tree, (GIB as u64) * 5 / 4 + (192 << 20))?;
    read_anew(&image)?;
    std::fs::remove_dir_all(&tree)?;
    let Some(mount) = mounted(&image) else { return Ok(()) };
    let at = |name: &str| mount.path(name).display().to_string();

    for (work, name) in [("one file of 16 KiB", "small"), ("literal in 1 GiB", "large")] {
        let path = format!("/{name}");
        let mut who = vec![peers.ours("ext4", &image, &["grep", "-F", "-c", &pattern, &path])];
        who.extend(peers.rg("rg", &[], &pattern, &at(name)));
        if name == "large" {
            who.extend(peers.rg("rg --no-mmap", &["--no-mmap"], &pattern, &at(name)));
        }
        let grep = tool("grep").filter(|_| name == "small");
        who.extend(grep.map(|grep| Contestant::new("grep", &grep, &["-F", "-c", &pattern, &at(name)])));
        contest(&mut who, peers.rounds, |said| said.sum, 1)?;
        for peer in &who[1..] {
            beside(work, &who[0], peer, sink);
        }
    }
    if let Some(cat) = tool("cat") {
        let mut who =
            [peers.ours("ext4", &image, &["cat", "/part"]), Contestant::new("cat", &cat, &[&at("part")])];
        contest(&mut who, peers.rounds, |said| said.bytes, GIB as u64 / 4)?;
        beside("cat of 256 MiB", &who[0], &who[1], sink);
    }
    let Some(scratch) = Scratch::new(folder, GIB as u64 / 2)? else { return Ok(()) };
    let out = scratch.path().display().to_string();
    let who = vec![
        peers.ours("ext4", &image, &["cp", "-a", "/part", &out]),
        Contestant::new("cp -a", Path::new("cp"), &["-a", &at("part"), &out]),
    ];
    copied("256 MiB copied to an empty ext4", who, &scratch, peers.rounds, GIB as u64 / 4, sink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_compared() {
        let said = |text: &str| Said::of(text.len() as u64, text.as_bytes());
        assert_eq!(said("1\n20\n"), Said { bytes: 5, lines: 2, sum: 21 });
        assert_eq!(said("/a\n/b 3\n").sum, 0);
        let cat = |text: &str| Contestant::new("sh", Path::new("/bin/sh"), &["-c", text]);
        let mut who = [cat("echo 3; echo 4"), cat("echo 7")];
        contest(&mut who, 2, |said| said.sum, 7).unwrap();
        assert_eq!(who[0].times_ms.len(), 2);
        // Who answers otherwise did other work: there is no figure of it.
        let error = contest(&mut [cat("echo 3")], 1, |said| said.sum, 7).unwrap_err().to_string();
        assert!(error.contains("sum: 3") && error.contains('7'), "{error}");
        let error = contest(&mut [cat("exit 2")], 1, |said| said.sum, 0).unwrap_err().to_string();
        assert!(error.contains("sh: "), "{error}");
    }
}
