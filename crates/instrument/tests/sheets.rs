//! The models against their data sheets: every figure of every preset's file is shown within its tolerance,
//! or is missed where the file says so; and docs/MODELS.md has what they showed.
//! `NEARSIDE_BLESS=1 cargo test -p nearside-instrument --test sheets` writes it anew.

use std::path::Path;

use nearside_instrument::sheet::{Shown, check, markdown};
use nearside_media::PRESETS;
use nearside_media::file::ModelFile;

/// What stands below this line of docs/MODELS.md is written by this test.
const BELOW: &str = "<!-- Below: written by crates/instrument/tests/sheets.rs. -->\n";

fn checked(name: &str) -> Vec<Shown> {
    let preset = PRESETS.iter().find(|preset| preset.name == name).unwrap();
    check(name, &preset.file).unwrap()
}

#[test]
fn presets_show_their_data_sheets() {
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for preset in PRESETS.iter() {
        let shown = checked(preset.name);
        println!("{}\n{}", preset.name, markdown(&shown));
        text.push_str(&format!("\n## {}\n\n{}.\n", preset.name, preset.file.about));
        if !shown.is_empty() {
            text.push_str(&format!("\n{}", markdown(&shown)));
        }
        let not = shown.iter().filter(|it| !it.as_said());
        wrong.extend(
            not.map(|it| format!("{}: {}: {}, {} shown", preset.name, it.run(), it.says(), it.shows())),
        );
    }
    assert!(wrong.is_empty(), "not as their files say:\n{}", wrong.join("\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/MODELS.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, below) = page.split_once(BELOW).expect("the line that the tables stand below");
    if std::env::var_os("NEARSIDE_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{BELOW}{text}")).unwrap();
        return;
    }
    assert!(below == text, "docs/MODELS.md is not what the models show; NEARSIDE_BLESS=1 writes it anew");
}

/// A check that cannot fail would be none: another number is seen.
#[test]
fn a_model_that_does_not_show_its_figures_is_seen() {
    let text = PRESETS.iter().find(|preset| preset.name == "dram-gen2").unwrap().toml;
    let path = std::env::temp_dir().join(format!("nearside-sheet-{}.toml", std::process::id()));
    let shown = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let file = ModelFile::parse(text).unwrap();
        let shown = check(path.to_str().unwrap(), &file).unwrap();
        std::fs::remove_file(&path).unwrap();
        shown.iter().map(Shown::as_said).collect::<Vec<_>>()
    };
    assert_eq!(shown(text), [true, true, true]);
    assert_eq!(shown(&text.replace("command_ns = 500", "command_ns = 600")), [true, true, false]);
    assert_eq!(shown(&text.replace("path_ns = 1_300", "path_ns = 1_600")), [false, false, true]);
    let missed = text.replace("source = \"FAST'12, Fig. 3\"", "source = \"FAST'12\"\nmissed = \"no reason\"");
    assert_eq!(shown(&missed), [true, true, false], "what is said to be missed has to be");
}
