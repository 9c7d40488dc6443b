//! A machine without OpenSSL: in a mount namespace in which its library is an empty file. Commands that
//! encrypt nothing do not miss it, whoever wants TLS hears of it at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::ext;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nearside");

/// The libraries of OpenSSL that this machine's loader finds.
fn libraries() -> Vec<PathBuf> {
    let known = Command::new("/sbin/ldconfig").arg("-p").output().unwrap();
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    let found = known.lines().filter_map(|line| line.split_once(" => "));
    let found = found.filter(|(name, _)| name.trim().starts_with("libssl.so.")).map(|(_, path)| path.into());
    found.collect()
}

/// The program where the libraries are empty.
fn without(libraries: &[PathBuf], args: &[&str]) -> Output {
    let hide =
        "set -e; for one in $HIDDEN; do mount --bind /dev/null \"$one\"; done; exec timeout 120 \"$@\"";
    let hidden: Vec<_> = libraries.iter().map(|path| path.to_str().unwrap()).collect();
    Command::new("unshare")
        .args(["--mount", "sh", "-c", hide, "sh", PROGRAM])
        .args(args)
        .env("HIDDEN", hidden.join(" "))
        .env("LC_ALL", "C")
        .env_remove("NEARSIDE_DRIVE")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn refused(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
    assert!(said.contains("tls: ") && said.contains("libssl.so."), "{said}");
}

#[test]
fn who_encrypts_nothing_does_not_miss_it() {
    let test = "root_server::without_openssl::who_encrypts_nothing_does_not_miss_it";
    if !needs::root(test) || !needs::tools(test, &["unshare", "mount", "mke2fs", "readelf"]) {
        return;
    }
    let needed = Command::new("readelf").args(["-d", PROGRAM]).output().unwrap();
    if String::from_utf8_lossy(&needed.stdout).contains("libssl.so") {
        return needs::left_out(test, "the linker here lets a debug program need OpenSSL");
    }
    let (libraries, folder) = (libraries(), tempfile::tempdir().unwrap());
    assert!(!libraries.is_empty(), "built by OpenSSL's headers, and its library is not there");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("root")).unwrap();
    fs::write(at("root/file"), "what a file holds\n").unwrap();
    ext(Path::new(&at("disk.img")), 16, Some(Path::new(&at("root"))), &["-t", "ext4"]);

    let shown = without(&libraries, &["cat", "-d", &at("disk.img"), "/file"]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "what a file holds\n", "{shown:?}");

    // A host with a key, and a server that has one.
    let made = Command::new(PROGRAM).args(["key", "generate", "--tls", "--out", &at("key")]).status();
    assert!(made.unwrap().success());
    let drive = "nvme+tcp://127.0.0.1:9/nqn.2026-11.dev.nearside:none/1";
    refused(&without(&libraries, &["cat", "-d", drive, "--tls-key-file", &at("key"), "/file"]));
    let plan = "listen = [\"127.0.0.1:0\"]\ntls = \"required\"\n\
                [[subsystem]]\nnqn = \"nqn.2026-11.dev.nearside:one\"\n\
                [[subsystem.host]]\nnqn = \"nqn.2026-11.dev.nearside:host\"\ntls-key-file = \"key\"\n\
                [[subsystem.namespace]]\nnsid = 1\nstore = \"file:disk.img\"\n";
    fs::write(at("serve.toml"), plan).unwrap();
    refused(&without(&libraries, &["serve", "--config", &at("serve.toml"), "--check"]));
    refused(&without(&libraries, &["serve", "--config", &at("serve.toml")]));
}
