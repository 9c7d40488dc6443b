//! The loop device that an attachment makes, and what becomes of both when something ends them from outside,
//! with requests in flight. Needs root.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use nearside_conformance::needs;
use nearside_conformance::volume::{self, Mounted, must, tool};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::IoBuffer;
use nearside_dma::system::Termination;
use nearside_driver::Threaded;
use nearside_embedded::{AnyStore, Loopback};
use nearside_front_fuse::{AttachError, AttachOptions, Attached, Carrier, Transport, attach};
use nearside_store::FileOptions;

const BYTES: u64 = 32 << 20;

/// Runs a test by each way in which requests come from the kernel.
fn by_each_way(name: &str, tools: &[&str], test: impl Fn(Transport)) {
    if !needs::mounts(name, tools) {
        return;
    }
    test(Transport::Classic);
    if let Some(_on) = needs::fuse_uring(name) {
        test(Transport::Uring);
    }
}

struct Serving {
    attached: Attached,
    _drive: Loopback<AnyStore, (), Threaded>,
    /// Where nothing is left behind, whatever happens.
    _mount: Mounted,
    _place: tempfile::TempDir,
}

fn serve(store: &str, transport: Transport, looped: bool) -> Serving {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = place.path().join("drive");
    fs::create_dir(&at).unwrap();
    let store = AnyStore::open(store, FileOptions::serve()).unwrap();
    let drive = Loopback::threaded(store, (), Config::default(), Rest::default()).unwrap();
    let options = AttachOptions { transport, looped, ..AttachOptions::new(&at) };
    let mount = Mounted::of_another(at);
    let attached = attach(drive.function.clone(), &options).unwrap();
    assert_eq!(matches!(attached.carrier(), Carrier::Uring { .. }), transport == Transport::Uring);
    Serving { attached, _drive: drive, _mount: mount, _place: place }
}

/// Opened past the kernel's cache.
fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

fn backing_of(device: &Path) -> String {
    let name = device.file_name().unwrap().to_string_lossy().into_owned();
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default()
}

#[test]
fn a_loop_device_comes_and_goes_with_it() {
    let tools = ["fio", "blkdiscard", "umount"];
    by_each_way("root_loop::a_loop_device_comes_and_goes_with_it", &tools, comes_and_goes);
}

fn comes_and_goes(transport: Transport) {
    let serving = serve(&format!("dram:{BYTES}"), transport, true);
    let device = serving.attached.loop_device().unwrap().to_owned();
    let file = serving.attached.file();
    assert_eq!(backing_of(&device).trim(), file.to_str().unwrap());
    // Without a cache of its own: what was written to the one is in the other.
    let data = |byte| {
        let mut buffer = IoBuffer::new(4096).unwrap();
        buffer.fill(byte);
        buffer
    };
    let (disk, plain) = (direct(&device), File::open(&file).unwrap());
    disk.write_all_at(&data(7), 8192).unwrap();
    let mut bytes = [0; 4096];
    plain.read_exact_at(&mut bytes, 8192).unwrap();
    assert!(bytes == [7; 4096]);
    // Several jobs, each with many in flight.
    let shape = ["--name=v", "--direct=1", "--bsrange=512-64k", "--blockalign=512", "--size=7m"];
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--allow_file_create=0"];
    let jobs = ["--ioengine=libaio", "--iodepth=16", "--numjobs=4", "--offset_increment=8m", "--rw=randrw"];
    must(tool("fio").args(shape).args(verify).args(jobs).arg(format!("--filename={}", device.display())));
    // Discard and zeroes.
    for zeroes in [&[][..], &["--zeroout"]] {
        disk.write_all_at(&data(9), 1 << 20).unwrap();
        must(
            tool("blkdiscard")
                .args(["-f", "--offset", "1048576", "--length", "2097152"])
                .args(zeroes)
                .arg(&device),
        );
        let mut back = data(1);
        disk.read_exact_at(&mut back, 1 << 20).unwrap();
        assert!(back.iter().all(|byte| *byte == 0), "{zeroes:?}");
    }
    // Held by somebody else: it does not end, and goes on.
    let Serving { attached, .. } = serving;
    let (error, attached) = attached.detach().expect_err("detached in use");
    assert!(matches!(error, AttachError::Busy(_)), "{error}");
    disk.write_all_at(&data(8), 0).unwrap();
    drop((disk, plain));
    volume::detach(*attached, Attached::detach).unwrap();
    // The device may be somebody else's by now.
    assert_ne!(backing_of(&device).trim(), file.to_str().unwrap());
    assert!(!file.exists());
}

/// Reads and writes until an error comes; what they were.
fn busy(path: &Path, done: &Arc<AtomicU64>) -> Vec<JoinHandle<std::io::Error>> {
    let work = |nth: u64| {
        let (file, done) = (direct(path), done.clone());
        move || {
            let mut buffer = IoBuffer::new(4096).unwrap();
            for round in 0.. {
                let at = (nth * 64 + round % 64) * 4096;
                let result = match round % 2 {
                    0 => file.write_all_at(&buffer, at),
                    _ => file.read_exact_at(&mut buffer, at),
                };
                match result {
                    Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                    Err(e) => return e,
                };
            }
            unreachable!("a round beyond all")
        }
    };
    (0..8).map(|nth| std::thread::spawn(work(nth))).collect()
}

#[test]
fn a_connection_that_is_ended_from_outside_ends_it() {
    let name = "root_loop::a_connection_that_is_ended_from_outside_ends_it";
    by_each_way(name, &["umount", "mount"], |transport| {
        for looped in [false, true] {
            for force in [false, true] {
                ended_from_outside(transport, looped, force);
            }
        }
    });
}

fn ended_from_outside(transport: Transport, looped: bool, force: bool) {
    let serving = serve(&format!("model:optane-prototype:{BYTES}"), transport, looped);
    let termination = Termination::new().unwrap();
    let file = serving.attached.file();
    let path = serving.attached.loop_device().map_or_else(|| file.clone(), Path::to_owned);
    let at = file.parent().unwrap();
    let connection = minor(fs::metadata(at).unwrap().dev());
    let done = Arc::new(AtomicU64::new(0));
    let threads = busy(&path, &done);
    while done.load(Ordering::Relaxed) < 200 {
        std::thread::yield_now();
    }
    let Serving { attached, _drive, _mount, _place } = serving;
    let wait = std::thread::spawn(move || attached.wait(termination));
    // Who is busy with it closes it once the connection has ended, which may be before umount looks.
    let _held = File::open(&file).unwrap();
    if force {
        // In use, it is not unmounted; but its connection ends.
        let _ = tool("umount").arg("-f").arg(at).output().unwrap();
    } else {
        let control = Mounted::new(&["-t", "fusectl"], Path::new("none"), &_place.path().join("control"));
        fs::write(control.path().join(connection.to_string()).join("abort"), "1").unwrap();
        control.end();
    }
    let error = wait.join().unwrap().expect_err("it ended as if nothing were");
    assert!(matches!(error, AttachError::Aborted(_)), "{error}");
    for thread in threads {
        let error = thread.join().unwrap();
        assert!(error.raw_os_error().is_some(), "{error}");
    }
    assert_eq!(fs::read_dir(at).unwrap().count(), 0, "a mount was left behind");
    if looped {
        assert_ne!(backing_of(&path).trim(), file.to_str().unwrap());
    }
}

fn minor(device: u64) -> u64 {
    device & 0xff | device >> 12 & 0xfff_ff00
}

#[test]
fn a_volume_is_mounted_and_unmounted_with_it() {
    let tools = ["mkfs.ext4", "mount", "umount", "e2fsck"];
    by_each_way("root_loop::a_volume_is_mounted_and_unmounted_with_it", &tools, with_a_volume);
}

fn with_a_volume(transport: Transport) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = |name: &str| -> PathBuf { place.path().join(name) };
    File::create(at("disk.img")).unwrap().set_len(BYTES).unwrap();
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(at("disk.img")));
    let open = || AnyStore::open(at("disk.img").to_str().unwrap(), FileOptions::serve()).unwrap();
    fs::create_dir(at("drive")).unwrap();
    fs::create_dir(at("volume")).unwrap();
    let _mounts = (Mounted::of_another(at("volume")), Mounted::of_another(at("drive")));
    for round in 0..2 {
        let drive = Loopback::threaded(open(), (), Config::default(), Rest::default()).unwrap();
        let volume = Some(at("volume"));
        let options = AttachOptions { transport, volume, ..AttachOptions::new(at("drive")) };
        let attached = attach(drive.function.clone(), &options).unwrap();
        let device = attached.loop_device().unwrap().to_owned();
        let file = at("volume").join("file");
        if round == 0 {
            fs::write(&file, "kept").unwrap();
        }
        let held = File::open(&file).unwrap();
        let (error, attached) = attached.detach().expect_err("detached in use");
        assert!(matches!(&error, AttachError::Busy(path) if path.ends_with("volume")), "{error}");
        drop(held);
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        volume::detach(*attached, Attached::detach).unwrap();
        assert!(!file.exists());
        assert!(!backing_of(&device).contains(place.path().to_str().unwrap()));
    }
    must(tool("e2fsck").args(["-f", "-n"]).arg(at("disk.img")));
    // What is no volume is not mounted, and nothing is left behind.
    File::create(at("disk.img")).unwrap().set_len(BYTES).unwrap();
    let drive = Loopback::threaded(open(), (), Config::default(), Rest::default()).unwrap();
    let options = AttachOptions { transport, volume: Some(at("volume")), ..AttachOptions::new(at("drive")) };
    let error = attach(drive.function.clone(), &options).err().expect("nothing was mounted");
    assert!(matches!(error, AttachError::Looped(..)), "{error}");
    assert_eq!(fs::read_dir(at("drive")).unwrap().count(), 0);
}
