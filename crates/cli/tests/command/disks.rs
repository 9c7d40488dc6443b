//! Disk images as people have them: what a qcow2 image shows is what the raw one shows, and partitions go by
//! their names.

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
    let Some(volume) = small(test).filter(|_| needs::tools(test, &["qemu-img", "qemu-io"])) else { return };
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
