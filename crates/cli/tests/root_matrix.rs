//! One answer, whoever gives it: `ls`, `cat`, `find` and `grep -r` by the drive, by the host
//! that locates itself, and by the kernel with the machine's own tools on a mount, for random
//! trees, modes, access control lists and users: the output, what is said of which path on
//! standard error, and the exit status. Needs root.
//!
//! `NEARSIDE_TREES` says how many trees (2,000 is a long run),
//! `NEARSIDE_SEED` where the random numbers begin.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, ext};
use nearside_random::Rng;
use rustix::fs::XattrFlags;

const USERS: [u32; 4] = [0, 1000, 1001, 1002];
const GROUPS: [u32; 4] = [0, 1000, 2000, 3000];
const NONE: u32 = u32::MAX;

/// For whom is asked.
#[derive(Debug)]
struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl User {
    fn random(random: &mut Rng) -> User {
        // Root is the dull case.
        let uid = if random.in_of(1, 12) { 0 } else { random.pick(&USERS[1..]) };
        let groups = (0..random.index(3)).map(|_| random.pick(&GROUPS[1..])).collect();
        User { uid, gid: random.pick(&GROUPS[1..]), groups }
    }

    fn list(&self) -> String {
        self.groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

/// An access control list as setxattr takes it, with what it says of the mode.
fn acl(random: &mut Rng) -> (Vec<u8>, u32) {
    let bits = |random: &mut Rng| random.pick(&[0u16, 1, 4, 5, 5, 7]);
    let (owner, group, mask, others) = (bits(random), bits(random), bits(random), bits(random));
    let mut entries = vec![(1u16, owner, NONE)];
    let mut users: Vec<u32> = USERS[1..].iter().copied().filter(|_| random.in_of(1, 2)).collect();
    users.sort_unstable();
    entries.extend(users.into_iter().map(|uid| (2, bits(random), uid)));
    entries.push((4, group, NONE));
    let mut groups: Vec<u32> = GROUPS[1..].iter().copied().filter(|_| random.in_of(1, 2)).collect();
    groups.sort_unstable();
    entries.extend(groups.into_iter().map(|gid| (8, bits(random), gid)));
    entries.extend([(16, mask, NONE), (32, others, NONE)]);
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    (bytes, u32::from(owner << 6 | mask << 3 | others))
}

/// Owner, mode and perhaps a list of a file or directory that is made.
fn dress(random: &mut Rng, path: &Path, directory: bool) {
    chown(path, Some(random.pick(&USERS)), Some(random.pick(&GROUPS))).unwrap();
    let often = if directory { 0o755 } else { 0o644 };
    let odd = [0o700, 0o070, 0o007, 0o750, 0o744, 0o711, 0o604, 0o640, 0o000, 0o444, 0o111, 0o055, 0o505];
    let mode = if random.in_of(1, 2) { often } else { random.pick(&odd) };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    if random.in_of(1, 4) {
        let (value, _) = acl(random);
        rustix::fs::setxattr(path, "system.posix_acl_access", &value, XattrFlags::empty()).unwrap();
    }
}

/// Names as they come, and some that a pattern would take for others.
const NAMES: [&str; 12] =
    ["a", "b.log", "[ab].log", "c*", "d?", "{e,f}", "[", "g-h", ".hidden", "i.tsx", "[id].tsx", "j"];

/// A random tree below `at`; the paths in it, relative to `root`.
fn make(random: &mut Rng, root: &Path, at: &Path, depth: usize, paths: &mut Vec<String>) {
    let mut names = NAMES.to_vec();
    for _ in 0..1 + random.index(6) {
        let name = names.swap_remove(random.index(names.len()));
        let path = at.join(name);
        paths.push(format!("/{}", path.strip_prefix(root).unwrap().display()));
        match random.index(10) {
            0..=3 if depth < 3 => {
                fs::create_dir(&path).unwrap();
                make(random, root, &path, depth + 1, paths);
                dress(random, &path, true);
            }
            4 => {
                let target = match random.index(5) {
                    0 => "nowhere".to_owned(),
                    1 => name.to_owned(),
                    2 => "..".to_owned(),
                    3 => format!("../{}", random.pick(&NAMES)),
                    _ => format!("{}{}", "./".repeat(random.pick(&[0, 1, 40])), random.pick(&NAMES)),
                };
                symlink(target, &path).unwrap();
            }
            _ => {
                let mut text = String::new();
                for n in 0..random.index(6) {
                    let word = random.pick(&["needle", "hay"]);
                    writeln!(text, "line {n}: {word}").unwrap();
                }
                fs::write(&path, text).unwrap();
                dress(random, &path, false);
            }
        }
    }
}

/// What is compared: lines in any order where the tool has none of its own.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: Option<i32>,
    out: Vec<String>,
    said: Vec<String>,
}

/// `tool: cannot access 'PATH': words` and the like, as `PATH: words`.
fn complaint(line: &str, mount: &str) -> String {
    let (_, rest) = line.split_once(": ").unwrap_or(("", line));
    let rest = match rest.find(" '").filter(|_| rest.starts_with("cannot ") || rest.starts_with("reading ")) {
        Some(at) => &rest[at + 1..],
        None => rest,
    };
    let text = match rest.strip_prefix('\'').and_then(|quoted| quoted.split_once("': ")) {
        Some((path, words)) => format!("{path}: {words}"),
        None => rest.to_owned(),
    };
    text.replacen(mount, "", 1)
}

fn answer(output: &Output, mount: &str, ordered: bool) -> Answer {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // A path at a line's begin loses the mount.
    let own = |line: &str| line.strip_prefix(mount).unwrap_or(line).to_owned();
    let mut out: Vec<String> = text(&output.stdout).lines().map(own).collect();
    if !ordered {
        out.sort();
    }
    let mut said: Vec<String> = text(&output.stderr).lines().map(|line| complaint(line, mount)).collect();
    said.sort();
    said.dedup();
    Answer { code: output.status.code(), out, said }
}

/// Trees on one volume.
const AT_ONCE: usize = 10;

#[test]
fn the_drive_the_host_and_the_kernel_give_one_answer() {
    let test = "root_matrix::the_drive_the_host_and_the_kernel_give_one_answer";
    let tools = ["mke2fs", "mount", "umount", "setpriv", "ls", "cat", "find", "grep"];
    if !needs::root(test) || !needs::tools(test, &tools) {
        return;
    }
    if !Path::new("/dev/loop-control").exists() {
        return needs::left_out(test, "no /dev/loop-control");
    }
    let number = |name: &str, or: u64| {
        std::env::var(name).map_or(or, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let (trees, seed) = (number("NEARSIDE_TREES", 40) as usize, number("NEARSIDE_SEED", 1));
    let mut compared = 0;
    let mut wrong: Vec<String> = Vec::new();
    for first in (0..trees).step_by(AT_ONCE) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, at) = (folder.path().join("image"), folder.path().join("mount"));
        fs::create_dir(&at).unwrap();
        let features =
            [&[][..], &["-Oinline_data"], &["-O^metadata_csum"], &["-O^dir_index,^extents,^64bit"]];
        let options = features[first / AT_ONCE % features.len()];
        ext(&image, 16, None, &[&["-t", "ext4", "-I", "256"], options].concat());
        let range = first..trees.min(first + AT_ONCE);
        let random = |n: usize| Rng(seed.wrapping_mul(1_000_003).wrapping_add(n as u64));
        let mounted = Mounted::new(&["-o", "loop"], &image, &at);
        let all: Vec<Vec<String>> = range.clone().map(|n| plant(&mut random(n), &at, n)).collect();
        drop(mounted);
        let _mounted = Mounted::new(&["-o", "loop,ro"], &image, &at);
        for (n, paths) in range.zip(&all) {
            let mut random = random(n + 1_000_000);
            let user = User::random(&mut random);
            for (words, ordered) in &asks(&mut random, &format!("/t{n}"), paths) {
                let known = by_the_kernel(&user, &at, words, *ordered);
                for way in [&[][..], &["--locate", "host"], &["--locate", "host", "--compute", "host"]] {
                    let given = by_us(&user, &image, words, way, *ordered);
                    compared += 1;
                    if given != known {
                        let why = format!("tree {n} ({options:?}), {user:?}: {words:?} {way:?}");
                        wrong.push(format!("{why}\n  the kernel {known:?}\n  here       {given:?}"));
                    }
                }
            }
        }
    }
    let shown = wrong[..wrong.len().min(12)].join("\n");
    assert!(wrong.is_empty(), "{} of {compared} differ (NEARSIDE_SEED={seed}):\n{shown}", wrong.len());
    eprintln!("{compared} answers over {trees} trees are the kernel's");
}

/// Makes the `n`th tree on the volume mounted `at`; its paths.
fn plant(random: &mut Rng, at: &Path, n: usize) -> Vec<String> {
    let top = at.join(format!("t{n}"));
    fs::create_dir(&top).unwrap();
    let mut paths = Vec::new();
    make(random, at, &top, 0, &mut paths);
    let mode = random.pick(&[0o755, 0o755, 0o755, 0o744, 0o711]);
    fs::set_permissions(&top, fs::Permissions::from_mode(mode)).unwrap();
    paths
}

/// Words of commands, and whether the order of lines is the tool's.
fn asks(random: &mut Rng, top: &str, paths: &[String]) -> [(Vec<String>, bool); 8] {
    let mut some = || random.pick(&paths.iter().map(String::as_str).collect::<Vec<_>>()).to_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let paths = [some(), some(), some(), format!("{top}/nothing")];
    let top = vec![top.to_owned()];
    [
        ([words(&["ls"]), top.clone()].concat(), true),
        ([words(&["ls"]), paths[..3].to_vec()].concat(), true),
        ([words(&["ls", "-AR"]), top.clone()].concat(), true),
        ([words(&["cat"]), paths.to_vec()].concat(), true),
        ([words(&["find"]), top.clone()].concat(), false),
        ([words(&["find"]), vec![paths[0].clone()], words(&["-type", "f"])].concat(), false),
        ([words(&["grep", "-r", "needle"]), top].concat(), false),
        ([words(&["grep", "-r", "needle"]), paths[..2].to_vec()].concat(), false),
    ]
}

/// The tool itself, run as that user on the mount.
fn by_the_kernel(user: &User, mount: &Path, words: &[String], ordered: bool) -> Answer {
    let place = mount.to_str().unwrap();
    let mut kernel = Command::new("setpriv");
    kernel.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
    match user.groups[..] {
        [] => kernel.arg("--clear-groups"),
        _ => kernel.arg(format!("--groups={}", user.list())),
    };
    for word in words {
        kernel.arg(if word.starts_with('/') { format!("{place}{word}") } else { word.clone() });
    }
    kernel.env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
    answer(&kernel.output().unwrap(), place, ordered)
}

/// Our command of that name, for that user on the image.
fn by_us(user: &User, image: &Path, words: &[String], way: &[&str], ordered: bool) -> Answer {
    let mut who = format!("{}:{}", user.uid, user.gid);
    user.groups.iter().for_each(|gid| write!(who, ",{gid}").unwrap());
    let mut ours = Command::new(env!("CARGO_BIN_EXE_nearside"));
    ours.arg(&words[0]).args(&words[1..]).arg("-d").arg(image).args(["--as", &who]).args(way);
    ours.env_remove("NEARSIDE_DRIVE").env("LC_ALL", "C").stdin(Stdio::null());
    answer(&ours.output().unwrap(), "", ordered)
}
