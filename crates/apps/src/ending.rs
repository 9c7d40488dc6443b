//! A run that its user ends before its time: the programs that were started are ended, so that whoever waits
//! for one has an error, and what was made is undone as at any other end.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::Failure;
use crate::wait::Patience;

static ENDING: AtomicBool = AtomicBool::new(false);
static DRIVES: AtomicUsize = AtomicUsize::new(0);

/// Counts a drive for as long as it is there.
pub(crate) struct UnderWay;

impl UnderWay {
    pub(crate) fn begin() -> UnderWay {
        DRIVES.fetch_add(1, Ordering::SeqCst);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        DRIVES.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether there is a drive, and so something that has to be undone.
pub fn are_under_way() -> bool {
    DRIVES.load(Ordering::SeqCst) > 0
}

/// Ends every program that was started, and whichever is started from now on, but those that undo
/// something. It goes on until this process ends: whoever waits for a program gets an error, and undoes what
/// it has made.
pub fn end() {
    ENDING.store(true, Ordering::SeqCst);
    loop {
        for child in children() {
            let mut kill = apart(Command::new("/bin/kill"));
            let _ = kill.args(["-TERM", &child.to_string()]).stderr(Stdio::null()).status();
        }
        let mut patience = Patience::seconds(1);
        while patience.wait() {}
    }
}

/// Nothing is begun any more once the run is to end.
pub(crate) fn goes_on() -> Result<(), Failure> {
    if ENDING.load(Ordering::SeqCst) { Err("ended by a signal".into()) } else { Ok(()) }
}

/// In a group of its own, where no signal to this one's comes: what holds up others, and what undoes.
pub(crate) fn apart(mut command: Command) -> Command {
    command.process_group(0);
    command
}

/// The processes that this one has started and that are in its group.
fn children() -> Vec<u32> {
    let own = std::process::id();
    let Some((_, group)) = family(own) else { return Vec::new() };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process| family(*process) == Some((own, group)))
        .collect()
}

/// A process's parent and group (proc_pid_stat(5), the second and third field behind its name).
fn family(process: u32) -> Option<(u32, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = stat.rsplit_once(") ")?.1.split(' ').skip(1).map_while(|word| word.parse().ok());
    Some((words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_children_that_are_in_the_group() {
        let mut here = Command::new("sleep").arg("60").spawn().unwrap();
        let mut there = apart(Command::new("sleep")).arg("60").spawn().unwrap();
        let found = children();
        assert!(found.contains(&here.id()) && !found.contains(&there.id()), "{found:?}");
        for child in [&mut here, &mut there] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!children().contains(&here.id()));
    }
}
