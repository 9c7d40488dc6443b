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
    announced_over("dram:64MiB", drive, more, lines)
}

/// The same over a store.
fn announced_over(store: &str, drive: &Path, more: &[&str], lines: usize) -> (Attached, Vec<String>) {
    let child = nearside()
        .args(["attach", "--store", store])
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

/// A server of an image, which is killed with this; and its drive's name.
fn served(listen: &str, image: &Path) -> (Attached, String) {
    let mut server = nearside();
    server.args(["serve", "--trust", "--listen", listen, "--subsystem", "nqn.2026-12.example:far"]);
    server.args(["--store", &format!("file:{}", image.display())]);
    server.arg("--control").arg(image.with_extension("control"));
    let child = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut server = Attached { child, mounts: Vec::new() };
    let mut lines = BufReader::new(server.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let drive = lines.find(|line| line.starts_with("nvme+tcp://")).expect("it says its drive's name");
    (server, drive.split(": ").next().unwrap().to_owned())
}

/// A kernel works on a drive that is elsewhere. Its server is killed, and another goes on; near-data work is
/// asked of it by the socket, and in the asker's own name.
#[test]
fn a_volume_over_the_network_outlives_its_server() {
    let test = "root_attach::a_volume_over_the_network_outlives_its_server";
    if !needs::mounts(test, &["mke2fs", "e2fsck", "mount", "umount", "cmp"]) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (image, drive, volume) = (at("disk.img"), at("drive"), at("volume"));
    fs::create_dir(&drive).unwrap();
    fs::create_dir(&volume).unwrap();
    ext(&image, 64, None, &["-t", "ext4"]);
    let (server, name) = served("127.0.0.1:0", &image);
    let listen = name.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap().to_owned();
    let mut server = Some(server);
    let more = ["--reconnect-delay", "1", "--mount", volume.to_str().unwrap()];
    let (mut attached, said) = announced_over(&name, &drive, &more, 4);
    assert_eq!(said[0], format!("{}: {} bytes", drive.join("namespace").display(), 64 << 20));
    let socket = said[1].clone();
    let ask = |args: &[&str]| {
        let output = nearside().arg(args[0]).args(["-d", &socket]).args(&args[1..]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let text = |round: usize| format!("round {round}\nERROR {round}\n").repeat(10_000 * (round % 3) + 1);
    for round in 0..12 {
        let path = volume.join(format!("file{round}"));
        fs::write(&path, text(round)).unwrap();
        if round % 2 == 0 {
            fs::File::open(&path).unwrap().sync_all().unwrap();
        }
        if round % 5 == 3 {
            drop(server.take());
            server = Some(served(&listen, &image).0);
        }
    }
    must(&mut Command::new("sync"));
    for round in 0..12 {
        let (name, errors) = (format!("/file{round}"), 10_000 * (round % 3) + 1);
        assert_eq!(ask(&["grep", "-c", "ERROR", &name]), (Some(0), format!("{errors}\n")), "{name}");
        assert!(ask(&["cat", &name]).1 == text(round), "{name}");
        assert!(fs::read_to_string(volume.join(&name[1..])).unwrap() == text(round), "{name}");
    }
    // By the name that it has on this machine, and by blocks.
    let mounted = volume.join("file4");
    let found = nearside().args(["grep", "--mounted", "-c", "ERROR"]).arg(&mounted).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "10001\n", "{found:?}");
    assert_eq!(ask(&["grep", "--locate", "host", "-c", "ERROR", "/file4"]), (Some(0), "10001\n".into()));
    let info: serde_json::Value = serde_json::from_str(&ask(&["info", "--json"]).1).unwrap();
    assert!(info["view"]["watched"].as_u64() > Some(0), "the drive's own view: {info}");
    if needs::tools(test, &["setpriv"]) {
        fs::create_dir(volume.join("logs")).unwrap();
        fs::write(volume.join("logs/old.log"), "ERROR\n").unwrap();
        another_user_asks_in_its_own_name(folder.path(), &volume, &socket);
    }

    must(Command::new("kill").arg(attached.child.id().to_string()));
    assert!(attached.child.wait().unwrap().success());
    let mut said = String::new();
    attached.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains(": Successfully reconnected (attempt "), "{said}");
    drop(server);
    must(Command::new("e2fsck").args(["-fn"]).arg(&image).stdout(Stdio::null()));
    for round in 0..12 {
        let output =
            nearside().arg("cat").arg("-d").arg(&image).arg(format!("/file{round}")).output().unwrap();
        assert!(output.stdout == text(round).into_bytes(), "file{round}");
    }
}

/// Whoever wants an end need not wait for a server.
#[test]
fn a_drive_that_is_not_reached_is_detached_by_a_second_signal() {
    let test = "root_attach::a_drive_that_is_not_reached_is_detached_by_a_second_signal";
    if !needs::mounts(test, &["umount"]) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (image, drive) = (folder.path().join("disk.img"), folder.path().join("drive"));
    fs::create_dir(&drive).unwrap();
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let (server, name) = served("127.0.0.1:0", &image);
    let (mut attached, said) = announced_over(&name, &drive, &["--ctrl-loss-tmo", "-1"], 3);
    let file = said[0].split(": ").next().unwrap().to_owned();
    fs::write(&file, [7; 4096]).unwrap();
    drop(server);
    let mut signals = 0;
    let status = loop {
        must(Command::new("kill").arg(attached.child.id().to_string()));
        signals += 1;
        std::thread::sleep(std::time::Duration::from_millis(200));
        if let Some(status) = attached.child.try_wait().unwrap() {
            break status;
        }
    };
    let mut said = String::new();
    attached.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(signals > 1 && !status.success() && said.contains("the last flush failed"), "{signals}: {said}");
    assert_eq!(fs::read_dir(&drive).unwrap().count(), 0);
}

#[test]
fn what_a_drive_over_the_network_has_not_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let said = |more: &[&str]| {
        let name = "nvme+tcp://127.0.0.1:1/nqn.2026-12.example:far";
        let output =
            nearside().args(["attach", "--store", name]).args(more).arg(folder.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for option in [&["--log-writes", "log"][..], &["--allow-unrecovered"], &["--near-data-threads", "2"]] {
        let (code, err) = said(option);
        assert!(code == Some(2) && err.contains(&format!("{} is of a drive", option[0])), "{err}");
    }
    let (code, err) = said(&[]);
    assert!(code == Some(2) && err.contains("connecting"), "{err}");
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
