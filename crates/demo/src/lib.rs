//! The papers' system in three acts: what `make demo` shows.
//!
//! [`run`] plays them, prints tables, and writes one self-contained page with the pictures.

#![warn(clippy::missing_errors_doc)]

mod act1;
pub mod act2;
pub mod act3;
pub mod replay;
pub mod stage;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nearside_loadgen::record::Environment;
pub use stage::Failure;
use stage::Stage;

const TITLE: &str = "Nearside: three acts";

/// Plays the three acts, works in `out`, and returns the page's path. `small`: less data and fewer rounds.
///
/// # Errors
/// The act that stops, or that the page cannot be written.
pub fn run(out: &Path, small: bool) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(out)?;
    let stage = Stage { out: out.canonicalize()?, small };
    let mut page = nearside_instrument::report::Page::new(
        TITLE,
        "An NVMe drive in software whose firmware understands files: what three papers describe, measured on this machine just now.",
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let size = if small { "small: less data and fewer rounds" } else { "whole" };
    page.measured(&Environment::gather(now), &[("demo", size.to_owned())]);
    let mut headlines = vec![act1::play(&stage, &mut page)?];
    let (volumes, contents) = act2::volumes(&stage)?;
    for (nth, volume) in volumes.iter().enumerate() {
        let headline = act2::play(&stage, &mut page, volume, &contents)?;
        // A number for each act: the first volume's.
        headlines.extend((nth == 0).then_some(headline));
    }
    headlines.push(match act3::obstacle() {
        None => act3::play(&stage, &mut page)?,
        Some(why) => act3::play_recorded(&stage, &mut page, why)?,
    });
    page.numbers(&headlines);
    println!();
    for (number, sentence) in &headlines {
        println!("  {number:>8}  {sentence}");
    }
    let path = stage.out.join("demo.html");
    std::fs::write(&path, page.finish())?;
    println!("\nThe page with the pictures: {}", path.display());
    if let Some(volume) = volumes.first() {
        println!("The volumes stay for you to ask: nearside ls -d {} /real", volume.image.display());
    }
    Ok(path)
}
