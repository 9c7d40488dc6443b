//! Persistent memory that a drive shares with programs that know nothing of it: those of libpmem on this
//! machine, and a stock Linux that has a drive's bytes as QEMU's nvdimm (fsdax with MAP_SYNC, and Device-DAX)
//! while the drive is searched from below. Needs root, FUSE, libpmem; the guest QEMU, ndctl, fio, a network
//! for the first time.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nearside_conformance::needs;
use serde_json::Value;

#[path = "stock_linux/guest.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod guest;

use guest::Guest;

/// The nvdimm, at whose end are 2 MiB of labels.
const BYTES: u64 = 130 << 20;
/// Where a namespace's data begin whose page structures are in the guest's memory.
const DATA: u64 = 2 << 20;
/// What one side stores and the other reads.
const PART: usize = 2 << 20;
/// Files that are asked for while the guest writes more.
const FILES: u32 = 10;

/// What writes in the guest: each file is named when it is whole and durable, and stays.
const WRITER: &str = "
import os, time
folder = os.open('/mnt/a', os.O_RDONLY)
n = 0
while not os.path.exists('/tmp/stop'):
    if n == 1000:
        time.sleep(0.1)
        continue
    n += 1
    with open('/mnt/a/new', 'w') as file:
        file.write(f'{n}\\n' * 5000)
        file.flush()
        os.fsync(file.fileno())
    os.rename('/mnt/a/new', f'/mnt/a/f{n}')
    os.fsync(folder)
print(n)
";

fn nearside(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.current_dir(folder).env_remove("NEARSIDE_DRIVE").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// A drive that runs; ended by SIGTERM when dropped.
struct Drive {
    child: Child,
    _out: BufReader<ChildStdout>,
}

impl Drive {
    /// It runs when it has printed a line that begins with `ready`.
    fn start(command: &mut Command, ready: &str) -> Drive {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with(ready) {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "{command:?} ended: {:?}", child.wait());
        }
        Drive { child, _out: out }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// Asks the drive at a socket in the folder.
fn ask(folder: &Path, socket: &str, arguments: &[&str]) -> Output {
    let (command, rest) = arguments.split_first().unwrap();
    nearside(folder).args([command, "-d", socket]).args(rest).output().unwrap()
}

fn answer(folder: &Path, arguments: &[&str]) -> String {
    let output = ask(folder, "unix:near.sock", arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A program that stores one byte everywhere in a file by libpmem, or says which byte is everywhere there.
const BY_LIBPMEM: &str = "
import ctypes, sys
pmem = ctypes.CDLL('libpmem.so.1')
pmem.pmem_map_file.restype = pmem.pmem_memset_persist.restype = ctypes.c_void_p
length, is_pmem = ctypes.c_size_t(), ctypes.c_int()
at = pmem.pmem_map_file(sys.argv[1].encode(), ctypes.c_size_t(0), 0, 0, ctypes.byref(length), ctypes.byref(is_pmem))
assert at, sys.argv[1]
at = ctypes.c_void_p(at)
if len(sys.argv) > 2:
    pmem.pmem_memset_persist(at, ord(sys.argv[2]), length)
else:
    found = ctypes.string_at(at, length.value)
    print(length.value, ''.join(sorted(set(found.decode()))))
";

#[test]
fn programs_of_libpmem_share_a_drives_bytes() {
    let name = "root_dax::programs_of_libpmem_share_a_drives_bytes";
    if !needs::root(name) || !needs::fuse(name) || !needs::tools(name, &["python3"]) {
        return;
    }
    let load = ["-c", "import ctypes; ctypes.CDLL('libpmem.so.1')"];
    if !Command::new("python3").args(load).output().unwrap().status.success() {
        return needs::left_out(name, "no libpmem");
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = dir.path();
    File::create(folder.join("disk")).unwrap().set_len(PART as u64).unwrap();
    fs::create_dir(folder.join("at")).unwrap();
    let _drive = Drive::start(nearside(folder).args(["attach", "--store", "pmem:disk", "at"]), "unix:");
    let drive = OpenOptions::new().read(true).write(true).open(folder.join("at/namespace")).unwrap();
    let program = |more: &[&str]| {
        let mut python = Command::new("python3");
        let ran = python.current_dir(folder).args(["-c", BY_LIBPMEM, "disk"]).args(more).output().unwrap();
        assert!(ran.status.success(), "{}", text(&ran));
        text(&ran)
    };
    // What the program stores in its mapping the drive has, and what a host writes the program has.
    for byte in ["a", "b"] {
        program(&[byte]);
        let mut found = vec![0; PART];
        drive.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|found| *found == byte.as_bytes()[0]), "{byte}: {:?}", &found[..16]);
    }
    drive.write_all_at(b"c", 300 << 10).unwrap();
    assert_eq!(program(&[]), format!("{PART} bc\n"));
}

/// Every file that the guest has made durable is found from below, whole, while it writes others.
fn is_searched_while_it_writes(guest: &mut Guest, folder: &Path) {
    guest.sh(&format!("cat > /tmp/writer << 'END'\n{WRITER}\nEND\n"));
    guest.sh("python3 -S /tmp/writer > /tmp/wrote 2> /tmp/why < /dev/null &");
    for n in 1..=FILES {
        let (pattern, path) = (format!("^{n}$"), format!("/f{n}"));
        let found = (0..1000).find_map(|_| {
            // One that is not there yet, or of which half was read as it was before: an error, and no answer.
            let asked = ask(folder, "unix:near.sock", &["grep", "-c", &pattern, &path]);
            assert!(asked.status.code() != Some(1), "{n}: {}", text(&asked));
            asked.status.success().then_some(asked.stdout)
        });
        assert_eq!(found.as_deref(), Some(&b"5000\n"[..]), "{n}");
    }
    assert_eq!(guest.sh("cat /tmp/wrote"), "", "it writes still");
    guest.sh("touch /tmp/stop");
    guest.until("[ -s /tmp/wrote ]");
    let wrote: u32 = guest.sh("cat /tmp/wrote").trim().parse().unwrap();
    let listed = answer(folder, &["ls", "/"]);
    let listed: HashSet<&str> = listed.lines().collect();
    let all = (1..=wrote).all(|n| listed.contains(&*format!("f{n}")));
    assert!(wrote >= FILES && all, "{wrote}: {listed:?}");
}

/// Stores to a mapping that is synchronous, by libpmem; nobody calls fsync.
fn is_mapped(guest: &mut Guest, folder: &Path) {
    let fio = "fio --thread --name=v --filename=/mnt/a/fio --size=1m --bs=4k --ioengine=libpmem --direct=1 \
               --rw=randwrite --verify=crc32c --verify_fatal=1";
    guest.sh(&format!("cd /tmp && {fio}"));
    guest.sh(&format!(
        "cd /tmp; {fio} --time_based --runtime=300 > said 2>&1 & {} kill $p; wait $p; true",
        until("grep -q '^VmFlags:.* sf' /proc/$p/smaps")
    ));
    let (inside, below) = (guest.sh("sha256sum /mnt/a/fio"), answer(folder, &["cksum", "/fio"]));
    assert_eq!(inside.split(' ').next(), below.split(' ').next());
}

/// Shell that waits until something is true of what runs in the background, as `p`.
fn until(run: &str) -> String {
    format!("p=$!; n=0; until {run}; do n=$((n+1)); [ $n -lt 1200 ] || exit 1; sleep 0.1; done;")
}

/// The guest's own drive says what lies under its mapping.
fn a_drive_in_the_guest_knows_it(guest: &mut Guest, store: &str) {
    let ask = "/job/nearside status --control /tmp/c";
    let said = guest.sh(&format!(
        "/job/nearside serve --store pmem:{store} --listen 127.0.0.1:0 --control /tmp/c > /tmp/said 2>&1 & {} \
         {ask} && kill $p && wait $p && cat /tmp/said",
        until(&format!("{ask} --json > /tmp/status 2> /dev/null"))
    ));
    let status: Value = serde_json::from_str(&guest.sh("cat /tmp/status")).unwrap();
    let namespace = &status["subsystems"][0]["namespaces"][0];
    assert_eq!(namespace["medium"], "persistent memory", "{status}");
    let how = ": persistent memory: each write is durable when it completes";
    assert!(said.contains("medium: persistent memory") && said.contains(how), "{said}");
}

/// ext4 on /dev/pmem0, and the drive below it.
fn fsdax(guest: &mut Guest, folder: &Path) {
    // The nvdimm has no labels yet: all of it is one namespace without a mode.
    guest.sh("ndctl create-namespace --force --reconfig=namespace0.0 --mode=fsdax --map=mem");
    guest.until("[ -b /dev/pmem0 ]");
    guest.sh("/usr/bin/mke2fs -q -t ext4 -b 4096 /dev/pmem0 && mkdir /mnt/a");
    guest.sh("mount -t ext4 -o dax=always /dev/pmem0 /mnt/a && grep -q 'pmem0.*dax=always' /proc/mounts");
    guest.sh("echo 'one ERROR here' > /mnt/a/x && sync");
    // What it does not write itself changes beside it.
    let mut serve = nearside(folder);
    serve.args(["serve", "--store", "pmem:nvdimm", "--read-only", "--shared-image", "--trust"]);
    serve.args(["--control", "control", "--near-data-socket", "near.sock", "--listen", "127.0.0.1:0"]);
    let _drive = Drive::start(&mut serve, "near-data commands");
    let info: Value = serde_json::from_str(&answer(folder, &["info", "--json"])).unwrap();
    let volume = &info["volumes"][0];
    let bytes = guest.sh("cat /sys/block/pmem0/size").trim().parse::<u64>().unwrap() * 512;
    assert_eq!((&volume["partition"], &volume["offset"]), (&1.into(), &DATA.into()), "{info}");
    assert_eq!((&volume["file_system"], &volume["len"]), (&"ext4".into(), &bytes.into()), "{info}");
    assert_eq!(info["medium"], "mapped file", "{info}");
    assert_eq!(answer(folder, &["grep", "ERROR", "/x"]), "one ERROR here\n");
    is_searched_while_it_writes(guest, folder);
    is_mapped(guest, folder);
    guest.sh("head -c 1048576 /dev/zero > /mnt/a/disk");
    a_drive_in_the_guest_knows_it(guest, "/mnt/a/disk");
    guest.sh("umount /mnt/a && ndctl destroy-namespace --force all");
}

/// /dev/dax0.0, whose bytes are blocks of a drive.
fn device_dax(guest: &mut Guest, folder: &Path) {
    guest.sh("ndctl create-namespace --mode=devdax --map=mem");
    guest.until("[ -c /dev/dax0.0 ]");
    fs::create_dir(folder.join("at")).unwrap();
    let _drive = Drive::start(nearside(folder).args(["attach", "--store", "pmem:nvdimm", "at"]), "unix:");
    let drive = OpenOptions::new().read(true).write(true).open(folder.join("at/namespace")).unwrap();
    let fio = |more: &str| {
        let device = "--ioengine=dev-dax --filename=/dev/dax0.0 --bs=4k";
        format!("cd /tmp && fio --thread --name=d {device} --size={PART} {more}")
    };
    guest.sh(&fio("--rw=write --buffer_pattern='\"near\"'"));
    let mut found = vec![0; PART];
    drive.read_exact_at(&mut found, DATA).unwrap();
    assert!(found.chunks(4).all(|word| word == b"near"), "{:?}", &found[..16]);
    let listed = ask(folder, "unix:at.sock", &["ls", "/"]);
    assert!(text(&listed).contains("devdax"), "{}", text(&listed));
    found.chunks_mut(4).for_each(|word| word.copy_from_slice(b"side"));
    drive.write_all_at(&found, DATA).unwrap();
    drive.sync_all().unwrap();
    let reads = |pattern: &str| fio(&format!("--rw=read --verify=pattern --verify_pattern='\"{pattern}\"'"));
    guest.sh(&reads("side"));
    // It is what is compared.
    guest.refused(&reads("near"));
    a_drive_in_the_guest_knows_it(guest, "/dev/dax0.0");
}

#[test]
fn a_stock_linux_has_the_drives_bytes_as_persistent_memory() {
    let name = "root_dax::a_stock_linux_has_the_drives_bytes_as_persistent_memory";
    if !needs::root(name)
        || !guest::possible(name)
        || !needs::tools(name, &["ndctl", "fio"])
        || !needs::fuse(name)
    {
        return;
    }
    let (dir, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let path = memory.path().join("nvdimm");
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    std::os::unix::fs::symlink(&path, dir.path().join("nvdimm")).unwrap();
    let memory = format!("memory-backend-file,id=pm,share=on,size={BYTES},mem-path={}", path.display());
    let words = ["-machine", "nvdimm=on", "-m", "slots=1,maxmem=2G", "-object", &memory, "-device"];
    let machine = [&words[..], &["nvdimm,memdev=pm,label-size=2M"]].concat();
    let machine: Vec<String> = machine.into_iter().map(str::to_owned).collect();
    let mut guest = Guest::boot_in("qemu-system-x86_64".as_ref(), &machine, dir.path());
    fsdax(&mut guest, dir.path());
    device_dax(&mut guest, dir.path());
    guest.powered_off(60);
}
