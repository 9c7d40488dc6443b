//! `gather` and `nearest` against NumPy, by every way there is to a drive here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nearside_conformance::needs;
use serde_json::{Value, json};

use crate::fixture::{Ran, Volume, ext4, nearside, on, ways};
use crate::network::serve;

/// Tables of several kinds, and what NumPy answers, in a folder. Sums are NumPy's own, row after row in
/// single precision. What is nearest is found by sums in double precision, over whole numbers, so that they
/// are exact.
const MAKE: &str = r#"
import json, numpy as np, sys
folder, tree = sys.argv[1:]
rng = np.random.default_rng(5)
rows, columns = 3000, 37
bags = [[int(i) for i in rng.integers(0, rows, n)] for n in (80, 1, 0, 7, 200)]
weights = [[round(float(w), 3) for w in rng.random(len(bag))] for bag in bags]
query = [int(n) for n in rng.integers(-9, 9, columns)]
whole = rng.integers(-60, 60, (rows, columns))
real = rng.standard_normal((rows, columns))
real[7, 0] = -0.0
brain = (real.astype('<f4').view('<u4') >> 16).astype('<u2')
tables = {
    'f4': ('npy', real.astype('<f4')), 'f2': ('npy', real.astype('<f2')), 'i1': ('npy', whole.astype('|i1')),
    'V2': ('npy', brain.view('|V2')), 'f16': ('raw', real.astype('<f2')), 'f32': ('raw', real.astype('<f4')),
    'bf16': ('raw', brain), 'int8': ('raw', whole.astype('|i1')), 'w4': ('npy', whole.astype('<f4')),
    'w2': ('npy', whole.astype('<f2')),
}
found = {'query': query, 'bags': bags, 'weights': weights, 'tables': {}}
for name, (form, table) in tables.items():
    if form == 'npy':
        np.save(f'{tree}/{name}.npy', table)
    else:
        table.tofile(f'{tree}/{name}')
    one = (brain.astype('<u4') << 16).view('<f4') if name in ('V2', 'bf16') else table.astype('<f4')
    scale = np.float32(0.25 if name == 'int8' else 1)
    one = one * scale
    pooled = {'sum': [one[b].sum(axis=0) for b in bags],
              'mean': [one[b].mean(axis=0) if b else np.zeros(columns, '<f4') for b in bags],
              'weighted': [(one[b] * np.array(w, '<f4')[:, None]).sum(axis=0) for b, w in zip(bags, weights)],
              'none': one[sum(bags, [])]}
    said = {pool: [[float(n) for n in row] for row in some] for pool, some in pooled.items()}
    if name in ('i1', 'int8', 'w4', 'w2'):
        wide = one.astype('f8')
        for measure, score in (('ip', -(wide @ query)), ('l2', ((wide - query) ** 2).sum(axis=1))):
            first = np.argsort(score, kind='stable')[:50]
            said[measure] = [[int(i), float(abs(score[i]) if measure == 'l2' else -score[i])] for i in first]
    found['tables'][name] = said
np.save(f'{tree}/big.npy', real.astype('>f4'))
np.save(f'{tree}/flat.npy', real.astype('<f4').ravel())
np.save(f'{tree}/turned.npy', np.asfortranarray(real.astype('<f4')))
np.save(f'{tree}/fields.npy', np.zeros(3, dtype=[('a', '<f4')]))
json.dump(found, open(f'{folder}/found.json', 'w'))
"#;

struct Tables {
    volume: Volume,
    found: Value,
}

fn make(python: &Path) -> Tables {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let made = Command::new(python).args(["-c", MAKE]).args([folder.path(), &tree]).output().unwrap();
    Ran::from(made).good();
    fs::write(tree.join("text.npy"), "no table\n").unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    fs::write(tree.join("private"), [0; 8]).unwrap();
    fs::set_permissions(tree.join("private"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let found = serde_json::from_slice(&fs::read(folder.path().join("found.json")).unwrap()).unwrap();
    Tables { volume: ext4(folder, tree, 32), found }
}

/// `None` where NumPy is missing, which leaves `test` out.
fn tables(test: &str) -> Option<&'static Tables> {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    // The system's own, for which there is a package.
    let python = PathBuf::from("/usr/bin/python3");
    let numpy = Command::new(&python).args(["-c", "import numpy"]).output();
    if !numpy.is_ok_and(|ran| ran.status.success()) {
        needs::left_out(test, "no NumPy for /usr/bin/python3");
        return None;
    }
    needs::tools(test, &["mke2fs"]).then(|| TABLES.get_or_init(|| make(&python)))
}

/// The name of a table's file, and what has to be said of it.
fn named(name: &str) -> (String, Vec<&str>) {
    match name {
        "f32" | "f16" | "bf16" => (format!("/{name}"), vec!["--type", name, "--columns", "37"]),
        "int8" => (format!("/{name}"), vec!["--type", name, "--columns", "37", "--scale", "0.25"]),
        _ => (format!("/{name}.npy"), vec![]),
    }
}

#[test]
fn gather_answers_what_numpy_does() {
    let Some(Tables { volume, found }) = tables("command::gather_answers_what_numpy_does") else { return };
    let served = serve(&volume.image);
    let (bags, weights) = (found["bags"].as_array().unwrap(), found["weights"].as_array().unwrap());
    let lines = |weighted: bool| -> String {
        let bag = |(bag, weights): (&Value, &Value)| -> String {
            let pairs = bag.as_array().unwrap().iter().zip(weights.as_array().unwrap());
            let words =
                pairs.map(|(row, w)| if weighted { format!("{row}:{w} ") } else { format!("{row} ") });
            words.chain(["\n".to_owned()]).collect()
        };
        bags.iter().zip(weights).map(bag).collect()
    };
    let file = |weighted: bool| {
        let file = volume.folder.path().join(format!("bags-{weighted}"));
        fs::write(&file, lines(weighted)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (plain, weighted) = (file(false), file(true));
    for (nth, (name, said)) in found["tables"].as_object().unwrap().iter().enumerate() {
        let (path, form) = named(name);
        for (drive, options) in
            ways(&volume.image, Path::new(&served.drive)).into_iter().cycle().skip(nth).take(2)
        {
            for pool in ["none", "sum", "mean", "weighted"] {
                let bags = if pool == "weighted" { &weighted } else { &plain };
                let args = [&[&path, "--json", "--pool", pool, "--bags", bags][..], &form, options].concat();
                let ran = on(drive, "gather", &args);
                assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
                let rows: Vec<Value> = ran.json().iter().map(|row| row["values"].clone()).collect();
                let equal = rows == *said[pool].as_array().unwrap();
                assert!(equal, "{drive:?} {args:?}: {} rows", rows.len());
            }
        }
    }
    // As bytes, as text and as JSON; in several commands, since all have no room in one.
    let rows: Vec<String> = (0..20_000).map(|n| (n * 7 % 3000).to_string()).collect();
    let args = [&["/f4.npy", "--raw"][..], &rows.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    let raw = volume.run("gather", &args).out;
    let table = fs::read(volume.tree.join("f4.npy")).unwrap();
    let row = |n: usize| &table[table.len() - (3000 - n * 7 % 3000) * 148..][..148];
    assert!(raw.len() == 20_000 * 148 && raw.chunks(148).enumerate().all(|(n, got)| got == row(n)));
    let two = volume.run("gather", &["/int8", "--type", "int8", "--columns", "2", "--pool", "sum", "0", "1"]);
    let bytes = fs::read(volume.tree.join("int8")).unwrap();
    let sum = |n: usize| bytes[n].cast_signed() as i32 + bytes[n + 2].cast_signed() as i32;
    assert_eq!(two.good(), format!("{} {}\n", sum(0), sum(1)));
    let json = volume.run("gather", &["/w4.npy", "--json", "9", "4"]).json();
    assert_eq!(
        (&json[1]["type"], &json[1]["row"], &json[1]["path"]["text"]),
        (&json!("row"), &json!(4), &json!("/w4.npy"))
    );
}

#[test]
fn nearest_answers_what_numpy_does() {
    let Some(Tables { volume, found }) = tables("command::nearest_answers_what_numpy_does") else { return };
    let served = serve(&volume.image);
    let query: Vec<String> = found["query"].as_array().unwrap().iter().map(Value::to_string).collect();
    let query = query.join(",");
    let mut asked = 0;
    for (name, said) in found["tables"].as_object().unwrap() {
        let (path, form) = named(name);
        for (measure, said) in ["ip", "l2"].iter().filter_map(|m| Some((*m, said.get(m)?))) {
            for (drive, options) in ways(&volume.image, Path::new(&served.drive)) {
                let words = [&path, "--json", "--query", &query, "-k", "50", "--measure", measure];
                let args = [&words[..], &form, options].concat();
                let ran = on(drive, "nearest", &args);
                assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
                let near: Vec<Value> =
                    ran.json().iter().map(|near| json!([near["row"], near["score"]])).collect();
                assert_eq!(near, *said.as_array().unwrap(), "{drive:?} {args:?}");
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 40);
    // A query from standard input, all files below a directory, and those that are no such tables.
    let mut run = nearside();
    run.args(["nearest", "-r", "/", "--query-file", "/dev/stdin", "-k", "1", "-d"]).arg(&volume.image);
    let file = volume.folder.path().join("query");
    fs::write(&file, query.replace(',', "\n")).unwrap();
    let ran = Ran::from(run.stdin(fs::File::open(file).unwrap()).output().unwrap());
    let first = &found["tables"]["w4"]["ip"][0];
    assert!(
        ran.text().contains(&format!("/w4.npy: {} {}\n", first[0], first[1].as_f64().unwrap())),
        "{}",
        ran.text()
    );
    assert_eq!((ran.code, ran.text().lines().count()), (0, 6), "{}", ran.text());
    // The first of them is named, and the others are counted.
    let said: Vec<&str> = ran.err.lines().collect();
    assert!(said.len() == 2 && said[0].contains(": Not such a table: "), "{}", ran.err);
    assert!(said[1].contains("passed over ") && said[1].contains("that are no such tables"), "{}", ran.err);
    let none = volume.run("nearest", &["-r", "/text.npy", "--query", "1"]);
    assert_eq!((none.code, none.err.lines().count()), (1, 1), "{}", none.err);
}

#[test]
fn what_is_no_table_is_refused() {
    let Some(Tables { volume, .. }) = tables("command::what_is_no_table_is_refused") else { return };
    for (args, says) in [
        (&["gather", "/text.npy", "0"][..], "does not begin as .npy files do"),
        (&["gather", "/empty", "0"], "does not begin as .npy files do"),
        (&["gather", "/big.npy", "0"], "type \">f4\""),
        (&["gather", "/flat.npy", "0"], "two axes"),
        (&["gather", "/turned.npy", "0"], "fortran_order"),
        (&["gather", "/fields.npy", "0"], "fields"),
        (&["gather", "/w4.npy", "2999", "3000"], "/w4.npy: There is no row 3000: the table has 3000 rows"),
        (&["gather", "/w4.npy", "18446744073709551615"], "no row 18446744073709551615"),
        (
            &["gather", "/int8", "0", "--type", "int8", "--columns", "36"],
            "111000 bytes are not rows of 36 bytes",
        ),
        (&["gather", "/empty", "0", "--type", "int8", "--columns", "36"], "the table has 0 rows"),
        (&["nearest", "/w4.npy", "--query", "1,2"], "the query is 2 long, a row of the table 37"),
        (&["nearest", "/flat.npy", "--query", "1,2"], "two axes"),
        (&["nearest", "/nowhere", "--query", "1"], "No such file"),
        (&["nearest", "/private", "--query", "1", "--as", "4242:4242"], "Permission denied"),
        (
            &["gather", "/private", "0", "--as", "4242:4242", "--type", "int8", "--columns", "1"],
            "Permission denied",
        ),
        (&["gather", "/w4.npy", "-3"], "unexpected argument"),
        (&["gather", "/w4.npy", "x"], "\"x\" is no row's number"),
        (&["gather", "/w4.npy", "1", "--pool", "weighted"], "has no weight"),
        (&["nearest", "/w4.npy", "--query", "1,b"], "\"b\" is no number"),
        (&["nearest", "/w4.npy", "--query", "1", "-k", "0"], "invalid value"),
        (&["nearest", "/w4.npy", "--query", "1", "--type", "f32"], "--columns"),
    ] {
        let ran = volume.run(args[0], &args[1..]);
        assert!(ran.code != 0 && ran.out.is_empty(), "{args:?}");
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    }
}
