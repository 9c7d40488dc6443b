//! Who may do what, by the kernel's answers for the same users on a loop mount of the same volume. Needs
//! root.

#[path = "fsr/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{install, must, tool};
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::{Credentials, Failure, Operation, Request, Target};

/// Unmounts when dropped, also in a panic.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The user's side: this test as another user opens, lists and stats each path, and prints what the kernel
/// said.
#[test]
fn probe() {
    let Some(list) = std::env::var_os("NEARSIDE_PROBE") else { return };
    let root = PathBuf::from(std::env::var_os("NEARSIDE_PROBE_ROOT").unwrap());
    let code = |r: std::io::Result<()>| r.err().map_or(0, |e| e.raw_os_error().unwrap_or(-1));
    for (n, path) in fs::read(list).unwrap().split(|b| *b == 0).enumerate() {
        let at = PathBuf::from(format!("{}{}", root.display(), String::from_utf8_lossy(path)));
        let open = code(fs::File::open(&at).map(drop));
        let list = code(fs::read_dir(&at).map(drop));
        let stat = code(fs::metadata(&at).map(drop));
        let lstat = code(fs::symlink_metadata(&at).map(drop));
        println!("\nPROBE {n} {open} {list} {stat} {lstat}");
    }
}

fn errno(failure: Option<&Failure>) -> i32 {
    match failure {
        None => 0,
        Some(Failure::NotFound) => 2,
        Some(Failure::PermissionDenied) => 13,
        Some(Failure::NotADirectory) => 20,
        Some(Failure::NameTooLong) => 36,
        Some(Failure::SymlinkLoop) => 40,
        Some(other) => panic!("{other:?}"),
    }
}

/// An access control list as setxattr takes it: (tag, permission, id).
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NONE: u32 = u32::MAX;

/// Makes files and directories below `root`; the paths to ask for, and the lists to give to some.
fn make(root: &Path) -> (Vec<String>, BTreeMap<String, Vec<u8>>) {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    let mut paths = Vec::new();
    make_modes(root, &mut paths);
    let acls = make_lists(root, &mut paths);
    make_links(root, &mut paths);
    add_names(&mut paths);
    (paths, acls)
}

fn make_modes(root: &Path, paths: &mut Vec<String>) {
    let modes =
        [0o400, 0o040, 0o004, 0o440, 0o000, 0o644, 0o077, 0o070, 0o604, 0o755, 0o711, 0o111, 0o010, 0o001];
    for (uid, gid) in [(1000, 2000), (1001, 1001), (0, 0), (0, 3000)] {
        for mode in modes {
            let file = format!("/f-{uid}-{gid}-{mode:o}");
            fs::write(root.join(&file[1..]), "text").unwrap();
            chown(root.join(&file[1..]), Some(uid), Some(gid)).unwrap();
            fs::set_permissions(root.join(&file[1..]), fs::Permissions::from_mode(mode)).unwrap();
            let dir = format!("/d-{uid}-{gid}-{mode:o}");
            let inner = root.join(&dir[1..]);
            fs::create_dir(&inner).unwrap();
            fs::write(inner.join("file"), "text").unwrap();
            fs::create_dir(inner.join("sub")).unwrap();
            symlink("../f-0-0-644", inner.join("link")).unwrap();
            chown(&inner, Some(uid), Some(gid)).unwrap();
            fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).unwrap();
            for tail in
                ["", "/", "/.", "/..", "/file", "/sub", "/sub/..", "/sub/../file", "/link", "/nothing"]
            {
                paths.push(format!("{dir}{tail}"));
            }
            paths.extend([file.clone(), format!("{file}/"), format!("{file}/x"), format!("{file}/..")]);
        }
    }
}

/// Of an access list: tag, permissions, number.
type AclEntry = (u16, u16, u32);

fn make_lists(root: &Path, paths: &mut Vec<String>) -> BTreeMap<String, Vec<u8>> {
    let mut acls = BTreeMap::new();
    // Lists: (name, mode, entries): 1 owner, 2 user, 4 owning group, 8 group, 16 mask, 32 others.
    let lists: [(&str, &[AclEntry]); 9] = [
        ("user", &[(1, 6, NONE), (2, 5, 1001), (4, 0, NONE), (16, 5, NONE), (32, 0, NONE)]),
        ("user-masked", &[(1, 6, NONE), (2, 5, 1001), (4, 4, NONE), (16, 1, NONE), (32, 5, NONE)]),
        ("user-denied", &[(1, 6, NONE), (2, 0, 1001), (4, 5, NONE), (16, 5, NONE), (32, 5, NONE)]),
        ("group", &[(1, 6, NONE), (4, 0, NONE), (8, 5, 3000), (16, 5, NONE), (32, 0, NONE)]),
        ("group-denied", &[(1, 6, NONE), (4, 5, NONE), (8, 0, 3000), (16, 7, NONE), (32, 5, NONE)]),
        ("two-groups", &[(1, 6, NONE), (4, 4, NONE), (8, 1, 3000), (16, 5, NONE), (32, 0, NONE)]),
        ("no-mask-bits", &[(1, 7, NONE), (2, 5, 1001), (4, 5, NONE), (16, 0, NONE), (32, 5, NONE)]),
        ("owner-denied", &[(1, 0, NONE), (2, 7, 1000), (4, 5, NONE), (16, 7, NONE), (32, 5, NONE)]),
        ("plain", &[(1, 6, NONE), (4, 5, NONE), (32, 1, NONE)]),
    ];
    for (name, entries) in lists {
        let group = entries.iter().find(|e| e.0 == 16).or(entries.iter().find(|e| e.0 == 4)).unwrap().1;
        let owner = entries[0].1;
        let others = entries.last().unwrap().1;
        let mode = u32::from(owner << 6 | group << 3 | others);
        for dir in [false, true] {
            let path = format!("/acl-{name}-{}", if dir { "d" } else { "f" });
            let at = root.join(&path[1..]);
            if dir {
                fs::create_dir(&at).unwrap();
                fs::write(at.join("file"), "text").unwrap();
                paths.extend([
                    format!("{path}/file"),
                    format!("{path}/nothing"),
                    format!("{path}/../f-0-0-644"),
                ]);
            } else {
                fs::write(&at, "text").unwrap();
            }
            chown(&at, Some(1000), Some(2000)).unwrap();
            fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
            acls.insert(path.clone(), acl(entries));
            paths.push(path);
        }
    }
    acls
}

fn make_links(root: &Path, paths: &mut Vec<String>) {
    symlink("loop-b", root.join("loop-a")).unwrap();
    symlink("loop-a", root.join("loop-b")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("d-0-0-755", root.join("to-dir")).unwrap();
    symlink("d-0-0-755/", root.join("to-dir-slash")).unwrap();
    symlink("f-0-0-644/", root.join("to-file-slash")).unwrap();
    symlink("f-0-0-644", root.join("chain-0")).unwrap();
    for n in 1..=42 {
        symlink(format!("chain-{}", n - 1), root.join(format!("chain-{n}"))).unwrap();
    }
    for n in [0, 1, 38, 39, 40, 41, 42] {
        paths.push(format!("/chain-{n}"));
        paths.push(format!("/chain-{n}/"));
    }
}

fn add_names(paths: &mut Vec<String>) {
    for path in [
        "/",
        "//",
        "/.",
        "/..",
        "/../..",
        "/loop-a",
        "/loop-a/",
        "/loop-a/x",
        "/dangling",
        "/dangling/",
        "/dangling/x",
        "/to-dir",
        "/to-dir/",
        "/to-dir/file",
        "/to-dir/../f-0-0-644",
        "/to-dir-slash",
        "/to-dir-slash/file",
        "/to-file-slash",
        "/nothing",
        "/nothing/",
        "/nothing/..",
        "/f-0-0-644/.",
        "//f-0-0-644",
        "/./f-0-0-644",
        "/d-0-0-755//file",
        "/d-0-0-755/sub//../file",
    ] {
        paths.push(path.to_owned());
    }
    paths.push(format!("/{}", "n".repeat(255)));
    paths.push(format!("/{}", "n".repeat(256)));
    paths.push(format!("/{}/x", "n".repeat(256)));
    paths.push(format!("/d-1000-2000-0/{}", "n".repeat(256)));
    paths.push(format!("/f-0-0-644/{}", "n".repeat(256)));
}

#[test]
fn permissions_are_the_kernels() {
    let test = "permissions_are_the_kernels";
    let needs_ci = |why: &str| {
        assert!(std::env::var_os("CI").is_none(), "{test}: {why}");
        eprintln!("LEFT OUT: {test}: {why}");
    };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return needs_ci("it needs root");
    }
    let Some(dir) = needs::folder(test, &["mke2fs", "debugfs", "setpriv", "mount"]) else { return };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let (paths, acls) = make(&source);
    let image = dir.path().join("image");
    fs::write(&image, ext_image(&source, 32, &["-t", "ext4", "-b", "4096", "-I", "256"])).unwrap();
    set_lists(dir.path(), &image, &acls);
    let at = dir.path().join("mount");
    fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount").args(["-o", "loop,ro,noload"]).arg(&image).arg(&at).output().unwrap();
    if !mounted.status.success() {
        return needs_ci(&format!("no loop mount: {}", String::from_utf8_lossy(&mounted.stderr).trim()));
    }
    let _mount = Mount(at.clone());
    // The users must reach the program and the mount.
    let program = dir.path().join("probe");
    install(&std::env::current_exe().unwrap(), &program);
    let list = dir.path().join("list");
    fs::write(&list, paths.join("\0")).unwrap();

    let media = MemoryMedia::new(fs::read(&image).unwrap());
    let retriever = Retriever::new(Config::default());
    let users: [User; 8] = [
        (0, 0, &[]),
        (1000, 1000, &[]),
        (1000, 2000, &[]),
        (1001, 1001, &[]),
        (1001, 1001, &[3000]),
        (1002, 1002, &[2000]),
        (1002, 1002, &[2000, 3000]),
        (1003, 3000, &[]),
    ];
    let mut cases = 0;
    let mut wrong = Vec::new();
    for user in users {
        let kernel = kernel_answers(&program, &list, &at, user);
        assert_eq!(kernel.len(), paths.len());
        for (path, kernel) in paths.iter().zip(&kernel) {
            if path == "/acl-user-f" && user.0 == 1001 {
                assert_eq!(kernel[1], 0, "only the list lets this user in: the volume has none");
            }
            let mine = our_answers(&retriever, &media, path, user, kernel);
            for (what, (mine, kernel)) in
                ["open", "list", "stat", "lstat"].iter().zip(mine.iter().zip(&kernel[1..]))
            {
                cases += 1;
                if mine != kernel {
                    let short: String = path.chars().take(60).collect();
                    wrong.push(format!("{what} {short} as {user:?}: {mine}, the kernel {kernel}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {cases} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    assert!(cases > 10_000, "{cases}");
}

fn set_lists(dir: &Path, image: &Path, acls: &BTreeMap<String, Vec<u8>>) {
    for (path, value) in acls {
        let file = dir.join("value");
        fs::write(&file, value).unwrap();
        let command = format!("ea_set -f {} {path} system.posix_acl_access", file.display());
        must(tool("debugfs").args(["-w", "-R", &command]).arg(image));
    }
}

/// Number, group and further groups.
type User = (u32, u32, &'static [u32]);

/// What the kernel answers this user, for each path of the list: errors of open, opendir, stat and lstat.
fn kernel_answers(program: &Path, list: &Path, mount: &Path, (uid, gid, groups): User) -> Vec<Vec<i32>> {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
    match groups {
        [] => command.arg("--clear-groups"),
        groups => command
            .arg(format!("--groups={}", groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","))),
    };
    command.arg(program).args(["--exact", "probe", "--nocapture"]);
    command.env("NEARSIDE_PROBE", list).env("NEARSIDE_PROBE_ROOT", mount).current_dir("/");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|l| l.strip_prefix("PROBE "))
        .map(|l| l.split(' ').map(|n| n.parse().unwrap()).collect())
        .collect()
}

fn our_answers(
    retriever: &Retriever,
    media: &MemoryMedia,
    path: &str,
    (uid, gid, groups): User,
    kernel: &[i32],
) -> [i32; 4] {
    let ask = |operation, follow| {
        let request = Request {
            partition: 0,
            credentials: Credentials { uid, gid, groups: groups.to_vec() },
            target: Target::Path(path.as_bytes().to_vec()),
            operation,
            follow,
            resume: None,
        };
        let (got, answer) = ask(retriever, media, &request);
        (errno(answer.failure.as_ref()), got)
    };
    // List of a file answers its entry; the kernel's opendir says "not a directory".
    let (list, got) = ask(Operation::List, true);
    let file = matches!(&got[..], [Got::Entry { mode, .. }] if mode & 0o170000 != 0o040000)
        && !got.iter().any(|g| matches!(g, Got::Entry { path: p, .. } if p != path));
    [
        ask(Operation::Nop, true).0,
        if list == 0 && file && kernel[2] == 20 { 20 } else { list },
        ask(Operation::Stat, true).0,
        ask(Operation::Stat, false).0,
    ]
}
