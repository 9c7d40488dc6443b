//! A memory control group: what may have only so much memory, and pages beyond it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nearside_dma::system::let_signals_through;

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

    /// Its processes that the kernel ended since its memory was full.
    pub fn killed(&self) -> u64 {
        let count = |file: &str| {
            let text = std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
        };
        count("memory.oom_control").or_else(|| count("memory.events")).unwrap_or(0)
    }

    /// A command that runs a program in it.
    pub fn command(&self, program: &Command) -> Command {
        let mut command = let_signals_through(Command::new("/bin/sh"));
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(&self.path);
        command.arg(program.get_program()).args(program.get_args());
        command
    }
}

/// How often something is begun in a group.
const TRIES: u32 = 4;

/// Does something with a group of `bytes`. In little memory the kernel's reclaim finds nothing now and then,
/// though there is room to page to: then its OOM killer ends the group's process, stderr is told, and the
/// whole is done anew, at most three times.
///
/// # Errors
/// Those of [`Group::new`], and of `run`.
pub fn in_group<T>(bytes: u64, mut run: impl FnMut(&Group) -> Result<T, Failure>) -> Result<T, Failure> {
    let mut tries = 1;
    loop {
        let group = Group::new(bytes)?;
        match run(&group) {
            Err(e) if group.killed() > 0 && tries < TRIES => {
                tries += 1;
                eprintln!(
                    "nearside: {e}: the kernel's OOM killer ended a process within {bytes} bytes; it is done anew"
                );
            }
            done => return done,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}
