//! The committed header is what cbindgen makes of the sources now.
//! `NEARSIDE_BLESS=1 cargo test -p nearside-fsrlib-c` writes it anew.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let sources = ["lib.rs", "types.rs", "calls.rs", "tables.rs"].map(|name| folder.join("src").join(name));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in &sources[1..] {
        builder = builder.with_src(source);
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
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
