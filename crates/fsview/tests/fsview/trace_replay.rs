//! The recorded lives of volumes (fixtures/trace): every write that a stock kernel made, replayed; at each
//! mark, after a sync, the view must equal what that kernel said was there; at the end so must whole drives.

use crate::f2fs_support::*;
use nearside_conformance::drive;
use nearside_fsview::{State, Volume};

/// One event of a trace, as fixtures/README.md describes it.
enum Event<'a> {
    Write(u64, &'a [u8]),
    Discard,
    Flush,
    Mark(u64),
}

fn events(trace: &[u8]) -> (u64, Vec<Event<'_>>) {
    let mut rest = trace;
    let mut take = |len: usize| {
        let (taken, after) = rest.split_at_checked(len)?;
        rest = after;
        Some(taken)
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    assert_eq!(take(8), Some(&b"NEARTRC1"[..]));
    let size = number(take(8).unwrap());
    let mut events = Vec::new();
    while let Some(kind) = take(1) {
        events.push(match kind {
            b"W" => {
                let offset = number(take(8).unwrap());
                let len = u32::from_le_bytes(take(4).unwrap().try_into().unwrap());
                Event::Write(offset, take(len as usize).unwrap())
            }
            b"D" => {
                take(16).unwrap();
                Event::Discard
            }
            b"F" => Event::Flush,
            b"M" => Event::Mark(number(take(8).unwrap())),
            other => panic!("event {other:?}"),
        });
    }
    (size, events)
}

fn replay(kind: &str) {
    let trace = decompressed(&format!("trace/{kind}.trace.zst"));
    let text = String::from_utf8(decompressed(&format!("trace/{kind}.txt.zst"))).unwrap();
    let manifests: Vec<Manifest> =
        text.split("# mark ").skip(1).map(|m| manifest(m.split_once('\n').unwrap().1)).collect();
    assert!(manifests.len() >= 10, "{}", manifests.len());
    let mut image = decompressed(&format!("trace/{kind}.img.zst"));
    let (size, events) = events(&trace);
    assert_eq!(size, image.len() as u64);
    let (mut marks, mut writes, mut flushes) = (0, 0, 0);
    for event in events {
        match event {
            Event::Write(offset, data) => {
                image[offset as usize..][..data.len()].copy_from_slice(data);
                writes += 1;
            }
            Event::Discard => {}
            Event::Flush => flushes += 1,
            Event::Mark(number) => {
                assert_eq!(number, marks);
                let memory = Memory::new(image);
                let volume = now(Volume::open(&memory)).unwrap();
                let found = walk(&volume, &memory, &[]).unwrap();
                assert_same(&found, &manifests[number as usize], &format!("{kind} at mark {number}"));
                image = std::sync::Arc::try_unwrap(memory.0).unwrap();
                marks += 1;
            }
        }
    }
    assert_eq!(marks as usize, manifests.len());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &image).unwrap();
    drive::suite_by_view(kind, file.path());
    assert!(writes > 100 && flushes > 10, "{writes} writes, {flushes} flushes");
}

/// After every write of a recorded life, whoever goes on from the state before comes to what a reading from
/// the log's start comes to.
#[test]
fn a_log_that_goes_on_is_as_one_read_anew() {
    let trace = decompressed("trace/f2fs.trace.zst");
    let mut memory = Memory::new(decompressed("trace/f2fs.img.zst"));
    let (mut known, mut longer, mut anew) = (None::<Volume>, 0, 0);
    for (nr, event) in events(&trace).1.into_iter().enumerate() {
        let Event::Write(offset, data) = event else { continue };
        let image = std::sync::Arc::get_mut(&mut memory.0).unwrap();
        image[offset as usize..][..data.len()].copy_from_slice(data);
        let fresh = now(Volume::open(&memory)).unwrap();
        let on = now(Volume::open_after(&memory, State::Recovered, known.as_ref())).unwrap();
        assert_eq!(format!("{on:?}"), format!("{fresh:?}"), "after event {nr}");
        if let Some(known) = known.filter(|known| on.goes_on_from(known).is_some()) {
            longer += usize::from(on.info().recovery.nodes > known.info().recovery.nodes);
        } else {
            anew += 1;
        }
        known = Some(on);
    }
    assert!(longer > 10 && anew > 10, "{longer} times longer, {anew} times another checkpoint");
}

#[test]
fn f2fs() {
    replay("f2fs");
}

#[test]
fn ext4() {
    replay("ext4");
}
