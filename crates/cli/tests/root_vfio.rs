//! A stock Linux with the drive in its PCIe slot: `nearside serve` with vfio-user functions, and the newest
//! QEMU of Debian's backports as their client. Needs root, QEMU's packages, a network for the first time.
//!
//! Three boots: a guest makes volumes, is asked from inside and from outside while it writes, and
//! installs a system on the drive; that system boots from the drive by the machine's firmware, beside a
//! second guest that has another namespace of the same drive. `NEARSIDE_LIVE_ROUNDS` (8) makes the writers
//! write for longer. `NEARSIDE_DEBIAN=1` installs a Debian on the drive and boots that as well: minutes, and
//! a hundred megabytes of packages.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_conformance::volume::{Mounted, must, tool};
use nearside_conformance::{needs, record, today};
use serde_json::Value;

#[path = "stock_linux/guest.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod guest;

use guest::Guest;

/// Two functions of one drive, each with namespaces of its own.
const PLAN: &str = r#"
    control = "control.sock"
    [[subsystem]]
    nqn = "nqn.2026-11.dev.nearside:slot"
    identity = "trust"
    near-data-socket = "near.sock"
    [[subsystem.namespace]]
    nsid = 1
    store = "file:one.img"
    [[subsystem.namespace]]
    nsid = 2
    store = "file:two.img"
    [[subsystem.vfio-user]]
    socket = "one.sock"
    namespaces = [1, 7]
    [[subsystem.vfio-user]]
    socket = "two.sock"
    namespaces = [2]
"#;

/// Of the root file system that the guest installs.
const ROOT: &str = "6e656172-7369-4465-8073-6c6f74726f6f";

/// GRUB's, for machines with a BIOS.
const BOOT_SECTOR: &str = "/usr/lib/grub/i386-pc/boot.img";

/// `nearside serve`, killed when dropped.
struct Served {
    child: Child,
    folder: PathBuf,
    /// QEMU's words for the functions, as they are printed.
    devices: Vec<String>,
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

impl Served {
    fn start(folder: &Path) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
        command.current_dir(folder).args(["serve", "--config", "plan.toml"]);
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut devices = Vec::new();
        while devices.len() < 2 {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "serve ended: {:?}", child.wait());
            let device = line.split_once("-device '").map(|(_, device)| device);
            devices.extend(device.map(|device| device.trim_end().trim_end_matches('\'').to_owned()));
        }
        Served { child, folder: folder.to_owned(), devices }
    }

    /// What QEMU is given to have a function, beside what each guest has.
    fn machine(&self, function: usize) -> Vec<String> {
        let memory = "memory-backend-memfd,id=mem,size=1G,share=on";
        let words = ["-object", memory, "-machine", "q35,memory-backend=mem", "-device"];
        words.into_iter().chain([&*self.devices[function]]).map(str::to_owned).collect()
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
        command.current_dir(&self.folder).args(arguments).output().unwrap()
    }

    /// Asks the drive from outside of the guest, or its server.
    fn nearside(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn namespace(&self, words: &[&str]) {
        self.nearside(&[&["namespace", "--control", "control.sock"], words].concat());
    }

    /// What is told of a function.
    fn function(&self, function: usize) -> Value {
        let status = self.nearside(&["status", "--control", "control.sock", "--json"]);
        serde_json::from_str::<Value>(&status).unwrap()["functions"][function].take()
    }

    /// By SIGTERM: all that was taken is in the files when it has ended.
    fn stop(mut self) {
        let id = self.child.id().to_string();
        guest::must(Command::new("kill").args(["-TERM", &id]));
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// QEMU with vfio-user-pci, fetched where it is not there yet.
fn qemu(test: &str) -> Option<PathBuf> {
    let tools = ["mmdebstrap", "mkfs.xfs", "grub-mkimage"];
    if !needs::root(test) || !guest::possible(test) || !needs::tools(test, &tools) {
        return None;
    }
    if !Path::new(BOOT_SECTOR).exists() {
        needs::left_out(test, &format!("no {BOOT_SECTOR}"));
        return None;
    }
    let folder = guest::root().join("target/qemu");
    guest::must(Command::new(guest::root().join("scripts/guest/newest-qemu.sh")).arg(&folder));
    Some(folder.join("qemu"))
}

/// A boot loader for the disk's first megabyte, which starts a kernel of the first partition with the root
/// file system there. The kernel clears what it frees: under emulation, code that was translated stays in
/// use where another process writes over it, as the drive does.
fn boot_loader(folder: &Path, kernel: &str, initrd: &str) -> [PathBuf; 2] {
    let options = format!("console=ttyS0 quiet panic=-1 init_on_free=1 root=UUID={ROOT}");
    let linux = format!("linux {kernel} {options}\ninitrd {initrd}");
    let (script, core) = (folder.join("grub.cfg"), folder.join("core.img"));
    std::fs::write(&script, format!("set root=(hd0,msdos1)\n{linux}\nboot\n")).unwrap();
    let mut make = Command::new("grub-mkimage");
    make.args(["-O", "i386-pc", "-p", "/boot/grub", "-c"]).arg(script).arg("-o").arg(&core);
    guest::must(make.args(["biosdisk", "part_msdos", "ext2", "linux"]));
    [BOOT_SECTOR.into(), core]
}

/// The driver takes the function anew, with queues for polling.
fn with_poll_queues(guest: &mut Guest) {
    guest.until("[ -b /dev/nvme0n1 ]");
    guest.sh("f=$(basename $(readlink /sys/class/nvme/nvme0/device)) && cd /sys/bus/pci/drivers/nvme && \
         echo 2 > /sys/module/nvme/parameters/poll_queues && echo $f > unbind && echo $f > bind");
    guest.until("[ -b /dev/nvme0n1 ]");
    assert_eq!(guest.sh("cat /sys/block/nvme0n1/queue/io_poll").trim(), "1");
}

/// What nvme-cli reads of the controller: each identify and each log.
fn identifies(guest: &mut Guest) {
    assert!(guest.sh("nvme list").contains("Nearside"));
    for (ask, found) in [
        ("id-ctrl /dev/nvme0", "oacs      : 0x100"),
        ("id-ctrl /dev/nvme0", "mn        : Nearside"),
        ("nvm-id-ctrl /dev/nvme0", "Identify Controller NVM"),
        ("id-ns /dev/nvme0n1", "nsze    : 0x200000"),
        ("ns-descs /dev/nvme0n1", "uuid"),
        ("list-ns /dev/nvme0", "[   0]:0x1\n"),
        ("cmdset-ind-id-ns /dev/nvme0 -n 1", "nmic"),
        ("smart-log /dev/nvme0", "temperature"),
        ("fw-log /dev/nvme0", "(0.1.0"),
        ("show-regs /dev/nvme0", "version : 20000"),
        ("effects-log /dev/nvme0", "ACS6     [Identify "),
        ("supported-log-pages /dev/nvme0", "Changed Namespace List"),
        // Nothing has changed: it is answered, and empty.
        ("changed-ns-list-log /dev/nvme0", ""),
        ("get-log /dev/nvme0 --log-id=0x12 --log-len=1024", "0010: 01 00 20 00 01 00 10 00"),
        ("get-feature /dev/nvme0 -f 0x07 -H", "Number of IO"),
        (
            "get-feature /dev/nvme0 -f 0x0b -H",
            "Namespace Attribute Notices                               : Send",
        ),
    ] {
        let said = guest.sh(&format!("nvme {ask}"));
        assert!(said.contains(found), "{ask}: {said}");
    }
    // There is no telemetry; that it was asked for is in the log of errors, the newest first.
    guest.refused("nvme get-log /dev/nvme0 --log-id=0x07 --log-len=512");
    let errors = guest.sh("nvme error-log /dev/nvme0 -e 1");
    assert!(errors.contains("0x6109(Invalid Log Page"), "{errors}");
}

/// The vendor's log page, whole, as nvme-cli reads it in the guest (`NearDataLog` in crates/spec).
fn own_log(guest: &mut Guest) -> Vec<u8> {
    let read = "nvme get-log /dev/nvme0 --namespace-id=1 --log-id=0xd5 --log-len=312 --raw-binary";
    let digits = guest.sh(&format!("{read} | od -An -v -tx1"));
    digits.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// Each field of it says what the drive says of itself from outside, where both do.
fn own_log_agrees(guest: &mut Guest, served: &Served) {
    guest.sh("sync");
    // What the guest writes by itself in between changes what is counted.
    let (page, told) = (0..50)
        .find_map(|_| {
            let page = own_log(guest);
            let told = served.nearside(&["status", "--control", "control.sock", "--json"]);
            (own_log(guest) == page).then_some((page, told))
        })
        .expect("the guest never rests");
    let told: Value = serde_json::from_str(&told).unwrap();
    let monitor = &told["subsystems"][0]["namespaces"][0]["near_data"]["monitor"];
    assert!(monitor.is_object(), "{told}");
    let long = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    assert_eq!((&page[..4], page.len()), (&b"NDCP"[..], 312));
    let version_and_length = (page[4], page[5], page[6], page[7]);
    assert_eq!(version_and_length, (1, 0, 64, 0));
    // The largest request and buffer, and the longest path that a request may have.
    assert_eq!((word(8), word(12)), (128 << 10, 1 << 20));
    assert!(word(16) > 0 && word(24) != 0 && word(28) != 0 && word(32) != 0 && word(36) != 0);
    assert_eq!((word(44), word(48)), (120, 2), "the statistics' length, and that the bytes lie in a file");
    assert_eq!(told["subsystems"][0]["namespaces"][0]["medium"], "file");
    for (at, name) in [
        (72, "suspected"),
        (80, "invalidated"),
        (88, "published"),
        (96, "scans_touched"),
        (104, "looked_again"),
        (112, "repeated"),
        (120, "watched"),
        (128, "overlay_bytes"),
    ] {
        assert_eq!(Some(long(at)), monitor[name].as_u64(), "{name} at byte {at}: {monitor}");
    }
    for (at, name) in [(136, "looks_passed"), (160, "looks_watched")] {
        let looks = &monitor[name];
        assert_eq!(Some(long(at)), looks["timed"].as_u64(), "{name}: {looks}");
        assert_eq!(long(at + 8).checked_div(long(at)), looks["mean_ns"].as_u64(), "{name}: {looks}");
        assert_eq!(Some(long(at + 16)), looks["worst_ns"].as_u64(), "{name}: {looks}");
    }
    // Commands that the guest's own asking took, and writes that were looked at.
    assert!(long(64) > 0 && long(136) + long(160) > 0, "{monitor}");
}

/// The guest makes volumes, and writes.
fn makes_volumes(guest: &mut Guest, served: &Served) {
    let parts = "o\nn\np\n1\n2048\n591871\na\n1\nn\np\n2\n591872\n854015\nn\np\n3\n854016\n\nw\n";
    guest.sh(&format!(
        "printf '{parts}' | fdisk /dev/nvme0n1 && until [ -b /dev/nvme0n1p3 ]; do sleep 0.1; done"
    ));
    guest.sh(&format!("/usr/bin/mke2fs -q -t ext4 -U {ROOT} /dev/nvme0n1p1 && mkfs.f2fs -q /dev/nvme0n1p2"));
    guest.sh("mkfs.xfs -q /dev/nvme0n1p3 && mkdir -p /mnt/a /mnt/b /mnt/c");
    guest.sh("mount -t ext4 /dev/nvme0n1p1 /mnt/a && mount -t f2fs /dev/nvme0n1p2 /mnt/b");
    guest.sh("mount -t xfs /dev/nvme0n1p3 /mnt/c");
    for at in ["/mnt/a", "/mnt/b", "/mnt/c"] {
        guest.sh(&format!("for n in 1 2 3 4 5 6 7 8; do head -c 700001 /dev/urandom > {at}/$n; done"));
    }
    // What has been fsynced is found from outside and by the guest itself, while it has it mounted.
    guest.sh(
        "mkdir /mnt/a/log /mnt/b/log && echo 'one ERROR here' > /mnt/a/log/x && cp /mnt/a/log/x /mnt/b/log/y",
    );
    guest.sh("sync -f /mnt/a/log/x; sync -f /mnt/b/log/y; fsync /mnt/a/log/x /mnt/b/log/y || sync");
    for (partition, found) in [("1", "/log/x:one ERROR here\n"), ("2", "/log/y:one ERROR here\n")] {
        let grep = |drive| ["grep", "-d", drive, "--partition", partition, "-r", "ERROR", "/log"];
        assert_eq!(served.nearside(&grep("unix:near.sock")), found);
        for device in ["/dev/ng0n1", "/dev/nvme0n1"] {
            assert_eq!(guest.sh(&format!("/job/nearside {}", grep(device).join(" "))), found, "{device}");
        }
    }
}

/// Interrupts of the drive's I/O queues so far.
fn interrupts(guest: &mut Guest) -> u64 {
    let sum = "grep 'nvme0q[1-9]' /proc/interrupts | awk '{ n += $2 + $3 } END { print n }'";
    guest.sh(sum).trim().parse().unwrap()
}

/// What fio writes to a file and verifies.
fn fio(file: &str, size: &str, more: &str) -> String {
    format!(
        "cd /tmp && fio --name=v --filename={file} --size={size} --rw=randwrite --direct=1 --verify=crc32c \
         --verify_fatal=1 {more}"
    )
}

/// The whole drive before there is a volume on it: by interrupts, and polled.
fn polls_and_is_interrupted(guest: &mut Guest) {
    let mut counted = |size: &str, engine: &str| {
        let before = interrupts(guest);
        guest.sh_within(&fio("/dev/nvme0n1", size, &format!("--bs=4k {engine}")), 300);
        interrupts(guest) - before
    };
    // At depth 1 each of the 512 operations interrupts; polled, which Linux does for io_uring alone,
    // none does.
    let by_interrupts = counted("1m", "--ioengine=psync");
    let polled = counted("4m", "--ioengine=io_uring --iodepth=16 --hipri");
    assert!(by_interrupts >= 500 && polled < 50, "{by_interrupts} and {polled} interrupts");
}

/// In files of each volume, and over a controller that is reset meanwhile.
fn keeps_what_fio_wrote(guest: &mut Guest) {
    for at in ["/mnt/a/fio", "/mnt/c/fio"] {
        guest.sh_within(&fio(at, "8m", "--bs=4k --ioengine=libaio --iodepth=16"), 300);
    }
    // A controller reset under load: what was out is sent again, and nothing is lost.
    let reset = "(for n in 1 2 3; do sleep 0.4; echo 1 > /sys/class/nvme/nvme0/reset_controller; done)";
    let load = fio("/mnt/b/fio", "24m", "--bs=16k --ioengine=libaio --iodepth=8");
    guest.sh_within(&format!("{reset} & {load} && wait"), 300);
    assert!(guest.sh("dmesg").contains("nvme nvme0"), "no reset was seen");
}

/// Writers in the guest ask the drive after each fsync, over both doors of the slot; from outside somebody
/// asks for their files at any time.
fn is_asked_while_it_writes(guest: &mut Guest, served: &Served) {
    let rounds = std::env::var("NEARSIDE_LIVE_ROUNDS").ok().map_or(8, |n| n.parse::<u32>().unwrap());
    let ended = AtomicBool::new(false);
    let from_below = || {
        let (mut newest, mut answers) = ([0; 4], 0);
        let files =
            [("1", "/live/0/whole"), ("1", "/live/1/whole"), ("2", "/live/0/whole"), ("2", "/live/1/whole")];
        while !ended.load(Ordering::SeqCst) {
            for ((partition, file), newest) in files.iter().zip(&mut newest) {
                let asked = served.ask(&["cat", "-d", "unix:near.sock", "--partition", partition, file]);
                if !asked.status.success() {
                    let why = text(&asked);
                    assert!(why.contains("No such file") || why.contains("changed"), "{file}: {why}");
                    continue;
                }
                let found = String::from_utf8(asked.stdout).expect("lines of digits");
                let number: i64 = found.lines().next().map_or(-1, |line| line.parse().unwrap());
                let whole = found.lines().all(|line| line == format!("{number:08}"));
                let lines = found.len() / 9;
                assert!(
                    whole && [10, 600, 20_000].contains(&lines),
                    "{file}: {lines} lines of {number} or others"
                );
                assert!(number >= *newest, "{file}: {number} after {newest}");
                (*newest, answers) = (number, answers + 1);
            }
        }
        answers
    };
    let writers = format!("python3 -S /job/live.py /dev/ng0n1 {rounds} 1:/mnt/a 2:/mnt/b");
    std::thread::scope(|scope| {
        let below = scope.spawn(from_below);
        // Joined first, so that whatever came of it the one below hears of its end.
        let wrote = scope.spawn(|| guest.ran(&writers, 900 + u64::from(rounds) * 20)).join();
        ended.store(true, Ordering::SeqCst);
        let (status, out, err) = wrote.unwrap();
        assert_eq!(status, 0, "{out}{err}");
        assert_eq!(out, format!("{} answers\n", rounds * 4));
        let answers = below.join().unwrap();
        assert!(answers >= 10, "{answers} answers from outside");
        record::add(
            "view",
            "root_vfio",
            &[
                ("configuration", "a stock guest: ext4, F2FS".into()),
                ("writers", 4.into()),
                ("rounds", rounds.into()),
                ("answers", (rounds * 4).into()),
                ("answers_from_outside", answers.into()),
                ("seed", 1.into()),
                ("unlike", 0.into()),
            ],
        );
    });
    guest.sh("rm -r /mnt/a/live /mnt/b/live");
}

/// The guest's own system on the drive's first partition, with a boot loader before it.
fn installs(guest: &mut Guest) {
    guest.sh(
        "cd /mnt/a && cp -a /bin /etc /lib /lib64 /sbin /usr /modules /init . && mkdir proc sys dev mnt tmp boot job && \
         cp /job/main.py /job/nearside job && cp /job/vmlinuz boot",
    );
    guest.sh(
        "mkdir -p /tmp/i && cd /tmp/i && mkdir bin proc sys dev mnt usr usr/bin && cp -a /init /modules . && \
         cp /bin/busybox bin && find . | cpio -o -H newc | gzip -1 > /mnt/a/boot/initrd",
    );
    guest.sh("dd if=/job/boot.img of=/dev/nvme0n1 bs=440 count=1 conv=notrunc");
    guest.sh("dd if=/job/core.img of=/dev/nvme0n1 bs=512 seek=1 conv=notrunc");
}

fn hashes(guest: &mut Guest, folder: &str) -> String {
    guest.sh(&format!("cd {folder} && find . -xdev -type f | sort | xargs sha256sum"))
}

/// The first guest: all that it leaves is in the hashes.
fn first_boot(qemu: &Path, served: &Served, folder: &Path) -> [String; 3] {
    let [boot, core] = boot_loader(folder, "/boot/vmlinuz", "/boot/initrd");
    let files = [boot, core, guest::built().join("vmlinuz"), guest::root().join("scripts/guest/live.py")];
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut guest = Guest::boot_with(qemu, &served.machine(0), folder, &files);
    let guest_ref = &mut guest;
    with_poll_queues(guest_ref);
    identifies(guest_ref);
    polls_and_is_interrupted(guest_ref);
    makes_volumes(guest_ref, served);
    own_log_agrees(guest_ref, served);
    is_asked_while_it_writes(guest_ref, served);
    keeps_what_fio_wrote(guest_ref);
    installs(guest_ref);
    let told = served.function(0);
    assert_eq!([&told["connected"], &told["enabled"]], [true, true], "{told}");
    assert_eq!(told["doorbells"], "trapped", "{told}");
    assert!(told["socket"].as_str().unwrap().ends_with("/one.sock"), "{told}");
    assert!(told["mapped_bytes"].as_u64().unwrap() >= 1 << 30 && told["regions"] != 0, "{told}");
    assert_eq!(served.function(1)["connected"], false);
    let hashes = ["/mnt/a", "/mnt/b", "/mnt/c"].map(|at| hashes(guest_ref, at));
    guest.sh("cd / && umount /mnt/a /mnt/b /mnt/c");
    guest.powered_off(60);
    hashes
}

/// A namespace that comes and goes while two guests work: the kernel of the one that has it is told (an
/// asynchronous event), the other's is not.
fn comes_and_goes(served: &Served, one: &mut Guest, two: &mut Guest) {
    let others = "ls /dev/nvme0n* | grep -v '/nvme0n1'";
    one.refused(others);
    served.namespace(&["add", "7", "dram:16MiB"]);
    one.until(others);
    let device = one.sh(others).trim().to_owned();
    one.sh(&format!(
        "head -c 1048576 /dev/urandom > /tmp/r && dd if=/tmp/r of={device} bs=64k oflag=direct && \
         dd if={device} bs=64k count=16 iflag=direct | cmp - /tmp/r && nvme list-ns /dev/nvme0 | grep -q ':0x7'"
    ));
    two.refused(others);
    assert_eq!(two.sh("nvme list-ns /dev/nvme0"), "[   0]:0x2\n");
    served.namespace(&["remove", "7"]);
    one.until(&format!("[ ! -b {device} ]"));
    two.refused("dmesg | grep -i 'rescan\\|nvme0n[2-9]'");
}

/// Both guests at once, each on a namespace of its own.
fn two_guests(one: &mut Guest, two: &mut Guest) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            one.sh_within(&fio("/mnt/b/again", "8m", "--bs=4k --ioengine=libaio --iodepth=8"), 300)
        });
        two.sh_within(&fio("/dev/nvme0n1", "8m", "--bs=4k --ioengine=io_uring --iodepth=8"), 300);
    });
    // Of the other's namespace there is nothing: neither its size nor its name.
    for (guest, own, other) in [(&mut *one, "1", "2"), (&mut *two, "2", "1")] {
        assert_eq!(guest.sh("nvme list-ns /dev/nvme0"), format!("[   0]:0x{own}\n"));
        let zero = guest.sh(&format!("nvme id-ns /dev/nvme0 --namespace-id={other}"));
        assert!(zero.contains("nsze    : 0\n"), "{zero}");
        guest.refused(&format!("nvme ns-descs /dev/nvme0 --namespace-id={other}"));
        guest.refused(&format!("nvme get-log /dev/nvme0 -n {other} --log-id=0x02 --log-len=512"));
        let to = if own == "1" { "/mnt/b/mark" } else { "/dev/nvme0n1" };
        guest.sh(&format!(
            "printf 'written by guest {own} alone' > /tmp/m && truncate -s 4096 /tmp/m && \
             dd if=/tmp/m of={to} bs=4096 conv=notrunc,fsync"
        ));
    }
}

/// Whether a file has those bytes.
fn holds(file: &Path, bytes: &str) -> bool {
    let found = Command::new("grep").args(["-qazF", bytes]).arg(file).status().unwrap();
    assert!(found.code().is_some_and(|code| code < 2), "grep: {found}");
    found.success()
}

#[test]
fn a_stock_linux_has_the_drive_in_its_slot() {
    let name = "root_vfio::a_stock_linux_has_the_drive_in_its_slot";
    // Minutes each: one of the two guests a day, and one of stock_linux's.
    let Some(qemu) = qemu(name).filter(|_| today::takes(1, 2)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = dir.path().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    };
    std::fs::write(dir.path().join("plan.toml"), PLAN).unwrap();
    let images = [("one.img", 1 << 30), ("two.img", 128 << 20)].map(|(name, bytes)| {
        let image = dir.path().join(name);
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        image
    });
    let served = Served::start(dir.path());
    let written = first_boot(&qemu, &served, &place("first"));
    assert!(written[0].lines().count() > 200 && written[2].lines().count() == 9, "{}", written[2]);
    served.stop();

    // The drive has been started anew. One guest boots from it by the machine's firmware; another has its
    // second namespace.
    let mut served = Served::start(dir.path());
    let (at_one, at_two) = (place("one"), place("two"));
    let (mut one, mut two) = std::thread::scope(|scope| {
        let two = scope.spawn(|| Guest::boot_in(&qemu, &served.machine(1), &at_two));
        let one = Guest::boot_from_disk(&qemu, &served.machine(0), &at_one);
        (one, two.join().unwrap())
    });
    assert!(one.sh("mount").contains("/dev/nvme0n1p1 on / type ext4"));
    assert!(one.sh("cat /proc/cmdline").contains(&format!("root=UUID={ROOT}")));
    one.sh("fsck.f2fs /dev/nvme0n1p2 && xfs_repair -n /dev/nvme0n1p3 && mkdir -p /mnt/b /mnt/c");
    one.sh("mount -t f2fs /dev/nvme0n1p2 /mnt/b && mount -t xfs /dev/nvme0n1p3 /mnt/c");
    for (at, before) in [("/", &written[0]), ("/mnt/b", &written[1]), ("/mnt/c", &written[2])] {
        assert_eq!(&hashes(&mut one, at), before, "{at}");
    }
    two.until("[ -b /dev/nvme0n1 ]");
    comes_and_goes(&served, &mut one, &mut two);
    two_guests(&mut one, &mut two);
    one.powered_off(60);
    while served.function(0)["connected"] == true {
        std::thread::yield_now();
    }
    assert_eq!(served.function(1)["connected"], true);

    // The drive is killed: what it had is an error, and never something else.
    two.sh("dd if=/dev/nvme0n1 of=/tmp/before bs=1M count=1 iflag=direct && [ -s /tmp/before ]");
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let read = "timeout 100 dd if=/dev/nvme0n1 of=/tmp/after bs=1M count=1 iflag=direct; s=$?; \
        [ $s != 0 ] && [ $s != 124 ] && [ ! -s /tmp/after ]";
    two.sh_within(read, 120);
    for (image, guest, other) in [(&images[0], "1", "2"), (&images[1], "2", "1")] {
        assert!(holds(image, &format!("written by guest {guest} alone")), "{}", image.display());
        assert!(!holds(image, &format!("written by guest {other} alone")), "{}", image.display());
    }
}

/// A guest whose memory no descriptor is given of: its queues, lists and data pass by messages. The drive has
/// what it wrote.
#[test]
fn a_guest_that_shares_no_memory_has_the_drive_too() {
    let name = "root_vfio::a_guest_that_shares_no_memory_has_the_drive_too";
    let Some(qemu) = qemu(name).filter(|_| today::takes(0, 2)) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("plan.toml"), PLAN).unwrap();
    for name in ["one.img", "two.img"] {
        std::fs::File::create(dir.path().join(name)).unwrap().set_len(256 << 20).unwrap();
    }
    let served = Served::start(dir.path());
    let machine = ["-device", &*served.devices[0]].map(str::to_owned);
    let mut guest = Guest::boot_in(&qemu, &machine, dir.path());
    guest.until("[ -b /dev/nvme0n1 ]");
    guest.sh_within(&fio("/dev/nvme0n1", "4m", "--bs=4k --ioengine=libaio --iodepth=16"), 300);
    guest.sh(
        "/usr/bin/mke2fs -q -t ext4 /dev/nvme0n1 && mkdir -p /mnt/a && mount -t ext4 /dev/nvme0n1 /mnt/a",
    );
    guest.sh(
        "for n in 1 2 3; do head -c 700001 /dev/urandom > /mnt/a/$n; done; echo 'one ERROR here' > /mnt/a/x",
    );
    guest.sh_within(&fio("/mnt/a/fio", "4m", "--bs=64k --ioengine=libaio --iodepth=8"), 300);
    guest.sh("sync; echo 1 > /sys/class/nvme/nvme0/reset_controller; nvme smart-log /dev/nvme0");
    let inside = "/job/nearside grep -d /dev/ng0n1 ERROR /x";
    assert_eq!(guest.sh(inside), "/x:one ERROR here\n".strip_prefix("/x:").unwrap());
    guest.sh("umount /mnt/a && mount -t ext4 /dev/nvme0n1 /mnt/a");
    let files = guest.sh("cd /mnt/a && sha256sum 1 2 3 fio");
    guest.sh("cd / && umount /mnt/a");
    for line in files.lines() {
        let (hash, file) = line.split_once("  ").unwrap();
        let sum = served.nearside(&["cksum", "-d", "unix:near.sock", &format!("/{file}")]);
        assert!(sum.starts_with(hash), "{file}: {sum}, {hash}");
    }
    let told = served.function(0);
    assert!(told["mapped_bytes"].as_u64().unwrap() >= 1 << 30, "{told}");
    guest.powered_off(60);
    served.stop();
}

/// Packages of a Debian whose first boot leaves a file and ends.
fn debian(tar: &Path) {
    let proof = "findmnt -no SOURCE,FSTYPE / > /proof; dpkg -l | grep -c ^ii >> /proof; sync";
    let unit = format!(
        "[Service]\\nType=oneshot\\nExecStart=/bin/sh -c \"{proof}; systemctl --no-block poweroff\"\\n\
         [Install]\\nWantedBy=multi-user.target\\n"
    );
    let hook = format!(
        "printf '{unit}' > \"$1/etc/systemd/system/proof.service\" && chroot \"$1\" systemctl enable proof && \
         echo 'UUID={ROOT} / ext4 defaults 0 1' > \"$1/etc/fstab\""
    );
    let mut make = tool("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", "--customize-hook", &hook]);
    make.arg("--include=linux-image-cloud-amd64,initramfs-tools,systemd-sysv,udev").arg("bookworm").arg(tar);
    must(make.arg("deb http://deb.debian.org/debian bookworm main"));
}

/// Puts it on a drive that is attached, with its boot loader.
fn install(folder: &Path, tar: &Path) {
    let at = folder.join("at");
    std::fs::create_dir(&at).unwrap();
    let mut attach = Command::new(env!("CARGO_BIN_EXE_nearside"));
    attach.current_dir(folder).args(["attach", "--store", "file:one.img", "at"]).stdout(Stdio::piped());
    let mut attached = attach.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(attached.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let drive = at.join("namespace");
    let table = "printf '2048,2900000,83,*\\n' | sfdisk -q \"$0\" && mke2fs -q -F -t ext4 -U $1 \
        -E offset=1048576 \"$0\" 1450000k";
    must(tool("sh").args(["-c", table]).arg(&drive).arg(ROOT).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"));
    let mounted = Mounted::new(&["-o", "loop,offset=1048576"], &drive, &folder.join("mnt"));
    must(tool("tar").arg("xf").arg(tar).arg("-C").arg(mounted.path()));
    let named = |prefix: &str| {
        let names = std::fs::read_dir(mounted.path().join("boot")).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        format!("/boot/{}", names.find(|name| name.starts_with(prefix)).unwrap())
    };
    let [boot, core] = boot_loader(folder, &named("vmlinuz"), &named("initrd"));
    mounted.end();
    let to = |file: &Path, how: [&str; 2]| {
        let (from, to) = (format!("if={}", file.display()), format!("of={}", drive.display()));
        must(tool("dd").args([&from, &to, "conv=notrunc,fsync"]).args(how));
    };
    to(&boot, ["bs=440", "count=1"]);
    to(&core, ["bs=512", "seek=1"]);
    must(tool("kill").args(["-TERM", &attached.id().to_string()]));
    assert!(attached.wait().unwrap().success());
}

#[test]
fn a_debian_that_was_installed_on_the_drive_boots_from_its_slot() {
    let name = "root_vfio::a_debian_that_was_installed_on_the_drive_boots_from_its_slot";
    if std::env::var_os("NEARSIDE_DEBIAN").is_none() {
        return;
    }
    let Some(qemu) = qemu(name).filter(|_| needs::mounts(name, &["sfdisk", "tar"])) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("plan.toml"), PLAN).unwrap();
    for (name, bytes) in [("one.img", 1500 << 20), ("two.img", 1 << 20)] {
        std::fs::File::create(dir.path().join(name)).unwrap().set_len(bytes).unwrap();
    }
    let tar = dir.path().join("debian.tar");
    debian(&tar);
    install(dir.path(), &tar);
    let served = Served::start(dir.path());
    let mut machine = tool("timeout");
    machine.arg("600").arg(qemu).args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1G"]);
    machine.args(["-display", "none", "-no-reboot", "-nic", "none", "-serial", "stdio"]);
    let said = must(machine.args(served.machine(0)));
    served.stop();
    let mut cat = Command::new(env!("CARGO_BIN_EXE_nearside"));
    cat.current_dir(dir.path()).args(["cat", "-d", "one.img", "--partition", "1", "/proof"]);
    let proof = String::from_utf8(must(&mut cat).stdout).unwrap();
    let packages = proof.strip_prefix("/dev/nvme0n1p1 ext4\n").and_then(|n| n.trim().parse::<u32>().ok());
    assert!(packages.is_some_and(|n| n > 80), "{proof}{}", String::from_utf8_lossy(&said.stdout));
}
