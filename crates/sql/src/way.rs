//! The drives that queries are about.

use std::fmt::Debug;
use std::sync::Arc;

use nearside_fsrlib::{Failure, Session, Transport};

/// A way to a drive, by which each scan opens a session of its own.
pub trait Way: Debug + Send + Sync {
    /// The drive's name, as rows have it in their column `drive`.
    fn name(&self) -> &str;

    /// The words by which another process finds the same drive; `None`: none does.
    fn words(&self) -> Option<Vec<String>> {
        None
    }

    /// A session, on the thread that asks for it.
    ///
    /// # Errors
    /// Why there is none; for the user, with the drive's name.
    fn open(&self) -> Result<Session<Box<dyn Transport>>, String>;

    /// Something that the user should know of the drive; said more than once.
    fn warn(&self, text: &str);

    /// A file could not be read: its rows are missing in the answer.
    ///
    /// # Errors
    /// There is to be no answer without them; for the user, with the drive's name.
    fn failed(&self, path: &[u8], failure: &Failure) -> Result<(), String>;
}

/// Drives, each of which has a part of every table.
pub type Drives = Arc<[Arc<dyn Way>]>;
