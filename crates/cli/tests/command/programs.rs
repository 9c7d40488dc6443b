//! `run`: the example programs against what others make of the same files, by every way there is to a drive
//! here; and what a user is told of programs that are none.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use nearside_conformance::needs;
use nearside_conformance::programs::program;
use serde_json::{Value, json};

use crate::fixture::{Ran, Volume, ext4, nearside, on, ways};
use crate::network::{serve, serve_with};

/// Files, and what others make of them.
const MAKE: &str = r#"
import json, re, sys
import numpy as np
folder, tree = sys.argv[1:]
rng = np.random.default_rng(11)
found = {}

lines = []
for nr in range(20000):
    status = int(rng.choice([200, 200, 200, 301, 404, 500, 503]))
    path = '/' + ''.join(rng.choice(list('abc"\\\x01\u00e9')) for _ in range(int(rng.integers(0, 30))))
    lines.append(f'10.0.0.{nr % 200} - - [27/Nov/2026:12:00:{nr % 60:02} +0000] "GET {path} HTTP/1.1" {status} 17')
lines += ['no such line', '', 'h i u [t] "r" x 1', 'h i u [t] "r"  404', 'h [t] "' + 'y' * 9000 + '" 500 1', 'last [t] "r" 999']
text = '\n'.join(lines).encode()
open(f'{tree}/access.log', 'wb').write(text)
form = re.compile(rb'[^ ]* [^[]*\[([^\]]*)\][^"]*"([^"]*)" *([0-9]{1,15})(?: |$)', re.S)
for least in (400, 500):
    said = []
    for line in text.split(b'\n'):
        host, _, rest = line.partition(b' ')
        m = form.match(line)
        if m and int(m[3]) >= least:
            said.append({'host': host.decode(), 'time': m[1].decode(), 'request': m[2].decode(), 'status': int(m[3])})
    found[f'log{least}'] = said

def bmp(picture, bits, down):
    high, wide, _ = picture.shape
    row = (wide * bits // 8 + 3) // 4 * 4
    rows = np.zeros((high, row), 'u1')
    rows[:, :wide * bits // 8] = picture[:, :, :bits // 8].reshape(high, -1)
    head = b'BM' + np.array([54 + rows.size, 0, 54, 40, wide, -high if down else high], '<i4').tobytes()
    return head + np.array([1, bits], '<u2').tobytes() + bytes(24) + rows.tobytes()

for name, (high, wide, bits, down) in {'a': (301, 517, 24, False), 'b': (64, 64, 32, True), 'c': (1, 1999, 24, False)}.items():
    picture = rng.integers(0, 256, (high, wide, 4), 'u1')
    open(f'{tree}/{name}.bmp', 'wb').write(bmp(picture, bits, down))
    for most in (64, 7):
        step = -(-max(high, wide) // most)
        small = np.array([[picture[y:y + step, x:x + step].reshape(-1, 4).astype('u4').sum(axis=0)
                           // (min(step, high - y) * min(step, wide - x))
                           for x in range(0, wide, step)] for y in range(0, high, step)], 'u1')
        whole = bytearray(bmp(small, 24, down))
        open(f'{folder}/{name}{most}.bmp', 'wb').write(whole)

rows, columns, centres = 30000, 12, 9
data = rng.integers(-50, 50, (rows, columns)).astype('<f4')
at = rng.integers(-50, 50, (centres, columns)).astype('<f4')
data.tofile(f'{tree}/points')
open(f'{folder}/centres', 'wb').write(np.array([columns, centres], '<u4').tobytes() + at.tobytes())
far = ((data[:, None, :] - at[None]) ** 2).sum(axis=2)
near = far.argmin(axis=1)
step = b''.join(data[near == nr].astype('<f8').sum(axis=0).tobytes() + np.array([(near == nr).sum()], '<u8').tobytes()
                for nr in range(centres))
open(f'{folder}/step', 'wb').write(step)
json.dump(found, open(f'{folder}/found.json', 'w'))
"#;

struct Files {
    volume: Volume,
    found: Value,
}

/// `None` where NumPy is missing, which leaves `test` out.
fn files(test: &str) -> Option<&'static Files> {
    static FILES: OnceLock<Files> = OnceLock::new();
    let python = Path::new("/usr/bin/python3");
    let numpy = Command::new(python).args(["-c", "import numpy"]).output();
    if !numpy.is_ok_and(|ran| ran.status.success()) {
        needs::left_out(test, "no NumPy for /usr/bin/python3");
        return None;
    }
    let words = program(test, "words")?;
    needs::tools(test, &["mke2fs", "wc"]).then(|| {
        FILES.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let tree = folder.path().join("tree");
            fs::create_dir_all(tree.join("docs")).unwrap();
            let made = Command::new(python).args(["-c", MAKE]).args([folder.path(), &tree]).output().unwrap();
            Ran::from(made).good();
            let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
            for page in ["README.md", "docs/SERVE.md", "docs/STUDIES.md"] {
                fs::copy(root.join(page), tree.join("docs").join(page.rsplit('/').next().unwrap())).unwrap();
            }
            fs::write(tree.join("docs/empty"), "").unwrap();
            // Each beside each: what is printed, blank, and neither.
            let some = [b'a', b' ', 0, b'\n', 0xe9, b'\x0b', b'~', 0x7f, b'\r', 0x80, b'!', b'\x0e', 0xa0, 8];
            let mixed = some.iter().flat_map(|a| some.iter().flat_map(move |b| [*a, *b, b'x', *a]));
            fs::write(tree.join("mixed"), mixed.collect::<Vec<u8>>()).unwrap();
            fs::copy(words, tree.join("words.wasm")).unwrap();
            let found = serde_json::from_slice(&fs::read(folder.path().join("found.json")).unwrap()).unwrap();
            Files { volume: ext4(folder, tree, 64), found }
        })
    })
}

/// Standard output of a run that ended well.
#[track_caller]
fn bytes(ran: Ran) -> Vec<u8> {
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    ran.out
}

#[test]
fn programs_make_of_files_what_others_make_of_them() {
    let test = "command::programs_make_of_files_what_others_make_of_them";
    let Some(Files { volume, found }) = files(test) else { return };
    let store = format!("file:{}", volume.image.display());
    let served = serve_with(&["--read-only", "--trust", "--programs", "--store", &store]);
    let beside = volume.folder.path();
    let of = |name: &str| program(test, name).unwrap().to_str().unwrap().to_owned();
    for (drive, how) in ways(&volume.image, Path::new(&served.drive)) {
        let run = |words: &[&str]| bytes(on(drive, "run", &[words, how].concat()));
        // As wc has it, in the C locale; of any bytes.
        let texts = ["docs/README.md", "docs/SERVE.md", "docs/STUDIES.md", "docs/empty", "mixed"];
        for name in texts.into_iter().chain(["words.wasm", "points"]) {
            let wc = Command::new("wc")
                .env("LC_ALL", "C")
                .arg("-lwc")
                .stdin(fs::File::open(volume.tree.join(name)).unwrap())
                .output()
                .unwrap();
            let wc = String::from_utf8(wc.stdout).unwrap();
            let ours = String::from_utf8(run(&[&of("words"), &format!("/{name}")])).unwrap();
            let numbers = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(numbers(&ours), numbers(&wc), "{name} {how:?}");
        }
        for (told, said) in [(&[][..], "log400"), (&["-p", "500"], "log500")] {
            let ours = run(&[&[&*of("log"), "/access.log"], told].concat());
            let ours = ours.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            let ours: Vec<Value> = ours.map(|line| serde_json::from_slice(line).unwrap()).collect();
            assert!(ours == *found[said].as_array().unwrap(), "{said} {how:?}");
        }
        for (name, most) in [("a", "64"), ("a", "7"), ("b", "64"), ("b", "7"), ("c", "64"), ("c", "7")] {
            let ours = run(&[&of("thumbnail"), &format!("/{name}.bmp"), "--parameters", most]);
            let others = fs::read(beside.join(format!("{name}{most}.bmp"))).unwrap();
            // Of its heads only what a reader needs.
            assert_eq!((&ours[54..], &ours[10..30]), (&others[54..], &others[10..30]), "{name} {most}");
        }
        let centres = beside.join("centres");
        let told = ["--parameters-file", centres.to_str().unwrap()];
        let ours = run(&[&[&*of("kmeans"), "/points"], &told[..]].concat());
        assert!(ours == fs::read(beside.join("step")).unwrap(), "{how:?}");
    }
}

#[test]
fn records_of_several_files_say_whose_they_are() {
    let test = "command::records_of_several_files_say_whose_they_are";
    let Some(Files { volume, .. }) = files(test) else { return };
    let words = program(test, "words").unwrap();
    let words = words.to_str().unwrap();
    let text = volume.run("run", &[words, "-r", "/docs"]).good();
    let names: Vec<&str> = text.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(names, ["/docs/README.md", "/docs/SERVE.md", "/docs/STUDIES.md", "/docs/empty"]);
    assert!(text.ends_with("/docs/empty: 0 0 0\n"));
    // One in the volume, and the answer as JSON: text where it is.
    let ran = volume.run("run", &["--stored", "/words.wasm", "/docs/empty", "/docs/SERVE.md", "--json"]);
    let lines = ran.json();
    let emitted: Vec<&Value> = lines.iter().filter(|line| line["type"] == "emitted").collect();
    assert_eq!(
        *emitted[0],
        json!({ "type": "emitted", "path": { "text": "/docs/empty" }, "text": "0 0 0\n" })
    );
    assert_eq!(emitted.len(), 2);
    let thumbnail = program(test, "thumbnail").unwrap();
    let ran = volume.run("run", &[thumbnail.to_str().unwrap(), "/a.bmp", "--json"]);
    let line = &ran.json()[0];
    assert!(line["bytes"].as_str().is_some_and(|text| text.starts_with("Qk")), "{line}");
}

#[test]
fn what_is_wrong_with_a_program_is_said() {
    let test = "command::what_is_wrong_with_a_program_is_said";
    let Some(Files { volume, .. }) = files(test) else { return };
    let of = |name: &str| program(test, name).unwrap().to_str().unwrap().to_owned();
    let beside = volume.folder.path();
    fs::write(beside.join("large.wasm"), vec![0; 200 << 10]).unwrap();
    fs::write(beside.join("text.wasm"), "(module)").unwrap();
    let (large, text) = (beside.join("large.wasm"), beside.join("text.wasm"));
    let cases: [(&[&str], i32, &str); 9] = [
        (&[&of("thumbnail"), "/access.log"], 1, "/access.log: The program failed: no BMP"),
        (&[&of("log"), "/access.log", "-p", "many"], 1, "a status is a number"),
        (&[&of("words"), "/access.log", "--fuel", "1000"], 1, "it has used up its fuel"),
        (&[&of("words"), "/nowhere"], 1, "/nowhere: No such file"),
        (&[text.to_str().unwrap(), "/access.log"], 2, "not a WebAssembly module"),
        (&[large.to_str().unwrap(), "/access.log"], 2, "--stored"),
        (&["nowhere.wasm", "/access.log"], 2, "nowhere.wasm: No such file"),
        (&["--stored", "/docs", "/access.log"], 2, "the program /docs: it cannot be read: is a directory"),
        (&[&of("words"), "/access.log", "--fuel", "0"], 2, "invalid value"),
    ];
    for (words, code, said) in cases {
        let ran = volume.run("run", words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{words:?}: {}", ran.err);
    }
    // What was emitted before the failure has come.
    let ran = volume.run("run", &[&of("words"), "-r", "/"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = volume.run("run", &[&of("thumbnail"), "/b.bmp", "/access.log", "/c.bmp"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.starts_with(b"/b.bmp: BM") && ran.out.windows(10).any(|w| w == b"/c.bmp: BM"));
    // A server runs none unless its operator says so; where the host computes, it is the host's.
    let served = serve(&volume.image);
    let words = of("words");
    let ran = on(Path::new(&served.drive), "run", &[&words, "/docs/empty"]);
    assert!(
        ran.code == 1 && ran.err.contains("runs no programs") && ran.err.contains("--programs"),
        "{}",
        ran.err
    );
    let here = ["--locate", "host", "--compute", "host"];
    let ran = on(Path::new(&served.drive), "run", &[&[&*words, "/docs/empty"], &here[..]].concat());
    assert_eq!(ran.good(), "0 0 0\n");
    let help = Ran::from(nearside().args(["run", "--help"]).output().unwrap()).good();
    assert!(help.contains("docs/PROGRAMS.md"));
}
