//! `yara` beside Debian's, over the same files: by every way there is to a drive here.

use std::fs;
use std::path::Path;
use std::process::Command;

use nearside_conformance::needs;
use nearside_random::Random;
use serde_json::json;

use crate::fixture::{Ran, Volume, ext4, nearside, on, ways};
use crate::network::{serve, serve_with};

/// Rules with what rules have, and some that are never met.
const RULES: &str = r#"
import "math"
import "hash"
import "elf"
import "pe"
private rule hidden { condition: true }
rule text : words tag_a { meta: author = "x\ty\"z'\\" level = 12 on = true strings: $a = "needle" $b = "hay" nocase condition: any of them }
rule broad : tag_a { strings: $a = "needle" wide ascii fullword condition: #a > 1 and hidden }
rule hex { strings: $h = { 6e 65 ?? 64 [1-4] 65 } condition: $h in (0..filesize) }
rule regex { strings: $r = /h[ae]y+(stack)?/ condition: @r[1] > 3 }
rule xored { strings: $x = "needle" xor(1-255) condition: $x }
rule coded { strings: $b = "needle in hay" base64 condition: $b }
rule entropy { condition: math.entropy(0, filesize) > 5.0 }
rule sum { condition: hash.md5(0, filesize) == "d41d8cd98f00b204e9800998ecf8427e" or hash.crc32(0, filesize) & 1 == 1 }
rule program { condition: elf.type == elf.ET_DYN or elf.type == elf.ET_EXEC }
rule windows { condition: pe.is_pe and pe.number_of_sections > 0 }
rule loops { strings: $a = "needle" condition: for all i in (1..#a): (uint8(@a[i] + 5) == 0x65) and #a > 0 }
rule several { condition: 2 of (text, broad, hex, regex) }
rule never { strings: $a = "no such thing at all" condition: $a }
global rule small { condition: filesize < 4MB }
"#;

/// Files of pieces that the rules are about, some folders deep; and a program of this machine.
fn fill(tree: &Path, random: &mut Random) {
    let pieces: [&[u8]; 14] = [
        b"needle",
        b"NEEDLE",
        b"hay",
        b"Hay",
        b"haystack",
        b"heyy",
        b"n\0e\0e\0d\0l\0e\0",
        b" ",
        b"\n",
        b"need\x01\x02e",
        b"\x2f\x24\x24\x25\x2d\x24",
        b"bmVlZGxlIGluIGhheQ",
        b"\x7fELF\x02\x01",
        b"MZ",
    ];
    for n in 0..80 {
        let folder = tree.join(["", "a", "a/b", "c"][n % 4]);
        fs::create_dir_all(&folder).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..random.below(60) {
            match random.below(3) {
                0 => bytes.extend((0..random.below(200)).map(|_| random.below(256) as u8)),
                _ => bytes.extend_from_slice(pieces[random.below(pieces.len() as u64) as usize]),
            }
        }
        fs::write(folder.join(format!("{n}.bin")), bytes).unwrap();
    }
    fs::copy("/bin/true", tree.join("true")).unwrap();
    // Of these rules tell nothing of what they are matched against.
    fs::write(tree.join("own.yar"), "rule one { condition: n == 1 }").unwrap();
    fs::write(tree.join("including.yar"), "include \"/own.yar\"").unwrap();
}

/// A volume, and the rules beside it; `None`: it cannot be made here.
fn files(test: &str) -> Option<(Volume, String)> {
    let folder = needs::folder(test, &["yara", "mke2fs"])?;
    let tree = folder.path().join("tree");
    fill(&tree, &mut Random::new(20));
    let volume = ext4(folder, tree, 64);
    let rules = volume.folder.path().join("rules.yar");
    fs::write(&rules, RULES).unwrap();
    Some((volume, rules.to_str().unwrap().to_owned()))
}

/// Lines of a rule each, with those of its strings behind it, in an order of their own.
fn sorted(text: &str, root: &str) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    for line in text.lines() {
        match rules.last_mut() {
            Some(rule) if line.starts_with("0x") => *rule += &format!("\n{line}"),
            // Debian's has a blank there.
            _ => rules.push(line.replace(root, "").replace("level =12", "level=12")),
        }
    }
    rules.sort();
    rules
}

fn others(words: &[&str], rules: &str, tree: &Path) -> Vec<String> {
    let ran = Command::new("yara").args(words).arg("-w").arg(rules).arg(tree).output().unwrap();
    let (out, err) =
        (String::from_utf8(ran.stdout).unwrap(), String::from_utf8_lossy(&ran.stderr).into_owned());
    assert!(ran.status.success() && err.is_empty(), "{err}");
    sorted(&out, tree.to_str().unwrap())
}

#[test]
fn rules_match_what_yaras_own_match() {
    let test = "command::rules_match_what_yaras_own_match";
    let Some((volume, rules)) = files(test) else { return };
    let store = format!("file:{}", volume.image.display());
    let served = serve_with(&["--read-only", "--trust", "--rules", "--store", &store]);
    // Hex strings are shown by Debian's as numbers: how long they are is the same.
    for words in [
        &["-r"][..],
        &["-rgme"],
        &["-rL"],
        &["-rLg"],
        &["-rc"],
        &["-r", "-t", "words"],
        &["-rs", "-i", "text"],
    ] {
        let theirs = others(words, &rules, &volume.tree);
        assert!(theirs.len() > 10, "{words:?}: {theirs:?}");
        for (drive, how) in ways(&volume.image, Path::new(&served.drive)) {
            let ours = on(drive, "yara", &[words, &[&*rules, "/"], how].concat()).good();
            assert_eq!(sorted(&ours, ""), theirs, "{words:?} {how:?}");
        }
    }
    // Of one file, in the order of the rules; but those that are global come first.
    let file = volume.tree.join("a/1.bin");
    let theirs = Command::new("yara").args(["-w", &rules]).arg(file).output().unwrap().stdout;
    let theirs = String::from_utf8(theirs).unwrap().replace(volume.tree.to_str().unwrap(), "");
    let (global, rest): (Vec<&str>, Vec<&str>) = theirs.lines().partition(|line| line.starts_with("small "));
    let ours = volume.run("yara", &[&rules, "/a/1.bin"]).good();
    assert_eq!(ours.lines().collect::<Vec<_>>(), [global, rest].concat());
    let count = volume.run("yara", &["-c", &rules, "/a/1.bin"]).good();
    assert_eq!(count, format!("{}\n", theirs.lines().count()));
}

#[test]
fn a_rule_and_its_strings_as_json() {
    let Some((volume, _)) = files("command::a_rule_and_its_strings_as_json") else { return };
    let rules = volume.folder.path().join("one.yar");
    fs::write(&rules, "rule elf : program { meta: n = 1 strings: $a = { 7f 45 4c 46 } condition: $a at 0 }")
        .unwrap();
    let rules = rules.to_str().unwrap();
    let lines = volume.run("yara", &["-s", rules, "/true", "--json"]).json();
    let path = json!({ "text": "/true" });
    assert_eq!(
        lines[..2],
        [
            json!({ "type": "rule", "path": path, "rule": "elf", "namespace": "default", "tags": ["program"], "meta": [["n", 1]] }),
            json!({ "type": "string", "path": path, "string": "$a", "offset": 0, "length": 4, "data": "f0VMRg==" }),
        ]
    );
    let lines = volume.run("yara", &["-c", rules, "/true", "/1.bin", "--json"]).json();
    let counts: Vec<_> =
        lines.iter().filter(|line| line["type"] == "count").map(|line| &line["rules"]).collect();
    assert_eq!(counts, [1]);
}

#[test]
fn rules_include_others_and_know_external_variables() {
    let test = "command::rules_include_others_and_know_external_variables";
    let Some((volume, _)) = files(test) else { return };
    let beside = volume.folder.path();
    fs::create_dir_all(beside.join("more/deep")).unwrap();
    let main = [
        r#"include "rules.yar" // include "nowhere.yar""#,
        r#"/* include "nowhere.yar" */ include "more/own.yar""#,
        r#"rule last { meta: m = "include \"nowhere.yar\"" strings: $r = /include "nowhere.yar"|needle/"#,
        "  condition: $r and own }",
    ];
    let main = main.join("\n");
    fs::write(beside.join("main.yar"), main).unwrap();
    fs::write(
        beside.join("more/own.yar"),
        "include \"deep/inner.yar\"\nrule own { condition: inner or level > 8 }",
    )
    .unwrap();
    let inner = "rule inner { condition: owner == \"ops=1\" and ratio < 0.5 and on and level == 7 }";
    fs::write(beside.join("more/deep/inner.yar"), inner).unwrap();
    let main = beside.join("main.yar").to_str().unwrap().to_owned();
    let store = format!("file:{}", volume.image.display());
    let served = serve_with(&["--read-only", "--trust", "--rules", "--store", &store]);
    for [level, owner] in
        [["level=7", "owner=ops=1"], ["level=-7", "owner=ops=1"], ["level=9", "owner=1.2.3"]]
    {
        let defined = |word: &'static str| {
            ["ratio=0.25", "on=true", level, owner]
                .into_iter()
                .flat_map(move |one| [word, one])
                .collect::<Vec<_>>()
        };
        let theirs = others(&[&["-r"][..], &defined("-d")].concat(), &main, &volume.tree);
        assert!(theirs.len() > 10, "{theirs:?}");
        for (drive, how) in ways(&volume.image, Path::new(&served.drive)) {
            let words = [&["-r"][..], &defined("--define"), &[&*main, "/"], how].concat();
            assert_eq!(sorted(&on(drive, "yara", &words).good(), ""), theirs, "{level} {how:?}");
        }
    }
    // From the volume, the same rules are compiled anew for other values.
    let (drive, words) = (Path::new(&served.drive), ["--stored", "/own.yar", "/true"]);
    for (value, names) in [("1", "one /true\n"), ("2", ""), ("1", "one /true\n")] {
        let defined = format!("n={value}");
        assert_eq!(on(drive, "yara", &[&words[..], &["--define", &defined]].concat()).good(), names);
    }
    let ran = on(drive, "yara", &words);
    assert!(ran.code == 2 && ran.err.contains("unknown identifier \"n\""), "{}", ran.err);
    let ran = on(drive, "yara", &["--stored", "/including.yar", "/true"]);
    assert!(ran.code == 2 && ran.err.contains("line 1:") && ran.err.contains("include"), "{}", ran.err);
}

#[test]
fn variables_have_the_types_that_yaras_have() {
    let Some((volume, _)) = files("command::variables_have_the_types_that_yaras_have") else { return };
    let (rules, file) = (volume.folder.path().join("typed.yar"), volume.tree.join("true"));
    let path = rules.to_str().unwrap();
    let values = [
        "7", "-7", "007", "+7", "0", "-0", "7.", "-7.5", "0.0", ".5", "-.5", "1e5", "0x10", "true", "false",
        "True", "", "-", ".", "1.2.3", "a=b", "\u{e4}",
    ];
    let conditions = ["x", "not x", "x > -7", "x + 1 == 2", "x < 0.75", "x contains \"\"", "x % 2 == 1"];
    let mut seen = [0; 3];
    for (value, condition) in values.iter().flat_map(|value| conditions.map(|one| (value, one))) {
        fs::write(&rules, format!("rule typed {{ condition: {condition} }}")).unwrap();
        let defined = format!("x={value}");
        let theirs =
            Command::new("yara").args(["-w", "-d", &defined]).args([&rules, &file]).output().unwrap();
        let ours = volume.run("yara", &["--define", &defined, path, "/true"]);
        let (answer, code) = match (theirs.status.success(), theirs.stdout.is_empty()) {
            (true, false) => (0, 0),
            (true, true) => (1, 0),
            (false, _) => (2, 2),
        };
        seen[answer] += 1;
        assert_eq!(
            (ours.code, ours.out.is_empty()),
            (code, answer > 0),
            "{defined} {condition} {}",
            ours.err
        );
    }
    assert!(seen.iter().all(|&n| n > 20), "{seen:?}");
}

#[test]
fn what_is_wrong_with_an_include_or_a_variable_is_said() {
    let test = "command::what_is_wrong_with_an_include_or_a_variable_is_said";
    let Some((volume, rules)) = files(test) else { return };
    let beside = volume.folder.path();
    fs::create_dir(beside.join("more")).unwrap();
    let file = |name: &str, text: &str| {
        fs::write(beside.join(name), text).unwrap();
        beside.join(name).to_str().unwrap().to_owned()
    };
    file("twice.yar", "\nrule a { condition: true }");
    file("wrong.yar", "rule a { condition: true }\n\n  rule b { condition: foo }");
    file("circle.yar", "include \"more/../around.yar\"");
    for depth in 0..17 {
        file(&format!("deep{depth}.yar"), &format!("include \"deep{}.yar\"", depth + 1));
    }
    file("deep17.yar", "rule bottom { condition: true }");
    // As deep as yara's may be.
    let deep = beside.join("deep2.yar").to_str().unwrap().to_owned();
    assert_eq!(volume.run("yara", &[&deep, "/true"]).good(), "bottom /true\n");
    assert_eq!(others(&[], &deep, &volume.tree.join("true")), ["bottom "]);
    file("text.yar", "true");
    for (text, said) in [
        ("\ninclude \"wrong.yar\"", "wrong.yar:3:"),
        ("rule c { condition: true }\ninclude \"deep17.yar\" rule d { condition: bar }", "around.yar:2:"),
        ("include \"circle.yar\"", "circle.yar:1: include"),
        ("include \"none.yar\"", "none.yar\": No such file or directory"),
        ("include \"more\"", "more\": Is a directory"),
        ("\n\ninclude \"deep2.yar\"", "deep16.yar:1: include"),
        ("rule a {\n condition: include \"text.yar\" }", "around.yar:2:21: error: syntax error"),
        ("rule a { condition: true }\ninclude \"twice.yar\"", "twice.yar:2:6: error: rule `a` is already"),
    ] {
        let around = file("around.yar", text);
        let ran = volume.run("yara", &[&around, "/true"]);
        assert!(ran.code == 2 && ran.err.contains(said), "{said}: {}", ran.err);
        assert!(
            !Command::new("yara").arg(&around).arg("/bin/true").output().unwrap().status.success(),
            "{said}"
        );
    }
    // Yara's takes any bytes.
    fs::write(beside.join("bytes.yar"), b"// \xc3\xa4\n// \xff").unwrap();
    for (name, said) in [("bytes.yar", "bytes.yar:2: no UTF-8"), ("/dev/zero", "no regular file")] {
        let ran = volume.run("yara", &[&file("around.yar", &format!("include {name:?}")), "/true"]);
        assert!(ran.code == 2 && ran.err.contains(said), "{said}: {}", ran.err);
    }
    let long = format!("n={}", "x".repeat(70_000));
    let noise: String = (0..60_000).map(|n: u64| char::from(b'a' + (n * n / 7 % 26) as u8)).collect();
    let noise = format!("n={noise}");
    let mut random = Random::new(8);
    let large: String = (0..100_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    let large = file("large.yar", &format!("// {large}\nrule a {{ condition: true }}"));
    assert_eq!(volume.run("yara", &[&large, "/true"]).good(), "a /true\n");
    let ran = volume.run("yara", &[&large, "/true", "--define", &noise]);
    assert!(ran.code == 2 && ran.err.contains("large.yar: ") && ran.err.contains("--stored"), "{}", ran.err);
    for (defined, said) in [
        (&["n"][..], "NAME=VALUE"),
        (&[&long], "at most 65536"),
        (&["n-a=1"], "n-a"),
        (&["n=99999999999999999999"], "no integer of 64 bits"),
        (&["n=1", "n=2"], "n: defined twice"),
    ] {
        let words: Vec<&str> =
            defined.iter().flat_map(|one| ["--define", one]).chain([&*rules, "/true"]).collect();
        let ran = volume.run("yara", &words);
        assert!(ran.code == 2 && ran.err.contains(said), "{said}: {}", ran.err);
    }
}

#[test]
fn what_is_wrong_with_rules_is_said() {
    let Some((volume, rules)) = files("command::what_is_wrong_with_rules_is_said") else { return };
    let beside = volume.folder.path();
    let file = |name: &str, text: &[u8]| {
        fs::write(beside.join(name), text).unwrap();
        beside.join(name).to_str().unwrap().to_owned()
    };
    let unknown = file("unknown.yar", b"rule a {\n condition: foo }");
    let slow =
        file("slow.yar", b"rule slow { condition: for all i in (0..10000000000): (uint8(i % 7) >= 0) }");
    let mut random = Random::new(7);
    let noise: String = (0..200_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    let large = file("large.yar", format!("// {noise}\nrule a {{ condition: true }}").as_bytes());
    let cases: [(&[&str], i32, &str); 8] = [
        (&[&unknown, "/true"], 2, "unknown.yar:2:13:"),
        (
            &[&slow, "/true", "-a", "1"],
            1,
            "/true: The program failed: to match the rules takes longer than 1s",
        ),
        (&[&large, "/true"], 2, "--stored"),
        (&["nowhere.yar", "/true"], 2, "nowhere.yar: No such file"),
        (&["/dev/zero", "/true"], 2, "/dev/zero: more than 4194304 bytes"),
        (&[&rules, "/nowhere"], 1, "/nowhere: No such file"),
        (&["--stored", "/nowhere.yar", "/true"], 2, "/nowhere.yar: it cannot be read"),
        (&[&rules, "/true", "-a", "0"], 2, "invalid value"),
    ];
    for (words, code, said) in cases {
        let ran = volume.run("yara", words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{words:?}: {}", ran.err);
    }
    // A server matches none unless its operator says so, also where it runs programs.
    let store = format!("file:{}", volume.image.display());
    for served in
        [serve(&volume.image), serve_with(&["--read-only", "--trust", "--programs", "--store", &store])]
    {
        let ran = on(Path::new(&served.drive), "yara", &[&rules, "/true"]);
        assert!(ran.code == 1 && ran.err.contains("no rules") && ran.err.contains("--rules"), "{}", ran.err);
    }
    let help = Ran::from(nearside().args(["yara", "--help"]).output().unwrap()).good();
    assert!(help.contains("128 MiB"));
}
