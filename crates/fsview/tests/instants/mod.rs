//! Images of the instants of a write log, for who compares them with a kernel's recovery.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nearside_dma::file::next_data;
use nearside_store::write_log::{Entry, ImageFile, LogReader, Part};

/// A copy of an image whose holes stay holes.
pub fn copy_data(from: &File, to: &Path) -> File {
    let copy = File::options().read(true).write(true).create(true).truncate(true).open(to).unwrap();
    copy.set_len(from.metadata().unwrap().len()).unwrap();
    copy_to(from, &copy, 0);
    copy
}

/// Copies what a file has into holes of another, from byte `at` on.
pub fn copy_to(from: &File, to: &File, at: u64) {
    let mut next = 0;
    while let Some((start, end)) = next_data(from, next).unwrap() {
        let mut bytes = vec![0; (end - start) as usize];
        from.read_exact_at(&mut bytes, start).unwrap();
        to.write_all_at(&bytes, at + start).unwrap();
        next = end;
    }
}

/// Images of a log's instants, made one after the other.
pub struct Instants<'a> {
    log: &'a LogReader,
    entries: &'a [Entry],
    file: File,
    at: u64,
}

impl<'a> Instants<'a> {
    pub fn new(log: &'a LogReader, entries: &'a [Entry], base: &Path, path: &Path) -> Instants<'a> {
        Instants { log, entries, file: copy_data(&File::open(base).unwrap(), path), at: 0 }
    }

    /// Goes on to the instant after the first `at` entries.
    pub fn go_on(&mut self, at: u64) {
        let mut image = ImageFile::new(self.file.try_clone().unwrap()).unwrap();
        for entry in &self.entries[self.at as usize..at as usize] {
            self.log.apply(&Part::whole(*entry), &mut image).unwrap();
        }
        self.at = at;
    }

    /// A copy of it, with these parts of later entries.
    pub fn copy(&self, then: &[Part], to: &Path) {
        let copy = copy_data(&self.file, to);
        let mut image = ImageFile::new(copy).unwrap();
        then.iter().for_each(|part| self.log.apply(part, &mut image).unwrap());
    }
}
