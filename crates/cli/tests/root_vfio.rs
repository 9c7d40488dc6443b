//! A stock Linux with the drive in its PCIe slot: `nearside serve --vfio-user`, and the newest QEMU of
//! Debian's backports as its client. Needs root, QEMU's packages, a network for the first time.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nearside_conformance::needs;

#[path = "stock_linux/guest.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod guest;

use guest::Guest;

/// `nearside serve`, killed when dropped.
struct Served {
    child: Child,
    folder: PathBuf,
    /// QEMU's words for the device, as they are printed.
    device: String,
}

impl Served {
    fn start(folder: &Path) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
        command.current_dir(folder).args(["serve", "--store", "file:disk.img", "--trust"]);
        command.args([
            "--vfio-user",
            "slot.sock",
            "--near-data-socket",
            "near.sock",
            "--control",
            "control.sock",
        ]);
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("vfio-user-pci") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "serve ended: {:?}", child.wait());
        }
        let device = line.split_once("-device '").unwrap().1.trim_end().trim_end_matches('\'').to_owned();
        Served { child, folder: folder.to_owned(), device }
    }

    /// What QEMU is given, beside what each guest has.
    fn machine(&self) -> Vec<String> {
        let memory = "memory-backend-memfd,id=mem,size=1G,share=on";
        let words = ["-object", memory, "-machine", "q35,memory-backend=mem", "-device", &self.device];
        words.map(str::to_owned).into()
    }

    /// Asks the drive from outside of the guest.
    fn nearside(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
        command.current_dir(&self.folder).args(&arguments[..1]).args(["-d", "unix:near.sock"]);
        let output = command.args(&arguments[1..]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// By SIGTERM: all that was taken is in the file when it has ended.
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
    if !needs::root(test) || !guest::possible(test) || !needs::tools(test, &["mmdebstrap"]) {
        return None;
    }
    let folder = guest::root().join("target/qemu");
    guest::must(Command::new(guest::root().join("scripts/guest/newest-qemu.sh")).arg(&folder));
    Some(folder.join("qemu"))
}

/// The guest makes volumes, and proves by hashes and by fio what it reads; the drive is asked beside it.
fn fill(guest: &mut Guest, served: &Served) -> String {
    guest.until("[ -b /dev/nvme0n1 ]");
    let identity = guest.sh("nvme id-ctrl /dev/nvme0");
    assert!(identity.contains("oacs      : 0x100"), "no Doorbell Buffer Config: {identity}");
    assert!(guest.sh("nvme list").contains("Nearside"));
    guest.sh("printf 'n\np\n1\n\n+64M\nn\np\n2\n\n\nw\n' | fdisk /dev/nvme0n1 && until [ -b /dev/nvme0n1p2 ]; do sleep 0.1; done");
    guest.sh("/usr/bin/mke2fs -q -t ext4 /dev/nvme0n1p1 && mkfs.f2fs -q /dev/nvme0n1p2");
    guest.sh("mkdir -p /mnt/a /mnt/b && mount -t ext4 /dev/nvme0n1p1 /mnt/a && mount -t f2fs /dev/nvme0n1p2 /mnt/b");
    for at in ["/mnt/a", "/mnt/b"] {
        guest.sh(&format!("for n in 1 2 3 4 5 6 7 8; do head -c 700001 /dev/urandom > {at}/$n; done"));
    }
    // What has been fsynced is found from outside, while the guest has it mounted.
    guest.sh(
        "mkdir /mnt/a/log /mnt/b/log && echo 'one ERROR here' > /mnt/a/log/x && cp /mnt/a/log/x /mnt/b/log/y",
    );
    guest.sh("sync -f /mnt/a/log/x; sync -f /mnt/b/log/y; fsync /mnt/a/log/x /mnt/b/log/y || sync");
    for (partition, found) in [("1", "/log/x:one ERROR here\n"), ("2", "/log/y:one ERROR here\n")] {
        assert_eq!(served.nearside(&["grep", "--partition", partition, "-r", "ERROR", "/log"]), found);
    }
    let fio = "fio --name=v --filename=/mnt/a/fio --size=16m --rw=randwrite --bs=4k --ioengine=libaio \
        --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1";
    guest.sh_within(fio, 300);
    // A controller reset under load: what was out is sent again, and nothing is lost.
    let reset = "(for n in 1 2 3; do sleep 0.4; echo 1 > /sys/class/nvme/nvme0/reset_controller; done) & \
        fio --name=r --filename=/mnt/b/fio --size=24m --rw=randwrite --bs=16k --ioengine=libaio --iodepth=8 \
        --direct=1 --verify=crc32c --verify_fatal=1 && wait";
    guest.sh_within(reset, 300);
    assert!(guest.sh("dmesg").contains("nvme nvme0"), "no reset was seen");
    let hashes = guest.sh("cd /mnt && find a b -type f | sort | xargs sha256sum");
    guest.sh("cd / && umount /mnt/a /mnt/b");
    hashes
}

#[test]
fn a_stock_linux_has_the_drive_in_its_slot() {
    let name = "root_vfio::a_stock_linux_has_the_drive_in_its_slot";
    let Some(qemu) = qemu(name) else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = dir.path().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    };
    std::fs::File::create(dir.path().join("disk.img")).unwrap().set_len(192 << 20).unwrap();
    let served = Served::start(dir.path());
    let mut first = Guest::boot_in(&qemu, &served.machine(), &place("first"));
    let hashes = fill(&mut first, &served);
    assert_eq!(hashes.lines().count(), 20, "{hashes}");
    first.powered_off(60);
    served.stop();

    // The drive has been started anew, and so has the guest.
    let mut served = Served::start(dir.path());
    let mut second = Guest::boot_in(&qemu, &served.machine(), &place("second"));
    second.until("[ -b /dev/nvme0n1p2 ]");
    second.sh("/usr/bin/e2fsck -fn /dev/nvme0n1p1 && fsck.f2fs /dev/nvme0n1p2 && mkdir -p /mnt/a /mnt/b");
    second.sh("mount -t ext4 /dev/nvme0n1p1 /mnt/a && mount -t f2fs /dev/nvme0n1p2 /mnt/b");
    assert_eq!(second.sh("cd /mnt && find a b -type f | sort | xargs sha256sum"), hashes);

    // The drive is killed: what it had is an error, and never something else.
    second.sh("dd if=/dev/nvme0n1 of=/tmp/before bs=1M count=1 iflag=direct && [ -s /tmp/before ]");
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let read = "timeout 100 dd if=/dev/nvme0n1 of=/tmp/after bs=1M count=1 iflag=direct; s=$?; \
        [ $s != 0 ] && [ $s != 124 ] && [ ! -s /tmp/after ]";
    second.sh_within(read, 120);
}
