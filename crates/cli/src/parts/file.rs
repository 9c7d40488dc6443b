//! One large file in parts, whose lines are counted.
//!
//! Where it lies is asked once. It is then cut where a line ends, and each thread counts the lines of the
//! next part by the list of its blocks; the counts add up. Lines that are shown have numbers and
//! neighbours, and are found by one command. So is what is refused or odd in any way: that command then
//! says so.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nearside_fsrlib::{
    Answer, Ask, BlockRange, Counters, Credentials, Cursor, EXTENT_INLINE, EXTENT_ZEROS, Error, Operation,
    Record, Request, SearchTotals, Summary, Target,
};

use super::Local;
use crate::drive::add;

/// Bytes of a part, at least: a smaller file is one.
const PART: u64 = 8 << 20;
/// Parts for each thread, so that none waits long for another.
const EACH: u64 = 4;
/// In so many bytes a line must end, where the file is cut.
const LINE: u64 = 64 << 10;
/// What offsets and lengths of ranges are multiples of.
const BLOCK: u64 = 4096;
/// Extents of a part at most: they are to fit into a request.
const EXTENTS: usize = 2000;

/// Whether lines are counted in one file.
pub fn wants(ask: &Ask) -> bool {
    matches!(&ask.operation, Operation::Search(search) if search.answer == Answer::Count && search.max_count.is_none()
        // A part is a part of what lies there, whose lines end in newlines.
        && !(search.without_binary || search.null_data || search.decompress))
        && matches!(ask.target, Target::Path(_))
}

/// A run of the file: its first byte, its bytes, where they lie.
type Extent = (u64, u64, u64);

/// A file as the drive maps it.
#[derive(Default)]
struct Mapped {
    path: Vec<u8>,
    size: u64,
    extents: Vec<Extent>,
}

/// Where it lies. `None`: the drive refuses, or has it with its inode.
fn map(session: &mut Local, ask: &Ask) -> Option<Mapped> {
    let mut mapped = Mapped::default();
    let ask = Ask { operation: Operation::Map, ..ask.clone() };
    let mut odd = false;
    session
        .stream(&ask, |record| {
            match record {
                Record::File { path, size } => (mapped.path, mapped.size) = (path.into_owned(), size),
                Record::Extent { from, len, offset } if offset != EXTENT_INLINE => {
                    mapped.extents.push((from, len, offset));
                }
                Record::Warning { .. } => {}
                _ => odd = true,
            }
            ControlFlow::Continue(())
        })
        .ok()?;
    // The extents follow each other, from the first byte to the last.
    let mut end = 0;
    for (from, len, _) in &mapped.extents {
        odd |= *from != end;
        end = from.checked_add(*len)?;
    }
    (!odd && end >= mapped.size).then_some(mapped)
}

/// Where the file is cut: after the first line's end from each even place on.
fn cuts(session: &mut Local, ask: &Ask, size: u64, threads: usize) -> Option<Vec<u64>> {
    let parts = (size / PART).min(threads as u64 * EACH);
    let mut cuts = vec![0];
    for nth in 1..parts {
        let nominal = size / parts * nth;
        let operation = Operation::Read { offset: nominal, len: LINE };
        let mut read = Vec::new();
        session
            .stream(&Ask { operation, ..ask.clone() }, |record| {
                if let Record::Data { bytes, .. } = record {
                    read.extend_from_slice(&bytes);
                }
                ControlFlow::Continue(())
            })
            .ok()?;
        let line = read.iter().position(|b| *b == b'\n')?;
        cuts.push(nominal + line as u64 + 1);
    }
    cuts.push(size);
    Some(cuts)
}

/// The blocks of a part, and of how many bytes in them the part is which.
fn target(mapped: &Mapped, (from, to): (u64, u64)) -> Option<(Target, u64)> {
    let (start, end) = (from / BLOCK * BLOCK, to.next_multiple_of(BLOCK));
    let mut ranges = Vec::new();
    for &(at, len, offset) in &mapped.extents {
        let (first, last) = (at.max(start), (at + len).min(end));
        if first < last {
            let place = if offset == EXTENT_ZEROS { offset } else { offset + (first - at) };
            // The last ends with the file, in the middle of its block.
            ranges.push(BlockRange { offset: place, len: (last - first).next_multiple_of(512) });
        }
    }
    (ranges.len() <= EXTENTS).then_some((Target::Blocks { size: to - start, ranges }, from - start))
}

/// Lines found in a part.
fn count(session: &mut Local, mapped: &Mapped, part: (u64, u64), ask: &Ask) -> Option<(u64, Counters)> {
    let (target, skip) = target(mapped, part)?;
    let request = Request {
        partition: 0,
        // By the list of its blocks, which whoever may read the file was told.
        credentials: Credentials::default(),
        target,
        operation: ask.operation.clone(),
        follow: ask.follow,
        resume: (skip > 0).then(|| Cursor { offset: skip, ..Cursor::default() }),
    };
    let reply = session.call(&request).ok()?;
    if reply.failure.is_some() || reply.more.is_some() {
        return None;
    }
    let total = reply.records.iter().find_map(|record| match record {
        Record::Total(total) => Some(total.matches),
        _ => None,
    })?;
    Some((total, reply.counters))
}

/// Counts in parts, and hands the answer on as one command would. `None`: the file is small, or has something
/// of which one command has to tell.
pub fn stream(
    session: &mut Local,
    open: &(dyn Fn() -> Result<Local, Error> + Sync),
    threads: usize,
    ask: &Ask,
    sink: &mut impl FnMut(Record<'_>) -> ControlFlow<()>,
) -> Option<Summary> {
    let Operation::Search(search) = &ask.operation else { return None };
    let mapped = map(session, ask).filter(|mapped| mapped.size >= 2 * PART)?;
    let cuts = cuts(session, ask, mapped.size, threads)?;
    let parts: Vec<(u64, u64)> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
    // Whatever is odd about the file is so at its beginning, and is said by one command.
    let next = AtomicUsize::new(0);
    let counted = Mutex::new((0, Counters::default(), 0));
    let seen = session.seen();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(parts.len()) {
            scope.spawn(|| {
                let Ok(mut session) = open() else { return };
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some((found, counters)) = count(&mut session, &mapped, *part, ask) else {
                        next.store(parts.len(), Ordering::Relaxed);
                        return;
                    };
                    seen.add(0, counters.bytes_scanned);
                    let mut counted = counted.lock().unwrap_or_else(|e| e.into_inner());
                    counted.0 += found;
                    counted.2 += 1;
                    add(&mut counted.1, &counters);
                }
            });
        }
    });
    let (found, mut counters, done) = counted.into_inner().unwrap_or_else(|e| e.into_inner());
    if done != parts.len() {
        return None;
    }
    counters.files = 1;
    let size = mapped.size;
    let flow = match found > 0 || !search.only_matching_files {
        true => match sink(Record::File { path: (&mapped.path).into(), size }) {
            ControlFlow::Continue(()) => sink(Record::Matches(found)),
            flow => flow,
        },
        false => ControlFlow::Continue(()),
    };
    if flow.is_continue() {
        let totals = SearchTotals { files: 1, files_matched: u64::from(found > 0), matches: found };
        let _ = sink(Record::Total(totals));
    }
    Some(Summary { counters, ..Summary::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_conformance::{needs, volume};
    use nearside_embedded::Options;
    use nearside_fsrlib::{SearchOptions, Session, Transport};

    #[test]
    fn a_part_is_whole_blocks_and_what_of_them_is_meant() {
        let extents = vec![(0, 8192, 1 << 20), (8192, 4096, EXTENT_ZEROS), (12288, 5000, 4 << 20)];
        let mapped = Mapped { path: b"/f".to_vec(), size: 17_288, extents };
        let range = |offset, len| BlockRange { offset, len };
        let (blocks, skip) = target(&mapped, (5000, 13_000)).unwrap();
        let ranges = vec![range((1 << 20) + 4096, 4096), range(EXTENT_ZEROS, 4096), range(4 << 20, 4096)];
        assert_eq!((blocks, skip), (Target::Blocks { size: 13_000 - 4096, ranges }, 904));
        let (blocks, skip) = target(&mapped, (13_000, 17_288)).unwrap();
        assert_eq!((blocks, skip), (Target::Blocks { size: 5000, ranges: vec![range(4 << 20, 5120)] }, 712));
    }

    /// That it is done so, where one command would give the same answer.
    #[test]
    fn a_large_file_is_counted_by_several_threads() {
        let Some(folder) = needs::folder("a_large_file_is_counted_by_several_threads", &["mke2fs"]) else {
            return;
        };
        let tree = folder.path().join("tree");
        std::fs::create_dir_all(&tree).unwrap();
        let text: String = (0..1_500_000).map(|n| format!("line {n}\n")).collect();
        std::fs::write(tree.join("file"), text.trim_end()).unwrap();
        let image = folder.path().join("image");
        volume::ext(&image, 64, Some(&tree), &["-t", "ext4"]);
        let opened = std::sync::atomic::AtomicUsize::new(0);
        let open = || -> Result<Local, Error> {
            opened.fetch_add(1, Ordering::Relaxed);
            let drive = nearside_embedded::image(&image, &Options::default())
                .map_err(|e| Error::Unsupported(e.to_string()))?;
            let transport: Box<dyn Transport> = Box::new(drive);
            Ok(Session::new(transport, std::sync::Arc::new(nearside_clock::TscClock::new())))
        };
        let search =
            SearchOptions { patterns: vec![b"7".to_vec()], answer: Answer::Count, ..Default::default() };
        let ask = Ask::path("/file", Operation::Search(search));
        let mut found = Vec::new();
        let summary = stream(&mut open().unwrap(), &open, 2, &ask, &mut |record| {
            found.extend(matches!(record, Record::Matches(_)).then(|| record.into_owned()));
            ControlFlow::Continue(())
        });
        let expected = text.lines().filter(|line| line.contains('7')).count() as u64;
        assert_eq!(found, [Record::Matches(expected)]);
        assert_eq!(summary.unwrap().counters.bytes_scanned, text.trim_end().len() as u64);
        assert_eq!(opened.into_inner(), 3);
    }
}
