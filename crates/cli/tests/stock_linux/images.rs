//! Images that a stock Linux has made, read from below: logical volumes, members of mirrors and a chain of
//! qcow2 images, written by its device mapper, its md and its ext4 on disks that QEMU gives it
//! (`scripts/guest/images.sh`). What the guest had found in each, the command finds there, or says why not.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nearside_conformance::needs;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::guest::{Guest, must, root};
use super::{image, nearside};

/// The guest's raw disks in their order, and mebibytes. Behind them comes `disk`, whose image is
/// `base.qcow2`.
const DISKS: [(&str, u64); 10] = [
    ("first", 48),
    ("second", 16),
    ("mirror0", 24),
    ("mirror1", 24),
    ("mirror2", 24),
    ("late0", 24),
    ("late1", 24),
    ("begun0", 16),
    ("begun1", 16),
    ("early", 16),
];

/// QEMU's monitor: a socket beside the images.
const MONITOR: &str = "monitor";

/// What the guest's volumes hold, by the names that the guest gives it, in lines as [`lines`] has them.
pub type Said = BTreeMap<String, String>;

/// A guest that has the disks.
pub fn boot(folder: &Path) -> Guest {
    let script = root().join("scripts/guest/images.sh");
    Guest::boot_with("qemu-system-x86_64".as_ref(), &disks(folder), folder, &[script.as_path()])
}

/// QEMU's words for the disks, which are made.
fn disks(folder: &Path) -> Vec<String> {
    let monitor = format!("unix:{},server=on,wait=off", folder.join(MONITOR).display());
    let mut words = vec!["-qmp".to_owned(), monitor];
    let mut give = |name: &str, file: &Path, format: &str| {
        let file = file.display();
        let drive = format!("file={file},format={format},if=none,id={name},cache=unsafe,discard=unmap");
        let device = format!("virtio-blk-pci,drive={name},serial={name}");
        words.extend(["-drive".to_owned(), drive, "-device".to_owned(), device]);
    };
    for (name, mib) in DISKS {
        let file = folder.join(format!("{name}.img"));
        image(&file, mib);
        give(name, &file, "raw");
    }
    let base = folder.join("base.qcow2");
    let mut create = Command::new("qemu-img");
    must(create.args(["create", "-q", "-f", "qcow2", "-o", "lazy_refcounts=on"]).arg(&base).arg("64M"));
    give("disk", &base, "qcow2");
    words
}

/// Has the guest make the images. `None` where it lacks a program for that: they are left out of the test.
pub fn made(guest: &mut Guest, test: &str, folder: &Path) -> Option<Said> {
    let serials: String = DISKS.iter().map(|(name, _)| *name).chain(["disk"]).collect();
    assert_eq!(guest.sh("cat /sys/block/vd?/serial"), serials);
    let missing = guest.sh("for p in lvm mdadm resize2fs; do command -v $p > /dev/null || echo $p; done");
    if !missing.is_empty() {
        let why = format!("the guest has no {}", missing.split_whitespace().collect::<Vec<_>>().join(", "));
        needs::left_out(&format!("{test} (images by LVM and md)"), &why);
        return None;
    }
    let at = |name: &str| folder.join(name);
    let mut monitor = Monitor::connect(folder);
    let mut said = Said::new();
    let mut stage = |guest: &mut Guest, stage: &str| {
        let out = guest.sh_within(&format!("sh /job/images.sh {stage}"), 600);
        let parts = out.split("== ").skip(1).filter_map(|part| part.split_once('\n'));
        said.extend(parts.map(|(name, text)| (name.to_owned(), lines(text))));
    };
    stage(guest, "make");
    are_in_use(folder);
    // As they are at this moment, with all that the guest has made durable.
    for (from, to) in [
        ("first.img", "growing.img"),
        ("mirror2.img", "spare.img"),
        ("late0.img", "active.img"),
        ("base.qcow2", "unclosed.qcow2"),
    ] {
        fs::copy(at(from), at(to)).unwrap();
    }
    let top = json!({ "device": "disk", "snapshot-file": at("top.qcow2"), "format": "qcow2" });
    monitor.execute("blockdev-snapshot-sync", &top);
    stage(guest, "change");
    let snapshot = |name: &str| json!({ "device": "disk", "name": name });
    monitor.execute("blockdev-snapshot-internal-sync", &snapshot("before"));
    let bitmap = json!({ "node": "disk", "name": "since", "persistent": true });
    monitor.execute("block-dirty-bitmap-add", &bitmap);
    stage(guest, "mount");
    monitor.execute("blockdev-snapshot-internal-sync", &snapshot("mounted"));
    stage(guest, "end");
    Some(said)
}

/// Each line with one blank between its words.
fn lines(text: &str) -> String {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(folder: &Path) -> Monitor {
        let socket = UnixStream::connect(folder.join(MONITOR)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut monitor = Monitor(BufReader::new(socket));
        let greeting = monitor.line();
        assert!(greeting["QMP"].is_object(), "{greeting}");
        monitor.execute("qmp_capabilities", &json!({}));
        monitor
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    fn execute(&mut self, command: &str, arguments: &Value) {
        let ask = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{ask}").unwrap();
        let mut answer = self.line();
        while answer.get("event").is_some() {
            answer = self.line();
        }
        assert!(answer.get("return").is_some(), "{ask}: {answer}");
    }
}

/// What a command on a drive, with the words that go with its name, ends with, prints and complains of.
fn ran(folder: &Path, command: &str, drive: &[&str], words: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let mut ran = nearside();
    ran.current_dir(folder).env("TZ", "UTC").args([command, "-d"]).args(drive).args(words);
    let output = ran.output().unwrap();
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// While QEMU has them, a disk image is not read, and of a disk it is said.
fn are_in_use(folder: &Path) {
    let (code, out, err) = ran(folder, "ls", &["base.qcow2"], &["/"]);
    assert_eq!((code, out.len()), (Some(2), 0), "{err}");
    assert!(err.contains("has it locked: a disk image is read while nobody writes it"), "{err}");
    let (code, _, err) = ran(folder, "ls", &["first.img", "--volume", "vg0/home"], &["/"]);
    assert!(code == Some(0) && err.contains("has it locked: what is written meanwhile"), "{err}");
}

const CLEAN: &str = "clean\n";
const RECOVERED: &str = "recovered from ";
const NOT_STOPPED: &str = "a member of a RAID 1 that was not stopped: what was written last may differ";
const SYNCING: &str = "a member of a RAID 1 that was being resynchronized, at byte 4194304: what lies behind";

/// By which name the guest has said what is in a volume, the drive that holds it, the volume's state, and of
/// what commands warn.
const READ: [(&str, &[&str], &str, &str); 15] = [
    ("root-first", &["growing.img", "--volume", "vg0/root"], RECOVERED, ""),
    ("home-first", &["growing.img", "--volume", "vg0/home"], RECOVERED, ""),
    ("root", &["first.img", "--volume", "vg0/root"], CLEAN, ""),
    ("mirror-first", &["mirror1.img"], RECOVERED, ""),
    ("mirror", &["mirror0.img"], CLEAN, ""),
    ("data-first", &["active.img", "--volume", "vg1/data"], RECOVERED, NOT_STOPPED),
    ("data-first", &["late1.img", "--volume", "vg1/data"], RECOVERED, NOT_STOPPED),
    ("data", &["late0.img", "--volume", "vg1/data"], CLEAN, ""),
    ("begun", &["begun0.img"], CLEAN, SYNCING),
    ("begun", &["begun1.img"], CLEAN, SYNCING),
    ("early", &["early.img"], CLEAN, ""),
    ("disk-first", &["base.qcow2"], CLEAN, ""),
    ("disk-second", &["qcow2:top.qcow2?snapshot=before"], CLEAN, ""),
    ("disk-third", &["qcow2:top.qcow2?snapshot=mounted"], RECOVERED, ""),
    ("disk", &["top.qcow2"], CLEAN, ""),
];

/// What is not read, and why.
const REFUSED: [(&[&str], &str); 11] = [
    (&["mirror2.img"], "a member of a RAID 1 that has not all of it: it was being rebuilt"),
    (&["spare.img"], "a spare device of a RAID 1, which has nothing of it"),
    (&["unclosed.qcow2"], "it was not closed (dirty bit)"),
    (&["first.img"], "a physical volume of LVM: --volume VG/LV reads a volume"),
    (&["first.img", "--volume", "vg0/home"], "vg0/home is not read: a snapshot is being merged into it"),
    (&["first.img", "--volume", "vg0/back"], "vg0/back is not read: it is a snapshot"),
    (&["first.img", "--volume", "vg0/before"], "vg0/before is not read: it is a snapshot"),
    (&["first.img", "--volume", "vg0/half"], "vg0/half is not read: it lies in part on the physical volume"),
    (&["first.img", "--volume", "vg0/wide"], "vg0/wide is not read: it is striped over 2"),
    (&["second.img", "--volume", "vg0/root"], "it lies in part on the physical volume pv0 (\"/dev/vda\")"),
    (&["cut.img", "--volume", "vg0/root"], "are not within its 20971520: the image is cut short"),
];

/// The images, once the guest has ended.
pub fn are_read(said: &Said, folder: &Path) {
    let disk = fs::read(folder.join("first.img")).unwrap();
    fs::write(folder.join("cut.img"), &disk[..20 << 20]).unwrap();
    let mut told = BTreeMap::new();
    for (name, drive, state, warning) in READ {
        let info = reads(folder, drive, warning, &said[name]);
        assert!(info.contains(&format!("\nstate            {state}")), "{drive:?}: {info}");
        told.insert(name, info);
    }
    // One that is left behind does not know it.
    for names in [["mirror-first", "mirror"], ["data-first", "data"]] {
        let [left, newest] = names.map(|name| event(&told[name]));
        assert!(left < newest, "{names:?}: {left}, {newest}");
    }
    for (drive, says) in REFUSED {
        let (code, out, err) = ran(folder, "cat", drive, &["/first/large"]);
        assert!(code == Some(2) && out.is_empty() && err.contains(says), "{drive:?}: {code:?} {err}");
    }
    let (_, out, err) = ran(folder, "info", &["first.img"], &["--json"]);
    let info: Value = serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |of: &Value| format!("{} {} {}\n", text(&of["group"]), text(&of["name"]), of["len"]);
    let mut listed: Vec<String> = info["logical_volumes"].as_array().unwrap().iter().map(line).collect();
    listed.sort();
    assert_eq!(listed.concat(), said["lvs"]);
}

/// Whether a volume holds what is said, down to its files' bytes, with this warning; what `info` says of it.
fn reads(folder: &Path, drive: &[&str], warning: &str, said: &str) -> String {
    let on = |command: &str, words: &[&str]| {
        let (code, out, err) = ran(folder, command, drive, &[&["--as", "0:0"][..], words].concat());
        let warned = err.starts_with("nearside: warning: ") && err.contains(warning);
        let warnings = usize::from(!warning.is_empty());
        assert_eq!((code, err.lines().count()), (Some(0), warnings), "{drive:?} {command}: {err}");
        assert!(warned || warning.is_empty(), "{drive:?} {command}: {err}");
        out
    };
    let text = |command: &str, words: &[&str]| String::from_utf8(on(command, words)).unwrap();
    let sums = text("cksum", &["-a", "sha256", "-r", "/"]);
    let listing = text("ls", &["-lnR", "--time-style=+%Y-%m-%d %H:%M:%S %z", "/"]);
    let ours = lines(&format!("{sums}{listing}"));
    let unlike = ours.lines().zip(said.lines()).find(|(ours, theirs)| ours != theirs);
    assert!(ours == said, "{drive:?}: {unlike:?} in\n{ours}and\n{said}");
    let sums = sums.lines().filter_map(|line| line.split_once("  "));
    for (sum, path) in sums.filter(|(_, path)| path.ends_with("/large")) {
        let digest = Sha256::digest(on("cat", &[path]));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, sum, "{drive:?} {path}");
    }
    // What others warn of is here among what it says.
    let (code, out, err) = ran(folder, "info", drive, &[]);
    let info = String::from_utf8_lossy(&out).into_owned();
    assert!(code == Some(0) && info.contains(warning) && err.is_empty(), "{drive:?}: {code:?} {info}{err}");
    info
}

/// As of which event a member says that it is.
fn event(info: &str) -> u64 {
    let rest = info.split_once("a member of a RAID 1 as of event ").map(|(_, rest)| rest);
    let number = rest.and_then(|rest| rest.split(':').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{info}"))
}
