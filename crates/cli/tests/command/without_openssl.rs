//! A machine without OpenSSL: one on which the first library of its name that is found is an empty file.
//! Commands that encrypt nothing do not miss it, whoever wants TLS hears of it at once, and a server that
//! began so says what is to be done once it is there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use nearside_conformance::needs;
use nearside_conformance::volume::{ext, must, tool};
use tempfile::TempDir;

use crate::control::Server;
use crate::fixture::{Ran, nearside, on};

const NQN: &str = "nqn.2026-11.example:disks";
const HOST: &str = "nqn.2026-11.example:web";

/// A folder with `disk.img`, a TLS key, and such libraries.
struct Hidden(TempDir);

impl Hidden {
    fn new(test: &str) -> Option<Hidden> {
        let folder = needs::folder(test, &["mke2fs", "readelf"])?;
        let needed = must(tool("readelf").args(["-d", env!("CARGO_BIN_EXE_nearside")])).stdout;
        if String::from_utf8_lossy(&needed).contains("libssl.so") {
            needs::left_out(test, "the linker here lets a debug program need OpenSSL");
            return None;
        }
        let hidden = Hidden(folder);
        fs::create_dir(hidden.at("libraries")).unwrap();
        hidden.libraries().iter().for_each(|library| fs::write(library, "").unwrap());
        fs::create_dir(hidden.at("root")).unwrap();
        fs::write(hidden.at("root/file"), "what a file holds\n").unwrap();
        ext(&hidden.at("disk.img"), 16, Some(&hidden.at("root")), &["-t", "ext4"]);
        let mut make = nearside();
        make.args(["key", "generate", "--tls", "--out"]).arg(hidden.at("key"));
        Ran::from(make.output().unwrap()).good();
        Some(hidden)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The empty files, by the names that OpenSSL's library has from version 3 on.
    fn libraries(&self) -> [PathBuf; 5] {
        [3, 4, 5, 6, 7].map(|major| self.at(&format!("libraries/libssl.so.{major}")))
    }

    /// The command, for which the loader looks among them first.
    fn nearside(&self) -> Command {
        let mut nearside = nearside();
        nearside.env("LD_LIBRARY_PATH", self.at("libraries")).current_dir(self.0.path());
        nearside
    }

    /// The same, to its end.
    fn ran(&self, words: &[&str]) -> Ran {
        Ran::from(self.nearside().args(words).output().unwrap())
    }
}

fn is_missed(ran: &Ran) {
    let said = ran.err.contains("tls: ") && ran.err.contains("libssl.so.");
    assert!(said && (ran.code, ran.text().as_str()) == (2, ""), "{}: {} {}", ran.code, ran.text(), ran.err);
}

/// The file of a server; `hosts` are its tables of hosts.
fn file(top: &str, hosts: &str) -> String {
    format!(
        "listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\n{top}\n[[subsystem]]\nnqn = '{NQN}'\n\
         identity = 'trust'\nallow-hosts = ['{HOST}']\n{hosts}\n\
         [[subsystem.namespace]]\nnsid = 1\nstore = 'file:disk.img'\n"
    )
}

fn keyed() -> String {
    format!("[[subsystem.host]]\nnqn = '{HOST}'\ntls-key-file = 'key'\n")
}

#[test]
fn who_encrypts_nothing_does_not_miss_it() {
    let Some(hidden) = Hidden::new("without_openssl::who_encrypts_nothing_does_not_miss_it") else { return };
    let shown = hidden.ran(&["cat", "-d", "disk.img", "/file"]);
    assert_eq!(shown.good(), "what a file holds\n");
    // A host with a key, and a server that has one.
    let drive = format!("nvme+tcp://127.0.0.1:9/{NQN}/1");
    is_missed(&hidden.ran(&["cat", "-d", &drive, "--tls-key-file", "key", "/file"]));
    fs::write(hidden.at("serve.toml"), file("tls = 'required'", &keyed())).unwrap();
    is_missed(&hidden.ran(&["serve", "--config", "serve.toml", "--check"]));
    is_missed(&hidden.ran(&["serve", "--config", "serve.toml"]));
}

/// A server that began without it has none until it is started again, also once OpenSSL is there: a key is
/// refused, and all goes on as it was.
#[test]
fn a_server_that_began_without_it_has_to_be_started_again_for_a_key() {
    let test = "without_openssl::a_server_that_began_without_it_has_to_be_started_again_for_a_key";
    let Some(hidden) = Hidden::new(test) else { return };
    let start = || {
        let mut serve = hidden.nearside();
        serve.args(["serve", "--config", "serve.toml"]);
        Server::by(hidden.0.path(), serve)
    };
    let cat = |server: &Server, words: &[&str]| {
        let drive = format!("nvme+tcp://{}/{NQN}/1", server.address);
        on(Path::new(&drive), "cat", &[&["/file", "--hostnqn", HOST], words].concat())
    };
    fs::write(hidden.at("serve.toml"), file("", "")).unwrap();
    let mut server = start();
    let mut log = BufReader::new(server.process.stderr.take().unwrap()).lines().map(Result::unwrap);
    fs::write(hidden.at("serve.toml"), file("", &keyed())).unwrap();
    let mut reload = || {
        server.signal("-HUP");
        log.find(|line| line.contains("SIGHUP: ")).expect("the log says what has become of it")
    };
    let said = reload();
    assert!(said.contains("nothing is changed") && said.contains("libssl.so."), "{said}");
    // It is installed.
    hidden.libraries().iter().for_each(|library| fs::remove_file(library).unwrap());
    let again = "the server began without TLS, and has it once it is started again";
    let said = reload();
    assert!(said.contains("nothing is changed") && said.contains(again), "{said}");
    let add = ["control", "host", "add", HOST, "--tls-key-file", "key"];
    let added = server.ask(&add);
    assert!(added.code == 2 && added.err.contains(again), "{}: {}", added.code, added.err);
    assert_eq!(cat(&server, &[]).good(), "what a file holds\n");
    drop(server);
    let server = start();
    let key = hidden.at("key");
    let with_key = ["--tls-key-file", key.to_str().unwrap()];
    assert_eq!(cat(&server, &with_key).good(), "what a file holds\n");
    assert_eq!(cat(&server, &[]).code, 2);
}
