//! The files of an image: itself, and those that its headers name below it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::header::{Backing, Header, MAGIC};
use super::part::{Part, to_read};
use crate::{File, FileOptions};

/// Files of an image at most.
const MOST_LAYERS: usize = 32;

/// A file of an image.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) part: Part,
    /// `None`: the file's bytes are the disk's.
    pub(super) header: Option<Header>,
    /// Bytes of the disk.
    pub(super) size: u64,
}

impl Layer {
    fn raw(part: Part) -> Layer {
        Layer { size: part.len(), header: None, part }
    }

    fn qcow2(part: Part, snapshot: Option<&OsStr>) -> io::Result<Layer> {
        let header = Header::read(&part)?;
        let header = match snapshot {
            Some(name) => header.at_snapshot(&part, name)?,
            None => header,
        };
        Ok(Layer { size: header.size, header: Some(header), part })
    }

    /// As the format says that the overlay's header names; by the file's beginning where it names none, which
    /// says nothing of files below it.
    fn of_format(part: Part, format: Option<&[u8]>) -> io::Result<Layer> {
        match format {
            Some(b"raw") => Ok(Layer::raw(part)),
            Some(b"qcow2") => Layer::qcow2(part, None),
            Some(other) => {
                let name = OsStr::from_bytes(other);
                Err(part.wrong(format_args!("of format {name:?}; raw and qcow2 are read")))
            }
            None if begins(&part)? => Layer::qcow2(part, None)?.if_believed(|_| {
                "the image above it names no format of it (qemu-img rebase -u -F)".to_owned()
            }),
            None => Ok(Layer::raw(part)),
        }
    }

    /// An image that was found by its first bytes alone. A guest may have written those to a raw disk, so the
    /// name of a backing file is believed where the file's own name says what it is.
    /// Else `why` says what to do.
    fn if_believed(self, why: impl FnOnce(&Path) -> String) -> io::Result<Layer> {
        let path = self.part.path();
        match self.header {
            Some(Header { backing: Some(_), .. }) if !is_named(path) => {
                let begins =
                    "it begins as a qcow2 image with a backing file, which a guest can write to a raw disk";
                let why = format!("{}: {begins}: {}", path.display(), why(path));
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            _ => Ok(self),
        }
    }
}

/// Whether a file's name says that it is an image, maybe a compressed one.
fn is_named(path: &Path) -> bool {
    let ends = |path: &Path, endings: &[&str]| {
        let ending = path.extension();
        ending.is_some_and(|ending| endings.iter().any(|known| ending.eq_ignore_ascii_case(known)))
    };
    let inner = path.file_stem().map(Path::new).filter(|_| ends(path, &["gz", "zst"]));
    ends(inner.unwrap_or(path), &["qcow2", "qcow"])
}

/// Whether a file begins as a qcow2 image does.
pub(super) fn begins(part: &Part) -> io::Result<bool> {
    let mut first = [0; MAGIC.len()];
    part.read_padded("first bytes", 0, &mut first)?;
    Ok(first == MAGIC)
}

/// The files of an image from the uppermost down, each opened as `options` say, but only to be read.
pub(super) fn chain(top: File, snapshot: Option<&OsStr>, options: FileOptions) -> io::Result<Vec<Layer>> {
    below_it(Layer::qcow2(Part::over(top)?, snapshot)?, options)
}

/// The same of an image that was found by its first bytes.
pub(super) fn chain_found(top: File, options: FileOptions) -> io::Result<Vec<Layer>> {
    let top = Layer::qcow2(Part::over(top)?, None)?.if_believed(|path| {
        format!("qcow2:{0} reads it as an image, file:{0} as a raw disk", path.display())
    })?;
    below_it(top, options)
}

fn below_it(top: Layer, options: FileOptions) -> io::Result<Vec<Layer>> {
    let mut seen = vec![top.part.identity()?];
    let mut layers = vec![top];
    while let Some(Layer { part, header: Some(Header { backing: Some(backing), .. }), .. }) = layers.last() {
        if layers.len() == MOST_LAYERS {
            return Err(part.wrong(format_args!("it has a backing file: more than {MOST_LAYERS} in a row")));
        }
        let below = below(part, backing, options, &mut seen).map_err(|e| {
            io::Error::new(e.kind(), format!("{}: its backing file: {e}", part.path().display()))
        })?;
        layers.push(below);
    }
    Ok(layers)
}

fn below(
    above: &Part,
    backing: &Backing,
    options: FileOptions,
    seen: &mut Vec<(u64, u64)>,
) -> io::Result<Layer> {
    let path = place(above.path(), &backing.name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, names_no_file(&backing.name)))?;
    let part = Part::open(&path, to_read(options))?;
    let identity = part.identity()?;
    if seen.contains(&identity) {
        return Err(part.wrong("it stands above itself"));
    }
    seen.push(identity);
    Layer::of_format(part, backing.format.as_deref())
}

fn names_no_file(name: &[u8]) -> String {
    format!("{:?} is no file's name, but a protocol's, which is not read", OsStr::from_bytes(name))
}

/// Where a backing file is: its name counts from the overlay's folder. `None`: the name is another protocol's
/// than QEMU's `file:` (a colon before any slash).
fn place(overlay: &Path, name: &[u8]) -> Option<PathBuf> {
    let file = name.strip_prefix(b"file:");
    let first = name.iter().find(|byte| matches!(byte, b':' | b'/'));
    if file.is_none() && first == Some(&b':') {
        return None;
    }
    let folder = overlay.parent().unwrap_or(Path::new(""));
    Some(folder.join(OsStr::from_bytes(file.unwrap_or(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        for (name, is) in [
            ("a/disk.qcow2", true),
            ("disk.QCOW2", true),
            ("disk.qcow2.gz", true),
            ("disk.qcow.zst", true),
            ("disk.gz", false),
            ("disk.qcow2.img", false),
            ("qcow2", false),
            ("a.qcow2/disk.img", false),
            ("/dev/vg/guest", false),
        ] {
            assert_eq!(is_named(Path::new(name)), is, "{name}");
        }
    }

    #[test]
    fn names_of_backing_files() {
        for (overlay, name, path) in [
            ("a/top.qcow2", "base.img", Some("a/base.img")),
            ("top.qcow2", "b/base:1.img", Some("b/base:1.img")),
            ("a/top.qcow2", "../base.img", Some("a/../base.img")),
            ("a/top.qcow2", "/abs/base.img", Some("/abs/base.img")),
            ("a/top.qcow2", "file:base.img", Some("a/base.img")),
            ("a/top.qcow2", "nbd://host/base", None),
            ("a/top.qcow2", "json:{\"driver\":\"raw\"}", None),
        ] {
            assert_eq!(place(Path::new(overlay), name.as_bytes()), path.map(PathBuf::from), "{name}");
        }
    }
}
