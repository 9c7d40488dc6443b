//! Programs as they should not be, and as they may be: none takes more than it is given.

use std::sync::Arc;

use nearside_ndp::program::{Begin, Engine as _, MAX_MEMORY, Program, Step};
use nearside_wasm::Engine;

const IMPORTS: &str = r#"
    (import "nearside" "next" (func $next (param i32 i32) (result i32)))
    (import "nearside" "emit" (func $emit (param i32 i32)))
    (import "nearside" "parameters" (func $parameters (param i32 i32) (result i32)))
    (import "nearside" "size" (func $size (result i64)))
    (import "nearside" "offset" (func $offset (result i64)))
    (import "nearside" "seek" (func $seek (param i64)))
    (import "nearside" "restart" (func $restart (param i64)))
    (import "nearside" "fail" (func $fail (param i32 i32)))
    (memory (export "memory") 2)"#;

/// Compiles a module of these parts behind the imports.
fn compile(parts: &str) -> Result<Arc<dyn Program>, String> {
    let text = format!("(module {IMPORTS} {parts})");
    Engine::new().unwrap().compile(&wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}")))
}

/// One with this body of `run`.
fn body(body: &str) -> Arc<dyn Program> {
    compile(&format!(r#"(func $run (export "run") (local $n i32) {body})"#)).unwrap()
}

/// What a run came to.
#[derive(Debug, Default, PartialEq)]
struct Ran {
    /// Records; where another run would emit each of them.
    emitted: Vec<Vec<u8>>,
    places: Vec<(u64, u64)>,
    failed: Option<String>,
    pauses: usize,
}

/// Runs one over a file that comes in pieces of so many bytes, beginning with a byte.
fn run_from(program: &dyn Program, file: &[u8], offset: u64, piece: usize, fuel: u64) -> Ran {
    let begin = Begin { parameters: b"told"[..].into(), size: file.len() as u64, offset, fuel };
    let mut run = program.begin(begin).unwrap();
    let mut ran = Ran::default();
    loop {
        match run.step() {
            Step::Pause => ran.pauses += 1,
            Step::Wants(at) => {
                let rest = &file[(at as usize).min(file.len())..];
                run.give(&rest[..rest.len().min(piece)]);
            }
            Step::Emitted => {
                let emitted = run.emitted().unwrap();
                ran.emitted.push(emitted.bytes.clone());
                ran.places.push((emitted.restart, emitted.nth));
                run.taken();
            }
            Step::Ended => return ran,
            Step::Failed(why) => return Ran { failed: Some(why), ..ran },
            Step::Long => panic!("all of it can be cut"),
        }
    }
}

fn run(program: &dyn Program, file: &[u8]) -> Ran {
    run_from(program, file, 0, 1000, 100_000_000)
}

/// Emits all that it reads.
const ECHO: &str = r#"(block $end (loop $on
    (local.set $n (call $next (i32.const 0) (i32.const 700)))
    (br_if $end (i32.eqz (local.get $n)))
    (call $emit (i32.const 0) (local.get $n))
    (br $on)))"#;

#[test]
fn a_program_has_the_bytes_in_order_and_says_what_it_likes() {
    let file: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let echo = body(ECHO);
    for piece in [1, 699, 701, 65536, 1 << 20] {
        let file = &file[..if piece == 1 { 3000 } else { file.len() }];
        let ran = run_from(&*echo, file, 0, piece, u64::MAX);
        assert!(ran.failed.is_none() && ran.emitted.concat() == file, "{piece}");
        assert_eq!(ran.places, (0..ran.emitted.len() as u64).map(|nth| (0, nth)).collect::<Vec<_>>());
        let ran = run_from(&*echo, file, 2999, piece, u64::MAX);
        assert_eq!(ran.emitted.concat(), file[2999..]);
    }
    assert_eq!(run(&*echo, b""), Ran::default());
    // Of what it is told it takes what there is room for, and learns how long it is.
    let told = body(
        r#"(i32.store8 (i32.const 3) (call $parameters (i32.const 0) (i32.const 3)))
           (i64.store (i32.const 4) (call $size))
           (call $emit (i32.const 0) (i32.const 6))
           (call $emit (i32.const 0) (i32.const 0))"#,
    );
    assert_eq!(run(&*told, b"12345").emitted, [b"tol\x04\x05\0".to_vec(), vec![]]);
}

#[test]
fn a_program_seeks_and_says_where_it_could_begin() {
    let file: Vec<u8> = (0..=255).collect();
    // The last three bytes, the first two; and where it was then.
    let seeks = body(
        r#"(call $seek (i64.const 253))
           (call $emit (i32.const 0) (call $next (i32.const 0) (i32.const 9)))
           (call $emit (i32.const 0) (call $next (i32.const 0) (i32.const 9)))
           (call $restart (i64.const 7))
           (call $seek (i64.const 0))
           (call $emit (i32.const 0) (call $next (i32.const 0) (i32.const 2)))
           (i64.store (i32.const 0) (call $offset))
           (call $emit (i32.const 0) (i32.const 1))
           (call $restart (i64.const 256))
           (call $emit (i32.const 0) (i32.const 0))"#,
    );
    for piece in [9, 1000] {
        let ran = run_from(&*seeks, &file, 0, piece, 1_000_000);
        assert_eq!(ran.emitted, [vec![253, 254, 255], vec![], vec![0, 1], vec![2], vec![]], "{piece}");
        assert_eq!(ran.places, [(0, 0), (0, 1), (7, 0), (7, 1), (256, 0)]);
    }
    for wrong in ["(call $seek (i64.const 257))", "(call $restart (i64.const -1))"] {
        let why = run(&*body(wrong), &file).failed.unwrap();
        assert!(why.contains("byte") && why.contains("of a file of 256"), "{why}");
    }
}

#[test]
fn what_does_not_end_by_itself_ends_with_its_fuel() {
    let forever = [
        "(loop $on (br $on))",
        // Whether or not it is given something meanwhile, or says something.
        "(loop $on (drop (call $next (i32.const 0) (i32.const 1))) (br $on))",
        "(loop $on (drop (call $next (i32.const 0) (i32.const 0))) (br $on))",
        "(loop $on (call $seek (i64.const 0)) (drop (call $next (i32.const 0) (i32.const 99))) (br $on))",
        "(loop $on (drop (call $parameters (i32.const 0) (i32.const 4))) (br $on))",
        // A call now and then gives it a slice anew, and does not keep it from the end of one.
        "(loop $on (local.set $n (i32.const 2000))
           (loop $in (br_if $in (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
           (drop (call $size)) (br $on))",
        "(loop $on (drop (call $offset)) (br $on))",
        "(loop $on (call $restart (i64.const 1)) (br $on))",
        "(loop $on (call $emit (i32.const 0) (i32.const 60000)) (br $on))",
    ];
    for text in forever {
        let fuel = 3_000_000;
        let ran = run_from(&*body(text), &[7; 5000], 0, 500, fuel);
        let why = ran.failed.unwrap();
        assert!(why.starts_with("it has used up its fuel"), "{text}: {why}");
        assert!(ran.pauses + ran.emitted.len() >= fuel as usize / 50_000, "{text}: {} pauses", ran.pauses);
        // Moving bytes costs as well.
        assert!(ran.emitted.len() <= fuel as usize / (60_000 / 16), "{text}: {}", ran.emitted.len());
    }
    let asks = run(&*body("(loop $on (drop (memory.grow (i32.const 1))) (br $on))"), b"");
    assert!(asks.failed.unwrap().contains("it asked for memory more than 1000 times"));
    let recursion = compile(r#"(func $run (export "run") (call $run))"#).unwrap();
    let why = run(&*recursion, b"").failed.unwrap();
    assert!(why.contains("stack"), "{why}");
}

#[test]
fn memory_and_tables_have_bounds() {
    let grows = body(
        r#"(loop $on (br_if $on (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
           (i32.store (i32.const 0) (memory.size))
           (call $emit (i32.const 0) (i32.const 4))"#,
    );
    let pages = (MAX_MEMORY >> 16) as u32;
    assert_eq!(run(&*grows, b"").emitted, [pages.to_le_bytes().to_vec()]);
    // All of it can be used, and then goes.
    let uses = body(
        r#"(drop (memory.grow (i32.const 254)))
           (loop $on
             (i32.store (local.get $n) (local.get $n))
             (local.set $n (i32.add (local.get $n) (i32.const 4)))
             (br_if $on (i32.lt_u (local.get $n) (i32.const 16777216))))
           (call $emit (i32.const 16777212) (i32.const 4))"#,
    );
    assert_eq!(run(&*uses, b"").emitted, [16_777_212u32.to_le_bytes().to_vec()]);
}

#[test]
fn what_goes_wrong_in_a_program_is_said() {
    let cases = [
        ("(unreachable)", "unreachable"),
        ("(drop (i32.div_u (i32.const 1) (local.get $n)))", "divide by zero"),
        ("(drop (i32.trunc_f32_s (f32.const nan)))", "integer"),
        ("(drop (i32.load (i32.const 131069)))", "out of bounds"),
        ("(drop (i32.load offset=4294967295 (i32.const -1)))", "out of bounds"),
        ("(call $emit (i32.const 131072) (i32.const 1))", "1 bytes at 131072 are not in its memory"),
        ("(call $emit (i32.const 0) (i32.const 65537))", "it emits 65537 bytes at once: at most 65536"),
        ("(call $emit (i32.const 0) (i32.const -1))", "it emits 4294967295 bytes at once"),
        ("(drop (call $next (i32.const 131000) (i32.const 73)))", "73 bytes at 131000 are not in its memory"),
        ("(drop (call $next (i32.const -1) (i32.const 1)))", "not in its memory"),
        ("(drop (call $parameters (i32.const -1) (i32.const -1)))", "not in its memory"),
        ("(call $fail (i32.const 131071) (i32.const 2))", "not in its memory"),
        (
            r#"(i32.store (i32.const 0) (i32.const 0x6948ff)) (call $fail (i32.const 0) (i32.const 3))"#,
            "\u{fffd}Hi",
        ),
    ];
    for (text, said) in cases {
        let ran = run(&*body(text), b"some");
        assert!(ran.failed.as_ref().is_some_and(|why| why.contains(said)), "{text}: {ran:?}");
    }
    let start =
        compile(r#"(func (export "run")) (func $s (call $emit (i32.const 0) (i32.const 1))) (start $s)"#);
    assert!(run(&*start.unwrap(), b"").failed.unwrap().contains("before it has begun"));
}

#[test]
fn what_is_no_program_is_refused() {
    let of = |text: &str| Engine::new().unwrap().compile(&wat::parse_str(text).unwrap()).map(drop);
    let run = r#"(memory (export "memory") 1) (func (export "run"))"#;
    let long = "(i32.const 1) (drop)".repeat(5000);
    let bodies = |count: usize| format!("(func {long})").repeat(count);
    let cases = [
        ("(module)".to_owned(), "exports no \"run\""),
        (r#"(module (func (export "run")))"#.to_owned(), "exports no \"run\" or no \"memory\""),
        (format!(r#"(module (import "env" "f" (func)) {run})"#), "env"),
        (format!(r#"(module (import "nearside" "now" (func (result i64))) {run})"#), "now"),
        (format!(r#"(module (import "nearside" "size" (func)) {run})"#), "size"),
        (format!(r#"(module (import "nearside" "m" (global i32)) {run})"#), "which is no function"),
        (r#"(module (memory (export "memory") 257) (func (export "run")))"#.to_owned(), "at most 16777216"),
        (r#"(module (memory (export "memory") i64 1) (func (export "run")))"#.to_owned(), "memory64"),
        (
            format!("(module {run} (func (memory.fill (i32.const 0) (i32.const 0) (i32.const 9))))"),
            "bulk memory",
        ),
        (
            format!(
                "(module {run} (table 9 funcref) (func (table.fill (i32.const 0) (ref.null func) (i32.const 9))))"
            ),
            "it fills a table",
        ),
        (
            format!(
                "(module {run} (table 9 funcref) (func (drop (table.grow (ref.null func) (i32.const 9)))))"
            ),
            "it fills a table",
        ),
        (format!("(module {run} (memory 1))"), "multi"),
        (format!("(module {run} (func $long {long}))"), "function long has 10001 instructions in a row"),
        (format!("(module {run} (func $g) {})", bodies(1)), "function number 2 has"),
        (format!("(module {run} (func {}))", "(local i32)".repeat(1_001)), "1001 locals"),
        (format!("(module {run} {})", "(func)".repeat(5_001)), "more than 5000 functions"),
        ("(component)".to_owned(), "a component"),
    ];
    for (text, said) in cases {
        let why = of(&text).expect_err(said);
        assert!(why.contains(said) && !why.contains('\n'), "{said}: {why}");
    }
    // With a loop or a call now and then it may be as long.
    let half = "(i32.const 1) (drop)".repeat(3000);
    assert_eq!(of(&format!("(module {run} (func $f {half} (call $f) {half} (loop) {half}))")), Ok(()));
    let engine = Engine::new().unwrap();
    for (code, said) in
        [(&b""[..], "does not begin"), (b"\x7fELF", "does not begin"), (b"\0asm", "unexpected end")]
    {
        let why = engine.compile(code).map(drop).expect_err(said);
        assert!(why.contains(said), "{why}");
    }
    assert!(engine.compile(&vec![0; (256 << 10) + 1]).map(drop).unwrap_err().contains("at most 262144"));
}

/// Each byte of a module as others: it is refused, or it runs within its fuel.
#[test]
fn changed_modules_are_refused_or_bounded() {
    let text = format!(
        r#"(module {IMPORTS}
            (table 3 funcref) (elem (i32.const 0) $run $other)
            (data (i32.const 64) "some")
            (func $other (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
            (func $run (export "run") (local $n i32) {ECHO}
                (drop (call_indirect (param i32) (result i32) (local.get $n) (i32.const 1)))))"#
    );
    let module = wat::parse_str(text).unwrap();
    let engine = Engine::new().unwrap();
    let (mut ran, mut refused) = (0, 0);
    for at in 0..module.len() {
        for with in [0, 1, 0x7f, 0x80, 0xff, module[at] ^ 1, module[at].wrapping_add(1)] {
            let mut changed = module.clone();
            changed[at] = with;
            match engine.compile(&changed) {
                Ok(program) => {
                    run_from(&*program, &[1, 2, 3], 0, 2, 100_000);
                    ran += 1;
                }
                Err(why) => {
                    assert!(!why.is_empty() && !why.contains('\n'), "{why}");
                    refused += 1;
                }
            }
        }
    }
    assert!(ran > 300 && refused > 300, "{ran} ran, {refused} were refused");
}

/// A run that is left ends, wherever it is.
#[test]
fn a_run_can_be_left_anywhere() {
    let busy = body("(drop (memory.grow (i32.const 200))) (loop $on (br $on))");
    let begin = |program: &Arc<dyn Program>| {
        program.begin(Begin { parameters: [].into(), size: 9, offset: 0, fuel: u64::MAX }).unwrap()
    };
    drop(begin(&busy));
    let mut left = begin(&busy);
    assert_eq!(left.step(), Step::Pause);
    drop(left);
    let mut waits = begin(&body(ECHO));
    while waits.step() != Step::Wants(0) {}
    // Asked again, it says the same.
    assert_eq!(waits.step(), Step::Wants(0));
    drop(waits);
    // On another thread than it began on.
    let mut moved = begin(&busy);
    assert_eq!(moved.step(), Step::Pause);
    std::thread::spawn(move || assert_eq!(moved.step(), Step::Pause)).join().unwrap();
}

/// Sixty-four at a time; where one ends, another has its place.
#[test]
fn runs_are_so_many() {
    let program = body(ECHO);
    let begin = || program.begin(Begin { parameters: [].into(), size: 9, offset: 0, fuel: 1000 });
    let mut runs: Vec<_> = (0..64).map(|_| begin().unwrap()).collect();
    assert!(begin().map(drop).unwrap_err().contains("no room for one more"));
    assert!(begin().is_err());
    runs.pop();
    runs.push(begin().unwrap());
    assert!(begin().is_err());
}
