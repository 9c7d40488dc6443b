//! Near-data requests of any bytes and of any meaning: decoded, and run against a small volume into buffers of any size.
#![no_main]

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, OnceLock};

use nearside_clock::{Clock, SimClock};
use nearside_device::firmware::{Door, Firmware, Job, Outcome, Worker};
use nearside_device::{Fsr, Namespace};
use nearside_dma::Memory;
use nearside_spec::near_data::wire::{decode_reply, decode_request, encode_request};
use nearside_spec::near_data::*;
use nearside_store::{Dram, Token};

struct Drive {
    worker: <Fsr as Firmware<Dram>>::Worker,
    clock: SimClock,
}

fn drive() -> &'static Mutex<Drive> {
    static DRIVE: OnceLock<Mutex<Drive>> = OnceLock::new();
    DRIVE.get_or_init(|| {
        let mut bytes = Vec::new();
        let seed: &[u8] = include_bytes!("../seeds/ext4.img.gz");
        flate2::read::GzDecoder::new(seed).read_to_end(&mut bytes).unwrap();
        let path = std::env::temp_dir().join(format!("nearside-fuzz-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        let store = Dram::from_file(&path, 512).unwrap();
        let _ = std::fs::remove_file(&path);
        let clock = SimClock::new();
        let firmware = Fsr::new(Arc::new(clock.clone()), Default::default());
        let namespace = Arc::new(Namespace::new(store, firmware, 512, [0; 16], false).unwrap());
        let worker = <Fsr as Firmware<Dram>>::worker(&namespace, &Arc::new(Memory::new()), 0).unwrap();
        Mutex::new(Drive { worker, clock })
    })
}

impl Drive {
    fn run(&mut self, request: Vec<u8>, room: usize) -> Option<Outcome> {
        let now = self.clock.now();
        self.worker.start(Job { token: Token(0), door: Door::Command, request, room }, now).ok()?;
        for _ in 0..100_000 {
            let mut outcome = None;
            self.worker.step(now, &mut |_, o| outcome = Some(o));
            if outcome.is_some() {
                return outcome;
            }
        }
        panic!("a request does not end");
    }
}

/// A request of any meaning, from bytes.
fn compose(bytes: &[u8]) -> Option<Request> {
    let (&[operation, target, flags, uid, depth, cursor], rest) = bytes.split_first_chunk::<6>()?;
    let mut parts = rest.split(|b| *b == 0xff).map(<[u8]>::to_vec);
    let mut next = || parts.next().unwrap_or_default();
    let rooted = |mut path: Vec<u8>| {
        if flags & 1 == 0 {
            path.insert(0, b'/');
        }
        path
    };
    let path = rooted(next());
    let number = |b: u8| u64::from(b) << (b & 15);
    Some(Request {
        partition: u32::from(flags >> 7),
        credentials: Credentials { uid: uid.into(), gid: uid.into(), groups: vec![uid.into()] },
        target: match target % 5 {
            0 => Target::Volume,
            1 => Target::Path(path),
            2 => Target::Tree {
                root: path,
                include: vec![next()],
                exclude: vec![next()],
                max_depth: depth.into(),
            },
            3 => Target::Glob(path),
            _ => Target::Blocks {
                size: number(depth),
                ranges: path
                    .chunks(2)
                    .map(|c| BlockRange { offset: number(c[0]) * 512, len: 512 * u64::from(c[c.len() - 1]) })
                    .collect(),
            },
        },
        operation: match operation % 9 {
            0 => Operation::Nop,
            1 => Operation::Info,
            2 => Operation::Search(Search {
                patterns: vec![next()],
                fixed: flags & 2 != 0,
                ignore_case: flags & 4 != 0,
                invert: flags & 8 != 0,
                word: flags & 16 != 0,
                line: flags & 32 != 0,
                text: flags & 64 != 0,
                answer: [Answer::Lines, Answer::Count, Answer::Files, Answer::Total, Answer::Matches]
                    [usize::from(operation / 9) % 5],
                max_count: (depth > 128).then_some(depth.into()),
                before: u32::from(uid) % 4,
                after: u32::from(uid) / 64,
                only_matching_files: flags & 1 != 0,
            }),
            3 => Operation::Count,
            4 => Operation::Checksum(
                [Digest::Crc32c, Digest::Xxh3, Digest::Sha256][usize::from(operation / 9) % 3],
            ),
            5 => Operation::Read { offset: number(depth), len: number(uid) },
            6 => Operation::List,
            7 => Operation::Stat,
            _ => Operation::Map,
        },
        follow: flags & 2 == 0,
        resume: (cursor & 1 != 0).then(|| Cursor {
            path: next(),
            offset: number(cursor),
            line: number(depth),
            within: number(uid),
            ..Cursor::default()
        }),
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = decode_reply(bytes);
    if let Ok(request) = decode_request(bytes) {
        assert_eq!(decode_request(&encode_request(&request)), Ok(request));
    }
    let mut drive = drive().lock().unwrap_or_else(|e| e.into_inner());
    if let Some(outcome) = drive.run(bytes.to_vec(), 4096) {
        decode_reply(&outcome.reply).unwrap();
    }
    let Some((room, rest)) = bytes.split_first() else { return };
    let Some(mut request) = compose(rest) else { return };
    let room = 96 + usize::from(*room) * 40;
    for _ in 0..16 {
        let Some(outcome) = drive.run(encode_request(&request), room) else { return };
        assert!(outcome.reply.len() <= room);
        let reply = decode_reply(&outcome.reply).unwrap();
        let Some(more) = reply.more else { return };
        assert_ne!(request.resume.as_ref(), Some(&more), "no progress");
        request.resume = Some(more);
    }
});
