//! The committed header is what cbindgen makes of the sources now.
//! `NEARSIDE_BLESS=1 cargo test -p nearside-fsrlib-c` writes it anew.

use std::path::Path;
use std::process::Command;

use nearside_conformance::needs;

/// With comments as C had them first: what cbindgen puts behind lines of the preprocessor has another style.
fn comments(header: &str) -> String {
    let line = |line: &str| match line.split_once("//") {
        Some((before, comment)) if line.starts_with(['#', '}']) => {
            format!("{}/* {} */\n", before, comment.trim())
        }
        _ => format!("{line}\n"),
    };
    header.lines().map(line).collect()
}

#[test]
fn the_header_is_read_by_old_c_and_by_cpp() {
    let name = "the_header_is_read_by_old_c_and_by_cpp";
    let Some(folder) = needs::folder(name, &["cc", "c++"]) else { return };
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, standard, source) in [
        ("cc", "c89", "a.c"),
        ("cc", "c99", "b.c"),
        ("cc", "c17", "c.c"),
        ("c++", "c++98", "d.cc"),
        ("c++", "c++17", "e.cc"),
    ] {
        let source = folder.path().join(source);
        let text = "#include <nearside.h>\nint main(void) { return nearside_error(NULL) == NULL; }\n";
        std::fs::write(&source, text).unwrap();
        let mut compile = Command::new(compiler);
        compile.arg(format!("-std={standard}")).args([
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
        ]);
        let compiled = compile.arg("-I").arg(&include).arg(source).output().unwrap();
        assert!(compiled.status.success(), "{standard}: {}", String::from_utf8_lossy(&compiled.stderr));
    }
}

#[test]
fn the_header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let sources = ["lib.rs", "types.rs", "calls.rs", "search.rs", "tables.rs"]
        .map(|name| folder.join("src").join(name));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in &sources[1..] {
        builder = builder.with_src(source);
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = comments(&String::from_utf8(made).unwrap());
    let path = folder.join("include/nearside.h");
    if std::env::var_os("NEARSIDE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/nearside.h is not what the sources say; NEARSIDE_BLESS=1 writes it anew"
    );
}
