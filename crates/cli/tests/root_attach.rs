//! `nearside attach` with a live kernel on the drive, and the other commands by its socket meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::{ext, must};

fn nearside() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.env_remove("NEARSIDE_DRIVE").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// The serving process. Dropped, it ends: by its mounts first, by force last.
struct Attached {
    child: Child,
    mounts: Vec<PathBuf>,
}

impl Attached {
    fn unmount(&mut self) {
        for mount in self.mounts.drain(..).rev() {
            let _ = Command::new("umount").arg(mount).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.unmount();
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[test]
fn a_live_volume_is_searched_by_the_socket() {
    let test = "root_attach::a_live_volume_is_searched_by_the_socket";
    if !needs::root(test) || !needs::tools(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        return needs::left_out(test, "no /dev/fuse or /dev/loop-control");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (image, drive, volume) = (at("disk.img"), at("drive"), at("volume"));
    fs::create_dir(&drive).unwrap();
    fs::create_dir(&volume).unwrap();
    ext(&image, 32, None, &["-t", "ext4"]);

    let store = format!("file:{}", image.display());
    let child = nearside()
        .args(["attach", "--store", &store])
        .arg(&drive)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut attached = Attached { child, mounts: vec![drive.clone()] };
    let mut lines = BufReader::new(attached.child.stdout.take().unwrap()).lines();
    let file = lines.next().unwrap().unwrap();
    let file = file.split(": ").next().unwrap().to_owned();
    let socket = lines.next().unwrap().unwrap();
    assert!(socket.starts_with("unix:"), "{socket}");

    must(Command::new("mount").args(["-o", "loop", &file]).arg(&volume));
    attached.mounts.push(volume.clone());
    fs::create_dir(volume.join("logs")).unwrap();
    let ask = |args: &[&str]| {
        let output = nearside().arg(args[0]).args(["-d", &socket]).args(&args[1..]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for round in 1..=20u32 {
        let text = format!("round {round}\nERROR {round}\n").repeat(round as usize);
        fs::write(volume.join("logs/app.log"), &text).unwrap();
        must(&mut Command::new("sync"));
        let found = ask(&["grep", "-c", "ERROR", "/logs/app.log"]);
        assert_eq!(found, (Some(0), format!("{round}\n")), "round {round}");
        assert_eq!(ask(&["cat", "/logs/app.log"]).1, text);
    }
    fs::rename(volume.join("logs/app.log"), volume.join("logs/old.log")).unwrap();
    must(&mut Command::new("sync"));
    assert_eq!(ask(&["grep", "-c", "ERROR", "/logs/app.log"]).0, Some(2));
    assert_eq!(ask(&["ls", "/logs"]), (Some(0), "old.log\n".into()));
    let host = ask(&["grep", "--locate", "host", "-c", "ERROR", "/logs/old.log"]);
    assert_eq!(host, (Some(0), "20\n".into()));
    let info = ask(&["info", "--json"]).1;
    assert!(info.contains("\"model\":\"socket\"") && info.contains("ext4"), "{info}");

    if needs::tools(test, &["setpriv"]) {
        another_user_asks_in_its_own_name(folder.path(), &volume, &socket);
    }

    attached.unmount();
    assert!(attached.child.wait().unwrap().success());
    assert!(!Path::new(socket.strip_prefix("unix:").unwrap()).exists(), "the socket is gone");
}

/// Its copy of the command lies where it can reach it.
fn another_user_asks_in_its_own_name(folder: &Path, volume: &Path, socket: &str) {
    use std::os::unix::fs::PermissionsExt;
    let command = folder.join("nearside");
    fs::copy(env!("CARGO_BIN_EXE_nearside"), &command).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(volume.join("private"), "ERROR\n").unwrap();
    fs::set_permissions(volume.join("private"), fs::Permissions::from_mode(0o600)).unwrap();
    must(&mut Command::new("sync"));
    let other = |args: &[&str]| {
        let words = ["--reuid", "12345", "--regid", "12345", "--clear-groups", "--"];
        let mut run = Command::new("setpriv");
        run.args(words).arg(&command).args(["grep", "-d", socket, "-c", "ERROR"]).args(args);
        let output = run.env("LC_ALL", "C").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // The volume is mounted: blocks that home locations name may be another file's,
    // and only root is given them.
    let (code, err) = other(&["/logs/old.log"]);
    assert!(code == Some(2) && err.contains("the volume needs recovery"), "{err}");
    let (code, err) = other(&["/private"]);
    assert!(
        code == Some(2)
            && err.contains("/private: Permission denied")
            && !err.contains("the volume needs recovery"),
        "{err}"
    );
    let (code, err) = other(&["/private", "--as", "0:0"]);
    assert!(code == Some(2) && err.contains("only root"), "{err}");
}
