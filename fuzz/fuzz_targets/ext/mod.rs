//! Seed volumes with patches over them, and what a target needs to know of where structures lie.

#![allow(dead_code)] // each target uses a part

#[path = "../../../crates/conformance/src/explore.rs"]
mod explore;

use std::cell::RefCell;
use std::future::Future;
use std::io::Read;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use nearside_fsview::{DirCursor, Error, Ino, Inode, Source, Volume};

/// Made by `fuzz/seeds/make-ext`: block maps; extents with inline data; extents with checksums.
const SEEDS: [&[u8]; 3] = [
    include_bytes!("../../seeds/ext2.img.gz"),
    include_bytes!("../../seeds/ext4.img.gz"),
    include_bytes!("../../seeds/ext4-csum.img.gz"),
];

/// A seed's bytes, and the metadata blocks that a walk of it asks for.
pub struct Seed {
    bytes: Vec<u8>,
    pub asked: Vec<(u64, u32)>,
}

/// One of the seeds, unpacked once.
pub fn seed(pick: u8) -> &'static Seed {
    static ALL: OnceLock<Vec<Seed>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let unpack = |packed: &[u8]| {
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
            let mut seed = Seed { bytes, asked: Vec::new() };
            let patched = Patched::new(&seed);
            let met = block_on(explore::explore(&patched));
            assert!(met.files > 50, "{met:?}");
            let mut asked = patched.asked.into_inner();
            asked.sort();
            asked.dedup();
            seed.asked = asked;
            seed
        };
        SEEDS.iter().map(|packed| unpack(packed)).collect()
    });
    &all[usize::from(pick) % all.len()]
}

/// A seed with bytes laid over it.
pub struct Patched<'a> {
    seed: &'a Seed,
    patches: Vec<(u64, Vec<u8>)>,
    asked: RefCell<Vec<(u64, u32)>>,
}

impl<'a> Patched<'a> {
    pub fn new(seed: &'a Seed) -> Patched<'a> {
        Patched { seed, patches: Vec::new(), asked: RefCell::default() }
    }

    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        self.patches.push((at, bytes.to_vec()));
    }

    /// What lies there now.
    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = self.seed.bytes[at as usize..at as usize + len].to_vec();
        for (start, patch) in &self.patches {
            for (nr, byte) in patch.iter().enumerate() {
                let place = (start + nr as u64).wrapping_sub(at);
                if let Some(place) = usize::try_from(place).ok().and_then(|place| bytes.get_mut(place)) {
                    *place = *byte;
                }
            }
        }
        bytes
    }

    /// Asks it everything.
    pub fn explore(&self) {
        block_on(explore::explore(self));
    }
}

impl Source for Patched<'_> {
    type Block = std::sync::Arc<[u8]>;

    fn len(&self) -> u64 {
        self.seed.bytes.len() as u64
    }

    async fn metadata(&self, at: u64, len: u32) -> Result<Self::Block, Error> {
        if self.seed.asked.is_empty() {
            self.asked.borrow_mut().push((at, len));
        }
        if at.checked_add(u64::from(len)).is_none_or(|end| end > self.len()) {
            return Err(Error::Read { at, len, reason: "past the end".into() });
        }
        Ok(self.get(at, len as usize).into())
    }
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// The inode of a name in the root.
pub fn named(volume: &Volume, source: &Patched<'_>, name: &[u8]) -> Option<Inode> {
    block_on(async {
        let root = volume.inode(source, volume.root()).await.ok()?;
        let ino = volume.lookup(source, &root, name).await.ok()??;
        volume.inode(source, ino).await.ok()
    })
}

/// Notes the last block that a question asks for.
struct Last<'a>(&'a Seed, RefCell<(u64, u32)>);

impl Source for Last<'_> {
    type Block = std::sync::Arc<[u8]>;

    fn len(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    async fn metadata(&self, at: u64, len: u32) -> Result<Self::Block, Error> {
        *self.1.borrow_mut() = (at, len);
        Ok(self.0.bytes[at as usize..at as usize + len as usize].into())
    }
}

/// Where a directory's first block lies; inline directories give their inode's.
pub fn directory_at(seed: &Seed, name: Option<&[u8]>) -> (u64, u32) {
    let source = Last(seed, RefCell::default());
    let patched = Patched::new(seed);
    let volume = block_on(Volume::open(&patched)).unwrap();
    let dir = match name {
        Some(name) => named(&volume, &patched, name).unwrap(),
        None => block_on(volume.inode(&patched, Ino(2))).unwrap(),
    };
    block_on(volume.read_dir(&source, &dir, DirCursor::default(), &mut Vec::new())).unwrap();
    source.1.into_inner()
}

/// Where the node lies that maps the start of a file.
pub fn node_at(seed: &Seed, name: &[u8], from: u64) -> (u64, u32) {
    let source = Last(seed, RefCell::default());
    let patched = Patched::new(seed);
    let volume = block_on(Volume::open(&patched)).unwrap();
    let file = named(&volume, &patched, name).unwrap();
    block_on(volume.map(&source, &file, from)).unwrap();
    source.1.into_inner()
}
