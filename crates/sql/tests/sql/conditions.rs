//! Conditions and groups that go to the drives, beside the same that DataFusion works out over all rows: by a
//! seed, over values that are hard to agree on.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use nearside_conformance::needs;
use nearside_random::Rng;

use crate::fixture::{Embedded, asked, ext4, literal, over, plan};

const TEXTS: [&str; 23] = [
    "",
    "a",
    "A",
    "ab",
    "aB%",
    "a_b",
    "50%",
    "x\\y",
    "new\nline",
    "ümlaut",
    "Zürich",
    "\u{fffd}",
    "日本",
    "it's",
    " a ",
    "aab",
    "İ",
    "ß",
    "ſ",
    "ΟΔΟΣ",
    "5 µm",
    "\u{212a}",
    "KS",
];
const FLOATS: [&str; 10] = ["0.0", "-0.0", "1.5", "-1.5", "NaN", "inf", "-inf", "1e300", "2.0", "0.25"];
const INTS: [&str; 8] = ["0", "1", "-1", "2", "9223372036854775807", "-9223372036854775808", "7", "1000000"];
const DAYS: [&str; 5] = ["1969-12-31", "2020-02-29", "0001-01-01", "9999-12-31", "2024-07-01"];
const TIMES: [&str; 5] = [
    "2020-02-29T12:00:00",
    "2020-02-29T12:00:00.000001",
    "1969-12-31T23:59:59.999999",
    "2024-07-01T00:00:00",
    "0001-01-01T00:00:00",
];

/// Files of the same columns: id, n, f, g, t, u, d, w, b. Sums are of `n`: those of `id` depend on the order
/// of adding. What is greatest is of `g`: of `f` it depends on the order for DataFusion, which takes NaN and
/// zeros as they come.
fn fill(tree: &Path) {
    let mut rng = Rng(7);
    for file in 0..3 {
        let mut text = "id,n,f,g,t,u,d,w,b\n".to_owned();
        for row in 0..200 {
            let field = |rng: &mut Rng, of: &[&str]| match rng.below(8) {
                // Of each type the first rows have a value.
                0 if row > 0 => String::new(),
                _ => rng.pick(of).to_owned(),
            };
            let quoted = |text: String| match text.contains(['\n', ',']) || text.is_empty() {
                true => format!("\"{text}\""),
                false => text,
            };
            let ordinary: Vec<&str> = if row == 0 { vec!["a"] } else { TEXTS.to_vec() };
            let values = [
                field(&mut rng, &INTS),
                field(&mut rng, &["0", "-3", "5", "100000", "41"]),
                if row == 0 { "0.5".into() } else { field(&mut rng, &FLOATS) },
                if row == 0 {
                    "0.5".into()
                } else {
                    field(&mut rng, &["0.0", "-2.5", "1.5", "-1.5", "0.25"])
                },
                quoted(field(&mut rng, &ordinary)),
                quoted(field(&mut rng, &ordinary)),
                field(&mut rng, &DAYS),
                field(&mut rng, &TIMES),
                field(&mut rng, &["true", "false"]),
            ];
            writeln!(text, "{}", values.join(",")).unwrap();
        }
        fs::write(tree.join(format!("t{file}.csv")), text).unwrap();
    }
}

/// A condition that DataFusion takes.
fn leaf(rng: &mut Rng) -> String {
    let compare = rng.pick(&["=", "<>", "<", "<=", ">", ">="]);
    let negated = rng.pick(&["", "not "]);
    match rng.below(14) {
        0 => format!("id {compare} {}", rng.pick(&["0", "1", "2", "7", "-1"])),
        1 | 2 => format!("f {compare} {}", rng.pick(&["0.0", "-0.0", "1.5", "2", "0", "1e300", "-0.5"])),
        3 => format!("{} {compare} f", rng.pick(&["0.0", "-0.0", "1.5"])),
        4 => format!("f {compare} g"),
        5 => format!("t {compare} {}", literal(rng.pick(&TEXTS))),
        6 => format!("t {compare} u"),
        7 => format!("d {compare} {}", literal(rng.pick(&DAYS))),
        // DataFusion reads them as nanoseconds, which the first year has none of.
        8 => format!("w {compare} {}", literal(rng.pick(&TIMES[..4]))),
        9 => {
            let like = rng.pick(&["like", "ilike"]);
            let pattern = rng.pick(&[
                "a%",
                "%\\%%",
                "_",
                "%\\_b",
                "%ü%",
                "",
                "%\n%",
                "x\\\\y",
                "x\\y",
                "%\u{fffd}",
                "aB\\%",
                "i%",
                "SS",
                "%s%",
                "%οδος",
                "%μm",
                "k%",
            ]);
            format!("t {negated}{like} {}", literal(pattern))
        }
        10 => {
            let match_ = rng.pick(&["~", "!~", "~*", "!~*"]);
            format!(
                "t {match_} {}",
                literal(rng.pick(&["^a", "b$", "(?i)A", "^.$", "\\d", "[aü]", "^$", "a|b", "\\bab"]))
            )
        }
        11 => {
            let column = rng.below(3);
            let some: Vec<String> = (0..1 + rng.below(5))
                .map(|_| match column {
                    0 => rng.pick(&["0", "1", "7", "null"]).to_owned(),
                    1 => rng.pick(&["0.0", "1.5", "2.0"]).to_owned(),
                    _ => literal(rng.pick(&TEXTS)),
                })
                .collect();
            format!("{} {negated}in ({})", ["id", "f", "t"][column as usize], some.join(", "))
        }
        12 => format!("{} is {negated}null", rng.pick(&["id", "f", "t", "d", "w", "b"])),
        _ => match rng.below(4) {
            0 => "b".to_owned(),
            1 => format!(
                "f {negated}between {} and {}",
                rng.pick(&["0.0", "-0.0", "-1.5"]),
                rng.pick(&["0.0", "1.5"])
            ),
            2 => format!("id {negated}between {} and {}", rng.pick(&["0", "-1"]), rng.pick(&["1", "7"])),
            _ => format!("id {compare} 1.5"),
        },
    }
}

fn condition(rng: &mut Rng, depth: u32) -> String {
    match rng.below(4) {
        _ if depth == 0 => leaf(rng),
        0 => format!("not ({})", condition(rng, depth - 1)),
        1 => format!("({}) or ({})", condition(rng, depth - 1), condition(rng, depth - 1)),
        2 => format!("({}) and ({})", condition(rng, depth - 1), condition(rng, depth - 1)),
        _ => leaf(rng),
    }
}

/// What is chosen of the rows.
fn chosen(rng: &mut Rng) -> (String, String) {
    if rng.below(2) == 0 {
        return (rng.pick(&["*", "id, t", "f", "w, d, b", "count(*)", "1"]).to_owned(), String::new());
    }
    let by = rng.pick(&["", "", "t", "b", "d, b", "w", "id", "f", "t, u", "upper(t)"]);
    let makes = [
        "count(*)",
        "count(f)",
        "count(t)",
        "min(id)",
        "max(id)",
        "min(t)",
        "max(t)",
        "min(d)",
        "max(w)",
        "avg(n)",
        "count(distinct t)",
        "sum(id % 100)",
        "count(*) filter (where b)",
        "max(g)",
        "sum(n)",
        "min(g)",
        "avg(case when b then 1 else 0 end)",
    ];
    let mut some = vec![rng.pick(&makes)];
    some.push(rng.pick(&makes));
    some.dedup();
    let list = if by.is_empty() { some.join(", ") } else { format!("{by}, {}", some.join(", ")) };
    (list, if by.is_empty() { String::new() } else { format!(" group by {by}") })
}

/// `NEARSIDE_SQL=SEED,QUESTIONS` asks others, and more.
#[test]
fn what_drives_work_out_is_what_datafusion_does() {
    if !needs::tools("sql::what_drives_work_out_is_what_datafusion_does", &["mke2fs"]) {
        return;
    }
    let volume = ext4(fill);
    let drive = [Embedded::new("", &volume.image)];
    let (pushed, plain) = (over(&drive, true), over(&drive, false));
    let said = std::env::var("NEARSIDE_SQL").unwrap_or_else(|_| "1,150".into());
    let (seed, questions) = said.split_once(',').unwrap();
    let mut rng = Rng(seed.parse().unwrap());
    let (mut some, mut inside) = (0, 0);
    let questions: u32 = questions.parse().unwrap();
    for _ in 0..questions {
        let (list, by) = chosen(&mut rng);
        let table = rng.pick(&["csv('/t0.csv')", "csv('/t*.csv')", "csv('/**')"]);
        // Of a column and itself, under two names, DataFusion finds simpler words in the end.
        let twin =
            rng.pick(&["", "", "", "t = t2 and ", "n = n2 or ", "id in (3, id2) and ", "not (u <> u2) and "]);
        let table = match twin {
            "" => table.to_owned(),
            _ => format!("(select *, t as t2, n as n2, id as id2, u as u2 from {table})"),
        };
        let query = format!("select {list} from {table} where {twin}({}){by}", condition(&mut rng, 2));
        let (ours, theirs) = (asked(&pushed, &query), asked(&plain, &query));
        assert_eq!(ours, theirs, "{query}\n{}", plan(&pushed, &query));
        some += u32::from(!theirs.is_empty());
        inside += u32::from(plan(&pushed, &query).contains("where="));
    }
    assert!(some * 2 > questions && inside * 2 > questions, "{some} with rows, {inside} in the drive");
}

/// What a review found, and what is like it.
#[test]
fn conditions_and_groups_that_are_odd() {
    if !needs::tools("sql::conditions_and_groups_that_are_odd", &["mke2fs"]) {
        return;
    }
    let volume = ext4(fill);
    let drives = [Embedded::new("one", &volume.image), Embedded::new("two", &volume.image)];
    for drives in [&drives[..1], &drives[..]] {
        let (pushed, plain) = (over(drives, true), over(drives, false));
        for query in [
            "select count(*) from csv('/t0.csv') group by grouping sets (())",
            "select t, avg(n), sum(n) from csv('/t0.csv') where n is null group by t",
            "select count(*) from csv('/**') where f not between 0.0 and 1.5",
            "select count(*) from csv('/**') where f not between -1.5 and -0.0",
            "select t, b, count(*), grouping(t) from csv('/t0.csv') group by rollup (t, b)",
            "select count(*) from csv('/**') group by cube (b)",
            "select t, count(*) from csv('/t0.csv') group by t having count(*) > 5 order by count(*), t limit 3",
            "select distinct t from csv('/t0.csv') where t ilike '%s%'",
            "select count(*) from csv('/t0.csv') a join csv('/t1.csv') b on a.id = b.id and a.t = b.t where a.n > 3",
            "select count(*) from (select n from csv('/t0.csv') union all select n from csv('/t1.csv')) where n > 3",
            "select t from csv('/t0.csv') where id = (select max(id) from csv('/t1.csv')) order by t",
            "select count(*) from (select t, t as s from csv('/**')) where t = s",
            "select count(*), min(s) from (select t, t as s from csv('/**')) where t = s",
            "select n from csv('/**') where n in (0, n)",
            "select count(*) from (select n, n as m from csv('/**')) where n = m or n > 5",
            "select f from (select id, f, f as g from csv('/t0.csv')) where f = g or id > 5",
            "select count(*) from (select t from (select t, t as s from csv('/t0.csv')) where t = s limit 7)",
            "select b from (select b, b as c, n from csv('/**')) where b = c and n > 3",
        ] {
            assert_eq!(asked(&pushed, query), asked(&plain, query), "{query}");
        }
    }
    let (pushed, plain) = (over(&drives, true), over(&drives, false));
    for query in [
        "select drive, count(*) from csv('/t0.csv') where n > 1000000 group by drive",
        "select drive, sum(n), min(t) from csv('/t0.csv') where n > 1000000 group by drive",
        "select count(distinct drive), sum(n) from csv('/t0.csv') where n > 1000000",
        "select count(distinct drive), sum(n) from csv('/t0.csv')",
        "select drive, s from (select drive, t, t as s from csv('/t0.csv')) where t = s and drive = 'one'",
        "select count(*) from (select drive, drive as d, t from csv('/t0.csv')) where drive = d and t > 'b'",
    ] {
        assert_eq!(asked(&pushed, query), asked(&plain, query), "{query}");
    }
    // More than a drive takes, some of it found after the rest: nothing is forgotten.
    let query = "select * from csv('/t0.csv') a left join (select b.id, c.t, c.u from csv('/t1.csv') b left join \
        csv('/t2.csv') c on b.id = c.id and c.t ~ '[abA]' and c.u ~ '[^q]' and c.t ~ '^.{1,4}$') s on a.id = s.id \
        where s.t >= 'a' and s.t ~ '[bB]' and s.u ~ '^[^a]*$'";
    let found = asked(&pushed, query);
    assert!(!found.is_empty() && found == asked(&plain, query), "{}", found.len());
    // Six, none of which DataFusion has as LIKE.
    let query = "select t from csv('/**') where t ilike '%a%' and u ilike '%a%' and t ~ '[aA]' and u ~ '[a-m]' \
        and t ~ '[b%_]' and u ~ '[^a]'";
    let found = asked(&pushed, query);
    assert!(!found.is_empty() && found == asked(&plain, query), "{}", plan(&pushed, query));
}

/// Each kind of condition, by itself and alone: the drive has it, and nothing is left.
#[test]
fn conditions_that_mean_the_same_go_to_the_drive_whole() {
    if !needs::tools("sql::conditions_that_mean_the_same_go_to_the_drive_whole", &["mke2fs"]) {
        return;
    }
    let volume = ext4(fill);
    let context = over(&[Embedded::new("", &volume.image)], true);
    let step = |condition: &str| plan(&context, &format!("select id from csv('/t0.csv') where {condition}"));
    for (condition, said) in [
        ("id > 5", "where=id > 5"),
        ("5 < id and t = 'it''s'", "where=id > 5 and t = 'it''s'"),
        ("f > 0", "where=f > 0.0"),
        ("id in (1, 2, 3, 4, 5)", "where=id in (1, 2, 3, 4, 5)"),
        ("t like 'a\\%%'", "where=t like 'a\\\\%%'"),
        ("t ~* 'a|b'", "where=t ~ '(?i)a|b'"),
        ("d >= '2020-02-29' or b", "where=(d >= '2020-02-29' or b)"),
        ("w < '2024-07-01'", "where=w < '2024-07-01T00:00:00.000000'"),
        ("t is not null", "where=not (t is null)"),
        ("not b", "where=not (b)"),
    ] {
        let step = step(condition);
        assert!(step.contains(said) && !step.contains("FilterExec"), "{condition}\n{step}");
    }
    // What means another thing to one of them: asked again, or asked here alone.
    for (condition, inside) in [
        ("f < 0", true),
        ("f = 0", true),
        ("f <> 0", false),
        ("not (f = 0)", false),
        ("f = g", false),
        ("upper(t) = 'A'", false),
        ("t like 'x\\y'", false),
    ] {
        let step = step(condition);
        assert!(step.contains("FilterExec") && step.contains("where=") == inside, "{condition}\n{step}");
    }
    let grouped =
        plan(&context, "select b, count(*), avg(id), max(w) from csv('/**') where id > 1 group by b");
    let said = "group-by=[b], aggregate=[count(*), avg(id), max(w)], where=id > 1";
    assert!(grouped.contains(said) && !grouped.contains("mode=Partial"), "{grouped}");
    let limited = plan(&context, "select t from csv('/t0.csv') where id > 1 limit 3");
    assert!(limited.contains("columns=[t], where=id > 1, limit=3"), "{limited}");
}
