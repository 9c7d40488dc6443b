//! `stat`.

use nearside_conformance::record;
use nearside_random::Rng;

use super::{Both, cases};

const PATHS: [&str; 12] = [
    "/",
    "/one",
    "/open",
    "/open/both",
    "/to-folder",
    "/to-file",
    "/dangling",
    "/null",
    "/large-minor",
    "/large-major",
    "/socket",
    "/missing",
];

/// A directive, or what looks like one.
fn directive(random: &mut Rng) -> String {
    let letters = [
        "n", "N", "s", "b", "B", "f", "F", "a", "A", "u", "U", "g", "G", "h", "i", "x", "X", "y", "Y", "z",
        "Z", "w", "W", "t", "T", "o", "r", "R", "Hr", "Lr", "q", "v", "H", "L", "E",
    ];
    let letter = random.pick(&letters);
    let mut text = String::from("%");
    // With flags that it drops, GNU stat prints the format's own letter behind a link's target.
    let flags: &[&str] = if letter == "N" { &["-"] } else { &["-", "#", "0", "+", " ", "'", "I"] };
    text.extend(flags.iter().filter(|_| random.in_of(1, 8)).copied());
    // The mount's own path is part of a name there. Seconds that are wider than their width without nine
    // digits, GNU stat pads once more.
    let names = ["n", "N"].contains(&letter);
    let widths = if ["X", "Y", "Z", "W"].contains(&letter) { ["1", "40"] } else { ["4", "15"] };
    if random.in_of(1, 3) && !names {
        text += random.pick(&widths);
    }
    if random.in_of(1, 4) && !names {
        text += random.pick(&[".", ".0", ".1", ".3"]);
    }
    text + letter
}

#[test]
fn random_formats_show_what_stat_shows() {
    let Some(both) = Both::make("root_gnu::random_formats_show_what_stat_shows", &["stat"]) else { return };
    let mut unlike = Vec::new();
    for seed in 0..cases() {
        let mut random = Rng(seed);
        let mut format = String::new();
        for _ in 0..1 + random.below(5) {
            format += &directive(&mut random);
            format +=
                random.pick(&["|", "|", "%%", "\\n", "\\101", "\\x41\\x4", "\\e\\\\\\\"", "text", "\\q"]);
        }
        let option = random.pick(&["-c", "--printf"]);
        let mut flags = vec![option, &*format];
        if random.in_of(1, 3) {
            flags.push("-L");
        }
        let paths: Vec<_> = (0..1 + random.index(3)).map(|_| random.pick(&PATHS)).collect();
        let ours = [&flags[..], &["--names=host"]].concat();
        unlike.extend(both.run("stat", (&ours, &flags), &paths, &[]).err());
    }
    for format in ["%", "100%", "%%%n%", "a\\", "%.9X %.12Y %.X", "%-30.9Y|%30.9Z|%015X|%-15X|% X%+X"] {
        for option in ["-c", "--printf"] {
            let flags = [option, format];
            let ours = [&flags[..], &["--names=host"]].concat();
            unlike.extend(both.run("stat", (&ours, &flags), &PATHS, &[]).err());
        }
    }
    record::alike("random_formats_show_what_stat_shows", cases(), 0, &unlike);
}
