//! A drive in a sparse file on a file system that is full:
//! what finds no room fails with that error, and nothing else is worse for it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, ext, must};
use nearside_driver::{Command, Failure};
use nearside_spec::Status;
use nearside_store::{Access, Backend, FileOptions, Operation, Store, StoreError};

use crate::Server;
use crate::failed_sync::{Host, run};

/// A tmpfs and an ext4, each in its own folder.
fn small(test: &str, folder: &Path) -> Option<Vec<Mounted>> {
    if !needs::root(test) || !needs::tools(test, &["mount", "umount", "mke2fs"]) {
        return None;
    }
    if !Path::new("/dev/loop-control").exists() {
        needs::left_out(test, "no /dev/loop-control");
        return None;
    }
    let image = folder.join("ext4.img");
    ext(&image, 16, None, &["-t", "ext4"]);
    let tmpfs = ["-t", "tmpfs", "-o", "size=4m"];
    Some(vec![
        Mounted::new(&tmpfs, Path::new("none"), &folder.join("tmpfs")),
        Mounted::new(&["-o", "loop"], &image, &folder.join("ext4")),
    ])
}

/// A sparse file of 64 MiB whose first MiB has its room, and nothing else any; the file that takes the rest.
fn fill(mount: &Mounted) -> (String, std::path::PathBuf) {
    let (disk, ballast) = (mount.path().join("disk.img"), mount.path().join("ballast"));
    let mut file = File::create(&disk).unwrap();
    file.write_all(&vec![1; 1 << 20]).unwrap();
    file.set_len(64 << 20).unwrap();
    file.sync_all().unwrap();
    let mut file = File::create(&ballast).unwrap();
    for piece in [1 << 16, 1 << 12] {
        let full = loop {
            match file.write_all(&vec![2; piece]).and_then(|()| file.sync_data()) {
                Ok(()) => {}
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    }
    (disk.to_str().unwrap().to_owned(), ballast)
}

/// A tmpfs knows no zeroes with room of their own: they become a hole.
fn zeroes_take_room(mount: &Mounted) -> bool {
    mount.path().ends_with("ext4")
}

/// An LBA in the part without room.
const FAR: u64 = (32 << 20) / 512;

#[test]
fn a_host_of_a_full_disk_is_told_so_and_flushes_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let test = "root_server::full_disk::a_host_of_a_full_disk_is_told_so_and_flushes_as_before";
    for mount in small(test, folder.path()).into_iter().flatten() {
        for kind in ["file", "pmem"] {
            let (disk, ballast) = fill(&mount);
            tells_its_host(&mount, &format!("{kind}:{disk}"), &ballast, &folder.path().join("control"));
            fs::remove_file(disk).unwrap();
        }
    }
}

/// A server on a store that has no room, until the ballast is gone.
fn tells_its_host(mount: &Mounted, store: &str, ballast: &Path, control: &Path) {
    let control = control.display().to_string();
    let server = Server::of(store, &["--control", &control]);
    let status = || {
        let mut ask = std::process::Command::new(env!("CARGO_BIN_EXE_nearside"));
        let said = must(ask.args(["status", "--control", &control]));
        String::from_utf8(said.stdout).unwrap()
    };
    let mut host = Host::new(server.port);
    let bytes = || Some(vec![7; 4096]);
    assert!(!status().contains("failed, the last"), "{}", status());
    assert_eq!((host.write(3), host.flush()), (Ok(()), Ok(())));
    for round in 0..3 {
        let zeroes = (Command::write_zeroes(1, FAR + round * 8, 8).fua(), None);
        for (command, data) in [
            (Command::write(1, FAR + round * 8, 8).fua(), bytes()),
            (Command::write(1, FAR + round * 8, 8), bytes()),
        ]
        .into_iter()
        .chain(zeroes_take_room(mount).then_some(zeroes))
        {
            let ended = host.run(command, data).map(drop);
            assert!(
                matches!(ended, Err(Failure::Status(s)) if s.code() == Status::CAPACITY_EXCEEDED),
                "{}: {ended:?}",
                mount.path().display()
            );
            assert_eq!((host.flush(), host.write(round as u8), host.flush()), (Ok(()), Ok(()), Ok(())));
        }
    }
    let told = status();
    assert!(told.contains("of its store failed, the last so: write"), "{told}");
    assert!(told.contains("found no room: No space left on device"), "{told}");
    assert_eq!(host.run(Command::write(1, 16, 8).fua(), bytes()).map(drop), Ok(()), "where there is room");
    fs::remove_file(ballast).unwrap();
    assert_eq!(host.run(Command::write(1, FAR, 8).fua(), bytes()).map(drop), Ok(()), "there is room again");
    assert_eq!(host.flush(), Ok(()));
    drop(host);
    let (status, said) = server.stop();
    // Operators hear of it; nothing is given up.
    assert!(status.success() && said.contains("storage is full"), "{status}: {said}");
    assert!(said.lines().all(|line| line.contains(" WARN ")), "{said}");
}

#[test]
fn a_mapped_store_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let test = "root_server::full_disk::a_mapped_store_on_a_full_disk";
    for mount in small(test, folder.path()).into_iter().flatten() {
        let (disk, ballast) = fill(&mount);
        let store = nearside_store::Pmem::open(&disk, FileOptions::serve()).unwrap();
        let [mut one, mut two] = [0, 1].map(|_| store.channel(Default::default()).unwrap());
        let (offset, len) = (FAR * 512, 4096);
        for fua in [true, false, true] {
            let write = Operation::Write { offset, len, fua };
            let near = Operation::Write { offset: 4096, len, fua };
            for operation in [write, Operation::WriteZeroes { offset, len, fua }] {
                let ended = run(&mut one, operation);
                let place = mount.path().display();
                assert!(matches!(ended, Err(StoreError::Full { .. })), "{place} {operation:?}: {ended:?}");
                for channel in [&mut one, &mut two] {
                    assert_eq!((run(channel, near), run(channel, Operation::Flush)), (Ok(()), Ok(())));
                }
            }
        }
        fs::remove_file(ballast).unwrap();
        assert_eq!(run(&mut two, Operation::Write { offset, len, fua: true }), Ok(()));
    }
}

#[test]
fn a_file_store_on_a_full_disk_by_every_backend() {
    let folder = tempfile::tempdir().unwrap();
    let test = "root_server::full_disk::a_file_store_on_a_full_disk_by_every_backend";
    for mount in small(test, folder.path()).into_iter().flatten() {
        let (disk, _ballast) = fill(&mount);
        for backend in [Backend::Uring, Backend::Positioned] {
            for access in [Access::Serve, Access::ServeBuffered] {
                let options = FileOptions { access, backend: Some(backend), ..FileOptions::serve() };
                let store = nearside_store::File::open(&disk, options).unwrap();
                let mut channel = match store.channel(Default::default()) {
                    Ok(channel) => channel,
                    Err(e) if backend == Backend::Uring => {
                        eprintln!("io_uring: {e}");
                        continue;
                    }
                    Err(e) => panic!("{e}"),
                };
                for fua in [true, false, true] {
                    let (offset, len) = (FAR * 512, 4096);
                    let zeroes = Operation::WriteZeroes { offset, len, fua };
                    let write = Operation::Write { offset, len, fua };
                    for operation in [write].into_iter().chain(zeroes_take_room(&mount).then_some(zeroes)) {
                        let ended = run(&mut channel, operation);
                        assert!(
                            matches!(ended, Err(StoreError::Full { .. })),
                            "{} {backend:?} {access:?} {operation:?}: {ended:?}",
                            mount.path().display()
                        );
                        assert_eq!(run(&mut channel, Operation::Flush), Ok(()));
                    }
                }
            }
        }
    }
}
