//! `nearside attach` with a live kernel on the drive, and the other commands by its socket meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, ext, install, must};

/// One test at a time: what another one starts has this one's files open until it is another program, a loop
/// device that is to go among them.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    if !needs::mounts(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let _alone = alone();
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
    // What its view costs, with looks at the writes of the mount.
    let told: serde_json::Value = serde_json::from_str(&info).unwrap();
    let view = &told["view"];
    assert!(view["watched"].as_u64() > Some(0) && view["suspected"].as_u64() > Some(0), "{view}");
    assert!(view["looks_passed"]["mean_ns"].as_u64() > Some(0), "{view}");

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
    install(env!("CARGO_BIN_EXE_nearside").as_ref(), &command);
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
    // The volume is mounted, and shown as its journal has it: modes say who may read what.
    let (code, err) = other(&["/logs/old.log"]);
    assert!(code == Some(0), "{err}");
    let (code, err) = other(&["/private"]);
    assert!(
        code == Some(2) && err.contains("/private: Permission denied") && !err.contains("unstable"),
        "{err}"
    );
    let (code, err) = other(&["/private", "--as", "0:0"]);
    assert!(code == Some(2) && err.contains("only root"), "{err}");
}

/// A kernel works on a drive that logs its writes: the whole log makes the disk. Where the log found no room
/// the drive goes on, says so, and exits with status 2.
#[test]
fn a_live_volume_is_logged() {
    let test = "root_attach::a_live_volume_is_logged";
    if !needs::mounts(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let _alone = alone();
    for room in ["size=64m", "size=512k"] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (image, drive, volume, log) = (at("disk.img"), at("drive"), at("volume"), at("logs/disk.log"));
        fs::create_dir(&drive).unwrap();
        fs::create_dir(&volume).unwrap();
        ext(&image, 32, None, &["-t", "ext4"]);
        fs::copy(&image, at("before.img")).unwrap();
        let logs = Mounted::new(&["-t", "tmpfs", "-o", room], Path::new("none"), &at("logs"));
        let child = nearside()
            .args(["attach", "--store", &format!("file:{}", image.display()), "--log-writes"])
            .args([&log, &drive])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut attached = Attached { child, mounts: vec![drive.clone()] };
        let mut lines = BufReader::new(attached.child.stdout.take().unwrap()).lines();
        let file = lines.next().unwrap().unwrap().split(": ").next().unwrap().to_owned();
        must(Command::new("mount").args(["-o", "loop", &file]).arg(&volume));
        attached.mounts.push(volume.clone());
        let text = "what is written\n".repeat(60_000);
        fs::write(volume.join("file"), &text).unwrap();
        must(&mut Command::new("sync"));
        fs::remove_file(volume.join("lost+found")).unwrap_err();
        fs::create_dir(volume.join("directory")).unwrap();
        attached.unmount();
        let status = attached.child.wait().unwrap();
        let mut said = String::new();
        attached.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let ask = |args: &[&str]| {
            let output = nearside().current_dir(folder.path()).args(args).output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        assert_eq!(ask(&["cat", "-d", "disk.img", "/file"]), (Some(0), text));
        let counted = ask(&["writes", "logs/disk.log", "--summary", "--json"]);
        let summary: serde_json::Value = serde_json::from_str(&counted.1).unwrap();
        let all = summary["entries"].to_string();
        let make = ["writes", "logs/disk.log", "--base", "before.img", "--at", &all, "-o", "made.img"];
        assert_eq!(ask(&make).0, Some(0));
        let same = fs::read(at("made.img")).unwrap() == fs::read(&image).unwrap();
        if room == "size=64m" {
            assert!(status.success() && said.is_empty(), "{status}: {said}");
            assert!(summary["flushes"].as_u64() > Some(0) && summary["not_flushed"] == 0, "{summary}");
            assert!(same, "the log makes another disk");
        } else {
            assert_eq!(status.code(), Some(2), "{said}");
            let told: Vec<&str> =
                said.lines().filter(|line| line.contains("No space left on device")).collect();
            assert!(told.len() == 2 && told.iter().all(|line| line.contains("it ends after")), "{said}");
            assert!(!same, "the log has all of it");
        }
        drop(logs);
    }
}

/// Starts an attachment with `more`; it, and the lines that it announces.
fn announced(drive: &Path, more: &[&str], lines: usize) -> (Attached, Vec<String>) {
    let child = nearside()
        .args(["attach", "--store", "dram:64MiB"])
        .args(more)
        .arg(drive)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut attached = Attached { child, mounts: vec![drive.to_owned()] };
    let out = BufReader::new(attached.child.stdout.take().unwrap());
    let said: Vec<String> = out.lines().take(lines).map(Result::unwrap).collect();
    assert_eq!(said.len(), lines, "{said:?}");
    (attached, said)
}

/// By each way in which requests come from the kernel: the loop device's last dirty pages are lost with a
/// drive that is killed, and nothing waits for them.
#[test]
fn a_killed_drive_takes_its_loop_device_along() {
    let test = "root_attach::a_killed_drive_takes_its_loop_device_along";
    if !needs::mounts(test, &["mount", "umount", "mke2fs", "kill"]) {
        return;
    }
    let _alone = alone();
    killed("classic");
    if let Some(_on) = needs::fuse_uring(test) {
        killed("uring");
    }
}

fn killed(transport: &str) {
    let folder = tempfile::tempdir().unwrap();
    let drive = folder.path().join("drive");
    fs::create_dir(&drive).unwrap();
    for signal in ["KILL", "TERM"] {
        let more = ["--loop", "--transport", transport, "--completion", "interrupt"];
        let (mut attached, said) = announced(&drive, &more, 4);
        let way = if transport == "uring" { "FUSE by io_uring (" } else { "FUSE by /dev/fuse" };
        assert!(said[3].starts_with(way) && said[3].ends_with("completion: interrupt"), "{said:?}");
        let device = PathBuf::from(&said[2]);
        let name = device.file_name().unwrap().to_string_lossy().into_owned();
        let backing = format!("/sys/block/{name}/loop/backing_file");
        let over =
            || fs::read_to_string(&backing).unwrap_or_default().contains(folder.path().to_str().unwrap());
        assert!(over());
        // Pages that the kernel has not written out, and a reader and a writer under way.
        let work = |nth: u64| {
            let file = fs::OpenOptions::new().read(true).write(true).open(&device).unwrap();
            move || {
                use std::os::unix::fs::FileExt;
                for at in (0u64..).map(|round| (nth * 4096 + round % 4096) * 4096) {
                    if file.write_all_at(&[7; 4096], at).and_then(|()| file.sync_data()).is_err() {
                        return;
                    }
                }
            }
        };
        let threads: Vec<_> = match signal {
            "KILL" => (0..4).map(|nth| std::thread::spawn(work(nth))).collect(),
            _ => Vec::new(),
        };
        fs::write(&device, vec![9; 4 << 20]).unwrap();
        must(Command::new("kill").arg(format!("-{signal}")).arg(attached.child.id().to_string()));
        let status = attached.child.wait().unwrap();
        assert_eq!(status.success(), signal == "TERM", "{status}");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!over(), "the loop device stayed");
        if signal == "KILL" {
            must(Command::new("umount").arg(&drive));
        }
        assert_eq!(fs::read_dir(&drive).unwrap().count(), 0);
    }
}
