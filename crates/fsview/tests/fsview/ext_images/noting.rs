//! An image that notes what is asked of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use nearside_conformance::view::Image;
use nearside_fsview::{Error, Source};

/// The image, and what was asked.
pub struct Noting<'a> {
    image: &'a Image,
    /// Bytes and lengths of blocks that were read.
    pub asked: RefCell<Vec<(u64, u32)>>,
    /// What an answer was told to depend on.
    pub shown: RefCell<BTreeSet<u64>>,
    /// Places at which others may go first.
    pub pauses: Cell<usize>,
}

impl<'a> Noting<'a> {
    pub fn new(image: &'a Image) -> Noting<'a> {
        Noting { image, asked: RefCell::default(), shown: RefCell::default(), pauses: Cell::default() }
    }
}

impl Source for Noting<'_> {
    type Block = Arc<[u8]>;

    fn len(&self) -> u64 {
        self.image.len()
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<Arc<[u8]>, Error> {
        self.asked.borrow_mut().push((offset, len));
        self.image.metadata(offset, len).await
    }

    fn shows(&self, offset: u64) {
        self.shown.borrow_mut().insert(offset);
    }

    async fn pause(&self) {
        self.pauses.set(self.pauses.get() + 1);
    }
}
