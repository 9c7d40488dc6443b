//! Programs over files of real volumes, by Wasmtime: what they emit, however many answers it takes.

use std::fs;
use std::path::Path;

use crate::common::*;
use nearside_conformance::needs;
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::{Code, Credentials, Failure, Language, Operation, ProgramOptions, Request, Target};

/// Rows of ten bytes, the last shorter: `$row` says how many there are of the next, which begins memory.
const HEAD: &str = r#"
    (import "nearside" "next" (func $next (param i32 i32) (result i32)))
    (import "nearside" "emit" (func $emit (param i32 i32)))
    (import "nearside" "offset" (func $offset (result i64)))
    (import "nearside" "size" (func $size (result i64)))
    (import "nearside" "seek" (func $seek (param i64)))
    (import "nearside" "restart" (func $restart (param i64)))
    (memory (export "memory") 2)
    (func $row (result i32) (local $have i32) (local $n i32)
        (loop $on
            (local.set $n
                (call $next (local.get $have) (i32.sub (i32.const 10) (local.get $have))))
            (local.set $have (i32.add (local.get $have) (local.get $n)))
            (br_if $on (i32.and (i32.ne (local.get $n) (i32.const 0))
                                (i32.lt_u (local.get $have) (i32.const 10)))))
        (local.get $have))"#;

fn code(body: &str) -> Vec<u8> {
    nearside_wasm::install();
    wat::parse_str(format!(r#"(module {HEAD} (func (export "run") (local $n i32) {body}))"#)).unwrap()
}

fn program(body: &str) -> Operation {
    let code = Code::Given(code(body));
    Operation::Program(Box::new(ProgramOptions { code, ..ProgramOptions::default() }))
}

/// For each row what is said here of it.
fn rows(each: &str) -> Operation {
    program(&format!(
        "(block $end (loop $on (local.set $n (call $row)) (br_if $end (i32.eqz (local.get $n))) {each} (br $on)))"
    ))
}

/// The records, those in parts put together.
fn emitted(got: &[Got]) -> Vec<Vec<u8>> {
    let (mut all, mut begun) = (Vec::new(), Vec::new());
    for got in got {
        if let Got::Emitted(bytes, continues) = got {
            begun.extend_from_slice(bytes);
            if !continues {
                all.push(std::mem::take(&mut begun));
            }
        }
    }
    assert!(begun.is_empty(), "a record does not end");
    all
}

fn volumes(dir: &Path) -> [MemoryMedia; 2] {
    [ext_image(dir, 64, &["-t", "ext4"]), f2fs_image(dir, 128)].map(MemoryMedia::new)
}

const TOOLS: [&str; 3] = ["mke2fs", "mkfs.f2fs", "sload.f2fs"];

#[test]
fn an_answer_in_parts_is_the_answer_at_once() {
    let Some(dir) = needs::folder("an_answer_in_parts_is_the_answer_at_once", &TOOLS) else { return };
    let text: Vec<u8> = (0..30_000).flat_map(|n| format!("{n:09}\n").into_bytes()).chain(*b"end").collect();
    fs::write(dir.path().join("rows"), &text).unwrap();
    let expected: Vec<Vec<u8>> = text.chunks(10).map(<[u8]>::to_vec).collect();
    let says = "(call $emit (i32.const 0) (local.get $n))";
    let could = "(call $restart (call $offset))";
    for media in volumes(dir.path()) {
        let retriever = Retriever::new(Config::default());
        let mut scanned = Vec::new();
        for (each, limit, parts) in [
            (format!("{says} {could}"), 1 << 20, 1),
            (format!("{says} {could}"), 4 << 10, 200),
            // One that cannot begin but at the beginning: each part has all before it done again.
            (says.to_owned(), 100 << 10, 9),
        ] {
            let request = request(path("/rows"), rows(&each));
            let (got, answer, commands) = ask_in_parts(&retriever, &media, &request, limit);
            assert_eq!(answer.failure, None);
            assert!(emitted(&got) == expected, "{limit}");
            assert!(commands >= parts, "{commands}");
            scanned.push(answer.counters.bytes_scanned / text.len() as u64);
        }
        // A piece of 64 KiB is taken whole, of which the next part begins somewhere.
        assert!(scanned[0] == 1 && scanned[1] < 60 && scanned[2] > 3, "{scanned:?}");
    }
}

#[test]
fn records_larger_than_the_room_come_in_parts() {
    let Some(dir) = needs::folder("records_larger_than_the_room_come_in_parts", &["mke2fs"]) else { return };
    fs::write(dir.path().join("file"), "0123456789abcdefghij").unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let large = rows(
        "(call $emit (i32.const 0) (i32.const 30000)) (call $emit (i32.const 0) (i32.const 0))
         (call $emit (i32.const 1) (i32.const 9)) (call $restart (call $offset))",
    );
    let request = request(path("/file"), large);
    let whole = emitted(&ask(&retriever, &media, &request).0);
    assert_eq!(whole.iter().map(Vec::len).collect::<Vec<_>>(), [30_000, 0, 9, 30_000, 0, 9]);
    for limit in [400, 4096, 31_000] {
        let (got, answer, commands) = ask_in_parts(&retriever, &media, &request, limit);
        assert_eq!(answer.failure, None);
        assert!(emitted(&got) == whole, "{limit}");
        assert!(commands >= 60_000 / limit);
    }
}

#[test]
fn only_what_a_program_asks_for_is_read() {
    let Some(dir) = needs::folder("only_what_a_program_asks_for_is_read", &TOOLS) else { return };
    let text: Vec<u8> = (0..1_000_000).flat_map(|n| format!("{n:09}\n").into_bytes()).collect();
    fs::write(dir.path().join("large"), &text).unwrap();
    fs::write(dir.path().join("small"), "only").unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    let holes = fs::File::create(dir.path().join("holes")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, b"behind", 5_000_000).unwrap();
    // The last three, then the first three, then the last three again.
    let part = |from: &str| {
        format!("(call $seek {from}) (drop (call $row)) (call $emit (i32.const 0) (i32.const 3))")
    };
    let last =
        "(select (i64.sub (call $size) (i64.const 3)) (i64.const 0) (i64.ge_u (call $size) (i64.const 3)))";
    let ends = [part(last), part("(i64.const 0)"), part(last)].concat();
    for media in volumes(dir.path()) {
        let retriever = Retriever::new(Config::default());
        for (name, records) in [
            ("large", [&b"99\n"[..], b"000", b"99\n"]),
            ("small", [b"nly", b"onl", b"nly"]),
            ("empty", [b"\0\0\0"; 3]),
            ("holes", [b"ind", b"\0\0\0", b"ind"]),
        ] {
            let request = request(path(&format!("/{name}")), program(&ends));
            let (got, answer) = ask(&retriever, &media, &request);
            assert_eq!(
                (emitted(&got), answer.failure),
                (records.map(<[u8]>::to_vec).to_vec(), None),
                "{name}"
            );
            assert!(answer.counters.bytes_scanned < 300_000, "{name}: {}", answer.counters.bytes_scanned);
            let (got, ..) = ask_in_parts(&retriever, &media, &request, 330);
            assert_eq!(emitted(&got), records, "{name}");
            // Not even the file's own record.
            let (_, answer, _) = ask_in_parts(&retriever, &media, &request, 200);
            assert!(
                matches!(&answer.failure, Some(Failure::InvalidRequest(why)) if why.contains("too small"))
            );
        }
        // A list of a file's blocks is all it needs.
        let (map, _) = ask(&retriever, &media, &request(path("/large"), Operation::Map));
        let ranges = map.iter().filter_map(|got| match got {
            Got::Extent(_, len, offset) => {
                Some(nearside_near_data::BlockRange { offset: *offset, len: len.next_multiple_of(512) })
            }
            _ => None,
        });
        let blocks = Target::Blocks { size: text.len() as u64, ranges: ranges.collect() };
        let (got, answer) = ask(&retriever, &media, &request(blocks, program(&ends)));
        assert_eq!(answer.failure, None);
        assert_eq!(emitted(&got), [b"99\n", b"000", b"99\n"]);
    }
}

#[test]
fn of_a_tree_each_file_has_a_run_of_its_own() {
    let Some(dir) = needs::folder("of_a_tree_each_file_has_a_run_of_its_own", &["mke2fs"]) else { return };
    for nr in 0..300 {
        fs::write(dir.path().join(format!("{nr:03}")), vec![b'x'; nr]).unwrap();
    }
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-m", "0"]));
    let retriever = Retriever::new(Config::default());
    // Counts rows in memory that begins with zeros each time; of files of 100 to 109 bytes none is wanted.
    let counts = program(
        r#"(block $end (loop $on
               (local.set $n (call $row))
               (br_if $end (i32.eqz (local.get $n)))
               (i32.store8 (i32.const 99) (i32.add (i32.load8_u (i32.const 99)) (i32.const 1)))
               (br $on)))
           (if (i64.eq (i64.div_u (call $size) (i64.const 10)) (i64.const 10)) (then (unreachable)))
           (call $emit (i32.const 99) (i32.const 1))"#,
    );
    for limit in [1 << 20, 600] {
        let (got, answer, _) = ask_in_parts(&retriever, &media, &request(tree("/"), counts.clone()), limit);
        assert_eq!(answer.failure, None);
        let expected = (0..300usize).filter(|nr| nr / 10 != 10).map(|nr| vec![nr.div_ceil(10) as u8]);
        assert_eq!(emitted(&got), expected.collect::<Vec<_>>(), "{limit}");
        let failed: Vec<&String> = got
            .iter()
            .filter_map(|got| match got {
                Got::Failed(path, Failure::ProgramFailed(why)) if why.contains("unreachable") => Some(path),
                _ => None,
            })
            .collect();
        assert_eq!(
            failed,
            (100..110).map(|nr| format!("/{nr}")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_program_in_the_volume_is_read_as_its_user_may() {
    let test = "a_program_in_the_volume_is_read_as_its_user_may";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    let size = "(i64.store (i32.const 0) (call $size)) (call $emit (i32.const 0) (i32.const 8))";
    fs::write(dir.path().join("size.wasm"), code(size)).unwrap();
    fs::write(dir.path().join("text"), "twelve bytes").unwrap();
    fs::write(dir.path().join("long"), vec![0; (256 << 10) + 1]).unwrap();
    fs::create_dir(dir.path().join("private")).unwrap();
    fs::write(dir.path().join("private/size.wasm"), code(size)).unwrap();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(dir.path().join("private"), closed).unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4"]));
    let retriever = Retriever::new(Config { allow_unrecovered: true, ..Config::default() });
    let run = |stored: &str, uid: u32| {
        let code = Code::Stored(stored.as_bytes().to_vec());
        let options = ProgramOptions { code, ..ProgramOptions::default() };
        let request = request(path("/text"), Operation::Program(Box::new(options)));
        let credentials = Credentials { uid, gid: uid, groups: vec![] };
        ask(&retriever, &media, &Request { credentials, ..request })
    };
    let (got, answer) = run("/size.wasm", 4242);
    assert_eq!((emitted(&got), answer.failure), (vec![12u64.to_le_bytes().to_vec()], None));
    assert_eq!(emitted(&run("/private/size.wasm", 0).0).len(), 1);
    for (stored, uid, said) in [
        ("/private/size.wasm", 4242, "/private/size.wasm: it cannot be read: permission denied"),
        ("/nowhere", 0, "/nowhere: it cannot be read: no such file"),
        ("/private", 0, "is a directory"),
        ("/text", 0, "not a WebAssembly module"),
        ("/long", 0, "at most 262144"),
    ] {
        let (got, answer) = run(stored, uid);
        let why = match answer.failure {
            Some(Failure::InvalidRequest(why)) => why,
            other => panic!("{stored}: {other:?}"),
        };
        assert!(why.starts_with("the program") && why.contains(said), "{why}");
        assert!(emitted(&got).is_empty());
    }
}

/// However long a program goes on, others have their turn.
#[test]
fn a_program_is_run_in_slices() {
    let Some(dir) = needs::folder("a_program_is_run_in_slices", &["mke2fs"]) else { return };
    fs::write(dir.path().join("file"), "something").unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let fuel = 10_000_000;
    let code = Code::Given(code("(loop $on (br $on))"));
    let options = ProgramOptions { code, fuel, ..ProgramOptions::default() };
    let request = request(path("/file"), Operation::Program(Box::new(options)));
    let before = media.yields().0;
    let (_, answer) = ask(&retriever, &media, &request);
    assert!(
        matches!(&answer.failure, Some(Failure::ProgramFailed(why)) if why.contains("fuel")),
        "{:?}",
        answer.failure
    );
    assert!(media.yields().0 - before >= fuel / 50_000, "{} yields", media.yields().0 - before);
}

/// Rules of YARA see each file as a whole, whatever it is made of.
#[test]
fn rules_are_matched_against_whole_files() {
    let Some(dir) = needs::folder("rules_are_matched_against_whole_files", &TOOLS) else { return };
    let mut large = vec![b'-'; 3 << 20];
    large[65_533..65_539].copy_from_slice(b"needle");
    fs::write(dir.path().join("large"), &large).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    let holes = fs::File::create(dir.path().join("holes")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, b"needle", 5_000_000).unwrap();
    let text = r#"rule found { strings: $a = "needle" condition: $a }
                  rule last : tag { strings: $a = "needle" condition: $a at filesize - 6 }
                  rule nothing { condition: filesize == 0 }"#;
    nearside_yara::install();
    nearside_wasm::install();
    let rules = |code: Code, parameters: &[u8]| {
        let options = ProgramOptions {
            language: Language::Yara,
            code,
            parameters: parameters.to_vec(),
            fuel: 60_000_000_000,
        };
        Operation::Program(Box::new(options))
    };
    fs::write(dir.path().join("rules.yar"), text).unwrap();
    let lines = |got: &[Got]| -> Vec<String> {
        emitted(got).into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    };
    let rule = |name: &str, tags: &str| {
        format!(r#"{{"meta":[],"namespace":"default","rule":"{name}","tags":[{tags}]}}"#)
    };
    let place = |at: u64| format!(r#"{{"data":"bmVlZGxl","length":6,"offset":{at},"string":"$a"}}"#);
    let (found, last) = (rule("found", ""), rule("last", "\"tag\""));
    let [ext, f2fs] = volumes(dir.path());
    fs::File::create(dir.path().join("huge")).unwrap().set_len(129 << 20).unwrap();
    let with_huge = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4"]));
    for media in [ext, f2fs] {
        let retriever = Retriever::new(Config::default());
        let given = || Code::Given(text.as_bytes().to_vec());
        for (name, said) in [
            ("large", vec![found.clone(), place(65_533)]),
            ("holes", vec![found.clone(), place(5_000_000), last.clone(), place(5_000_000)]),
            ("empty", vec![rule("nothing", "")]),
        ] {
            for code in [given(), Code::Stored(b"/rules.yar".to_vec())] {
                let request = request(path(&format!("/{name}")), rules(code, b"strings"));
                let (got, answer) = ask(&retriever, &media, &request);
                assert_eq!((lines(&got), answer.failure), (said.clone(), None), "{name}");
                let (got, ..) = ask_in_parts(&retriever, &media, &request, 330);
                assert_eq!(lines(&got), said, "{name}");
            }
        }
        // Neither is what the other is.
        let (_, answer) =
            ask(&retriever, &media, &request(path("/empty"), rules(Code::Given(code("")), b"")));
        assert!(matches!(&answer.failure, Some(Failure::InvalidRequest(why)) if why.contains("line 1:")));
        let (got, _) = ask(&retriever, &media, &request(path("/empty"), program("")));
        assert!(emitted(&got).is_empty());
    }
    let huge = request(path("/huge"), rules(Code::Given(text.as_bytes().to_vec()), b""));
    let (_, answer) = ask(&Retriever::new(Config::default()), &with_huge, &huge);
    let failure = answer.failure;
    assert!(
        matches!(&failure, Some(Failure::ProgramFailed(why)) if why.contains("at most 134217728")),
        "{failure:?}"
    );
}
