//! Asks a volume everything, whatever it answers: for damaged volumes, in tests and under fuzzers.
//!
//! Errors are what is expected; what must not come is a panic, a loop without end, a run outside the volume,
//! a mapping that says one thing of a byte and later another (entries out of order, overlapping), a size that
//! nothing can map, or a name or target that no path may hold. Knows only the view itself, so that a fuzzer
//! can take this file without the rest.

use std::collections::HashSet;

use nearside_fsview::{DirCursor, DirEntry, FileKind, Ino, Inode, Run, RunPlace, Source, Volume};

/// What an exploration met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Files that were there.
    pub files: usize,
    /// Questions that were answered with an error.
    pub errors: usize,
    /// Runs of files.
    pub runs: usize,
}

/// How far an exploration goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Files that are looked at.
    pub files: usize,
    /// Runs of a file.
    pub runs: usize,
    /// Names that are looked up in a directory.
    pub names: usize,
}

impl Bounds {
    /// Bounds of a test.
    pub const FAR: Bounds = Bounds { files: 5_000, runs: 5_000, names: 64 };
}

/// Walks a volume from its root as far as it goes. Panics where an answer breaks the contract.
pub async fn explore<S: Source>(source: &S) -> Explored {
    explore_within(source, Bounds::FAR).await
}

/// Asks everything, within bounds.
pub async fn explore_within<S: Source>(source: &S, bounds: Bounds) -> Explored {
    let mut met = Explored::default();
    let Ok(volume) = Volume::open(source).await else {
        met.errors += 1;
        return met;
    };
    let mut seen = HashSet::from([volume.root()]);
    let mut stack = vec![volume.root()];
    while let Some(ino) = stack.pop() {
        if met.files == bounds.files {
            break;
        }
        for child in ask(&volume, source, ino, bounds, &mut met).await {
            if seen.insert(child) {
                stack.push(child);
            }
        }
    }
    deleted(&volume, source, bounds, &mut met).await;
    met
}

/// Lists what is deleted, where the volume keeps that.
async fn deleted<S: Source>(volume: &Volume, source: &S, bounds: Bounds, met: &mut Explored) {
    let mut next = matches!(volume, Volume::Ext(_)).then_some(Ino(1));
    for _ in 0..bounds.files {
        let Some(from) = next else { return };
        let mut found = Vec::new();
        next = note(met, volume.deleted(source, from, &mut found).await).flatten();
        assert!(next.is_none_or(|next| next > from), "the listing stands still");
        for one in found {
            let Some(one) = note(met, one) else { continue };
            let ino = one.inode.ino;
            assert!(one.inode.links == 0 && ino >= from && next.is_none_or(|next| ino < next), "{ino:?}");
        }
    }
}

/// Asks everything of one inode. Returns the inodes that it names, where it is a directory.
pub async fn ask<S: Source>(
    volume: &Volume,
    source: &S,
    ino: Ino,
    bounds: Bounds,
    met: &mut Explored,
) -> Vec<Ino> {
    let Some(inode) = note(met, volume.inode(source, ino).await) else { return Vec::new() };
    assert_eq!(inode.ino, ino);
    met.files += 1;
    note(met, volume.acl(source, &inode).await);
    if let Some(target) = note(met, volume.read_link(source, &inode).await) {
        assert!(!target.is_empty() && target.len() <= 4095 && !target.contains(&0), "{target:?}");
        assert_eq!(target.len() as u64, inode.size);
    }
    if inode.kind == FileKind::Regular {
        assert!(inode.size <= u64::from(volume.info().block_size) << 32, "{} bytes", inode.size);
    }
    note(met, volume.inline_data(source, &inode).await);
    note(met, volume.lookup(source, &inode, b"no such name").await);
    runs(volume, source, &inode, bounds, met).await;
    match inode.kind {
        FileKind::Directory => names(volume, source, &inode, bounds, met).await,
        _ => Vec::new(),
    }
}

fn note<T>(met: &mut Explored, answer: Result<T, nearside_fsview::Error>) -> Option<T> {
    met.errors += usize::from(answer.is_err());
    answer.ok()
}

async fn names<S: Source>(
    volume: &Volume,
    source: &S,
    dir: &Inode,
    bounds: Bounds,
    met: &mut Explored,
) -> Vec<Ino> {
    let mut entries = Vec::new();
    let mut cursor = Some(DirCursor::default());
    let mut turns = 0;
    while let Some(from) = cursor {
        let before = entries.len();
        cursor = note(met, volume.read_dir(source, dir, from, &mut entries).await).flatten();
        assert!(cursor != Some(from), "the listing stands still");
        turns += 1;
        if entries.len() > bounds.files || (turns > bounds.files && before == entries.len()) {
            break;
        }
    }
    for DirEntry { name, .. } in &entries {
        assert!(!matches!(&name[..], b"" | b"." | b"..") && name.len() <= 255, "{name:?}");
        assert!(!name.iter().any(|byte| matches!(byte, 0 | b'/')), "{name:?}");
    }
    for entry in entries.iter().take(bounds.names) {
        note(met, volume.lookup(source, dir, &entry.name).await);
    }
    entries.into_iter().map(|entry| entry.ino).collect()
}

async fn runs<S: Source>(volume: &Volume, source: &S, inode: &Inode, bounds: Bounds, met: &mut Explored) {
    let mut from = 0;
    for _ in 0..bounds.runs {
        let Some(Some(run)) = note(met, volume.map(source, inode, from).await) else { return };
        assert_eq!(run.from, from);
        assert!(run.len > 0 && run.len <= inode.size - from, "{run:?} of {}", inode.size);
        if let RunPlace::Volume(at) = run.place {
            assert!(at.checked_add(run.len).is_some_and(|end| end <= source.len()), "{run:?}");
        }
        // Asked again from its middle and its last byte, it is the same run:
        // nothing later in the tree says otherwise.
        for inside in [run.len / 2, run.len - 1] {
            let again = note(met, volume.map(source, inode, from + inside).await).flatten();
            assert!(again.is_some_and(|again| same(run, inside, again)), "{run:?} from {inside}: {again:?}");
        }
        from += run.len;
        met.runs += 1;
    }
    // The far end, too, which a walk of so many runs may not reach.
    note(met, volume.map(source, inode, inode.size.saturating_sub(1)).await);
}

/// Whether `again`, asked `inside` a run, says what the run said of that byte.
fn same(run: Run, inside: u64, again: Run) -> bool {
    let place = match (run.place, again.place) {
        (RunPlace::Volume(at), RunPlace::Volume(then)) => at + inside == then,
        (one, other) => one == other,
    };
    place && again.from == run.from + inside && again.len > 0
}
