//! Media by name, for simulated time.

use nearside_embedded::Model;
use nearside_media::Medium;

/// How often over a NAND drive's capacity is written at random before it is measured:
/// by then every write is paid for by collection.
pub const ROUNDS: f64 = 1.0;

/// The medium that a word names, with `capacity` bytes. A NAND drive comes with its translation layer, near
/// its steady state; one of `fresh` flash has never been written.
///
/// # Errors
/// Which part of the word is wrong.
pub fn medium(word: &str, capacity: u64, fresh: bool, seed: u64) -> Result<impl Medium, String> {
    let mut model = Model::parse(word, capacity)?;
    if let (Model::Flash(flash), false) = (&mut model, fresh) {
        flash.precondition(ROUNDS, seed);
    }
    Ok(model)
}
