//! Volume images made by the file systems' own tools from a directory.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By `mke2fs -t ext4 -d`.
    Ext4,
    /// By `mkfs.f2fs` and `sload.f2fs -P`.
    F2fs,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::F2fs => "F2FS",
        }
    }

    /// Whether this machine has the tools that make one.
    pub fn tools_are_here(self) -> bool {
        let tools: &[&str] = match self {
            Kind::Ext4 => &["mke2fs"],
            Kind::F2fs => &["mkfs.f2fs", "sload.f2fs"],
        };
        tools.iter().all(|t| tool(t).is_some())
    }
}

/// Where a program is: on the PATH, or where Debian keeps administrators' tools.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// Makes an image of `bytes` at `image` that holds the tree below `from`.
///
/// # Errors
/// That the tool is missing, or what it says.
pub fn make(kind: Kind, image: &Path, from: &Path, bytes: u64) -> io::Result<()> {
    std::fs::File::create(image)?.set_len(bytes)?;
    match kind {
        Kind::Ext4 => {
            // One inode per 8 KiB: the dataset's files are small.
            run(Command::new(find("mke2fs")?)
                .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-i", "8192", "-d"])
                .arg(from)
                .arg(image))
        }
        Kind::F2fs => {
            run(Command::new(find("mkfs.f2fs")?).args(["-q", "-f"]).arg(image))?;
            run(Command::new(find("sload.f2fs")?).args(["-P", "-f"]).arg(from).arg(image))
        }
    }
}

fn find(name: &str) -> io::Result<PathBuf> {
    tool(name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} is not on this machine")))
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    let last = text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("no message");
    Err(io::Error::other(format!("{name} failed ({}): {last}", out.status)))
}
