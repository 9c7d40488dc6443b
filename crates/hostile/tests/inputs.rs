//! Every fuzz target over its seeds, over what fuzzing has found, and over seeded changes of its seeds.
//!
//! `NEARSIDE_CHANGES` sets how many changes of each target's seeds, `NEARSIDE_TARGET` chooses a target.

use std::path::Path;

use nearside_hostile::TARGETS;
use nearside_random::Rng;

/// Each finding has a file in `fuzz/regressions/TARGET`, named after what was wrong.
#[test]
fn findings_stay_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let of_target = entry.unwrap();
        if !of_target.file_type().unwrap().is_dir() {
            continue;
        }
        let name = of_target.file_name().into_string().unwrap();
        for entry in std::fs::read_dir(of_target.path()).unwrap() {
            let path = entry.unwrap().path();
            eprintln!("{}", path.display());
            nearside_hostile::run(&name, &std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn seeds_and_changes_of_them() {
    let changes = std::env::var("NEARSIDE_CHANGES").map_or(300, |count| count.parse().unwrap());
    let only = std::env::var("NEARSIDE_TARGET").ok();
    for target in TARGETS.iter().filter(|target| only.as_ref().is_none_or(|only| only == target.name)) {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        let mut random = Rng(1);
        for seed in &seeds {
            (target.run)(seed);
        }
        for _ in 0..changes {
            let mut input = seeds[random.index(seeds.len())].clone();
            for _ in 0..1 + random.index(6) {
                let at = random.index(input.len());
                input[at] = match random.index(3) {
                    0 => input[at] ^ (1 << random.index(8)),
                    1 => [0, 1, 0x7f, 0x80, 0xff][random.index(5)],
                    _ => random.draw() as u8,
                };
            }
            if random.index(8) == 0 {
                input.truncate(random.index(input.len()));
            }
            (target.run)(&input);
        }
    }
}
