//! What a server shows by HTTP: numbers that are what was done, read by readers nobody here wrote; a page in
//! a real browser; and peers that mean ill.

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_conformance::{browser, needs};
use nearside_driver::tcp::{Address, Association, Initiator, Options};
use nearside_driver::{Command, Failure, Policy};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{Ran, nearside};
use crate::serve::Served;

pub const NQN: &str = "nqn.2026-11.example:shown";
/// A host that would like to be more than a name.
const ODD: &str = "nqn.2026-11.example:\"} 1 <img src=x onerror=alert(1)>\\&amp;";

/// A server with its page, and where that is.
pub fn shown<'a>(folder: &'a TempDir, more: &[&str]) -> (Served<'a>, String) {
    let control = folder.path().join("control.sock");
    let least = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--subsystem", NQN];
    let words = [&least[..], &["--control", control.to_str().unwrap()], more].concat();
    let mut served = Served::start(folder.path(), &words, "");
    let mut line = String::new();
    while !line.starts_with("what it does: http://") {
        line.clear();
        assert_ne!(served.out.read_line(&mut line).unwrap(), 0, "no page");
    }
    let address = line.trim().trim_start_matches("what it does: http://").trim_end_matches('/').to_owned();
    (served, address)
}

/// A host with a queue.
pub fn connect(served: &Served<'_>, name: &str) -> Initiator<TscClock> {
    connect_with(&served.address, Options::for_host(name).unwrap())
}

/// The same, with what it says and how long it waits.
pub fn connect_with(address: &str, options: Options) -> Initiator<TscClock> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let (host, port) = (host.to_owned(), port.parse().unwrap());
    let address = Address { host, port, subsystem: NQN.into(), nsid: None };
    let controller = Association::connect(&address, options, Arc::new(TscClock::new())).unwrap();
    controller.initiator(4, Policy::Interrupt, TscClock::new()).unwrap()
}

/// What is answered to these bytes, to its end.
pub fn ask(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut said = Vec::new();
    // Who is refused may not get rid of all.
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

fn get(address: &str, path: &str) -> String {
    let said = ask(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

/// Reads OpenMetrics as Prometheus's own client for Python does; fails at what is none, and at what has no
/// help.
const READER: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
samples = []
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation, family.name
    samples += [[s.name, s.labels, s.value] for s in family.samples]
json.dump(samples, sys.stdout)
";

/// The system's own: its packages bring what is read with.
const PYTHON: &str = "/usr/bin/python3";

/// A program that is given a text.
fn given(mut program: Program, text: &str) -> Ran {
    let mut child =
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writes = std::thread::spawn(move || _ = to.write_all(text.as_bytes()));
    let ran = Ran::from(child.wait_with_output().unwrap());
    writes.join().unwrap();
    ran
}

/// Whether the readers are there.
fn readers(test: &str) -> bool {
    if !needs::tools(test, &["promtool"]) {
        return false;
    }
    let import = Program::new(PYTHON).args(["-c", "import prometheus_client"]).output();
    let there = import.is_ok_and(|import| import.status.success());
    if !there {
        needs::left_out(test, "no prometheus_client for Python");
    }
    there
}

/// Samples by name and labels.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn samples(address: &str) -> Samples {
    let mut reader = Program::new(PYTHON);
    reader.args(["-c", READER]);
    let ran = given(reader, &get(address, "/metrics"));
    let list: Vec<(String, BTreeMap<String, String>, f64)> =
        serde_json::from_str(&ran.good()).unwrap_or_else(|e| panic!("{e}"));
    list.into_iter().map(|(name, labels, value)| ((name, labels), value)).collect()
}

/// The sample of that name and those labels beside the subsystem's.
fn sample(all: &Samples, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().chain(&[("subsystem", NQN)]);
    let key = (name.to_owned(), labels.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    all.get(&key).copied().unwrap_or_else(|| panic!("{key:?} is not among {:#?}", all.keys()))
}

#[test]
fn the_numbers_are_what_was_done() {
    if !readers("command::the_numbers_are_what_was_done") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (served, address) = shown(&folder, &["--store", "dram:1MiB", "--store", "dram:1MiB"]);
    let mut hosts = [connect(&served, ODD), connect(&served, "nqn.2026-11.example:plain")];
    let mut run = |host: usize, command: Command, len: Option<usize>| {
        let done = hosts[host].execute(&command, len.map(|len| vec![7; len])).unwrap();
        done.outcome.map(drop)
    };
    for nth in 0..100 {
        run(0, Command::read(1, nth, 8), Some(4096)).unwrap();
        run(nth as usize % 2, Command::write(2, nth, 16), Some(8192)).unwrap();
    }
    run(1, Command::flush(2), None).unwrap();
    for _ in 0..5 {
        let refused = run(0, Command::read(1, 1 << 40, 8), Some(4096));
        assert!(matches!(refused, Err(Failure::Status(_))), "{refused:?}");
    }
    // The last one is counted once it is answered.
    let flushes = [("nsid", "2"), ("operation", "flush")];
    let all = loop {
        let all = samples(&address);
        if all.keys().any(|(_, labels)| labels.get("operation").is_some_and(|of| of == "flush")) {
            break all;
        }
    };
    let there = |name: &str, labels: &[(&str, &str)]| sample(&all, name, labels);
    let [one, two] = [("nsid", "1"), ("nsid", "2")];
    let (odd, plain) = (("host", ODD), ("host", "nqn.2026-11.example:plain"));
    let [read, write] = [("operation", "read"), ("operation", "write")];
    for (labels, count, bytes) in [
        ([one, read], 100.0, 409_600.0),
        ([two, write], 100.0, 819_200.0),
        ([odd, read], 100.0, 409_600.0),
        ([odd, write], 50.0, 409_600.0),
        ([plain, write], 50.0, 409_600.0),
        (flushes, 1.0, 0.0),
    ] {
        let of = if labels[0].0 == "nsid" { "namespace" } else { "host" };
        assert_eq!(there(&format!("nearside_{of}_response_seconds_count"), &labels), count, "{labels:?}");
        assert_eq!(there(&format!("nearside_{of}_moved_bytes_total"), &labels), bytes, "{labels:?}");
        // Each took some time, and none longer than the test.
        let mean = there(&format!("nearside_{of}_response_seconds_sum"), &labels) / count;
        assert!(mean > 0.0 && mean < 3600.0, "{labels:?}: {mean}");
    }
    for (labels, failed) in [(one, 5.0), (two, 0.0)] {
        assert_eq!(there("nearside_namespace_commands_failed_total", &[labels]), failed);
    }
    assert_eq!(there("nearside_host_commands_failed_total", &[odd]), 5.0);
    assert_eq!(there("nearside_controllers", &[odd]), 1.0);

    // A near-data command, by what it does.
    let mut info = nearside();
    info.args(["info", "-d", &format!("nvme+tcp://{}/{NQN}/1", served.address), "--hostnqn", plain.1]);
    info.output().unwrap();
    let all = samples(&address);
    let of_info = |name: &str| {
        let labels = BTreeMap::from([("operation".to_owned(), "info".to_owned())]);
        all[&(format!("nearside_near_data_{name}"), labels)]
    };
    assert!(of_info("commands_ended_total") > 0.0 && of_info("command_seconds_total") > 0.0);
    assert_eq!(of_info("commands_running"), 0.0);

    // By itself the page's file says the same, and names are as they are.
    let state: Value = serde_json::from_str(&get(&address, "/status.json")).unwrap();
    let told = state["traffic"]["hosts"].as_array().unwrap();
    let told = told.iter().find(|host| host["host"] == ODD).unwrap();
    assert_eq!(told["asked"]["operations"][0]["commands"], 100);
    promtool(&get(&address, "/metrics"));
}

/// Has promtool check the names and the help of all that there is. It reads Prometheus's older text, where a
/// counter's family has the name of its sample, and no family has a unit.
fn promtool(text: &str) {
    let kinds: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut older = String::new();
    for line in text.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let total = line.starts_with("# ") && kinds.get(words[2]) == Some(&"counter");
        older += &match total {
            true => format!("# {} {}_total {}\n", words[1], words[2], words[3]),
            false => format!("{line}\n"),
        };
    }
    let mut promtool = Program::new("promtool");
    promtool.args(["check", "metrics"]);
    let ran = given(promtool, &older);
    assert!(ran.code == 0, "{} {}", ran.text(), ran.err);
}

/// The server's threads.
fn threads(served: &Served<'_>) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", served.server.id())).unwrap().count()
}

#[test]
fn peers_that_mean_ill_neither_hang_it_nor_grow_it() {
    let folder = tempfile::tempdir().unwrap();
    let (served, address) = shown(&folder, &["--store", "dram:1MiB"]);
    let mut host = connect(&served, "nqn.2026-11.example:host");
    let before = threads(&served);
    let mut reads = || {
        let read = host.execute(&Command::read(1, 0, 8), Some(vec![0; 4096])).unwrap();
        assert_eq!(read.outcome, Ok(0));
    };
    let field = |name: &str, len: usize| format!("GET / HTTP/1.1\r\n{name}: {}\r\n\r\n", "a".repeat(len));
    let fields = "X: y\r\n".repeat(1000);
    for (asked, status) in [
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("\0\u{1}\u{2}\r\n\r\n".into(), "400"),
        ("GET / HTTP/9.9\r\n\r\n".into(), "400"),
        (field("X", 1 << 20), "431"),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)), "431"),
        (format!("GET / HTTP/1.1\r\n{fields}\r\n"), "431"),
        ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello".into(), "405"),
        ("DELETE /status.json HTTP/1.1\r\n\r\n".into(), "405"),
        ("GET /../../etc/passwd HTTP/1.1\r\n\r\n".into(), "404"),
        ("GET /control HTTP/1.1\r\n\r\n".into(), "404"),
        // Another's name for this machine, by which a page of that other reads here.
        ("GET /status.json HTTP/1.1\r\nHost: example.com\r\n\r\n".into(), "421"),
    ] {
        let said = ask(&address, asked.as_bytes());
        // A peer that goes on to send when it was answered may lose the answer.
        let lost = said.is_empty() && asked.len() > 4096;
        assert!(lost || said.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {said}");
        reads();
    }
    // Who may connect or has limits, and hosts' identifiers, are for the control socket.
    let state: Value = serde_json::from_str(&get(&address, "/status.json")).unwrap();
    assert_eq!(state["hosts"][0]["host_nqn"], "nqn.2026-11.example:host");
    assert!(state["hosts"][0].get("host_id").is_none(), "{state}");
    let subsystem = &state["subsystems"][0];
    let kept = ["hosts", "limits"].iter().all(|key| subsystem.get(key).is_none());
    assert!(subsystem["nqn"] == NQN && kept, "{state}");

    let said = ask(&address, b"HEAD / HTTP/1.1\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200 OK") && said.ends_with("\r\n\r\n"), "{said}");
    assert!(said.contains("default-src 'none'") && said.contains("sha256-"), "{said}");

    // Half a request each, and nothing more: others are answered, and so are hosts.
    let half = |_| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nX: ");
        stream
    };
    let silent: Vec<TcpStream> = (0..200).map(half).collect();
    // While those that gave way are still ending, there may be no room.
    let page = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
    while !ask(&address, page.as_bytes()).contains("<title>Nearside</title>") {
        reads();
    }
    // Eight are answered at a time; those that gave way need not have ended yet.
    while threads(&served) > before + 9 {
        reads();
    }
    drop(silent);
    assert!(get(&address, "/metrics").ends_with("# EOF\n"));
    reads();
}

#[test]
fn the_page_shows_a_server_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let (served, address) = shown(&folder, &["--store", "dram:1MiB"]);
    let mut host = connect(&served, ODD);
    for _ in 0..1000 {
        host.execute(&Command::read(1, 0, 8), Some(vec![0; 4096])).unwrap().outcome.unwrap();
    }
    // A host that was not let in is a warning, and its name is its own.
    let mut refused = TcpStream::connect(&served.address).unwrap();
    refused.write_all(&[0xff; 128]).unwrap();
    let _ = refused.read(&mut [0; 128]);
    let test = "command::the_page_shows_a_server_that_works";
    let words = &[ODD, NQN, "memory", "Recent errors"];
    let Some(shown) = browser::shows_at(test, &format!("http://{address}/"), folder.path(), words) else {
        return;
    };
    assert_eq!((shown.pictures, shown.tables), (2, 6));
}

/// Beyond this machine it takes a word.
#[test]
fn a_page_that_others_reach_needs_a_word() {
    let check = |more: &[&str]| {
        let mut check = nearside();
        let words = ["serve", "--check", "--store", "dram:1MiB", "--allow-host", NQN, "--http", "0.0.0.0"];
        check.args(words).args(more);
        Ran::from(check.output().unwrap())
    };
    let refused = check(&[]);
    assert!(
        refused.code == 2 && refused.err.contains("0.0.0.0:9421 is beyond this machine"),
        "{}",
        refused.err
    );
    assert!(check(&["--open"]).good().contains("no fault"));
}
