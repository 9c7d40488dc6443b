//! `attach`: the namespace as a file that honest hosts write and verify, and a socket at which other users do
//! what once stopped that file, or kept root out.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nearside_conformance::needs;
use nearside_conformance::volume::install;
use rustix::process::Uid;

use crate::server::{Kept, Program, nearside};
use crate::{Act, drive, honest, hostile, soak};

/// `nearside attach`, unmounted when dropped.
struct Attached<'a> {
    program: Program,
    mount: &'a Path,
    file: String,
    socket: String,
    /// A copy of the command where every user can reach it.
    command: &'a Path,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.mount).stderr(Stdio::null()).status();
    }
}

type Deed = fn(&Attached<'_>);

/// Users that are nobody's.
const USERS: [u32; 4] = [12345, 12346, 12347, 12348];

impl Attached<'_> {
    /// A command about the drive, in a user's name.
    fn ask(&self, user: u32, words: &[&str]) -> Command {
        let mut command = Command::new(self.command);
        command.env_remove("NEARSIDE_DRIVE").stdin(Stdio::null()).uid(user).gid(user);
        command.arg(words[0]).args(["-d", &self.socket]).args(&words[1..]);
        command
    }

    /// What users do. Root asks meanwhile, and is answered.
    fn acts(&self) -> Vec<Act<'_>> {
        let all: [(&str, Deed); 6] = [
            ("killed", is_killed),
            ("patterns", asks_what_takes_long),
            ("searches", searches_all_at_once),
            ("idle", connects_and_says_nothing),
            ("deaf", asks_and_never_reads),
            ("nonsense", sends_anything),
        ];
        let mut acts = hostile::chosen(
            all.into_iter().map(|(name, act)| (name, Box::new(move || act(self)) as _)).collect(),
        );
        acts.push(("root", Box::new(|| root_is_answered(self))));
        acts
    }

    /// Waits until no more than `most` descriptors are open; what it keeps then.
    fn until_nothing_is_left(&self, most: Option<usize>) -> Kept {
        let begun = Instant::now();
        loop {
            let kept = self.program.kept();
            // The first time there is nothing to compare with: what hostile users held is given back by then.
            if most.map_or(begun.elapsed() > Duration::from_secs(1), |most| kept.descriptors <= most) {
                return kept;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{kept:?}, before {most:?}");
            hostile::pause();
        }
    }
}

fn is_killed(attached: &Attached<'_>) {
    let mut grep = attached.ask(USERS[0], &["grep", "-r", "-c", "[a-c]+[s-z]", "/"]);
    hostile::killed(&mut grep, Duration::from_millis(100));
}

fn asks_what_takes_long(attached: &Attached<'_>) {
    for pattern in ["(?:a{0,200}b?){0,200}[c-h]", "(?:[a-z]{0,90}[0-9]?){0,600}[A-Z]"] {
        let mut grep = attached.ask(USERS[1], &["grep", "-c", pattern, "/line"]);
        hostile::killed(&mut grep, Duration::from_millis(300));
    }
}

/// More of one user's than the drive has queues for near-data work.
fn searches_all_at_once(attached: &Attached<'_>) {
    let one = || attached.ask(USERS[2], &["grep", "-c", "(?i)n[aeiou]* such (word|thing)", "/text"]);
    let quiet = |mut command: Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let searches: Vec<_> = (0..12).map(|_| quiet(one())).collect();
    for mut search in searches {
        search.wait().unwrap();
    }
}

/// Four users' connections, as many as each gets, for a second.
fn connects_and_says_nothing(attached: &Attached<'_>) {
    std::thread::scope(|threads| {
        for user in USERS {
            threads.spawn(move || {
                become_user(user);
                let path = attached.socket.strip_prefix("unix:").unwrap();
                let held: Vec<_> = (0..100).filter_map(|_| UnixStream::connect(path).ok()).collect();
                std::thread::sleep(Duration::from_secs(1));
                drop(held);
            });
        }
    });
}

/// This thread alone, as the kernel has it: the socket is told the user of who connects.
fn become_user(user: u32) {
    let user = Uid::from_raw(user);
    // SAFETY: the thread ends soon, and does nothing that relies on the process's threads having one user.
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

fn asks_and_never_reads(attached: &Attached<'_>) {
    let mut cat = attached.ask(USERS[3], &["cat", "/text"]);
    let mut cat = cat.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let _ = cat.kill();
    let _ = cat.wait();
}

fn sends_anything(attached: &Attached<'_>) {
    let path = attached.socket.strip_prefix("unix:").unwrap();
    if let Ok(mut socket) = UnixStream::connect(path) {
        let _ = socket.write_all(&[0x55; 4096]);
    }
    hostile::pause();
}

fn root_is_answered(attached: &Attached<'_>) {
    let output = attached.ask(0, &["grep", "-c", "some forty", "/text"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"2000000\n", "{said}");
}

#[test]
fn a_file_and_a_socket_beside_hostile_users() {
    let test = "soak::a_file_and_a_socket_beside_hostile_users";
    if !needs::root(test) || !needs::tools(test, &["mke2fs", "umount"]) || !needs::fuse(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, mount) = (drive(folder.path()), folder.path().join("mount"));
    std::fs::create_dir(&mount).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let command = folder.path().join("nearside");
    install(env!("CARGO_BIN_EXE_nearside").as_ref(), &command);
    let mut attach = nearside();
    attach.args(["attach", "--store"]).arg(&image).arg(&mount);
    let mut program = Program::start(&mut attach, folder.path());
    let (file, socket) = (program.line(), program.line());
    let file = file.split(": ").next().unwrap().to_owned();
    assert!(socket.starts_with("unix:"), "{socket}");
    let attached = Attached { program, mount: &mount, file, socket, command: &command };

    let honest = |nth, over: &AtomicBool| {
        let file = File::options().read(true).write(true).open(&attached.file).unwrap();
        honest::run(file, nth, over)
    };
    soak(&honest, &attached.acts(), |most| attached.until_nothing_is_left(most));
    attached.program.rests();
}
