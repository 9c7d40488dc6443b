//! Drives that a discovery service lists, as the command serves them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nearside_conformance::needs;
use tempfile::TempDir;

use crate::fixture::{Volume, ext4, run};

/// The host that may connect.
const HOST: &str = "nqn.2026-11.example:web";
/// The subsystems.
const A: &str = "nqn.2026-11.example:a";
const B: &str = "nqn.2026-11.example:b";

/// A server of three namespaces of two subsystems at two addresses, each of which is a discovery service's.
struct Served {
    server: Child,
    /// What discovery tells of, HOST:PORT.
    told: Vec<String>,
    /// HOST:PORT that it listens at first.
    first: String,
    _folder: TempDir,
    _volumes: [Volume; 3],
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.server.kill();
        let _status = self.server.wait();
    }
}

/// A volume with a table of so many rows.
fn volume(rows: usize) -> Volume {
    ext4(|tree| fs::write(tree.join("t.csv"), format!("n\n{}", "1\n".repeat(rows))).unwrap())
}

impl Served {
    /// With more lines of its file; `None`: the test is left out.
    fn start(test: &str, more: &str) -> Option<Served> {
        let test = format!("sql::{test}");
        let command = Path::new(env!("CARGO_BIN_EXE_nearside-sql")).with_file_name("nearside");
        if !needs::tools(&test, &["mke2fs"]) {
            return None;
        }
        if !command.is_file() {
            needs::left_out(&test, "the command is not built beside it (cargo test --workspace)");
            return None;
        }
        let (folder, volumes) = (tempfile::tempdir().unwrap(), [1, 2, 3].map(volume));
        let subsystem =
            |nqn| format!("[[subsystem]]\nnqn = '{nqn}'\nidentity = 'trust'\nallow-hosts = ['{HOST}']\n");
        let namespace = |nsid: u32, volume: &Volume| {
            let image = volume.image.display();
            format!("[[subsystem.namespace]]\nnsid = {nsid}\nstore = 'file:{image}'\nread-only = true\n")
        };
        let (one, two) = (needs::loopback(), needs::loopback());
        let file = [
            format!("listen = ['{one}:0', '{two}:0']\ncontrol = 'control.sock'\n{more}\n"),
            subsystem(A),
            namespace(1, &volumes[0]),
            namespace(3, &volumes[1]),
            subsystem(B),
            namespace(1, &volumes[2]),
        ];
        let config = folder.path().join("serve.toml");
        fs::write(&config, file.concat()).unwrap();
        let mut server = Command::new(command);
        server.args(["serve", "--config"]).arg(config).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let (mut told, mut names) = (Vec::new(), Vec::new());
        while names.len() < 3 {
            let line = lines.next().expect("the server says its drives' names").unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["nvme", "connect", "-t", "tcp", "-a", host, "-s", port, "-n", A, ..] => {
                    told.push(format!("{host}:{port}"));
                }
                _ if line.starts_with("nvme+tcp://") => names.push(line.clone()),
                _ => {}
            }
        }
        let first = names[0].split('/').nth(2).unwrap().to_owned();
        assert_eq!(told.len(), 2);
        Some(Served { server, told, first, _folder: folder, _volumes: volumes })
    }
}

/// Drives, as the name of each, and how many rows it has.
#[track_caller]
fn asked(drives: &[&str]) -> Vec<String> {
    let query = "select drive, count(*) as n from csv('/t.csv') group by drive";
    let mut words = vec!["--hostnqn", HOST, query];
    drives.iter().for_each(|drive| words.extend(["-d", *drive]));
    let (code, out, err) = run(&words);
    assert_eq!((code, &*err), (0, ""), "{words:?}");
    let mut rows: Vec<String> = out.lines().skip(1).map(str::to_owned).collect();
    rows.sort();
    rows
}

/// What there is no answer for.
#[track_caller]
fn refused(words: &[&str]) -> String {
    let (code, out, err) = run(&[words, &["select 1"]].concat());
    assert_eq!((code, &*out), (2, ""), "{words:?}: {err}");
    err
}

/// The drives of a server by addresses of its two subsystems.
fn all(a: &str, b: &str) -> [String; 3] {
    let mut all = [
        format!("nvme+tcp://{a}/{A}/1,1"),
        format!("nvme+tcp://{a}/{A}/3,2"),
        format!("nvme+tcp://{b}/{B}/1,3"),
    ];
    all.sort();
    all
}

#[test]
fn a_service_is_all_namespaces_that_it_lists() {
    let Some(served) = Served::start("a_service_is_all_namespaces_that_it_lists", "") else { return };
    let (first, second) = (&served.told[0], &served.told[1]);
    let [one, two] = [first, second].map(|at| format!("discover:{at}"));
    // By the address that it lists first, whichever was asked, and once.
    assert_eq!(asked(&[&one]), all(first, first));
    assert_eq!(asked(&[&two]), all(first, first));
    assert_eq!(asked(&[&one, &two]), all(first, first));
    // What is named by itself has that name.
    let own = format!("nvme+tcp://{second}/{B}/1");
    assert_eq!(asked(&[&one, &own]), all(first, second));
    // Who may not connect is told of nothing.
    let said = refused(&["-d", &one, "--hostnqn", "nqn.2026-11.example:other"]);
    assert_eq!(said, format!("nearside: {one}: no namespace over TCP for this host\n"));
    assert!(refused(&["-d", &one, "-d", &one]).contains("named twice"));
    let said = refused(&["-d", "discover:127.0.0.1:1"]);
    assert_eq!(said, "nearside: discover:127.0.0.1:1: connecting: Connection refused\n");
    assert_eq!(refused(&["-d", "discover:"]), "nearside: discover:: \"\" is no HOST:PORT\n");
    let said = refused(&["-d", &one, "--hostnqn", HOST, "--dhchap-key-file", "/no/key"]);
    assert!(said.contains("/no/key: "), "{said}");
}

/// Nobody listens where discovery says.
#[test]
fn the_next_address_is_asked_where_one_is_gone() {
    let test = "the_next_address_is_asked_where_one_is_gone";
    let Some(served) = Served::start(test, "advertise = ['127.0.0.1:1']") else { return };
    assert_eq!(served.told[0], "127.0.0.1:1");
    let (service, second) = (format!("discover:{}", served.first), &served.told[1]);
    assert_eq!(asked(&[&service]), all(second, second));
    let Some(served) = Served::start(test, "advertise = ['127.0.0.1:1', '127.0.0.1:2']") else { return };
    let service = format!("discover:{}", served.first);
    let refusal = |port| format!("nvme+tcp://127.0.0.1:{port}/{A}: connecting: Connection refused");
    let said = refused(&["-d", &service, "--hostnqn", HOST]);
    assert_eq!(said, format!("nearside: {service}: {}; {}\n", refusal(1), refusal(2)));
}
