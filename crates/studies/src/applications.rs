//! What the studies of applications share: whether this machine can run them, and what stands in their place.

use std::path::Path;

use crate::Run;

/// What a reader of this machine's column has to know of the way to a drive.
pub const ITS_WAY: &str = "This machine: a drive in a process of its own (nearside attach) that takes the model's time, below a loop device with \
                           direct I/O. A read passes the kernel's block layer, FUSE and two threads on its way there, which takes longer than a \
                           PCIe drive's driver does: what the way takes stands beside where the study can tell it apart.";

/// The program that attaches drives, where this machine can run these programs on them. Where it cannot, the
/// run is told why, and the study goes on without this machine's column.
pub fn program<'a>(run: &mut Run<'a>, programs: &[&str]) -> Option<&'a Path> {
    let lacks = match run.program() {
        None => Some("no program that attaches drives is at hand".to_owned()),
        Some(_) => nearside_apps::lacks().or_else(|| nearside_apps::missing(programs)),
    };
    if let Some(lacks) = lacks {
        run.say(&format!("this machine's column is left out: {lacks}"));
        run.note(format!("This machine's column was left out: {lacks}."));
        return None;
    }
    run.program()
}
