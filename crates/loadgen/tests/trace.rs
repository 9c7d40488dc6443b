//! Traces: files of the tools that make them, what is wrong with others, and replays in simulated time.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use nearside_clock::SimClock;
use nearside_conformance::needs;
use nearside_loadgen::engine::null::Null;
use nearside_loadgen::run::simulated;
use nearside_loadgen::trace::{
    Arrival, Event, Feed, Format, Mapping, Onto, Source, Survey, Trace, TraceError, survey,
};
use nearside_loadgen::{Direction, Outcome, Summary};
use proptest::prelude::*;
use tempfile::TempDir;

const CAPACITY: u64 = 1 << 30;

/// A file of that content.
fn file(folder: &TempDir, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join("trace");
    fs::write(&path, bytes).unwrap();
    path
}

fn source(path: &Path) -> Source {
    Source::find(path, None, Event::Queue, None).unwrap()
}

/// What is in a file, by its beginning.
fn surveyed(path: &Path) -> Result<Survey, TraceError> {
    survey(&Source::find(path, None, Event::Queue, None)?, |_| true)
}

fn onto(mapping: Mapping) -> Onto {
    Onto { scale: 1.0, mapping, capacity: CAPACITY, block_size: 512, largest: 1 << 20 }
}

fn arrivals(source: Source, onto: Onto) -> Result<Vec<Arrival>, TraceError> {
    let found = survey(&source, |_| true)?;
    let trace = Trace::new(source, &found, onto)?;
    let mut feed = Feed::open(&trace).unwrap();
    let all = std::iter::from_fn(|| feed.take()).collect();
    feed.error().cloned().map_or(Ok(all), Err)
}

fn read(due_ns: u64, offset: u64, len: u32) -> Arrival {
    Arrival { due_ns, direction: Direction::Read, offset, len }
}

fn write(due_ns: u64, offset: u64, len: u32) -> Arrival {
    Arrival { due_ns, direction: Direction::Write, offset, len }
}

/// blkparse's default output, with what else stands in it: other events, a flush, a discard, a message,
/// statistics. Lines as blkparse(1) and blktrace's guide show them.
const BLKPARSE: &str = "\
  8,0    3        1     1.000000000   697  G   W 223490 + 8 [a,b,c,d,e,f]
  8,0    3        2     1.000001829   697  P   R [kjournald]
  8,0    3        3     1.000002197   697  Q   W 223490 + 8 [kjournald]
  8,0    3        4     1.000005533   697  M   W 223498 + 8 [kjournald]
  8,0    3        5     1.000008967   697  I   W 223490 + 16 [kjournald]
  8,0    3        6     1.000024574   697  D   W 223490 + 16 [kjournald]
  8,0    1        7     1.500002197 11024  Q  RA 1000 + 16 [odd na\u{ef}me +]
  8,0    1        8     1.500003197     0  m   N cfq699 set_active
  8,0    1        9     1.600000000   700  Q FWS [kworker/1:1H]
  8,0    1       10     1.700000000   700  Q  DS 4096 + 2048 [fstrim]
  8,0    1       11     2.000002197   700  Q FWFSM 8 + 8 [jbd2/sda1-8]
  8,0    3       12     2.100000000   697  C   W 223490 + 16 [0]
CPU0 (sda):
 Reads Queued:           1,        8KiB\t Writes Queued:           2,        8KiB
Total (sda):
 Reads Queued:           1,        8KiB\t Writes Queued:           2,        8KiB

Throughput (R/W): 8KiB/s / 8KiB/s
Events (sda): 12 entries
";

#[test]
fn what_blkparse_prints() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, BLKPARSE);
    let found = surveyed(&path).unwrap();
    assert_eq!((found.reads, found.writes, found.others, found.out_of_order), (1, 2, 2, 0));
    assert_eq!((found.first_ns, found.last_ns, found.bytes), (1_000_002_197, 2_000_002_197, 16_384));
    assert_eq!((found.span, found.farthest, found.device.as_deref()), (223_498 * 512, 3, Some("8,0")));
    let queued = arrivals(source(&path), onto(Mapping::Fail)).unwrap();
    let sector = 512;
    assert_eq!(
        queued,
        [
            write(0, 223_490 * sector, 4096),
            read(500_000_000, 1000 * sector, 8192),
            write(1_000_000_000, 8 * sector, 4096)
        ]
    );
    let issued = Source { event: Event::Issue, ..source(&path) };
    assert_eq!(arrivals(issued, onto(Mapping::Fail)).unwrap(), [write(0, 223_490 * sector, 8192)]);
}

#[test]
fn msrs_csv() {
    let folder = tempfile::tempdir().unwrap();
    // The second and third stand in the order in which they ended.
    let path = file(
        &folder,
        "128166372003061629,hm,0,Read,383496192,32768,413\n\
         128166372026382245,hm,0,Write,2822144,4096,11554\n\
         128166372016382155,hm,0,Write,2822144,4096,21554\n\
         128166372026382245,hm,0,read,2822144,0,1\n",
    );
    let found = surveyed(&path).unwrap();
    assert_eq!((found.reads, found.writes, found.others, found.out_of_order), (1, 2, 1, 1));
    assert_eq!(found.device.as_deref(), Some("hm.0"));
    assert_eq!(
        arrivals(source(&path), onto(Mapping::Fail)).unwrap(),
        [
            read(0, 383_496_192, 32_768),
            write(1_332_052_600, 2_822_144, 4096),
            write(2_332_061_600, 2_822_144, 4096)
        ]
    );
}

#[test]
fn iologs_of_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        &folder,
        "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x read 0 4096\n/dev/x wait 1500 0\n\
         /dev/x write 8192 512\n/dev/x sync 0 0\n/dev/x wait 500\n/dev/x trim 0 4096\n/dev/x read 512 512\n/dev/x close\n",
    );
    let expected = [read(0, 0, 4096), write(1_500_000, 8192, 512), read(2_000_000, 512, 512)];
    assert_eq!(arrivals(source(&path), onto(Mapping::Fail)).unwrap(), expected);
    assert_eq!(surveyed(&path).unwrap().others, 2);
    let path = file(
        &folder,
        "fio version 3 iolog\n7 /dev/x add\n8 /dev/x open\n10 /dev/x read 0 4096\n1510 /dev/x write 8192 512\n\
         1600 /dev/x datasync\n2010 /dev/x read 512 512\n9000 /dev/x close\n",
    );
    assert_eq!(arrivals(source(&path), onto(Mapping::Fail)).unwrap(), expected);
}

#[test]
fn what_fio_writes() {
    if !needs::tools("trace::what_fio_writes", &["fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = Command::new("fio")
        .args(["--name=made", "--rw=randrw", "--bs=4k", "--size=1m", "--ioengine=psync", "--fdatasync=32"])
        .args(["--write_iolog=made.log", "--output-format=json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout);
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let path = folder.path().join("made.log");
    let found = surveyed(&path).unwrap();
    for (way, count) in [("read", found.reads), ("write", found.writes)] {
        assert_eq!(json["jobs"][0][way]["total_ios"], count, "{way}");
    }
    assert_eq!((found.reads + found.writes, found.bytes), (256, 1 << 20));
    assert!(found.others > 0 && found.span <= 1 << 20);
    let all = arrivals(source(&path), onto(Mapping::Fail)).unwrap();
    assert!(all.len() == 256 && all.is_sorted_by_key(|arrival| arrival.due_ns));
    let mut places: Vec<u64> = all.iter().map(|arrival| arrival.offset).collect();
    places.sort_unstable();
    // fio goes over each block once.
    assert_eq!(places, (0..256).map(|block| block * 4096).collect::<Vec<_>>());
}

/// A record as the kernel writes it.
fn record(time: u64, sector: u64, bytes: u32, action: u32, more: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    for word in [0x6561_7407, 1] {
        record.extend(u32::to_le_bytes(word));
    }
    record.extend([time, sector].iter().flat_map(|n| n.to_le_bytes()));
    let device = 8 << 20 | 16;
    record.extend([bytes, action, 4711, device, 0].iter().flat_map(|n| n.to_le_bytes()));
    record.extend([0, more.len() as u16].iter().flat_map(|n| n.to_le_bytes()));
    record.extend(more);
    record
}

const QUEUE: u32 = 1 | 1 << (16 + 4);
const ISSUE: u32 = 7 | 1 << (16 + 6);
const COMPLETE: u32 = 8 | 1 << (16 + 7);
const READS: u32 = 1 << 16;
const WRITES: u32 = 1 << 17;
const DISCARDS: u32 = 1 << (16 + 13);
const NOTIFIES: u32 = 1 << (16 + 10);

fn binary() -> Vec<u8> {
    [
        record(0, 0, 0, NOTIFIES, b"fio\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        record(1_000, 2048, 4096, QUEUE | READS, &[]),
        record(1_200, 2048, 4096, ISSUE | READS, &[]),
        record(2_000, 4096, 8192, QUEUE | WRITES, &[]),
        record(2_500, 2048, 4096, COMPLETE | READS, &[]),
        record(3_000, 0, 4096, QUEUE | WRITES | DISCARDS, &[]),
        record(4_000, 16, 512, QUEUE | WRITES, &[]),
    ]
    .concat()
}

#[test]
fn blktraces_records_in_either_byte_order() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = binary();
    let expected = [read(0, 1 << 20, 4096), write(1_000, 2 << 20, 8192), write(3_000, 8192, 512)];
    let path = file(&folder, &bytes);
    assert_eq!(source(&path).format, Format::Blktrace);
    assert_eq!(arrivals(source(&path), onto(Mapping::Fail)).unwrap(), expected);
    let found = surveyed(&path).unwrap();
    assert_eq!((found.others, found.device.as_deref()), (1, Some("8,16")));
    let issued = Source { event: Event::Issue, ..source(&path) };
    assert_eq!(arrivals(issued, onto(Mapping::Fail)).unwrap(), [read(0, 1 << 20, 4096)]);
    // The same from a machine that stores the greatest byte first.
    let mut swapped = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        for width in [4, 4, 8, 8, 4, 4, 4, 4, 4, 2, 2] {
            let (number, after) = rest.split_at(width);
            swapped.extend(number.iter().rev());
            rest = after;
        }
        let more = usize::from(u16::from_be_bytes(swapped[swapped.len() - 2..].try_into().unwrap()));
        let (name, after) = rest.split_at(more);
        swapped.extend(name);
        rest = after;
    }
    let path = file(&folder, swapped);
    assert_eq!(arrivals(source(&path), onto(Mapping::Fail)).unwrap(), expected);
}

#[test]
fn blkparse_reads_the_same_from_the_same_records() {
    if !needs::tools("trace::blkparse_reads_the_same_from_the_same_records", &["blkparse"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("made.blktrace.0"), binary()).unwrap();
    let out = Command::new("blkparse").args(["-i", "made"]).current_dir(folder.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = folder.path().join("made.txt");
    fs::write(&text, &out.stdout).unwrap();
    let records = folder.path().join("made.blktrace.0");
    for event in [Event::Queue, Event::Issue] {
        let of = |path: &Path| arrivals(Source { event, ..source(path) }, onto(Mapping::Fail)).unwrap();
        assert_eq!(source(&text).format, Format::Blkparse);
        assert!(!of(&text).is_empty());
        assert_eq!(of(&text), of(&records), "{}", String::from_utf8_lossy(&out.stdout));
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let v3 = |lines: &str| format!("fio version 3 iolog\n{lines}").into_bytes();
    let msr = |lines: &str| format!("0,h,0,Read,0,512,1\n{lines}").into_bytes();
    let parsed = |lines: &str| format!("8,0 0 1 0.000000000 1 Q R 0 + 8 [a]\n{lines}").into_bytes();
    let at = |bytes: &[u8]| [binary(), bytes.to_vec()].concat();
    for (bytes, says) in [
        (b"".to_vec(), "trace: neither"),
        (b"hello\n".to_vec(), "trace: neither"),
        (b"fio version 1 iolog\n".to_vec(), "line 1: \"fio version 1 iolog\" is not"),
        (v3(""), "neither reads nor writes"),
        (v3("1 x read\n"), "line 2: \"\" is no offset"),
        (v3("x x read 0 1\n"), "line 2: \"x\" is no time"),
        (v3("1 x wait 5\n"), "line 2: version 3 has no wait"),
        (v3("1 x chew 0 1\n"), "line 2: \"chew\" is no action"),
        (v3("1 x read 0 1 9\n"), "line 2: more words"),
        (v3("18446744073709551615 x read 0 1\n"), "line 2: 18446744073709551615 microseconds"),
        (v3("1 x read 18446744073709551615 1\n"), "line 2: 1 bytes from 18446744073709551615"),
        (v3("1 x read 1073741824 1\n"), "line 2: it ends at byte 1073742336, and the target has 1073741824"),
        (v3("1 x read 0 512\n1 y read 0 512\n"), "line 3: it is of y, and the trace began with x"),
        (v3(&format!("1 x read 0 {}\n", "1".repeat(5000))), "line 2: it is longer than 4096 bytes"),
        (msr("1,h,0,Read,0,512\n"), "line 2: fewer than seven fields"),
        (msr("1,h,0,Read,0,512,1,1\n"), "line 2: more than seven fields"),
        (msr("1,h,0,Trim,0,512,1\n"), "line 2: \"Trim\" is neither Read nor Write"),
        (msr("-1,h,0,Read,0,512,1\n"), "line 2: \"-1\" is no timestamp"),
        (msr("1,h,1,Read,0,512,1\n"), "line 2: it is of h.1, and the trace began with h.0"),
        (parsed("8,0 0 2 0.5 1 Q R 0 + 8 [a]\n"), "line 2: \"0.5\" is no time"),
        (parsed("8,0 0 2 0.000000001 1\n"), "line 2: it has no action"),
        (parsed("8,0 0 2 0.000000001 1 Q R 99999999999999999 + 8 [a]\n"), "line 2: sector 99999999999999999"),
        (parsed("words\n"), "line 2: \"words\" is no device"),
        (at(&[0; 48]), "record 8: it does not begin"),
        (at(&binary()[..40]), "record 8: the file ends after 40 of its 48 bytes"),
        (at(&binary()[..50]), "record 8: the file ends after 2 of the 16 bytes"),
        (at(&[&[8u8][..], &binary()[1..]].concat()), "record 8: version 8"),
    ] {
        let path = file(&folder, &bytes);
        let found = Source::find(&path, None, Event::Queue, None);
        let error = found.and_then(|source| arrivals(source, onto(Mapping::Fail))).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("trace"), "{says}: {error}");
    }
    // More out of order than is put in order.
    let mut lines = "fio version 3 iolog\n".to_owned();
    (0..20_000).for_each(|_| lines.push_str("9 x read 0 512\n"));
    let error = surveyed(&file(&folder, lines + "8 x read 0 512\n")).unwrap_err().to_string();
    assert!(error.contains("line 20002: its time is 1000 ns before"), "{error}");
    // It is read twice.
    let error = Source::find(Path::new("/dev/zero"), None, Event::Queue, None).unwrap_err().to_string();
    assert!(error.contains("/dev/zero: not a regular file"), "{error}");
}

#[test]
fn a_path_of_any_bytes_is_no_obstacle_to_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"trace-\xff"));
    fs::write(&path, "5,h,0,Read,0,512,1\n").unwrap();
    let found = surveyed(&path).unwrap();
    let trace = Trace::new(source(&path), &found, onto(Mapping::Fail)).unwrap();
    let plan = trace.plan(&found, None);
    let outcome = simulated(&plan, &mut Null::new(1), &SimClock::new()).unwrap();
    let line = Summary::simulated("x", "null", &plan, &outcome).to_line();
    assert!(line.contains("trace-\u{fffd}"), "{line}");
}

#[test]
fn one_device_of_several_may_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "5,h,0,Read,0,512,1\n6,h,1,Write,512,512,1\n7,h,1,Read,0,1024,1\n");
    let one = Source { device: Some("h.1".to_owned()), ..source(&path) };
    assert_eq!(arrivals(one, onto(Mapping::Fail)).unwrap(), [write(0, 512, 512), read(100, 0, 1024)]);
    let none = Source { device: Some("h.2".to_owned()), ..source(&path) };
    assert!(survey(&none, |_| true).unwrap_err().to_string().contains("neither reads nor writes"));
}

#[test]
fn offsets_are_mapped_by_rule() {
    let folder = tempfile::tempdir().unwrap();
    // The trace's device has 2 GiB and the target 1.
    let gib = CAPACITY;
    let end = 2 * gib - 512;
    let text = format!("0,h,0,Read,{gib},4096,1\n1,h,0,Read,{end},512,1\n2,h,0,Read,{},4096,1\n", gib - 512);
    let source = source(&file(&folder, text));
    let offsets = |mapping| -> Vec<u64> {
        arrivals(source.clone(), onto(mapping)).unwrap().iter().map(|arrival| arrival.offset).collect()
    };
    // One that would pass the end lies before it.
    assert_eq!(offsets(Mapping::Wrap), [0, gib - 512, gib - 4096]);
    assert_eq!(offsets(Mapping::Scale), [gib / 2, gib - 512, gib / 2 - 512]);
    let error = arrivals(source.clone(), onto(Mapping::Fail)).unwrap_err().to_string();
    assert!(error.contains("line 2: it ends at byte 2147483648, and the target has 1073741824"), "{error}");
    let tiny = Onto { capacity: 2048, ..onto(Mapping::Wrap) };
    let error = arrivals(source.clone(), tiny).unwrap_err().to_string();
    assert!(error.contains("an operation of 4096 bytes, and the target has 2048"), "{error}");
    // Whole blocks, and no more at once than the target takes.
    let path = file(&folder, "0,h,0,Write,1000,20000,1\n");
    let small = Onto { block_size: 4096, largest: 8192, ..onto(Mapping::Fail) };
    let source = Source::find(&path, None, Event::Queue, None).unwrap();
    let pieces = [write(0, 0, 8192), write(0, 8192, 8192), write(0, 16_384, 8192)];
    assert_eq!(arrivals(source, small).unwrap(), pieces);
}

/// Replays in simulated time on a device of one operation at a time; when each was submitted.
fn replayed(path: &Path, scale: f64, service_ns: u64) -> (Vec<u64>, Outcome) {
    let found = surveyed(path).unwrap();
    let trace = Trace::new(source(path), &found, Onto { scale, ..onto(Mapping::Wrap) }).unwrap();
    let starts = Rc::new(RefCell::new(Vec::new()));
    let seen = starts.clone();
    let mut engine = Null::with_service(1, move |_, now| {
        seen.borrow_mut().push(now.0);
        now + service_ns
    });
    let outcome = simulated(&trace.plan(&found, None), &mut engine, &SimClock::new()).unwrap();
    let starts = starts.borrow().iter().map(|at| at - outcome.began.0).collect();
    (starts, outcome)
}

#[test]
fn operations_start_when_they_were_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let due = [3u64, 10, 11, 12, 5_000, 1_000_000];
    let lines: String = due.iter().map(|us| format!("{us} x read {} 4096\n", us * 4096)).collect();
    let path = file(&folder, format!("fio version 3 iolog\n{lines}"));
    let relative: Vec<u64> = due.iter().map(|us| (us - 3) * 1_000).collect();
    let (starts, outcome) = replayed(&path, 1.0, 100);
    assert_eq!(starts, relative);
    assert_eq!((outcome.both().response.count(), outcome.streams[0].queued), (6, 0));
    assert_eq!(outcome.both().response.max_ns(), 100);
    let (starts, outcome) = replayed(&path, 4.0, 100);
    assert_eq!(starts, relative.iter().map(|ns| ns / 4).collect::<Vec<_>>());
    assert_eq!(outcome.window_ns(), relative[5] / 4 + 1);
    // A device that is behind is no reason to ask later: the times run from when operations were due.
    let (starts, outcome) = replayed(&path, 1.0, 10_000);
    assert_eq!(starts[..4], [0, 10_000, 20_000, 30_000]);
    // In microseconds: the second was due at 7 and ended at 20, the third at 8 and 30, and so on.
    let waits: Vec<u64> = (1..=6).map(|rank| outcome.both().response.rank(rank) / 1_000).collect();
    assert_eq!(waits, [10, 10, 10, 13, 22, 31]);
    assert_eq!((outcome.streams[0].queued, outcome.streams[0].late), (3, 0));
}

#[test]
fn a_part_of_a_trace_waits_no_longer_than_the_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "fio version 3 iolog\n0 x read 0 512\n50 x read 0 512\n99000000 x read 0 512\n");
    let found = surveyed(&path).unwrap();
    let trace = Trace::new(source(&path), &found, onto(Mapping::Fail)).unwrap();
    assert_eq!(trace.plan(&found, None).drain_ns, 99_000_000_001);
    let plan = trace.plan(&found, Some(60_000));
    assert_eq!((plan.runtime_ns, plan.drain_ns), (Some(60_000), 10_000_000_000));
    let outcome = simulated(&plan, &mut Null::new(4), &SimClock::new()).unwrap();
    assert_eq!((outcome.streams[0].offered, outcome.window_ns()), (2, 60_000));
}

#[test]
fn a_device_that_cannot_follow_leaves_operations_unsent_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..100).map(|us| format!("{us} x write 0 4096\n")).collect();
    let path = file(&folder, format!("fio version 3 iolog\n{lines}"));
    // A second each: ten or eleven fit until the end and ten seconds more.
    let (starts, outcome) = replayed(&path, 1.0, 1_000_000_000);
    let stream = &outcome.streams[0];
    assert!((10..=12).contains(&starts.len()), "{}", starts.len());
    assert_eq!((stream.offered, stream.unsent), (100, 100 - starts.len() as u64));
    assert_eq!(outcome.both().response.count(), 100, "each is in the response times");
}

#[test]
fn a_trace_that_changes_meanwhile_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "0,h,0,Read,0,512,1\n10,h,0,Read,0,512,1\n");
    let found = surveyed(&path).unwrap();
    let trace = Trace::new(source(&path), &found, onto(Mapping::Fail)).unwrap();
    fs::write(&path, "0,h,0,Read,0,512,1\nwhat,h,0,Read,0,512,1\n").unwrap();
    let outcome = simulated(&trace.plan(&found, None), &mut Null::new(4), &SimClock::new()).unwrap();
    let error = outcome.streams[0].trace_error.as_ref().unwrap().to_string();
    assert!(error.contains("line 2: \"what\" is no timestamp"), "{error}");
}

/// Each format's text or records of the same operations.
fn written(ops: &[(u64, bool, u64, u32)], format: Format) -> Vec<u8> {
    let mut bytes = if format == Format::FioIolog { b"fio version 3 iolog\n".to_vec() } else { Vec::new() };
    for (number, (us, is_write, sector, sectors)) in ops.iter().enumerate() {
        let (offset, len) = (sector * 512, sectors * 512);
        let word = |read: &'static str, write: &'static str| if *is_write { write } else { read };
        let action = QUEUE | if *is_write { WRITES } else { READS };
        bytes.extend(match format {
            Format::FioIolog => format!("{us} f {} {offset} {len}\n", word("read", "write")).into_bytes(),
            Format::Msr => {
                format!("{},h,0,{},{offset},{len},9\n", us * 10, word("Read", "Write")).into_bytes()
            }
            Format::Blkparse => {
                let (s, ns) = (us / 1_000_000, us % 1_000_000 * 1_000);
                let kind = word("RA", "WS");
                format!("8,0 1 {number} {s}.{ns:09} 7 Q {kind} {sector} + {sectors} [x]\n").into_bytes()
            }
            Format::Blktrace => record(us * 1_000, *sector, len, action, &[]),
        });
    }
    bytes
}

const FORMATS: [Format; 4] = [Format::FioIolog, Format::Blkparse, Format::Blktrace, Format::Msr];

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_operations_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        cut in 0usize..1000,
        at in 0usize..1000,
        with in any::<u8>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let good = written(&[(1, false, 8, 8), (2, true, 16, 1), (9, true, 0, 8)], format);
            // Nonsense, a good one with nonsense behind it, and one with one byte that is another.
            let mut changed = good.clone();
            let place = at % changed.len();
            changed[place] = with;
            let cut = &good[..cut % good.len()];
            for bytes in [&bytes[..], &[cut, &bytes].concat(), &changed] {
                let path = file(&folder, bytes);
                let source = Source::find(&path, Some(format), Event::Queue, None).unwrap();
                for mapping in [Mapping::Fail, Mapping::Wrap, Mapping::Scale] {
                    for arrival in arrivals(source.clone(), onto(mapping)).unwrap_or_default().iter().take(1000) {
                        prop_assert!(arrival.len > 0 && arrival.offset + u64::from(arrival.len) <= CAPACITY);
                        prop_assert!(arrival.offset % 512 == 0 && arrival.len % 512 == 0);
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_written_is_read_in_every_format(
        ops in proptest::collection::vec((0u64..1 << 40, any::<bool>(), 0u64..1 << 20, 1u32..2048), 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut sorted = ops.clone();
        sorted.sort_by_key(|(us, ..)| *us);
        let first = sorted[0].0;
        let expected: Vec<Arrival> = sorted
            .iter()
            .map(|(us, is_write, sector, sectors)| Arrival {
                due_ns: (us - first) * 1_000,
                direction: if *is_write { Direction::Write } else { Direction::Read },
                offset: sector * 512,
                len: sectors * 512,
            })
            .collect();
        for format in FORMATS {
            let path = file(&folder, written(&ops, format));
            prop_assert_eq!(source(&path).format, format);
            prop_assert_eq!(&arrivals(source(&path), onto(Mapping::Fail)).unwrap(), &expected);
        }
    }
}
