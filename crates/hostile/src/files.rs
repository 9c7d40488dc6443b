//! Files that a user names: traces, fio's job files, models of devices.

use std::cell::RefCell;
use std::io::{Seek, Write};
use std::path::PathBuf;

use nearside_clock::Nanos;
use nearside_loadgen::trace::{Event, Feed, Format, Mapping, Onto, Source, Trace, survey};
use nearside_loadgen::{Generator, Plan, Workload, fio_job};
use nearside_media::file::ModelFile;
use nearside_media::{Medium, PRESETS, Request};

/// Bytes of the target that a trace is replayed onto.
const CAPACITY: u64 = 1 << 30;
/// Operations of a replay that are looked at: one of some bytes may be gibibytes long, which are a
/// million parts.
const ARRIVALS: usize = 10_000;

thread_local! {
    /// A trace is read from a file, twice.
    static FILE: RefCell<tempfile::NamedTempFile> =
        RefCell::new(tempfile::NamedTempFile::new().expect("no temporary file"));
}

fn written(bytes: &[u8]) -> PathBuf {
    FILE.with_borrow_mut(|file| {
        let at = file.as_file_mut();
        at.set_len(0).and_then(|()| at.rewind()).and_then(|()| at.write_all(bytes)).expect("no room");
        file.path().to_owned()
    })
}

/// A byte that says how it is read and replayed, then the trace:
/// it is an error, or every operation lies on the target, in whole blocks and in the order of time.
pub fn trace(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let format = [
        None,
        Some(Format::FioIolog),
        Some(Format::Blkparse),
        Some(Format::Blktrace),
        Some(Format::Msr),
        None,
        None,
        None,
    ][usize::from(how & 7)];
    let event = if how & 8 == 0 { Event::Queue } else { Event::Issue };
    let mapping = [Mapping::Fail, Mapping::Wrap, Mapping::Scale, Mapping::Wrap][usize::from(how >> 4 & 3)];
    let scale = if how & 64 == 0 { 1.0 } else { 0.3 };
    let Ok(source) = Source::find(&written(bytes), format, event, None) else { return };
    let Ok(found) = survey(&source, |_| true) else { return };
    assert!(found.reads + found.writes > 0 && found.first_ns <= found.last_ns, "{found:?}");
    let (block_size, largest) = (512, 1 << 20);
    let onto = Onto { scale, mapping, capacity: CAPACITY, block_size, largest };
    let Ok(trace) = Trace::new(source, &found, onto) else { return };
    runs(&trace.plan(&found, None));
    let mut feed = Feed::open(&trace).expect("it was there");
    let (mut last_ns, mut seen) = (0, 0);
    while let Some(arrival) = feed.take() {
        let end = arrival.offset + u64::from(arrival.len);
        assert!(arrival.len > 0 && arrival.len <= largest && end <= CAPACITY, "{arrival:?}");
        assert!((arrival.offset | end).is_multiple_of(block_size.into()), "{arrival:?}");
        assert!(arrival.due_ns >= last_ns, "{arrival:?} after {last_ns}");
        last_ns = arrival.due_ns;
        seen += 1;
        if seen == ARRIVALS {
            return;
        }
    }
    assert!(seen as u64 >= found.reads + found.writes || feed.error().is_some(), "{seen} of {found:?}");
}

/// A plan begins, or says what is wrong with it.
fn runs(plan: &Plan) {
    if Generator::new(plan, 32, Nanos(0)).is_ok() {
        for Workload { offset, size, .. } in plan.streams.iter().map(|stream| &stream.workload) {
            assert!(offset.checked_add(*size).is_some_and(|end| end <= CAPACITY), "{size} from {offset}");
        }
    }
}

/// A job file: an error with its line, or a plan.
pub fn job(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match fio_job::parse(&text, CAPACITY) {
        Ok(job) => runs(&job.plan),
        Err(error) => assert!(error.line <= text.lines().count() && !error.what.is_empty(), "{error}"),
    }
}

/// A model's file: an error, or a device that never ends before it begins.
pub fn model(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match ModelFile::parse(&text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(file) => {
            // A NAND drive has none: its numbers are bounded where they are read.
            let Some(mut medium) = file.parameters.medium() else { return };
            let mut now_ns = 0;
            for (nth, len) in [512, 4096, 1 << 20, 0, 4096, 512].into_iter().cycle().take(48).enumerate() {
                let offset = (nth as u64 * 7_654_321_000) & !511;
                let request = match nth % 4 {
                    _ if len == 0 => Request::FLUSH,
                    0 => Request::write(offset, len),
                    _ => Request::read(offset, len),
                };
                let end_ns = medium.finish(request, now_ns);
                assert!(end_ns >= now_ns, "{request:?} at {now_ns} ends at {end_ns}");
                now_ns += 1 + nth as u64 * 700;
            }
        }
    }
}

/// A trace in each format, of a line or record or two; blktrace's in both byte orders.
pub fn trace_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "fio version 2 iolog\n/a add\n/a open\n/a read 0 4096\n/a wait 10\n/a write 8192 4096\n/a close\n",
        "fio version 3 iolog\n1 /a add\n2 /a open\n3 /a read 0 4096\n5 /a write 8192 1048576\n6 /a close\n",
        "  8,0    3        3     1.000002197   697  Q   W 223490 + 8 [kjournald]\n  \
           8,0    1        7     1.500002197 11024  D  RA 1000 + 16 [x]\n",
        "128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,0,Write,2822144,4096,21554\n",
    ];
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for text in texts {
        seeds.extend([0, 16, 32, 64].map(|how| [&[how], text.as_bytes()].concat()));
    }
    for big in [false, true] {
        let mut seed = vec![0];
        // Queued: a read, and a write with four bytes behind it.
        for (time, sector, len, action, more) in
            [(5_u64, 8_u64, 4096_u32, 1_u32 | 1 << 16, 0_u16), (9, 64, 512, 1 | 2 << 16, 4)]
        {
            let put = |seed: &mut Vec<u8>, bytes: &[u8]| {
                if big { seed.extend(bytes.iter().rev()) } else { seed.extend(bytes) }
            };
            put(&mut seed, &0x6561_7407_u32.to_le_bytes());
            put(&mut seed, &1_u32.to_le_bytes());
            put(&mut seed, &time.to_le_bytes());
            put(&mut seed, &sector.to_le_bytes());
            put(&mut seed, &len.to_le_bytes());
            put(&mut seed, &action.to_le_bytes());
            for word in [77_u32, 0x0080_0000, 1] {
                put(&mut seed, &word.to_le_bytes());
            }
            put(&mut seed, &0_u16.to_le_bytes());
            put(&mut seed, &more.to_le_bytes());
            seed.extend(vec![0; more.into()]);
        }
        seeds.push(seed);
    }
    seeds
}

/// Words that apply, over two jobs.
pub fn job_seeds() -> Vec<Vec<u8>> {
    [
        "[global]\nioengine=io_uring\ndirect=1\nruntime=5\ntime_based\nfilename=/dev/x\n\
         [a]\nrw=randrw\nrwmixread=70\nbs=4k\niodepth=32\nrandom_distribution=zipf:1.2\n\
         [b]\nrw=write\nbssplit=128k/75:1m\nsize=50%\noffset=256m\nnumjobs=2\nrate_iops=1000\n",
        "[a]\nrw=read\nbs=64ki\nthinktime=2ms\nthinktime_spin=1ms\nthinktime_blocks=4\nsize=1g\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// The models that are named.
pub fn model_seeds() -> Vec<Vec<u8>> {
    PRESETS.iter().map(|preset| preset.toml.as_bytes().to_vec()).collect()
}
