//! Near-data requests of any bytes and of any meaning: decoded, and run against a small volume into buffers
//! of any size. A request comes to an end, its reply is a reply, and an answer that goes on makes progress.
//!
//! First byte odd: the rest is a request as on the wire. Even: a request is composed of the rest.

use std::cell::RefCell;
use std::sync::Arc;

use nearside_clock::{Clock, SimClock};
use nearside_device::firmware::{Firmware, Job, NearDataCommand, Outcome, Seat, Turn, Worker};
use nearside_device::{Host, Namespace};
use nearside_dma::{IoBuffer, Memory, Wakeup};
use nearside_firmware::Fsr;
use nearside_near_data::wire::{OPERATIONS, decode_reply, decode_request, encode_request};
use nearside_near_data::*;
use nearside_store::{Channel, Completion, Data, Dram, Operation as StoreOperation, Store, Submitted, Token};

use crate::nvme::tiny;

/// Steps of one request; more are a request without end.
const STEPS: usize = 100_000;
/// Commands that one answer is fetched by.
const PARTS: usize = 8;

struct FirmwareDrive {
    worker: <Fsr as Firmware<Dram>>::Worker,
    clock: SimClock,
}

thread_local! {
    static DRIVE: RefCell<Option<FirmwareDrive>> = const { RefCell::new(None) };
}

/// The small volume in memory.
///
/// # Errors
/// No memory for the store or the buffer; or the store did not take the volume at once.
pub fn store() -> std::io::Result<Dram> {
    let image = tiny();
    let store = Dram::new(image.len() as u64, 512)?;
    let mut buffer = IoBuffer::new(image.len())?;
    buffer.copy_from_slice(&image);
    let write = StoreOperation::Write { offset: 0, len: image.len() as u64, fua: false };
    let mut channel = store.channel(Arc::new(Memory::new()))?;
    match channel.submit(write, Data::Owned(buffer), Token(0), SimClock::new().now()) {
        Submitted::Done(Completion { result: Ok(()), .. }) => Ok(store),
        other => Err(std::io::Error::other(format!("{other:?}"))),
    }
}

impl FirmwareDrive {
    fn new() -> std::io::Result<FirmwareDrive> {
        let store = store()?;
        let clock = SimClock::new();
        let firmware = Fsr::new(Arc::new(clock.clone()), Default::default());
        let namespace = Arc::new(Namespace::new(store, firmware, 512, [0; 16], false)?);
        let (memory, wakeup) = (Arc::new(Memory::new()), Arc::new(Wakeup::new()?));
        let seat =
            Seat { memory: &memory, wakeup: &wakeup, host: &Host::default(), namespaces: None, reactor: 0 };
        let worker = <Fsr as Firmware<Dram>>::worker(&namespace, &seat)?;
        Ok(FirmwareDrive { worker, clock })
    }

    fn run(&mut self, request: Vec<u8>, room: usize) -> Option<Outcome> {
        let now = self.clock.now();
        self.worker
            .start(
                Job {
                    token: Token(0),
                    queue: 1,
                    command: NearDataCommand::Bidirectional,
                    request,
                    room,
                    account: Default::default(),
                },
                now,
            )
            .ok()?;
        for _ in 0..STEPS {
            let mut outcome = None;
            self.worker.step(now, &mut Turn::new(), &mut |_, o| outcome = Some(o));
            if outcome.is_some() {
                return outcome;
            }
        }
        panic!("a request does not end");
    }
}

fn table(byte: u8) -> Table {
    let element = [Element::F32, Element::F16, Element::Bf16, Element::I8][usize::from(byte / 2) % 4];
    let raw = (byte & 1 == 0).then_some((element, u32::from(byte / 8) + 1));
    Table { raw, scale: f32::from(byte) - 7.0 }
}

/// A program, in what [`echo`](crate::echo) runs.
fn program(flags: u8, fuel: u64, [code, parameters]: [Vec<u8>; 2]) -> Operation {
    let code = if flags & 4 == 0 { Code::Given(code) } else { Code::Stored(code) };
    let language = if flags & 8 == 0 { Language::WebAssembly } else { Language::Yara };
    Operation::Program(Box::new(ProgramOptions { language, code, parameters, fuel }))
}

/// An operation on a table, by lists of bytes.
fn on_table(gathers: bool, how: u8, flags: u8, [rows, bags]: [Vec<u8>; 2]) -> Operation {
    if gathers {
        let indices: Vec<u64> = rows.iter().map(|b| u64::from(*b) << (b & 15)).collect();
        return Operation::Gather(GatherOptions {
            table: table(flags),
            pooling: [Pooling::None, Pooling::Sum, Pooling::Mean, Pooling::Weighted][usize::from(how) % 4],
            bags: bags.into_iter().map(u32::from).collect(),
            weights: indices.iter().map(|n| *n as f32).collect(),
            indices,
        });
    }
    Operation::Nearest(NearestOptions {
        table: table(flags),
        measure: [Measure::InnerProduct, Measure::L2][usize::from(how) % 2],
        count: bags.len() as u32,
        query: rows.into_iter().map(f32::from).collect(),
    })
}

/// A selection, by texts as people write them: what is none is left out.
fn select(how: u8, [flags, limit]: [u8; 2], [condition, groups, aggregates]: [Vec<u8>; 3]) -> Operation {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Operation::Select(Box::new(SelectOptions {
        format: match how % 4 {
            0 => RowFormat::JsonLines,
            2 => RowFormat::Parquet,
            1 => RowFormat::default(),
            _ => RowFormat::Csv { delimiter: b' ', quote: None, header: flags & 4 != 0 },
        },
        filter: SelectOptions::condition(&text(&condition)).unwrap_or_default(),
        limit: (limit > 128).then_some(limit.into()),
        group_by: SelectOptions::names(&text(&groups)).unwrap_or_default(),
        aggregates: SelectOptions::aggregates(&text(&aggregates)).unwrap_or_default(),
        skip_bad: flags & 8 != 0,
        ..SelectOptions::default()
    }))
}

/// A search for a pattern; of its flags one byte is the request's, the other its cursor's.
fn search(pattern: Vec<u8>, answer: u8, [flags, cursor, depth, uid]: [u8; 4]) -> Operation {
    Operation::Search(SearchOptions {
        // Compiling a long expression takes its time, and is ndp_search's matter.
        patterns: vec![pattern.into_iter().take(24).collect()],
        fixed: flags & 2 != 0,
        ignore_case: flags & 4 != 0,
        bytes: cursor & 2 != 0,
        invert: flags & 8 != 0,
        word: flags & 16 != 0,
        line: flags & 32 != 0,
        text: flags & 64 != 0,
        answer: [Answer::Lines, Answer::Count, Answer::Files, Answer::Total, Answer::Matches]
            [usize::from(answer) % 5],
        max_count: (depth > 128).then_some(depth.into()),
        before: u32::from(uid) % 4,
        after: u32::from(uid) / 64,
        only_matching_files: flags & 1 != 0,
        numbers: flags & 128 != 0,
        without_binary: cursor & 4 != 0,
        null_data: cursor & 8 != 0,
        decompress: cursor & 16 != 0,
    })
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
    let operations = OPERATIONS.count_ones() as u8;
    Some(Request {
        partition: u32::from(flags >> 7),
        credentials: Credentials { uid: uid.into(), gid: uid.into(), groups: vec![uid.into()] },
        target: match target % 6 {
            0 => Target::Volume,
            1 => Target::Path(path),
            2 => Target::Tree {
                root: path,
                include: vec![next()],
                exclude: vec![next()],
                max_depth: depth.into(),
            },
            3 => Target::Glob(path),
            4 => Target::Paths([path, next(), rooted(next()), rooted(next())].iter().collect()),
            _ => Target::Blocks {
                size: number(depth),
                ranges: path
                    .chunks(2)
                    .map(|c| BlockRange { offset: number(c[0]) * 512, len: 512 * u64::from(c[c.len() - 1]) })
                    .collect(),
            },
        },
        operation: match operation % operations {
            0 => Operation::Nop,
            1 => Operation::Info,
            2 => search(next(), operation / operations, [flags, cursor, depth, uid]),
            3 => Operation::Count,
            4 => Operation::Checksum(
                [Digest::Crc32c, Digest::Xxh3, Digest::Sha256][usize::from(operation / operations) % 3],
            ),
            5 => Operation::Read { offset: number(depth), len: number(uid) },
            6 => Operation::List,
            7 => Operation::Stat,
            8 => Operation::Map,
            9 => Operation::Names,
            12 => Operation::Attributes,
            13 => select(operation / operations, [flags, depth], [next(), next(), next()]),
            14 => program(flags, number(uid), [next(), next()]),
            n => on_table(n == 10, operation / operations, flags, [next(), next()]),
        },
        follow: flags & 2 == 0,
        resume: (cursor & 1 != 0).then(|| Cursor {
            path: next(),
            places: if cursor & 2 != 0 { next() } else { Vec::new() },
            offset: number(cursor),
            line: number(depth),
            within: number(uid),
            ..Cursor::default()
        }),
    })
}

/// Runs an input.
pub fn run(input: &[u8]) {
    crate::echo::install();
    DRIVE.with_borrow_mut(|drive| {
        let drive = drive
            .get_or_insert_with(|| FirmwareDrive::new().unwrap_or_else(|e| panic!("a drive in memory: {e}")));
        match input.split_first() {
            Some((which, rest)) if which % 2 == 1 => raw(drive, rest),
            Some((_, rest)) => composed(drive, rest),
            None => {}
        }
    });
}

fn raw(drive: &mut FirmwareDrive, bytes: &[u8]) {
    if let Ok(request) = decode_request(bytes) {
        // Bytes are compared: a number may be none, which is equal to nothing.
        let encoded = encode_request(&request);
        let again = decode_request(&encoded).map(|request| encode_request(&request));
        assert_eq!(again, Ok(encoded));
    }
    if let Some(outcome) = drive.run(bytes.to_vec(), 4096) {
        assert!(outcome.reply.len() <= 4096);
        let _ = reply(&outcome);
    }
}

fn composed(drive: &mut FirmwareDrive, bytes: &[u8]) {
    let Some((room, rest)) = bytes.split_first() else { return };
    let Some(mut request) = compose(rest) else { return };
    let room = 96 + usize::from(*room) * 40;
    for _ in 0..PARTS {
        let Some(outcome) = drive.run(encode_request(&request), room) else { return };
        assert!(outcome.reply.len() <= room);
        let reply = reply(&outcome);
        let Some(more) = reply.more else { return };
        assert!(!reply.records.is_empty(), "an answer that goes on holds something");
        assert_ne!(request.resume.as_ref(), Some(&more), "no progress");
        request.resume = Some(more);
    }
}

fn reply(outcome: &Outcome) -> Reply<'_> {
    decode_reply(&outcome.reply).unwrap_or_else(|e| panic!("a drive's own reply: {e}"))
}

/// One of each operation.
pub fn operations() -> Vec<Operation> {
    let search = SearchOptions {
        patterns: vec![b"t[a-z]+y".to_vec()],
        before: 1,
        answer: Answer::Lines,
        ..SearchOptions::default()
    };
    vec![
        Operation::Nop,
        Operation::Info,
        Operation::Search(search),
        Operation::Count,
        Operation::Checksum(Digest::Sha256),
        Operation::Read { offset: 1, len: 100 },
        Operation::List,
        Operation::Stat,
        Operation::Map,
        Operation::Names,
        Operation::Gather(GatherOptions {
            table: table(0),
            pooling: Pooling::Weighted,
            indices: vec![1, 0],
            bags: vec![0, 2],
            weights: vec![0.5, -1.0],
        }),
        Operation::Nearest(NearestOptions {
            table: table(1),
            measure: Measure::L2,
            count: 3,
            query: vec![1.0],
        }),
        Operation::Attributes,
        Operation::Program(Box::new(ProgramOptions {
            language: Language::Yara,
            code: Code::Stored(b"/f".to_vec()),
            parameters: b"told".to_vec(),
            fuel: 1000,
        })),
        Operation::Select(Box::new(SelectOptions {
            filter: SelectOptions::condition("column_1 like '%l%' and not column_1 ~ '^q+$'")
                .unwrap_or_default(),
            format: RowFormat::Csv { delimiter: b',', quote: None, header: false },
            skip_bad: true,
            ..SelectOptions::default()
        })),
    ]
}

/// Requests as FSRLib encodes them: every operation on every target.
pub fn requests() -> Vec<Vec<u8>> {
    let all = || b"*".to_vec();
    let targets = [
        Target::Volume,
        Target::Path(b"/short link".to_vec()),
        Target::Path(b"/a/b".to_vec()),
        Target::Tree {
            root: b"/".to_vec(),
            include: vec![all()],
            exclude: vec![b"f*".to_vec()],
            max_depth: 9,
        },
        Target::Glob(b"/*l*".to_vec()),
        Target::Blocks { size: 700, ranges: vec![BlockRange { offset: 1024, len: 1024 }] },
        Target::Paths([&b"/plain"[..], b"/a/b", b"/none", b"/short link", b"/plain"].iter().collect()),
    ];
    let mut requests = Vec::new();
    for operation in &operations() {
        for target in &targets {
            let resume = matches!(target, Target::Tree { .. }).then(|| Cursor {
                path: b"/plain".to_vec(),
                offset: 5,
                ..Cursor::default()
            });
            requests.push(encode_request(&Request {
                partition: 0,
                credentials: Credentials { uid: 1000, gid: 100, groups: vec![4, 24] },
                target: target.clone(),
                operation: operation.clone(),
                follow: true,
                resume,
            }));
        }
    }
    requests
}

/// Those requests, and what composes alike.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = requests().into_iter().map(|r| [vec![1], r].concat()).collect();
    for operation in 0..OPERATIONS.count_ones() as u8 {
        for target in 0..5u8 {
            let head = [0, 60, operation, target, 2, 0, 9, 0];
            seeds.push([&head[..], b"\xff*\xfft\xffplain"].concat());
        }
    }
    seeds
}

/// What a drive answers to a question, part by part.
pub fn replies(ask: &nearside_fsrlib::Ask) -> Vec<Vec<u8>> {
    let mut drive = FirmwareDrive::new().unwrap_or_else(|e| panic!("a drive in memory: {e}"));
    let mut request = Request {
        partition: 0,
        credentials: Credentials::default(),
        target: ask.target.clone(),
        operation: ask.operation.clone(),
        follow: ask.follow,
        resume: None,
    };
    let mut replies = Vec::new();
    while replies.len() < PARTS {
        let Some(outcome) = drive.run(encode_request(&request), 1024) else { break };
        let more = reply(&outcome).more;
        replies.push(outcome.reply);
        match more {
            Some(_) => request.resume = more,
            None => break,
        }
    }
    replies
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations of requests, by their numbers on the wire.
    fn operations<'a>(requests: impl IntoIterator<Item = &'a Vec<u8>>) -> u32 {
        requests.into_iter().fold(0, |bits, request| bits | 1 << request[16])
    }

    #[test]
    fn every_operation_is_among_the_seeds() {
        assert_eq!(operations(&requests()), OPERATIONS);
        let composed = seeds().into_iter().filter(|seed| seed[0] & 1 == 0);
        let composed: Vec<_> =
            composed.map(|seed| encode_request(&compose(&seed[2..]).expect("a request"))).collect();
        assert_eq!(operations(&composed), OPERATIONS);
    }
}
