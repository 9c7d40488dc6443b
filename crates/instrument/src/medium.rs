//! Media by name, for simulated time.

use std::fmt::Write as _;

use nearside_ftl::{Config, Flash};
use nearside_media::{AnyMedium, Medium, PRESETS, nand};

/// How often over a NAND drive's capacity is written at random before it is measured: by then every write is paid for by collection.
const ROUNDS: f64 = 1.0;

/// The medium that a word names, with `capacity` bytes. A NAND drive comes with its translation layer, near its steady state; one of
/// `fresh` flash has never been written.
///
/// # Errors
/// Which part of the word is wrong.
pub fn medium(word: &str, capacity: u64, fresh: bool, seed: u64) -> Result<Box<dyn Medium>, String> {
    let Some(drive) = nand::preset(word) else {
        return match AnyMedium::parse(word) {
            Ok(medium) => Ok(Box::new(medium)),
            Err(error) => {
                let names: Vec<&str> = nand::presets().iter().map(|drive| drive.name).collect();
                Err(format!("{error}; or, of flash, {}", names.join(", ")))
            }
        };
    };
    let drive = nand::Drive { seed, ..drive.sized(capacity) };
    let mut flash = Flash::<()>::new(drive, Config::default()).map_err(|e| e.to_string())?;
    if !fresh {
        flash.precondition(ROUNDS, seed);
    }
    Ok(Box::new(flash))
}

/// All names, each with what it is, a line each.
#[must_use]
pub fn media() -> String {
    let nand = nand::presets();
    let all: Vec<(&str, &str)> =
        PRESETS.iter().map(|p| (p.name, p.about)).chain(nand.iter().map(|d| (d.name, d.about))).collect();
    let wide = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, about) in all {
        let _ = writeln!(text, "  {name:wide$}  {about}");
    }
    text
}
