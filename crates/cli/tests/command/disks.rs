//! Disk images as people have them: what a qcow2 image, a logical volume or a mirror's member shows is what
//! the raw one shows, and partitions go by their names.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nearside_conformance::needs;
use nearside_conformance::volume::{ext, must, tool};

use crate::fixture::{on, small};

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
            "logical volume   vg0/wide, it is striped over 2, 2.0M\n",
            "logical volume   vg0/before, it is a snapshot, 512K\n",
        ] {
            assert!(listed.text().contains(line), "{line}{}", listed.text());
        }
        assert!(!listed.text().contains("pool_tdata"), "{}", listed.text());
    }
    let table = &on(&at("parted.img"), "info", &["--json"]).json()[0]["logical_volumes"];
    let root = serde_json::json!({ "group": "vg0", "name": "root", "len": 5632 << 10, "content": "ext4", "label": "the root" });
    let found = table.as_array().unwrap().iter().find(|volume| volume["name"] == "root").unwrap();
    assert!(root.as_object().unwrap().iter().all(|(key, value)| &found[key] == value), "{found}");
    let image = at("lvm.img");
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

/// A member of an array, of these bytes, with a superblock of version 1.`minor` that mdadm finds right.
fn member(level: u32, minor: u32, data: &[u8]) -> Vec<u8> {
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
    let words = block.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    let sum: u64 = words.sum();
    block[216..220].copy_from_slice(&((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
    disk[block_at..block_at + 512].copy_from_slice(&block);
    disk
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
    let mirror = member(1, 2, &physical(folder.path(), &at("volume")));
    let mut disk = vec![0u8; 1 << 20];
    let mut entries = vec![(1 << 20, volume.len())];
    disk.extend(&volume);
    for bytes in [member(1, 1, &volume), mirror] {
        entries.push((disk.len(), bytes.len()));
        disk.extend(bytes);
    }
    for (nr, (from, bytes)) in entries.into_iter().enumerate() {
        let entry = 446 + 16 * nr;
        disk[entry + 4] = 0xfd;
        disk[entry + 8..entry + 12].copy_from_slice(&((from / 512) as u32).to_le_bytes());
        disk[entry + 12..entry + 16].copy_from_slice(&((bytes / 512) as u32).to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(at("member"), disk).unwrap();
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
        "partition 2      ext4, 8.0M from byte 9437184, type {type_of_linux}, name two words, label same\n"
    );
    assert!(ran.text().contains(&second), "{}", ran.text());
    let info = on(&image, "info", &["--json", "--partition", "home"]).json().remove(0);
    assert_eq!(info["volumes"][0]["partition"], 3);
    let third = serde_json::json!({
        "number": 3, "offset": 17 << 20, "len": 8 << 20, "kind": type_of_linux, "name": "home", "uuid": uuid(3, 1),
        "content": "ext4", "label": "same", "volume_uuid": uuid(3, 2),
    });
    assert_eq!((&info["partitions"][2], info["partitions"].as_array().map(Vec::len)), (&third, Some(4)));
}
