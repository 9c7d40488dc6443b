//! Rules, as a drive has them matched: what is said, what is refused, and what ends them.

use nearside_ndp::program::{Begin, Engine as _, Program, Step};
use nearside_near_data::{RuleParameters, Variable};
use nearside_yara::{Engine, MAX_FILE};
use std::io::Write as _;
use std::sync::Arc;

/// What they are told to have what matched said as well.
const STRINGS: &[u8] = b"strings";

fn begin(size: usize, parameters: &[u8]) -> Begin {
    Begin { parameters: parameters.into(), size: size as u64, offset: 0, fuel: 10_000_000_000 }
}

/// What rules say of bytes that are given in pieces; why they fail.
fn said(rules: &Arc<dyn Program>, file: Begin, bytes: &[u8], piece: usize) -> Result<Vec<String>, String> {
    let mut run = rules.begin(file)?;
    let (mut all, mut longs) = (Vec::new(), 0);
    loop {
        match run.step() {
            Step::Wants(at) => {
                let rest = &bytes[at as usize..];
                run.give(&rest[..piece.min(rest.len())]);
            }
            Step::Long => {
                longs += 1;
                assert!(longs == 1, "it is matched once");
                run.long();
                assert_eq!(run.memory(), 0, "the file's bytes are kept");
            }
            Step::Emitted => {
                let emitted = run.emitted().unwrap();
                assert_eq!((emitted.restart, emitted.nth), (0, all.len() as u64));
                all.push(String::from_utf8(emitted.bytes.clone()).unwrap());
                run.taken();
            }
            Step::Ended => return Ok(all),
            Step::Failed(why) => return Err(why),
            Step::Pause => panic!("nothing is cut here"),
        }
    }
}

#[test]
fn what_is_said_does_not_depend_on_pieces() {
    let text = r#"
        import "math"
        rule one : tag other { meta: author = "\"x\"" n = -3 is = true strings: $a = "needle" condition: $a }
        private rule hidden { condition: true }
        rule two { strings: $d = /ne{2}dle/ condition: hidden and math.entropy(0, filesize) > 0.5 and filesize == 1000006 or $d }
        rule three { strings: $a = "other" condition: $a }
    "#;
    let rules = Engine::default().compile(text.as_bytes()).unwrap();
    let mut bytes = vec![b'-'; 1_000_006];
    bytes[65_530..65_536].copy_from_slice(b"needle");
    bytes[500_000..750_000].fill(b'+');
    bytes[1_000_000..].copy_from_slice(b"needle");
    let named = r#"{"meta":[["author","\"x\""],["n",-3],["is",true]],"namespace":"default","rule":"one","tags":["tag","other"]}"#;
    let two = r#"{"meta":[],"namespace":"default","rule":"two","tags":[]}"#;
    for piece in [1 << 20, 65_536, 997] {
        assert_eq!(said(&rules, begin(bytes.len(), b""), &bytes, piece).unwrap(), [named, two]);
        let places = |at: usize| format!(r#"{{"data":"bmVlZGxl","length":6,"offset":{at},"string":"$a"}}"#);
        let all = said(&rules, begin(bytes.len(), STRINGS), &bytes, piece).unwrap();
        // Also of a string that the condition has no need of.
        let others = [65_530, 1_000_000].map(|at| places(at).replace("$a", "$d"));
        assert_eq!(all, [named, &places(65_530), &places(1_000_000), two, &others[0], &others[1]]);
    }
    // Where no condition has any need of them, they are looked for if they are asked for.
    let early =
        Engine::default().compile(b"rule early { strings: $a = \"dle\" condition: true or $a }").unwrap();
    assert_eq!(said(&early, begin(6, b""), b"needle", 6).unwrap().len(), 1);
    assert_eq!(said(&early, begin(6, STRINGS), b"needle", 6).unwrap().len(), 2);
    // A file that ends sooner than was said, and one that is empty.
    assert_eq!(said(&rules, begin(bytes.len() + 1, b""), &bytes, 4096).unwrap(), [named, two]);
    assert!(said(&rules, begin(0, b""), b"", 1).unwrap().is_empty());
}

#[test]
fn a_gzip_is_its_text() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(b"rule zipped { condition: true }").unwrap();
    let gzip = gzip.finish().unwrap();
    let rules = Engine::default().compile(&gzip).unwrap();
    assert!(said(&rules, begin(1, b""), b"x", 1).unwrap()[0].contains("zipped"));
    let why = |code: &[u8]| Engine::default().compile(code).unwrap_err();
    assert!(why(&gzip[..gzip.len() - 9]).starts_with("their gzip: "));
    // One that is a bomb is not unpacked further than rules may be long: nobody sees that it does not end.
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    (0..64).for_each(|_| bomb.write_all(&vec![b' '; 1 << 20]).unwrap());
    let bomb = bomb.finish().unwrap();
    assert_eq!(why(&bomb[..bomb.len() - 9]), "more than 4194304 bytes of text");
}

#[test]
fn a_comment_may_be_the_end() {
    let rules = Engine::default().compile(b"rule a { condition: true }//").unwrap();
    assert_eq!(said(&rules, begin(1, b""), b"x", 1).unwrap().len(), 1);
}

#[test]
fn what_is_no_rule_is_refused_with_its_place() {
    for (text, why) in [
        (&b"rule a { condition: true }\nrule b {\n  condition: foo }"[..], "line 3:"),
        (
            b"rule a { condition: true }\nrule b {\n  condition: \"\xc3\xa4\" == 1 }",
            "line 3:14: error: expressions have",
        ),
        (b"rule a { condition: ", "line 1:"),
        (b"rule a { condition: true } rule a { condition: true }", "line 1:"),
        (b"include \"/etc/passwd\"\nrule a { condition: true }", "line 1:1: error: includes are not allowed"),
        (b"import \"time\"\nrule a { condition: time.now() > 0 }", "line 1:"),
        (b"import \"console\"\nrule a { condition: console.log(\"x\") }", "line 1:"),
        (b"rule a { strings: $a = /(a/ condition: $a }", "line 1:"),
        (b"rule a { condition: \"\xff\" == \"x\" }", "no UTF-8 at byte 21"),
    ] {
        let said = Engine::default().compile(text).unwrap_err();
        assert!(said.starts_with(why) && !said.contains('\n'), "{said}");
    }
    // Depth is bounded, not the stack's end met: also where a tree that is too deep is taken apart.
    for text in [
        format!("rule a {{ condition: {}true{} }}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("rule a {{ condition: {} true }}", "not ".repeat(100_000)),
        format!("rule a {{ condition: {} 1 > 0 }}", "1 + ".repeat(100_000)),
        format!("rule a {{ condition: {} 1 > 0 }}", "~".repeat(2_000_000)),
        format!("rule a {{ strings: $a = /{}a{}/ condition: $a }}", "(".repeat(100_000), ")".repeat(100_000)),
        format!(
            "rule a {{ strings: $a = {{ {} 61 {} }} condition: $a }}",
            "( 61 | ".repeat(9_000),
            ")".repeat(9_000)
        ),
    ] {
        let refused = move || Engine::default().compile(text.as_bytes()).unwrap_err();
        assert!(std::thread::spawn(refused).join().is_ok());
    }
}

#[test]
fn external_variables_are_compiled_in() {
    let compile = |text: &str, variables: Vec<(&str, Variable)>| {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let parameters = RuleParameters { strings: true, variables }.put().unwrap();
        Engine::default().compile_with(text.as_bytes(), RuleParameters::compiled(&parameters))
    };
    let text = "rule a { condition: n == -3 and f > 0.5 and is and t contains \"a\\xff\" }";
    let all = |n| {
        let text = Variable::Text(b"xa\xff".into());
        let float = ("f", Variable::Float(0.75));
        vec![("n", Variable::Integer(n)), float, ("is", Variable::Boolean(true)), ("t", text)]
    };
    let matching = compile(text, all(-3)).unwrap();
    assert_eq!(said(&matching, begin(1, STRINGS), b"x", 1).unwrap().len(), 1);
    // A run is told its own once more, beside what it is to say.
    let told = b"strings\0in=-3";
    assert_eq!(said(&matching, begin(1, told), b"x", 1).unwrap().len(), 1);
    assert!(said(&compile(text, all(3)).unwrap(), begin(1, b""), b"x", 1).unwrap().is_empty());
    let missing = compile(text, all(-3)[1..].to_vec()).unwrap_err();
    assert!(missing.contains("unknown identifier \"n\""), "{missing}");
    // They are compiled in, and not looked at for each file.
    assert_eq!(said(&matching, begin(1, b"\0no variable"), b"x", 1).unwrap().len(), 1);
    let is = |value| vec![("is", Variable::Boolean(value))];
    let sum = compile("rule a { condition: is + 1 == 2 and is }", is(true)).unwrap();
    assert_eq!(said(&sum, begin(1, b""), b"x", 1).unwrap().len(), 1);
    let named =
        compile("rule b { condition: true } private rule is { condition: b }", is(false)).unwrap_err();
    assert_eq!(named, "rule is: an external variable has its name");
    let wrong = Engine::default().compile_with(text.as_bytes(), b"\0in=1\0in=2").unwrap_err();
    assert!(wrong.contains("n: defined twice"), "{wrong}");
}

#[test]
fn files_and_runs_are_bounded() {
    let rules = Engine::default().compile(b"rule a { condition: true }").unwrap();
    let refused = |begin: Begin| rules.begin(begin).map(|_| ()).unwrap_err();
    let mut large = begin(0, b"");
    large.size = MAX_FILE + 1;
    assert!(refused(large).contains("at most 134217728 bytes"));
    assert!(refused(Begin { offset: 1, ..begin(2, b"") }).contains("whole files"));
    assert!(refused(begin(2, b"nonsense")).contains("nonsense"));
    // Four of the largest at a time.
    let most = || Begin { size: MAX_FILE, ..begin(0, b"") };
    let four: Vec<_> = (0..4).map(|_| rules.begin(most()).unwrap()).collect();
    assert!(refused(begin(1, b"")).contains("no room"));
    drop(four);
    assert!(rules.begin(most()).is_ok());
}

#[test]
fn rules_that_take_long_are_given_up() {
    let text = "rule slow { condition: for all i in (0..100000000): (uint8(i % 7) == 97) }";
    let rules = Engine::default().compile(text.as_bytes()).unwrap();
    let file = Begin { fuel: 20_000_000, ..begin(7, b"") };
    let why = said(&rules, file, b"aaaaaaa", 7).unwrap_err();
    assert_eq!(why, "to match the rules takes longer than 20ms");
}
