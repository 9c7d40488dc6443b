//! The dashboard's queries, asked of a real Prometheus that asks a real server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use nearside_conformance::needs;
use nearside_driver::Command;
use serde_json::Value;

use crate::fixture::{Ran, nearside, small};
use crate::insight::{NQN, ask, connect, shown};

/// One that looks at one server each second; dropped, it ends.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    fn start(folder: &Path, server: &str) -> Prometheus {
        let file = folder.join("prometheus.yml");
        let job = format!("{{job_name: nearside, static_configs: [{{targets: ['{server}']}}]}}");
        fs::write(&file, format!("global: {{scrape_interval: 1s}}\nscrape_configs: [{job}]\n")).unwrap();
        let mut program = Program::new("prometheus");
        program.arg(format!("--config.file={}", file.display()));
        program.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
        program.args(["--web.listen-address=127.0.0.1:0", "--log.format=json"]);
        let mut child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = |what: &str| {
            let mut lines = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
            lines.find(|line| line["msg"] == what).unwrap_or_else(|| panic!("it does not say: {what}"))
        };
        let address = said("Listening on")["address"].as_str().unwrap().to_owned();
        said("Server is ready to receive web requests.");
        // What it says later has somewhere to go.
        std::thread::spawn(move || lines.for_each(drop));
        Prometheus { child, address }
    }

    /// The series that answer a query: how each is labelled, and its value.
    fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let form: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let asked = format!("GET /api/v1/query?query={form} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        let said = ask(&self.address, asked.as_bytes());
        let (_, body) = said.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {said}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let value = |one: &Value| one["value"][1].as_str().unwrap().parse().unwrap();
        let series = answer["data"]["result"].as_array().unwrap();
        series.iter().map(|one| (one["metric"].clone(), value(one))).collect()
    }

    /// The same, asked until there is an answer.
    fn awaited(&self, query: &str) -> Vec<(Value, f64)> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let found = self.query(query);
            if !found.is_empty() {
                return found;
            }
            assert!(Instant::now() < until, "no answer to {query}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each panel's title and query, with what Grafana puts into it.
fn queries() -> Vec<(String, String)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana.dashboard.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let all = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "1m").replace("$subsystem", ".*");
            (panel["title"].as_str().unwrap().to_owned(), query)
        })
    });
    all.collect()
}

/// Prometheus takes what the server shows, and answers each query of the dashboard from it, with what was
/// done.
#[test]
fn the_dashboard_shows_what_was_done() {
    if !needs::tools("command::the_dashboard_shows_what_was_done", &["prometheus"]) {
        return;
    }
    let Some(volume) = small("command::the_dashboard_shows_what_was_done") else { return };
    let folder = tempfile::tempdir().unwrap();
    // Others have the volume's own.
    let image = folder.path().join("ext4.img");
    fs::copy(&volume.image, &image).unwrap();
    let (served, address) = shown(&folder, &["--store", &format!("file:{}", image.display())]);
    let prometheus = Prometheus::start(folder.path(), &address);
    let mut host = connect(&served, "nqn.2026-11.example:host");
    let drive = format!("nvme+tcp://{}/{NQN}/1", served.address);
    let mut grep = nearside();
    grep.args(["grep", "-d", &drive, "-rc", "ERROR", "/logs"]);
    // From before the first command on, so that what follows is an increase.
    prometheus.awaited("nearside_namespace_size_bytes");
    for _ in 0..100 {
        host.execute(&Command::read(1, 0, 8), Some(vec![0; 4096])).unwrap().outcome.unwrap();
    }
    Ran::from(grep.output().unwrap()).good();
    prometheus.awaited("nearside_host_response_seconds_count{operation=\"read\"} >= 100");
    prometheus.awaited("nearside_near_data_commands_ended_total > 0");

    let queries = queries();
    assert!(queries.len() >= 10, "{queries:?}");
    let found: Vec<_> = queries.iter().map(|(title, query)| (title, prometheus.awaited(query))).collect();
    println!("{found:#?}");
}
