//! Near-data commands on a drive while the kernel's ext4 writes to it: the socket's answers are the mount's.
//! Needs root.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_conformance::needs;
use nearside_conformance::volume::{self, Mounted, must, tool};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_embedded::{AnyStore, Loopback, firmware};
use nearside_front_fuse::{AttachOptions, Attached, attach};
use nearside_near_data::wire::{decode_reply, encode_request};
use nearside_near_data::{
    Answer, Credentials, Failure, Operation, Record, Reply, Request, SearchOptions, Target,
};
use nearside_random::Rng;
use nearside_spec::socket::{REPLY_FRAME, ReplyFrame, RequestFrame, RequestKind};
use nearside_store::FileOptions;

/// One request over the socket.
fn ask(stream: &mut UnixStream, uid: u32, target: Target, operation: Operation) -> Reply<'static> {
    let credentials = Credentials { uid, gid: uid, groups: Vec::new() };
    let request = Request { partition: 0, credentials, target, operation, follow: true, resume: None };
    let bytes = encode_request(&request);
    let frame =
        RequestFrame { kind: RequestKind::NearData, len: bytes.len() as u32, room: 1 << 20, offset: 0 };
    stream.write_all(&frame.encode()).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut head = [0; REPLY_FRAME];
    stream.read_exact(&mut head).unwrap();
    let head = ReplyFrame::decode(&head).unwrap();
    let mut reply = vec![0; head.len as usize];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(head.status, 0, "NVMe status {:#x}", head.status);
    decode_reply(&reply).unwrap().into_owned()
}

fn path(name: &str) -> Target {
    Target::Path(format!("/{name}").into_bytes())
}

/// A file's bytes, read in the drive.
fn content(stream: &mut UnixStream, name: &str) -> Result<Vec<u8>, Failure> {
    let reply = ask(stream, 0, path(name), Operation::Read { offset: 0, len: 1 << 19 });
    assert_eq!(reply.more, None);
    let mut bytes = Vec::new();
    for record in reply.records {
        match record {
            Record::Data { offset, bytes: part } => {
                bytes.resize(offset as usize, 0);
                bytes.extend_from_slice(&part);
            }
            Record::Failed { failure, .. } => return Err(failure),
            _ => {}
        }
    }
    reply.failure.map_or(Ok(bytes), Err)
}

fn ready(name: &str) -> bool {
    needs::mounts(name, &["mkfs.ext4", "losetup", "mount", "umount"])
}

/// What the host writes for everybody, and for its owner alone.
const PUBLIC: u8 = b'P';
const SECRET: &[u8] = b"SECRET\n";

/// Somebody's questions about a volume: no byte of the secret in any answer. How often the public file was
/// there.
fn look(stream: &mut UnixStream) -> usize {
    const NOBODY: u32 = 65534;
    let read = Operation::Read { offset: 0, len: 1 << 19 };
    let search = Operation::Search(SearchOptions {
        patterns: vec![SECRET[..6].to_vec()],
        fixed: true,
        text: true,
        answer: Answer::Lines,
        ..SearchOptions::default()
    });
    let tree = Target::Tree { root: b"/".to_vec(), include: vec![], exclude: vec![], max_depth: u32::MAX };
    let mut there = 0;
    for (target, operation) in [(path("public"), &read), (path("public"), &search), (tree, &search)] {
        let reply = ask(stream, NOBODY, target, operation.clone());
        assert!(
            matches!(
                reply.failure,
                None | Some(Failure::NotFound | Failure::ChangedDuringScan | Failure::PermissionDenied)
            ),
            "{:?}",
            reply.failure
        );
        for record in reply.records {
            match record {
                Record::Data { bytes, offset } => {
                    // A commit in the middle of its write-back: extents not yet written, which read as zeros.
                    let foreign = bytes.iter().find(|b| ![PUBLIC, 0].contains(b));
                    assert_eq!(foreign, None, "the public file has other bytes at {offset}");
                    there += usize::from(bytes.first() == Some(&PUBLIC));
                }
                Record::Line { .. } => panic!("a line of the secret file: {record:?}"),
                _ => {}
            }
        }
    }
    there
}

#[test]
fn nobody_is_shown_what_another_file_has_in_blocks_that_were_freed() {
    const NAME: &str = "root_near_data::nobody_is_shown_what_another_file_has_in_blocks_that_were_freed";
    const FILE: usize = 3 << 19;
    if !ready(NAME) {
        return;
    }
    let rounds = std::env::var("NEARSIDE_REUSE_ROUNDS").ok().map_or(40, |n| n.parse().unwrap());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (drive_at, volume_at) = (dir.path().join("drive"), dir.path().join("volume"));
    fs::create_dir(&drive_at).unwrap();
    fs::create_dir(&volume_at).unwrap();
    let store = AnyStore::open("dram:4M", FileOptions::serve()).unwrap();
    let drive = Loopback::threaded(store, firmware(), Config::default(), Rest::default()).unwrap();
    let attached = attach(drive.function.clone(), &AttachOptions::new(&drive_at)).unwrap();
    // Either file takes more than half of it: blocks of the one become the other's. No free block has zeros.
    fs::write(attached.file(), SECRET.repeat((4 << 20) / SECRET.len())).unwrap();
    must(
        tool("mkfs.ext4")
            .args(["-q", "-F", "-E", "nodiscard", "-b", "1024", "-J", "size=1"])
            .arg(attached.file()),
    );
    let mounted = Mounted::new(&["-o", "loop"], &attached.file(), &volume_at);
    let (public, secret) = (volume_at.join("public"), volume_at.join("secret"));
    let (done, mut stream) = (AtomicBool::new(false), UnixStream::connect(attached.socket()).unwrap());
    let (there, looks) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let (mut there, mut looks) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                there += look(&mut stream);
                looks += 1;
            }
            (there, looks)
        });
        // Commits fall into every stage of what the other one does.
        let other = scope.spawn(|| {
            let mut file = fs::File::create(volume_at.join("other")).unwrap();
            while !done.load(Ordering::Relaxed) {
                file.write_all(b"x").unwrap();
                file.sync_all().unwrap();
            }
        });
        let host = scope.spawn(|| {
            let write = |at: &Path, mode: u32, bytes: &[u8]| {
                let open = fs::OpenOptions::new().write(true).create(true).mode(mode).open(at);
                let mut file = open.unwrap();
                file.write_all(bytes).unwrap();
                file.sync_all().unwrap();
            };
            // The blocks are free when that is committed.
            let remove = |at: &Path| {
                fs::remove_file(at).unwrap();
                fs::File::open(&volume_at).unwrap().sync_all().unwrap();
            };
            for _ in 0..rounds {
                write(&public, 0o644, &vec![PUBLIC; FILE]);
                remove(&public);
                write(&secret, 0o600, &SECRET.repeat(FILE / SECRET.len()));
                remove(&secret);
            }
        });
        let host = host.join();
        done.store(true, Ordering::Relaxed);
        host.unwrap();
        other.join().unwrap();
        looking.join().unwrap()
    });
    assert!(there > 0 && looks > 0, "the public file was seen {there} times in {looks} looks");
    drop(mounted);
    volume::detach(attached, Attached::detach).unwrap();
}

#[test]
fn the_drive_sees_what_the_live_host_has_synced() {
    const NAME: &str = "root_near_data::the_drive_sees_what_the_live_host_has_synced";
    if !ready(NAME) {
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (image, drive_at, volume_at) =
        (dir.path().join("disk.img"), dir.path().join("drive"), dir.path().join("volume"));
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(&drive_at).unwrap();
    fs::create_dir(&volume_at).unwrap();
    let store = AnyStore::open(image.to_str().unwrap(), FileOptions::serve()).unwrap();
    let drive = Loopback::threaded(store, firmware(), Config::default(), Rest::default()).unwrap();
    let attached = attach(drive.function.clone(), &AttachOptions::new(&drive_at)).unwrap();
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(attached.file()));
    let mounted = Mounted::new(&["-o", "loop"], &attached.file(), &volume_at);
    let mut stream = UnixStream::connect(attached.socket()).unwrap();

    let mut rng = Rng(3);
    let mut live: Vec<String> = Vec::new();
    let mut gone: Vec<String> = Vec::new();
    fs::create_dir(volume_at.join("dir")).unwrap();
    for round in 0..100u64 {
        for n in 0..4 {
            let at = rng.below(live.len() as u64 + 1) as usize;
            match (rng.below(5), live.get(at).cloned()) {
                (0, Some(name)) => {
                    fs::remove_file(volume_at.join(&name)).unwrap();
                    gone.push(live.swap_remove(at));
                }
                (1, Some(name)) => {
                    let new = format!("dir/renamed{round}-{n}");
                    fs::rename(volume_at.join(&name), volume_at.join(&new)).unwrap();
                    gone.push(std::mem::replace(&mut live[at], new));
                }
                (2, Some(name)) => {
                    let mut file = fs::OpenOptions::new().append(true).open(volume_at.join(name)).unwrap();
                    file.write_all(&vec![round as u8; rng.below(20_000) as usize]).unwrap();
                }
                _ => {
                    let name = format!("{}f{round}-{n}", if n % 2 == 0 { "dir/" } else { "" });
                    fs::write(volume_at.join(&name), vec![n as u8 + 65; rng.below(100_000) as usize])
                        .unwrap();
                    live.push(name);
                }
            }
        }
        // Everything at home: committed, and what the commits left dirty on the block device written.
        must(tool("sync").arg("-f").arg(&volume_at));
        for name in &live {
            let seen = content(&mut stream, name);
            let bytes = fs::read(volume_at.join(name)).unwrap();
            assert!(seen.as_ref() == Ok(&bytes), "round {round}, {name}: {:?}", seen.map(|b| b.len()));
        }
        for name in &gone {
            assert_eq!(content(&mut stream, name), Err(Failure::NotFound), "round {round}, {name}");
        }
    }
    // Whose file it is counts, for whoever may ask in another's name.
    let name = &live[0];
    fs::set_permissions(volume_at.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    must(tool("sync").arg("-f").arg(&volume_at));
    let reply = ask(&mut stream, 1000, path(name), Operation::Read { offset: 0, len: 10 });
    let failed = |r: &Record| matches!(r, Record::Failed { failure: Failure::PermissionDenied, .. });
    assert!(
        reply.failure == Some(Failure::PermissionDenied) || reply.records.iter().any(failed),
        "{reply:?}"
    );
    drop(mounted);
    volume::detach(attached, Attached::detach).unwrap();
}
