//! The trees that the demo's volumes hold: DAC'23's kind of dataset (IV-C: deep directories of 50 to 60
//! entries), and a real tree of the machine.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nearside_random::Rng;

/// The word that some lines of the dataset hold and a search looks for.
pub const NEEDLE: &str = "needle-7f3a";

/// A dataset's shape. Files lie below `spines` chains of directories; each directory has about `fan` entries.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Files with content.
    pub files: usize,
    /// Bytes in each.
    pub file_bytes: usize,
    /// Directories above each file.
    pub depth: usize,
    /// Entries in a directory.
    pub fan: usize,
}

impl Shape {
    /// What the issue of record measures: 20,000 files of 16 KiB below 20 directories.
    pub const PAPER: Shape = Shape { files: 20_000, file_bytes: 16 * 1024, depth: 20, fan: 50 };
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Paths of the files below the root of the volume, each beginning with '/'.
    pub files: Vec<String>,
    /// Lines that hold [`NEEDLE`].
    pub needles: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// Writes the dataset below `root/deep`. The same seed writes the same bytes.
///
/// # Errors
/// The file system's.
pub fn write_deep(root: &Path, shape: Shape, seed: u64, mut tick: impl FnMut(u64)) -> io::Result<Written> {
    let mut rng = Rng(seed);
    let mut written = Written::default();
    let leaves = shape.files.div_ceil(shape.fan);
    let parents = leaves.div_ceil(shape.fan);
    // A chain down to the parents of the leaves: depth counts every directory above a file, "deep" included.
    let chain: Vec<String> =
        (0..shape.depth.saturating_sub(3)).map(|i| format!("level{:02}", i + 2)).collect();
    let mut dir = root.join("deep");
    for name in std::iter::once("").chain(chain.iter().map(String::as_str)) {
        dir.push(name);
        fs::create_dir_all(&dir)?;
        for i in 0..shape.fan - 1 {
            fs::File::create(dir.join(format!("neighbour-{i:02}")))?;
        }
    }
    for leaf in 0..leaves {
        let below = format!("group{:02}/set{:02}", leaf / shape.fan, leaf % shape.fan);
        let leaf_dir = dir.join(&below);
        fs::create_dir_all(&leaf_dir)?;
        for i in 0..shape.fan.min(shape.files - leaf * shape.fan) {
            let path = leaf_dir.join(format!("record-{i:02}.log"));
            let (text, needles) = text(&mut rng, shape.file_bytes);
            fs::File::create(&path)?.write_all(&text)?;
            written.needles += needles;
            written.bytes += text.len() as u64;
            written.files.push(format!("/{}", relative(&path, root).display()));
        }
        tick(written.files.len() as u64);
    }
    debug_assert!(parents <= shape.fan);
    Ok(written)
}

/// A deep tree as DAC'23 (IV-C) has it: directories, one in the other,
/// each with 50 to 60 sub-directories and files.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Directories.
    pub depth: usize,
    /// What lies in the directory at a depth beside its neighbours: a file of each size.
    pub files: Vec<(usize, usize)>,
}

impl Chain {
    /// The file of so many bytes below so many directories.
    pub fn path(depth: usize, bytes: usize) -> String {
        let mut path = String::new();
        for level in 0..depth {
            let _ = std::fmt::Write::write_fmt(&mut path, format_args!("/level{level:02}"));
        }
        path + &format!("/record-{bytes}.log")
    }
}

/// Writes a chain below `root`, from the top down: so an F2FS made of it numbers its inodes. The same seed
/// writes the same bytes. No file's text holds the [`NEEDLE`] but in its last line.
///
/// # Errors
/// The file system's.
pub fn write_chain(root: &Path, shape: &Chain, seed: u64) -> io::Result<()> {
    let mut rng = Rng(seed);
    for depth in 1..=shape.depth {
        let inside = Chain::path(depth, 0);
        let dir = root.join(inside.trim_start_matches('/')).with_file_name("");
        fs::create_dir_all(&dir)?;
        let sizes = shape.files.iter().filter(|(at, _)| *at == depth).map(|(_, bytes)| *bytes);
        let sizes: Vec<usize> = sizes.collect();
        let neighbours = (50 + rng.below(11) as usize).saturating_sub(1 + sizes.len());
        for i in 0..neighbours {
            match i % 8 {
                0 => fs::create_dir_all(dir.join(format!("neighbour-{i:02}")))?,
                _ => drop(fs::File::create(dir.join(format!("neighbour-{i:02}.log")))?),
            }
        }
        for bytes in sizes {
            let (mut text, _) = text(&mut rng, bytes);
            let last = format!(" {NEEDLE}\n");
            let from = text.len() - last.len();
            text.truncate(from);
            let plain = String::from_utf8_lossy(&text).replace(NEEDLE, "needle-none");
            fs::write(dir.join(format!("record-{bytes}.log")), plain + &last)?;
        }
    }
    Ok(())
}

/// Copies documentation or headers of the machine to `root/real`, up to `limit` bytes:
/// regular files only, in byte order of names.
///
/// # Errors
/// The file system's.
pub fn write_real(root: &Path, limit: u64) -> io::Result<Written> {
    let source = ["/usr/share/doc", "/usr/include", "/usr/share/perl", "/etc"]
        .into_iter()
        .find(|p| Path::new(p).is_dir())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "this machine has no tree to copy"))?;
    let mut written = Written::default();
    copy_tree(Path::new(source), &root.join("real"), root, limit, &mut written)?;
    Ok(written)
}

fn copy_tree(from: &Path, to: &Path, root: &Path, limit: u64, written: &mut Written) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut entries: Vec<_> = fs::read_dir(from)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            copy_tree(&entry.path(), &target, root, limit, written)?;
        } else if kind.is_file() && written.bytes < limit {
            // A file that the caller may not read is left out: the demo does not need it.
            if let Ok(bytes) = fs::copy(entry.path(), &target) {
                written.bytes += bytes;
                written.files.push(format!("/{}", relative(&target, root).display()));
            }
        }
    }
    Ok(())
}

fn relative(path: &Path, root: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_path_buf()
}

/// Lines of words, like a log; about one file in fifty holds the needle, once.
fn text(rng: &mut Rng, bytes: usize) -> (Vec<u8>, u64) {
    const WORDS: [&str; 24] = [
        "accepted",
        "block",
        "cache",
        "commit",
        "connection",
        "device",
        "durable",
        "extent",
        "flush",
        "from",
        "inode",
        "journal",
        "latency",
        "lookup",
        "message",
        "namespace",
        "node",
        "queue",
        "read",
        "request",
        "segment",
        "session",
        "to",
        "write",
    ];
    let mut out = Vec::with_capacity(bytes + 96);
    let needle_at = rng.below(50).eq(&0).then(|| rng.below(bytes as u64) as usize);
    let mut needles = 0;
    while out.len() < bytes {
        let _ = write!(out, "{:010} ", rng.below(10_000_000_000));
        for _ in 0..6 + rng.below(5) {
            out.extend_from_slice(WORDS[rng.below(WORDS.len() as u64) as usize].as_bytes());
            out.push(b' ');
        }
        if needles == 0 && needle_at.is_some_and(|at| out.len() >= at && out.len() + 64 < bytes) {
            out.extend_from_slice(NEEDLE.as_bytes());
            needles = 1;
        }
        out.push(b'\n');
    }
    out.truncate(bytes - 1);
    out.push(b'\n');
    (out, needles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dataset_has_its_shape_and_its_needles() {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape { files: 230, file_bytes: 2000, depth: 20, fan: 10 };
        let written = write_deep(dir.path(), shape, 7, |_| {}).unwrap();
        assert_eq!(written.files.len(), 230);
        let mut needles = 0;
        for file in &written.files {
            assert_eq!(file.matches('/').count(), 21, "{file} lies below 20 directories");
            let bytes = fs::read(dir.path().join(&file[1..])).unwrap();
            assert_eq!(bytes.len(), 2000);
            needles +=
                String::from_utf8(bytes).unwrap().lines().filter(|l| l.contains(NEEDLE)).count() as u64;
        }
        assert_eq!(needles, written.needles);
        assert!(needles > 0);
    }

    #[test]
    fn a_chain_has_its_depth_and_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let shape = Chain { depth: 6, files: vec![(1, 4096), (6, 4096), (6, 16384)] };
        write_chain(dir.path(), &shape, 3).unwrap();
        for (depth, bytes) in shape.files {
            let path = Chain::path(depth, bytes);
            assert_eq!(path.matches('/').count(), depth + 1, "{path} lies below {depth} directories");
            let text = fs::read_to_string(dir.path().join(&path[1..])).unwrap();
            assert_eq!((text.len(), text.lines().filter(|l| l.contains(NEEDLE)).count()), (bytes, 1));
            let entries = fs::read_dir(dir.path().join(&path[1..]).parent().unwrap()).unwrap().count();
            assert!((50..=60).contains(&entries), "{entries}");
        }
    }
}
