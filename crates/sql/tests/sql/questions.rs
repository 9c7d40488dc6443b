//! Questions by a seed over files of every form: what `nearside sql` answers is what DataFusion answers that
//! reads the same files in a folder of this host. Where one of them has no answer, neither has the other.

use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::prelude::SessionContext;
use nearside_conformance::needs;
use nearside_random::Rng;

use crate::fixture::{Embedded, as_they_come, batches, ext4, literal, over, plan, rows};
use crate::local::{Column, Kind, Table, beside, fill, quoted};

/// Tables of rows.
const TABLES: usize = 10;

const LIKES: [&str; 14] = [
    "a%", "%\\%%", "_", "%\\_b", "%ü%", "", "%\n%", "x\\\\y", "%e%", "%.csv", "/t%", "/logs/%", "%ERROR%",
    "__",
];
const REGEXES: [&str; 10] =
    ["^a", "b$", "(?i)A", "^.$", "\\d", "[aü]", "^$", "a|b", "\\bab", "(?i)^err[a-z]* "];

/// How far two answers have to agree.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// They have the same rows.
    Rows,
    /// They have them in the same order.
    Order,
    /// One has so many of the other's at most: which, nobody says.
    AnyOf(usize),
}

/// A question, with `{a}` and `{b}` in the places of its tables.
#[derive(Debug)]
struct Question {
    text: String,
    of: [usize; 2],
    held: Held,
}

/// A column by its name in a question.
#[derive(Clone, Debug)]
struct Named<'t> {
    name: String,
    column: &'t Column,
}

/// The columns of a table that a question knows by this name.
fn scope<'t>(alias: &str, table: &'t Table) -> Vec<Named<'t>> {
    let named = |column: &'t Column| Named { name: format!("{alias}.{}", quoted(&column.name)), column };
    table.columns.iter().map(named).collect()
}

fn any<'s, 't>(rng: &mut Rng, scope: &'s [Named<'t>]) -> &'s Named<'t> {
    &scope[rng.index(scope.len())]
}

/// One of some kinds, where there is one.
fn one<'s, 't>(rng: &mut Rng, scope: &'s [Named<'t>], fits: impl Fn(Kind) -> bool) -> Option<&'s Named<'t>> {
    let some: Vec<&Named<'t>> = scope.iter().filter(|named| fits(named.column.kind)).collect();
    (!some.is_empty()).then(|| some[rng.index(some.len())])
}

/// A value that may stand in a column.
fn value(rng: &mut Rng, column: &Column) -> String {
    let value = column.values[rng.index(column.values.len())].as_str();
    match column.kind {
        Kind::Text | Kind::Day | Kind::Time => literal(value),
        Kind::Odd if matches!(value, "NaN" | "inf" | "-inf") => format!("cast('{value}' as double)"),
        _ => value.to_owned(),
    }
}

fn compare(rng: &mut Rng) -> &'static str {
    rng.pick(&["=", "<>", "<", "<=", ">", ">="])
}

/// A condition of a text.
fn of_text(rng: &mut Rng, name: &str, column: &Column) -> String {
    let not = rng.pick(&["", "not "]);
    match rng.below(6) {
        0 => {
            let like = rng.pick(&["like", "ilike"]);
            format!("{name} {not}{like} {}", literal(rng.pick(&LIKES)))
        }
        1 => {
            let value = column.values[rng.index(column.values.len())].as_str();
            let most = 1 + rng.index(8);
            let plain = |c: &char| !matches!(c, '%' | '_' | '\\');
            let beginning: String = value.chars().take(most).filter(plain).collect();
            format!("{name} {not}like {}", literal(&format!("{beginning}%")))
        }
        2 => {
            let matches = rng.pick(&["~", "!~", "~*", "!~*"]);
            format!("{name} {matches} {}", literal(rng.pick(&REGEXES)))
        }
        3 => format!("upper({name}) {} upper({})", compare(rng), value(rng, column)),
        4 => format!("length({name}) {} {}", compare(rng), rng.below(6)),
        _ => format!("{name} {} {}", compare(rng), value(rng, column)),
    }
}

fn leaf(rng: &mut Rng, scope: &[Named<'_>]) -> String {
    let Named { name, column } = any(rng, scope);
    let not = rng.pick(&["", "not "]);
    match rng.below(9) {
        0 => format!("{name} is {not}null"),
        1 => {
            let most = 1 + rng.index(4);
            let mut some: Vec<String> = (0..most).map(|_| value(rng, column)).collect();
            if rng.below(6) == 0 {
                some.push("null".to_owned());
            }
            format!("{name} {not}in ({})", some.join(", "))
        }
        2 if column.kind != Kind::Truth => {
            format!("{name} {not}between {} and {}", value(rng, column), value(rng, column))
        }
        3 => {
            let other = one(rng, scope, |kind| kind == column.kind).map_or(name, |other| &other.name);
            format!("{name} {} {other}", compare(rng))
        }
        _ => match column.kind {
            Kind::Truth => format!("{not}{name}"),
            Kind::Text => of_text(rng, name, column),
            Kind::Few | Kind::Int if rng.below(4) == 0 => format!("{name} {} 1.5", compare(rng)),
            _ => format!("{name} {} {}", compare(rng), value(rng, column)),
        },
    }
}

fn condition(rng: &mut Rng, scope: &[Named<'_>], depth: u32) -> String {
    match rng.below(4) {
        _ if depth == 0 => leaf(rng, scope),
        0 => format!("not ({})", condition(rng, scope, depth - 1)),
        1 => format!("({}) or ({})", condition(rng, scope, depth - 1), condition(rng, scope, depth - 1)),
        2 => format!("({}) and ({})", condition(rng, scope, depth - 1), condition(rng, scope, depth - 1)),
        _ => leaf(rng, scope),
    }
}

fn filter(rng: &mut Rng, scope: &[Named<'_>]) -> String {
    match rng.below(4) {
        0 => String::new(),
        _ => format!(" where {}", condition(rng, scope, 2)),
    }
}

/// What is made of a column: of each value something, and never an error, since nobody says of which rows it
/// is made before others are left out.
fn expression(rng: &mut Rng, named: &Named<'_>) -> String {
    let forms: &[&str] = match named.column.kind {
        Kind::Few => &[
            "{}",
            "{} + 1",
            "{} * 2 - 1",
            "{} % 7",
            "abs({})",
            "cast({} as varchar)",
            "cast({} as double) / 4",
            "nullif({}, 1)",
        ],
        Kind::Int => &["{}", "{} / 3", "{} % 7", "coalesce({}, 0)", "cast({} as varchar)", "{} is null"],
        Kind::Exact => &["{}", "{} * 2", "cast({} as bigint)", "round({})", "{} is not null"],
        Kind::Odd => &["{}", "{} is null", "cast({} as varchar)"],
        Kind::Text => &[
            "{}",
            "upper({})",
            "length({})",
            "concat({}, '!')",
            "{} || '~'",
            "try_cast({} as bigint)",
            "coalesce({}, 'none')",
            "substr({}, 1, 2)",
        ],
        Kind::Day => &["{}", "extract(year from {})", "cast({} as varchar)"],
        Kind::Time => &["{}", "cast({} as date)", "extract(hour from {})", "cast({} as varchar)"],
        Kind::Truth => &["{}", "not {}", "case when {} then 1 else 0 end"],
    };
    rng.pick(forms).replace("{}", &named.name)
}

/// So many things that are chosen, each with a name of its own.
fn list(rng: &mut Rng, scope: &[Named<'_>], so_many: usize) -> Vec<String> {
    let mut list = Vec::new();
    for nth in 0..so_many {
        let named = any(rng, scope);
        list.push(format!("{} as c{nth}", expression(rng, named)));
    }
    list
}

/// What is made of groups: the same, whatever is added first.
fn aggregate(rng: &mut Rng, scope: &[Named<'_>]) -> String {
    let plain = |kind: Kind| kind != Kind::Odd;
    let exact = |kind: Kind| matches!(kind, Kind::Few | Kind::Exact);
    let summed = |kind: Kind| matches!(kind, Kind::Few | Kind::Exact | Kind::Int);
    let (function, of) = match rng.below(10) {
        0 => return "count(*)".to_owned(),
        1 => return format!("count(*) filter (where {})", condition(rng, scope, 1)),
        2 => return format!("sum(case when {} then 1 else 0 end)", condition(rng, scope, 1)),
        3 => ("count(", Some(any(rng, scope))),
        4 => ("count(distinct ", one(rng, scope, plain)),
        5 => ("sum(", one(rng, scope, summed)),
        6 => ("avg(", one(rng, scope, exact)),
        7 | 8 => ("min(", one(rng, scope, plain)),
        _ => ("max(", one(rng, scope, plain)),
    };
    of.map_or_else(|| "count(*)".to_owned(), |named| format!("{function}{})", named.name))
}

/// The end of a question whose answer has so many columns: an order in which only like rows change places,
/// perhaps with a limit; or none.
fn ending(rng: &mut Rng, columns: usize) -> (String, Held) {
    let mut by = Vec::new();
    for nth in 1..=columns {
        let (way, nulls) = (rng.pick(&["", " desc"]), rng.pick(&["", " nulls first", " nulls last"]));
        by.push(format!("{nth}{way}{nulls}"));
    }
    let by = by.join(", ");
    match rng.below(4) {
        0 => (String::new(), Held::AnyOf(rng.index(20))),
        1 => (format!(" order by {by}"), Held::Order),
        2 => {
            let offset = rng.pick(&["", " offset 3"]);
            (format!(" order by {by} limit {}{offset}", rng.index(12)), Held::Order)
        }
        _ => (String::new(), Held::Rows),
    }
}

fn rows_of(rng: &mut Rng, tables: &[&Table; 2]) -> (String, Held) {
    let a = scope("a", tables[0]);
    let most = 1 + rng.index(4);
    let (chosen, columns) = match rng.below(8) {
        0 => (vec!["*".to_owned()], a.len()),
        _ => (list(rng, &a, most), most),
    };
    let filter = filter(rng, &a);
    let (end, held) = ending(rng, columns);
    (format!("select {} from {{a}} a{filter}{end}", chosen.join(", ")), held)
}

fn groups_of(rng: &mut Rng, tables: &[&Table; 2]) -> (String, Held) {
    let a = scope("a", tables[0]);
    let mut keys = Vec::new();
    for _ in 0..rng.index(3) {
        if let Some(named) = one(rng, &a, |kind| kind != Kind::Odd) {
            keys.push(if rng.below(4) == 0 { expression(rng, named) } else { named.name.clone() });
        }
    }
    keys.dedup();
    // Values alone are those that there are.
    let least = usize::from(keys.is_empty());
    let most = least + rng.index(3);
    let made: Vec<String> = (0..most).map(|_| aggregate(rng, &a)).collect();
    let all = keys.iter().chain(&made).enumerate().map(|(nth, one)| format!("{one} as c{nth}"));
    let all: Vec<String> = all.collect();
    let by = match keys.is_empty() {
        true => String::new(),
        false => format!(" group by {}", keys.join(", ")),
    };
    let having = if !keys.is_empty() && rng.below(4) == 0 { " having count(*) > 2" } else { "" };
    let filter = filter(rng, &a);
    let (end, held) = ending(rng, all.len());
    (format!("select {} from {{a}} a{filter}{by}{having}{end}", all.join(", ")), held)
}

/// The names of the columns by which two tables are joined.
fn keys(tables: &[&Table; 2]) -> [String; 2] {
    let named = |alias: &str, table: &Table| format!("{alias}.{}", quoted(&table.columns[table.key].name));
    [named("a", tables[0]), named("b", tables[1])]
}

fn joins_of(rng: &mut Rng, tables: &[&Table; 2]) -> (String, Held) {
    let mut both = scope("a", tables[0]);
    both.extend(scope("b", tables[1]));
    let [left, right] = keys(tables);
    let join = rng.pick(&["join", "left join", "right join", "full join"]);
    let also = match rng.below(4) {
        0 => format!(" and ({})", leaf(rng, &both)),
        _ => String::new(),
    };
    let most = 1 + rng.index(3);
    let chosen = match rng.below(3) {
        0 => (0..most).map(|nth| format!("{} as c{nth}", aggregate(rng, &both))).collect(),
        _ => list(rng, &both, most),
    };
    let filter = filter(rng, &both);
    let (end, held) = ending(rng, most);
    let from = format!("{{a}} a {join} {{b}} b on {left} = {right}{also}");
    (format!("select {} from {from}{filter}{end}", chosen.join(", ")), held)
}

/// Conditions that ask another table.
fn within(rng: &mut Rng, tables: &[&Table; 2]) -> (String, Held) {
    let (a, b) = (scope("a", tables[0]), scope("b", tables[1]));
    let [own, other] = keys(tables);
    let (inner, not) = (condition(rng, &b, 1), rng.pick(&["", "not "]));
    let asked = match rng.below(3) {
        0 => format!("{own} {not}in (select {other} from {{b}} b where {inner})"),
        1 => format!("{not}exists (select 1 from {{b}} b where {other} = {own} and ({inner}))"),
        _ => format!("{own} >= (select max({other}) from {{b}} b where {inner})"),
    };
    let most = 1 + rng.index(3);
    let chosen = list(rng, &a, most);
    let also = leaf(rng, &a);
    let (end, held) = ending(rng, most);
    (format!("select {} from {{a}} a where {asked} and ({also}){end}", chosen.join(", ")), held)
}

fn sets_of(rng: &mut Rng, tables: &[&Table; 2]) -> (String, Held) {
    let (a, b) = (scope("a", tables[0]), scope("b", tables[1]));
    let how = rng.pick(&["union all", "union", "intersect", "except"]);
    let left = one(rng, &a, |kind| kind != Kind::Odd);
    let right = left.and_then(|left| one(rng, &b, |kind| kind == left.column.kind));
    let [left, right] = match (left, right) {
        (Some(left), Some(right)) => [left.name.clone(), right.name.clone()],
        _ => keys(tables),
    };
    let (first, second) = (filter(rng, &a), filter(rng, &b));
    let (end, held) = ending(rng, 1);
    let text =
        format!("select {left} as c0 from {{a}} a{first} {how} select {right} as c0 from {{b}} b{second}");
    (text + &end, held)
}

/// What may have no answer, of all rows: nothing leaves out those of which there is none.
fn faults_of(rng: &mut Rng, tables: &[&Table; 2]) -> (String, Held) {
    let a = scope("a", tables[0]);
    let [key, _] = keys(tables);
    let text = one(rng, &a, |kind| kind == Kind::Text).map_or(key.clone(), |named| named.name.clone());
    let all = [
        format!("select 10 / {key} as c0 from {{a}} a"),
        format!("select sum(10 / {key}) as c0 from {{a}} a"),
        format!("select {key} from {{a}} a where 10 / {key} > 1"),
        format!("select cast({text} as bigint) as c0 from {{a}} a"),
        format!("select count(cast({text} as date)) as c0 from {{a}} a"),
        format!("select {key} from {{a}} a where {text} > 5"),
        format!("select {key} from {{a}} a where {text} ~ '('"),
        format!("select {key}, count(*) from {{a}} a"),
        format!("select {key}, {key} from {{a}} a"),
        format!("select {text} + date '2020-01-01' as c0 from {{a}} a"),
        format!("select {key} from {{a}} a where {key} like"),
        "select a.\"no such\" from {a} a".to_owned(),
        "select k from {a} a join {b} b on a.k = b.k".to_owned(),
    ];
    (all[rng.index(all.len())].clone(), Held::Rows)
}

fn question(rng: &mut Rng, tables: &[Table]) -> Question {
    let of = [rng.index(tables.len()), rng.index(tables.len())];
    let asked = of.map(|at| &tables[at]);
    let (text, held) = match rng.below(16) {
        0..=3 => rows_of(rng, &asked),
        4..=7 => groups_of(rng, &asked),
        8..=10 => joins_of(rng, &asked),
        11 | 12 => within(rng, &asked),
        13 => sets_of(rng, &asked),
        _ => faults_of(rng, &asked),
    };
    Question { text, of, held }
}

/// Both ways to the same tables.
struct Sides {
    image: PathBuf,
    tables: Vec<Table>,
    pushed: SessionContext,
    plain: SessionContext,
    theirs: SessionContext,
}

impl Sides {
    /// A question's words, with tables as they are named there.
    fn said(&self, question: &Question, named: fn(&Table) -> &String) -> String {
        let [a, b] = question.of.map(|at| named(&self.tables[at]));
        question.text.replace("{a}", a).replace("{b}", b)
    }

    /// What the program answers.
    fn program(&self, query: &str, words: &[&str]) -> Result<Vec<RecordBatch>, String> {
        let mut program = Command::new(env!("CARGO_BIN_EXE_nearside-sql"));
        program.env_remove("NEARSIDE_DRIVE").stdin(Stdio::null()).arg("-d").arg(&self.image);
        program.args(["--as", "0:0", "--output", "arrow"]).args(words).arg(query);
        let Output { status, stdout, stderr } = program.output().unwrap();
        if !status.success() {
            return Err(String::from_utf8_lossy(&stderr).into_owned());
        }
        let reader = StreamReader::try_new(Cursor::new(stdout), None).map_err(|error| error.to_string())?;
        reader.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
    }

    /// Mostly within this process, where it is quick; sometimes by rows alone, and sometimes by the program.
    fn ours(&self, nth: u32, query: &str) -> Result<Vec<RecordBatch>, String> {
        match nth % 16 {
            5 => self.program(query, &[]),
            13 => self.program(query, &["--no-push-down"]),
            3 | 7 | 11 | 15 => batches(&self.plain, query),
            _ => batches(&self.pushed, query),
        }
    }

    /// Asks both, and holds their answers together. The question as drives are asked it, and whether its
    /// answer has rows; `None`: there is none.
    fn hold(&self, nth: u32, question: &Question) -> (String, Option<bool>) {
        let mut query = self.said(question, |table| &table.ours);
        if let Held::AnyOf(most) = question.held {
            query += &format!(" limit {most}");
        }
        let theirs = batches(&self.theirs, &self.said(question, |table| &table.theirs));
        match (self.ours(nth, &query), theirs) {
            (Ok(ours), Ok(theirs)) => {
                agree(question.held, &ours, &theirs, &query);
                let some = theirs.iter().any(|batch| batch.num_rows() > 0);
                (query, Some(some))
            }
            (Err(ours), Err(_)) => {
                assert!(
                    !ours.contains("a fault of Nearside's") && !ours.contains("panicked"),
                    "{query}: {ours}"
                );
                (query, None)
            }
            (Ok(ours), Err(why)) => panic!("{nth}: {query}\nhas {:?}\nand there {why}", rows(&ours)),
            (Err(why), Ok(theirs)) => panic!("{nth}: {query}\nhas {why}\nand there {:?}", rows(&theirs)),
        }
    }
}

#[track_caller]
fn agree(held: Held, ours: &[RecordBatch], theirs: &[RecordBatch], query: &str) {
    match held {
        Held::Rows => assert_eq!(rows(ours), rows(theirs), "{query}"),
        Held::Order => assert_eq!(as_they_come(ours), as_they_come(theirs), "{query}"),
        Held::AnyOf(most) => {
            let (some, mut left) = (rows(ours), rows(theirs));
            assert_eq!(some.len(), most.min(left.len()), "{query}");
            for row in some {
                let at = left.iter().position(|other| *other == row);
                left.swap_remove(at.unwrap_or_else(|| panic!("{query}: {row}")));
            }
        }
    }
}

/// `NEARSIDE_SQL=SEED,QUESTIONS` asks others, and more.
#[test]
fn answers_are_those_of_files_on_this_host() {
    if !needs::tools("sql::answers_are_those_of_files_on_this_host", &["mke2fs"]) {
        return;
    }
    let said = std::env::var("NEARSIDE_SQL").unwrap_or_else(|_| "1,100".into());
    let (seed, questions) = said.split_once(',').unwrap();
    let (mut rng, questions) = (Rng(seed.parse().unwrap()), questions.parse::<u32>().unwrap());
    let mut tables = Vec::new();
    let volume = ext4(|tree| tables = fill(tree, TABLES, &mut rng));
    let drive = [Embedded::new("", &volume.image)];
    let theirs = beside(&volume.folder.path().join("tree"), &tables);
    let (pushed, plain) = (over(&drive, true), over(&drive, false));
    let sides = Sides { image: volume.image.clone(), tables, pushed, plain, theirs };
    let (mut some, mut none, mut inside) = (0, 0, 0);
    for nth in 0..questions {
        let (query, answered) = sides.hold(nth, &question(&mut rng, &sides.tables));
        some += u32::from(answered == Some(true));
        none += u32::from(answered.is_none());
        if answered.is_some() && nth % 5 == 0 {
            let plan = plan(&sides.pushed, &query);
            inside += u32::from(["where=", "aggregate=", "pattern="].iter().any(|word| plan.contains(word)));
        }
    }
    let said = format!("{some} with rows, {none} without an answer, {inside} of a fifth in the drive");
    assert!(some * 3 > questions && none * 50 >= questions && inside * 50 >= questions, "{said}");
    let failed = drive[0].failed.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
}
