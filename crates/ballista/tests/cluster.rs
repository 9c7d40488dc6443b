//! A cluster of processes: its answers are those of one process, and what fails has a name.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Cursor};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::util::pretty::pretty_format_batches;
use nearside_conformance::{help, needs, volume};
use nearside_sql::program::{Named, Said};
use nearside_sql::{Drives, Options, Way, context};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nearside-ballista");

/// A process that ends with its test.
struct Part {
    process: Child,
    listens: String,
}

impl Part {
    /// Starts a part of a cluster, and waits for the line that says where it listens.
    fn start(listen: &str, said: &Path, words: &[&str]) -> Part {
        let mut command = Command::new(PROGRAM);
        command.args(words).args(["--listen", listen]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(said).unwrap());
        let mut process = command.spawn().unwrap();
        let mut listens = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut listens).unwrap();
        assert!(!listens.is_empty(), "{words:?}: {}", fs::read_to_string(said).unwrap());
        Part { process, listens: listens.trim().to_owned() }
    }

    fn kill(&mut self) {
        let _gone = self.process.kill();
        let _status = self.process.wait();
    }

    /// What it has open: files, and connections.
    fn open(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        all.flatten().filter_map(|one| fs::read_link(one.path()).ok()).collect()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A scheduler, executors, and images to ask.
struct Cluster {
    folder: TempDir,
    at: Ipv4Addr,
    executors: Vec<Part>,
    scheduler: Part,
}

/// The words of an image's drive, asked as a user.
fn drive(image: &Path, user: &str) -> Vec<String> {
    vec![format!("--drive={}", image.display()), format!("--as={user}")]
}

impl Cluster {
    fn new(executors: usize) -> Cluster {
        let (folder, at) = (tempfile::tempdir().unwrap(), needs::loopback());
        let words = ["scheduler", "--verbose", "--executor-timeout", "10"];
        let scheduler = Part::start(&format!("{at}:0"), &folder.path().join("scheduler"), &words);
        let mut cluster = Cluster { folder, at, executors: Vec::new(), scheduler };
        for _ in 0..executors {
            cluster.start();
        }
        cluster
    }

    fn said(&self, nth: usize) -> PathBuf {
        self.folder.path().join(format!("executor-{nth}"))
    }

    /// Where executors keep what their tasks have made.
    fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    /// Starts an executor.
    fn start(&mut self) {
        self.start_at(&format!("{}:0", self.at));
    }

    fn start_at(&mut self, listen: &str) {
        let kept = self.kept();
        fs::create_dir_all(&kept).unwrap();
        let scheduler = ["--scheduler", &self.scheduler.listens];
        let work = ["--tasks", "4", "--work-dir", kept.to_str().unwrap()];
        let words = [&["executor"][..], &scheduler, &work].concat();
        let part = Part::start(listen, &self.said(self.executors.len()), &words);
        self.executors.push(part);
    }

    /// An image with a log and tables, which differ by `nth`.
    fn image(&self, nth: usize) -> PathBuf {
        let tree = self.folder.path().join(format!("tree-{nth}"));
        fs::create_dir_all(tree.join("logs")).unwrap();
        let log: String = (0..500)
            .map(|line| {
                format!("{line} {}\n", if (line + nth).is_multiple_of(50) { "ERROR" } else { "fine" })
            })
            .collect();
        fs::write(tree.join("logs/app.log"), log).unwrap();
        let cities = ["Bern", "Basel", "Genf", "Biel"];
        let row = |n: usize| format!("{},{},{}\n", cities[(n + nth) % 4], n % 17, n as f64 / 4.0);
        let table: String = (0..400).map(row).collect();
        fs::write(tree.join("t.csv"), format!("city,n,x\n{table}")).unwrap();
        fs::write(tree.join("secret.csv"), "city,n,x\nBern,1,1\n").unwrap();
        volume::must(Command::new("chmod").arg("600").arg(tree.join("secret.csv")));
        let image = self.folder.path().join(format!("{nth}.img"));
        volume::ext(&image, 16, Some(&tree), &["-t", "ext4"]);
        image
    }

    /// Asks images in a user's name.
    fn ask(&self, images: &[PathBuf], user: &str, words: &[&str]) -> Output {
        // A query that waits for ever is a fault as well.
        let mut command = Command::new("timeout");
        command.args([
            "--signal=KILL",
            "180",
            PROGRAM,
            "sql",
            "--scheduler",
            &self.scheduler.listens,
            "--as",
            user,
            "--output",
            "arrow",
        ]);
        images.iter().for_each(|image| {
            command.arg("-d").arg(image);
        });
        command.env_remove("NEARSIDE_DRIVE").stdin(Stdio::null()).args(words).output().unwrap()
    }

    #[track_caller]
    fn rows(&self, images: &[PathBuf], words: &[&str]) -> Vec<String> {
        lines(&self.batches(images, words))
    }

    #[track_caller]
    fn batches(&self, images: &[PathBuf], words: &[&str]) -> Vec<RecordBatch> {
        let Output { status, stdout, stderr } = self.ask(images, "0:0", words);
        assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
        let reader = StreamReader::try_new(Cursor::new(stdout), None).unwrap();
        reader.collect::<Result<Vec<_>, _>>().unwrap()
    }

    /// What the scheduler has said.
    fn planned(&self) -> String {
        fs::read_to_string(self.folder.path().join("scheduler")).unwrap()
    }

    /// How many lines of the scheduler's have this.
    fn counted(&self, said: &str) -> usize {
        self.planned().lines().filter(|line| line.contains(said)).count()
    }

    /// Asks, and interrupts that once the scheduler says so of it.
    #[track_caller]
    fn interrupted(&self, images: &[PathBuf], query: &str, once: &str) {
        let (before, given_up) = (self.counted(once), self.counted(" Cancelled"));
        let mut words = vec!["sql", "--scheduler", &self.scheduler.listens, "--as", "0:0"];
        images.iter().for_each(|image| words.extend(["-d", image.to_str().unwrap()]));
        let mut asked = Command::new(PROGRAM);
        asked.args(&words).arg(query).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut asked = asked.spawn().unwrap();
        while self.counted(once) == before {
            assert!(asked.try_wait().unwrap().is_none(), "it ended");
            std::thread::yield_now();
        }
        volume::must(Command::new("kill").args(["-INT", &asked.id().to_string()]));
        let Output { status, stderr, .. } = asked.wait_with_output().unwrap();
        assert_eq!(status.code(), Some(130), "{}", String::from_utf8_lossy(&stderr));
        // The scheduler says so after it has answered.
        while self.counted(" Cancelled") == given_up {
            std::thread::yield_now();
        }
        assert_eq!(self.counted(" Cancelled"), given_up + 1);
    }

    /// What is said of a query that has no answer.
    #[track_caller]
    fn refused(&self, images: &[PathBuf], user: &str, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.ask(images, user, words);
        let said = String::from_utf8_lossy(&stderr).into_owned();
        assert_eq!(status.code(), Some(2), "{words:?}: {said}, {} bytes", stdout.len());
        said
    }
}

/// Waits for what comes by itself.
#[track_caller]
fn wait_for(so: impl Fn() -> bool, said: impl Fn() -> String) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !so() {
        assert!(std::time::Instant::now() < until, "{}", said());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Rows as text, in the order of these.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    sorted(&pretty_format_batches(batches).unwrap().to_string())
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The answer of one process.
fn alone(images: &[PathBuf], query: &str) -> Vec<String> {
    sorted(&in_order(images, query))
}

/// The same as it comes.
fn in_order(images: &[PathBuf], query: &str) -> String {
    let said = Arc::new(Said::default());
    let named = |image: &PathBuf| {
        let name = image.to_str().unwrap();
        Arc::new(Named::found(name, &drive(image, "0:0"), &said).unwrap()) as Arc<dyn Way>
    };
    let drives: Drives = images.iter().map(named).collect();
    let context = context(drives, Arc::default(), Options { push_down: true, partitions: 2 }).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rows = runtime.block_on(async { context.sql(query).await.unwrap().collect().await.unwrap() });
    pretty_format_batches(&rows).unwrap().to_string()
}

const QUERIES: [&str; 33] = [
    "select path, size, kind from files where path like '/logs/%'",
    "select drive, count(*), sum(size) from files group by drive",
    "select line, text from lines('/logs/**') where text like '%ERROR%'",
    "select count(*) from lines('/logs/**')",
    "select city, n from csv('/t.csv') where n > 14 and city <> 'Genf'",
    "select city, count(*), avg(n), sum(x), max(x) from csv('/t.csv') group by city",
    "select drive, city, min(n) from csv('/t.csv') group by drive, city",
    "select count(distinct city) from csv('/t.csv') where x >= 7.5",
    "select city, n, x from csv('/t.csv') order by x desc, n, city limit 5",
    "select a.city, b.text from csv('/t.csv') a join lines('/logs/**') b on a.n = b.line where b.line < 3",
    "with busy as (select city, sum(n) as n from csv('/t.csv') group by city) select * from busy where n > 100",
    // What the bytes of plans, and joins in parts, would have otherwise.
    "select n from csv('/t.csv') where n not in (select line from lines('/logs/**') where text like '%ERROR%')",
    "select n from csv('/t.csv') where n not in (select line from lines('/logs/**') where line > 1000)",
    "select city, n from csv('/t.csv') intersect select city, n from csv('/t.csv') where x > 50",
    "select city, n from csv('/t.csv') except select nullif(city, 'Bern'), n from csv('/t.csv') where x > 3",
    "select a.n, b.x from csv('/t.csv') a join csv('/t.csv') b using (n, drive) where a.x < b.x - 95",
    "select a.line, b.n from lines('/logs/**') a left join csv('/t.csv') b on a.line > b.n + 480 where a.line > 470",
    "select a.line from lines('/logs/**') a where not exists (select 1 from csv('/t.csv') b where b.n * 20 > a.line)",
    "select line from lines('/logs/**') where line > all (select n * 20 from csv('/t.csv'))",
    "select a.n, b.city from csv('/t.csv') a left join (select * from csv('/t.csv') where false) b on a.n = b.n",
    "select n, b.line from (select city from csv('/t.csv') where x = 3.0) a cross join csv('/t.csv') c join lines('/logs/**') b on c.n = b.line where c.x = 1.0",
    "select count(*) from (select city from csv('/t.csv') where x = 3.0) a cross join lines('/logs/**') b where b.line < 3",
    "select text, count(*) from (select text from lines('/logs/**') order by line desc, drive limit 5) group by text",
    "select sum(a.n) from (select n from csv('/t.csv') order by n limit 3) a join lines('/logs/**') b on a.n < b.line - 490",
    "select count(distinct a.n) from (select n, row_number() over () + random() * 0 as n2 from csv('/t.csv')) a cross join files b",
    "select count(distinct a.r) from (select random() as r) a cross join csv('/t.csv') b",
    "select count(*) from csv('/t.csv') a full join csv('/t.csv') b on a.x - 1 = b.x * -1 and a.n = b.n",
    "select a.n, b.x from csv('/t.csv') a left join csv('/t.csv') b using (n, drive) where a.x < 1",
    "select count(n), sum(n) from csv('/t.csv') a full join (values (1, 'x'), (null, 'y')) b(p, q) on a.n > 15",
    "select sum(n) over (partition by n) as s from (select n from csv('/t.csv') order by n limit 6) a",
    "select rank() over (partition by c order by c) as r from (select distinct 'x' as c, n from csv('/t.csv')) a",
    "select make_array(city, 'x'), count(*) from csv('/t.csv') group by city",
    "select city from csv('/t.csv') where n in (select line from lines('/logs/**') where text like '%ERROR%')",
];

fn has_tools(test: &str) -> bool {
    needs::tools(&format!("ballista::{test}"), &["mke2fs"])
}

/// A cluster of so many executors, and images; `None`: the test is left out.
fn with_images(test: &str, executors: usize, images: usize) -> Option<(Cluster, Vec<PathBuf>)> {
    let cluster = has_tools(test).then(|| Cluster::new(executors))?;
    let images = (0..images).map(|nth| cluster.image(nth)).collect();
    Some((cluster, images))
}

#[test]
fn answers_are_those_of_one_process() {
    let Some((cluster, images)) = with_images("answers_are_those_of_one_process", 2, 3) else { return };
    for query in QUERIES {
        let expected = alone(&images, query);
        assert!(expected.len() > 4, "{query}: {expected:?}");
        assert_eq!(cluster.rows(&images, &[query]), expected, "{query}");
        assert_eq!(cluster.rows(&images, &["--no-push-down", query]), expected, "{query}, by rows");
    }
    // In their order, where one is asked for.
    for query in [
        "select x, n from csv('/t.csv') order by x desc, n, city",
        "select n, x from csv('/t.csv') where n > 3 order by x, n, city limit 9 offset 4",
        "select line, rank() over (order by line desc) as r from lines('/logs/**') order by r, line",
    ] {
        let Output { stdout, .. } = cluster.ask(&images, "0:0", &[query]);
        let reader = StreamReader::try_new(Cursor::new(stdout), None).unwrap();
        let rows =
            pretty_format_batches(&reader.collect::<Result<Vec<_>, _>>().unwrap()).unwrap().to_string();
        assert_eq!(rows, in_order(&images, query), "{query}");
    }
    // Of one drive, and of none that is asked.
    let one = &images[..1];
    assert_eq!(cluster.rows(one, &[QUERIES[5]]), alone(one, QUERIES[5]));
    assert_eq!(cluster.rows(one, &["select 1 + 1 as two"]), alone(one, "select 1 + 1 as two"));
    let limited = cluster.rows(&images, &["select line from lines('/logs/**') limit 7"]);
    assert_eq!(limited.len(), 7 + 4, "{limited:?}");
}

#[test]
fn drives_do_what_they_do_without_a_cluster() {
    let Some((cluster, images)) = with_images("drives_do_what_they_do_without_a_cluster", 1, 2) else {
        return;
    };
    let query = "explain select city, count(*) from csv('/t.csv') where n > 3 group by city";
    let plan = cluster.rows(&images, &[query]).join("\n");
    for part in ["InDrive: drives=2, csv /t.csv, group-by=[city], aggregate=[count(*)", "where=n > 3"] {
        assert!(plan.contains(part), "{part} in {plan}");
    }
    let plan = cluster.rows(&images, &["--no-push-down", query]).join("\n");
    assert!(plan.contains("InDrive") && !plan.contains("group-by=[city]"), "{plan}");
    let shown = cluster.rows(&images, &["show tables"]).join("\n");
    assert!(shown.contains("files"), "{shown}");
    let counted =
        cluster.rows(&images, &["explain analyze select count(*) from lines('/logs/**')"]).join("\n");
    assert!(counted.contains("InDrive") && counted.contains("output_rows"), "{counted}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let Some((cluster, images)) = with_images("what_cannot_be_read_is_said", 2, 2) else { return };
    let query = "select count(*) as n from csv('/*.csv')";
    let said = cluster.refused(&images, "1000:1000", &[query]);
    assert!(said.contains("0.img: /secret.csv") || said.contains("1.img: /secret.csv"), "{said}");
    let Output { status, stdout, .. } = cluster.ask(&images, "1000:1000", &["--leave-out", query]);
    assert!(status.success());
    let reader = StreamReader::try_new(Cursor::new(stdout), None).unwrap();
    let counted = lines(&reader.collect::<Result<Vec<_>, _>>().unwrap()).join("\n");
    assert!(counted.contains("| 800 |"), "{counted}");
    let said: String = (0..2).map(|nth| fs::read_to_string(cluster.said(nth)).unwrap()).collect();
    for image in &images {
        let left = format!("{}: /secret.csv: ", image.display());
        assert!(said.contains(&left), "{left} in {said}");
    }
    // A drive at whose address nobody listens.
    let gone = PathBuf::from("nvme+tcp://127.0.0.1:1/nqn.2026-11.example:gone/1");
    let with_gone = [images[0].clone(), gone];
    let said = cluster.refused(&with_gone, "0:0", &["--ctrl-loss-tmo", "0", "select count(*) from files"]);
    assert!(said.starts_with("nearside: nvme+tcp://127.0.0.1:1/nqn.2026-11.example:gone/1: "), "{said}");
    assert!(cluster.planned().contains("failed 4 times"), "{}", cluster.planned());
    let said = cluster.refused(&images, "0:0", &["create table t as select 1"]);
    assert!(said.contains("DDL"), "{said}");
    // What was made for queries that have failed keeps nothing from answering others.
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), alone(&images, QUERIES[5]));
}

#[test]
fn an_executor_that_is_gone_is_done_without() {
    let Some((mut cluster, images)) = with_images("an_executor_that_is_gone_is_done_without", 2, 4) else {
        return;
    };
    let expected = alone(&images, QUERIES[5]);
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), expected);
    cluster.executors[0].kill();
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), expected);
    // Another comes, and does without the second as well.
    cluster.start();
    cluster.executors[1].kill();
    assert_eq!(cluster.rows(&images, &[QUERIES[2]]), alone(&images, QUERIES[2]));
}

/// One that was killed comes back to its address, where the scheduler looks for it by its old name as well.
#[test]
fn an_executor_that_comes_back_is_asked_again() {
    let Some((mut cluster, images)) = with_images("an_executor_that_comes_back_is_asked_again", 1, 4) else {
        return;
    };
    let expected = alone(&images, QUERIES[5]);
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), expected);
    for nth in 0..2 {
        cluster.executors[nth].kill();
        let listens = cluster.executors[nth].listens.clone();
        cluster.start_at(&listens);
        assert_eq!(cluster.executors[nth + 1].listens, listens);
        assert_eq!(cluster.rows(&images, &[QUERIES[5]]), expected);
    }
    assert_eq!(cluster.rows(&images, &[QUERIES[2]]), alone(&images, QUERIES[2]));
}

/// One that hangs, and then dies, with tasks of a query's: others do them.
#[test]
fn an_executor_that_dies_at_work_is_done_without() {
    let Some((mut cluster, images)) = with_images("an_executor_that_dies_at_work_is_done_without", 2, 4)
    else {
        return;
    };
    let expected = alone(&images, QUERIES[5]);
    let signal = |part: &Part, signal: &str| {
        volume::must(Command::new("kill").args([signal, &part.process.id().to_string()]));
    };
    signal(&cluster.executors[0], "-STOP");
    let rows = std::thread::scope(|scope| {
        let asked = scope.spawn(|| cluster.rows(&images, &[QUERIES[5]]));
        while !cluster.planned().contains("Planned job") {
            std::thread::yield_now();
        }
        signal(&cluster.executors[0], "-KILL");
        asked.join().unwrap()
    });
    assert_eq!(rows, expected);
    // And one that hangs without an end.
    cluster.start();
    signal(&cluster.executors[2], "-STOP");
    assert_eq!(cluster.rows(&images, &[QUERIES[2]]), alone(&images, QUERIES[2]));
}

/// A text of so many bytes that LZ4 does not make shorter: of four letters it finds no like that is near.
fn incompressible(bytes: u32) -> String {
    let letters: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').chain(['-', '_']).collect();
    let letters = &letters[..];
    let word = |nth: u32| {
        let bits = nth.wrapping_mul(0x9e37_79b1) >> 8;
        (0..4u32).map(move |at| letters[(bits >> (6 * at)) as usize & 63])
    };
    (0..bytes / 4).flat_map(word).collect()
}

/// Ballista's own bound of a message is 16 MiB: a row that is longer passes, and so does a plan.
#[test]
fn what_is_longer_than_ballistas_messages_passes() {
    let Some((cluster, images)) = with_images("what_is_longer_than_ballistas_messages_passes", 1, 2) else {
        return;
    };
    let (tree, image) = (cluster.folder.path().join("long"), cluster.folder.path().join("long.img"));
    let line = incompressible(20 << 20);
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("line"), &line).unwrap();
    volume::ext(&image, 64, Some(&tree), &["-t", "ext4"]);
    let batches = cluster.batches(&[image], &["select text from lines('/line')"]);
    let texts = batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten());
    assert!(texts.collect::<Vec<_>>() == [&*line], "another text");
    // The text is in the plan before it is sent.
    let query = "select count(*) from csv('/t.csv') where city <> repeat('x', 17000000)";
    let counted = cluster.rows(&images, &[query]).join("\n");
    assert!(counted.contains("| 800 "), "{counted}");
}

/// Whatever came of a query, what its tasks made for each other goes.
#[test]
fn nothing_of_a_query_is_left() {
    let Some((mut cluster, images)) = with_images("nothing_of_a_query_is_left", 2, 3) else { return };
    // Another's, beside the executors' own.
    let other = cluster.kept().join("other");
    fs::create_dir(&other).unwrap();
    let files = |at: &Path| {
        let mut folders = vec![at.to_owned()];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    _ => found.push(entry.path()),
                }
            }
        }
        found
    };
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), alone(&images, QUERIES[5]));
    cluster.refused(&images, "0:0", &["select sum(n / (n - n)) from csv('/t.csv') group by city"]);
    wait_for(|| files(&cluster.kept()).is_empty(), || format!("{:?}", files(&cluster.kept())));
    let said: Vec<_> = (0..cluster.executors.len()).map(|nth| cluster.said(nth)).collect();
    for (executor, said) in cluster.executors.iter_mut().zip(said) {
        volume::must(Command::new("kill").args(["-TERM", &executor.process.id().to_string()]));
        let status = executor.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", fs::read_to_string(said).unwrap());
    }
    let left: Vec<_> = fs::read_dir(cluster.kept()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [other]);
}

/// A query that no executor can read, and one whose step panics, are errors, and keep nothing from others.
#[test]
fn a_bad_query_is_alone() {
    let Some((cluster, images)) = with_images("a_bad_query_is_alone", 1, 2) else { return };
    let deep = format!("select max(n{}) from csv('/t.csv')", " + 1".repeat(60));
    let said = cluster.refused(&images, "0:0", &[&deep]);
    assert_eq!(said.trim(), "nearside: a part of this query is nested too deep to be sent to a cluster");
    let said = cluster.refused(&images, "0:0", &["select n / (n - n) from csv('/t.csv')"]);
    assert!(said.contains("DivideByZero") && !said.contains("DataFusionError"), "{said}");
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), alone(&images, QUERIES[5]));
}

/// A step that panics is an error with a name, of its query alone, and its executor goes on.
#[test]
fn a_step_that_panics_is_an_error() {
    let test = "a_step_that_panics_is_an_error";
    // DataFusion asks for a length that no number has room for, which panics where sums are watched.
    if !cfg!(debug_assertions) {
        return needs::left_out(&format!("ballista::{test}"), "sums without room do not panic in this build");
    }
    let Some((mut cluster, images)) = with_images(test, 1, 2) else { return };
    let long = "repeat(city, 4611686018427387904)";
    for query in [
        format!("select {long} from csv('/t.csv')"),
        format!("select {long} as l, count(*) from csv('/t.csv') group by l"),
    ] {
        let said = cluster.refused(&images, "0:0", &[&query]);
        assert!(said.starts_with("nearside: a step of this query has panicked"), "{query}: {said}");
    }
    let said = fs::read_to_string(cluster.said(0)).unwrap();
    assert!(said.contains("panicked at"), "{said}");
    assert!(cluster.executors[0].process.try_wait().unwrap().is_none());
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), alone(&images, QUERIES[5]));
}

/// A query that nobody waits for is given up, and its tasks make room for others'.
#[test]
fn a_query_that_is_interrupted_is_given_up() {
    let Some((cluster, images)) = with_images("a_query_that_is_interrupted_is_given_up", 1, 4) else {
        return;
    };
    let long =
        "select count(*) from csv('/t.csv') a, csv('/t.csv') b, csv('/t.csv') c where a.n + b.n + c.n < 0";
    cluster.interrupted(&images, long, "Planned job");
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), alone(&images, QUERIES[5]));
}

/// One that nobody begins is, too, before it is planned and behind that: who comes then is not given it.
#[test]
fn a_query_that_waits_for_executors_is_given_up() {
    let Some((mut cluster, images)) = with_images("a_query_that_waits_for_executors_is_given_up", 0, 2)
    else {
        return;
    };
    cluster.interrupted(&images, QUERIES[2], " queued with name ");
    cluster.interrupted(&images, QUERIES[2], "Planned job");
    cluster.start();
    assert_eq!(cluster.rows(&images, &[QUERIES[5]]), alone(&images, QUERIES[5]));
    // All were planned, and one was done.
    let said = cluster.planned();
    let done = said.lines().filter(|line| line.ends_with(" success")).count();
    assert_eq!((cluster.counted("Planned job"), done), (3, 1), "{said}");
}

/// What a query has open in a scheduler and in executors is closed with it, however many there are.
#[test]
fn many_queries_leave_nothing_open() {
    let Some((cluster, images)) = with_images("many_queries_leave_nothing_open", 2, 2) else { return };
    let expected = alone(&images, QUERIES[5]);
    let ask_ten = || {
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| assert_eq!(cluster.rows(&images, &[QUERIES[5]]), expected));
            }
        });
    };
    let parts = || cluster.executors.iter().chain([&cluster.scheduler]);
    let drives = || {
        let all = parts().flat_map(Part::open).collect::<Vec<_>>();
        all.into_iter().filter(|file| file.extension().is_some_and(|end| end == "img")).collect::<Vec<_>>()
    };
    let counted = || parts().map(|part| part.open().len()).collect::<Vec<_>>();
    ask_ten();
    wait_for(|| drives().is_empty(), || format!("{:?}", drives()));
    let before = counted();
    (0..4).for_each(|_| ask_ten());
    wait_for(|| drives().is_empty(), || format!("{:?}", drives()));
    // One for each of forty queries would be more than what parts have with each other.
    let grown = || counted().iter().zip(&before).any(|(now, before)| *now > before + 10);
    wait_for(|| !grown(), || format!("{before:?} open, and then {:?}", counted()));
}

/// One name for all drives of a server, of which each is asked.
#[test]
fn a_discovery_service_is_all_its_drives() {
    let test = "a_discovery_service_is_all_its_drives";
    let nearside = Path::new(PROGRAM).with_file_name("nearside");
    if !nearside.is_file() {
        let why = "the command is not built beside it (cargo test --workspace)";
        return needs::left_out(&format!("ballista::{test}"), why);
    }
    let Some((cluster, images)) = with_images(test, 2, 2) else { return };
    let mut server = Command::new(nearside);
    server.args(["serve", "--read-only", "--trust", "--listen"]).arg(format!("{}:0", needs::loopback()));
    images.iter().for_each(|image| {
        server.arg("--store").arg(image);
    });
    let mut process = server.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(process.stdout.take().unwrap()).lines();
    let _server = Part { process, listens: String::new() };
    let named = said.map(Result::unwrap).filter(|line| line.starts_with("nvme+tcp://")).take(2);
    let names: Vec<PathBuf> = named.map(|line| line.split(": ").next().unwrap().into()).collect();
    let at = names[0].to_str().unwrap().split('/').nth(2).unwrap();
    let service = [PathBuf::from(format!("discover:{at}"))];
    for query in [QUERIES[1], QUERIES[5]] {
        assert_eq!(cluster.rows(&service, &[query]), alone(&names, query), "{query}");
    }
    let said = cluster.refused(&[PathBuf::from("discover:127.0.0.1:1")], "0:0", &[QUERIES[1]]);
    assert_eq!(said, "nearside: discover:127.0.0.1:1: connecting: Connection refused\n");
}

/// The example starts servers and a cluster, asks them, and says that a server has gone.
#[test]
fn the_example_is_a_fleet() {
    let Some(mut command) = example("the_example_is_a_fleet", &["--drives", "4"]) else { return };
    let said = String::from_utf8(volume::must(&mut command).stdout).unwrap();
    for part in [
        "ERROR in the logs of 4 drives",
        "rows of 4 drives",
        "Basel",
        "a drive that has gone is said: nearside: nvme+tcp://",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

/// Where the example and what it starts is; `None`: the test is left out.
fn example(test: &str, words: &[&str]) -> Option<Command> {
    let nearside = Path::new(PROGRAM).with_file_name("nearside");
    if !has_tools(test) || !needs::tools(&format!("ballista::{test}"), &["python3"]) {
        return None;
    }
    if !nearside.is_file() {
        needs::left_out(test, "the command is not built beside it (cargo test --workspace)");
        return None;
    }
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/examples/fleet.py"));
    command.args(["--engine", "ballista", "--executors", "2", "--lines", "2000"]).args(words);
    command.arg("--nearside").arg(nearside).args(["--nearside-ballista", PROGRAM]);
    Some(command)
}

/// It measures in rounds: all drives together, each alone, and what CPU time that takes each.
#[test]
fn the_example_measures_a_fleet() {
    let words = ["--drives", "3", "--json", "--rounds", "2", "--delayed", "perkib=10ms,units=1"];
    let Some(mut command) = example("the_example_measures_a_fleet", &words) else { return };
    let said = String::from_utf8(volume::must(&mut command).stdout).unwrap();
    let (together, rest) = said.split_once("\"alone\": ").expect(&said);
    let (alone, busy) = rest.split_once("\"busy\": ").expect(&said);
    let numbers = |text: &str| -> Vec<f64> {
        text.split([' ', ',', '[', ']', '}', '\n']).filter_map(|word| word.parse().ok()).collect()
    };
    let counts = [together, alone, busy].map(|part| numbers(part).len());
    assert_eq!((counts, alone.matches('[').count()), ([2, 6, 3], 4), "{said}");
    // A table of 2,000 lines has over 20 KiB, of which each takes a drive's medium 10 ms.
    assert!([together, alone].iter().all(|part| numbers(part).iter().all(|took| *took > 0.2)), "{said}");
}

/// What it has started ends with it, however it ends.
#[test]
fn nothing_of_the_example_outlives_it() {
    let test = "nothing_of_the_example_outlives_it";
    let words = ["--drives", "2", "--json", "--rounds", "1000000"];
    let Some(mut command) = example(test, &words) else { return };
    let folder = tempfile::tempdir().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).env("TMPDIR", folder.path());
    let mut fleet = Part { process: command.spawn().unwrap(), listens: String::new() };
    // Behind the name: the state, and the parent (proc_pid_stat(5)).
    let stat = |process: u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let mut words = stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?.parse::<u32>().ok()?))
    };
    let started = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        all.filter(|one| stat(*one).is_some_and(|(_, parent)| parent == fleet.process.id()))
            .collect::<Vec<u32>>()
    };
    // Two servers, a scheduler, two executors.
    wait_for(|| started().len() >= 5, || format!("{:?}", started()));
    let all = started();
    fleet.kill();
    let live = || {
        let live = |one: &&u32| stat(**one).is_some_and(|(state, _)| state != "Z");
        all.iter().filter(live).count()
    };
    wait_for(|| live() == 0, || format!("{} of {all:?}", live()));
}

#[test]
fn each_example_of_the_help_is_a_line() {
    help::examples_are_whole(PROGRAM, "  nearside-ballista ");
}

#[test]
fn names_and_addresses_are_looked_at() {
    let run = |words: &[&str]| {
        let Output { status, stderr, .. } = Command::new(PROGRAM).args(words).output().unwrap();
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    };
    let at = needs::loopback();
    let cases: [(&[&str], &str); 5] = [
        (&["sql", "--scheduler", "nowhere", "-d", "x", "select 1"], "HOST:PORT"),
        (
            &["sql", "--scheduler", "127.0.0.1:1", "-d", "/no/such", "select count(*) from csv('/t.csv')"],
            "/no/such",
        ),
        (&["executor", "--scheduler", "a b:1"], "is no host"),
        (&["scheduler", "--listen", "0.0.0.0:0"], "--external-host"),
        (&["sql", "-d", "x", "select 1"], "--scheduler"),
    ];
    for (words, part) in cases {
        let (code, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
    let taken = std::net::TcpListener::bind((at, 0)).unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let (code, said) = run(&["scheduler", "--listen", &listen]);
    assert!(code == Some(2) && said.contains(&listen) && said.contains("in use"), "{said}");
}
