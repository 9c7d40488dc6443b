//! What the drive is asked about a volume's files while an application is at work on it.

use std::path::Path;
use std::process::Command;

use crate::program::{named, said};
use crate::{Drive, Failure, Volume};

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
    /// after the other; with how many there were. Nobody may write to the file.
    ///
    /// # Errors
    /// Those of `run`; what the drive answered, or a digest that is not the host's.
    pub fn while_running<T: Send>(
        &self,
        run: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<(T, u64), Failure> {
        let by_the_host = digest(named("sha256sum")?.arg(self.volume.path(self.path)))?;
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run().map_err(|e| e.to_string()));
            let mut commands = 0;
            while !running.is_finished() {
                let mut command = Command::new(self.program);
                command.args(["cksum", "-a", "sha256", "-d", &self.drive.near_data(), self.path]);
                let by_the_drive = digest(&mut command)?;
                if by_the_drive != by_the_host {
                    let path = self.path;
                    return Err(
                        format!("{path}: {by_the_drive} by the drive, {by_the_host} by the host").into()
                    );
                }
                commands += 1;
            }
            let ran = running.join().unwrap_or_else(|_| Err("the application's thread failed".to_owned()));
            Ok((ran?, commands))
        })
    }
}

/// The first word of what a program says.
fn digest(command: &mut Command) -> Result<String, Failure> {
    Ok(said(command)?.split(' ').next().unwrap_or_default().to_owned())
}
