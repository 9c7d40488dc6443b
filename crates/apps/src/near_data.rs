//! What the drive is asked about a volume's files while an application is at work on it.

use std::path::Path;
use std::process::Command;

use crate::program::{named, said};
use crate::{Drive, Failure, Volume};

/// Digests that one program asks for: to start it takes a few milliseconds of the application's processors,
/// which are not the drive's.
const TIMES: usize = 16;

/// A file on a drive's volume, which the drive reads for itself.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The `nearside` program.
    pub program: &'a Path,
    /// The drive.
    pub drive: &'a Drive,
    /// An ext4 of it.
    pub volume: &'a Volume,
    /// The file's path in the volume.
    pub path: &'a str,
}

impl Asked<'_> {
    /// Runs something, and meanwhile has the drive digest the file again and again (SHA-256), one command
    /// after the other, sixteen by each program; with how many there were. Nobody may write to the
    /// file.
    ///
    /// # Errors
    /// Those of `run`; what the drive answered, or a digest that is not the host's.
    pub fn while_running<T: Send>(
        &self,
        run: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<(T, u64), Failure> {
        let by_the_host = digests(named("sha256sum")?.arg(self.volume.path(self.path)))?.concat();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run().map_err(|e| e.to_string()));
            let mut commands = 0;
            while !running.is_finished() {
                let mut command = Command::new(self.program);
                command.args(["cksum", "-a", "sha256", "-d", &self.drive.near_data()]);
                let by_the_drive = digests(command.args([self.path; TIMES]))?;
                if by_the_drive.len() != TIMES || by_the_drive.iter().any(|digest| *digest != by_the_host) {
                    let path = self.path;
                    return Err(
                        format!("{path}: {by_the_drive:?} by the drive, {by_the_host} by the host").into()
                    );
                }
                commands += TIMES as u64;
            }
            let ran = running.join().unwrap_or_else(|_| Err("the application's thread failed".to_owned()));
            Ok((ran?, commands))
        })
    }
}

/// The first word of each line that a program says.
fn digests(command: &mut Command) -> Result<Vec<String>, Failure> {
    let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    Ok(said(command)?.lines().map(first).collect())
}
