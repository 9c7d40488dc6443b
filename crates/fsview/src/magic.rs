//! What lies where no volume was found: file systems that are not read here, containers of images, and layers
//! of the kernel's below a volume, each by the bytes that mark it.
//!
//! The marks are those that libblkid and file(1) go by.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;

use crate::partition::read;
use crate::{Error, Source};

/// What something is by its mark, and how its files can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its name, as its users call it.
    pub name: &'static str,
    /// What can be done.
    pub reach: Reach,
}

/// How files in what is not read here can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The kernel mounts it.
    Mount,
    /// qemu-img makes a raw image of it.
    Convert,
    /// This program unpacks it.
    Unpack(&'static str),
    /// This program makes a block device of it.
    Assemble(&'static str),
    /// This program reads one volume of several.
    Volumes,
    /// There are none.
    Nothing,
}

impl fmt::Display for Other {
    /// With what can be done.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.reach {
            Reach::Mount => write!(f, "{name}, which is not read here: mount -o ro shows its files"),
            Reach::Convert => {
                write!(f, "{name}: qemu-img convert -O raw IMAGE RAW makes an image that can be read")
            }
            Reach::Unpack(by) => write!(f, "{name}: unpack the image first ({by})"),
            Reach::Assemble(by) => {
                write!(f, "{name}: {by} makes a block device of it, which can be read")
            }
            Reach::Volumes => write!(
                f,
                "{name}: --volume VG/LV reads a volume of an image (info lists them); vgchange -ay makes block \
                 devices of them"
            ),
            Reach::Nothing => f.write_str(name),
        }
    }
}

/// Bytes at a place.
pub type Mark = (u64, &'static [u8]);

const fn other(name: &'static str, reach: Reach, marks: &'static [Mark]) -> (Other, &'static [Mark]) {
    (Other { name, reach }, marks)
}

/// What is known, in the order in which it is looked for: layers and containers first, since a file system's
/// mark may lie within. One mark of each is enough.
pub const KNOWN: [(Other, &[Mark]); 41] = [
    other("a qcow2 disk image", Reach::Convert, &[(0, b"QFI\xfb")]),
    other("a VMDK disk image", Reach::Convert, &[(0, b"KDMV"), (0, b"COWD"), (0, b"# Disk DescriptorFile")]),
    other("a VDI disk image", Reach::Convert, &[(64, b"\x7f\x10\xda\xbe")]),
    other("a VHDX disk image", Reach::Convert, &[(0, b"vhdxfile")]),
    other("a VHD disk image", Reach::Convert, &[(0, b"conectix")]),
    other("a QED disk image", Reach::Convert, &[(0, b"QED\0")]),
    other("a Parallels disk image", Reach::Convert, &[(0, b"WithoutFreeSpace"), (0, b"WithouFreSpacExt")]),
    other("an Android sparse image", Reach::Unpack("simg2img"), &[(0, b"\x3a\xff\x26\xed")]),
    other(
        "an EnCase image (EWF)",
        Reach::Unpack("ewfexport -t RAW -f raw"),
        &[(0, b"EVF\x09\x0d\x0a\xff\x00")],
    ),
    other("compressed by gzip", Reach::Unpack("gunzip"), &[(0, b"\x1f\x8b\x08")]),
    other("compressed by xz", Reach::Unpack("unxz"), &[(0, b"\xfd7zXZ\0")]),
    other("compressed by Zstandard", Reach::Unpack("unzstd"), &[(0, b"\x28\xb5\x2f\xfd")]),
    other("compressed by bzip2", Reach::Unpack("bunzip2"), &[(0, b"BZh91AY&SY"), (0, b"BZh61AY&SY")]),
    other("compressed by lz4", Reach::Unpack("unlz4"), &[(0, b"\x04\x22\x4d\x18")]),
    other("a zip archive", Reach::Unpack("unzip"), &[(0, b"PK\x03\x04")]),
    other("a 7z archive", Reach::Unpack("7z x"), &[(0, b"7z\xbc\xaf\x27\x1c")]),
    other("compressed by lzip", Reach::Unpack("lzip -d"), &[(0, b"LZIP\x01")]),
    other("a cpio archive", Reach::Unpack("cpio -i"), &[(0, b"070701"), (0, b"070702")]),
    other("a tar archive", Reach::Unpack("tar -x"), &[(257, b"ustar\0"), (257, b"ustar  \0")]),
    other("encrypted by LUKS", Reach::Assemble("cryptsetup open"), &[(0, b"LUKS\xba\xbe")]),
    other("encrypted by BitLocker", Reach::Assemble("cryptsetup open --type bitlk"), &[(3, b"-FVE-FS-")]),
    other(
        "a physical volume of LVM",
        Reach::Volumes,
        &[(0, b"LABELONE"), (512, b"LABELONE"), (1024, b"LABELONE"), (1536, b"LABELONE")],
    ),
    other(
        "a member of a Linux RAID",
        Reach::Assemble("mdadm --assemble --readonly"),
        &[(0, b"\xfc\x4e\x2b\xa9"), (4096, b"\xfc\x4e\x2b\xa9")],
    ),
    other("swap space", Reach::Nothing, &[(4086, b"SWAPSPACE2"), (4086, b"SWAP-SPACE")]),
    other("a suspended system's memory", Reach::Nothing, &[(4086, b"S1SUSPEND")]),
    other("XFS", Reach::Mount, &[(0, b"XFSB")]),
    other("btrfs", Reach::Mount, &[(0x1_0040, b"_BHRfS_M")]),
    other("NTFS", Reach::Mount, &[(3, b"NTFS    ")]),
    other("exFAT", Reach::Mount, &[(3, b"EXFAT   ")]),
    other(
        "FAT (vfat)",
        Reach::Mount,
        &[(82, b"FAT32   "), (54, b"FAT16   "), (54, b"FAT12   "), (54, b"FAT     ")],
    ),
    other("squashfs", Reach::Mount, &[(0, b"hsqs"), (0, b"sqsh")]),
    other("EROFS", Reach::Mount, &[(1024, b"\xe2\xe1\xf5\xe0")]),
    other("ISO 9660 (a CD image)", Reach::Mount, &[(0x8001, b"CD001")]),
    other("UDF", Reach::Mount, &[(0x8001, b"BEA01")]),
    other(
        "a device of bcache (or an old bcachefs)",
        Reach::Assemble("/sys/fs/bcache/register"),
        &[(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")],
    ),
    other(
        "bcachefs",
        Reach::Mount,
        &[(4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")],
    ),
    other("HFS+", Reach::Mount, &[(1024, b"H+\0\x04"), (1024, b"HX\0\x05")]),
    other("JFS", Reach::Mount, &[(0x8000, b"JFS1")]),
    other(
        "ReiserFS",
        Reach::Mount,
        &[(0x1_0034, b"ReIsErFs"), (0x1_0034, b"ReIsEr2Fs"), (0x1_0034, b"ReIsEr3Fs")],
    ),
    other(
        "a Minix file system",
        Reach::Mount,
        &[(1040, b"\x7f\x13"), (1040, b"\x8f\x13"), (1040, b"\x68\x24")],
    ),
    other("an ELF program", Reach::Nothing, &[(0, b"\x7fELF")]),
];

/// Where the marks lie, each within a block of [`BLOCK`] bytes: the least that tells them all apart.
const PLACES: [u64; 4] = [0, 4096, 0x8000, 0x1_0000];
const BLOCK: u64 = 4096;

/// What a drive or a partition holds that is no volume; `None`: none of what is known here.
///
/// # Errors
/// [`Error::Read`].
pub async fn what_is<S: Source>(source: &S) -> Result<Option<Other>, Error> {
    let mut blocks = Vec::new();
    for place in PLACES {
        let len = BLOCK.min(source.len().saturating_sub(place));
        if len > 0 {
            blocks.push((place, read(source, place, len).await?));
        }
    }
    let is_there = |&(at, mark): &Mark| {
        blocks.iter().any(|(place, block)| {
            let at = at.checked_sub(*place).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| block.get(at..)).is_some_and(|rest| rest.starts_with(mark))
        })
    };
    if let Some((known, _)) = KNOWN.iter().find(|(_, marks)| marks.iter().any(is_there)) {
        return Ok(Some(*known));
    }
    let empty = Other { name: "zeros, where file systems and partition tables begin", reach: Reach::Nothing };
    Ok(blocks.iter().all(|(_, block)| block.iter().all(|byte| *byte == 0)).then_some(empty))
}
