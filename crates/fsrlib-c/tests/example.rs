//! Programs in C, built with the machine's C compiler against the header and the static library, on small
//! volumes: `examples/search.c`, whose search is one near-data command that reads no block,
//! `tests/inside.c`, whose callbacks use the session that calls them, and `tests/trees.c`.

use std::path::{Path, PathBuf};
use std::process::Command;

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
