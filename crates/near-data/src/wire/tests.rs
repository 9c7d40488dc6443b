//! The codec against golden bytes, against itself, and against bytes that are neither.

use alloc::borrow::Cow;
use alloc::vec;
use core::ops::ControlFlow;

use proptest::collection::vec as many;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::*;

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    many(any::<u8>(), 0..max)
}

fn blob(max: usize) -> impl Strategy<Value = Cow<'static, [u8]>> {
    bytes(max).prop_map(Cow::Owned)
}

fn text() -> impl Strategy<Value = String> {
    "[a-zäß€ ]{0,20}"
}

fn digest() -> impl Strategy<Value = Digest> {
    prop_oneof![Just(Digest::Crc32c), Just(Digest::Xxh3), Just(Digest::Sha256)]
}

fn cursor() -> impl Strategy<Value = Cursor> {
    (bytes(40), bytes(20), any::<[u64; 7]>(), any::<u32>()).prop_map(|(path, places, n, pending)| Cursor {
        path,
        places,
        offset: n[0],
        line: n[1],
        found: n[2],
        within: n[3],
        pending,
        totals: SearchTotals { files: n[4], files_matched: n[5], matches: n[6] },
    })
}

fn search() -> impl Strategy<Value = SearchOptions> {
    (many(bytes(20), 0..4), any::<[bool; 12]>(), 0..5, any::<Option<u64>>(), any::<(u32, u32)>()).prop_map(
        |(patterns, b, answer, max_count, (before, after))| SearchOptions {
            patterns,
            fixed: b[0],
            ignore_case: b[1],
            invert: b[2],
            word: b[3],
            line: b[4],
            text: b[5],
            only_matching_files: b[6],
            numbers: b[7],
            bytes: b[8],
            without_binary: b[9],
            null_data: b[10],
            decompress: b[11],
            answer: [Answer::Lines, Answer::Count, Answer::Files, Answer::Total, Answer::Matches]
                [answer as usize],
            max_count,
            before,
            after,
        },
    )
}

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![-1e9f32..1e9, Just(f32::INFINITY), Just(-0.0)]
}

fn table() -> impl Strategy<Value = Table> {
    let element = prop_oneof![Just(Element::F32), Just(Element::F16), Just(Element::Bf16), Just(Element::I8)];
    (proptest::option::of((element, 1..=MAX_COLUMNS)), number()).prop_map(|(raw, scale)| Table { raw, scale })
}

fn gather() -> impl Strategy<Value = GatherOptions> {
    let pooling =
        prop_oneof![Just(Pooling::None), Just(Pooling::Sum), Just(Pooling::Mean), Just(Pooling::Weighted)];
    (table(), pooling, many(any::<u64>(), 0..9), many(any::<u32>(), 0..9), many(number(), 0..9)).prop_map(
        |(table, pooling, indices, bags, weights)| GatherOptions { table, pooling, indices, bags, weights },
    )
}

fn nearest() -> impl Strategy<Value = NearestOptions> {
    let measure = prop_oneof![Just(Measure::InnerProduct), Just(Measure::L2)];
    (table(), measure, 0..=MAX_NEAREST, many(number(), 0..9))
        .prop_map(|(table, measure, count, query)| NearestOptions { table, measure, count, query })
}

/// A condition: values, each behind the one before joined to it.
fn filter() -> impl Strategy<Value = Vec<Term>> {
    let comparison = prop::sample::select(vec![
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ]);
    let literal = prop_oneof![
        Just(Literal::Null),
        any::<bool>().prop_map(Literal::Bool),
        any::<i64>().prop_map(Literal::Int),
        (-1e300..1e300).prop_map(Literal::Float),
        text().prop_map(Literal::Text),
    ];
    let value = prop_oneof![text().prop_map(Term::Column), literal.prop_map(Term::Literal)];
    let last = prop_oneof![
        Just(Term::Not),
        Just(Term::IsNull),
        text().prop_map(Term::Regex),
        (text(), any::<bool>()).prop_map(|(pattern, ignore_case)| Term::Like { pattern, ignore_case }),
    ];
    let joins =
        prop_oneof![comparison.prop_map(Term::Compare), Just(Term::And), Just(Term::Or), Just(Term::In(1))];
    (value.clone(), many((value, joins), 0..5), many(last, 0..MAX_REGEXES)).prop_map(
        |(first, joined, last)| {
            let joined = joined.into_iter().flat_map(|(value, join)| [value, join]);
            [first].into_iter().chain(joined).chain(last).collect()
        },
    )
}

fn select() -> impl Strategy<Value = SelectOptions> {
    let format = prop_oneof![
        Just(RowFormat::JsonLines),
        Just(RowFormat::Parquet),
        (any::<bool>(), proptest::option::of(b'!'..b'+'), b','..b'z')
            .prop_map(|(header, quote, delimiter)| RowFormat::Csv { delimiter, quote, header }),
    ];
    let kind = prop::sample::select(ColumnType::ALL.to_vec());
    let aggregate = (prop::sample::select(Function::ALL.to_vec()), text(), any::<bool>()).prop_map(
        |(function, name, all)| Aggregate {
            function,
            column: (!all || function != Function::Count).then_some(name),
        },
    );
    let filter = prop_oneof![Just(Vec::new()), filter()];
    (
        (format, many((text(), kind), 0..4), many(text(), 0..4), filter),
        (any::<Option<u64>>(), many(text(), 0..4), many(aggregate, 0..4), any::<bool>()),
    )
        .prop_map(|((format, schema, columns, filter), (limit, group_by, aggregates, skip_bad))| {
            SelectOptions { format, schema, columns, filter, limit, group_by, aggregates, skip_bad }
        })
        .prop_filter("a column is named twice", |options| options.named_twice().is_none())
}

fn program() -> impl Strategy<Value = ProgramOptions> {
    let code = prop_oneof![bytes(60).prop_map(Code::Given), bytes(60).prop_map(Code::Stored)];
    let language = prop_oneof![Just(Language::WebAssembly), Just(Language::Yara)];
    (language, code, bytes(40), any::<u64>()).prop_map(|(language, code, parameters, fuel)| ProgramOptions {
        language,
        code,
        parameters,
        fuel,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let range = prop_oneof![
        (0..1u64 << 40, 0..1u64 << 20).prop_map(|(o, l)| BlockRange { offset: o * 512, len: l * 512 }),
        (0..1u64 << 20).prop_map(|l| BlockRange { offset: u64::MAX, len: l * 512 }),
    ];
    let target = prop_oneof![
        Just(Target::Volume),
        bytes(60).prop_map(Target::Path),
        (bytes(60), many(bytes(9), 0..3), many(bytes(9), 0..3), any::<u32>()).prop_map(
            |(root, include, exclude, max_depth)| Target::Tree { root, include, exclude, max_depth }
        ),
        bytes(60).prop_map(Target::Glob),
        (any::<u64>(), many(range, 0..5)).prop_map(|(size, ranges)| Target::Blocks { size, ranges }),
        many(bytes(60), 0..9).prop_map(|paths| Target::Paths(paths.into_iter().collect())),
    ];
    let operation = prop_oneof![
        Just(Operation::Nop),
        Just(Operation::Info),
        search().prop_map(Operation::Search),
        Just(Operation::Count),
        digest().prop_map(Operation::Checksum),
        any::<(u64, u64)>().prop_map(|(offset, len)| Operation::Read { offset, len }),
        Just(Operation::List),
        Just(Operation::Stat),
        Just(Operation::Map),
        Just(Operation::Names),
        gather().prop_map(Operation::Gather),
        nearest().prop_map(Operation::Nearest),
        Just(Operation::Attributes),
        select().prop_map(|options| Operation::Select(options.into())),
        program().prop_map(|options| Operation::Program(options.into())),
    ];
    (
        any::<(u32, u32, u32, bool)>(),
        many(any::<u32>(), 0..20),
        target,
        operation,
        proptest::option::of(cursor()),
    )
        .prop_map(|((partition, uid, gid, follow), groups, target, operation, resume)| Request {
            partition,
            credentials: Credentials { uid, gid, groups },
            target,
            operation,
            follow,
            resume,
        })
}

fn failure() -> impl Strategy<Value = Failure> {
    use Failure::*;
    prop_oneof![
        prop::sample::select(vec![
            NotFound,
            PermissionDenied,
            NotADirectory,
            IsADirectory,
            NotARegularFile,
            SymlinkLoop,
            NameTooLong,
            NotAbsolute,
            ChangedDuringScan,
            Cancelled,
            DeniedAs("root is 65534 here".into()),
        ]),
        text().prop_map(UnsupportedFeature),
        text().prop_map(CorruptVolume),
        text().prop_map(MediumError),
        text().prop_map(InvalidPattern),
        text().prop_map(InvalidRequest),
        text().prop_map(NoVolume),
        text().prop_map(LineTooLong),
        text().prop_map(NeedsRecovery),
        text().prop_map(NotATable),
        text().prop_map(CorruptFile),
        text().prop_map(ProgramFailed),
    ]
}

fn entry() -> impl Strategy<Value = FileEntry<'static>> {
    (
        blob(50),
        any::<[u64; 3]>(),
        any::<u16>(),
        any::<[u32; 5]>(),
        any::<[(i64, u32); 3]>(),
        any::<Option<(i64, u32)>>(),
        proptest::option::of(blob(30)),
        any::<bool>(),
    )
        .prop_map(|(path, n, mode, w, times, birth, link, attributes)| FileEntry {
            path,
            ino: n[0],
            mode,
            links: w[0],
            uid: w[1],
            gid: w[2],
            size: n[1],
            sectors: n[2],
            rdev: (w[3], w[4]),
            times,
            birth,
            link,
            attributes,
        })
}

fn record() -> impl Strategy<Value = Record<'static>> {
    prop_oneof![
        (blob(50), any::<u64>()).prop_map(|(path, size)| Record::File { path, size }),
        (blob(50), failure()).prop_map(|(path, failure)| Record::Failed { path, failure }),
        (any::<(u64, u64, bool, bool)>(), blob(90)).prop_map(
            |((number, offset, context, continues), bytes)| Record::Line {
                number,
                offset,
                bytes,
                context,
                continues
            }
        ),
        any::<u64>().prop_map(Record::Matches),
        Just(Record::BinaryMatches),
        any::<(u64, u64, u64)>().prop_map(|(lines, words, bytes)| Record::Count { lines, words, bytes }),
        (digest(), blob(33)).prop_map(|(kind, value)| Record::Digest { kind, value }),
        (any::<u64>(), blob(90)).prop_map(|(offset, bytes)| Record::Data { offset, bytes }),
        entry().prop_map(Record::Entry),
        any::<(u64, u64, u64)>().prop_map(|(from, len, offset)| Record::Extent { from, len, offset }),
        any::<(u64, u64, u64)>().prop_map(|(files, files_matched, matches)| {
            Record::Total(SearchTotals { files, files_matched, matches })
        }),
        (
            any::<(u32, u64, u64, u64, u32, [u8; 16], [bool; 2])>(),
            any::<(Option<[u64; 4]>, Option<[u64; 2]>)>(),
            many(text(), 2..3),
            many(text(), 0..4)
        )
            .prop_map(
                |(
                    (partition, offset, len, blocks, block_size, uuid, [needs_recovery, unstable]),
                    (recovered, inodes),
                    a,
                    b,
                )| {
                    Record::Volume(VolumeRecord {
                        partition,
                        offset,
                        len,
                        file_system: a[0].clone().into(),
                        label: a[1].clone().into(),
                        uuid,
                        block_size,
                        blocks,
                        features: b.into_iter().map(Cow::Owned).collect(),
                        needs_recovery,
                        unstable,
                        recovered: recovered.map(|[transactions, fast_commits, nodes, up_to]| Recovered {
                            transactions,
                            fast_commits,
                            nodes,
                            up_to,
                        }),
                        inodes: inodes.map(|[all, used]| Inodes { all, used }),
                        warnings: a.into_iter().map(Cow::Owned).collect(),
                    })
                }
            ),
        (text(), any::<bool>()).prop_map(|(text, unstable)| Record::Warning { text: text.into(), unstable }),
        (blob(50), any::<u16>()).prop_map(|(path, kind)| Record::Name { path, kind }),
        proptest::option::of(failure()).prop_map(Record::Answered),
        (any::<u64>(), blob(90)).prop_map(|(number, values)| Record::Row { number, values }),
        (any::<u64>(), number()).prop_map(|(row, score)| Record::Near { row, score }),
        (any::<(u64, u64)>(), blob(50), blob(90))
            .prop_map(|((len, offset), name, value)| { Record::Attribute { name, len, offset, value } }),
        (any::<(u64, u64)>(), blob(90)).prop_map(|((rows, bad), stream)| Record::Batch { rows, bad, stream }),
        (blob(90), any::<bool>()).prop_map(|(bytes, continues)| Record::Emitted { bytes, continues }),
    ]
}

fn reply() -> impl Strategy<Value = Reply<'static>> {
    (
        proptest::option::of(failure()),
        any::<[u64; 7]>(),
        many(record(), 0..12),
        proptest::option::of(cursor()),
    )
        .prop_map(|(failure, c, records, more)| Reply {
            failure,
            counters: Counters {
                bytes_scanned: c[0],
                blocks_read: c[1],
                cache_hits: c[2],
                cache_misses: c[3],
                files: c[4],
                locate_ns: c[5],
                compute_ns: c[6],
            },
            records,
            more,
        })
}

proptest! {
    #[test]
    fn a_request_comes_back(request in request()) {
        let bytes = encode_request(&request);
        prop_assert_eq!(decode_request(&bytes), Ok(request));
    }

    #[test]
    fn a_reply_comes_back(reply in reply()) {
        let bytes = encode_reply(&reply, MAX_BUFFER).unwrap();
        prop_assert_eq!(reply_len(&bytes), Ok(bytes.len()));
        prop_assert_eq!(decode_reply(&bytes), Ok(reply));
    }

    #[test]
    fn a_damaged_request_is_answered(request in request(), at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        let mut bytes = encode_request(&request);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode_request(&bytes);
        let _ = decode_request(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn a_damaged_reply_is_answered(reply in reply(), at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        let mut bytes = encode_reply(&reply, MAX_BUFFER).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode_reply(&bytes);
        let _ = decode_reply(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn a_reply_never_passes_its_limit(reply in reply(), limit in 96usize..2000) {
        let mut writer = ReplyWriter::new(Vec::new(), limit).unwrap();
        let cursor = Cursor { path: vec![b'p'; 30], ..Cursor::default() };
        let reserve = ReplyWriter::cursor_len(30);
        let mut kept = Vec::new();
        for record in &reply.records {
            if writer.push(record, reserve).is_ok() {
                kept.push(record.clone());
            }
        }
        match writer.finish(reply.failure.as_ref(), &reply.counters, Some(&cursor)) {
            Ok(bytes) => {
                prop_assert!(bytes.len() <= limit);
                let back = decode_reply(&bytes).unwrap();
                prop_assert_eq!(back.records, kept);
                prop_assert_eq!(back.more, Some(cursor));
            }
            Err(Full) => prop_assert!(kept.is_empty() && limit < REPLY_HEADER + reserve),
        }
    }

    #[test]
    fn bytes_fit_exactly_where_room_is_said(limit in 96usize..2000, reserve in 0usize..300) {
        let mut writer = ReplyWriter::new(Vec::new(), limit).unwrap();
        let room = writer.room_for_bytes(reserve);
        let line = vec![b'x'; room + 1];
        let push = |w: &mut ReplyWriter, n: usize| {
            w.push(&Record::Line { number: 1, offset: 0, bytes: line[..n].into(), context: false, continues: true }, reserve)
        };
        prop_assert_eq!(push(&mut writer, room + 1), Err(Full));
        if room > 0 {
            prop_assert_eq!(push(&mut writer, room), Ok(()));
        }
    }
}

fn plain() -> Request {
    Request {
        partition: 0,
        credentials: Credentials { uid: 1000, gid: 100, groups: vec![4, 27] },
        target: Target::Path(b"/var/log/syslog".to_vec()),
        operation: Operation::Checksum(Digest::Crc32c),
        follow: true,
        resume: None,
    }
}

#[rustfmt::skip]
const GOLDEN: &[u8] = &[
    b'N', b'D', b'R', b'Q', 1, 0, 64, 0, 152, 0, 0, 0, 5, 0, 0, 0,
    4, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 4, 0, 0, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0,
    2, 0, 0, 0, 4, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0,
    3, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 27, 0, 0, 0,
    4, 0, 0, 0, 15, 0, 0, 0, b'/', b'v', b'a', b'r', b'/', b'l', b'o', b'g',
    b'/', b's', b'y', b's', b'l', b'o', b'g', 0,
    12, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn golden_request() {
    assert_eq!(encode_request(&plain()), GOLDEN);
    assert_eq!(decode_request(GOLDEN), Ok(plain()));
}

#[test]
fn golden_reply() {
    let reply = Reply {
        failure: Some(Failure::CorruptVolume("x".into())),
        counters: Counters { bytes_scanned: 0x0102, compute_ns: 9, ..Counters::default() },
        records: vec![Record::Line {
            number: 7,
            offset: 8,
            bytes: b"abc".into(),
            context: true,
            continues: false,
        }],
        more: Some(Cursor { path: b"/f".to_vec(), offset: 5, ..Cursor::default() }),
    };
    let mut golden = vec![0u8; 96];
    golden[..12].copy_from_slice(&[b'N', b'D', b'R', b'P', 1, 0, 96, 0, 208, 0, 0, 0]);
    golden[12] = 1;
    golden[16] = 11;
    golden[20] = 1;
    golden[24] = 1;
    golden[28] = 66;
    golden[32..34].copy_from_slice(&[2, 1]);
    golden[80] = 9;
    golden.extend([3, 0, 1, 0, 19, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend(b"abc\0\0\0\0\0x\0\0\0\0\0\0\0\x05");
    golden.resize(golden.len() + 63, 0);
    golden.extend(b"/f\0\0\0\0\0\0");
    assert_eq!(encode_reply(&reply, 4096).unwrap(), golden);
    assert_eq!(decode_reply(&golden), Ok(reply));
}

/// A drive from before inodes were said is understood, and what it says is what all drives say first.
#[test]
fn a_volume_of_an_older_drive() {
    let volume = |inodes| VolumeRecord { file_system: "ext4".into(), inodes, ..VolumeRecord::default() };
    let bytes = |volume: &VolumeRecord<'static>| {
        let records = vec![Record::Volume(volume.clone())];
        encode_reply(&Reply { records, ..Reply::default() }, 4096).unwrap()
    };
    let (older, newer) = (volume(None), volume(Some(Inodes { all: 0x0102, used: 3 })));
    let (before, now) = (bytes(&older), bytes(&newer));
    // The record's flags are at byte 98, its length at 100, and its value from 104 on: 56 bytes of numbers,
    // and two texts behind their lengths.
    assert_eq!((before[98], before[100], now[98], now[100]), (0, 56 + 8 + 4, 8, 56 + 8 + 4 + 16));
    assert_eq!(before[104..172], now[104..172]);
    assert_eq!(now[172..188], [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    for (bytes, volume) in [(before, older), (now, newer)] {
        assert_eq!(decode_reply(&bytes).unwrap().records, [Record::Volume(volume)]);
    }
}

#[test]
fn golden_search() {
    let search = SearchOptions {
        patterns: vec![b"ab".to_vec()],
        fixed: true,
        numbers: true,
        answer: Answer::Lines,
        before: 2,
        max_count: Some(5),
        ..SearchOptions::default()
    };
    let bytes = encode_request(&Request { operation: Operation::Search(search), ..plain() });
    // Behind the items of the plain request: the pattern, then flags, answer, context before and after,
    // limit.
    let golden = [
        10, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0, 0, 0, //
        11, 0, 0, 0, 24, 0, 0, 0, 0x81, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert!(bytes.windows(golden.len()).any(|part| part == golden), "{bytes:?}");
    let mut unknown = bytes.clone();
    let at = bytes.windows(golden.len()).position(|part| part == golden).unwrap() + 25;
    unknown[at] |= 32;
    assert_eq!(decode_request(&unknown), Err(WireError { at: at - 1, what: Fault::UnknownFlags(1 << 13) }));
}

/// The golden request with an item of `number` after its own.
fn with_item(number: u16) -> Vec<u8> {
    let mut bytes = GOLDEN.to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend([0, 0, 3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0]);
    bytes[8] += 16;
    bytes[12] += 1;
    bytes
}

#[test]
fn the_operations_and_targets_that_there_are() {
    for (at, name, known) in [(16, "operation", OPERATIONS), (18, "target", TARGETS)] {
        for number in 0..u32::BITS as u16 {
            let mut bytes = encode_request(&plain());
            bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
            let unknown = matches!(
                decode_request(&bytes),
                Err(WireError { what: Fault::Unknown(what, named), .. })
                    if (what, named) == (name, u32::from(number))
            );
            assert_eq!(unknown, known & 1 << number == 0, "{name} {number}");
        }
    }
}

#[test]
fn a_list_of_paths_has_its_bounds() {
    let list = |count: usize| (0..count).map(|_| b"/").collect::<Paths>();
    assert_eq!((list(0).is_empty(), list(MAX_PATHS).len(), list(MAX_PATHS + 1).len()), (true, 4096, 4096));
    let mixed: Paths = [&b"/a"[..], b"", b"\0\xff/"].into_iter().collect();
    assert_eq!(mixed.iter().collect::<Vec<_>>(), [&b"/a"[..], b"", b"\0\xff/"]);
    assert_eq!(mixed.wire().len(), [2, 0, 3].into_iter().map(Paths::wire_len).sum::<usize>());
    let fault = |paths: &[u8]| Paths::of_wire(paths).unwrap_err();
    assert_eq!(fault(&[1, 0, 0]), "paths: one is cut");
    assert_eq!(fault(&[1, 0, 0, 0]), "paths: one is cut");
    assert_eq!(fault(&[0xff; 9]), "paths: one is cut");
    assert_eq!(fault(&vec![0; (MAX_PATHS + 1) * 4]), "paths: too many");
    let many = Request { target: Target::Paths(list(MAX_PATHS)), ..plain() };
    assert_eq!(decode_request(&encode_request(&many)), Ok(many));
}

/// Records are handed on one by one, until nobody wants them.
#[test]
fn records_are_read_one_by_one() {
    let records = vec![Record::Matches(1), Record::Answered(None), Record::Matches(2)];
    let counters = Counters { files: 3, ..Counters::default() };
    let of = |failure| Reply { counters, failure, ..Reply::default() };
    let all = Reply { records: records.clone(), ..of(Some(Failure::NotFound)) };
    let bytes = encode_reply(&all, 4096).unwrap();
    let until = |most: usize| {
        let mut taken = Vec::new();
        let end = each_record(&bytes, |record| {
            taken.push(record);
            if taken.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (end.unwrap(), taken)
    };
    assert_eq!(until(9), (ControlFlow::Continue(of(Some(Failure::NotFound))), records.clone()));
    assert_eq!(until(2), (ControlFlow::Break(of(None)), records[..2].to_vec()));
}

/// The numbers that a field of a reply can have, by what a reader does not know.
fn known(reply: &[u8], at: usize, name: &'static str) -> u32 {
    let mut bytes = reply.to_vec();
    (0..u32::BITS as u8).fold(0, |known, number| {
        bytes[at] = number;
        let unknown = matches!(
            decode_reply(&bytes),
            Err(WireError { what: Fault::Unknown(what, named), .. }) if (what, named) == (name, number.into())
        );
        if unknown { known } else { known | 1 << number }
    })
}

/// Whoever adds an operation, a record or a failure finds here that the properties do not see it yet.
#[test]
fn the_generators_leave_nothing_out() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut operations, mut records, mut failures) = (0, 0, 1);
    let with = |record| Reply { records: vec![record], ..Reply::default() };
    for _ in 0..1000 {
        operations |= 1 << request().new_tree(&mut runner).unwrap().current().operation.number();
        let reply = with(record().new_tree(&mut runner).unwrap().current());
        records |= 1 << encode_reply(&reply, MAX_BUFFER).unwrap()[REPLY_HEADER];
        failures |= 1 << failure().new_tree(&mut runner).unwrap().current().code().0;
    }
    let reply = encode_reply(&with(Record::BinaryMatches), MAX_BUFFER).unwrap();
    assert_eq!(operations, OPERATIONS, "operations");
    assert_eq!(records, known(&reply, REPLY_HEADER, "record"), "records");
    assert_eq!(failures, known(&reply, 16, "status"), "failures, and none");
}

/// Of a request and of a reply, the field of the header that is another's.
#[test]
fn a_header_of_another_kind_is_refused_at_its_field() {
    let request = encode_request(&plain());
    let reply = ReplyWriter::new(Vec::new(), 4096).unwrap().finish(None, &Counters::default(), None).unwrap();
    assert!(decode_request(&request).is_ok() && decode_reply(&reply).is_ok());
    for (at, byte, what) in [
        (0, b'X', Fault::Magic),
        (4, 2, Fault::Version(2)),
        (6, 8, Fault::Invalid("header length")),
        (8, 8, Fault::Invalid("length")),
    ] {
        let changed = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[at] = byte;
            bytes
        };
        let refused = WireError { at, what };
        assert_eq!(decode_request(&changed(&request)).unwrap_err(), refused);
        assert_eq!(decode_reply(&changed(&reply)).unwrap_err(), refused);
        assert_eq!(reply_len(&changed(&reply)).unwrap_err(), refused);
    }
}

#[test]
fn unknown_items_are_refused_by_number_or_skipped() {
    assert_eq!(
        decode_request(&with_item(0x123)),
        Err(WireError { at: 152, what: Fault::UnknownItem(0x123) })
    );
    assert_eq!(decode_request(&with_item(0x8123)), Ok(plain()));
}

#[test]
fn flags_not_known_are_refused_or_skipped() {
    let mut bytes = GOLDEN.to_vec();
    bytes[27] = 0x40;
    let fault = Fault::UnknownFlags(0x4000_0000);
    assert_eq!(decode_request(&bytes), Err(WireError { at: 24, what: fault }));
    bytes[27] = 0;
    bytes[31] = 0x40;
    assert_eq!(decode_request(&bytes), Ok(plain()));
}

#[test]
fn what_is_missing_or_twice_is_named() {
    assert_eq!(decode_request(&with_item(1)).unwrap_err().what, Fault::Short);
    let mut nothing = GOLDEN[..64].to_vec();
    nothing[8] = 64;
    nothing[12] = 0;
    assert_eq!(decode_request(&nothing).unwrap_err().what, Fault::Items("uid"));
    let many = Request {
        credentials: Credentials { groups: vec![1; MAX_GROUPS + 1], ..Default::default() },
        ..plain()
    };
    assert_eq!(decode_request(&encode_request(&many)).unwrap_err().what, Fault::Invalid("groups: too many"));
}
