//! A copy of one file in what is none: a pipe or a terminal, which takes its bytes one after the other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Destination, Done, Item, Range, Trouble, broken};
use crate::failure::Failure;
use crate::progress;

/// An open pipe or terminal that takes a file.
pub struct Stream {
    file: File,
    /// As the command line has it.
    name: PathBuf,
    /// What is there stays.
    no_clobber: bool,
    /// How many of the file's bytes it has.
    at: u64,
}

impl Stream {
    /// What the user names.
    pub fn open(name: &Path, no_clobber: bool) -> io::Result<Stream> {
        let file = File::options().write(true).open(name)?;
        progress::give_way();
        Ok(Stream { file, name: name.to_owned(), no_clobber, at: 0 })
    }

    /// Writes zeros up to that byte of the file.
    fn zeros(&mut self, until: u64) -> Done {
        let zeros = until.saturating_sub(self.at);
        let written = io::copy(&mut io::repeat(0).take(zeros), &mut self.file);
        self.at += zeros;
        self.done(written.map(drop))
    }

    fn done(&self, result: io::Result<()>) -> Done {
        result.map_err(|error| Trouble::Command(broken(&self.name, &error)))
    }

    fn no_file() -> Trouble {
        Trouble::Item("What is no regular file is in its place".into())
    }
}

impl Destination for Stream {
    fn shown(&self, _item: &Item) -> Vec<u8> {
        self.name.as_os_str().as_bytes().to_vec()
    }

    fn ends_directories(&self) -> bool {
        false
    }

    fn wants(&mut self, _item: &Item) -> Result<bool, Trouble> {
        Ok(!self.no_clobber)
    }

    fn directory(&mut self, _item: &Item) -> Result<bool, Trouble> {
        Err(Stream::no_file())
    }

    fn leave(&mut self, _item: &Item) -> Done {
        Ok(())
    }

    fn hard_link(&mut self, _item: &Item, _first: &[u8]) -> Done {
        Err(Stream::no_file())
    }

    fn special(&mut self, _item: &Item) -> Done {
        Err(Stream::no_file())
    }

    fn begin(&mut self, _item: &Item, _ranges: &[Range]) -> Done {
        self.at = 0;
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Done {
        self.zeros(offset)?;
        let written = self.file.write_all(bytes);
        self.at += bytes.len() as u64;
        self.done(written)
    }

    fn end(&mut self, item: &Item, whole: bool) -> Done {
        if whole { self.zeros(item.entry.size) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
