//! `bandwidth` and `near-data-cpu` of the file of `nearside serve`, over the network, and changed while it
//! serves. Each is held from the side that no machine's noise touches: what went on took no less time than
//! the limit gives for it. That nobody else waits is seen by what had to wait, and by who is still at it.

use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearside_clock::{Clock, TscClock};
use serde_json::Value;

use crate::fixture::{Ran, Volume, nearside, small};
use crate::insight;
use crate::serve::Served;

const NQN: &str = "nqn.2026-11.example:limited";
/// A host that the file names, and one that it does not.
const SLOW: &str = "nqn.2026-11.example:slow";
const FREE: &str = "nqn.2026-11.example:free";
/// A hundredth of a second.
const PERCENT_NS: u64 = 10_000_000;

/// The host finds and reads the file: all that moves are blocks.
const LARGE_BY_BLOCKS: [&str; 5] = ["/large", "--locate", "host", "--compute", "host"];
/// What is searched near the data.
const SCAN: [&str; 4] = ["-rn", "ERROR", "/logs", "/large"];

/// Nanoseconds that so much takes at least at so much a second, of which a tenth of a second's worth may
/// come at once.
fn least_ns(amount: u64, a_second: u64) -> u64 {
    amount.saturating_sub(a_second / 10) * 1_000_000_000 / a_second
}

/// What was done, and in how many nanoseconds.
fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let begun = TscClock::new().now();
    let done = work();
    (done, TscClock::new().now().since(begun))
}

/// A server that has one volume as two namespaces.
struct Limited<'a> {
    served: Served<'a>,
    control: PathBuf,
    /// Where its metrics are.
    shown: String,
}

impl Limited<'_> {
    /// With the limits of namespace 1 and those of [`SLOW`]; namespace 2 and other hosts have none.
    fn start<'a>(folder: &'a Path, volume: &Volume, first: &str, slow: &str) -> Limited<'a> {
        let image = volume.image.display();
        let text = format!(
            "listen = ['127.0.0.1:0']\nhttp = '127.0.0.1:0'\ncontrol = 'control.sock'\n\
             near-data-threads = 1\n[[subsystem]]\nnqn = '{NQN}'\nidentity = 'trust'\n\
             [[subsystem.host]]\nnqn = '{SLOW}'\n{slow}\n\
             [[subsystem.namespace]]\nnsid = 1\nstore = 'file:{image}'\nread-only = true\n{first}\n\
             [[subsystem.namespace]]\nnsid = 2\nstore = 'file:{image}'\nread-only = true\n"
        );
        let config = folder.join("serve.toml");
        fs::write(&config, text).unwrap();
        let mut served = Served::start(folder, &["--config", config.to_str().unwrap()], "");
        let mut lines = (&mut served.out).lines();
        let page = lines.find_map(|line| Some(line.unwrap().strip_prefix("what it does: ")?.to_owned()));
        let page = page.expect("the server says where its page is");
        let shown = page.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Limited { served, control: folder.join("control.sock"), shown }
    }

    /// `nearside WORDS --control ITS-SOCKET`.
    fn ask(&self, words: &[&str]) -> Ran {
        let mut ask = nearside();
        ask.args(words).arg("--control").arg(&self.control);
        Ran::from(ask.output().unwrap())
    }

    #[track_caller]
    fn limit(&self, words: &[&str]) {
        self.ask(&[&["control", "limit"][..], words].concat()).good();
    }

    /// A command on a namespace, as a host.
    fn command(&self, name: &str, nsid: usize, host: &str, words: &[&str]) -> Command {
        let drive = format!("nvme+tcp://{}/{NQN}/{nsid}", self.served.address);
        let mut command = nearside();
        command.args(name.split(' ')).args(["-d", drive.as_str(), "--hostnqn", host]).args(words);
        command
    }

    #[track_caller]
    fn run(&self, name: &str, nsid: usize, host: &str, words: &[&str]) -> Vec<u8> {
        let ran = Ran::from(self.command(name, nsid, host, words).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name} {words:?}");
        ran.out
    }

    /// What the metrics count under these labels; `None` where they have none.
    fn count(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let get = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.shown);
        let said = insight::ask(&self.shown, get.as_bytes());
        let labels: String = labels.iter().map(|(label, value)| format!(",{label}=\"{value}\"")).collect();
        let sample = format!("nearside_{name}_total{{subsystem=\"{NQN}\"{labels}}} ");
        said.lines().find_map(|line| line.strip_prefix(sample.as_str())).map(|value| value.parse().unwrap())
    }

    /// Commands of a host that had to wait.
    fn waited(&self, host: &str) -> Option<f64> {
        self.count("host_commands_throttled", &[("host", host)])
    }

    fn near_data(&self, nsid: usize) -> Value {
        let mut status = self.ask(&["status", "--json"]).json().remove(0);
        status["subsystems"][0]["namespaces"][nsid - 1]["near_data"].take()
    }

    /// Nanoseconds of all slices of near-data work, and of the longest.
    fn slices(&self, nsid: usize) -> (u64, u64) {
        let near_data = self.near_data(nsid);
        let places = near_data["slices"].as_array().unwrap();
        let all = |key: &'static str| places.iter().map(move |place| place[key].as_u64().unwrap());
        (all("slices_ns").sum(), all("worst_slice_ns").max().unwrap_or(0))
    }

    /// Scans, alone on a namespace, until half of what a second's share gives is used up: it takes no less
    /// than that share lets it, and the answer is the same.
    #[track_caller]
    fn share_holds(&self, nsid: usize, host: &str, percent: u64, answer: &str) {
        let (a_second, clock) = (percent * PERCENT_NS, TscClock::new());
        let (before, begun) = (self.slices(nsid).0, clock.now());
        let mut used = 0;
        while used < a_second / 2 {
            assert!(self.run("grep", nsid, host, &SCAN) == answer.as_bytes(), "another answer");
            let took = clock.now().since(begun);
            let (total, worst) = self.slices(nsid);
            // Nobody waits for what the last slice took, which may be the longest.
            used = (total - before).saturating_sub(worst);
            assert!(took >= least_ns(used, a_second), "{used} ns at {percent} percent, in {took} ns");
        }
    }
}

#[test]
fn a_namespaces_bandwidth_is_held_and_counted() {
    let Some(volume) = small("a_namespaces_bandwidth_is_held_and_counted") else { return };
    let folder = tempfile::tempdir().unwrap();
    let limited = Limited::start(folder.path(), volume, "bandwidth = '8MiB'", "bandwidth = '1MiB'");
    let large = fs::read(volume.tree.join("large")).unwrap();
    let of = |nsid, name: &str| limited.count(&format!("namespace_{name}"), &[("nsid", nsid)]);
    // Near the data it costs nothing of what a namespace or a host may move.
    assert!(limited.run("cat", 1, SLOW, &["/large"]) == large);
    assert_eq!((limited.waited(SLOW), of("1", "commands_throttled")), (Some(0.0), Some(0.0)));

    let (read, took) = timed(|| limited.run("cat", 1, FREE, &LARGE_BY_BLOCKS));
    assert!(read == large && took >= least_ns(large.len() as u64, 8 << 20), "{took} ns");
    assert!(of("1", "commands_throttled") > Some(0.0) && of("1", "throttled_seconds") > Some(0.0));
    // The same host where there is no limit.
    assert!(limited.run("cat", 2, FREE, &LARGE_BY_BLOCKS) == large);
    assert_eq!(of("2", "commands_throttled"), Some(0.0));

    // The server's own user is told the same, of each limit.
    let (commands, seconds) = (of("1", "commands_throttled"), of("1", "throttled_seconds"));
    let (commands, seconds) = (commands.unwrap(), seconds.unwrap());
    let status = limited.ask(&["status", "--json"]).json().remove(0);
    let [of_namespace, of_host] = [0, 1].map(|nth: usize| &status["subsystems"][0]["limits"][nth]);
    let ns = of_namespace["throttled_ns"].as_u64().unwrap();
    assert!((ns as f64 / 1e9 - seconds).abs() < 1e-6, "{ns} ns, {seconds} s");
    let expected = |nsid: Value, host: Value, bandwidth: u64, throttled: u64, ns: u64| {
        serde_json::json!({
            "nsid": nsid, "host": host, "iops": null, "bandwidth": bandwidth, "near_data_cpu": null,
            "throttled": throttled, "throttled_ns": ns,
        })
    };
    assert_eq!(*of_namespace, expected(1.into(), Value::Null, 8 << 20, commands as u64, ns));
    assert_eq!(*of_host, expected(Value::Null, SLOW.into(), 1 << 20, 0, 0));
    let text = limited.ask(&["status"]).good();
    let line = format!("  limit of namespace 1: 8388608 bytes a second; {commands} commands have waited, ");
    assert!(text.contains(&line), "{text}");
    let line =
        format!("  limit of host {SLOW}: 1048576 bytes a second; 0 commands have waited, 0 ns in all\n");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn a_hosts_bandwidth_is_of_all_its_namespaces() {
    let Some(volume) = small("a_hosts_bandwidth_is_of_all_its_namespaces") else { return };
    let folder = tempfile::tempdir().unwrap();
    let limited = Limited::start(folder.path(), volume, "", "bandwidth = '1MiB'");
    let large = fs::read(volume.tree.join("large")).unwrap();
    let bench = |nsid: usize, runtime: &str| {
        let words = ["--bs", "64k", "--iodepth", "4", "--runtime", runtime];
        let mut bench = limited.command("bench run", nsid, SLOW, &words);
        bench.current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap()
    };
    let ((), took) = timed(|| {
        let both = [1, 2].map(|nsid| bench(nsid, "1s"));
        both.into_iter().for_each(|mut run| assert!(run.wait().unwrap().success()));
    });
    // At least: the last command is counted once it is answered.
    let reads = [("host", SLOW), ("operation", "read")];
    let bytes = || limited.count("host_moved_bytes", &reads).unwrap() as u64;
    let (moved, waited) = (bytes(), limited.waited(SLOW).unwrap());
    assert!(moved > 0 && waited > 0.0 && took >= least_ns(moved, 1 << 20), "{moved} bytes in {took} ns");

    // Another host reads a file twice while it goes on, and has more of it.
    let mut beside = bench(1, "3600s");
    while limited.waited(SLOW).unwrap_or(0.0) < waited + 8.0 {
        assert!(beside.try_wait().unwrap().is_none(), "the host ended");
    }
    let before = bytes();
    for nsid in [1, 2] {
        assert!(limited.run("cat", nsid, FREE, &LARGE_BY_BLOCKS) == large);
    }
    let meanwhile = bytes() - before;
    assert!(meanwhile < 2 * large.len() as u64, "{meanwhile} bytes");
    assert_eq!(limited.waited(FREE), Some(0.0));
    assert!(beside.try_wait().unwrap().is_none(), "the host ended");
    beside.kill().unwrap();
    beside.wait().unwrap();
}

#[test]
fn bandwidth_changes_while_hosts_wait_for_it() {
    let Some(volume) = small("bandwidth_changes_while_hosts_wait_for_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let limited = Limited::start(folder.path(), volume, "", "bandwidth = '128KiB'");
    let large = fs::read(volume.tree.join("large")).unwrap();
    let (ran, took) = timed(|| {
        let mut cat = limited.command("cat", 1, SLOW, &LARGE_BY_BLOCKS);
        let mut cat = cat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Once it has waited, the rest of the file is to come.
        while limited.waited(SLOW).unwrap_or(0.0) < 1.0 {
            assert!(cat.try_wait().unwrap().is_none(), "it ended");
        }
        limited.limit(&["host", SLOW]);
        Ran::from(cat.wait_with_output().unwrap())
    });
    assert!(ran.code == 0 && ran.out == large, "{}", ran.err);
    // By the limit that it began with it would still be at it: a minute and a half.
    assert!(took < least_ns(large.len() as u64, 128 << 10), "{took} ns");

    limited.limit(&["namespace", "2", "--bandwidth", "8MiB"]);
    let shown = limited.ask(&["control", "show"]).good();
    assert!(shown.contains("bandwidth = \"8MiB\"") && !shown.contains("128KiB"), "{shown}");
    let (read, took) = timed(|| limited.run("cat", 2, FREE, &LARGE_BY_BLOCKS));
    assert!(read == large && took >= least_ns(large.len() as u64, 8 << 20), "{took} ns");
    limited.limit(&["namespace", "2"]);
    let waited = limited.waited(FREE);
    assert!(waited > Some(0.0) && limited.run("cat", 2, FREE, &LARGE_BY_BLOCKS) == large);
    assert_eq!(limited.waited(FREE), waited);
}

#[test]
fn near_data_work_has_its_share_and_answers_the_same() {
    let Some(volume) = small("near_data_work_has_its_share_and_answers_the_same") else { return };
    let answer = volume.run("grep", &SCAN).good();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // Sixteen processors hold up no thread. What it took so: a share by which that takes about a second.
    let alone = Limited::start(folders[0].path(), volume, "near-data-cpu = 1600", "");
    assert!(alone.run("grep", 1, FREE, &SCAN) == answer.as_bytes());
    let percent = (alone.slices(1).0 / PERCENT_NS).clamp(1, 100);
    let share = format!("near-data-cpu = {percent}");
    let limited = Limited::start(folders[1].path(), volume, &share, &share);
    limited.share_holds(1, FREE, percent, &answer);
    limited.share_holds(2, SLOW, percent, &answer);
    // By the control socket, for commands that come from then on.
    limited.limit(&["host", SLOW]);
    limited.limit(&["namespace", "2", "--near-data-cpu", &percent.to_string()]);
    limited.share_holds(2, FREE, percent, &answer);

    // A host with little of a processor and much to do is still at it when another is done, and ends once
    // it has no limit: by that it would be at it for a hundred times what it took of the processor.
    limited.limit(&["namespace", "2"]);
    limited.limit(&["host", SLOW, "--near-data-cpu", "1"]);
    let (before, clock) = (limited.slices(2).0, TscClock::new());
    let begun = clock.now();
    let much = [&["-c", "ERROR"][..], &["/large"; 1000]].concat();
    let mut slow = limited.command("grep", 2, SLOW, &much).stdout(Stdio::null()).spawn().unwrap();
    while limited.near_data(2)["tasks"] == 0 {
        assert!(slow.try_wait().unwrap().is_none(), "it ended");
    }
    assert!(limited.run("grep", 2, FREE, &SCAN) == answer.as_bytes());
    assert!(slow.try_wait().unwrap().is_none(), "it ended");
    limited.limit(&["host", SLOW]);
    // There is nothing to find.
    assert_eq!(slow.wait().unwrap().code(), Some(1));
    let (took, used) = (clock.now().since(begun), limited.slices(2).0 - before);
    assert!(took < least_ns(used, PERCENT_NS), "{used} ns in {took} ns");
    assert!(limited.waited(SLOW) > Some(0.0));
}

#[test]
fn a_limit_that_is_none_is_refused_where_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let check = |slow: &str, namespace: &str| {
        let text = format!(
            "listen = ['127.0.0.1:0']\n[[subsystem]]\nnqn = '{NQN}'\n[[subsystem.host]]\nnqn = '{SLOW}'\n\
             {slow}\n[[subsystem.namespace]]\nnsid = 1\nstore = 'dram:1MiB'\n{namespace}\n"
        );
        fs::write(folder.path().join("serve.toml"), text).unwrap();
        let mut check = nearside();
        check.current_dir(folder.path()).args(["serve", "--check", "--config", "serve.toml"]);
        let ran = Ran::from(check.output().unwrap());
        assert_eq!((ran.code, ran.text().as_str()), (2, ""), "{slow} {namespace}: {}", ran.err);
        ran.err
    };
    for (limit, why) in [
        ("bandwidth = '0'", "\"0\" is no size in bytes"),
        ("bandwidth = '1.5MiB'", "\"1.5MiB\" is no size in bytes"),
        ("bandwidth = 5", "expected a string"),
        ("near-data-cpu = -1", "expected u64"),
    ] {
        for (line, said) in [(6, check(limit, "")), (10, check("", limit))] {
            let place = format!("serve.toml: TOML parse error at line {line}, ");
            let quoted = said.contains(&format!("\n{line} | {limit}\n"));
            assert!(quoted && said.contains(&place) && said.contains(why), "{limit}: {said}");
        }
    }
    // A number, and none that it can be: every fault, by whose it is.
    for (limit, why) in [
        ("bandwidth = '1025TiB'", "bandwidth 1126999418470400; it can be 1 to 1125899906842624"),
        ("near-data-cpu = 0", "near-data-cpu 0; it can be 1 to 1600"),
    ] {
        let said = check(limit, limit);
        let of = |whose: &str| said.contains(&format!("{NQN}: {whose}: {why}\n"));
        assert!(of(SLOW) && of("namespace 1") && said.lines().count() == 2, "{limit}: {said}");
    }
}
