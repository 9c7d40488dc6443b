//! Words name stores, and what is wrong with a word is said.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use nearside_driver::tcp;
use nearside_embedded::named::{Place, socket_of};
use nearside_embedded::partition::{Logical, Mark, Wanted};
use nearside_embedded::{AnyStore, drives_of, images_in, models, models_help};
use nearside_store::{Backing, Beside, FileOptions, Store};

#[test]
fn every_model_opens() {
    for model in models() {
        for word in [model.name.to_owned(), format!("sas,drives=2/{}", model.name)] {
            let store = AnyStore::open(&format!("model:{word}:64MiB"), FileOptions::serve()).unwrap();
            assert_eq!((store.capacity(), store.block_size()), (64 << 20, 512), "{word}");
        }
        assert!(models_help().contains(model.name));
    }
    let own =
        AnyStore::open("model:nand-s3700,seed=7,policy=cost-benefit,suspend=20us", FileOptions::serve());
    assert_eq!(own.unwrap().capacity(), 400_000_000_000);
}

#[test]
fn a_path_in_a_word_is_found_wherever_it_stands() {
    let folder = Path::new("/srv");
    for (word, absolute) in [
        ("disk.img", "/srv/disk.img"),
        ("file:a/b:c.img", "file:/srv/a/b:c.img"),
        ("file:/disk.img", "file:/disk.img"),
        ("pmem:disk.img", "pmem:/srv/disk.img"),
        ("dram:disk.img", "dram:/srv/disk.img"),
        ("qcow2:disk.qcow2", "qcow2:/srv/disk.qcow2"),
        ("qcow2:a?snapshot=b/c", "qcow2:/srv/a?snapshot=b/c"),
        ("lvm:a:b.img?volume=vg/lv", "lvm:/srv/a:b.img?volume=vg/lv"),
        ("lvm:qcow2:a?snapshot=b/c?volume=vg/lv", "lvm:qcow2:/srv/a?snapshot=b/c?volume=vg/lv"),
        ("delayed:10us:lvm:file:a?volume=vg/lv", "delayed:10us:lvm:file:/srv/a?volume=vg/lv"),
        ("lvm:?volume=vg/lv", "lvm:?volume=vg/lv"),
        ("dram:16MiB", "dram:16MiB"),
        ("delayed:10us,units=8:faulty:torn:disk.img", "delayed:10us,units=8:faulty:torn:/srv/disk.img"),
        ("delayed:10us:dram:1MiB", "delayed:10us:dram:1MiB"),
        ("delayed:10us", "delayed:10us"),
        ("model:nand-p3700:16GiB", "model:nand-p3700:16GiB"),
        ("model:mine.toml,seed=7:16GiB", "model:/srv/mine.toml,seed=7:16GiB"),
        ("model:sas,drives=2/mine.toml:16GiB", "model:sas,drives=2//srv/mine.toml:16GiB"),
        ("model:mine.toml", "model:/srv/mine.toml"),
    ] {
        assert_eq!(AnyStore::word_from(folder, word), absolute);
        assert_eq!(AnyStore::word_from(folder, absolute), absolute);
    }
}

#[test]
fn words_name_stores() {
    let open = |word: &str| AnyStore::open(word, FileOptions::serve());
    for size in ["1m", "1M", "1MiB", "1024k", "1048576"] {
        let dram = open(&format!("dram:{size}")).unwrap();
        assert!(matches!(dram, AnyStore::Dram(dram) if dram.capacity() == 1 << 20), "{size}");
        let model = open(&format!("delayed:5us,stripe={size}:model:optane-p4800x:{size}")).unwrap();
        assert_eq!(model.capacity(), 1 << 20, "{size}");
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(8192).unwrap();
    let path = image.path().to_str().unwrap();
    assert_eq!(open(path).unwrap().capacity(), 8192);
    assert_eq!(open(&format!("dram:{path}")).unwrap().capacity(), 8192);
    for (word, backing) in [
        ("dram:1m", Backing::Memory),
        (path, Backing::File),
        (&format!("delayed:1us:pmem:{path}"), Backing::MappedFile),
        ("model:optane-p4800x:1m", Backing::Model),
        ("model:nand-p3700:64m", Backing::Model),
    ] {
        assert_eq!(open(word).unwrap().backing(), Some(backing), "{word}");
        let file = word.contains(path).then(|| PathBuf::from(path));
        assert_eq!(AnyStore::named(word).unwrap(), (backing, file));
        assert_eq!(Backing::of(backing.number()), Some(backing));
    }
    assert_eq!(Backing::of(0), None);
    let pmem = open(&format!("pmem:{path}")).unwrap();
    assert!(pmem.capacity() == 8192 && pmem.notes()[0].contains("fdatasync"), "{:?}", pmem.notes());
    assert!(open(&format!("pmem:{path}")).is_err() && open(path).is_err(), "two drives on one file");
    drop(pmem);
    let word = format!("delayed:10us,units=8,stall=1ms,every=100:faulty:permillion=5,torn:file:{path}");
    let AnyStore::Delayed(delayed) = open(&word).unwrap() else { panic!("{word}") };
    assert!(matches!(delayed.inner(), AnyStore::Faulty(_)));
    // One drive at a time.
    let first = open(path);
    drop(delayed);
    assert_eq!(first.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    let _serving = open(path).unwrap();
    assert_eq!(AnyStore::open(path, FileOptions::read()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    AnyStore::open(path, FileOptions { beside: Beside::Anybody, ..FileOptions::read() }).unwrap();
    for (word, says) in [
        ("dram:1GB", "1GB"),
        ("delayed:10:dram:1MiB", "\"10\""),
        ("dram:0", "dram:0"),
        ("file:", "names no file"),
        ("pmem:", "names no file"),
        ("nvme+tcp://host/nqn.2026-12.example:far/1", "is attached (`nearside attach`)"),
        ("qcow2:", "names no file"),
        ("qcow2:?snapshot=a", "names no file"),
        ("qcow2:/nonexistent?snapshot=a", "/nonexistent: No such"),
        ("pmem:/nonexistent", "/nonexistent"),
        ("pmem:/dev/null", "Device-DAX"),
        ("pmem:/dev/shm", "neither a regular file"),
        ("delayed:10us", "names no store"),
        ("delayed:ten:dram:1MiB", "ten"),
        ("faulty:kind=odd:dram:1MiB", "kind=odd"),
        ("model:nand:1GiB", "nand-p3700"),
        ("model:nand:1GiB", "optane-p4800x"),
        ("model:usb/nand-p3700:1GiB", "usb"),
        ("model:nand-p3700,cells=3:1GiB", "cells=3"),
        ("model:optane-p4800x,cells=3:1GiB", "cells=3"),
        ("model:nand-p3700:much", "much"),
        ("model:nand-p3700:0", "0 bytes"),
        ("model:optane-p4800x", "a size is missing"),
        ("model:", "is no model"),
        ("/nonexistent", "/nonexistent"),
        ("/dev/null", "/dev/null"),
    ] {
        let error = open(word).unwrap_err().to_string();
        assert!(error.contains(says), "{word}: {error}");
        // What a word says by itself is known before anything is opened.
        let known = AnyStore::named(word).map_err(|e| e.to_string());
        assert!(known.is_ok() || known == Err(error), "{word}: {known:?}");
    }
}

#[test]
fn words_name_logical_volumes() {
    for disk in ["/disk", "file:/disk", "qcow2:/disk", "qcow2:/disk?snapshot=a"] {
        for volume in ["vg/lv", "/dev/vg/lv", "/dev/mapper/vg-lv"] {
            let named = AnyStore::named(&format!("lvm:{disk}?volume={volume}")).unwrap();
            assert_eq!(named, (Backing::LogicalVolume, Some(PathBuf::from("/disk"))), "{disk} {volume}");
        }
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let path = image.path().to_str().unwrap();
    let open = |word: &str, options| AnyStore::open(word, options);
    for (word, says) in [
        ("lvm:", "lvm:: names no file"),
        ("lvm:?volume=vg/lv", "names no file"),
        ("lvm:/disk", "lvm:/disk: names no volume (as lvm:disk.img?volume=VG/LV)"),
        ("lvm:/disk?volume=vg", "lvm:/disk?volume=vg: expected VG/LV"),
        ("lvm:/nonexistent?volume=vg/lv", "/nonexistent: No such"),
        ("lvm:qcow2:?volume=vg/lv", "qcow2:: names no file"),
        ("lvm:model:odd:1MiB?volume=vg/lv", "\"odd\" is no model"),
        ("lvm:dram:1MiB?volume=vg/lv", "read from files, block devices and disk images"),
        (&format!("lvm:{path}?volume=vg/lv"), &format!("{path}: no volume group \"vg\"; there are none")),
    ] {
        let error = open(word, FileOptions::serve()).unwrap_err().to_string();
        assert!(error.contains(says), "{word}: {error}");
        let known = AnyStore::named(word).map_err(|e| e.to_string());
        assert!(known.is_ok() || known == Err(error), "{word}: {known:?}");
    }
    // Beside a writer in no case.
    let _writer = open(path, FileOptions::serve()).unwrap();
    let shared = FileOptions { beside: Beside::Anybody, ..FileOptions::read() };
    for options in [FileOptions::serve(), FileOptions::read(), shared] {
        let refused = open(&format!("lvm:{path}?volume=vg/lv"), options).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
    }
}

#[test]
fn names_of_drives() {
    assert_eq!(socket_of(OsStr::new("unix:/run/x")), Some(Path::new("/run/x")));
    assert_eq!(socket_of(OsStr::new("disk.img")), None);
    let place = |name: &'static str| Place::of(OsStr::new(name)).map(|place| format!("{place:?}"));
    assert_eq!(place("unix:/run/x").unwrap(), "Socket(\"/run/x\")");
    assert_eq!(place("vfio-user:/run/x").unwrap(), "Process(\"/run/x\")");
    assert_eq!(place("/dev/null").unwrap(), "Device(\"/dev/null\")");
    assert_eq!(place("qcow2:x").unwrap(), "Image(\"qcow2:x\")");
    assert_eq!(place("lvm:x?volume=a/b").unwrap(), "Image(\"lvm:x?volume=a/b\")");
    assert!(place("nvme+tcp://h:4420/nqn.2026-11.example:x/1").unwrap().starts_with("Network("));
    assert!(place("nvme+tcp://h,[::1]:7/nqn.2026-11.example:x/1").unwrap().starts_with("Network("));
    assert!(place("nvme+tcp://").is_err());
    assert!(place("discover:h").unwrap_err().starts_with("discover:h: a discovery service has many drives"));
}

#[test]
fn names_that_stand_for_many() {
    let unasked = || -> Result<tcp::Options, String> { panic!("there is no service") };
    let of = |names: &[&OsStr]| drives_of(names.iter().map(OsString::from).collect(), unasked);
    let folder = tempfile::tempdir().unwrap();
    let (all, path) = (folder.path().as_os_str(), |name: &str| folder.path().join(name).into_os_string());
    let said = of(&[all]).unwrap_err();
    assert!(said.starts_with(all.to_str().unwrap()) && said.contains("no image in this folder"), "{said}");
    std::fs::create_dir(path("none.img")).unwrap();
    for name in ["b.raw", "a.img", "notes.txt", "c.img.zst"] {
        std::fs::write(path(name), "x").unwrap();
    }
    let (a, b, c) = (path("a.img"), path("b.raw"), path("c.img.zst"));
    assert_eq!(of(&[all]).unwrap(), [a.clone(), b.clone(), c.clone()]);
    assert_eq!(images_in(folder.path()).unwrap(), [a.clone(), b.clone(), c.clone()]);
    // What stands there by itself is there once, and where it stands.
    let drive = OsStr::new("nvme+tcp://h/nqn.2026-11.example:x/1");
    let found = of(&[all, drive, b.as_os_str(), all]).unwrap();
    assert_eq!(found, [a.clone(), c.clone(), drive.to_owned(), b]);
    // An image is its file, by whichever path and name.
    let (spelled, elsewhere) = (path("./b.raw"), tempfile::tempdir().unwrap());
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    std::fs::hard_link(path("a.img"), path("z.img")).unwrap();
    assert_eq!(of(&[&spelled, all, link.as_os_str()]).unwrap(), [spelled.clone(), a, c]);
    assert!(of(&[]).unwrap().is_empty());
    let keyless = || -> Result<tcp::Options, String> { Err("there are no keys".to_owned()) };
    assert_eq!(drives_of(vec!["discover:h".into()], keyless).unwrap_err(), "there are no keys");
    let own = || -> Result<tcp::Options, String> { Ok(tcp::Options::default()) };
    for bad in ["discover:", "discover:h:x", "discover:[::1", "discover:h:0"] {
        let said = drives_of(vec![bad.into()], own).unwrap_err();
        assert!(said.starts_with(&format!("{bad}: ")) && said.ends_with("is no HOST:PORT"), "{said}");
    }
}

#[test]
fn words_for_logical_volumes() {
    let of = |group: &str, name: &str| Ok(Logical { group: group.into(), name: name.into() });
    assert_eq!(("vg/lv".parse(), "/dev/vg/lv".parse()), (of("vg", "lv"), of("vg", "lv")));
    assert_eq!("/dev/mapper/vg-lv".parse(), of("vg", "lv"));
    assert_eq!("/dev/mapper/my--vg-a--b--c".parse(), of("my-vg", "a-b-c"));
    assert_eq!("/dev/mapper/vg-lv--real".parse(), of("vg", "lv-real"));
    for bad in [
        "",
        "vg",
        "/lv",
        "vg/",
        "/dev/vg",
        "/dev/mapper/vglv",
        "/dev/mapper/vg--lv",
        "/dev/mapper/-lv",
        "/dev/mapper/vg-lv-real",
    ] {
        assert!(bad.parse::<Logical>().is_err(), "{bad:?}");
    }
}

#[test]
fn words_for_partitions() {
    assert_eq!("2".parse(), Ok(Wanted::Number(2)));
    assert_eq!("LABEL=2".parse(), Ok(Wanted::Known(vec![Mark::Label], "2".into())));
    assert_eq!("PARTLABEL=a b".parse(), Ok(Wanted::Known(vec![Mark::PartLabel], "a b".into())));
    let any = vec![Mark::PartLabel, Mark::PartUuid, Mark::Label, Mark::Uuid];
    assert_eq!("root".parse(), Ok(Wanted::Known(any, "root".into())));
    assert!("".parse::<Wanted>().is_err() && "UUID=".parse::<Wanted>().is_err());
}
