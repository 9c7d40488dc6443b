//! What no volume is, by the programs that make it, and by each mark.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nearside_conformance::needs;
use nearside_conformance::view::{Image, block_on};
use nearside_fsview::magic::{KNOWN, what_is};
use nearside_random::Rng;

fn name_of(bytes: &[u8]) -> Option<&'static str> {
    block_on(what_is(&Image::Memory(Arc::from(bytes)))).unwrap().map(|other| other.name)
}

#[test]
fn every_mark_is_found_where_it_lies() {
    for (other, marks) in KNOWN {
        for (at, mark) in marks {
            let at = *at as usize;
            let mut bytes = vec![0; 96 << 10];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(name_of(&bytes), Some(other.name), "{mark:?} at {at}");
            // In a drive that ends within it, or with it.
            assert_ne!(name_of(&bytes[..at + mark.len() - 1]), Some(other.name), "{mark:?} at {at}");
            assert_eq!(name_of(&bytes[..at + mark.len()]), Some(other.name), "{mark:?} at {at}");
        }
    }
    assert_eq!(name_of(&[0; 4096]), Some("zeros, where file systems and partition tables begin"));
    assert_eq!(name_of(&Rng(7).bytes(96 << 10)), None);
}

/// As their makers make them.
#[test]
fn what_programs_make_is_named() {
    let test = "what_programs_make_is_named";
    let makers: [(&str, &[&str], &str); 13] = [
        ("qemu-img", &["create", "-q", "-f", "qcow2", "image", "16M"], "a qcow2 disk image"),
        ("qemu-img", &["create", "-q", "-f", "vmdk", "image", "16M"], "a VMDK disk image"),
        ("qemu-img", &["create", "-q", "-f", "vdi", "image", "16M"], "a VDI disk image"),
        ("qemu-img", &["create", "-q", "-f", "vhdx", "image", "16M"], "a VHDX disk image"),
        ("qemu-img", &["create", "-q", "-f", "vpc", "image", "16M"], "a VHD disk image"),
        ("qemu-img", &["create", "-q", "-f", "qed", "image", "16M"], "a QED disk image"),
        ("qemu-img", &["create", "-q", "-f", "parallels", "image", "16M"], "a Parallels disk image"),
        ("mkfs.xfs", &["-q", "-d", "file,name=image,size=320m"], "XFS"),
        ("mkswap", &["-q", "image"], "swap space"),
        ("gzip", &["-kf", "image"], "compressed by gzip"),
        ("xz", &["-kf", "image"], "compressed by xz"),
        ("bzip2", &["-kf", "image"], "compressed by bzip2"),
        ("tar", &["-cf", "image.tar", "image"], "a tar archive"),
    ];
    let names: Vec<&str> = makers.iter().map(|(name, ..)| *name).collect();
    let Some(folder) = needs::folder(test, &names) else { return };
    let made = |path: &Path| std::fs::read(path).unwrap();
    for (program, words, name) in makers {
        let (image, packed) = (folder.path().join("image"), ["gz", "xz", "bz2", "tar"]);
        if program != "mkfs.xfs" {
            std::fs::write(&image, vec![0; 1 << 20]).unwrap();
        }
        let mut command = Command::new(needs::tool(program).unwrap());
        let output = command.args(words).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let packed = packed.iter().map(|end| folder.path().join(format!("image.{end}"))).find(|p| p.exists());
        assert_eq!(name_of(&made(packed.as_deref().unwrap_or(&image))), Some(name), "{program} {words:?}");
        let _ = std::fs::remove_file(&image);
        packed.map(std::fs::remove_file);
    }
}
