//! Images by the folder that they are in.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Ends of images' names.
const ENDS: [&[u8]; 5] = [b".img", b".raw", b".qcow2", b".gz", b".zst"];

/// The images in a folder, in the order of their names; `None`: it is no folder.
///
/// # Errors
/// It cannot be read.
pub fn images(folder: &Path) -> Option<io::Result<Vec<PathBuf>>> {
    folder.is_dir().then(|| within(folder))
}

fn within(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.as_os_str().as_bytes();
        if ENDS.iter().any(|end| name.ends_with(end)) && path.is_file() {
            images.push(path);
        }
    }
    images.sort();
    Ok(images)
}
