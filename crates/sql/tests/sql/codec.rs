//! Plans as bytes: what comes of them is what went in, and bytes of any other kind are refused.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::execution::TaskContext;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::SessionContext;
use datafusion_proto::logical_plan::{AsLogicalPlan, DefaultLogicalExtensionCodec, LogicalExtensionCodec};
use datafusion_proto::physical_plan::{
    AsExecutionPlan, DefaultPhysicalExtensionCodec, PhysicalExtensionCodec,
};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use nearside_conformance::needs;
use nearside_random::Random;
use nearside_sql::program::{Named, Said};
use nearside_sql::{Codec, Drives, Finds, Options, Way, Whole, context, files, sendable, table};

use crate::fixture::{Volume, ext4, rows};
use crate::hostile;

const QUERIES: [&str; 25] = [
    "select path, size, kind from files where path like '/logs/%'",
    "select drive, count(*), sum(size) from files group by drive",
    "select path, line, text from lines('/logs/**') where text ~ 'ERROR|FATAL'",
    "select count(*) from lines('/logs/*.log', 'binary')",
    "select text from lines('/logs/a.log') limit 3",
    "select * from csv('/t.csv') where n > 3 and city in ('Bern', 'Basel')",
    "select city, count(*), avg(n), sum(x), min(x) from csv('/t.csv') group by city",
    "select drive, city, max(n) from csv('/t.csv') group by drive, city",
    "select count(*) from csv('/t.csv') where x = 0.0",
    "select city from csv('/t.csv') where city ilike 'b%' or n is null limit 4",
    "select count(distinct city) from csv('/t.csv')",
    "select a.city, f.path from csv('/t.csv', 'columns=city,n') a join files f on f.links = a.n",
    "select a.city, b.n from csv('/t.csv') a join csv('/t.csv') b using (n) where a.x < b.x",
    "select a.city, b.x from csv('/t.csv') a left join csv('/t.csv') b using (n) where a.x < 1",
    "select n from csv('/t.csv') union all select size from files union all select links from files",
    "select a.n, b.path from (select n from csv('/t.csv') order by n limit 3) a join files b on a.n < b.links",
    "select city from csv('/t.csv') where n not in (select column_2 from tsv('/t.tsv', 'no-header'))",
    "select city from csv('/t.csv') where x not in (select x from csv('/t.csv') where city is null)",
    "select city, x from csv('/t.csv') intersect select city, x from csv('/t.csv') where n > 2",
    "select city, x from csv('/t.csv') except select city, x from csv('/t.csv') where n > 2",
    "select count(*) from (select city from csv('/t.csv') where x = 0.0) a cross join csv('/t.csv') b where b.n = 1",
    "select * from tsv('/t.tsv', 'no-header') order by 2 desc",
    "select city from csv('/t.csv') where x not in (select x from csv('/t.csv') where n > 100)",
    "select c.n from csv('/t.csv') c left join (select city from csv('/t.csv') where false) d on c.city = d.city",
    "select sum(n) over (order by n) from csv('/t.csv')",
];

fn volume() -> Volume {
    ext4(|tree| {
        std::fs::create_dir(tree.join("logs")).unwrap();
        std::fs::write(tree.join("logs/a.log"), "fine\nERROR disk\nfine\nFATAL end\n").unwrap();
        std::fs::write(tree.join("logs/b.log"), "ERROR \u{fffd}\nfine").unwrap();
        let cities = ["Bern", "Basel", "Genf", "", "Biel"];
        let row = |n: usize| format!("{},{},{}", cities[n % 5], n % 7, ["0.0", "-0.0", "1.5", ""][n % 4]);
        let table: Vec<_> = (0..60).map(row).collect();
        std::fs::write(tree.join("t.csv"), format!("city,n,x\n{}\n", table.join("\n"))).unwrap();
        std::fs::write(tree.join("t.tsv"), "Bern\t1\nBiel\t2\n").unwrap();
    })
}

fn finds() -> Arc<Finds> {
    let said = Arc::new(Said::default());
    Arc::new(move |name, words| Named::found(name, words, &said).map(|way| Arc::new(way) as Arc<dyn Way>))
}

fn logical() -> Codec<dyn LogicalExtensionCodec> {
    Codec::new(finds(), Arc::new(DefaultLogicalExtensionCodec {}) as Arc<dyn LogicalExtensionCodec>)
}

fn physical() -> Codec<dyn PhysicalExtensionCodec> {
    Codec::new(finds(), Arc::new(DefaultPhysicalExtensionCodec {}) as Arc<dyn PhysicalExtensionCodec>)
}

/// A volume under two names.
fn drives(volume: &Volume) -> Drives {
    let words = [format!("--drive={}", volume.image.display()), "--as=0:0".to_owned()];
    ["one", "two"].into_iter().map(|name| finds()(name, &words).unwrap()).collect()
}

/// A session over it.
fn session(volume: &Volume, push_down: bool) -> SessionContext {
    context(drives(volume), Arc::default(), Options { push_down, partitions: 2 }).unwrap()
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(true).to_string()
}

#[test]
fn a_plan_that_was_bytes_is_the_plan() {
    if !needs::tools("sql::a_plan_that_was_bytes_is_the_plan", &["mke2fs"]) {
        return;
    }
    let volume = volume();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut in_drives = 0;
    for (push_down, query) in [true, false].into_iter().flat_map(|way| QUERIES.map(|query| (way, query))) {
        let context = session(&volume, push_down);
        let task: Arc<TaskContext> = context.task_ctx();
        runtime.block_on(async {
            let frame = context.sql(query).await.unwrap();
            let answer = rows(&frame.clone().collect().await.unwrap());
            assert!(!answer.is_empty() || query.contains(" not in "), "{query}");
            // As a plan of tables, for who plans.
            let plan = context.state().optimize(frame.logical_plan()).unwrap();
            let plan = sendable(&plan, &logical(), &task).unwrap_or_else(|why| panic!("{query}: {why}"));
            let mut bytes = Vec::new();
            LogicalPlanNode::try_from_logical_plan(&plan, &logical())
                .unwrap()
                .try_encode(&mut bytes)
                .unwrap();
            let again = LogicalPlanNode::try_decode(&bytes).unwrap();
            let again = again.try_into_logical_plan(&task, &logical()).unwrap();
            // A limit of a scan is not said, and found again.
            let again = context.state().optimize(&again).unwrap();
            let steps = context.state().create_physical_plan(&again).await.unwrap();
            let whole = Whole::new(Arc::new(physical()), task.clone());
            let steps = whole.optimize(steps, context.state().config_options()).unwrap();
            // As steps, for who does them.
            let own = PhysicalPlanNode::try_from_physical_plan(steps.clone(), &physical()).unwrap();
            let mut bytes = Vec::new();
            own.try_encode(&mut bytes).unwrap();
            let again = PhysicalPlanNode::try_decode(&bytes).unwrap();
            let again = again.try_into_physical_plan(&task, &physical()).unwrap();
            assert_eq!(shown(&again), shown(&steps), "{query}");
            in_drives += usize::from(shown(&again).contains("group-by=[city]"));
            assert_eq!(rows(&collect(again, task.clone()).await.unwrap()), answer, "{query}");
        });
    }
    assert!(in_drives > 1, "{in_drives} plans have groups in the drives");
}

/// The scans of a query.
async fn scans(context: &SessionContext, query: &str) -> Vec<Arc<dyn ExecutionPlan>> {
    let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
    let (mut scans, mut left) = (Vec::new(), vec![plan]);
    while let Some(step) = left.pop() {
        left.extend(step.children().into_iter().cloned());
        if step.name() == "InDrive" {
            scans.push(step);
        }
    }
    assert!(!scans.is_empty(), "{query}");
    scans
}

/// Bytes with a few others among them, or without their end.
fn changed(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut other = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(other.len() as u64) as usize;
        other[at] = random.below(256) as u8;
    }
    if random.below(4) == 0 {
        other.truncate(random.below(other.len() as u64) as usize);
    }
    other
}

/// Bytes of a scan with a few others among them: a plan, or an error.
#[test]
fn no_plan_is_taken_on_trust() {
    if !needs::tools("sql::no_plan_is_taken_on_trust", &["mke2fs"]) {
        return;
    }
    let volume = volume();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let context = session(&volume, true);
    let task = context.task_ctx();
    let mut random = Random::new(0x5ca1_ab1e);
    let (mut taken, mut refused) = (0, 0);
    for query in QUERIES {
        for scan in runtime.block_on(scans(&context, query)) {
            let mut bytes = Vec::new();
            physical().try_encode(scan.clone(), &mut bytes).unwrap();
            let again = physical().try_decode(&bytes, &[], &task).unwrap();
            assert_eq!(shown(&again), shown(&scan), "{query}");
            for _ in 0..400 {
                match physical().try_decode(&changed(&mut random, &bytes), &[], &task) {
                    Ok(plan) => {
                        let _shown = shown(&plan);
                        taken += 1;
                    }
                    Err(_why) => refused += 1,
                }
            }
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
}

/// What a test and libFuzzer begin with (`hostile`): steps and tables as bytes, and tables in words.
fn seeds(volume: &Volume) -> Vec<Vec<u8>> {
    let (drives, options) = (drives(volume), Options { push_down: true, partitions: 2 });
    let tables: [(&str, &[&str]); 7] = [
        ("lines", &["/logs/**"]),
        ("lines", &["/logs/*.log", "binary"]),
        ("csv", &["/t.csv"]),
        ("csv", &["/t.csv", "columns=n,x", "skip-bad"]),
        ("csv", &["/t.csv", "schema=city utf8, \"n\" int64"]),
        ("csv", &["/t.tsv", "no-header", "delimiter=\\t", "quote='"]),
        ("tsv", &["/t.tsv", "no-header", "no-quote"]),
    ];
    let table = |(function, words): (&str, &[&str])| {
        table(&drives, options, function, words.iter().map(|&word| word.to_owned()).collect()).unwrap()
    };
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for table in tables.map(table).into_iter().chain([files(&drives, options)]) {
        let mut bytes = vec![hostile::TABLE];
        logical().try_encode_table_provider(&TableReference::bare("t"), table, &mut bytes).unwrap();
        seeds.push(bytes);
    }
    for (function, words) in tables {
        let lines = [&[function][..], words].concat().join("\n");
        seeds.push([&[hostile::WORDS][..], lines.as_bytes()].concat());
    }
    let (context, runtime) = (session(volume, true), tokio::runtime::Runtime::new().unwrap());
    for query in
        ["select path from files", "select text from lines('/logs/**')", "select n from csv('/t.csv')"]
    {
        for scan in runtime.block_on(scans(&context, query)) {
            let mut bytes = vec![hostile::STEP];
            physical().try_encode(scan, &mut bytes).unwrap();
            seeds.push(bytes);
        }
    }
    seeds
}

/// Tables as bytes and in words, with a few others among them: one that is the same as bytes again, or an
/// error. `NEARSIDE_SEEDS` is a folder in which the seeds are left for libFuzzer.
#[test]
fn no_table_is_taken_on_trust() {
    if !needs::tools("sql::no_table_is_taken_on_trust", &["mke2fs"]) {
        return;
    }
    let seeds = seeds(&volume());
    if let Some(folder) = std::env::var_os("NEARSIDE_SEEDS").map(PathBuf::from) {
        std::fs::create_dir_all(&folder).unwrap();
        for (nth, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{nth}")), seed).unwrap();
        }
    }
    let (mut random, mut taken, mut refused) = (Random::new(0x5ca1_ab1e), 0, 0);
    for seed in &seeds {
        // Rows of a file are of a drive that is not there.
        assert!(hostile::run(seed) || seed[0] == hostile::WORDS);
        for _ in 0..300 {
            match hostile::run(&changed(&mut random, seed)) {
                true => taken += 1,
                false => refused += 1,
            }
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
}

#[test]
fn what_has_no_bytes_is_refused() {
    if !needs::tools("sql::what_has_no_bytes_is_refused", &["mke2fs"]) {
        return;
    }
    let volume = volume();
    let context = session(&volume, true);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cases = [
        (
            "select sum(n) filter (where city = 'Bern') over (partition by x) from csv('/t.csv')",
            "say `case when`",
        ),
        ("select lag(n) ignore nulls over (order by x) from csv('/t.csv')", "say `case when`"),
        ("select n from csv('/t.csv') where n not in (select n from csv('/t.csv') limit 3)", "other rows"),
        (
            "select n from csv('/t.csv') where n not in (select n from csv('/t.csv') where random() < 0.5)",
            "other rows",
        ),
    ];
    runtime.block_on(async {
        for (query, part) in cases {
            let plan = context.sql(query).await.unwrap().into_optimized_plan().unwrap();
            let why = sendable(&plan, &logical(), &context.task_ctx()).unwrap_err();
            assert!(why.to_string().contains(part), "{query}: {why}");
        }
    });
}
