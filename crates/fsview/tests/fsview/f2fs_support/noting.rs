//! An image's bytes as they are at this moment, which note what is asked of them.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::Bytes;
use nearside_fsview::{Error, Source};

/// The bytes, and what was asked.
pub struct Noting<'a> {
    pub bytes: &'a [u8],
    /// Where blocks were read.
    pub read: RefCell<Vec<u64>>,
    /// What an answer was told to depend on.
    pub shown: RefCell<BTreeSet<u64>>,
}

impl<'a> Noting<'a> {
    pub fn new(bytes: &'a [u8]) -> Noting<'a> {
        Noting { bytes, read: RefCell::default(), shown: RefCell::default() }
    }
}

impl Source for Noting<'_> {
    type Block = Bytes;

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<Bytes, Error> {
        self.read.borrow_mut().push(offset);
        let bytes = self.bytes.get(offset as usize..).and_then(|b| b.get(..len as usize));
        let reason = || "past the end".to_owned();
        bytes.map(|b| Bytes(b.into())).ok_or_else(|| Error::Read { at: offset, len, reason: reason() })
    }

    fn shows(&self, offset: u64) {
        self.shown.borrow_mut().insert(offset);
    }
}
