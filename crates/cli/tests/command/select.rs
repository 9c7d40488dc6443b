//! `select` against DuckDB, by every way there is to a drive here: tables and questions of a seed
//! (`select.py`), and by pyarrow what a stream of Arrow's holds.
//! `NEARSIDE_SELECT=SEED,TABLES,QUESTIONS` asks others, and more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nearside_conformance::volume::{f2fs, must};
use nearside_conformance::{needs, volume};
use serde_json::Value;

use crate::fixture::{Ran, Volume, ext4, on, small};
use crate::network::serve;

/// Forty rows in three row groups, with checksums.
const PARQUET: &[u8] = include_bytes!("../../../../fuzz/images/parquet/dictionary-2-gzip.parquet");
const MAKE: &str = include_str!("select.py");

struct Tables {
    volume: Volume,
    f2fs: PathBuf,
    cases: Vec<Value>,
    python: PathBuf,
}

/// Python with DuckDB and pyarrow: `scripts/setup.sh test` makes it.
fn python(test: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oracles/bin/python");
    let python = std::env::var_os("NEARSIDE_ORACLES").map_or(own, PathBuf::from);
    let has = Command::new(&python).args(["-c", "import duckdb, pyarrow"]).output();
    if has.is_ok_and(|ran| ran.status.success()) {
        return Some(python);
    }
    needs::left_out(test, "no Python with DuckDB and pyarrow (scripts/setup.sh test)");
    None
}

fn make(python: PathBuf) -> Tables {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let asked = std::env::var("NEARSIDE_SELECT").unwrap_or_else(|_| "1,20,32".to_owned());
    let numbers: Vec<&str> = asked.split(',').collect();
    must(Command::new(&python).args(["-c", MAKE]).args([folder.path(), &tree]).args(numbers));
    let cases = serde_json::from_slice(&fs::read(folder.path().join("cases.json")).unwrap()).unwrap();
    let image = folder.path().join("f2fs.img");
    f2fs(&image, 64, Some(&tree), &[]);
    Tables { volume: ext4(folder, tree, 32), f2fs: image, cases, python }
}

fn tables(test: &str) -> Option<&'static Tables> {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    let python = python(test)?;
    needs::tools(test, &["mke2fs", "mkfs.f2fs", "sload.f2fs"]).then(|| TABLES.get_or_init(|| make(python)))
}

/// What is asked, as the command's words.
fn words(case: &Value) -> Vec<String> {
    let mut words = vec![format!("/{}", case["file"].as_str().unwrap())];
    for (option, name) in
        [("--where", "where"), ("--columns", "columns"), ("--group-by", "group"), ("--aggregate", "agg")]
    {
        if let Some(text) = case[name].as_str().filter(|text| !text.is_empty()) {
            words.extend([option.to_owned(), text.to_owned()]);
        }
    }
    if let Some(limit) = case["limit"].as_u64() {
        words.extend(["--limit".to_owned(), limit.to_string()]);
    }
    words
}

/// Whether two values are the same; sums of numbers in another order nearly are.
fn alike(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) || (a - b).abs() < 1e-12,
        _ => a == b,
    }
}

/// Rows of JSON lines, each as its values in the columns' order.
fn rows(ran: &Ran) -> Vec<Vec<Value>> {
    let text = ran.text();
    let header = |line: &str| -> Vec<String> {
        // In the order in which they stand.
        let object: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        let mut names: Vec<String> = object.keys().cloned().collect();
        names.sort_by_key(|name| line.find(&format!("{}:", serde_json::to_string(name).unwrap())));
        names
    };
    let Some(first) = text.lines().next() else { return Vec::new() };
    let names = header(first);
    let row = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap();
        names.iter().map(|name| object[name].clone()).collect()
    };
    text.lines().map(row).collect()
}

#[test]
fn select_answers_what_duckdb_does() {
    let Some(Tables { volume, f2fs, cases, .. }) = tables("command::select_answers_what_duckdb_does") else {
        return;
    };
    let (served, host) = (serve(&volume.image), ["--locate", "host"]);
    let (served, compute) = (Path::new(&served.drive), ["--locate", "host", "--compute", "host"]);
    let ways: [(&Path, &[&str]); 7] = [
        (&volume.image, &[]),
        (served, &[]),
        (f2fs, &[]),
        (&volume.image, &host),
        (served, &host),
        (f2fs, &compute),
        (&volume.image, &compute),
    ];
    let sorted = |rows: &[Vec<Value>]| {
        let mut rows = rows.to_vec();
        // Numbers that are nearly the same have the same place.
        let rounded = |value: &Value| value.as_f64().map_or(value.to_string(), |n| format!("{n:.4e}"));
        rows.sort_by_cached_key(|row| row.iter().map(rounded).collect::<Vec<_>>());
        rows
    };
    let mut some = 0;
    for (case, (drive, options)) in cases.iter().zip(ways.iter().cycle()) {
        let mut args = words(case);
        args.extend(["--output", "jsonl"].iter().chain(*options).map(ToString::to_string));
        let ran = on(drive, "select", &args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{drive:?} {args:?}");
        let said: Vec<Vec<Value>> =
            case["rows"].as_array().unwrap().iter().map(|row| row.as_array().unwrap().clone()).collect();
        let (mut got, mut said) = (rows(&ran), said);
        if case["ordered"] == false {
            (got, said) = (sorted(&got), sorted(&said));
        }
        let equal = got.len() == said.len()
            && got
                .iter()
                .zip(&said)
                .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)));
        let differs = got.iter().zip(&said).find(|(a, b)| !a.iter().zip(*b).all(|(a, b)| alike(a, b)));
        assert!(
            equal,
            "{drive:?} {args:?}\n{}: {} rows, not {}: {differs:?}",
            case["query"],
            got.len(),
            said.len()
        );
        some += usize::from(!said.is_empty());
    }
    assert!(some * 2 > cases.len(), "{some} of {} have an answer", cases.len());
}

/// pyarrow reads what is written, whole, with the types that were inferred.
#[test]
fn streams_are_arrows() {
    const READ: &str = "
import pyarrow as pa, sys
table = pa.ipc.open_stream(open(sys.argv[1], 'rb')).read_all()
table.validate(full=True)
print(table.num_rows, ' '.join(f'{f.name}:{f.type}' for f in table.schema))
print(table.column(0).to_pylist()[:3], table.column(2).null_count)";
    let Some(Tables { volume, python, .. }) = tables("command::streams_are_arrows") else { return };
    let mut text = "id,when,name,day,x,ok\n".to_owned();
    for n in 0..50_000 {
        let name = if n % 5 == 0 { String::new() } else { format!("\"name, {n}\"") };
        text += &format!("{n},2020-01-01 00:00:00.5,{name},2020-02-29,{n}.25,true\n");
    }
    let tree = volume.folder.path().join("wide");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("wide.csv"), text).unwrap();
    let image = volume.folder.path().join("wide.img");
    volume::ext(&image, 16, Some(&tree), &["-t", "ext4"]);
    for (args, said) in [
        (
            &["/wide.csv"][..],
            "50000 id:int64 when:timestamp[us] name:string day:date32[day] x:double ok:bool\n[0, 1, 2] 10000\n",
        ),
        (
            &["-r", "/", "--limit", "7", "--columns", "id,ok,name"],
            "7 id:int64 ok:bool name:string\n[0, 1, 2] 2\n",
        ),
    ] {
        let ran = on(&image, "select", &[args, &["--output", "arrow"]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        let file = volume.folder.path().join("stream.arrow");
        fs::write(&file, &ran.out).unwrap();
        let read = must(Command::new(python).args(["-c", READ]).arg(&file));
        assert_eq!(String::from_utf8_lossy(&read.stdout), said, "{args:?}");
    }
}

fn put(volume: &Volume, name: &str, bytes: &[u8]) {
    let path = volume.tree.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A volume of small tables, good ones and others.
fn tables_of_all_kinds(test: &str) -> Option<Volume> {
    small(test)?;
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("ext4.img"));
    let volume = Volume { folder, tree, image };
    put(&volume, "good.csv", b"id,city,price\n1,Bern,2.5\n2,,3\n3,\"a, b\",\n");
    let mut bad = "id,n\n".to_owned();
    (0..2000).for_each(|n| bad += &if n == 1500 { "x,1\n".to_owned() } else { format!("{n},1\n") });
    put(&volume, "bad.csv", bad.as_bytes());
    put(&volume, "ragged.csv", b"a,b\n1,2\n3\n4,5\n");
    put(&volume, "bytes.csv", b"a,b\n1,\xff\n2,x\n");
    put(&volume, "wide.csv", &[&b"a,b\n1,"[..], &[b'x'; 200_000], b"\n"].concat());
    put(&volume, "empty.csv", b"");
    put(&volume, "names.csv", b"id,city\n");
    put(&volume, "bare.csv", b"1;x\n2;y\n");
    put(&volume, "large.csv", b"n\n9223372036854775807\n1\n");
    put(&volume, "mark.csv", b"\xef\xbb\xbfid,b\n7,8\n");
    let many: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    put(&volume, "many.csv", format!("n\n{many}").as_bytes());
    let long = format!("{{\"a\": 5, \"t\": \"{}\"}}\n", "y".repeat(60_000));
    put(&volume, "log/a.jsonl", format!("{{\"a\": 1}}\n\n{long}").as_bytes());
    put(&volume, "log/b.jsonl", b"{\"a\": 2, \"o\": {\"x\": [1]}}\n{\"a\": \n{\"a\": 3}\n");
    put(&volume, "log/deep.jsonl", &[&[b'['; 100_000][..], b"\n"].concat());
    put(&volume, "private.csv", b"a\n1\n");
    put(&volume, "good.parquet", PARQUET);
    put(&volume, "types.parquet", include_bytes!("../../../../fuzz/images/parquet/types.parquet"));
    put(&volume, "private.parquet", PARQUET);
    put(&volume, "text.parquet", b"id,city\n1,Bern\n");
    put(&volume, "empty.parquet", b"");
    put(&volume, "cut.parquet", &PARQUET[..PARQUET.len() - 100]);
    // A page of the third row group's, of which the checksum is another then.
    let mut damaged = PARQUET.to_vec();
    let at = damaged.windows(4).position(|bytes| bytes == [0x1f, 0x8b, 8, 0]).unwrap();
    damaged[at + 12] ^= 1;
    put(&volume, "damaged.parquet", &damaged);
    for name in ["private.csv", "private.parquet"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(volume.tree.join(name), mode).unwrap();
    }
    volume::ext(&volume.image, 16, Some(&volume.tree), &["-t", "ext4"]);
    Some(volume)
}

#[test]
fn what_is_no_such_table_is_refused_by_file_row_and_column() {
    let test = "command::what_is_no_such_table_is_refused_by_file_row_and_column";
    let Some(volume) = tables_of_all_kinds(test) else { return };
    for (args, says) in [
        (&["/bad.csv"][..], "/bad.csv: Corrupt file: row 1501 (byte 9395), column id: \"x\" is no int64"),
        (&["/ragged.csv"], "/ragged.csv: Corrupt file: row 2 (byte 8): 1 fields, and not 2"),
        (&["/bytes.csv"], "row 1 (byte 4), column b: \"\u{fffd}\" is no utf8"),
        (&["/wide.csv"], "row 1 (byte 4): longer than 128 KiB"),
        (&["/empty.csv"], "/empty.csv: Not such a table: there is no row of names"),
        (&["/good.csv", "--where", "town = 'x'"], "there is no column \"town\" (there are: id, city, price)"),
        (&["/good.csv", "--where", "city > 5"], "city (utf8) and 5 (int64) cannot be compared"),
        (&["/good.csv", "--where", "price"], "the condition is neither true nor false: price (float64)"),
        (&["/good.csv", "--where", "id ~ 'x'"], "id (int64) is no text"),
        (&["/good.csv", "--aggregate", "sum(city)"], "sum(city): utf8 is no number"),
        (&["/good.csv", "--where", "city ~ '('"], "unclosed group"),
        (&["/good.csv", "--where", "city ="], "--where: a column or a value is wanted here, not the end"),
        (&["/good.csv", "--schema", "city int64"], "row 1 (byte 14), column city: \"Bern\" is no int64"),
        (&["/large.csv", "--aggregate", "sum(n)"], "a sum overflows int64: 9223372036854775808"),
        (&["/many.csv", "--group-by", "n", "--aggregate", "count(*)"], "too many groups: more than 16384"),
        (&["/log/b.jsonl"], "/log/b.jsonl: Corrupt file: row 2 (byte 26): EOF while parsing a value"),
        (&["/log/deep.jsonl"], "row 1 (byte 0): invalid type: sequence, expected an object"),
        (&["/private.csv", "--as", "4242:4242"], "/private.csv: Permission denied"),
        (&["/nowhere.csv"], "/nowhere.csv: No such file"),
        (&["/private.parquet", "--as", "4242:4242"], "/private.parquet: Permission denied"),
        (&["/text.parquet"], "/text.parquet: Not such a table: no Parquet: it does not end in PAR1"),
        (&["/empty.parquet"], "/empty.parquet: Not such a table: no Parquet: it has less than 12 bytes"),
        (&["/cut.parquet"], "/cut.parquet: Not such a table: no Parquet"),
        (&["/good.csv", "--format", "parquet"], "/good.csv: Not such a table: no Parquet"),
        (
            &["/types.parquet"],
            "/types.parquet: Not such a table: column price is decimal(9,2), which is read where",
        ),
        (&["/types.parquet", "--columns", "tags"], "/types.parquet: Not such a table: column tags is nested"),
        (&["/types.parquet", "--columns", "u"], "row 3, column u: \"18446744073709551615\" is no int64"),
        (
            &["/good.parquet", "--where", "town = 'x'"],
            "there is no column \"town\" (there are: id, city, x, ok",
        ),
        (&["/good.parquet", "--where", "id = 'x'"], "id (int64) and \"x\" (utf8) cannot be compared"),
        (
            &["/damaged.parquet"],
            "/damaged.parquet: Corrupt file: row group 1, column id: its checksum is another",
        ),
        (&["/good.csv", "--delimiter", "ab"], "one ASCII character is wanted"),
    ] {
        let ran = volume.run("select", args);
        assert!(ran.code != 0 && ran.err.contains(says), "{args:?}: {} {}", ran.code, ran.err);
    }
    let skipped = volume.run("select", &["/bad.csv", "--skip-bad", "--aggregate", "count(*), max(id)"]);
    assert_eq!((skipped.code, skipped.text().as_str()), (0, "count(*),max(id)\n1999,1999\n"));
    assert!(skipped.err.contains("passed over 1 rows that are not as the others"), "{}", skipped.err);
}

#[test]
fn forms_of_files_and_of_answers() {
    let Some(volume) = tables_of_all_kinds("command::forms_of_files_and_of_answers") else { return };
    for (args, says) in [
        (&["/good.csv"][..], "id,city,price\n1,Bern,2.5\n2,,3.0\n3,\"a, b\",\n"),
        (
            &["/good.csv", "--output", "table"],
            "id  city  price\n--  ----  -----\n 1  Bern    2.5\n 2  null    3.0\n 3  a, b  null\n",
        ),
        (
            &["/good.csv", "--output", "json", "--columns", "price,id", "--limit", "2"],
            "[{\"price\":2.5,\"id\":1},\n {\"price\":3.0,\"id\":2}]\n",
        ),
        (&["/names.csv"], "id,city\n"),
        (
            &["/names.csv", "--aggregate", "count(*), sum(id)", "--schema", "id int64", "--output", "jsonl"],
            "{\"count(*)\":0,\"sum(id)\":null}\n",
        ),
        (&["/bare.csv", "--no-header", "--delimiter", ";"], "column_1,column_2\n1,x\n2,y\n"),
        (
            &[
                "/bare.csv",
                "--no-header",
                "--delimiter",
                ";",
                "--schema",
                "a utf8, b utf8",
                "--where",
                "a = '2'",
            ],
            "a,b\n2,y\n",
        ),
        (&["/mark.csv", "--where", "id = 7"], "id,b\n7,8\n"),
        (&["/log/a.jsonl", "--columns", "a", "--where", "t is not null"], "a\n5\n"),
        (
            &["/log/b.jsonl", "--skip-bad", "--output", "jsonl"],
            "{\"a\":2,\"o\":\"{\\\"x\\\":[1]}\"}\n{\"a\":3,\"o\":null}\n",
        ),
        (
            &[
                "-r",
                "/log",
                "--include",
                "[ab].jsonl",
                "--format",
                "jsonl",
                "--skip-bad",
                "--aggregate",
                "count(*), avg(a)",
            ],
            "count(*),avg(a)\n4,2.75\n",
        ),
        (&["-r", "/", "--include", "good.csv", "--group-by", "city", "--limit", "1"], "city\nBern\n"),
        (
            &["/good.parquet", "--where", "id > 16 and x is null", "--columns", "day,id,\"when\""],
            "day,id,when\n2020-01-18,17,2020-01-01 00:00:17\n2020-01-25,24,\n2020-02-01,31,2020-01-01 00:00:31\n2020-02-08,38,2020-01-01 00:00:38\n",
        ),
        (
            &["-r", "/", "--include", "good.*t", "--format", "parquet", "--aggregate", "count(*), sum(id)"],
            "count(*),sum(id)\n40,780\n",
        ),
    ] {
        for way in [&[][..], &["--locate", "host", "--compute", "host"]] {
            let ran = volume.run("select", &[args, way].concat());
            assert_eq!((ran.code, ran.text().as_str()), (0, says), "{args:?} {way:?}: {}", ran.err);
        }
    }
}
