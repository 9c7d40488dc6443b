//! The file of `nearside serve`, what is said of it, and the signals of a server that runs.

use std::fs;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nearside_conformance::needs;
use serde_json::Value;

use crate::fixture::{Ran, nearside};

/// A server that was told a folder, which has its control socket.
pub struct Served<'a> {
    pub server: Child,
    /// What it prints after its first drive.
    pub out: BufReader<ChildStdout>,
    folder: &'a Path,
    /// HOST:PORT.
    pub address: String,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Served<'_> {
    /// `nearside serve WORDS`, called from elsewhere.
    pub fn start<'a>(folder: &'a Path, words: &[&str], notify: &str) -> Served<'a> {
        let mut server = nearside();
        server.arg("serve").args(words);
        Served::by(folder, server, notify)
    }

    /// The same by a command line that is made already.
    pub fn by<'a>(folder: &'a Path, mut server: Command, notify: &str) -> Served<'a> {
        server.current_dir("/").env_remove("NEARSIDE_LOG").env("NOTIFY_SOCKET", notify);
        let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(server.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("nvme+tcp://") {
            line.clear();
            if out.read_line(&mut line).unwrap() == 0 {
                let mut why = String::new();
                server.stderr.take().unwrap().read_to_string(&mut why).unwrap();
                panic!("the server ended: {why}");
            }
        }
        let address = line.trim_start_matches("nvme+tcp://").split('/').next().unwrap().to_owned();
        Served { server, out, folder, address }
    }

    fn status(&self) -> Value {
        let mut status = nearside();
        status.args(["status", "--json", "--control"]).arg(self.folder.join("control.sock"));
        Ran::from(status.output().unwrap()).json().remove(0)
    }

    /// What was refused may be known to its host before it is counted.
    fn until_count(&self, name: &str, count: u64) {
        let begun = Instant::now();
        while self.status()[name].as_u64().unwrap() < count {
            assert!(begun.elapsed() < Duration::from_secs(60), "{name}: {count}");
        }
        assert_eq!(self.status()[name], count);
    }

    /// Whether a host is told of a subsystem.
    fn admits(&self, host: &str) -> bool {
        let mut discover = nearside();
        let found = discover.args(["discover", &self.address, "--hostnqn", host]).output().unwrap();
        let found = Ran::from(found);
        let none = found.out.is_empty();
        assert_eq!((found.code, found.err.contains("no subsystem for this host")), (i32::from(none), none));
        found.text().contains("nqn.2026-11.example:a")
    }

    pub fn signal(&self, signal: &str) {
        let id = self.server.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Ends it; what it has logged.
    pub fn end(mut self) -> String {
        self.signal("-TERM");
        let mut log = String::new();
        self.server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(self.server.wait().unwrap().code(), Some(0), "{log}");
        log
    }
}

/// What the service manager is told next; a server that tells it nothing more fails the test.
pub fn told(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let mut bytes = [0; 4096];
    let len = manager.recv(&mut bytes).expect("the manager is told something");
    String::from_utf8(bytes[..len].to_vec()).unwrap()
}

const WEB: &str = "nqn.2026-11.example:web";
const BACKUP: &str = "nqn.2026-11.example:backup";

/// A file with the host that is admitted, and more before the subsystem.
fn file(host: &str, more: &str) -> String {
    format!(
        "listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\n{more}\n[[subsystem]]\n\
         nqn = 'nqn.2026-11.example:a'\nallow-hosts = ['{host}']\n\
         [[subsystem.namespace]]\nnsid = 1\nstore = 'file:disk.img'\n"
    )
}

#[test]
fn sighup_has_the_file_read_again_and_ends_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("disk.img"), vec![0; 1 << 20]).unwrap();
    fs::write(at("serve.toml"), file(WEB, "")).unwrap();
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    let config = at("serve.toml");
    let words = ["--config", config.to_str().unwrap()];
    let served = Served::start(folder.path(), &words, at("notify").to_str().unwrap());
    assert_eq!(told(&manager), "READY=1\nSTATUS=serving nqn.2026-11.example:a");
    assert_eq!([served.admits(WEB), served.admits(BACKUP)], [true, false]);

    let drive = format!("nvme+tcp://{}/nqn.2026-11.example:a/1", served.address);
    let mut host = nearside();
    host.args(["bench", "run", "-d", &drive, "--iodepth", "1", "--runtime", "3600s", "--hostnqn", WEB]);
    let mut host = host.current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap();
    // It came once, and would not be let in again.
    let mut reads_on = |more: u64| {
        let commands = || served.status()["commands"].as_u64().unwrap();
        let before = commands();
        while commands() < before + more {
            assert!(host.try_wait().unwrap().is_none(), "the host ended");
        }
    };
    reads_on(2_000);

    fs::write(at("serve.toml"), file(BACKUP, "log = 'info'\nthreads = 2")).unwrap();
    served.signal("-HUP");
    assert_eq!(told(&manager), "RELOADING=1\nSTATUS=reading its file again");
    assert_eq!(told(&manager), "READY=1\nSTATUS=serving nqn.2026-11.example:a");
    assert_eq!([served.admits(WEB), served.admits(BACKUP)], [false, true]);
    reads_on(500);

    fs::write(at("serve.toml"), file(WEB, "threads = 'many'")).unwrap();
    served.signal("-HUP");
    assert!(told(&manager).starts_with("RELOADING=1\n"));
    let said = told(&manager);
    assert!(said.starts_with("READY=1\nSTATUS=nothing is changed: ") && said.lines().count() == 2, "{said}");
    assert_eq!([served.admits(WEB), served.admits(BACKUP)], [false, true]);
    reads_on(500);

    host.kill().unwrap();
    host.wait().unwrap();
    let log = served.end();
    assert!(told(&manager).starts_with("STOPPING=1\nSTATUS="));
    for line in [
        " WARN SIGHUP: threads: as it was until a restart\n",
        " INFO SIGHUP: the file is read again\n",
        "ERROR SIGHUP: nothing is changed: ",
        "threads = 'many'",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    assert_eq!(log.matches("as it was until").count(), 1, "{log}");
}

/// Memory and programs are there beside the disk, and stay as they are until the server ends.
#[test]
fn a_compute_namespace_outlives_sighup() {
    const TWO: &str = "[[subsystem.namespace]]\nnsid = 2\nstore = 'dram:1MiB'\n";
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("disk.img"), vec![0; 1 << 20]).unwrap();
    let file = |bytes: &str, more: &str| {
        let compute = format!("[[subsystem.compute]]\nnsid = 3\nmemory-nsid = 2\nmemory = '{bytes}'\n");
        fs::write(at("serve.toml"), file(WEB, "programs = true") + &compute + more).unwrap();
    };
    file("64KiB", "");
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    let config = at("serve.toml");
    let words = ["--config", config.to_str().unwrap()];
    let mut served = Served::start(folder.path(), &words, at("notify").to_str().unwrap());
    assert!(told(&manager).starts_with("READY=1\n"));
    let mut lines = [String::new(), String::new()];
    lines.iter_mut().for_each(|line| _ = served.out.read_line(line).unwrap());
    let of = "of nqn.2026-11.example:a: ";
    let said = [
        format!("namespace 2 {of}65536 bytes of memory for programs\n"),
        format!("namespace 3 {of}programs\n"),
    ];
    assert_eq!(lines, said);
    let namespaces = |served: &Served<'_>| {
        let status = served.status();
        let namespaces = status["subsystems"][0]["namespaces"].as_array().unwrap().clone();
        let of = |namespace: &Value| {
            (namespace["nsid"].clone(), namespace["commands"].clone(), namespace["bytes"].clone())
        };
        namespaces.iter().map(of).collect::<Vec<_>>()
    };
    let before = namespaces(&served);
    let commands: Vec<&str> = before.iter().filter_map(|(_, commands, _)| commands.as_str()).collect();
    assert_eq!(commands, ["blocks", "memory", "programs"]);
    // More memory is for the next time; a namespace beside it comes.
    file("128KiB", "[[subsystem.namespace]]\nnsid = 9\nstore = 'dram:1MiB'\n");
    served.signal("-HUP");
    assert!(told(&manager).starts_with("RELOADING=1\n"));
    assert!(told(&manager).starts_with("READY=1\n"));
    let after = namespaces(&served);
    assert_eq!((&after[..3], after.len()), (&before[..], 4));
    // So does its number: no other namespace takes it.
    fs::write(at("serve.toml"), self::file(WEB, "programs = true") + TWO).unwrap();
    served.signal("-HUP");
    assert!(told(&manager).starts_with("RELOADING=1\n"));
    assert!(told(&manager).starts_with("READY=1\n"));
    assert_eq!(namespaces(&served), after);
    let log = served.end();
    let said = "compute of subsystem nqn.2026-11.example:a: as it was until a restart";
    assert!(log.contains("namespace 2"), "{log}");
    assert!(log.contains(said), "{log}");

    // Who runs programs says so.
    let mut server = nearside();
    let refused =
        Ran::from(server.args(["serve", "--store", "dram:1MiB", "--compute", "64KiB"]).output().unwrap());
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("a compute namespace runs programs: --programs"), "{}", refused.err);
}

#[test]
fn a_server_without_a_file_outlives_sighup_and_tells_a_manager_with_an_abstract_name() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("nearside-test-{}", folder.path().display());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    let control = folder.path().join("control.sock");
    let words = ["--store", "dram:1MiB", "--listen", "127.0.0.1:0", "--control", control.to_str().unwrap()];
    let served = Served::start(folder.path(), &words, &format!("@{name}"));
    assert!(told(&manager).starts_with("READY=1\nSTATUS=serving nqn."));
    served.signal("-HUP");
    assert!(told(&manager).starts_with("RELOADING=1\n"));
    assert!(told(&manager).starts_with("READY=1\nSTATUS=serving nqn."));
    assert_eq!(served.status()["subsystems"].as_array().unwrap().len(), 1);
    let log = served.end();
    assert!(log.contains("SIGHUP: nothing is read again: it was started without --config"), "{log}");
    assert!(told(&manager).starts_with("STOPPING=1\n"));
}

/// What is printed is the same server, wherever the file lies; and it prints itself.
#[test]
fn what_is_printed_is_the_same_server() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).unwrap();
    let printed = |within: &Path, words: &[&str]| {
        let mut print = nearside();
        print.current_dir(within).args(["serve", "--print-config"]).args(words);
        Ran::from(print.output().unwrap()).good()
    };
    let flags = [
        &["--store", "disk.img", "--store", "dram:disk.img", "--store", "dram:1MiB", "--squash", "7:8"][..],
        &["--listen", "127.0.0.1:0", "--control", "control.sock", "--allow-host", WEB, "--read-only"],
        &["--vfio-user", "vm.sock", "--vfio-user-doorbells", "mapped", "--near-data-threads", "1"],
        &["--programs", "--compute", "64KiB"],
    ]
    .concat();
    let text = printed(folder.path(), &flags);
    let file = other.path().join("printed.toml");
    fs::write(&file, &text).unwrap();
    let words = ["--config", file.to_str().unwrap()];
    assert_eq!(printed(Path::new("/"), &words), text);
    let served = |words: &[&str], within: &Path| {
        let mut server = nearside();
        server.current_dir(within).arg("serve").args(words);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut status = nearside();
        status.args(["status", "--json", "--control"]).arg(folder.path().join("control.sock"));
        let status = Ran::from(status.output().unwrap()).json().remove(0);
        server.kill().unwrap();
        server.wait().unwrap();
        let mut subsystems = status["subsystems"].clone();
        let namespaces = subsystems[0]["namespaces"].as_array_mut().unwrap();
        // What has happened is no part of what is served.
        namespaces.iter_mut().for_each(|namespace| _ = namespace["near_data"].take());
        // The system chose the port.
        let ports = subsystems[0]["ports"].as_array_mut().unwrap();
        ports.iter_mut().for_each(|port| _ = port["listen"].take());
        (subsystems, status["functions"].clone())
    };
    let by_flags = served(&flags, folder.path());
    assert_eq!(by_flags.0[0]["namespaces"].as_array().unwrap().len(), 5, "{by_flags:?}");
    assert_eq!(served(&words, Path::new("/")), by_flags);
}

/// The names of a folder's files, and what they hold.
fn held(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read =
        |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap())).collect();
    all.sort();
    all
}

#[test]
fn a_file_is_checked_in_whole_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let check = || {
        let mut check = nearside();
        check.current_dir("/").args(["serve", "--check", "--config"]).arg(at("serve.toml"));
        Ran::from(check.output().unwrap())
    };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.example.toml");
    fs::copy(example, at("serve.toml")).unwrap();
    for image in ["disk.img", "golden.img"] {
        fs::write(at(image), vec![0; 1 << 20]).unwrap();
    }
    for key in ["web.key", "disks.key"] {
        Ran::from(nearside().args(["key", "generate", "--out"]).arg(at(key)).output().unwrap()).good();
    }
    Ran::from(nearside().args(["key", "generate", "--tls", "--out"]).arg(at("web.tls")).output().unwrap())
        .good();
    let before = held(folder.path());
    assert!(check().good().ends_with("serve.toml: no fault\n"));
    assert_eq!(held(folder.path()), before);

    fs::write(at("short.img"), "short").unwrap();
    fs::write(at("disk.log"), "a log").unwrap();
    fs::write(at("control.sock"), "no socket").unwrap();
    fs::write(
        at("serve.toml"),
        "listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\nthreads = 17\n[[subsystem]]\n\
         nqn = 'nqn.2026-11.example:a'\nnear-data-socket = 'absent/near.sock'\n\
         namespace = [\n{ nsid = 1, store = 'absent.img' }, { nsid = 2, store = 'short.img' },\n\
         { nsid = 3, store = 'file:disk.img', log-writes = 'disk.log' }, { nsid = 4, store = 'model:odd:1MiB' },\n\
         { nsid = 5, store = 'delayed:10us:disk.img', read-only = true }, { nsid = 6, store = '.' },\n\
         { nsid = 7, store = 'dram:1000' } ]\n",
    )
    .unwrap();
    let before = held(folder.path());
    let ran = check();
    assert_eq!((ran.code, ran.text().as_str()), (2, ""));
    let faults = [
        "17 threads; it can be 1 to 16".to_owned(),
        format!("namespace 1 of nqn.2026-11.example:a: {}: No such file", at("absent.img").display()),
        "short.img: it has 5 bytes: not one block".into(),
        "disk.log: it exists".into(),
        "namespace 4 of nqn.2026-11.example:a: store \"model:odd:1MiB\": \"odd\" is no model".into(),
        "disk.img: another namespace has that file, and one of them writes it".into(),
        "neither a regular file nor a block device".into(),
        "1000 bytes are not whole blocks of 512".into(),
        "control.sock: it exists and is no socket".into(),
        format!("near.sock: {}: No such file", at("absent").display()),
    ];
    for fault in &faults {
        assert_eq!(ran.err.matches(fault.as_str()).count(), 1, "{fault}: {}", ran.err);
    }
    assert_eq!(ran.err.lines().count(), faults.len(), "{}", ran.err);
    assert_eq!(held(folder.path()), before);

    fs::write(at("serve.toml"), "listen = ['127.0.0.1']\nthreads = 1\nthreds = 2\n").unwrap();
    let ran = check();
    assert!(ran.code == 2 && ran.err.contains("serve.toml: TOML parse error at line 3"), "{}", ran.err);
    assert!(ran.err.contains("\n3 | threds = 2\n  | ^^^^^^"), "{}", ran.err);
}

/// Keys in a folder: `0.key` to `3.key` of ours, `theirs.key` of nvme-cli. Each reads what the other makes.
fn makes_keys(folder: &Path) {
    let at = |name: &str| folder.join(name);
    let key =
        |words: &[&str]| Ran::from(nearside().current_dir(folder).arg("key").args(words).output().unwrap());
    let nvme = |words: &[&str]| Ran::from(Command::new("nvme").args(words).output().unwrap());
    for (nr, hmac) in ["0", "1", "2", "3"].into_iter().enumerate() {
        let name = format!("{hmac}.key");
        key(&["generate", "--hmac", hmac, "--out", &name]).good();
        nvme(&["check-dhchap-key", "-k", fs::read_to_string(at(&name)).unwrap().trim()]).good();
        let len = [32, 32, 48, 64][nr].to_string();
        let theirs = nvme(&["gen-dhchap-key", "-m", hmac, "-l", &len]).good();
        fs::write(at("theirs.key"), &theirs).unwrap();
        fs::set_permissions(at("theirs.key"), Permissions::from_mode(0o600)).unwrap();
        assert!(key(&["check", "theirs.key"]).good().starts_with("a key of "));
    }
    assert!(key(&["generate", "--out", "0.key"]).err.contains("File exists"));
    assert!(key(&["generate", "-m", "1", "-l", "64"]).err.contains("64 bytes"));
    fs::set_permissions(at("0.key"), Permissions::from_mode(0o604)).unwrap();
    assert!(key(&["check", "0.key"]).err.contains("chmod 600"));
    fs::set_permissions(at("0.key"), Permissions::from_mode(0o600)).unwrap();
}

/// TLS keys in a folder: `0.key` to `2.key` of ours, `theirs.key` of nvme-cli. Each reads what the other
/// makes.
fn makes_tls_keys(folder: &Path) {
    let key =
        |words: &[&str]| Ran::from(nearside().current_dir(folder).arg("key").args(words).output().unwrap());
    for (hmac, said) in [
        ("0", "a TLS key of 256 bits, with no hash"),
        ("1", "a TLS key of 256 bits, with sha-256"),
        ("2", "a TLS key of 384 bits, with sha-384"),
    ] {
        let name = format!("{hmac}.key");
        key(&["generate", "--tls", "--hmac", hmac, "--out", &name]).good();
        assert_eq!(key(&["check", &name]).good().trim_end(), said);
        let line = fs::read_to_string(folder.join(name)).unwrap();
        // 2.3 has another word for it than later ones, and takes none without a hash.
        let checks = |word: &str| {
            let words = ["check-tls-key", word, line.trim()];
            Command::new("nvme").args(words).output().unwrap().status.success()
        };
        assert!(hmac == "0" || checks("--keydata") || checks("--key"), "nvme-cli does not take {line}");
    }
    let theirs = folder.join("theirs.key");
    let made = Ran::from(Command::new("nvme").args(["gen-tls-key", "-m", "1"]).output().unwrap()).good();
    fs::write(&theirs, made).unwrap();
    fs::set_permissions(theirs, Permissions::from_mode(0o600)).unwrap();
    let named = key(&["check", "theirs.key", "--host", WEB, "--subsystem", BACKUP]).good();
    assert!(named.lines().nth(1).unwrap().starts_with(&format!("NVMe1R01 {WEB} {BACKUP} ")), "{named}");
    assert!(key(&["generate", "--tls", "-m", "3"]).err.contains("SHA-384 (02) only 48"));
}

/// Hosts with TLS keys come with them or not at all; from SIGHUP on, nobody comes without.
#[test]
fn hosts_come_over_tls_with_keys_from_files() {
    if !needs::tools("command::hosts_come_over_tls_with_keys_from_files", &["nvme"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    makes_tls_keys(folder.path());
    fs::write(at("disk.img"), vec![0; 1 << 20]).unwrap();
    let file = |tls: &str| {
        let host = format!("[[subsystem.host]]\nnqn = '{WEB}'\ntls-key-file = 'theirs.key'\n");
        file(&format!("{WEB}', '{BACKUP}"), &format!("log = 'trace'\n{tls}"))
            .replace("[[subsystem.namespace]]", &format!("{host}[[subsystem.namespace]]"))
    };
    fs::write(at("serve.toml"), file("")).unwrap();
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    let config = at("serve.toml");
    let words = ["--config", config.to_str().unwrap()];
    let served = Served::start(folder.path(), &words, at("notify").to_str().unwrap());
    told(&manager);
    let drive = format!("nvme+tcp://{}/nqn.2026-11.example:a/1", served.address);
    let ran = |host: &str, key: Option<&str>| {
        let mut run = nearside();
        run.current_dir(folder.path()).args(["bench", "run", "-d", &drive, "--iodepth=4", "--runtime=10ms"]);
        run.args(["--hostnqn", host]).args(key.iter().flat_map(|key| ["--tls-key-file", key]));
        Ran::from(run.output().unwrap())
    };
    ran(WEB, Some("theirs.key")).good();
    ran(BACKUP, None).good();
    for (host, key, why) in [
        (WEB, None, "does not allow the host"),
        (WEB, Some("1.key"), "the other end does not take the key"),
        (BACKUP, Some("theirs.key"), "the other end does not take the key"),
        (WEB, Some("none.key"), "none.key: No such file"),
    ] {
        let refused = ran(host, key);
        assert!(refused.code == 2 && refused.err.contains(why), "{key:?}: {}", refused.err);
    }
    served.until_count("connections_not_encrypted", 2);

    fs::write(at("serve.toml"), file("tls = 'required'")).unwrap();
    served.signal("-HUP");
    told(&manager);
    told(&manager);
    assert_eq!(ran(BACKUP, None).code, 2);
    ran(WEB, Some("theirs.key")).good();
    served.until_count("connections_not_encrypted", 3);
    let (status, log) = (served.status().to_string(), served.end());
    assert!(log.contains("there is no key of its pre-shared key's identity"), "{log}");
    assert!(log.contains("it is not encrypted, and TLS is required"), "{log}");
    for name in ["theirs.key", "1.key"] {
        let key = fs::read_to_string(at(name)).unwrap();
        let secret = &key.trim()["NVMeTLSkey-1:01:".len()..][..16];
        assert!(!status.contains(secret) && !log.contains(secret), "{name}");
    }
    fs::set_permissions(at("theirs.key"), Permissions::from_mode(0o644)).unwrap();
    let mut check = nearside();
    check.args(["serve", "--check", "--config"]).arg(at("serve.toml"));
    let checked = Ran::from(check.output().unwrap());
    assert!(checked.code == 2 && checked.err.contains("others than its owner may read"), "{}", checked.err);
}

/// Keys from files that only their owner may read; SIGHUP has them read again.
#[test]
fn hosts_prove_who_they_are_by_keys_from_files() {
    if !needs::tools("command::hosts_prove_who_they_are_by_keys_from_files", &["nvme"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    makes_keys(folder.path());
    fs::write(at("disk.img"), vec![0; 1 << 20]).unwrap();
    let file = |key: &str| {
        let host =
            format!("[[subsystem.host]]\nnqn = '{WEB}'\nkey-file = '{key}'\ncontroller-key-file = '2.key'\n");
        file(WEB, "log = 'trace'")
            .replace("[[subsystem.namespace]]", &format!("{host}[[subsystem.namespace]]"))
    };
    fs::write(at("serve.toml"), file("theirs.key").replace(&format!("allow-hosts = ['{WEB}']\n"), ""))
        .unwrap();
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    let config = at("serve.toml");
    let words = ["--config", config.to_str().unwrap()];
    let served = Served::start(folder.path(), &words, at("notify").to_str().unwrap());
    told(&manager);
    let drive = format!("nvme+tcp://{}/nqn.2026-11.example:a/1", served.address);
    let ran = |host: &str, keys: &[&str]| {
        let mut run = nearside();
        run.current_dir(folder.path()).args(["bench", "run", "-d", &drive, "--iodepth=1", "--runtime=10ms"]);
        run.args(["--hostnqn", host]);
        let options = ["--dhchap-key-file", "--dhchap-ctrl-key-file"];
        run.args(options.iter().zip(keys).flat_map(|(option, key)| [*option, *key]));
        Ran::from(run.output().unwrap())
    };
    ran(WEB, &["theirs.key", "2.key"]).good();
    ran(WEB, &["theirs.key"]).good();
    for (keys, why) in [
        (&[][..], "there is no key"),
        (&["1.key"], "the target says of nqn.2026-11.example:web: Authentication failed"),
        (&["theirs.key", "3.key"], "nqn.2026-11.example:a did not prove who it is"),
        (&["none.key"], "none.key: No such file"),
    ] {
        let refused = ran(WEB, keys);
        assert!(refused.code == 2 && refused.err.contains(why), "{keys:?}: {}", refused.err);
    }
    // Where hosts have keys, only those may come.
    assert!(ran(BACKUP, &["theirs.key"]).err.contains("does not allow"));
    served.until_count("authentications_failed", 2);

    // A key that cannot be read changes nothing; another key holds at once.
    for (key, said) in [("none.key", "nothing is changed: key of "), ("1.key", "serving ")] {
        fs::write(at("serve.toml"), file(key)).unwrap();
        served.signal("-HUP");
        told(&manager);
        assert!(told(&manager).starts_with(&format!("READY=1\nSTATUS={said}")), "{key}");
        ran(WEB, &[if key == "1.key" { key } else { "theirs.key" }]).good();
    }
    assert!(ran(WEB, &["theirs.key"]).err.contains("Authentication failed"));
    let status = served.status().to_string();
    let log = served.end();
    assert!(log.contains("a host was not authenticated"), "{log}");
    for name in ["theirs.key", "1.key", "2.key"] {
        let key = fs::read_to_string(at(name)).unwrap();
        let secret = &key.trim()["DHHC-1:00:".len()..][..16];
        assert!(!status.contains(secret) && !log.contains(secret), "{name}");
    }
    let mut check = nearside();
    check.args(["serve", "--check", "--config"]).arg(at("serve.toml"));
    assert_eq!(Ran::from(check.output().unwrap()).code, 0);
    fs::set_permissions(at("1.key"), Permissions::from_mode(0o644)).unwrap();
    let checked = Ran::from(check.output().unwrap());
    assert!(
        checked.code == 2 && checked.err.contains("1.key: others than its owner may read it"),
        "{}",
        checked.err
    );
}
