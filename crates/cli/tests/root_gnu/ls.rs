//! `ls`.

use nearside_conformance::record;
use nearside_random::Rng;

use super::{Both, cases, none_unlike, some};

const PATHS: [&str; 14] = [
    "/",
    "/one",
    "/one/sub folder",
    "/open",
    "/empty",
    "/to-folder",
    "/to-file",
    "/dangling",
    "/up",
    "/null",
    "/large-minor",
    "/socket",
    "/missing",
    "/open/up",
];

const COLORS: [&[(&str, &str)]; 5] = [
    &[("TERM", "xterm-256color")],
    &[("TERM", "unheard-of")],
    &[("TERM", "unheard-of"), ("COLORTERM", "yes")],
    &[("LS_COLORS", "or=31;1:mi=41:*.gz=31:*line=32:ex=00:fi=0:mh=44;37:di=:*.tar.gz=33")],
    &[("LS_COLORS", "ln=target:or=7:st=0:tw=0:pi=35")],
];

const STYLES: [&str; 8] =
    ["full-iso", "long-iso", "iso", "locale", "+%s", "+%Y\n%d.%m. %k:%M", "+%c|%x %X %r|%D|%e%j%U%N", "+"];

#[test]
fn random_flags_list_what_ls_lists() {
    let Some(both) = Both::make("root_gnu::random_flags_list_what_ls_lists", &["ls"]) else { return };
    let (mut unlike, mut lines) = (Vec::new(), 0);
    for seed in 0..cases() {
        let mut random = Rng(seed);
        let flags = ["-a", "-A", "-R", "-t", "-S", "-r", "-F", "-p", "-s", "-h", "-i", "-1"];
        let mut flags = some(&mut random, &flags, 3);
        let style = format!("--time-style={}", random.pick(&STYLES));
        flags.extend(some(&mut random, &["--color=always", &style], 2));
        let shared = flags.len();
        let numbers = random.in_of(1, 4);
        if numbers {
            flags.push("-n");
        } else if random.in_of(1, 2) {
            flags.push("-l");
        }
        // The later of two that contradict each other counts.
        for at in (1..flags.len()).rev() {
            flags.swap(at, random.index(at + 1));
        }
        let (mut ours, mut theirs) = (flags.clone(), flags);
        if !numbers {
            ours.push("--names=host");
        }
        if random.in_of(1, 5) {
            ours.push("-D");
            theirs.push("-d");
        }
        let mut paths: Vec<_> = (0..1 + random.index(3)).map(|_| random.pick(&PATHS)).collect();
        if ours.contains(&"-a") {
            // What is above a mount is another file system's.
            paths.iter_mut().filter(|path| **path == "/").for_each(|path| *path = "/open");
        }
        match both.run("ls", (&ours, &theirs), &paths, random.pick(&COLORS)) {
            Ok(answer) => lines += answer.out.iter().filter(|b| **b == b'\n').count(),
            Err(why) => unlike.push(format!("seed {seed}, {shared} flags: {why}")),
        }
    }
    record::alike("random_flags_list_what_ls_lists", cases(), 0, &unlike);
    assert!(lines as u64 > 10 * cases(), "{lines} lines");
}

#[test]
fn what_chance_seldom_lists() {
    let Some(both) = Both::make("root_gnu::what_chance_seldom_lists", &["ls"]) else { return };
    let mut unlike = Vec::new();
    for (flags, paths) in [
        (&["-aA"][..], &["/"][..]),
        (&["-Aa"], &["/"]),
        (&["-tS"], &["/"]),
        (&["-StrU", "-S"], &["/"]),
        (&["-Fp"], &["/"]),
        (&["-pF"], &["/"]),
        (&["-n", "-F", "--color=always"], &["/", "/open"]),
        (&["-nish"], &["/"]),
        (&["-U"], &["/to-file", "/null", "/dangling"]),
        (&["-Ur"], &["/to-file", "/null", "/dangling"]),
        (&["--colour=yes"], &["/"]),
        (&["--color=none", "-s"], &["/"]),
        (&["--color=auto"], &["/"]),
    ] {
        let environment = COLORS[3];
        // ls does not know the other spelling.
        let theirs: Vec<&str> =
            flags.iter().map(|f| if *f == "--colour=yes" { "--color=yes" } else { f }).collect();
        unlike.extend(both.run("ls", (flags, &theirs), paths, environment).err());
    }
    none_unlike(&unlike);
}
