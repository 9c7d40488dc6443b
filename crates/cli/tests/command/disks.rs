//! Disk images as people have them: what a qcow2 image, a logical volume or a mirror's member shows is what
//! the raw one shows, and partitions go by their names.

use std::ffi::OsString;
use std::fs;
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nearside_conformance::needs;
use nearside_conformance::volume::{ext, must, tool};
use nearside_driver::{Command, Failure};
use nearside_spec::Status;

use crate::fixture::{Ran, nearside, on, small};
use crate::insight::{NQN, connect, shown};
use crate::serve::Served;

#[test]
fn every_command_reads_qcow2_images() {
    let test = "every_command_reads_qcow2_images";
    let Some(volume) = small(test).filter(|_| needs::tools(test, &["qemu-img", "qemu-io", "gzip", "zstd"]))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let qemu_img = |words: &str| {
        must(tool("qemu-img").args(words.split(' ')).current_dir(folder.path()));
    };
    let write = |what: &str| {
        must(tool("qemu-io").args(["-f", "qcow2", "top.qcow2", "-c", what]).current_dir(folder.path()));
    };
    let raw = volume.image.display();
    qemu_img(&format!("convert -c -f raw -O qcow2 -o compression_type=zstd {raw} base"));
    qemu_img("create -q -f qcow2 -b base -F qcow2 top.qcow2");
    qemu_img("snapshot -c before top.qcow2");
    // The bytes before the first superblock, which are nobody's.
    write("write -P 9 0 1k");
    let image = folder.path().join("top.qcow2");
    // The disk without its backing file, compressed.
    qemu_img("convert -O qcow2 top.qcow2 flat");
    for (program, packed) in [("gzip", "flat.gz"), ("zstd", "flat.zst")] {
        must(tool(program).args(["-kq", "flat"]).current_dir(folder.path()));
        let ours = on(&folder.path().join(packed), "grep", &["-rn", "ERROR", "/"]);
        assert!(
            ours.out == volume.run("grep", &["-rn", "ERROR", "/"]).out && !ours.out.is_empty(),
            "{}",
            ours.err
        );
    }
    of_a_guest(&image);
    as_their_programs_take_them(folder.path());
    let cut = &fs::read(folder.path().join("flat.gz")).unwrap()[..1000];
    // Of a name without the ending it is a disk whose first bytes somebody has written.
    for (name, said) in
        [("cut.gz", "cut.gz: compressed by gzip: "), ("cut", "unpack the image first (gunzip)")]
    {
        let path = folder.path().join(name);
        fs::write(&path, [cut, &[0; 24]].concat()).unwrap();
        let ran = on(&path, "cat", &["/hello.txt"]);
        assert!(ran.code == 2 && ran.err.contains(said), "{}", ran.err);
    }
    for (command, words) in [
        ("find", &["/"][..]),
        ("ls", &["-lnRA", "/"]),
        ("cksum", &["-r", "/"]),
        ("grep", &["-rn", "ERROR", "/"]),
        ("grep", &["-rc", "ERROR", "/", "--locate", "host"]),
        ("wc", &["/large", "/logs/a.log"]),
        ("cat", &["/large"]),
        ("stat", &["--json", "/hello.txt"]),
        ("cat", &["/secret/key", "--as", "1:1"]),
    ] {
        let (ours, theirs) = (on(&image, command, words), volume.run(command, words));
        assert_eq!((ours.code, ours.err), (theirs.code, theirs.err), "{command}");
        assert!(ours.out == theirs.out, "{command} {words:?}");
    }
    let info = on(&image, "info", &["--json"]).json().remove(0);
    assert_eq!((&info["medium"], &info["capacity"]), (&"qcow2 image".into(), &(64 << 20).into()));
    assert_eq!(info["volumes"], volume.run("info", &["--json"]).json()[0]["volumes"]);
    // As it was, and as it is since its first blocks were zeroed.
    write("write -z 0 64k");
    let gone = on(&image, "cat", &["/hello.txt"]);
    assert_eq!(gone.code, 2);
    let mut before = OsString::from("qcow2:");
    before.push(&image);
    before.push("?snapshot=before");
    assert_eq!(on(Path::new(&before), "cat", &["/hello.txt"]).out, volume.run("cat", &["/hello.txt"]).out);
    before.push("-it");
    let none = on(Path::new(&before), "cat", &["/hello.txt"]);
    assert_eq!(none.code, 2);
    assert!(none.err.contains("no snapshot \"before-it\"; of 1 there are \"before\""), "{}", none.err);
}

/// An image under another name could be a raw disk, to which a guest has written a header that names a file
/// of the host's.
fn of_a_guest(image: &Path) {
    let disk = image.with_file_name("disk.img");
    fs::copy(image, &disk).unwrap();
    let by_word = |word: &str| {
        let mut name = OsString::from(word);
        name.push(&disk);
        on(Path::new(&name), "cat", &["/hello.txt"])
    };
    for drive in [&disk, &image.with_file_name("packed.gz")] {
        if drive != &disk {
            must(tool("gzip").arg("-kq").arg(&disk).current_dir(disk.parent().unwrap()));
            fs::rename(disk.with_file_name("disk.img.gz"), drive).unwrap();
        }
        let ran = on(drive, "cat", &["/hello.txt"]);
        assert_eq!((ran.code, ran.out.len()), (2, 0), "{}", ran.err);
        let says = format!("which a guest can write to a raw disk: qcow2:{0} reads it", drive.display());
        assert!(ran.err.contains(&says), "{}", ran.err);
    }
    assert_eq!(by_word("qcow2:").out, on(image, "cat", &["/hello.txt"]).out);
    let raw = by_word("file:");
    assert!(raw.code == 2 && raw.err.contains("a qcow2 disk image") && raw.out.is_empty(), "{}", raw.err);
}

/// Zeros behind the last member of gzip, and a frame before the first that Zstandard skips.
fn as_their_programs_take_them(folder: &Path) {
    let packed = |name: &str| fs::read(folder.join(name)).unwrap();
    let skipped = [0x51, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5];
    let padded = [packed("flat.gz"), vec![0; 100_000]].concat();
    let begun = [&skipped[..], &packed("flat.zst")].concat();
    for (program, name, bytes) in [("gzip", "odd.gz", padded), ("zstd", "odd.zst", begun)] {
        fs::write(folder.join(name), bytes).unwrap();
        must(tool(program).arg("-tq").arg(folder.join(name)));
        let ran = on(&folder.join(name), "cat", &["/hello.txt"]);
        assert!(ran.good().starts_with("hello world\n"), "{name}");
    }
}

/// A physical volume by lvm2 (`fuzz/images/make-volumes`), with a volume of 5 MiB in the three runs that lvs
/// says `vg0/root` has: extents 0 to 3, 6 to 10, and 12 and 13, of half a mebibyte.
fn physical(folder: &Path, volume: &Path) -> Vec<u8> {
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/images/lvm.img.gz");
    let mut disk = must(tool("gzip").args(["-dc", packed]).current_dir(folder)).stdout;
    const EXTENT: usize = 512 << 10;
    let places = (0..4).chain(6..11).chain(12..14).map(|extent| (128 << 10) + extent * EXTENT);
    let bytes = fs::read(volume).unwrap();
    for (at, extent) in places.zip(bytes.chunks(EXTENT)) {
        disk[at..at + extent.len()].copy_from_slice(extent);
    }
    disk
}

#[test]
fn every_command_reads_logical_volumes() {
    let test = "every_command_reads_logical_volumes";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip", "sfdisk", "qemu-img"]) else { return };
    let at = |name: &str| folder.path().join(name);
    let tree = at("tree");
    fs::create_dir_all(tree.join("logs")).unwrap();
    let log: String = (0..60_000).map(|n| format!("line {n} of a log that is long enough\n")).collect();
    fs::write(tree.join("logs/a.log"), &log).unwrap();
    fs::write(tree.join("small"), "ERROR\n").unwrap();
    ext(&at("volume"), 5, Some(&tree), &["-t", "ext4", "-b", "1024", "-L", "the root"]);
    let disk = physical(folder.path(), &at("volume"));
    fs::write(at("lvm.img"), &disk).unwrap();
    must(
        tool("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]).args([at("lvm.img"), at("lvm.qcow2")]),
    );
    // The same in a partition, behind one with a file system.
    let script = "label: gpt\nstart=1MiB,size=5MiB\nstart=6MiB,size=16MiB,type=lvm\n";
    fs::write(at("script"), script).unwrap();
    let mut parted = fs::read(at("volume")).unwrap();
    parted.splice(0..0, vec![0; 1 << 20]);
    parted.extend(&disk);
    parted.extend(vec![0; 1 << 20]);
    fs::write(at("parted.img"), &parted).unwrap();
    let mut sfdisk = tool("sfdisk");
    sfdisk.args(["-q", "--no-reread", "--no-tell-kernel", "--wipe", "never"]).arg(at("parted.img"));
    must(sfdisk.stdin(fs::File::open(at("script")).unwrap()));
    for image in ["lvm.img", "lvm.qcow2", "parted.img"] {
        for (command, words) in [
            ("find", &["/"][..]),
            ("cksum", &["-r", "/"]),
            ("grep", &["-rn", "ERROR", "/"]),
            ("grep", &["-c", "7", "/logs/a.log", "--locate", "host"]),
            ("wc", &["/logs/a.log", "/small"]),
            ("cat", &["/logs/a.log"]),
        ] {
            let words_of = [&["--volume", "vg0/root"], words].concat();
            let (ours, theirs) = (on(&at(image), command, &words_of), on(&at("volume"), command, words));
            assert_eq!((ours.code, ours.err), (theirs.code, theirs.err), "{image} {command}");
            assert!(ours.out == theirs.out && !ours.out.is_empty(), "{image} {command} {words:?}");
        }
        let info = on(&at(image), "info", &["--json", "--volume", "/dev/vg0/root"]).json().remove(0);
        assert_eq!((&info["medium"], &info["capacity"]), (&"logical volume".into(), &(5632 << 10).into()));
        assert_eq!(info["volumes"][0]["label"], "the root");
        let listed = on(&at(image), "info", &[] as &[&str]);
        assert_eq!(listed.code, if image == "parted.img" { 0 } else { 2 }, "{}", listed.err);
        for line in [
            "logical volume   vg0/root, ext4, 5.5M, label the root\n",
            "logical volume   vg0/home, zeros, where file systems and partition tables begin, 1.0M\n",
            "logical volume   vg0/wide, not read: it is striped over 2, 2.0M\n",
            "logical volume   vg0/before, not read: it is a snapshot, 512K\n",
            "\n                 --volume opens one, as --volume vg0/root\n",
        ] {
            assert!(listed.text().contains(line), "{line}{}", listed.text());
        }
        assert!(!listed.text().contains("pool_tdata"), "{}", listed.text());
    }
    let table = &on(&at("parted.img"), "info", &["--json"]).json()[0]["logical_volumes"];
    let root = serde_json::json!({ "group": "vg0", "name": "root", "len": 5632 << 10, "content": "ext4", "label": "the root" });
    let found = table.as_array().unwrap().iter().find(|volume| volume["name"] == "root").unwrap();
    assert!(root.as_object().unwrap().iter().all(|(key, value)| &found[key] == value), "{found}");
    let wide = table.as_array().unwrap().iter().find(|volume| volume["name"] == "wide").unwrap();
    assert_eq!((&found["readable"], &wide["readable"]), (&true.into(), &false.into()));
    let image = at("lvm.img");
    let whole = on(&image, "info", &["--json"]);
    let listed = &whole.json()[0]["logical_volumes"];
    assert!(whole.code == 2 && listed.as_array().unwrap().contains(found), "{listed}");
    let name = image.display();
    for (volume, says) in [
        ("vg0/thin", format!("{name}: vg0/thin is not read: it is of type \"thin\"")),
        ("vg0/nothing", format!("{name}: no logical volume \"nothing\" in \"vg0\"; there are [\"before\"")),
        ("vg1/root", format!("{name}: no volume group \"vg1\"; there are [\"vg0\"]")),
        ("vg0/half", format!("{name}: vg0/half is not read: it lies in part on the physical volume pv1")),
    ] {
        let ran = on(&image, "cat", &["--volume", volume, "/small"]);
        assert!(ran.code == 2 && ran.err.contains(&says), "{volume}: {}", ran.err);
    }
    let ran = on(&image, "cat", &["/small"]);
    assert!(ran.err.contains("a physical volume of LVM: --volume VG/LV reads a volume"), "{}", ran.err);
}

/// A tree with a log and a word, its file system as `volume`, and the same as `vg0/root` in `lvm.img`.
fn logical(folder: &Path, word: &str) {
    let at = |name: &str| folder.join(name);
    fs::create_dir_all(at("tree/logs")).unwrap();
    let log: String = (0..20_000).map(|n| format!("line {n} of a log\n")).collect();
    fs::write(at("tree/logs/a.log"), log).unwrap();
    fs::write(at("tree/word"), word).unwrap();
    ext(&at("volume"), 5, Some(&at("tree")), &["-t", "ext4", "-b", "1024"]);
    fs::write(at("lvm.img"), physical(folder, &at("volume"))).unwrap();
}

/// Whether a server of these stores is refused, with what it says.
fn refused(stores: &[&str], more: &[&str]) -> String {
    let mut server = nearside();
    server.args(["serve", "--listen", "127.0.0.1:0"]).args(more);
    server.args(stores.iter().flat_map(|store| ["--store", store]));
    let ran = Ran::from(server.output().unwrap());
    assert_eq!((ran.code, ran.text().as_str()), (2, ""), "{stores:?}: {}", ran.err);
    ran.err
}

#[test]
fn volumes_and_images_are_served_to_be_read() {
    let test = "volumes_and_images_are_served_to_be_read";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip", "qemu-img"]) else { return };
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    logical(folder.path(), "first\n");
    for (from, to) in [("lvm.img", "lvm.qcow2"), ("volume", "volume.qcow2")] {
        must(tool("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2", &at(from), &at(to)]));
    }
    let files = ["lvm.img", "lvm.qcow2", "volume.qcow2"].map(at);
    let stores = [
        format!("lvm:{}?volume=vg0/root", files[0]),
        format!("lvm:qcow2:{}?volume=/dev/vg0/root", files[1]),
        format!("qcow2:{}", files[2]),
    ];
    let before = files.each_ref().map(|file| fs::read(file).unwrap());
    let words: Vec<&str> = stores.iter().flat_map(|store| ["--store", store]).chain(["--trust"]).collect();
    let (served, _) = shown(&folder, &words);
    let mut host = connect(&served, "nqn.2026-11.example:host");
    for (nsid, store) in (1..).zip(&stores) {
        let network = format!("nvme+tcp://{}/{NQN}/{nsid}", served.address);
        for (command, words) in [("cat", &["/logs/a.log"][..]), ("grep", &["-rn", "line 7", "/logs"])] {
            let ours = on(Path::new(&files[0]), command, &[&["--volume", "vg0/root"], words].concat());
            assert!(ours.code == 0 && !ours.out.is_empty(), "{}", ours.err);
            for drive in [&network, store] {
                let theirs = on(Path::new(drive), command, words);
                assert_eq!((theirs.code, theirs.err.as_str()), (0, ""), "{drive} {command}");
                assert!(theirs.out == ours.out, "{drive} {command}");
            }
        }
        let written = host.execute(&Command::write(nsid, 0, 8), Some(vec![7; 4096])).unwrap().outcome;
        let is_refused =
            matches!(written, Err(Failure::Status(status)) if status.code() == Status::READ_ONLY_NAMESPACE);
        assert!(is_refused, "{store}: {written:?}");
    }
    for file in &files {
        let said = refused(&[file], &[]);
        assert!(said.contains(file) && said.contains("has it locked"), "{said}");
    }
    drop((host, served));
    assert!(files.each_ref().map(|file| fs::read(file).unwrap()) == before);
}

#[test]
fn a_volume_that_cannot_be_served_says_why() {
    let test = "a_volume_that_cannot_be_served_says_why";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    logical(folder.path(), "first\n");
    let image = folder.path().join("lvm.img").to_str().unwrap().to_owned();
    let word = |volume: &str| format!("lvm:{image}?volume={volume}");
    for (volume, says) in [
        ("vg0/thin", "vg0/thin is not read: it is of type \"thin\""),
        ("vg0/before", "vg0/before is not read: it is a snapshot"),
        ("vg0/wide", "vg0/wide is not read: it is striped over 2"),
        ("vg0/nothing", "no logical volume \"nothing\" in \"vg0\"; there are [\"before\""),
        ("vg1/root", "no volume group \"vg1\"; there are [\"vg0\"]"),
    ] {
        let command = on(Path::new(&word(volume)), "cat", &["/word"]);
        for said in [refused(&[&word(volume)], &[]), command.err] {
            assert!(said.contains(&format!("{image}: {says}")), "{volume}: {said}");
        }
    }
    assert!(refused(&[&format!("lvm:{image}")], &[]).contains("names no volume"));
    // None of several writes what they lie in.
    let check = |more: &[&str]| {
        let mut check = nearside();
        check.args(["serve", "--check", "--store", &word("vg0/root"), "--store", &word("vg0/home")]);
        Ran::from(check.args(more).output().unwrap())
    };
    assert!(check(&[]).good().ends_with(": no fault\n"));
    let both = check(&["--store", &image]);
    assert!(both.code == 2 && both.err.contains("another namespace has that file"), "{}", both.err);
    let (writer, _) = shown(&folder, &["--store", &image]);
    for more in [&[][..], &["--read-only"], &["--read-only", "--shared-image"]] {
        let said = refused(&[&word("vg0/root")], more);
        assert!(said.contains("has it locked"), "{more:?}: {said}");
    }
    // A command reads it once, and says what that is worth.
    let read = on(Path::new(&word("vg0/root")), "cat", &["/word"]);
    assert_eq!((read.code, read.text().as_str()), (0, "first\n"), "{}", read.err);
    assert!(read.err.contains("has it locked: what is written meanwhile"), "{}", read.err);
    drop(writer);
}

#[test]
fn a_volume_is_compared_with_an_image() {
    let test = "a_volume_is_compared_with_an_image";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let at = |name: &str| folder.path().join(name);
    logical(folder.path(), "first\n");
    let (image, lvm) = (at("volume"), at("lvm.img"));
    let (image, lvm) = (image.to_str().unwrap(), lvm.to_str().unwrap());
    let of_lvm = ["--other", lvm, "--other-volume", "/dev/vg0/root"];
    let diff = |drive: &str, words: &[&str]| on(Path::new(drive), "diff", words);
    assert_eq!(diff(image, &of_lvm).good(), "");
    assert_eq!(diff(lvm, &["--volume", "vg0/root", "--other", image]).good(), "");
    assert_eq!(diff(lvm, &[&["--volume", "vg0/root"], &of_lvm[..]].concat()).good(), "");
    fs::write(at("tree/word"), "another\n").unwrap();
    ext(&at("after"), 5, Some(&at("tree")), &["-t", "ext4", "-b", "1024"]);
    let changed = diff(at("after").to_str().unwrap(), &[&of_lvm[..], &["--ignore=time"]].concat());
    let line = "changed  /word: size 8 -> 6\n";
    assert_eq!((changed.code, changed.text().as_str()), (1, line), "{}", changed.err);
    let none = diff(image, &["--other", lvm, "--other-volume", "vg0/nothing"]);
    assert!(none.code == 2 && none.err.contains("no logical volume \"nothing\""), "{}", none.err);
}

/// LVM's checksum.
fn lvm_sum(bytes: &[u8]) -> u32 {
    let bit = |sum: u32, _| sum >> 1 ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
    bytes.iter().fold(0xf597_a6cf, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), bit))
}

/// A physical volume with words in its label and its metadata changed to others, as long, and cut off behind
/// what `root` has.
fn renamed(mut disk: Vec<u8>, words: &[(&str, &str)]) -> Vec<u8> {
    disk.truncate(8 << 20);
    let long = |disk: &[u8], at: usize| u64::from_le_bytes(*disk[at..].first_chunk().unwrap()) as usize;
    let (text, len) = (4096 + long(&disk, 4136), long(&disk, 4144));
    for (from, to) in words {
        // In the label without dashes.
        let bare = [from, to].map(|word| word.replace('-', ""));
        for (range, from, to) in [(512..1024, &*bare[0], &*bare[1]), (text..text + len, from, to)] {
            let end = range.end - from.len();
            let places: Vec<usize> = range.filter(|at| *at <= end).collect();
            for at in places {
                if disk[at..].starts_with(from.as_bytes()) {
                    disk[at..at + to.len()].copy_from_slice(to.as_bytes());
                }
            }
        }
    }
    let sum = lvm_sum(&disk[text..text + len]).to_le_bytes();
    disk[4152..4156].copy_from_slice(&sum);
    for (at, from, to) in [(528, 532, 1024), (4096, 4100, 4608)] {
        let sum = lvm_sum(&disk[from..to]).to_le_bytes();
        disk[at..at + 4].copy_from_slice(&sum);
    }
    disk
}

/// A disk with these in its partitions.
fn parted(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut disk = vec![0u8; 1 << 20];
    for (nr, bytes) in parts.iter().enumerate() {
        let entry = 446 + 16 * nr;
        let (from, sectors) = ((disk.len() / 512) as u32, (bytes.len() / 512) as u32);
        disk[entry + 4] = 0x8e;
        disk[entry + 8..entry + 12].copy_from_slice(&from.to_le_bytes());
        disk[entry + 12..entry + 16].copy_from_slice(&sectors.to_le_bytes());
        disk.extend(bytes);
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[test]
fn a_group_is_read_beside_damaged_ones_and_one_of_its_name() {
    let test = "a_group_is_read_beside_damaged_ones_and_one_of_its_name";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    let mut physicals = ["first\n", "second\n"].map(|which| {
        fs::write(at("tree").join("which"), which).unwrap();
        ext(&at("volume"), 4, Some(&at("tree")), &["-t", "ext4", "-b", "1024"]);
        renamed(physical(folder.path(), &at("volume")), &[])
    });
    const GROUPS: [&str; 2] =
        ["vmmtIv-Ue3T-HBgp-cyla-pG5g-NS8c-2tj2ku", "nother-Ue3T-HBgp-cyla-pG5g-NS8c-2tj2ku"];
    let pv = ("YEihfT-kqAc-8pVF-uEnK-2ryx-iyB5-IsAlmL", "nother-kqAc-8pVF-uEnK-2ryx-iyB5-IsAlmL");
    physicals[1] = renamed(physicals[1].clone(), &[pv, (GROUPS[0], GROUPS[1])]);
    let [first, second] = physicals;
    let other = (pv.0, "fourth-kqAc-8pVF-uEnK-2ryx-iyB5-IsAlmL");
    let (mut label, mut text) = (first.clone(), renamed(first.clone(), &[other]));
    label[600] = 1;
    text[4096 + 25_088 + 7] = b'!';
    // Beside a label that is left from before it had partitions.
    let mut disk = parted(&[first.clone(), second, label, text]);
    disk[512..1024].copy_from_slice(&first[512..1024]);
    disk[4096..128 << 10].copy_from_slice(&first[4096..128 << 10]);
    fs::write(at("disk"), disk).unwrap();
    let damaged = [
        format!("corrupt volume: LVM label: its checksum does not match at byte {}\n", (17 << 20) + 512),
        format!(
            "corrupt volume: LVM metadata of 5374 bytes: its checksum does not match at byte {}\n",
            (25 << 20) + 4096 + 25_088
        ),
    ];
    let all_damaged = |err: &str| damaged.iter().all(|says| err.contains(says));
    for words in [&[][..], &["--json"]] {
        let listed = on(&at("disk"), "info", words);
        assert!(listed.code == 2 && all_damaged(&listed.err), "{}", listed.err);
        for group in GROUPS {
            let says = match words.is_empty() {
                true => format!("logical volume   {group}/root, ext4, 5.5M\n"),
                false => format!("\"group_uuid\":\"{group}\""),
            };
            assert!(listed.text().contains(&says), "{}", listed.text());
        }
    }
    let read = |words: &[&str]| on(&at("disk"), "cat", &[words, &["/which"]].concat());
    for (words, which) in [
        (&["--volume", &*format!("{}/root", GROUPS[0])][..], "first\n"),
        (&["--volume", &*format!("{}/root", GROUPS[1])], "second\n"),
        (&["--volume", "vg0/root", "--partition", "1"], "first\n"),
        (&["--volume", "vg0/root", "--partition", "2"], "second\n"),
        (&["--volume", "vg0/root", "--partition", "2", "--locate", "host"], "second\n"),
    ] {
        let ran = read(words);
        assert_eq!((ran.code, ran.text().as_str()), (0, which), "{words:?} {}", ran.err);
        assert!(all_damaged(&ran.err), "{}", ran.err);
    }
    let uuids = format!("its UUID says which: [\"{}\", \"{}\"]", GROUPS[1], GROUPS[0]);
    for (words, says) in [
        (&["--volume", "vg0/root"][..], &*format!("\"vg0\" is more than one volume group; {uuids}")),
        (
            &["--volume", "vg0/root", "--partition", "3"],
            "no volume group \"vg0\" in partition 3; there are none; ",
        ),
        (&["--volume", "vg0/root", "--partition", "none"], "no partition \"none\""),
    ] {
        let ran = read(words);
        assert!(ran.code == 2 && ran.err.contains(says), "{words:?} {}", ran.err);
    }
    // Of a disk with partitions that is no physical volume any more, nothing is one.
    let mut stale = parted(&[fs::read(at("volume")).unwrap()]);
    stale[512..1024].copy_from_slice(&first[512..1024]);
    stale[4096..128 << 10].copy_from_slice(&first[4096..128 << 10]);
    fs::write(at("disk"), stale).unwrap();
    assert_eq!(read(&[]).good(), "second\n");
    assert!(!on(&at("disk"), "info", &[] as &[&str]).good().contains("logical volume"));
    let ran = read(&["--volume", "vg0/root"]);
    assert!(ran.code == 2 && ran.err.contains("there are none"), "{}", ran.err);
}

#[test]
fn of_cloned_physical_volumes_the_partition_says_which() {
    let test = "of_cloned_physical_volumes_the_partition_says_which";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    let clones = ["first\n", "second\n"].map(|which| {
        fs::write(at("tree").join("which"), which).unwrap();
        ext(&at("volume"), 4, Some(&at("tree")), &["-t", "ext4", "-b", "1024"]);
        renamed(physical(folder.path(), &at("volume")), &[])
    });
    fs::write(at("disk"), parted(&clones)).unwrap();
    let read = |words: &[&str]| {
        on(&at("disk"), "cat", &[&["--volume", "vg0/root"][..], words, &["/which"]].concat())
    };
    assert_eq!(read(&["--partition", "1"]).good(), "first\n");
    assert_eq!(read(&["--partition", "2"]).good(), "second\n");
    let ran = read(&[]);
    let says = "several physical volumes here have its identifier: partitions 1, 2";
    assert!(ran.code == 2 && ran.err.contains(says), "{}", ran.err);
}

/// A member of an array, of these bytes, with a superblock of version 1.`minor` that mdadm finds right.
fn member(level: u32, minor: u32, data: &[u8]) -> Vec<u8> {
    member_with(level, minor, data, &[])
}

/// The same, with other bytes at places of its superblock.
fn member_with(level: u32, minor: u32, data: &[u8], changes: &[(usize, &[u8])]) -> Vec<u8> {
    let size = (data.len() + (256 << 10)) & !4095;
    let mut disk = vec![0; size];
    let (block_at, data_at) = match minor {
        0 => ((size / 512 - 16) / 8 * 4096, 0),
        1 => (0, 64 << 10),
        _ => (4096, 64 << 10),
    };
    disk[data_at..data_at + data.len()].copy_from_slice(data);
    let mut block = [0u8; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let sectors = (data.len() as u64 / 512).to_le_bytes();
    put(0, &0xa92b_4efcu32.to_le_bytes());
    put(4, &1u32.to_le_bytes());
    put(16, &[7; 16]);
    put(32, b"host:mirror");
    put(72, &level.to_le_bytes());
    put(80, &sectors);
    put(92, &2u32.to_le_bytes());
    put(128, &(data_at as u64 / 512).to_le_bytes());
    put(136, &sectors);
    put(144, &(block_at as u64 / 512).to_le_bytes());
    put(168, &[9; 16]);
    put(208, &u64::MAX.to_le_bytes());
    put(220, &128u32.to_le_bytes());
    put(256, &[0xff; 256]);
    put(256, &[0, 0, 1, 0]);
    changes.iter().for_each(|(at, bytes)| put(*at, bytes));
    let words = block.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    let sum: u64 = words.sum();
    block[216..220].copy_from_slice(&((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
    disk[block_at..block_at + 512].copy_from_slice(&block);
    disk
}

/// The same with a superblock of version 0.90: whether the array was stopped, and the device's state.
fn old_member(data: &[u8], is_stopped: bool, state: u32) -> Vec<u8> {
    let at = data.len().next_multiple_of(64 << 10);
    let mut disk = data.to_vec();
    disk.resize(at + (64 << 10), 0);
    let mut block = [0u32; 1024];
    for (word, value) in [
        (0, 0xa92b_4efc),
        (2, 90),
        (5, 7),
        (7, 1),
        (8, (data.len() / 1024) as u32),
        (9, 2),
        (10, 2),
        (33, u32::from(is_stopped)),
        (34, 2),
        (39, 12),
        // How far a resync had come, as of an older event: that does not count.
        (43, 8),
        (128, 0),
        (132, 6),
        (160, 1),
        (163, 1),
        (164, 6),
        (996, state),
    ] {
        block[word] = value;
    }
    let sum: u64 = block.iter().map(|word| u64::from(*word)).sum();
    block[38] = (sum as u32).wrapping_add((sum >> 32) as u32);
    disk[at..at + 4096].copy_from_slice(&block.map(u32::to_le_bytes).concat());
    disk
}

/// What a member's superblock says of itself, where its file system is found without it, is said.
#[test]
fn a_member_of_a_mirror_that_may_be_old_is_said_to_be() {
    let test = "a_member_of_a_mirror_that_may_be_old_is_said_to_be";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip", "mdadm"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("tree").join("which"), "a mirror\n").unwrap();
    ext(&at("volume"), 4, Some(&at("tree")), &["-t", "ext4"]);
    let volume = fs::read(at("volume")).unwrap();
    let running = (208, &[0; 8][..]);
    let syncing = (208, &8u64.to_le_bytes()[..]);
    let spare = (160, &[5][..]);
    let failed = (256, &[0xfe, 0xff][..]);
    let rebuilt = (8, &[2][..]);
    let not_stopped = "a member of a RAID 1 that was not stopped";
    let old = "what is read may be old or in part another's: it lies in a ";
    for (disk, examined, says) in [
        (member(1, 0, &volume), "State : clean", ""),
        (member_with(1, 0, &volume, &[running]), "State : active", not_stopped),
        (member_with(1, 2, &volume, &[running]), "State : active", not_stopped),
        (member_with(1, 0, &volume, &[syncing]), "State : active", "resynchronized, at byte 4096: "),
        (member_with(1, 0, &volume, &[spare]), "Device Role : spare", &format!("{old}spare device")),
        (
            member_with(1, 0, &volume, &[failed]),
            "Device Role : ",
            &format!("{old}member of a RAID 1 that has failed"),
        ),
        (member_with(1, 0, &volume, &[rebuilt]), "Recovery Offset : ", "it was being rebuilt"),
        (old_member(&volume, true, 6), "State : clean", ""),
        (old_member(&volume, false, 6), "State : active", not_stopped),
        (old_member(&volume, true, 0), "spare\n", &format!("{old}spare device")),
        (old_member(&volume, true, 1), "faulty", &format!("{old}member of a RAID 1 that has failed")),
        // The disk is the member, and the partitions are the array's.
        (
            member_with(1, 0, &parted(std::slice::from_ref(&volume)), &[running]),
            "State : active",
            not_stopped,
        ),
    ] {
        fs::write(at("member"), disk).unwrap();
        let said = must(tool("mdadm").arg("--examine").arg(at("member"))).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(examined) && said.contains("- correct\n"), "{said}");
        let ran = on(&at("member"), "cat", &["/which"]);
        assert_eq!((ran.code, ran.text().as_str()), (0, "a mirror\n"), "{examined}: {}", ran.err);
        let warned = ran.err.starts_with("nearside: warning: ") && ran.err.lines().count() == 1;
        assert_eq!((warned, ran.err.contains(says)), (!says.is_empty(), true), "{examined}: {}", ran.err);
        let info = on(&at("member"), "info", &["--json"]).json().remove(0);
        let warnings = info["volumes"][0]["warnings"].to_string();
        let is_known = warnings.contains("as of event ");
        assert!(warnings.contains(says) && (is_known || warnings.contains(old)), "{warnings}");
    }
    for minor in [0, 2] {
        let array = physical(folder.path(), &at("volume"));
        fs::write(at("member"), member_with(1, minor, &array, &[running])).unwrap();
        let ran = on(&at("member"), "cat", &["--volume", "vg0/root", "/which"]);
        assert!(ran.code == 0 && ran.err.contains(not_stopped), "1.{minor} {}", ran.err);
    }
    // A volume that goes on to where a superblock was has taken its place.
    let mut disk = member_with(1, 0, &volume, &[spare]);
    let block = disk.split_off(disk.len() - 12288);
    let mut taken = volume.clone();
    let from = taken.len() - 12288;
    taken[from..].copy_from_slice(&block);
    fs::write(at("member"), taken).unwrap();
    assert_eq!(on(&at("member"), "cat", &["/which"]).good(), "a mirror\n");
}

const RUNNING: &str =
    "a member of a RAID 1 that was not stopped: what was written last may differ in another";

/// What is known of every member.
fn known(event: u64) -> String {
    format!(
        "a member of a RAID 1 as of event {event}: whether another has later ones is not seen in it \
         (mdadm --examine)"
    )
}

/// What lies in LVM in a member says of it what a file system in it says, at the same place.
#[test]
fn a_logical_volume_in_a_member_of_a_mirror_says_how_old_it_is() {
    let test = "a_logical_volume_in_a_member_of_a_mirror_says_how_old_it_is";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("tree").join("which"), "a mirror\n").unwrap();
    ext(&at("volume"), 4, Some(&at("tree")), &["-t", "ext4"]);
    let array = physical(folder.path(), &at("volume"));
    let left = (200, &41u64.to_le_bytes()[..]);
    let later = (200, &43u64.to_le_bytes()[..]);
    let active = (208, &[0; 8][..]);
    let spare = (160, &[5][..]);
    let clones = parted(&[member_with(1, 2, &array, &[left]), member_with(1, 0, &array, &[later, active])]);
    let whole = member_with(1, 0, &parted(std::slice::from_ref(&array)), &[left, active]);
    let both = |event| vec![RUNNING.to_owned(), known(event)];
    let said = |disk: &[u8], words: &[&str], warnings: &[String]| {
        fs::write(at("member"), disk).unwrap();
        let words = [&["--volume", "vg0/root"][..], words].concat();
        let info = |more: &[&str]| on(&at("member"), "info", &[&words[..], more].concat());
        let text = info(&[]).good();
        let lines = text.lines().filter_map(|line| line.strip_prefix("warning "));
        assert_eq!(lines.map(str::trim_start).collect::<Vec<_>>(), warnings, "{text}");
        let warned = usize::from(warnings.len() > 1 || warnings.iter().any(|text| text.starts_with("what ")));
        for way in [&[][..], &["--locate", "host"]] {
            let told = info(&[&["--json"][..], way].concat()).json().remove(0);
            assert_eq!(told["volumes"][0]["warnings"], serde_json::json!(warnings), "{way:?}");
            // The others warn of what may be wrong alone.
            let ran = on(&at("member"), "cat", &[&words[..], way, &["/which"]].concat());
            assert_eq!((ran.code, ran.text().as_str()), (0, "a mirror\n"), "{}", ran.err);
            assert!(ran.err.lines().count() == warned && !ran.err.contains("as of event"), "{}", ran.err);
        }
    };
    for minor in [0, 1, 2] {
        said(&member_with(1, minor, &array, &[left]), &[], &[known(41)]);
        said(&member_with(1, minor, &array, &[left, active]), &[], &both(41));
    }
    said(&old_member(&array, true, 6), &[], &[known(12)]);
    said(&old_member(&array, false, 6), &[], &both(12));
    let old = "what is read may be old or in part another's: it lies in a spare device of a RAID 1, which has \
               nothing of it: mdadm --assemble --readonly makes a block device of the array, which can be read";
    said(&member_with(1, 0, &array, &[left, spare]), &[], &[old.to_owned()]);
    // Of clones, that which is read; and of partitions, the disk that is the member.
    said(&clones, &["--partition", "1"], &[known(41)]);
    said(&clones, &["--partition", "2"], &both(43));
    said(&whole, &[], &both(41));
    said(&array, &[], &[]);
    let word = format!("lvm:{}?volume=vg0/root", at("member").display());
    fs::write(at("member"), &whole).unwrap();
    let info = on(Path::new(&word), "info", &["--json"]).json().remove(0);
    assert_eq!(info["volumes"][0]["warnings"], serde_json::json!(both(41)));
}

/// A host sees nothing of what its namespace lies in: the drive tells it, as the server tells whoever serves,
/// at the start and when asked.
#[test]
fn a_server_says_how_old_a_logical_volume_in_a_member_of_a_mirror_is() {
    let test = "a_server_says_how_old_a_logical_volume_in_a_member_of_a_mirror_is";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let at = |name: &str| folder.path().join(name);
    logical(folder.path(), "a mirror\n");
    fs::write(at("nothing"), vec![0; 6 << 20]).unwrap();
    let left = (200, &41u64.to_le_bytes()[..]);
    let active = (208, &[0; 8][..]);
    let [word, empty] = [("member", "volume"), ("empty", "nothing")].map(|(name, volume)| {
        let array = physical(folder.path(), &at(volume));
        fs::write(at(name), member_with(1, 2, &array, &[left, active])).unwrap();
        format!("lvm:{}?volume=vg0/root", at(name).display())
    });
    let control = at("control.sock");
    let more = ["--control", control.to_str().unwrap(), "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let words = ["--store", &word, "--store", &empty, "--subsystem", NQN, "--trust"];
    let words = [&words[..], &more].concat();
    let mut served = Served::start(folder.path(), &words, "");
    let lines = (&mut served.out).lines().map(Result::unwrap);
    let told: Vec<String> = lines.take_while(|line| !line.starts_with("what it does: ")).collect();
    let status = |words: &[&str]| {
        let mut status = nearside();
        status.arg("status").args(words).arg("--control").arg(&control);
        Ran::from(status.output().unwrap())
    };
    let both = [RUNNING.to_owned(), known(41)];
    let namespace = status(&["--json"]).json()[0]["subsystems"][0]["namespaces"][0].clone();
    assert_eq!(namespace["store_warnings"], serde_json::json!(both));
    let text = status(&[]).good();
    for warning in &both {
        assert!(told.contains(&format!("namespace 1 of {NQN}: {warning}")), "{told:?}");
        assert!(text.contains(&format!("    {warning}\n")), "{text}");
    }
    let network = |nsid: u32| format!("nvme+tcp://{}/{NQN}/{nsid}", served.address);
    for drive in [&word, &network(1)] {
        let ran = on(Path::new(drive), "cat", &["/word"]);
        let warned = format!("nearside: warning: {RUNNING}\n");
        assert_eq!((ran.code, ran.text().as_str(), ran.err), (0, "a mirror\n", warned), "{drive}");
        let info = on(Path::new(drive), "info", &["--json"]).json().remove(0);
        assert_eq!(info["volumes"][0]["warnings"], serde_json::json!(both), "{drive}");
    }
    // Where there is no file system that could say it.
    for drive in [&empty, &network(2)] {
        let ran = on(Path::new(drive), "info", &[] as &[&str]);
        let said = ran.err.lines().filter_map(|line| line.strip_prefix("nearside: warning: "));
        assert!(ran.code == 2 && said.eq(&both), "{drive}: {}", ran.err);
    }
}

#[test]
fn a_member_of_a_mirror_has_all_its_files() {
    let test = "a_member_of_a_mirror_has_all_its_files";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip", "mdadm"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("tree").join("which"), "a mirror\n").unwrap();
    ext(&at("volume"), 4, Some(&at("tree")), &["-t", "ext4", "-L", "mirrored"]);
    let volume = fs::read(at("volume")).unwrap();
    let read = |words: &[&str]| on(&at("member"), "cat", &[words, &["/which"]].concat());
    for minor in [0, 1, 2] {
        fs::write(at("member"), member(1, minor, &volume)).unwrap();
        let said = must(tool("mdadm").arg("--examine").arg(at("member"))).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(
            said.contains(&format!("Version : 1.{minor}\n")) && said.contains("Raid Level : raid1\n"),
            "{said}"
        );
        assert!(said.contains(" - correct\n") && said.contains("Device Role : Active device 0\n"), "{said}");
        for words in [&[][..], &["--locate", "host"]] {
            assert_eq!(read(words).good(), "a mirror\n", "1.{minor} {words:?}");
        }
        // Bytes that are no file system's, of another level.
        fs::write(at("member"), member(5, minor, &vec![7; 1 << 20])).unwrap();
        let ran = read(&[]);
        let says = "a member of a RAID 5, of which only all together are read: mdadm --assemble --readonly";
        assert!(ran.code == 2 && ran.err.contains(says), "1.{minor}: {}", ran.err);
    }
    // In a partition, beside another, and as a physical volume.
    let array = physical(folder.path(), &at("volume"));
    let mut mirror = member(1, 2, &array);
    // Behind a label that is left from before the array.
    mirror[512..1024].copy_from_slice(&array[512..1024]);
    fs::write(at("member"), parted(&[volume.clone(), member(1, 1, &volume), mirror])).unwrap();
    assert_eq!(read(&["--partition", "2"]).good(), "a mirror\n");
    assert_eq!(read(&["--volume", "vg0/root"]).good(), "a mirror\n");
    let info = on(&at("member"), "info", &["--json", "--partition", "2"]).json().remove(0);
    assert_eq!(
        (&info["partitions"][1]["content"], &info["partitions"][1]["label"]),
        (&"ext4".into(), &"mirrored".into())
    );
    assert_eq!(info["partitions"][2]["content"], "a physical volume of LVM");
}

/// A GPT by sfdisk with volumes by mke2fs: each partition's number is the content of its file `which`.
fn disk(folder: &Path) -> PathBuf {
    let tree = folder.join("tree");
    fs::create_dir(&tree).unwrap();
    let script = format!(
        "label: gpt\nstart=1MiB,size=8MiB,name=boot,uuid={}\nstart=9MiB,size=8MiB,name=\"two words\",uuid={}\n\
         start=17MiB,size=8MiB,name=home,uuid={}\nstart=25MiB,size=1MiB,name=empty,type=swap\n",
        uuid(1, 1),
        uuid(2, 1),
        uuid(3, 1)
    );
    let image = folder.join("disk.img");
    fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).unwrap();
    fs::write(folder.join("script"), script).unwrap();
    let mut sfdisk = tool("sfdisk");
    sfdisk.args(["-q", "--no-reread", "--no-tell-kernel"]).arg(&image);
    must(sfdisk.stdin(fs::File::open(folder.join("script")).unwrap()));
    let disk = fs::File::options().write(true).open(&image).unwrap();
    for (number, label) in [(1, "small"), (2, "same"), (3, "same")] {
        fs::write(tree.join("which"), format!("{number}\n")).unwrap();
        let volume = folder.join("volume");
        ext(&volume, 8, Some(&tree), &["-t", "ext4", "-L", label, "-U", &uuid(number, 2)]);
        disk.write_all_at(&fs::read(&volume).unwrap(), (8 * number - 7) << 20).unwrap();
    }
    image
}

fn uuid(number: u64, kind: u64) -> String {
    format!("{number:08x}-000a-4bcd-8ef0-00000000000{kind}")
}

#[test]
fn partitions_go_by_their_names() {
    let test = "partitions_go_by_their_names";
    let Some(folder) = needs::folder(test, &["sfdisk", "mke2fs"]) else { return };
    let image = disk(folder.path());
    for (word, number) in [
        ("2", 2),
        ("boot", 1),
        ("two words", 2),
        ("PARTLABEL=home", 3),
        ("small", 1),
        ("LABEL=small", 1),
        (&uuid(3, 1), 3),
        (&uuid(3, 2).to_uppercase(), 3),
        (&format!("PARTUUID={}", uuid(2, 1)), 2),
        (&format!("UUID={}", uuid(2, 2)), 2),
    ] {
        for more in [&[][..], &["--locate", "host"]] {
            let words = [&["--partition", word, "/which"], more].concat();
            assert_eq!(on(&image, "cat", &words).good(), format!("{number}\n"), "{word} {more:?}");
        }
    }
    let both =
        "2: ext4, name \"two words\", label \"same\" (8.0M), 3: ext4, name \"home\", label \"same\" (8.0M)";
    let all = format!("1: ext4, name \"boot\", label \"small\" (8.0M), {both}, 4: ");
    for (word, says) in [
        ("same", format!("\"same\" is more than one partition: {both}\n")),
        ("LABEL=boot", format!("no partition \"boot\"; there are {all}")),
        ("other", format!("no partition \"other\"; there are {all}")),
        (&format!("UUID={}", uuid(2, 1)), "no partition".into()),
    ] {
        let ran = on(&image, "cat", &["--partition", word, "/which"]);
        assert_eq!((ran.code, ran.out.len()), (2, 0), "{word}");
        assert!(ran.err.contains(&says), "{word}: {}", ran.err);
    }
    // Without a word for one, they are listed, and the drive's refusal follows.
    let ran = on(&image, "info", &[] as &[&str]);
    assert!(ran.code == 2 && ran.err.contains("several partitions: name one of 1: ext4"), "{}", ran.err);
    let type_of_linux = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";
    let second = format!(
        "partition 2      ext4, 8.0M from byte 9437184, type {type_of_linux} (Linux filesystem), name two words, \
         label same\n"
    );
    assert!(ran.text().contains(&second), "{}", ran.text());
    let info = on(&image, "info", &["--json", "--partition", "home"]).json().remove(0);
    assert_eq!(info["volumes"][0]["partition"], 3);
    let third = serde_json::json!({
        "number": 3, "offset": 17 << 20, "len": 8 << 20, "kind": type_of_linux, "type_name": "Linux filesystem",
        "name": "home", "uuid": uuid(3, 1), "content": "ext4", "label": "same", "volume_uuid": uuid(3, 2),
    });
    assert_eq!((&info["partitions"][2], info["partitions"].as_array().map(Vec::len)), (&third, Some(4)));
    let listed = must(tool("sfdisk").args(["-lq", "-o", "Type"]).arg(&image)).stdout;
    let theirs: Vec<_> = String::from_utf8(listed).unwrap().lines().skip(1).map(str::to_owned).collect();
    let parts = info["partitions"].as_array().unwrap();
    let ours: Vec<_> = parts.iter().map(|part| part["type_name"].as_str().unwrap()).collect();
    assert_eq!(ours, theirs);
}
