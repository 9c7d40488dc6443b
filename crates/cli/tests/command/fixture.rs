//! A tree, the ext4 volume that mke2fs makes of it, and the command run on it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use nearside_conformance::{needs, volume};
use nearside_random::Rng;
use tempfile::TempDir;

/// What a run of a program gave.
pub struct Ran {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Standard output, where the run ended well.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.text());
        self.text()
    }

    /// Each line as JSON.
    #[track_caller]
    pub fn json(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A volume and the tree that it was made of.
pub struct Volume {
    pub folder: TempDir,
    pub tree: PathBuf,
    pub image: PathBuf,
}

impl Volume {
    /// Runs `nearside COMMAND -d IMAGE ARGS`.
    pub fn run<A: AsRef<OsStr>>(&self, command: &str, args: &[A]) -> Ran {
        on(&self.image, command, args)
    }

    /// Runs a tool of the machine in the C locale, with `/` at the beginning of an argument meaning the tree.
    /// In what it prints, the tree is gone again.
    pub fn tool(&self, tool: &str, args: &[&str]) -> Ran {
        let tree = self.tree.to_str().unwrap();
        let mut command = Command::new(tool);
        command.env("LC_ALL", "C").env("TZ", "UTC").current_dir(&self.tree);
        for arg in args {
            match arg.strip_prefix('/') {
                Some(rest) => command.arg(format!("{tree}/{rest}")),
                None => command.arg(arg),
            };
        }
        let mut ran = Ran::from(command.output().unwrap());
        ran.out = replace(&ran.out, tree.as_bytes());
        ran.err = ran.err.replace(tree, "");
        ran
    }
}

/// A text without what stands in it several times.
pub fn replace(text: &[u8], what: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        match rest.strip_prefix(what) {
            Some(after) => rest = after,
            None => {
                out.push(rest[0]);
                rest = &rest[1..];
            }
        }
    }
    out
}

/// Runs `nearside COMMAND -d DRIVE ARGS`.
pub fn on<A: AsRef<OsStr>>(drive: &Path, command: &str, args: &[A]) -> Ran {
    let mut run = nearside();
    run.arg(command).arg("-d").arg(drive).args(args);
    Ran::from(run.output().unwrap())
}

/// The command, in a known environment.
pub fn nearside() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.env_remove("NEARSIDE_DRIVE").env("TZ", "UTC").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// An ext4 volume of a tree, `mib` large.
pub fn ext4(folder: TempDir, tree: PathBuf, mib: u64) -> Volume {
    let image = folder.path().join("ext4.img");
    volume::ext(&image, mib, Some(&tree), &["-t", "ext4", "-L", "fixture"]);
    Volume { folder, tree, image }
}

/// The small volume that most tests look at. `None` where mke2fs is missing, which leaves `test` out.
pub fn small(test: &str) -> Option<&'static Volume> {
    static SMALL: OnceLock<Volume> = OnceLock::new();
    needs::tools(test, &["mke2fs"]).then(|| SMALL.get_or_init(make_small))
}

/// The names of the small volume's files that can be read as text, in the order of a shell.
pub const TEXTS: [&str; 6] =
    ["/hello.txt", "/logs/a.log", "/logs/b.log", "/logs/old/c.log", "/no-newline", "/empty"];

fn make_small() -> Volume {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let put = |path: &str, bytes: &[u8]| {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put("hello.txt", b"hello world\nHello again\n\ngoodbye\nhello, hello\n");
    let log = |seed: u64, lines: u32| -> String {
        let mut random = Rng(seed);
        let mut text = String::new();
        for i in 0..lines {
            let level = random.pick(&["INFO", "WARN", "ERROR", "debug"]);
            let (unit, ms) = (random.below(16), random.below(4096));
            text.push_str(&format!("{i:06} {level} unit-{unit} took {ms} ms\n"));
        }
        text
    };
    put("logs/a.log", log(1, 40_000).as_bytes());
    put("logs/b.log", log(2, 300).as_bytes());
    put("logs/old/c.log", log(3, 50).as_bytes());
    put("logs/.hidden.log", b"ERROR hidden\n");
    put("no-newline", b"first\nERROR last without its end");
    put("empty", b"");
    put("binary", b"text before\nERROR \0 after\nmore\n");
    put("large", &(0..3_000_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    put("secret/key", b"BEGIN PRIVATE KEY\n");
    let uid = fs::metadata(&tree).unwrap().uid();
    put("etc/passwd", format!("volume-owner:x:{uid}:0::/:/bin/sh\n").as_bytes());
    put("etc/group", b"volume-group:x:4242:\n");
    put("private", b"ERROR for the owner only\n");
    fs::create_dir_all(tree.join("hollow/inside")).unwrap();
    put("deep/1/2/3/4/5/6/7/8/9/leaf.txt", b"ERROR at the bottom\n");
    fs::write(tree.join(OsStr::from_bytes(b"bytes-\xff-name")), b"ERROR in a name that is not UTF-8\n")
        .unwrap();
    symlink("hello.txt", tree.join("link")).unwrap();
    symlink("/logs/b.log", tree.join("absolute")).unwrap();
    symlink("loop-b", tree.join("loop-a")).unwrap();
    symlink("loop-a", tree.join("loop-b")).unwrap();
    symlink("/nowhere", tree.join("dangling")).unwrap();
    symlink("logs", tree.join("to-logs")).unwrap();
    let mode =
        |path: &str, bits| fs::set_permissions(tree.join(path), fs::Permissions::from_mode(bits)).unwrap();
    mode("secret", 0o700);
    mode("private", 0o600);
    mode("etc/passwd", 0o600);
    mode("etc/group", 0o600);
    ext4(folder, tree, 64)
}

/// A folder with a copy of some thousand of the machine's own text files.
pub fn real_tree() -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let mut budget = (1500usize, 24usize << 20);
    for from in ["/usr/include", "/usr/share/doc", "/usr/share/perl"] {
        copy(Path::new(from), &tree.join(from.trim_start_matches('/')), &mut budget);
    }
    (budget.0 < 1400).then_some((folder, tree))
}

fn copy(from: &Path, to: &Path, budget: &mut (usize, usize)) {
    let Ok(entries) = fs::read_dir(from) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(|e| e.file_name());
    for entry in entries {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()), budget);
        } else if meta.is_file() && budget.0 > 0 && (meta.len() as usize) < budget.1 {
            fs::create_dir_all(to).unwrap();
            if fs::copy(entry.path(), to.join(entry.file_name())).is_ok() {
                *budget = (budget.0 - 1, budget.1 - meta.len() as usize);
            }
        }
    }
}

/// A record as `studies/record` keeps them: its environment and one figure, in nanoseconds.
pub fn record(value: f64) -> String {
    let environment = serde_json::json!({
        "kind": "environment", "cpu": "x", "cores": 2, "kernel": "6", "memory_mib": 1, "governor": "none",
        "hypervisor": "none", "date": "2026-11-23", "commit": "x", "rustc": "x",
    });
    let spread = [value - 1.0, value + 1.0];
    let figure = serde_json::json!({
        "kind": "figure", "name": "read", "value": value, "unit": "ns", "runs": 3, "spread": spread,
    });
    format!("{environment}\n{figure}\n")
}

/// Drives and options by which the same is asked.
pub fn ways<'a>(image: &'a Path, served: &'a Path) -> [(&'a Path, &'static [&'static str]); 5] {
    [
        (image, &[]),
        (served, &[]),
        (image, &["--locate", "host"]),
        (served, &["--locate", "host"]),
        (image, &["--locate", "host", "--compute", "host"]),
    ]
}
