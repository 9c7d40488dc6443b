//! No piece of work between two yields grows with the volume: counted in blocks and bytes, without a clock.

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};

use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::{
    Answer, Digest, Element, Failure, GatherOptions, NearestOptions, Operation, Pooling, RowFormat,
    SearchOptions, SelectOptions, Table, Target,
};
use nearside_random::Rng;

/// The longest read: the provider's chunk, and a block more on both sides.
const MOST: u64 = (128 << 10) + 8192;

fn names(dir: &std::path::Path) {
    std::fs::create_dir(dir.join("many")).unwrap();
    for n in 0..3000 {
        std::fs::write(dir.join(format!("many/{n:05}-{}", "x".repeat(60))), "").unwrap();
    }
    // Every second block lies somewhere else.
    std::fs::write(dir.join("long"), (0..2_000_000).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
}

/// Yields that a command took.
fn yields(
    media: &MemoryMedia,
    retriever: &Retriever,
    request: &nearside_near_data::Request,
) -> (u64, Option<Failure>) {
    let before = media.yields().0;
    let (_, answer) = ask(retriever, media, request);
    (media.yields().0 - before, answer.failure)
}

#[test]
fn directories_are_looked_through_block_by_block_cold_and_warm() {
    let test = "directories_are_looked_through_block_by_block_cold_and_warm";
    let Some(dir) = needs::folder(test, &["mke2fs", "mkfs.f2fs", "sload.f2fs"]) else { return };
    names(dir.path());
    // A directory without an index, whose every block is looked at for a name that is not there; and F2FS's
    // by its hash.
    let linear = ext_image(dir.path(), 64, &["-t", "ext2", "-b", "1024", "-O", "^dir_index"]);
    for (image, blocks) in [(linear, 200), (f2fs_image(dir.path(), 128), 2)] {
        let media = MemoryMedia::new(image);
        let retriever = Retriever::new(Config::default());
        for name in ["one", "other", "third"] {
            // The second and the third find the blocks in the cache.
            let missing = request(path(&format!("/many/{name}")), Operation::Stat);
            let (yields, failure) = yields(&media, &retriever, &missing);
            assert_eq!(failure, Some(Failure::NotFound));
            assert!(yields >= blocks, "{yields} yields over {blocks} blocks");
        }
        assert!(media.yields().1 <= 4096, "{} bytes of metadata between two yields", media.yields().1);
    }
}

#[test]
fn files_are_read_and_worked_on_in_pieces() {
    let test = "files_are_read_and_worked_on_in_pieces";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    names(dir.path());
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-b", "4096"]));
    let retriever = Retriever::new(Config::default());
    let bytes = std::fs::metadata(dir.path().join("long")).unwrap().len();
    let table = Table { raw: Some((Element::I8, 1)), ..Table::default() };
    let rows = GatherOptions { table, indices: (0..5000).rev().collect(), ..GatherOptions::default() };
    let empty = GatherOptions { pooling: Pooling::Sum, indices: vec![], bags: vec![0; 5000], ..rows.clone() };
    for rows in [rows, empty] {
        let (yields, failure) = yields(&media, &retriever, &request(path("/long"), Operation::Gather(rows)));
        assert!(failure.is_none() && yields >= 5000, "{yields} {failure:?}");
    }
    // Rows of a line each; groups of them, and a regular expression.
    let format = RowFormat::Csv { delimiter: b',', quote: None, header: false };
    let all = SelectOptions { format, ..SelectOptions::default() };
    let filter = SelectOptions::condition("not column_1 between 5 and 900").unwrap();
    let aggregates = SelectOptions::aggregates("count(*), max(column_1)").unwrap();
    for select in
        [SelectOptions { aggregates, ..all.clone() }, SelectOptions { filter, limit: Some(50_000), ..all }]
    {
        let rows = select.limit.unwrap_or(2_000_000);
        let select = Operation::Select(Box::new(select));
        let (yields, failure) = yields(&media, &retriever, &request(path("/long"), select));
        assert!(failure.is_none() && yields >= rows / 300, "{yields} {failure:?}");
    }
    let nearest = NearestOptions { table, count: 1000, query: vec![1.0], ..NearestOptions::default() };
    for (operation, piece) in [
        (Operation::Nearest(nearest), 128),
        (Operation::Count, 8 << 10),
        (Operation::Checksum(Digest::Crc32c), 64 << 10),
        (Operation::Checksum(Digest::Sha256), 64 << 10),
        (Operation::Read { offset: 0, len: u64::MAX }, 64 << 10),
    ] {
        let (yields, failure) = yields(&media, &retriever, &request(path("/long"), operation));
        assert_eq!(failure, None);
        assert!(yields >= bytes / piece + bytes / MOST, "{yields}");
    }
    assert!(media.yields().1 <= MOST, "{} bytes between two yields", media.yields().1);
}

/// Of a list many are answered at once that are short, and one where a path is long, or goes by a link.
#[test]
fn a_list_is_answered_in_pieces_by_how_far_its_paths_go() {
    let test = "a_list_is_answered_in_pieces_by_how_far_its_paths_go";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    names(dir.path());
    std::os::unix::fs::symlink("many", dir.path().join("link")).unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let list = |path: &dyn Fn(usize) -> String| {
        let of = |from| request(Target::Paths((from..from + 64).map(path).collect()), Operation::Stat);
        // The first time names and inodes are read. A path that was asked about is known as a whole.
        let cold = yields(&media, &retriever, &of(0));
        let warm = yields(&media, &retriever, &of(64));
        assert_eq!((cold.1, warm.1), (None, None));
        warm.0
    };
    assert!(list(&|_| "/long".into()) < 8);
    assert!(list(&|n| format!("/{}many", "./".repeat(1900 + n))) >= 31);
    assert!(list(&|n| format!("/{}link/.", "./".repeat(n))) >= 63);
}

/// Who has the drive sees how far a command is that has not answered yet.
#[test]
fn bytes_are_counted_while_a_command_runs() {
    const BYTES: u64 = 1 << 20;
    let test = "bytes_are_counted_while_a_command_runs";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    std::fs::write(dir.path().join("long"), vec![b'x'; BYTES as usize]).unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 8, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let read = request(path("/long"), Operation::Read { offset: 0, len: u64::MAX });
    for before in [0, BYTES] {
        let mut records = Records::new(usize::MAX / 2);
        records.watched = Some((retriever.scanned(), Vec::new()));
        let answer = now(retriever.run(&media, &read, &mut records));
        assert_eq!((answer.failure, answer.counters.bytes_scanned), (None, BYTES));
        let said = records.watched.unwrap().1;
        assert!(said.iter().any(|bytes| (1..BYTES).contains(&(bytes - before))), "{said:?}");
        assert_eq!(said.last(), Some(&(before + BYTES)));
    }
}

/// However many patterns there are, and however long one of them is tried on one name.
#[test]
fn names_are_matched_with_patterns_in_pieces() {
    let test = "names_are_matched_with_patterns_in_pieces";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    std::fs::create_dir(dir.path().join("top")).unwrap();
    std::fs::write(dir.path().join("top").join("a".repeat(255)), "x").unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 8, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let walked = |target| yields(&media, &retriever, &request(target, Operation::Names));
    let top = |include: &[String], exclude: &[String]| {
        let list = |patterns: &[String]| patterns.iter().map(|p| p.as_bytes().to_vec()).collect();
        let (include, exclude) = (list(include), list(exclude));
        walked(Target::Tree { root: b"/top".to_vec(), include, exclude, max_depth: u32::MAX })
    };
    // What is read of the volume is known from now on.
    top(&[], &[]);
    let (few, failure) = top(&["*".to_owned()], &[]);
    assert_eq!(failure, None);
    let long = format!("*{}b", "[[:alpha:]]".repeat(90));
    let many = format!("{{{}x}}", "*a*b,".repeat(2000));
    for (pattern, pieces) in [(long, 80), (many, 1000)] {
        let pattern = [pattern];
        for (yields, failure) in [top(&pattern, &[]), top(&[], &pattern)] {
            assert!(failure.is_none() && yields >= few + pieces, "{yields} {failure:?}");
        }
        let (yields, failure) = walked(Target::Glob(format!("/top/{}", pattern[0]).into_bytes()));
        assert!(failure == Some(Failure::NotFound) && yields >= pieces, "{yields} {failure:?}");
    }
    // One for each that is read, and as many again while they are matched.
    let logs = vec!["*.log".to_owned(); 4000];
    let (yields, failure) = top(&logs, &logs);
    assert!(failure.is_none() && yields >= 12_000, "{yields} {failure:?}");
}

/// More metadata than the monitor may watch: all is forgotten, in pieces too, and the answers stay right.
#[test]
fn forgetting_everything_is_work_in_pieces() {
    let test = "forgetting_everything_is_work_in_pieces";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    names(dir.path());
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-b", "1024"]));
    let all = request(tree("/many"), Operation::Stat);
    let roomy = Retriever::new(Config::default());
    let (expected, answer) = ask(&roomy, &media, &all);
    assert_eq!((expected.len(), answer.failure), (3001, None));
    let before = media.yields().0;
    let tight = Retriever::new(Config { watched: 160, ..Config::default() });
    let (got, answer) = ask(&tight, &media, &all);
    assert_eq!((got, answer.failure), (expected, None));
    assert!(media.yields().0 > before + 3000);
    assert!(media.yields().1 <= 4096);
}

fn unzipped(pattern: &str, answer: Answer) -> Operation {
    let patterns = vec![pattern.as_bytes().to_vec()];
    Operation::Search(SearchOptions {
        patterns,
        answer,
        decompress: true,
        numbers: true,
        ..Default::default()
    })
}

/// What makes them.
const MAKERS: [&str; 5] =
    ["gzip -c", "xz -c", "zstd -qc", "xz -c --check=crc32 --x86 --lzma2=preset=0", "zstd -qc19 --no-check"];

/// A byte of its checksum is another: in gzip the content's length follows it, in xz the index and a footer.
fn with_another_checksum(nth: usize, mut file: Vec<u8>) -> Vec<u8> {
    let footer = file.len() - 12;
    let index = 4 * (1 + u32::from_le_bytes(file[footer + 4..][..4].try_into().unwrap()) as usize);
    let at = match nth {
        0 => file.len() - 8,
        1 | 3 => footer - index - 1,
        _ => file.len() - 1,
    };
    file[at] ^= 1;
    file
}

/// A text and zeros, made into files by each; some of them cut short, and otherwise than they were made.
fn compressed(dir: &std::path::Path) {
    let put = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).unwrap();
    let shell = |line: &str| must(tool("sh").arg("-c").arg(line).current_dir(dir));
    let text: String = (0..30_000).map(|n| format!("{n} {:x}\n", n * 7919)).collect();
    put("plain", text.as_bytes());
    put("zeros", &vec![0; 8 << 20]);
    put("nothing", b"");
    for (nth, maker) in MAKERS.iter().enumerate() {
        shell(&format!(
            "{maker} <plain >{nth}; {maker} <zeros >{nth}-zeros; {maker} <nothing >{nth}-nothing"
        ));
        shell(&format!("cat {nth} {nth}-nothing {nth} >{nth}-twice"));
        let good = std::fs::read(dir.join(nth.to_string())).unwrap();
        put(&format!("{nth}-cut"), &good[..good.len() / 2]);
        put(&format!("{nth}-more"), &[&good[..], b"of something else, longer than any header"].concat());
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle..][..16].iter_mut().for_each(|b| *b ^= 0x55);
        put(&format!("{nth}-bad"), &bad);
        put(&format!("{nth}-sum"), &with_another_checksum(nth, good.clone()));
        // And of a short one, with some bytes that are anything.
        shell(&format!("head -c 3000 plain | {maker} >short"));
        let short = std::fs::read(dir.join("short")).unwrap();
        for seed in 0..40 {
            let (mut random, mut short) = (Rng(seed), short.clone());
            for _ in 0..1 + random.below(6) {
                let at = 6 + random.index(short.len() - 6);
                short[at] = random.draw() as u8;
            }
            std::fs::create_dir_all(dir.join("any")).unwrap();
            put(&format!("any/{nth}-{seed}"), &short);
        }
    }
    shell("cat plain | zstd -qc --long=27 >far");
    put("bomb", &bomb());
    // Blocks of nothing: bytes come in, and none come out.
    let nothing = [0, 0, 0, 0xff, 0xff].repeat(4000);
    put(
        "idle",
        &[&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], &nothing[..], &[1, 0, 0, 0xff, 0xff], &[0; 8]].concat(),
    );
}

/// A frame of zstd (RFC 8878) whose second block says 120 times to repeat 131,074 bytes: a block may become
/// 128 KiB.
fn bomb() -> Vec<u8> {
    const TIMES: u8 = 120;
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 0x58];
    let raw = [0x20, 0, 0, b'f', b'o', b'o', b'\n'];
    // No literals; one code each for their lengths, for offsets (the one before) and for lengths (52).
    let mut block = vec![0, TIMES, 0x54, 0, 0, 52];
    // Sixteen more bits of each length, and what marks the end.
    block.extend([0xff; 2 * TIMES as usize]);
    block.push(1);
    let header = ((block.len() as u32) << 3 | 2 << 1 | 1).to_le_bytes();
    [&frame[..], &raw, &header[..3], &block].concat()
}

/// As the tools that made them say; and what they would not make is refused.
#[test]
fn what_compressed_files_hold_is_searched_in_pieces() {
    let test = "what_compressed_files_hold_is_searched_in_pieces";
    let Some(dir) = needs::folder(test, &["mke2fs", "gzip", "xz", "zstd"]) else { return };
    compressed(dir.path());
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-b", "4096"]));
    let retriever = Retriever::new(Config::default());
    let about = |name: &str, pattern, answer| request(path(&format!("/{name}")), unzipped(pattern, answer));
    let lines =
        |got: Vec<Got>| got.into_iter().filter(|got| matches!(got, Got::Line { .. })).collect::<Vec<_>>();
    let expected = lines(ask(&retriever, &media, &about("plain", "9f", Answer::Lines)).0);
    assert!(expected.len() > 300);
    for (nth, step) in [4 << 10, 128, 128 << 10, 128, 128 << 10].into_iter().enumerate() {
        let (got, answer) = ask(&retriever, &media, &about(&nth.to_string(), "9f", Answer::Lines));
        assert_eq!(answer.failure, None, "{}", MAKERS[nth]);
        assert!(lines(got) == expected, "{}", MAKERS[nth]);
        let (got, _, commands) =
            ask_in_parts(&retriever, &media, &about(&nth.to_string(), "9f", Answer::Lines), 9000);
        assert!(lines(got) == expected && commands > 2, "{}, in {commands} commands", MAKERS[nth]);
        let (got, answer) = ask(&retriever, &media, &about(&format!("{nth}-twice"), "9f", Answer::Count));
        assert!(
            got.contains(&Got::Matches(2 * expected.len() as u64)),
            "{}: {got:?} {answer:?}",
            MAKERS[nth]
        );
        for name in ["cut", "more", "bad", "sum"] {
            let (_, answer) = ask(&retriever, &media, &about(&format!("{nth}-{name}"), "9f", Answer::Count));
            let corrupt = matches!(answer.failure, Some(Failure::CorruptFile(_)));
            // Without its checksum, zstd's content may be anything.
            assert!(
                corrupt || matches!(name, "bad" | "sum") && nth == 4,
                "{} {name}: {:?}",
                MAKERS[nth],
                answer.failure
            );
        }
        let (yields, failure) =
            yields(&media, &retriever, &about(&format!("{nth}-zeros"), "9f", Answer::Count));
        assert_eq!(failure, None, "{}", MAKERS[nth]);
        assert!(yields >= (8 << 20) / step, "{}: {yields} yields", MAKERS[nth]);
    }
    let (got, answer) = ask(&retriever, &media, &request(tree("/any"), unzipped("9f", Answer::Count)));
    assert_eq!(answer.failure, None);
    let failures = got.iter().filter_map(|got| match got {
        Got::Failed(_, failure) => Some(failure),
        _ => None,
    });
    let known = |f: &Failure| matches!(f, Failure::CorruptFile(_) | Failure::UnsupportedFeature(_));
    let (all, refused) = failures.fold((true, 0), |(all, n), failure| (all && known(failure), n + 1));
    assert!(all && refused > 150, "{refused} of 200: {got:?}");
    let (_, answer) = ask(&retriever, &media, &about("far", "9f", Answer::Count));
    assert!(matches!(answer.failure, Some(Failure::UnsupportedFeature(_))), "{:?}", answer.failure);
    let (_, answer) = ask(&retriever, &media, &about("bomb", "9f", Answer::Count));
    assert!(matches!(answer.failure, Some(Failure::CorruptFile(_))), "{:?}", answer.failure);
    let (yields, failure) = yields(&media, &retriever, &about("idle", "9f", Answer::Count));
    assert!(failure.is_none() && yields >= 20_000 / 256, "{failure:?}, {yields} yields");
    assert!(media.yields().1 <= MOST, "{} bytes between two yields", media.yields().1);
}

/// What a file holds comes, up to where it fails. Then nothing of it comes again, however much of an answer
/// it has filled before.
#[test]
fn a_file_that_fails_in_a_full_answer_does_not_begin_anew() {
    let test = "a_file_that_fails_in_a_full_answer_does_not_begin_anew";
    let Some(dir) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let text: String = (0..100).map(|n| format!("{n:03} is found\n")).collect();
    std::fs::write(dir.path().join("a"), text).unwrap();
    must(tool("gzip").arg(dir.path().join("a")));
    let whole = std::fs::read(dir.path().join("a.gz")).unwrap();
    std::fs::write(dir.path().join("b"), "not compressed, and found\n").unwrap();
    let all = request(tree("/"), unzipped("found", Answer::Lines));
    let drive = |broken: &[u8]| {
        std::fs::write(dir.path().join("a.gz"), broken).unwrap();
        let image = ext_image(dir.path(), 64, &["-t", "ext4", "-b", "1024"]);
        (MemoryMedia::new(image), Retriever::new(Config::default()))
    };
    let drives = [drive(&whole[..whole.len() - 4]), drive(&with_another_checksum(0, whole.clone()))];
    let numbers = |got: &[Got]| -> Vec<u64> {
        let number = |got: &Got| match got {
            Got::Line { number, bytes, .. } if bytes.ends_with(b"is found") => Some(*number),
            _ => None,
        };
        got.iter().filter_map(number).collect()
    };
    for (media, retriever) in &drives {
        assert!(numbers(&ask(retriever, media, &all).0).into_iter().eq(1..=100));
    }
    for (limit, (media, retriever)) in (900..1100).zip(drives.iter().cycle()) {
        let (got, answer, commands) = ask_in_parts(retriever, media, &all, limit);
        assert!(answer.failure.is_none() && commands > 3, "{limit}: {commands} commands, {answer:?} {got:?}");
        assert!(numbers(&got).into_iter().eq(1..=100), "{limit}: lines are missing or come twice, {got:?}");
        let failed = got.iter().filter(|got| matches!(got, Got::Failed(path, _) if path == "/a.gz")).count();
        let after = got.iter().any(|got| matches!(got, Got::Line { bytes, .. } if bytes.starts_with(b"not")));
        assert!(failed == 1 && after, "{limit}: {got:?}");
    }
}
