//! Hosts that mean harm, or are killed: each function does it once and ends,
//! or panics where the server lets go of it before.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nearside_near_data::{Answer, Credentials, Operation, Request, SearchOptions, Target, wire};
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::pdu::{DataHeader, Pdu};
use nearside_spec::opcode::io;
use nearside_spec::{Status, SubmissionEntry};

use crate::Act;
use crate::raw::{PLAIN, Raw, transfer};
use crate::server::{Served, nearside};

/// Those that `NEARSIDE_SOAK_ONLY` names, where it is set.
pub fn chosen(mut all: Vec<Act<'_>>) -> Vec<Act<'_>> {
    if let Ok(only) = std::env::var("NEARSIDE_SOAK_ONLY") {
        all.retain(|(name, _)| only.split(',').any(|word| word == *name));
    }
    all
}

type Deed = fn(&Served);

/// All of them by name.
pub fn acts(served: &Served) -> Vec<Act<'_>> {
    let all: [(&str, Deed); 8] = [
        ("leaves", goes_while_it_searches),
        ("patterns", asks_what_takes_long),
        ("killed", is_killed),
        ("searches", searches_all_at_once),
        ("slow", writes_a_byte_now_and_then),
        ("deaf", sends_and_never_reads),
        ("connects", connects_and_connects),
        ("nonsense", sends_anything),
    ];
    chosen(all.into_iter().map(|(name, act)| (name, Box::new(move || act(served)) as _)).collect())
}

/// Hostile hosts share a name: one quota is theirs.
const HOST: &str = "nqn.2026-11.dev.nearside:hostile";

/// An admin queue and an I/O queue.
fn connected(served: &Served) -> (Raw, Raw) {
    let (admin, cntlid) = Raw::admin_of(HOST, served.address, 0);
    let queue = Raw::io_of(HOST, served.address, cntlid, 1);
    (admin, queue)
}

pub fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Begins a search of a path, whose result is not waited for, under a tag that no other has:
/// they are one host, and have one set of tags.
fn search(queue: &mut Raw, path: &str, pattern: &str) {
    static TAGS: AtomicU32 = AtomicU32::new(0);
    let tag = TAGS.fetch_add(1, Ordering::Relaxed);
    let request = wire::encode_request(&Request {
        partition: 0,
        credentials: Credentials::default(),
        target: Target::Path(path.into()),
        operation: Operation::Search(SearchOptions {
            patterns: vec![pattern.into()],
            answer: Answer::Count,
            ..SearchOptions::default()
        }),
        follow: true,
        resume: None,
    });
    let mut execute = SubmissionEntry::new(io::NEAR_DATA_EXECUTE, 0, 1);
    (execute.cdw[10], execute.cdw[12]) = (request.len() as u32, tag);
    assert_eq!(queue.run(execute, &request).status(), Status::SUCCESS);
    let mut result = SubmissionEntry::new(io::NEAR_DATA_RESULT, 0, 1);
    (result.cdw[11], result.cdw[12], result.cdw[14]) = (4096, tag, 5_000);
    CapsuleData::Transport { len: 4096 }.put(&mut result);
    queue.command(result, &[]);
}

fn goes_while_it_searches(served: &Served) {
    let (_admin, mut queue) = connected(served);
    search(&mut queue, "/text", "no such word");
    pause();
}

fn asks_what_takes_long(served: &Served) {
    let (_admin, mut queue) = connected(served);
    for pattern in ["(?:a{0,200}b?){0,200}[c-h]", "(?:[a-z]{0,90}[0-9]?){0,600}[A-Z]"] {
        search(&mut queue, "/line", pattern);
    }
    std::thread::sleep(Duration::from_millis(500));
}

fn is_killed(served: &Served) {
    let mut grep = nearside();
    grep.args(["grep", "-d", &served.drive(), "-r", "-c", "[a-c]+[s-z]", "/"]);
    killed(&mut grep, Duration::from_millis(100));
}

/// A command that is ended after a while, in the middle: by SIGKILL, or as Ctrl-C does it. (By SIGTERM, which
/// ends it alike: a shell's jobs in the background ignore SIGINT, and so do their children.)
pub fn killed(command: &mut Command, after: Duration) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(after);
    let term = std::time::UNIX_EPOCH.elapsed().is_ok_and(|now| now.as_millis() % 2 == 0);
    let signal = if term { "-TERM" } else { "-KILL" };
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
    let _ = child.wait();
}

fn searches_all_at_once(served: &Served) {
    let (_admin, mut queue) = connected(served);
    for _ in 0..12 {
        search(&mut queue, "/text", "(?i)n[aeiou]* such (word|thing)");
    }
    std::thread::sleep(Duration::from_secs(1));
}

/// Data that a target waits for, at a rate that never ends.
fn writes_a_byte_now_and_then(served: &Served) {
    let (_admin, mut queue) = connected(served);
    for _ in 0..40 {
        // None of them gets its data, so nothing is written.
        queue.command(transfer(io::WRITE, 0, 2048, 1 << 20), &[]);
    }
    let Some((Pdu::ReadyToTransfer(r2t), _)) = queue.receive() else { panic!("nothing is asked for") };
    let data =
        DataHeader { cccid: r2t.cccid, ttag: r2t.ttag, offset: 0, len: r2t.len, last: true, success: false };
    queue.put(&data.host(&PLAIN));
    for _ in 0..20 {
        queue.put(&[1]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A write whose data does not come while this is held.
pub fn owes_data(served: &Served) -> (Raw, Raw) {
    let (admin, mut queue) = connected(served);
    queue.command(transfer(io::WRITE, 0, 2048, 1 << 20), &[]);
    assert!(matches!(queue.receive(), Some((Pdu::ReadyToTransfer(_), _))));
    (admin, queue)
}

fn sends_and_never_reads(served: &Served) {
    let (_admin, mut queue) = connected(served);
    for _ in 0..120 {
        queue.command(transfer(io::READ, 0, 2048, 1 << 20), &[]);
    }
    let _ = queue.socket.set_write_timeout(Some(Duration::from_millis(500)));
    queue.put(&vec![0; 16 << 20]);
}

fn connects_and_connects(served: &Served) {
    let connections: Vec<_> =
        (0..200).filter_map(|_| std::net::TcpStream::connect(served.address).ok()).collect();
    pause();
    drop(connections);
}

fn sends_anything(served: &Served) {
    let mut raw = Raw::open(served.address);
    raw.put(&[0x55; 4096]);
    let (_admin, mut queue) = connected(served);
    let entry = SubmissionEntry::new(0xff, 3, 0xffff_ffff);
    assert_ne!(queue.run(entry, &[]).status(), Status::SUCCESS);
    queue.put(&[0xff; 512]);
    pause();
}
