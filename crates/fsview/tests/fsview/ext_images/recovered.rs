//! A volume as the view after recovery shows it, beside the kernel's mount of it.

use std::collections::BTreeMap;
use std::path::Path;

use nearside_conformance::view::{Image, Tree, block_on, differences, read, read_host, resolve};
use nearside_fsview::acl::AclEntry;
use nearside_fsview::{FileKind, State, Volume};

use super::{Mount, run};

pub fn open(image: &Path, state: State) -> Result<(Volume, Image), String> {
    let source = Image::open(image).unwrap();
    let volume = block_on(Volume::open_as(&source, state)).map_err(|e| e.to_string())?;
    Ok((volume, source))
}

/// ACLs by path, as `getfacl` says them.
pub type Acls = BTreeMap<String, Vec<String>>;

/// What a copy shows.
#[derive(Clone)]
pub struct Shown {
    pub tree: Tree,
    pub acls: Acls,
}

pub fn view(image: &Path, state: State) -> Result<(Shown, Volume), String> {
    let (volume, source) = open(image, state)?;
    let tree = read(&volume, &source).map_err(|e| e.to_string())?;
    let mut acls = Acls::new();
    for (path, node) in tree.iter().filter(|(_, node)| node.kind != FileKind::Symlink) {
        let inode = resolve(&volume, &source, path).map_err(|e| e.to_string())?.unwrap();
        if let Some(acl) = block_on(volume.acl(&source, &inode)).map_err(|e| e.to_string())? {
            let mut lines: Vec<_> = acl.entries.iter().map(line).collect();
            lines.sort();
            acls.insert(String::from_utf8_lossy(path).trim_start_matches('/').into(), lines);
        }
        assert_eq!(inode.size, node.size);
    }
    Ok((Shown { tree, acls }, volume))
}

/// An entry of an ACL as `getfacl` writes it.
pub fn line(entry: &AclEntry) -> String {
    let bits = |perm: u8| -> String {
        [(4, 'r'), (2, 'w'), (1, 'x')].map(|(bit, c)| if perm & bit != 0 { c } else { '-' }).iter().collect()
    };
    match entry {
        AclEntry::UserObj(p) => format!("user::{}", bits(*p)),
        AclEntry::User(id, p) => format!("user:{id}:{}", bits(*p)),
        AclEntry::GroupObj(p) => format!("group::{}", bits(*p)),
        AclEntry::Group(id, p) => format!("group:{id}:{}", bits(*p)),
        AclEntry::Mask(p) => format!("mask::{}", bits(*p)),
        AclEntry::Other(p) => format!("other::{}", bits(*p)),
    }
}

/// What the kernel shows of a copy, which it recovers; an error where it mounts none of it.
pub fn host(image: &Path, mount: &Path) -> Result<Shown, String> {
    // A loop device of a mount for reading only could not be written: there would be no recovery.
    let mounted = Mount::new(image, mount, "rw")?;
    let tree = read_host(mounted.path()).map_err(|e| e.to_string())?;
    let script = format!("cd '{}' && getfacl -RnpE --skip-base .", mount.display());
    let said = String::from_utf8(run("sh", &["-c", &script])?).unwrap();
    let mut acls = Acls::new();
    for file in said.split("\n\n") {
        let Some(path) = file.lines().find_map(|l| l.strip_prefix("# file: ")) else { continue };
        let mut lines: Vec<_> = file.lines().filter(|l| !l.starts_with('#')).map(String::from).collect();
        lines.sort();
        acls.insert(path.trim_start_matches("./").into(), lines);
    }
    mounted.end()?;
    Ok(Shown { tree, acls })
}

/// Where the view and the mount differ. What awaits clean-up has its blocks freed by the mount, and then a
/// new time; and a directory that a fast commit changes has the time of the mount.
pub fn unlike(view: &Shown, host: &Shown, volume: &Volume) -> Vec<String> {
    let (orphans, fast) = (orphans(volume), volume.info().recovery.fast_commits > 0);
    let mut found = differences(&view.tree, &host.tree, &|node| {
        if orphans {
            (node.sectors, node.mtime_ns) = (0, 0);
        }
        if fast && node.kind == FileKind::Directory {
            node.mtime_ns = 0;
        }
    });
    if view.acls != host.acls {
        found.push(format!("ACLs: view {:?}\n    host {:?}", view.acls, host.acls));
    }
    found
}

pub fn orphans(volume: &Volume) -> bool {
    volume.info().warnings.iter().any(|warning| warning.contains("await clean-up"))
}

/// A journal as it lies at home: (block in it, kind, transaction) of all that has the magic, and the block
/// and transaction at which the log begins.
pub fn log_of(image: &Path, block: usize) -> (Vec<(usize, u32, u32)>, usize, u32) {
    let file = image.with_extension("journal");
    run("debugfs", &["-R", &format!("dump <8> {}", file.display()), image.to_str().unwrap()]).unwrap();
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let blocks = (1..bytes.len() / block).map(|nr| (nr, nr * block));
    let headers = blocks.filter(|(_, at)| word(*at) == 0xC03B_3998);
    let headers = headers.map(|(nr, at)| (nr, word(at + 4), word(at + 8))).collect();
    (headers, word(0x1C) as usize, word(0x18))
}
