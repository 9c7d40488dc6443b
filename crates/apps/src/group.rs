//! A memory control group: what may have only so much memory, and pages beyond it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Failure;
use crate::volume::set;

/// A group with a limit; it goes with this value, when its processes have ended.
pub struct Group {
    path: PathBuf,
}

/// Where the memory controller may be, and what its limit's file is called there: version 1, then version 2.
const PLACES: [(&str, &str); 3] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/unified", "memory.max"),
];

impl Group {
    /// A group that may have `bytes` of memory.
    ///
    /// # Errors
    /// The system's: no memory controller, no root.
    pub fn new(bytes: u64) -> Result<Group, Failure> {
        static NTH: AtomicU32 = AtomicU32::new(0);
        let name = format!("nearside-{}-{}", std::process::id(), NTH.fetch_add(1, Ordering::Relaxed));
        for (root, limit) in PLACES {
            let path = Path::new(root).join(&name);
            if std::fs::create_dir(&path).is_err() {
                continue;
            }
            // From here on it goes again, whatever happens.
            let group = Group { path };
            if group.path.join(limit).exists() {
                set(group.path.join(limit), &bytes.to_string())?;
                return Ok(group);
            }
        }
        Err("no memory control group can be made here (/sys/fs/cgroup)".into())
    }

    /// A command that runs a program in it.
    pub fn command(&self, program: &Command) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(&self.path);
        command.arg(program.get_program()).args(program.get_args());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}
