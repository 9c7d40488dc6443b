//! The program: beside DuckDB, its forms, and what it refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearside_conformance::help::examples_are_whole;
use nearside_conformance::needs;
use nearside_conformance::volume::{install, must};
use serde_json::Value;

use crate::fixture::{Volume, ext4, run};

/// Tables, questions and DuckDB's answers, by a seed: those of `nearside select`.
const MAKE: &str = include_str!("../../../cli/tests/command/select.py");

/// A case as SQL, of the table's name in the volume.
fn query(case: &Value) -> String {
    let word = |name: &str| case[name].as_str().filter(|text| !text.is_empty());
    let file = case["file"].as_str().unwrap();
    let function = match file.rsplit('.').next().unwrap() {
        "jsonl" => "json",
        other => other,
    };
    let grouped = word("agg").map(|made| match word("group") {
        Some(by) => format!("{by}, {made}"),
        None => made.to_owned(),
    });
    let list = grouped.or(word("columns").map(str::to_owned)).unwrap_or_else(|| "*".into());
    let mut query = format!("select {list} from {function}('/{file}')");
    if let Some(condition) = word("where") {
        query += &format!(" where {condition}");
    }
    if let Some(by) = word("group") {
        query += &format!(" group by {by}");
    }
    if let Some(limit) = case["limit"].as_u64() {
        query += &format!(" limit {limit}");
    }
    query
}

/// Values of JSON lines in the order in which they stand, as texts; numbers to eleven digits.
fn rows(text: &str) -> Vec<Vec<String>> {
    let value = |value: &Value| match value.as_f64() {
        Some(number) => format!("{number:.10e}"),
        None => value.to_string(),
    };
    let row = |line: &str| {
        let object: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        let place = |name: &String| line.find(&format!("{}:", serde_json::to_string(name).unwrap()));
        let mut fields: Vec<_> = object.iter().collect();
        fields.sort_by_key(|(name, _)| place(name));
        fields.into_iter().map(|(_, one)| value(one)).collect()
    };
    text.lines().map(row).collect()
}

/// Python with what a test needs, from what `scripts/setup.sh test` makes.
fn python(test: &str, needs: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oracles/bin/python");
    let python = std::env::var_os("NEARSIDE_ORACLES").map_or(own, PathBuf::from);
    let has = Command::new(&python).args(["-c", &format!("import {needs}")]).output();
    if has.is_ok_and(|ran| ran.status.success()) {
        return Some(python);
    }
    needs::left_out(test, &format!("no Python with {needs} (scripts/setup.sh test)"));
    None
}

/// `NEARSIDE_SELECT=SEED,TABLES,QUESTIONS` asks others, and more.
#[test]
fn answers_are_duckdbs() {
    let test = "sql::answers_are_duckdbs";
    let Some(python) = python(test, "duckdb, pyarrow") else { return };
    if !needs::tools(test, &["mke2fs"]) {
        return;
    }
    let made = tempfile::tempdir().unwrap();
    let volume = ext4(|tree| {
        let asked = std::env::var("NEARSIDE_SELECT").unwrap_or_else(|_| "3,10,12".to_owned());
        must(Command::new(&python).args(["-c", MAKE]).args([made.path(), tree]).args(asked.split(',')));
    });
    let cases: Vec<Value> =
        serde_json::from_slice(&fs::read(made.path().join("cases.json")).unwrap()).unwrap();
    let mut some = 0;
    for (nth, case) in cases.iter().enumerate() {
        let query = query(case);
        let mut args = vec!["-d", volume.image.to_str().unwrap(), &query, "--output", "jsonl"];
        if nth % 4 == 3 {
            args.push("--no-push-down");
        }
        let (code, out, err) = run(&args);
        assert_eq!((code, err.as_str()), (0, ""), "{query}");
        let said = case["rows"].as_array().unwrap().iter();
        let said = said.map(|row| serde_json::Value::Array(row.as_array().unwrap().clone()));
        let number = |value: &Value| match value.as_f64() {
            Some(number) => format!("{number:.10e}"),
            None => value.to_string(),
        };
        let mut said: Vec<Vec<String>> =
            said.map(|row| row.as_array().unwrap().iter().map(number).collect()).collect();
        let mut got = rows(&out);
        // No order was asked for; a limit takes which rows it likes.
        if case["limit"].is_u64() {
            assert_eq!(got.len(), said.len(), "{query}");
            continue;
        }
        got.sort();
        said.sort();
        let differs = got.iter().zip(&said).find(|(a, b)| a != b);
        assert!(
            got == said,
            "{query}\n{}: {differs:?}, {} rows, not {}",
            case["query"],
            got.len(),
            said.len()
        );
        some += usize::from(!said.is_empty());
    }
    assert!(some * 2 > cases.len(), "{some} of {} have an answer", cases.len());
}

/// Files of Parquet whose columns have the same names and other types, and one that nobody can read.
#[test]
fn files_of_other_types_are_named_and_left_out() {
    const MAKE: &str = "
import pyarrow as pa, pyarrow.parquet as pq, sys
def write(name, **columns): pq.write_table(pa.table(columns), f'{sys.argv[1]}/{name}.parquet')
write('a', id=[1, 2], n=pa.array([1, 2], pa.int64()), l=[[1], [2]])
write('b', id=[3, 4], n=pa.array([1.5, 1.7], pa.float64()), l=[[1], [2]])
write('c', id=[5], n=pa.array(['7']), l=[[1]])
";
    let test = "sql::files_of_other_types_are_named_and_left_out";
    let Some(python) = python(test, "pyarrow") else { return };
    if !needs::tools(test, &["mke2fs"]) {
        return;
    }
    let volume = ext4(|tree| {
        must(Command::new(&python).args(["-c", MAKE]).arg(tree));
    });
    let image = volume.image.to_str().unwrap();
    let (code, _, err) = run(&["-d", image, "select id from parquet('/a.parquet')"]);
    assert!(code == 2 && err.contains("column l"), "{err}");
    for push_down in [&[][..], &["--no-push-down"]] {
        for (query, said) in [
            ("select sum(n) s from parquet('/*.parquet', 'columns=id,n')", "s\n3\n"),
            ("select count(n) s from parquet('/*.parquet', 'columns=id,n')", "s\n2\n"),
            ("select id s from parquet('/*.parquet', 'columns=id,n') where n > 1", "s\n2\n"),
            (
                "select n s, count(*) c from parquet('/*.parquet', 'columns=id,n') group by n order by n",
                "s,c\n1,1\n2,1\n",
            ),
        ] {
            let (code, out, err) = run(&[&["-d", image, query], push_down].concat());
            assert_eq!((code, out.as_str()), (1, said), "{query}: {err}");
            assert!(err.contains("/b.parquet") && err.contains("/c.parquet"), "{query}: {err}");
        }
    }
}

fn small(test: &str) -> Option<Volume> {
    needs::tools(test, &["mke2fs"]).then(|| {
        ext4(|tree| {
            fs::write(
                tree.join("trips.csv"),
                "city,price,day\nBern,1.5,2020-02-29\nBasel,,2020-03-01\n\"\",2,\n",
            )
            .unwrap();
            fs::write(tree.join("bad.csv"), "n\n1\nx\n").unwrap();
            fs::write(tree.join("semi.txt"), "1;a\n2;b\n").unwrap();
            fs::write(tree.join("drive.csv"), "drive\nD\n").unwrap();
        })
    })
}

#[test]
fn an_answer_has_the_forms_of_a_selection() {
    let Some(volume) = small("sql::an_answer_has_the_forms_of_a_selection") else { return };
    let image = volume.image.to_str().unwrap();
    let good = |args: &[&str]| {
        let (code, out, err) = run(&[&["-d", image], args].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        out
    };
    let query = "select city, price, day from csv('/trips.csv') order by price nulls last";
    assert_eq!(good(&[query]), "city,price,day\nBern,1.5,2020-02-29\n,2.0,\nBasel,,2020-03-01\n");
    let table = good(&[query, "--output", "table"]);
    assert!(
        table.starts_with("city   price  day\n-----  -----  ----------\nBern     1.5  2020-02-29\n"),
        "{table}"
    );
    assert_eq!(
        good(&["select city, price from csv('/trips.csv') where price < 2", "--output", "json"]),
        "[{\"city\":\"Bern\",\"price\":1.5}]\n"
    );
    assert_eq!(
        good(&["select count(*) as n from csv('/trips.csv')", "--json"]),
        "{\"type\":\"row\",\"values\":{\"n\":3}}\n"
    );
    assert_eq!(good(&["select city from csv('/trips.csv') where price > 5"]), "city\n");
    // Of types that drives do not have.
    assert_eq!(
        good(&[
            "select cast(price as decimal(9, 3)) d, arrow_typeof(price) t, cast(1 as tinyint) i, interval '1 day' v \
            from csv('/trips.csv') where city = 'Bern'"
        ]),
        "d,t,i,v\n1.500,Float64,1,1 days\n"
    );
    let swapped = "select column_2, column_1 from csv('/semi.txt', 'no-header', 'delimiter=;', 'columns=column_2,column_1')";
    assert_eq!(good(&[swapped]), "column_2,column_1\na,1\nb,2\n");
    let one =
        "select * from csv('/semi.txt', 'no-header', 'delimiter=;', 'columns=column_2') where column_2 = 'b'";
    assert_eq!(good(&[one]), "column_2\nb\n");
    assert_eq!(good(&["select null as x", "--output", "json"]), "[{\"x\":null}]\n");
    let window =
        "select row_number() over (order by price) n, interval '1 day' s from csv('/trips.csv') limit 1";
    assert_eq!(good(&[window, "--output", "jsonl"]), "{\"n\":1,\"s\":\"1 days\"}\n");
    let arrow = run(&["-d", image, query, "--output", "arrow"]);
    assert_eq!(arrow.0, 0);
    assert_eq!(
        good(&["select column_2 from csv('/semi.txt', 'no-header', 'delimiter=;') where column_1 = 2"]),
        "column_2\nb\n"
    );
    assert_eq!(
        good(&[
            "select k from csv('/semi.txt', 'no-header', 'delimiter=;', 'schema=n utf8, k utf8') where n = '2'"
        ]),
        "k\nb\n"
    );
    let bad = run(&["-d", image, "select sum(n) s from csv('/bad.csv', 'skip-bad', 'schema=n int64')"]);
    let said = "nearside: warning: passed over 1 rows that are not as the others\n".to_owned();
    assert_eq!(bad, (0, "s\n1\n".to_owned(), said));
    let plan = good(&["explain select count(*) from csv('/trips.csv') where price > 1", "--output", "table"]);
    assert!(
        plan.contains("physical_plan:\n  ") && plan.contains("    InDrive: drives=1, csv /trips.csv"),
        "{plan}"
    );
    assert!(good(&["show tables"]).contains("files"));
    let mut piped = Command::new(env!("CARGO_BIN_EXE_nearside-sql"));
    piped.args(["-d", image, "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"select count(*) c from csv('/trips.csv')")
        .unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"c\n3\n");
}

#[test]
fn what_cannot_be_answered_is_said() {
    let Some(volume) = small("sql::what_cannot_be_answered_is_said") else { return };
    let image = volume.image.to_str().unwrap();
    let host = volume.folder.path().join("host.csv");
    fs::write(&host, "a\n1\n").unwrap();
    let (host, copy) = (host.to_str().unwrap(), volume.folder.path().join("copy.csv"));
    for (query, code, said) in [
        ("select city from csv('/none.csv')".to_owned(), 2, "/none.csv: no such file"),
        ("select city from csv('trips.csv')".to_owned(), 2, "trips.csv: not an absolute path"),
        (
            "select city from csv('/trips.csv', 'colour=red')".to_owned(),
            2,
            "\"colour=red\" is no option of it",
        ),
        ("select town from csv('/trips.csv')".to_owned(), 2, "No field named town"),
        ("select from where".to_owned(), 2, "nearside: "),
        ("select sum(n) from csv('/bad.csv', 'schema=n int64')".to_owned(), 1, "/bad.csv: "),
        ("select n from csv('/bad.csv', 'schema=n int64')".to_owned(), 1, "row 2"),
        // Nothing of this host is read or written.
        (format!("create external table t stored as csv location '{host}'"), 2, "DDL not supported"),
        (format!("copy (select 1) to '{}' stored as csv", copy.display()), 2, "DML not supported"),
        ("set datafusion.execution.batch_size = 1".to_owned(), 2, "Statement not supported"),
        (format!("select * from '{host}'"), 2, "not found"),
        ("insert into files select * from files".to_owned(), 2, "DML not supported"),
    ] {
        let (got, out, err) = run(&["-d", image, &query]);
        assert!(got == code && err.contains(said), "{query}: {got} {out:?} {err:?}");
    }
    assert!(!copy.exists());
    let (code, _, err) = run(&["-d", "/no/image", "select 1 from files"]);
    assert!(code == 2 && err.contains("/no/image"), "{err}");
    let (code, _, err) = run(&["-d", image, "-d", image, "select 1"]);
    assert!(code == 2 && err.contains("named twice"), "{err}");
    let (code, _, err) = run(&["-d", image, "--locate", "host", "select 1"]);
    assert!(code == 2 && err.contains("not of this command"), "{err}");
    let again = volume.folder.path().join("again.img");
    fs::copy(&volume.image, &again).unwrap();
    let (code, _, err) =
        run(&["-d", image, "-d", again.to_str().unwrap(), "select 1 from csv('/drive.csv')"]);
    assert!(code == 2 && err.contains("a column drive"), "{err}");
    let (code, out, _) = run(&["--help"]);
    assert!(code == 0 && out.contains("Examples:") && out.contains("nearside sql -d disk.img"), "{out}");
    examples_are_whole(env!("CARGO_BIN_EXE_nearside-sql"), "  nearside sql -d ");
}

/// Tables alone are built without the program (the package for Python has them so), which no build of the
/// workspace shows.
#[test]
fn only_the_program_knows_the_command() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut looked_at = 0;
    for file in source.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        if !["main.rs", "program"].iter().any(|program| file.ends_with(program)) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("nearside_cli") && !text.contains("clap"), "{}", file.display());
            looked_at += 1;
        }
    }
    assert!(looked_at > 8);
}

/// A folder is the images in it, by their names' ends.
#[test]
fn a_folder_is_all_images_in_it() {
    let Some(volume) = small("sql::a_folder_is_all_images_in_it") else { return };
    let folder = volume.folder.path().join("images");
    fs::create_dir(&folder).unwrap();
    fs::create_dir(folder.join("none.img")).unwrap();
    let named = folder.to_str().unwrap();
    let query = "select drive, count(*) from csv('/trips.csv') group by drive order by drive";
    let (code, _, err) = run(&["-d", named, query]);
    assert!(code == 2 && err.contains("no image in this folder"), "{err}");
    for name in ["b.raw", "a.img", "notes.txt", "img"] {
        fs::copy(&volume.image, folder.join(name)).unwrap();
    }
    let (code, out, err) = run(&["-d", named, query]);
    assert_eq!((code, &*err), (0, ""));
    let drives: Vec<_> = out.lines().skip(1).map(|line| line.split_once(',').unwrap().0).collect();
    assert_eq!(drives, [format!("{named}/a.img"), format!("{named}/b.raw")]);
    // One that is named by itself as well is one drive.
    assert_eq!(run(&["-d", named, "-d", &format!("{named}/a.img"), query]), (0, out, String::new()));
    // A folder's name may be another's beginning: as paths, those of its images begin otherwise.
    for like in ["file:y", "lvm:y", "unix:y"] {
        let folder = volume.folder.path().join(like);
        fs::create_dir(&folder).unwrap();
        for name in ["one.img", "two.img"] {
            fs::copy(&volume.image, folder.join(name)).unwrap();
        }
        let mut program = Command::new(env!("CARGO_BIN_EXE_nearside-sql"));
        program.current_dir(volume.folder.path()).args(["-d", like, query]);
        let out = program.output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(
            said.lines().nth(1).is_some_and(|line| line.starts_with(&format!("./{like}/one.img,"))),
            "{like}: {said}"
        );
    }
}

/// The examples of the help, of docs/SQL.md and of README.md, by a shell.
#[test]
fn examples_are_run() {
    if !needs::tools("sql::examples_are_run", &["mke2fs"]) {
        return;
    }
    let volume = ext4(|tree| {
        for folder in ["var/log", "var/data", "usr/share"] {
            fs::create_dir_all(tree.join(folder)).unwrap();
        }
        fs::write(tree.join("var/log/syslog"), "ERROR one\nfine\n").unwrap();
        fs::write(tree.join("usr/share/a"), "a").unwrap();
        fs::write(tree.join("var/data/trips.csv"), "id,city,price\n1,Bern,11.5\n2,Chur,3\n").unwrap();
        fs::write(tree.join("var/data/t.csv"), "id,City,price\n1,Bern,2\n").unwrap();
        fs::write(
            tree.join("var/data/trips.parquet"),
            include_bytes!("../../../cli/tests/command/trips.parquet"),
        )
        .unwrap();
    });
    let folder = volume.folder.path();
    fs::create_dir(folder.join("images")).unwrap();
    for copy in ["other.img", "images/a.img", "images/b.img"] {
        fs::copy(&volume.image, folder.join(copy)).unwrap();
    }
    fs::write(folder.join("report.sql"), "select count(*) from files").unwrap();
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    // The command finds the program on the path.
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nearside-sql"), bin.join("nearside-sql")).unwrap();
    let written = folder.join("script");
    fs::write(&written, "#!/bin/sh\nshift\nexec nearside-sql \"$@\"\n").unwrap();
    install(&written, &bin.join("nearside"));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Those of the help as they were written: on a narrow terminal they are wrapped.
    let mut text = include_str!("../../src/main.rs").replace("\\\"", "\"");
    for page in ["README.md", "docs/SQL.md"] {
        text += &fs::read_to_string(root.join(page)).unwrap();
    }
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| line.starts_with("nearside sql -d ")).collect();
    assert!(lines.len() > 12, "{lines:?}");
    for line in lines {
        let ran =
            Command::new("sh").args(["-ec", line]).current_dir(folder).env("PATH", &path).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.is_empty(), "{line}: {said}");
        assert!(!ran.stdout.is_empty() || line.contains('>'), "{line}");
    }
}
