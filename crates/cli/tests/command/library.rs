//! The C library over the network: its example, compiled here, on a drive that `nearside serve` serves,
//! beside the commands of the same meaning.

use std::path::{Path, PathBuf};
use std::process::Command;

// What is linked with the example is built with this test.
use nearside as _;
use nearside_conformance::needs;

use crate::fixture::{Ran, small};
use crate::network::serve;

/// Where cargo has put a library of this build.
pub fn built(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folders = here.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file()).expect(name)
}

#[test]
fn the_c_library_says_over_the_network_what_the_commands_say() {
    let test = "the_c_library_says_over_the_network_what_the_commands_say";
    let Some(volume) = small(test) else { return };
    let Some(folder) = needs::folder(test, &["cc"]) else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fsrlib-c");
    let program = folder.path().join("search");
    let mut compile = Command::new("cc");
    compile.args(["-std=c89", "-pedantic", "-Wall", "-Werror", "-I"]).arg(source.join("include"));
    compile.arg(source.join("examples/search.c")).arg(built("libnearside.a"));
    let compiled = compile
        .args(["-lssl", "-lcrypto", "-lpthread", "-ldl", "-lm", "-lrt", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let served = serve(&volume.image);
    let c = |args: &[&str]| {
        Ran::from(Command::new(&program).env("LC_ALL", "C").arg(&served.drive).args(args).output().unwrap())
    };

    let found = c(&["/logs", "e", "[0-9]7"]);
    let same = volume.run("grep", &["-rHn", "-e", "e", "-e", "[0-9]7", "/logs"]);
    assert_eq!((found.code, found.text()), (0, same.good()));
    assert!(found.err.contains("reads: 0, "), "{}", found.err);
    let mut listed: Vec<String> = c(&["/logs"]).text().lines().map(str::to_owned).collect();
    let mut names: Vec<String> = volume.run("find", &["/logs"]).good().lines().map(str::to_owned).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    let missing = c(&["/absent", "e"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.starts_with("/absent: No such file or directory\n"), "{}", missing.err);
    let closed =
        Ran::from(Command::new(&program).args(["nvme+tcp://127.0.0.1:1/nqn.x/1", "/"]).output().unwrap());
    assert_eq!(closed.code, 2);
    assert!(closed.err.starts_with("nvme+tcp://127.0.0.1:1/nqn.x/1: "), "{}", closed.err);
}
