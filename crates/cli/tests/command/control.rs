//! Servers that are found and changed while they serve: by the control socket, into the file, and back.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::install;
use serde_json::Value;

use crate::fixture::{Ran, nearside, on, small};

const A: &str = "nqn.2026-11.example:a";
const B: &str = "nqn.2026-11.example:b";
const WEB: &str = "nqn.2026-11.example:web";
const DB: &str = "nqn.2026-11.example:db";

/// A server in a folder, with its control socket there.
pub struct Server<'a> {
    pub process: Child,
    folder: &'a Path,
    /// HOST:PORT of its first address.
    pub address: String,
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server<'_> {
    pub fn start<'a>(folder: &'a Path, words: &[&str]) -> Server<'a> {
        let mut server = nearside();
        server.arg("serve").args(words);
        Server::by(folder, server)
    }

    /// The same by a command line that is made already.
    pub fn by(folder: &Path, mut server: Command) -> Server<'_> {
        server.current_dir(folder).env_remove("NEARSIDE_LOG");
        let mut process = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let name = lines.find_map(|line| line.unwrap().strip_prefix("nvme+tcp://").map(str::to_owned));
        let address = name.expect("the server says its drive's name").split('/').next().unwrap().to_owned();
        Server { process, folder, address }
    }

    /// `nearside WORDS --control ITS-SOCKET`.
    pub fn ask(&self, words: &[&str]) -> Ran {
        let mut ask = nearside();
        ask.current_dir(self.folder).args(words).args(["--control", "control.sock"]);
        Ran::from(ask.output().unwrap())
    }

    pub fn status(&self) -> Value {
        self.ask(&["status", "--json"]).json().remove(0)
    }

    /// The names of subsystems that a host is told of at an address.
    fn offered(&self, address: &str, host: &str) -> Vec<String> {
        let mut discover = nearside();
        let found = Ran::from(discover.args(["discover", address, "--hostnqn", host]).output().unwrap());
        let mut all: Vec<String> =
            found.text().lines().filter_map(|line| line.rsplit('/').next().map(str::to_owned)).collect();
        all.sort();
        all.dedup();
        all
    }

    pub fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

/// A refusal, with its words.
#[track_caller]
fn refused(ran: &Ran, why: &str) {
    assert!(ran.code == 2 && ran.err.contains(why), "{why}: {} {}", ran.code, ran.err);
}

const FILE: &str = "# What hosts have.\nlisten = ['127.0.0.1:0']\ncontrol = 'control.sock'   # for root\n\n\
    [[subsystem]]\nnqn = 'nqn.2026-11.example:a'\nallow-hosts = ['nqn.2026-11.example:web']  # the web server\n\n\
    [[subsystem.namespace]]\nnsid = 1\nstore = 'file:disk.img'       # from here\n";

/// What a file asks for.
fn printed(folder: &Path, file: &str) -> String {
    let mut print = nearside();
    print.current_dir(folder).args(["serve", "--print-config", "--config", file]);
    Ran::from(print.output().unwrap()).good()
}

/// Of the file's only host another becomes the only one.
fn hosts_come_and_go(served: &Server, first: &str) {
    let control = |words: &[&str]| served.ask(&[&["control"], words].concat());
    let good = |words: &[&str]| control(words).good();
    assert_eq!([WEB, DB].map(|host| served.offered(first, host)), [vec![A.to_owned()], vec![]]);
    assert_eq!(good(&["host", "add", DB]), "");
    assert_eq!(served.offered(first, DB), [A]);
    refused(&control(&["host", "add", DB]), "may connect already");
    refused(&control(&["host", "add", "no-name"]), "an NQN begins with");
    assert_eq!(good(&["host", "remove", WEB]), "");
    assert_eq!(served.offered(first, WEB), [] as [&str; 0]);
}

#[test]
fn what_is_served_changes_while_it_is_served_and_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("disk.img"), vec![0; 1 << 20]).unwrap();
    fs::write(at("serve.toml"), FILE).unwrap();
    let served = Server::start(folder.path(), &["--config", "serve.toml"]);
    let first = served.address.clone();
    let control = |words: &[&str]| served.ask(&[&["control"], words].concat());
    let good = |words: &[&str]| control(words).good();

    hosts_come_and_go(&served, &first);

    // A subsystem, its namespace, and a host that uses it.
    good(&["subsystem", "add", B, "--allow-host", WEB]);
    refused(&control(&["subsystem", "add", B]), "there is a subsystem");
    refused(&control(&["namespace", "add", "1", "dram:16MiB"]), "several subsystems");
    refused(&control(&["namespace", "add", "1", "absent.img", "--subsystem", B]), "absent.img: No such file");
    refused(
        &control(&["namespace", "add", "9", "disk.img", "--subsystem", B]),
        "another namespace has that file",
    );
    good(&["namespace", "add", "1", "dram:16MiB", "--subsystem", B]);
    assert_eq!(served.offered(&first, WEB), [B]);
    let drive = format!("nvme+tcp://{first}/{B}/1");
    let mut host = nearside();
    host.args(["bench", "run", "-d", &drive, "--iodepth", "1", "--runtime", "3600s", "--hostnqn", WEB]);
    let mut host =
        host.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while served.status()["commands"].as_u64().unwrap() < 1_000 {
        assert!(host.try_wait().unwrap().is_none(), "the host ended");
    }

    // Listeners.
    let second = good(&["listener", "add", "127.0.0.1:0", "--json"]);
    let second = serde_json::from_str::<Value>(&second).unwrap()["address"].as_str().unwrap().to_owned();
    assert!(second != first && served.offered(&second, WEB) == [B]);
    refused(&control(&["listener", "add", &second]), "is there more than once");
    good(&["log-level", "info"]);

    // What is served is what would be started now.
    let shown = good(&["show"]);
    fs::write(at("shown.toml"), &shown).unwrap();
    assert!(shown.contains("log = \"info\"") && shown.contains(DB), "{shown}");

    // The file learns it, and stays what it was else.
    assert!(good(&["save"]).ends_with("serve.toml\n"));
    assert!(good(&["save"]).contains("it says that already"));
    let saved = fs::read_to_string(at("serve.toml")).unwrap();
    for kept in [
        "# What hosts have.\n",
        "control = 'control.sock'   # for root\n",
        "store = 'file:disk.img'       # from here\n",
    ] {
        assert!(saved.contains(kept), "{kept}: {saved}");
    }
    assert_eq!(printed(folder.path(), "serve.toml"), printed(folder.path(), "shown.toml"));

    // A subsystem that goes takes its hosts along, and nobody else.
    good(&["subsystem", "remove", B]);
    assert!(!host.wait().unwrap().success());
    assert_eq!(served.status()["hosts"].as_array().unwrap().len(), 0);
    assert_eq!(served.offered(&first, WEB), [] as [&str; 0]);

    // The file says it again: with SIGHUP it comes back, and what was changed since goes.
    good(&["host", "add", WEB]);
    served.signal("-HUP");
    while served.offered(&first, WEB) != [B] {
        std::thread::yield_now();
    }
    assert_eq!(served.offered(&first, DB), [A]);
    good(&["listener", "remove", &second]);
    let mut gone = nearside();
    refused(&Ran::from(gone.args(["discover", &second]).output().unwrap()), "connecting: ");
    served.signal("-TERM");
    let mut served = served;
    assert_eq!(served.process.wait().unwrap().code(), Some(0));
}

/// A change whose last step fails leaves nothing of it.
#[test]
fn a_change_that_cannot_be_applied_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("disk.img"), vec![0; 1 << 20]).unwrap();
    fs::write(at("other.img"), vec![0; 1 << 20]).unwrap();
    fs::write(at("serve.toml"), FILE).unwrap();
    let served = Server::start(folder.path(), &["--config", "serve.toml", "--http", "127.0.0.1:0"]);
    let shown = || served.ask(&["control", "show"]).good();
    let before = shown();
    // In one go: a namespace that could be added, and an address that somebody else has.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = ['127.0.0.1:0', '{}']", taken.local_addr().unwrap());
    let more = "[[subsystem.namespace]]\nnsid = 2\nstore = 'file:other.img'\n";
    fs::write(at("serve.toml"), FILE.replace("listen = ['127.0.0.1:0']", &listen) + more).unwrap();
    served.signal("-HUP");
    let mut server = served;
    let mut log = BufReader::new(server.process.stderr.take().unwrap()).lines();
    let said = log.find(|line| line.as_ref().unwrap().contains("SIGHUP")).unwrap().unwrap();
    assert!(said.contains("nothing is changed") && said.contains("in use"), "{said}");
    let served = server;
    assert_eq!(served.ask(&["control", "show"]).good(), before);
    assert_eq!(served.status()["subsystems"][0]["namespaces"].as_array().unwrap().len(), 1);
    // Its file is free again.
    assert_eq!(served.ask(&["namespace", "add", "3", "file:other.img"]).good(), "");
}

#[test]
fn servers_are_found_by_their_names() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let name = |nth: usize| format!("test-{}-{nth}", std::process::id());
    let start = |nth: usize| {
        let words =
            ["--store", "dram:1MiB", "--listen", "127.0.0.1:0", "--control", "control.sock", "--name"];
        let name = name(nth);
        Server::start(folders[nth].path(), &[&words[..], &[name.as_str()]].concat())
    };
    let servers = [start(0), start(1)];
    let status = |words: &[&str]| Ran::from(nearside().arg("status").args(words).output().unwrap());
    // Other tests have theirs.
    let all = status(&["--json"]).json();
    for (nth, server) in servers.iter().enumerate() {
        let found =
            all.iter().find(|one| one["name"] == name(nth).as_str()).unwrap_or_else(|| panic!("{all:?}"));
        assert_eq!(found["process"], server.process.id());
        assert_eq!(found["control"], folders[nth].path().join("control.sock").to_str().unwrap());
        assert_eq!(found["subsystems"][0], server.status()["subsystems"][0]["nqn"]);
        let one = status(&[&name(nth), "--json"]).json();
        assert_eq!(one[0]["subsystems"][0]["nqn"], server.status()["subsystems"][0]["nqn"]);
    }
    assert!(status(&[]).good().contains(&format!("{}: process {}", name(1), servers[1].process.id())));
    refused(&status(&["no-such-server"]), "no server is called \"no-such-server\"");
    let add = ["control", "--control", &name(1), "namespace", "add", "2", "dram:1MiB"];
    Ran::from(nearside().args(add).output().unwrap()).good();
    assert_eq!(servers[1].status()["subsystems"][0]["namespaces"].as_array().unwrap().len(), 2);
    assert_eq!(servers[0].status()["subsystems"][0]["namespaces"].as_array().unwrap().len(), 1);
    refused(
        &Ran::from(nearside().args(["namespace", "add", "2", "dram:1MiB"]).output().unwrap()),
        "servers; --control says which",
    );
    drop(servers);
    refused(&status(&[&name(0)]), "no server is called");
}

/// The control socket is its owner's, whatever becomes of its mode.
#[test]
fn another_user_changes_nothing() {
    if !needs::root("command::another_user_changes_nothing")
        || !needs::tools("command::another_user_changes_nothing", &["setpriv"])
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let words = ["--store", "dram:1MiB", "--listen", "127.0.0.1:0", "--control", "control.sock"];
    let name = format!("owner-{}", std::process::id());
    let served = Server::start(folder.path(), &[&words[..], &["--name", &name]].concat());
    for path in [folder.path().to_owned(), folder.path().join("control.sock")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let program = folder.path().join("nearside");
    install(env!("CARGO_BIN_EXE_nearside").as_ref(), &program);
    let nobody = |words: &[&str]| {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(words);
        Ran::from(other.current_dir(folder.path()).output().unwrap())
    };
    refused(
        &nobody(&["control", "--control", "control.sock", "log-level", "off"]),
        "only the server's own user and root",
    );
    refused(&nobody(&["status", "control.sock"]), "only the server's own user and root");
    refused(&nobody(&["status", &name]), "no server is called");
    // It sees that there is one, and no more.
    let list = nobody(&["status"]);
    let line = format!("process {} of user 0", served.process.id());
    assert!(
        list.text().contains(&line)
            || list.err.contains(&format!("process {} is user 0's", served.process.id())),
        "{} {}",
        list.text(),
        list.err
    );
    assert!(!list.text().contains(&name));
    served.ask(&["control", "log-level", "off"]).good();
}

/// Bytes of the namespaces of the first subsystem, as hosts find them.
fn bytes(served: &Server) -> Vec<u64> {
    let status = served.status();
    let namespaces = status["subsystems"][0]["namespaces"].as_array().unwrap();
    namespaces.iter().map(|namespace| namespace["bytes"].as_u64().unwrap()).collect()
}

#[test]
fn a_namespace_becomes_longer_and_shorter_as_its_file_does() {
    let Some(volume) = small("a_namespace_becomes_longer_and_shorter_as_its_file_does") else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    fs::copy(&volume.image, &image).unwrap();
    let len = || fs::metadata(&image).unwrap().len();
    let was = len();
    let words = ["--store", "file:disk.img", "--store", "dram:1MiB", "--trust", "--listen", "127.0.0.1:0"];
    let served = Server::start(folder.path(), &[&words[..], &["--control", "control.sock"]].concat());
    let resize = |words: &[&str]| served.ask(&[&["namespace", "resize"], words].concat());
    let nqn = served.status()["subsystems"][0]["nqn"].as_str().unwrap().to_owned();
    let drive = format!("nvme+tcp://{}/{nqn}/1", served.address);
    let capacity = || on(Path::new(&drive), "info", &["--json"]).json()[0]["capacity"].as_u64().unwrap();
    let answer = resize(&["1", "80MiB", "--json"]).json();
    assert_eq!((answer[0]["bytes"].as_u64().unwrap(), len(), capacity()), (80 << 20, 80 << 20, 80 << 20));
    // The volume is where it was.
    let before = on(&volume.image, "cksum", &["/large"]).good();
    assert_eq!(on(Path::new(&drive), "cksum", &["/large"]).good(), before);
    resize(&["1", &was.to_string()]).good();
    assert_eq!(len(), was);
    let half = (was / 2).to_string();
    refused(&resize(&["1", &half]), &format!("what is on it reaches to byte {was}"));
    refused(&resize(&["1", "1000"]), "not whole blocks of 512");
    refused(&resize(&["2", "2MiB"]), "keeps its length");
    refused(&resize(&["3", "2MiB"]), "there is no namespace 3");
    assert_eq!((len(), bytes(&served)), (was, vec![was, 1 << 20]));
    resize(&["1", &half, "--force"]).good();
    assert_eq!((len(), bytes(&served)), (was / 2, vec![was / 2, 1 << 20]));
    // What is cut off is not read, and nothing else suffers.
    let large = on(Path::new(&drive), "cksum", &["/large"]);
    assert!(large.code == 0 && large.text() == before || large.code > 0, "{}", large.err);
    assert_eq!(
        on(Path::new(&drive), "cat", &["/hello.txt"]).good(),
        on(&volume.image, "cat", &["/hello.txt"]).good()
    );
    // By itself, as by truncate(1).
    fs::File::options().write(true).open(&image).unwrap().set_len(96 << 20).unwrap();
    while bytes(&served)[0] != 96 << 20 {
        std::thread::yield_now();
    }
    fs::File::options().write(true).open(&image).unwrap().set_len(64 << 20).unwrap();
    resize(&["1"]).good();
    assert_eq!((bytes(&served)[0], capacity()), (64 << 20, 64 << 20));
}

#[test]
fn a_limit_holds_over_the_network_and_can_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("serve.toml"),
        "listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\n[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\n\
         [[subsystem.namespace]]\nnsid = 1\nstore = 'dram:16MiB'\niops = 400\n\
         [[subsystem.namespace]]\nnsid = 2\nstore = 'dram:16MiB'\n",
    )
    .unwrap();
    let served = Server::start(folder.path(), &["--config", "serve.toml"]);
    let run = |nsid: u32, host: &str| {
        let drive = format!("nvme+tcp://{}/{A}/{nsid}", served.address);
        let mut run = nearside();
        run.args(["bench", "run", "-d", &drive, "--iodepth", "8", "--runtime", "1s", "--hostnqn", host]);
        let before = served.status()["commands"].as_u64().unwrap();
        let begun = std::time::Instant::now();
        Ran::from(run.current_dir(folder.path()).output().unwrap()).good();
        (served.status()["commands"].as_u64().unwrap() - before, begun.elapsed().as_secs_f64())
    };
    // All commands are counted, those by which a host connects as well.
    let most = |rate: f64, seconds: f64| (rate * (seconds + 0.1)) as u64 + 8 + 200;
    let (limited, seconds) = run(1, WEB);
    assert!(limited >= 40 && limited <= most(400.0, seconds), "{limited} in {seconds} s");
    let (free, _) = run(2, WEB);
    assert!(free > 2 * most(400.0, seconds), "{free}");
    // A host on every namespace; the other as before.
    served.ask(&["control", "limit", "namespace", "1"]).good();
    served.ask(&["control", "limit", "host", DB, "--iops", "200"]).good();
    refused(&served.ask(&["control", "limit", "host", DB, "--iops", "0"]), "iops 0; it can be 1 to");
    refused(&served.ask(&["control", "limit", "namespace", "7", "--iops", "5"]), "there is no namespace 7");
    let (limited, seconds) = run(2, DB);
    assert!(limited <= most(200.0, seconds), "{limited} in {seconds} s");
    let (free, _) = run(1, WEB);
    assert!(free > 2 * most(400.0, seconds), "{free}");
    let shown = served.ask(&["control", "show"]).good();
    assert!(shown.contains("iops = 200") && !shown.contains("iops = 400"), "{shown}");
}

#[test]
fn paths_have_states_that_are_changed_saved_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let test = "paths_have_states_that_are_changed_saved_and_read_again";
    let Some(volume) = small(test) else { return };
    fs::copy(&volume.image, folder.path().join("disk.img")).unwrap();
    fs::write(
        folder.path().join("serve.toml"),
        "listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\n[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\n\
         identity = 'trust'\n[[subsystem.namespace]]\nnsid = 1\nstore = 'file:disk.img'  # the disk\n",
    )
    .unwrap();
    let served = Server::start(folder.path(), &["--config", "serve.toml"]);
    let control = |words: &[&str]| served.ask(&[&["control"], words].concat());
    let added = control(&["listener", "add", "127.0.0.1:0", "--json"]).json().remove(0);
    let second = added["address"].as_str().unwrap();
    let cat = |address: &str| {
        let drive = format!("nvme+tcp://{address}/{A}/1");
        on(Path::new(&drive), "cat", &["/hello.txt", "--ctrl-loss-tmo", "0"])
    };
    let (here, there) = (cat(&served.address).good(), cat(second).good());
    assert_eq!(here, there);

    control(&["ana", second, "inaccessible"]).good();
    refused(&cat(second), "Asymmetric Access Inaccessible");
    assert_eq!(cat(&served.address).good(), here);
    // Who knows both addresses goes on by the other.
    let other = cat(&format!("{second},{}", served.address));
    assert!(other.code == 0 && other.out == here.as_bytes(), "{}", other.err);
    assert!(other.err.contains("Asymmetric Access Inaccessible"), "{}", other.err);
    let by = |nth: usize| served.status()["subsystems"][0]["ports"][nth].clone();
    let (first, other) = (by(0), by(1));
    assert_eq!((&first["ana_state"], &other["ana_state"]), (&"optimized".into(), &"inaccessible".into()));
    assert_eq!(other["listen"], *second);
    let told = served.ask(&["status"]).good();
    assert!(
        told.contains(&format!("  by {second}: inaccessible\n")) && !told.contains("optimized"),
        "{told}"
    );
    refused(&control(&["ana", second, "optimised"]), "optimized, non-optimized, inaccessible");
    refused(&control(&["ana", "127.0.0.1:1", "optimized", "--group", "1"]), "no host is awaited at");
    refused(&control(&["ana", second, "change", "--group", "1,129"]), "ANA group 129; it can be 1 to 128");
    assert_eq!(by(1), other, "what is refused changes nothing");

    // A group of its own.
    control(&["ana", second, "optimized", "--group", "1,3"]).good();
    assert_eq!(cat(second).good(), here);
    control(&["ana", second, "inaccessible", "--group", "1"]).good();
    refused(&cat(second), "Asymmetric Access Inaccessible");
    control(&["namespace", "add", "2", "dram:1MiB", "--ana-group", "3"]).good();
    refused(
        &control(&["namespace", "add", "3", "dram:1MiB", "--ana-group", "0"]),
        "ana-group 0; it can be 1",
    );
    let groups = serde_json::json!({ "3": "optimized" });
    assert_eq!((&by(1)["ana_state"], &by(1)["ana_groups"]), (&"inaccessible".into(), &groups));
    assert_eq!(served.status()["subsystems"][0]["namespaces"][1]["ana_group"], 3);

    // In the file, and from it.
    control(&["save"]).good();
    let file = folder.path().join("serve.toml");
    let saved = fs::read_to_string(&file).unwrap();
    assert!(saved.contains("# the disk") && saved.matches("[[subsystem.port]]").count() == 2, "{saved}");
    let before = by(1);
    control(&["ana", second, "change"]).good();
    control(&["save"]).good();
    assert_eq!(fs::read_to_string(&file).unwrap().matches("[[subsystem.port]]").count(), 1);
    fs::write(&file, saved).unwrap();
    served.signal("-HUP");
    while by(1) != before {
        std::thread::yield_now();
    }
    // An address that goes takes its states along.
    control(&["listener", "remove", second]).good();
    assert!(!control(&["show"]).good().contains("ana-state"));
}

/// Where the system has chosen a port, what is printed is a name of the address, too; what is saved is as it
/// was.
#[test]
fn an_address_is_named_as_it_was_asked_for_or_as_it_was_printed() {
    const ANY: &str = "127.0.0.1:0";
    let folder = tempfile::tempdir().unwrap();
    let words = ["--store", "dram:1MiB", "--listen", ANY, "--discovery", ANY, "--control", "control.sock"];
    let served = Server::start(folder.path(), &words);
    let control = |words: &[&str]| served.ask(&[&["control"], words].concat());
    let ports = || served.status()["subsystems"][0]["ports"].as_array().unwrap().clone();
    let by = |address: &str| {
        let ports = ports();
        let port = ports.iter().find(|port| port["listen"] == address);
        port.map(|port| port["ana_state"].as_str().unwrap().to_owned())
    };
    let first = &*served.address;
    let discovery = ports().iter().find(|port| port["listen"] != first).unwrap()["listen"].clone();
    let discovery = discovery.as_str().unwrap();
    for (named, state) in
        [(first, "inaccessible"), (ANY, "optimized"), (first, "change"), (ANY, "inaccessible")]
    {
        control(&["ana", named, state]).good();
        assert_eq!((by(first).as_deref(), by(discovery).as_deref()), (Some(state), Some("optimized")));
    }
    refused(&control(&["ana", discovery, "change"]), "no host is awaited at");
    let shown = control(&["show"]).good();
    assert!(shown.contains("ana-state = \"inaccessible\"") && !shown.contains(first), "{shown}");
    control(&["listener", "remove", discovery]).good();
    assert_eq!((by(first).as_deref(), by(discovery)), (Some("inaccessible"), None));
    control(&["listener", "remove", first]).good();
    assert_eq!(ports().len(), 0);
}

/// A host gets a TLS key while the server serves: from then on it comes with that, or not at all.
#[test]
fn a_host_gets_a_tls_key() {
    let folder = tempfile::tempdir().unwrap();
    let make = ["key", "generate", "--tls", "--out", "web.tls"];
    Ran::from(nearside().current_dir(&folder).args(make).output().unwrap()).good();
    let words =
        ["--store", "dram:1MiB", "--subsystem", A, "--listen", "127.0.0.1:0", "--control", "control.sock"];
    let server = Server::start(folder.path(), &words);
    let runs = |keys: &[&str]| {
        let drive = format!("nvme+tcp://{}/{A}/1", server.address);
        let mut run = nearside();
        run.current_dir(&folder).args([
            "bench",
            "run",
            "-d",
            &drive,
            "--iodepth=1",
            "--runtime=10ms",
            "--hostnqn",
            WEB,
        ]);
        Ran::from(run.args(keys).output().unwrap())
    };
    runs(&[]).good();
    let add = ["control", "host", "add", WEB, "--tls-key-file", "web.tls", "--restrict"];
    server.ask(&add).good();
    assert!(runs(&[]).err.contains("does not allow the host"));
    runs(&["--tls-key-file", "web.tls"]).good();
    let shown = server.ask(&["control", "show"]).good();
    assert!(shown.contains("tls-key-file = \"/") && !shown.contains("NVMeTLSkey"), "{shown}");
}
