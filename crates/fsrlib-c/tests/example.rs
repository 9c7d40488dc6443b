//! Programs in C, built with the machine's C compiler against the header and the static library, on small
//! volumes: `examples/search.c`, whose search is one near-data command that reads no block,
//! `tests/inside.c`, whose callbacks use the session that calls them, `tests/trees.c`, and
//! `tests/secured.c`, which asks a server that lets in who has a key.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nearside_conformance::{needs, volume};

/// Where cargo has put the static library of this build.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().unwrap();
    [folder, folder.parent().unwrap()]
        .map(|f| f.join("libnearside.a"))
        .into_iter()
        .find(|p| p.is_file())
        .unwrap()
}

fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.env("LC_ALL", "C").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// An ext4 volume of a tree.
fn image(folder: &Path, tree: &Path) -> PathBuf {
    let image = folder.join("disk.img");
    volume::make("ext4", &image, 16, tree);
    image
}

/// The program that a source of this crate becomes, by a standard of C.
fn built(folder: &Path, standard: &str, source: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("program");
    let built = run(Command::new("cc")
        .arg(format!("-std={standard}"))
        .args(["-pedantic", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join(source))
        .arg(library())
        .args(if cfg!(feature = "tls") { &["-lssl", "-lcrypto"][..] } else { &[] })
        .args(["-lpthread", "-ldl", "-lm", "-lrt", "-o"])
        .arg(&program));
    assert_eq!(built.0, 0, "{}", built.2);
    program
}

#[test]
fn a_callback_may_come_back_to_its_session() {
    let Some(folder) = needs::folder("a_callback_may_come_back_to_its_session", &["cc", "mke2fs"]) else {
        return;
    };
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("text"), "one\ntwo\nsix\n").unwrap();
    let image = image(folder.path(), &tree);
    let ran = run(Command::new(built(folder.path(), "c11", "tests/inside.c")).arg(image));
    assert_eq!(ran, (0, "done\n".to_owned(), String::new()));
}

#[test]
fn trees_are_searched_and_listed() {
    let Some(folder) = needs::folder("trees_are_searched_and_listed", &["cc", "mke2fs"]) else {
        return;
    };
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("logs/old")).unwrap();
    for (name, text) in
        [("hello", "one\n"), ("logs/a.log", "one\ntwo\nsix\nten\n"), ("logs/old/c.log", "one\none\n")]
    {
        std::fs::write(tree.join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("a.log", tree.join("logs/link")).unwrap();
    let image = image(folder.path(), &tree);
    let ran = run(Command::new(built(folder.path(), "c89", "tests/trees.c")).arg(image));
    let lines = "! /missing: No such file or directory (1)\n/logs/a.log:one\n/logs/a.log-two\n/logs/a.log:six\n\
                 /logs/a.log-ten\n! /missing: No such file or directory (1)\n/logs/a.log\n/logs/link -> a.log\n\
                 ! /missing: No such file or directory (1)\n";
    assert_eq!(ran, (0, lines.to_owned(), String::new()));
}

#[test]
fn the_c_example_searches_by_one_command() {
    let Some(folder) = needs::folder("the_c_example_searches_by_one_command", &["cc", "mke2fs"]) else {
        return;
    };
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("var/log")).unwrap();
    let log = "one\ntwo ERROR here\nthree\nfour ERROR there\n".to_owned() + &"filler\n".repeat(100_000);
    std::fs::write(tree.join("var/log/app.log"), log).unwrap();
    let image = image(folder.path(), &tree);
    let search = built(folder.path(), "c89", "examples/search.c");
    let search = |path: &str, pattern: &str| run(Command::new(&search).arg(&image).args([path, pattern]));
    let (code, out, err) = search("/var/log/app.log", "ERR[O]R");
    assert_eq!(
        (code, out.as_str()),
        (0, "/var/log/app.log:2:two ERROR here\n/var/log/app.log:4:four ERROR there\n")
    );
    assert!(err.starts_with("commands: 1 (the drive counted 1), reads: 0, "), "{err}");
    assert!(err.contains("completion: polled"), "{err}");
    assert_eq!(search("/var/log", "ERR[O]R").1, out);
    assert_eq!(search("/var/log/app.log", "nothing").0, 1);
    let (code, out, err) = run(Command::new(folder.path().join("program")).arg(&image).arg("/var"));
    assert_eq!((code, out.as_str()), (0, "/var\n/var/log\n/var/log/app.log\n"), "{err}");
    let (code, _, err) = search("/missing", "x");
    assert_eq!(code, 2);
    assert!(err.contains("/missing: No such file or directory"), "{err}");
    let (code, _, err) =
        run(Command::new(folder.path().join("program")).args(["/nonexistent.img", "/", "x"]));
    assert_eq!(code, 2);
    assert!(err.contains("/nonexistent.img: No such file"), "{err}");
}

/// A server of this build's command, killed at the end.
#[cfg(feature = "tls")]
struct Served(Child, String);

#[cfg(feature = "tls")]
impl Served {
    fn start(command: &Path, folder: &Path) -> Served {
        let mut serve = Command::new(command);
        serve.args(["serve", "--config", "serve.toml"]).current_dir(folder).stdout(Stdio::piped());
        let mut server = serve.spawn().unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
        let name = lines.into_iter().find(|line| line.starts_with("nvme+tcp://")).unwrap();
        Served(server, name.split(": ").next().unwrap().to_owned())
    }
}

#[cfg(feature = "tls")]
impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_server_with_keys_is_reached() {
    const TEST: &str = "a_server_with_keys_is_reached";
    const HOSTS: [&str; 2] = ["nqn.2026-11.example:web", "nqn.2026-11.example:app"];
    let Some(folder) = needs::folder(TEST, &["cc", "mke2fs"]) else { return };
    let folder = folder.path();
    let command = std::env::current_exe().unwrap().parent().unwrap().with_file_name("nearside");
    if !command.is_file() {
        return needs::left_out(TEST, "no command beside this build (cargo build)");
    }
    let tree = folder.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("text"), "one\ntwo\nsix\n").unwrap();
    image(folder, &tree);
    for (name, tls) in [("web.tls", true), ("other.tls", true), ("app.key", false)] {
        let mut make = Command::new(&command);
        make.args(["key", "generate", "--out"]).arg(folder.join(name)).args(tls.then_some("--tls"));
        assert_eq!(run(&mut make).0, 0);
    }
    let of_host = |host: &str, key: &str| format!("[[subsystem.host]]\nnqn = '{host}'\n{key}\n");
    let config =
        "listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\n[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\nidentity = 'trust'\n"
            .to_owned()
            + &of_host(HOSTS[0], "tls-key-file = 'web.tls'")
            + &of_host(HOSTS[1], "key-file = 'app.key'")
            + "[[subsystem.namespace]]\nnsid = 1\nstore = 'file:disk.img'\nread-only = true\n";
    std::fs::write(folder.join("serve.toml"), config).unwrap();
    let served = Served::start(&command, folder);
    let program = built(folder, "c89", "tests/secured.c");
    let secured = |words: [&str; 4]| {
        let mut secured = Command::new(&program);
        secured.current_dir(folder).arg(&served.1).args(words);
        secured
    };
    let encrypted = || {
        let mut status = Command::new(&command);
        status.current_dir(folder).args(["status", "--json", "--control", "control.sock"]);
        let (_, said, err) = run(&mut status);
        let (_, count) =
            said.split_once("\"connections_encrypted\":").unwrap_or_else(|| panic!("{said} {err}"));
        let digits: String = count.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    };
    let [web, app] = HOSTS;
    for (words, said) in [
        ([web, "-", "web.tls", "0"], None),
        ([web, "-", "other.tls", "0"], Some("the other end does not take the key")),
        ([web, "-", "-", "0"], Some("does not allow the host")),
        ([app, "app.key", "-", "0"], None),
        ([app, "app.key", "-", "1"], None),
        ([app, "-", "-", "0"], Some("there is no key")),
        ([app, "-", "-", "1"], Some("concatenates needs host_key_file")),
        ([app, "app.key", "web.tls", "1"], Some("concatenates: tls_key_file encrypts already")),
    ] {
        let before = encrypted();
        let (code, out, err) = run(&mut secured(words));
        match said {
            None => {
                assert_eq!((code, &*out), (0, "3\n"), "{words:?}: {err}");
                assert_eq!(encrypted() > before, words[2] != "-" || words[3] == "1", "{words:?}");
            }
            Some(why) => assert!(code == 2 && err.contains(why), "{words:?}: {err}"),
        }
    }
    goes_and_comes_back(&command, folder, served, |name| {
        let mut secured = Command::new(&program);
        secured.current_dir(folder).arg(name).args([web, "-", "web.tls", "0"]);
        secured
    });
}

/// Who makes no attempt has lost its server, and who makes some goes on.
#[cfg(feature = "tls")]
fn goes_and_comes_back(command: &Path, folder: &Path, served: Served, secured: impl Fn(&str) -> Command) {
    let begun = [None, Some("60000")].map(|loss| {
        let mut ask = secured(&served.1);
        let mut ask = ask.args(loss).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(ask.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "3\n");
        (ask, said)
    });
    let address = served.1["nvme+tcp://".len()..].split('/').next().unwrap().to_owned();
    drop(served);
    let config = std::fs::read_to_string(folder.join("serve.toml")).unwrap();
    std::fs::write(folder.join("serve.toml"), config.replace("127.0.0.1:0", &address)).unwrap();
    let _back = Served::start(command, folder);
    for ((mut ask, mut said), (code, again)) in begun.into_iter().zip([(1, ""), (0, "3\n")]) {
        ask.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!((ask.wait().unwrap().code(), line.as_str()), (Some(code), again));
    }
}
