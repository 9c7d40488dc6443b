//! Images by the folder that they are in.

use std::io;
use std::path::{Path, PathBuf};

/// Ends of images' names.
const ENDS: [&str; 5] = ["img", "raw", "qcow2", "gz", "zst"];

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
        if path.extension().is_some_and(|end| ENDS.iter().any(|known| end == *known)) && path.is_file() {
            images.push(path);
        }
    }
    images.sort();
    Ok(images)
}
