//! A live host on an attached drive: the kernel's ext4 through FUSE and a loop device. Needs root.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::{self, Mounted, must, tool};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::system::Termination;
use nearside_driver::Threaded;
use nearside_embedded::{AnyStore, Loopback};
use nearside_front_fuse::{AttachError, AttachOptions, Attached, Carrier, Transport, attach};
use nearside_store::FileOptions;

struct TestFolder {
    dir: tempfile::TempDir,
    image: PathBuf,
}

impl TestFolder {
    /// A folder with an image of so many bytes, a mount point for the drive and one for the volume.
    fn new(bytes: u64) -> TestFolder {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let image = dir.path().join("disk.img");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        fs::create_dir(dir.path().join("drive")).unwrap();
        fs::create_dir(dir.path().join("volume")).unwrap();
        TestFolder { dir, image }
    }

    fn drive(&self) -> PathBuf {
        self.dir.path().join("drive")
    }

    fn volume(&self) -> PathBuf {
        self.dir.path().join("volume")
    }
}

/// A drive and its attachment; the attachment ends first.
struct Serving {
    attached: Option<Attached>,
    _drive: Loopback<AnyStore, (), Threaded>,
}

impl Serving {
    fn start(place: &TestFolder, transport: Transport) -> Serving {
        let store = AnyStore::open(place.image.to_str().unwrap(), FileOptions::serve()).unwrap();
        let drive = Loopback::threaded(store, (), Config::default(), Rest::default()).unwrap();
        let options = AttachOptions { transport, ..AttachOptions::new(place.drive()) };
        let attached = attach(drive.function.clone(), &options).unwrap();
        assert_eq!(matches!(attached.carrier(), Carrier::Uring { .. }), transport == Transport::Uring);
        Serving { attached: Some(attached), _drive: drive }
    }

    fn attached(&self) -> &Attached {
        self.attached.as_ref().unwrap()
    }

    fn detach(mut self) {
        volume::detach(self.attached.take().unwrap(), Attached::detach).unwrap();
    }
}

/// Writes a tree of files whose contents follow from their names.
fn write_tree(root: &Path, seed: u64) {
    for n in 0..400u64 {
        let dir = root.join(format!("d{}", n % 7)).join(format!("e{}", n % 5));
        fs::create_dir_all(&dir).unwrap();
        let len = (n * 7919 + seed) % 50_000;
        let bytes: Vec<u8> = (0..len).map(|i| (i ^ n ^ seed).wrapping_mul(0x9e37) as u8).collect();
        fs::write(dir.join(format!("f{n}")), bytes).unwrap();
    }
    for n in (0..400u64).step_by(3) {
        fs::remove_file(root.join(format!("d{}", n % 7)).join(format!("e{}", n % 5)).join(format!("f{n}")))
            .unwrap();
    }
    fs::rename(root.join("d1"), root.join("renamed")).unwrap();
}

/// All files below a folder.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn ready(name: &str, tools: &[&str]) -> bool {
    needs::root(name) && needs::tools(name, tools) && needs::fuse(name)
}

/// Runs a test by each way in which requests come from the kernel.
fn by_each_way(name: &str, tools: &[&str], test: impl Fn(Transport)) {
    if !ready(name, tools) {
        return;
    }
    test(Transport::Classic);
    if let Some(_on) = needs::fuse_uring(name) {
        test(Transport::Uring);
    }
}

#[test]
fn a_live_host_keeps_a_volume_on_it() {
    by_each_way(
        "root_attach::a_live_host_keeps_a_volume_on_it",
        &["mkfs.ext4", "e2fsck", "losetup", "mount", "fstrim"],
        keeps_a_volume,
    );
}

fn keeps_a_volume(transport: Transport) {
    let place = TestFolder::new(128 << 20);
    let serving = Serving::start(&place, transport);
    let file = serving.attached().file();
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(&file));
    let volume = Mounted::new(&["-o", "loop,rw"], &file, &place.volume());
    write_tree(&place.volume(), 1);
    let written = tree(&place.volume());
    assert!(written.len() > 200);
    must(tool("fstrim").arg(place.volume()));
    volume.end();
    must(tool("e2fsck").args(["-f", "-n"]).arg(&file));
    let volume = Mounted::new(&["-o", "loop,ro"], &file, &place.volume());
    assert!(tree(&place.volume()) == written, "another tree after a second mount");
    // In use: it does not end, and goes on.
    let mut serving = serving;
    let (error, attached) = serving.attached.take().unwrap().detach().expect_err("detached in use");
    assert!(matches!(error, AttachError::Busy(_)), "{error}");
    serving.attached = Some(*attached);
    assert!(tree(&place.volume()) == written);
    volume.end();
    serving.detach();
    assert!(!file.exists(), "the mount is still there");
    // Without the drive: the image is the volume.
    must(tool("e2fsck").args(["-f", "-n"]).arg(&place.image));
    let volume = Mounted::new(&["-o", "loop,ro"], &place.image, &place.volume());
    assert!(tree(&place.volume()) == written, "another tree on the image");
    volume.end();
}

const SERVE: &str = "NEARSIDE_TEST_SERVE";
/// Set: by io_uring.
const BY_RING: &str = "NEARSIDE_TEST_BY_RING";

/// Not a test: the process that the crash test kills. It does nothing unless it is told a folder.
#[test]
fn serves_when_told() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let termination = Termination::new().unwrap();
    let dir = PathBuf::from(dir);
    let store = AnyStore::open(dir.join("disk.img").to_str().unwrap(), FileOptions::serve()).unwrap();
    let drive = Loopback::threaded(store, (), Config::default(), Rest::default()).unwrap();
    let transport = std::env::var_os(BY_RING).map_or(Transport::Classic, |_| Transport::Uring);
    let options = AttachOptions { transport, ..AttachOptions::new(dir.join("drive")) };
    let attached = attach(drive.function.clone(), &options).unwrap();
    println!("\nserving");
    attached.wait(termination).unwrap();
    println!("\nended");
}

/// A process that serves a drive, killed when dropped.
struct Process(Child, BufReader<std::process::ChildStdout>);

impl Process {
    fn start(place: &TestFolder, transport: Transport) -> Process {
        // The signals that it waits for are blocked in all of its threads, the test harness's own as well.
        let mut command = Command::new("env");
        if transport == Transport::Uring {
            command.env(BY_RING, "1");
        }
        let mut child = command
            .arg("--block-signal=INT,TERM,HUP")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "serves_when_told", "--nocapture", "--test-threads=1"])
            .env(SERVE, place.dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process(child, out);
        process.says("serving");
        process
    }

    /// Waits for a line.
    fn says(&mut self, what: &str) {
        let mut line = String::new();
        while line.trim() != what {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "it ended before it said {what:?}");
        }
    }

    fn signal(&self, name: &str) {
        must(tool("kill").arg(format!("-{name}")).arg(self.0.id().to_string()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_was_synced_survives_the_drives_death() {
    by_each_way(
        "root_attach::what_was_synced_survives_the_drives_death",
        &["mkfs.ext4", "e2fsck", "losetup", "mount"],
        survives_the_drives_death,
    );
}

fn survives_the_drives_death(transport: Transport) {
    let place = TestFolder::new(64 << 20);
    let _drive_mount = Mounted::of_another(place.drive());
    let mut process = Process::start(&place, transport);
    let file = place.drive().join(nearside_front_fuse::FILE_NAME);
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(&file));
    let volume = Mounted::new(&["-o", "loop,rw"], &file, &place.volume());
    let mut expected = BTreeMap::new();
    for n in 0..40u8 {
        let path = place.volume().join(format!("file{n}"));
        let mut file = fs::File::create(&path).unwrap();
        let bytes = vec![n; 10_000 + usize::from(n)];
        file.write_all(&bytes).unwrap();
        if n % 2 == 0 {
            file.sync_all().unwrap();
            expected.insert(format!("file{n}"), bytes);
        }
    }
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    drop(volume);
    drop(_drive_mount);
    // The lock of the dead process is gone, its socket is replaced; ext4 recovers from its journal.
    let serving = Serving::start(&place, transport);
    let file = serving.attached().file();
    let volume = Mounted::new(&["-o", "loop,rw"], &file, &place.volume());
    for (name, bytes) in &expected {
        assert!(fs::read(place.volume().join(name)).unwrap() == *bytes, "{name}");
    }
    volume.end();
    must(tool("e2fsck").args(["-f", "-n"]).arg(&file));
    serving.detach();
}

#[test]
fn a_signal_ends_it() {
    by_each_way("root_attach::a_signal_ends_it", &["kill", "umount"], ends_by_a_signal);
}

fn ends_by_a_signal(transport: Transport) {
    let place = TestFolder::new(4 << 20);
    let _drive_mount = Mounted::of_another(place.drive());
    for signal in ["TERM", "INT"] {
        let mut process = Process::start(&place, transport);
        process.signal(signal);
        process.says("ended");
        assert!(!place.drive().join(nearside_front_fuse::FILE_NAME).exists());
        assert!(!nearside_front_fuse::default_socket(&place.drive()).exists());
    }
    // So does umount; and a signal in use is refused once.
    let mut process = Process::start(&place, transport);
    must(tool("umount").arg(place.drive()));
    process.says("ended");
    let mut process = Process::start(&place, transport);
    let held = fs::File::open(place.drive().join(nearside_front_fuse::FILE_NAME)).unwrap();
    process.signal("TERM");
    process.signal("INT");
    process.says("ended");
    drop(held);
}

#[test]
fn the_file_is_a_disk() {
    by_each_way("root_attach::the_file_is_a_disk", &["umount"], is_a_disk);
}

fn is_a_disk(transport: Transport) {
    const BYTES: usize = 1 << 20;
    let place = TestFolder::new(BYTES as u64);
    let serving = Serving::start(&place, transport);
    let path = serving.attached().file();
    assert_eq!(fs::metadata(&path).unwrap().len(), BYTES as u64);
    assert_eq!(fs::read_dir(place.drive()).unwrap().count(), 1);
    assert!(fs::File::create(place.drive().join("other")).is_err());
    assert!(fs::remove_file(&path).is_err());
    // Opened with truncation, as cp and dd do it: a disk keeps its size.
    let file = fs::OpenOptions::new().read(true).write(true).truncate(true).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), BYTES as u64);
    file.write_all_at(b"kept", 12_345).unwrap();
    // Past the end.
    assert_eq!(file.read_at(&mut [0; 100], BYTES as u64 + 5).unwrap(), 0);
    assert_eq!(file.write_at(&[1], BYTES as u64).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    file.sync_all().unwrap();

    // One drive at a time.
    let second = AnyStore::open(place.image.to_str().unwrap(), FileOptions::serve());
    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    drop(file);
    serving.detach();
    let image = fs::read(&place.image).unwrap();
    assert_eq!(&image[12_345..12_349], b"kept");
    assert!(image.iter().filter(|b| **b != 0).count() == 4);
}

#[test]
fn fio_verifies() {
    by_each_way("root_attach::fio_verifies", &["fio", "umount"], verifies);
}

fn verifies(transport: Transport) {
    let place = TestFolder::new(64 << 20);
    let serving = Serving::start(&place, transport);
    let file = serving.attached().file();
    for (engine, rw) in [("psync", "randwrite"), ("libaio", "randrw")] {
        must(
            tool("fio")
                .current_dir(place.dir.path())
                .args([
                    "--name=verify",
                    "--direct=1",
                    "--bsrange=512-64k",
                    "--blockalign=512",
                    "--size=32m",
                    "--iodepth=16",
                ])
                .args([
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--numjobs=1",
                    "--randseed=42",
                    "--fsync=64",
                    "--verify_state_save=0",
                    "--allow_file_create=0",
                ])
                .args([
                    format!("--rw={rw}"),
                    format!("--ioengine={engine}"),
                    format!("--filename={}", file.display()),
                ]),
        );
    }
    serving.detach();
}
