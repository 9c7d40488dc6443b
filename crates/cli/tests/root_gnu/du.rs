//! `du`.

use nearside_conformance::record;
use nearside_conformance::volume::{must, tool};
use nearside_random::Rng;

use super::{Both, cases, some};

const PATHS: [&str; 9] =
    ["/", "/one", "/one/sub folder", "/open", "/empty", "/to-folder", "/dangling", "/null", "/missing"];

/// Lines in any order: GNU du goes through directories in their own. Where lines end in NUL, names have none.
fn sorted(text: &[u8], null: bool) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|b| *b == if null { 0 } else { b'\n' }).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn random_flags_count_what_du_counts() {
    let Some(both) = Both::make("root_gnu::random_flags_count_what_du_counts", &["du", "find"]) else {
        return;
    };
    let mut unlike = Vec::new();
    for seed in 0..cases() {
        let mut random = Rng(seed);
        let mut flags =
            some(&mut random, &["-c", "-S", "-h", "-k", "-m", "--inodes", "-l", "-D", "-x", "-0"], 5);
        // Which of a file's names is met first is of each one's order.
        let all = if flags.contains(&"-l") { "-a" } else { "-ad0" };
        flags.extend(random.pick(&[None, Some(all), Some("-s"), Some("-d1"), Some("--max-depth=2")]));
        let paths: Vec<&str> = (0..1 + random.below(3)).map(|_| random.pick(&PATHS)).collect();
        let null = flags.contains(&"-0");
        let (ours, theirs, said) = both.runs("du", (&flags, &flags), &paths, &[]);
        if ours.code != theirs.code || sorted(&ours.out, null) != sorted(&theirs.out, null) {
            let [ours, theirs] =
                [ours, theirs].map(|answer| String::from_utf8_lossy(&answer.out).into_owned());
            unlike.push(format!("{said}\n{ours}\n{theirs}"));
        }
    }
    record::alike("random_flags_count_what_du_counts", cases(), 0, &unlike);
    // coreutils before 9.2 count the bytes of directories as well: what find says of the rest.
    let mut find = tool("find");
    let files = must(find.arg(both.mount.path()).args(["-type", "f,l", "-printf", "%i %s\\n"]));
    let files = String::from_utf8(files.stdout).unwrap();
    let mut files: Vec<&str> = files.lines().collect();
    files.sort_unstable();
    files.dedup();
    let bytes: u64 = files.iter().map(|line| line.split_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let (ours, ..) = both.runs("du", (&["-bs"], &["-bs"]), &["/"], &[]);
    assert_eq!(String::from_utf8_lossy(&ours.out), format!("{bytes}\t/\n"));
}
