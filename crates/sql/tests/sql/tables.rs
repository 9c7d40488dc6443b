//! The tables `files` and `lines`, several drives, and files that cannot be read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use nearside_conformance::needs;
use nearside_conformance::volume::must;

use crate::fixture::{Embedded, Volume, asked, batches, ext4, over, plan};

fn fill(tree: &Path) {
    for folder in ["etc", "var/log/app", "var/data", "usr/share"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    let put = |path: &str, bytes: &[u8]| fs::write(tree.join(path), bytes).unwrap();
    put("etc/passwd", b"root:x:0:0\nuser:x:1000:1000\n");
    put(
        "var/log/syslog",
        b"one error\ntwo\r\nthree ERROR\nbad \xff\xfe text\n\xe3\x81 cut\nlast without an end",
    );
    put("var/log/app/a.log", "fine\nübel error\n50% of a_b\n".as_bytes());
    put("var/log/app/b.log", b"");
    put("var/log/binary", b"error before\n\0error behind\n");
    put("var/data/x.csv", b"city,price\nBern,1.5\nBasel,2.5\nBern,3.5\n");
    put("var/data/y.csv", b"city,price\nChur,10\n");
    put("var/data/z.csv", b"name\nno\n");
    symlink("log", tree.join("var/link")).unwrap();
    symlink("/nowhere", tree.join("usr/dangling")).unwrap();
    fs::set_permissions(tree.join("etc/passwd"), fs::Permissions::from_mode(0o4640)).unwrap();
    let times =
        Command::new("touch").args(["-d", "2020-02-29 12:00:00 UTC"]).arg(tree.join("etc/passwd")).status();
    assert!(times.unwrap().success());
}

fn volume(test: &str) -> Option<Volume> {
    needs::tools(test, &["mke2fs", "find", "touch"]).then(|| ext4(fill))
}

/// What GNU find knows of the tree is what the table has of the volume.
#[test]
fn files_are_what_find_finds() {
    let Some(volume) = volume("sql::files_are_what_find_finds") else { return };
    let context = over(&[Embedded::new("", &volume.image)], true);
    let tree = volume.folder.path().join("tree");
    let form = "\"/%P\" \"%f\" \"%y\" \"%s\" \"%m\" \"%U\" \"%G\" \"%Ts\" \"%l\"\\n";
    let found =
        must(Command::new("find").arg(&tree).args(["-mindepth", "1", "-not", "-type", "d", "-printf", form]));
    let mut found: Vec<_> = String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
    found.sort();
    let query = "select path, name, case kind when 'file' then 'f' when 'link' then 'l' end, size, \
        ltrim(to_char_octal, '0'), uid, gid, seconds, coalesce(target, '') from \
        (select *, concat(mode / 512, mode / 64 % 8, mode / 8 % 8, mode % 8) to_char_octal, \
        cast(extract(epoch from modified) as bigint) seconds from files where kind <> 'directory')";
    assert_eq!(asked(&context, query), found);
    let folders =
        asked(&context, "select path from files where kind = 'directory' and path not like '%lost+found'");
    let theirs = must(Command::new("find").arg(&tree).args(["-type", "d", "-printf", "\"/%P\"\\n"]));
    let mut theirs: Vec<_> = String::from_utf8(theirs.stdout).unwrap().lines().map(str::to_owned).collect();
    theirs.sort();
    assert_eq!(folders, theirs);
}

/// A path that a condition speaks of: only what is below it is walked, and nothing is found that a walk over
/// all would not find.
#[test]
fn a_path_in_a_condition_is_where_the_walk_begins() {
    let Some(volume) = volume("sql::a_path_in_a_condition_is_where_the_walk_begins") else { return };
    let drive = [Embedded::new("", &volume.image)];
    let (pushed, plain) = (over(&drive, true), over(&drive, false));
    for (condition, below) in [
        ("path like '/var/log/%'", Some("files below /var/log")),
        ("path like '/var/lo%'", Some("files below /var")),
        ("path like '/var/log/app/a_log'", Some("files below /var/log/app")),
        ("path = '/etc/passwd'", Some("file /etc/passwd")),
        ("path like '/var/%' and path like '/var/log/app/%'", Some("files below /var/log/app")),
        ("starts_with(path, '/var/data/')", Some("files below /var/data")),
        ("path like '%/x.csv'", Some("files below /")),
        ("path ilike '/VAR/%'", Some("files below /")),
        ("path = '/var/link'", Some("file /var/link")),
        // Behind a link, and where no path of a walk is.
        ("path like '/var/link/app/%'", None),
        ("path like '/var/link/%'", None),
        ("path = '/var/link/syslog'", None),
        ("path like '/var/../etc/%'", None),
        ("path like '/var//log/%'", None),
        ("path = '/no/such'", None),
        ("path = 'etc/passwd'", None),
        ("path like '/etc/passwd/%'", None),
        ("path like '/usr/dangling/%'", None),
        ("path like ''", None),
    ] {
        for list in ["path", "*", "count(*)"] {
            let query = format!("select {list} from files where {condition}");
            let found = asked(&pushed, &query);
            assert_eq!(found, asked(&plain, &query), "{query}");
            assert_eq!(list == "path" && found.is_empty(), list == "path" && below.is_none(), "{query}");
            if let Some(below) = below {
                assert!(plan(&pushed, &query).contains(below), "{query}\n{}", plan(&pushed, &query));
            }
        }
    }
    assert!(drive[0].failed.lock().unwrap().is_empty());
}

/// Conditions of lines: what the drive finds is no less than what DataFusion does, whatever bytes a line has.
#[test]
fn lines_are_found_whatever_their_bytes() {
    let Some(volume) = volume("sql::lines_are_found_whatever_their_bytes") else { return };
    let drive = [Embedded::new("", &volume.image)];
    let (pushed, plain) = (over(&drive, true), over(&drive, false));
    for (condition, found) in [
        ("text like '%error%'", 2),
        ("text ilike '%error%'", 3),
        ("text ~ 'error$'", 2),
        ("text ~ '^bad .. text$'", 1),
        ("text ~ '^[^a-z] cut'", 1),
        ("text ~ '\u{fffd}'", 2),
        ("text like '%\u{fffd}%'", 2),
        ("text like 'bad __ text'", 1),
        ("text = 'bad \u{fffd}\u{fffd} text'", 1),
        ("text ~* 'ERROR|50%'", 4),
        ("text ~ '\\berror\\b'", 2),
        ("text ~ '\\Aone\\b.*\\z'", 1),
        ("text ~ '\\bt'", 3),
        ("text like '50\\% of a\\_b'", 1),
        ("text like 'two%'", 1),
        ("text ~ 'two$'", 0),
        ("text ~ '(?m)^t'", 2),
        ("text ~ 'x*'", 9),
        ("text like '%error%' and text like 'one%'", 1),
        ("text not like '%error%'", 7),
        ("line = 1 and path like '%/syslog'", 1),
        ("text = 'two\r'", 1),
        ("text ~ 'err[a-z]*\\r?\\n?$'", 2),
        ("text like '%a\n%'", 0),
        ("text ~ 'a\\nb|error'", 2),
        (r"text ~ '\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w'", 0),
    ] {
        let query = format!("select path, line, text from lines('/var/log/**') where {condition}");
        let ours = asked(&pushed, &query);
        assert_eq!(ours, asked(&plain, &query), "{query}\n{}", plan(&pushed, &query));
        assert_eq!(ours.len(), found, "{query}: {ours:?}");
    }
    assert!(plan(&pushed, "select text from lines('/var/log/**') where text ~ 'err.r'").contains("pattern="));
    let count = |query: &str| asked(&pushed, query);
    assert_eq!(count("select count(*) from lines('/var/log/binary')"), ["\"0\""]);
    assert_eq!(count("select count(*) from lines('/var/log/binary', 'binary')"), ["\"2\""]);
    assert_eq!(count("select count(*) from lines('/var/log/app/*.log')"), ["\"3\""]);
    assert_eq!(count("select line from lines('/var/log/**') limit 2").len(), 2);
    assert_eq!(
        count("select line from lines('/var/log/syslog') where line > 4 order by line"),
        ["\"5\"", "\"6\""]
    );
}

/// Each drive has a part of a table; who has no such file, or one of other columns, is named.
#[test]
fn several_drives_are_one_table() {
    let Some(volume) = volume("sql::several_drives_are_one_table") else { return };
    let other = ext4(|tree| {
        fs::create_dir_all(tree.join("var/data")).unwrap();
        fs::write(tree.join("var/data/x.csv"), "city,price\nBern,100\n").unwrap();
    });
    let drives = [Embedded::new("one", &volume.image), Embedded::new("two", &other.image)];
    for push_down in [true, false] {
        let context = over(&drives, push_down);
        let ask = |query: &str| asked(&context, query);
        assert_eq!(
            ask("select drive, city, sum(price) from csv('/var/data/x.csv') group by drive, city"),
            ["\"one\" \"Basel\" \"2.5\"", "\"one\" \"Bern\" \"5.0\"", "\"two\" \"Bern\" \"100.0\""]
        );
        assert_eq!(ask("select sum(price), count(*) from csv('/var/data/x.csv')"), ["\"107.5\" \"4\""]);
        assert_eq!(ask("select drive from csv('/var/data/x.csv') where price > 50"), ["\"two\""]);
        assert_eq!(ask("select count(*) from files where drive = 'two' and kind = 'file'"), ["\"1\""]);
        let failed = |nth: usize| std::mem::take(&mut *drives[nth].failed.lock().unwrap());
        assert_eq!((failed(0).len(), failed(1).len()), (0, 0));
        assert_eq!(ask("select city from csv('/var/data/y.csv')"), ["\"Chur\""]);
        assert_eq!(failed(1).into_iter().collect::<Vec<_>>(), ["/var/data/y.csv: NotFound"]);
        assert_eq!(ask("select count(*) from csv('/var/data/**')"), ["\"5\""]);
        let of_first: Vec<_> = failed(0).into_iter().collect();
        assert!(of_first.len() == 1 && of_first[0].starts_with("/var/data/z.csv: NotATable"), "{of_first:?}");
    }
    let gone = [Embedded::new("one", &volume.image), Embedded::new("gone", Path::new("/no/such/image"))];
    let context = over(&gone, true);
    let error = batches(&context, "select count(*) from files").unwrap_err();
    assert!(error.contains("/no/such/image"), "{error}");
}

/// More groups than a drive makes of a file, and a sum without room: DataFusion makes them of the rows.
#[test]
fn groups_beyond_a_drives_bounds_are_made_here() {
    if !needs::tools("sql::groups_beyond_a_drives_bounds_are_made_here", &["mke2fs"]) {
        return;
    }
    let volume = ext4(|tree| {
        let many: String = (0..40_000).map(|n| format!("{},{n}\n", n % 20_000)).collect();
        fs::write(tree.join("many.csv"), format!("k,n\n{many}")).unwrap();
        fs::write(tree.join("few.csv"), "k,n\n1,1000000\n").unwrap();
        fs::write(tree.join("large.csv"), format!("n\n{0}\n{0}\n-5\n", i64::MAX)).unwrap();
    });
    let drive = [Embedded::new("", &volume.image), Embedded::new("again", &volume.image)];
    for drives in [&drive[..1], &drive[..]] {
        let (pushed, plain) = (over(drives, true), over(drives, false));
        for query in [
            "select count(*), sum(c), max(s) from (select k, count(*) c, sum(n) s from csv('/many.csv') group by k)",
            "select count(*), sum(c), max(s) from (select k, count(*) c, sum(n) s from csv('/{many,few}.csv') group by k)",
            "select count(distinct k) from csv('/many.csv') where n > 3",
            "select sum(n), count(*), avg(n) from csv('/large.csv')",
        ] {
            assert!(plan(&pushed, query).contains("aggregate=") || query.contains("distinct"), "{query}");
            assert_eq!(asked(&pushed, query), asked(&plain, query), "{query}");
        }
        let by = "select drive, count(*) from (select drive, k, count(*) from csv('/many.csv') group by drive, k) group by drive";
        if drives.len() > 1 {
            assert_eq!(asked(&pushed, by), ["\"\" \"20000\"", "\"again\" \"20000\""]);
        }
    }
}

/// Lines that are longer than what is left of a reply, many times.
#[test]
fn long_lines_are_whole() {
    if !needs::tools("sql::long_lines_are_whole", &["mke2fs"]) {
        return;
    }
    let volume = ext4(|tree| {
        let lines: String = (0..3000).map(|n| format!("{n:06}{}\n", "x".repeat(1494))).collect();
        fs::write(tree.join("long"), lines + &"y".repeat(3 << 20)).unwrap();
    });
    let context = over(&[Embedded::new("", &volume.image)], true);
    let query =
        "select length(text), count(*), count(distinct substr(text, 1, 6)) from lines('/long') group by 1";
    assert_eq!(asked(&context, query), ["\"1500\" \"3000\" \"3000\"", "\"3145728\" \"1\" \"1\""]);
}

/// A file of which a part was answered when a bound was passed is not counted twice.
#[test]
fn a_file_that_is_made_again_counts_once() {
    if !needs::tools("sql::a_file_that_is_made_again_counts_once", &["mke2fs"]) {
        return;
    }
    let volume = ext4(|tree| {
        let mut text = "k,a,b,c,d,e\n".to_owned();
        // More than one reply has room for.
        (0..5_500).for_each(|n| text += &format!("{}{n:05},1,1,1,1,1\n", "k".repeat(300)));
        for column in 0..5 {
            let wide = |one: usize| if one == column { "w".repeat(110 << 10) } else { String::new() };
            text += &format!("z,{}\n", (0..5).map(wide).collect::<Vec<_>>().join(","));
        }
        fs::write(tree.join("wide.csv"), text).unwrap();
        fs::write(tree.join("x.csv"), "k,a,b,c,d,e\nk00001,1,1,1,1,1\n").unwrap();
    });
    let drive = [Embedded::new("", &volume.image)];
    let (pushed, plain) = (over(&drive, true), over(&drive, false));
    for path in ["/wide.csv", "/*.csv"] {
        let made = ["a", "b", "c", "d", "e"].map(|c| format!("min({c}) min_{c}, max({c}) max_{c}"));
        let table = format!("csv('{path}', 'schema=a utf8, b utf8, c utf8, d utf8, e utf8')");
        let used = "length(concat(min_a, max_a, min_b, max_b, min_c, max_c, min_d, max_d, min_e, max_e))";
        let query = format!(
            "select count(*), sum(n), max({used}) from (select k, count(*) n, {} from {table} group by k)",
            made.join(", ")
        );
        assert_eq!(asked(&pushed, &query), asked(&plain, &query), "{query}");
    }
}

/// What a user may list and what he may pass through decide what a walk finds, wherever it begins.
#[test]
fn permission_is_that_of_a_walk_over_all() {
    if !needs::tools("sql::permission_is_that_of_a_walk_over_all", &["mke2fs"]) {
        return;
    }
    let volume = ext4(|tree| {
        for (folder, mode) in [("passed", 0o711), ("listed", 0o744), ("open", 0o755), ("shut", 0o700)] {
            fs::create_dir_all(tree.join(folder).join("sub")).unwrap();
            fs::write(tree.join(folder).join("file"), "x\n").unwrap();
            fs::write(tree.join(folder).join("sub/file"), "x\n").unwrap();
            fs::set_permissions(tree.join(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
    });
    let drive = [Embedded::of_user("", &volume.image, "4711:4711")];
    let (pushed, plain) = (over(&drive, true), over(&drive, false));
    let said = || std::mem::take(&mut *drive[0].failed.lock().unwrap());
    for folder in ["passed", "listed", "open", "shut"] {
        for condition in [
            format!("path = '/{folder}'"),
            format!("path = '/{folder}/file'"),
            format!("path = '/{folder}/sub/file'"),
            format!("path like '/{folder}/%'"),
            format!("path like '/{folder}/sub/%'"),
        ] {
            for list in ["path", "path, size"] {
                let query = format!("select {list} from files where {condition}");
                let found = (asked(&pushed, &query), said());
                let (all, of_all) = (asked(&plain, &query), said());
                assert!(
                    found.0 == all && found.1.is_subset(&of_all),
                    "{query}: {found:?}, {all:?}, {of_all:?}"
                );
                // What a walk does not get past on its way is said.
                let below = condition.contains("file'") || condition.contains('%');
                assert_eq!(
                    folder == "passed" && below,
                    found.1.iter().any(|one| one.starts_with("/passed:")),
                    "{query}"
                );
            }
        }
    }
}

/// Which columns a table has is said by a file that has rows.
#[test]
fn a_file_without_rows_says_nothing_of_types() {
    if !needs::tools("sql::a_file_without_rows_says_nothing_of_types", &["mke2fs"]) {
        return;
    }
    let long = "n".repeat(300);
    let volume = ext4(|tree| {
        fs::write(tree.join("a.jsonl"), "").unwrap();
        fs::write(tree.join("b.jsonl"), "{\"n\":10}\n{\"n\":9}\n").unwrap();
        fs::write(tree.join("a.csv"), "price\n").unwrap();
        fs::write(tree.join("b.csv"), "price\n10\n9\n").unwrap();
        fs::write(tree.join("long.tsv"), format!("{long}\tx\n1\t2\n")).unwrap();
    });
    let context = over(&[Embedded::new("", &volume.image)], true);
    assert_eq!(asked(&context, "select sum(n) from json('/*.jsonl')"), ["\"19\""]);
    assert_eq!(asked(&context, "select price from csv('/*.csv') where price > 9"), ["\"10\""]);
    assert_eq!(asked(&context, "select count(*) from csv('/a.csv')"), ["\"0\""]);
    let error = batches(&context, "select * from json('/a.jsonl')").unwrap_err();
    assert!(error.contains("/a.jsonl: no file has a row"), "{error}");
    // A name that no request has room for, beside what is asked.
    assert_eq!(asked(&context, "select x from tsv('/long.tsv')"), ["\"2\""]);
}
