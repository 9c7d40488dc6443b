//! `find --deleted` on what a kernel deleted.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, ext, must, tool};
use serde_json::Value;

/// What is deleted there, of an inode.
fn deleted(image: &Path, inode: u64) -> Value {
    let mut nearside = Command::new(env!("CARGO_BIN_EXE_nearside"));
    nearside.arg("find").arg("-d").arg(image).args(["--as=0:0", "--deleted", "--json"]);
    let ran = nearside.args(["-inum", &inode.to_string()]).output().unwrap();
    // Of a volume with orphans that is said.
    let said = String::from_utf8_lossy(&ran.stderr);
    let known = "nearside: warning: files that were unlinked while open, or half truncated, await clean-up";
    assert!(ran.status.success() && said.lines().all(|line| line == known), "{said}");
    let lines = serde_json::Deserializer::from_slice(&ran.stdout).into_iter::<Value>();
    let entries: Vec<Value> = lines.map(Result::unwrap).filter(|line| line["type"] == "entry").collect();
    assert!(entries.len() < 2, "{entries:?}");
    entries.into_iter().next().unwrap_or(Value::Null)
}

/// `i_dtime`, as debugfs prints it.
fn dtime(image: &Path, inode: u64) -> i64 {
    let said = must(tool("debugfs").args(["-R", &format!("stat <{inode}>")]).arg(image)).stdout;
    let said = String::from_utf8_lossy(&said);
    let (_, time) = said.split_once("dtime: 0x").expect("a time");
    let digits: String = time.chars().take_while(char::is_ascii_hexdigit).collect();
    i64::from_str_radix(&digits, 16).unwrap()
}

#[test]
fn deleted_and_orphaned_files_are_told_apart() {
    let test = "root_gnu::deleted_and_orphaned_files_are_told_apart";
    if !needs::mounts(test, &["mke2fs", "debugfs", "mount", "umount", "sync"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, crashed) = (folder.path().join("disk.img"), folder.path().join("crashed.img"));
    // Orphans are in a list of inodes, or in a file.
    for orphans in ["^orphan_file", "orphan_file"] {
        let _last_one_s = fs::remove_file(&image);
        ext(&image, 64, None, &["-t", "ext4", "-O", orphans]);
        let mount = Mounted::new(&["-o", "loop"], &image, &folder.path().join("mnt"));
        let place = |name: &str| mount.path().join(name);
        fs::write(place("gone"), vec![1; 100_000]).unwrap();
        fs::write(place("stays"), "here").unwrap();
        let mut open = File::create(place("open")).unwrap();
        open.write_all(&[2; 5000]).unwrap();
        let [gone, stays, orphan] =
            ["gone", "stays", "open"].map(|name| fs::metadata(place(name)).unwrap().ino());
        must(tool("sync").arg("-f").arg(place("stays")));
        fs::remove_file(place("gone")).unwrap();
        fs::remove_file(place("open")).unwrap();
        must(tool("sync").arg("-f").arg(place("stays")));
        // As after a loss of power: what the journal has is not at home yet.
        fs::copy(&image, &crashed).unwrap();
        drop(open);
        mount.end();
        let now = deleted(&crashed, orphan);
        assert_eq!(
            (&now["orphan"], &now["deleted"], &now["size"]),
            (&true.into(), &Value::Null, &5000.into())
        );
        let now = deleted(&image, orphan);
        assert_eq!((&now["orphan"], &now["size"]), (&false.into(), &0.into()), "{orphans}");
        assert_eq!(now["deleted"], dtime(&image, orphan));
        for image in [&image, &crashed] {
            let now = deleted(image, gone);
            assert_eq!(
                (&now["orphan"], &now["size"], &now["mode"]),
                (&false.into(), &0.into(), &0o100_644.into())
            );
            assert_eq!(now["deleted"], dtime(&folder.path().join("disk.img"), gone));
            assert_eq!(deleted(image, stays), Value::Null);
        }
    }
}
