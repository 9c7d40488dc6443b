//! Files that nobody meant: whatever stands in one, it is a model or an error in one line, and no panic.

use nearside_media::file::{ModelFile, Parameters};
use nearside_media::{Medium, PRESETS, Request};
use nearside_random::Random;

/// The text with one thing wrong: bytes, a digit, a line gone, twice, or in another place.
fn spoilt(text: &str, rng: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = rng.below(lines.len() as u64) as usize;
    let other = rng.below(lines.len() as u64) as usize;
    match rng.below(6) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[other].clone()),
        2 => lines.swap(at, other),
        3 => lines[at] = lines[at].replace(|c: char| c.is_ascii_digit(), "9"),
        4 => lines[at] = lines[at].replacen(" = ", &format!(" = -{}", u64::MAX >> rng.below(60)), 1),
        _ => {
            let mut bytes = text.as_bytes().to_vec();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.below(256) as u8;
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    lines.join("\n")
}

#[test]
fn spoilt_files_are_errors_or_models() {
    let (mut rng, mut models, mut errors) = (Random::new(7), 0, 0);
    for preset in PRESETS.iter() {
        let device_only = preset.toml.split("[[figures]]").next().unwrap();
        for nth in 0..600 {
            let mut text = spoilt(device_only, &mut rng);
            for _ in 0..nth % 3 {
                text = spoilt(&text, &mut rng);
            }
            match ModelFile::parse(&text) {
                Err(error) => {
                    errors += 1;
                    assert!(!error.to_string().contains('\n'), "{error}");
                }
                Ok(file) => {
                    models += 1;
                    if let Parameters::Nand(drive) = file.parameters {
                        for capacity in [drive.capacity, 1 << 20, u64::MAX] {
                            drive.sized(capacity).geometry.bytes();
                        }
                    }
                    let Some(mut medium) = file.parameters.medium() else { continue };
                    for at in 0..20 {
                        medium.finish(Request::read(at << 40, u64::MAX >> (at * 3)), at << 58);
                        medium.finish(Request::write(at << 20, at << 12), at << 58);
                    }
                }
            }
        }
    }
    assert!(models > 500 && errors > 500, "{models} models, {errors} errors: both have to come");
}
