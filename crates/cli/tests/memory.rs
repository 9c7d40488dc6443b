//! A drive's memory does not grow with the volume:
//! files of a 1 TiB sparse image are searched in less than 64 MiB.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nearside_conformance::{needs, volume};
use nearside_dma::cpu::wait_with_peak;

const MOST: u64 = 64 << 20;

/// What `nearside grep` prints for the arguments, and its peak memory.
fn grep(image: &Path, arguments: &[&str]) -> (String, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.args(["grep", "-d"]).arg(image).args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let (status, peak) = wait_with_peak(child).unwrap();
    assert!(status.success(), "{command:?}: {status}");
    eprintln!("{arguments:?}: {} KiB", peak >> 10);
    (text, peak)
}

#[test]
fn a_terabyte_takes_no_more_than_64_mib() {
    const NAME: &str = "memory::a_terabyte_takes_no_more_than_64_mib";
    let Some(folder) = needs::folder(NAME, &["mke2fs"]) else { return };
    let (tree, image) = (folder.path().join("tree"), folder.path().join("disk.img"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("small"), "one\nneedle\ntwo\n").unwrap();
    // 4 GiB of holes, with lines between them that are 16 MiB long.
    let large = File::create(tree.join("large")).unwrap();
    large.set_len(4 << 30).unwrap();
    for n in 0..256u64 {
        let line = if n % 16 == 0 { "\nneedle\n" } else { "\nhay\n" };
        large.write_all_at(line.as_bytes(), n << 24).unwrap();
    }
    let options =
        "-t ext4 -T largefile4 -N 4096 -J size=4 -O ^resize_inode -E lazy_itable_init=1,lazy_journal_init=1";
    volume::ext(&image, 1 << 20, Some(&tree), &options.split(' ').collect::<Vec<_>>());

    for (arguments, expected) in [
        (&["needle", "/small"][..], "needle\n"),
        (&["-c", "-a", "needle", "/large"], "16\n"),
        (&["-c", "-a", "-i", "n[e]+dle", "/large"], "16\n"),
        (&["-r", "-c", "-a", "needle", "/"], ""),
    ] {
        let (text, peak) = grep(&image, arguments);
        assert!(expected.is_empty() || text == expected, "{arguments:?}: {text}");
        assert!(peak < MOST, "{arguments:?}: {peak} bytes");
    }
}
