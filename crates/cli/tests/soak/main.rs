//! Honest hosts, which verify what they read, beside hostile ones, each of which does over and over
//! again what once took the drive away from the others. Nothing that an honest host wrote is lost or
//! another's, and when the hostile ones have gone nothing of theirs is left: no connection, descriptor,
//! task, buffer or tag, no memory, and no work.
//!
//! `NEARSIDE_SOAK_S=600 cargo test --test soak -- --nocapture` is the long form;
//! `NEARSIDE_SOAK_ONLY=deaf,slow` names some. What the honest ones waited, alone and beside the hostile ones,
//! is printed and judged by nobody here.

#[path = "../../../front-tcp/tests/front_tcp/raw/mod.rs"]
mod raw;

mod attached;
mod honest;
mod hostile;
mod server;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside_conformance::{needs, volume};

use honest::Waited;
use server::{Kept, Served};

/// Bytes of the drive; its first half is an ext4 file system that is searched, the rest the honest hosts'.
const BYTES: u64 = 256 << 20;
const VOLUME: u64 = BYTES / 2;

/// How long a hostile host's deed may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(300);

/// Seconds that all of it takes, about.
fn seconds() -> u64 {
    std::env::var("NEARSIDE_SOAK_S").map_or(15, |word| word.parse().expect("NEARSIDE_SOAK_S is a number"))
}

/// Text to search at length, and a hole of 1 TiB.
fn drive(folder: &Path) -> std::path::PathBuf {
    let (tree, image) = (folder.join("tree"), folder.join("drive"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("text"), "a line of some forty bytes, and another\n".repeat(2_000_000)).unwrap();
    // One line that a pattern of nested repetitions takes long over.
    std::fs::write(tree.join("line"), "abab".repeat(1 << 20)).unwrap();
    std::fs::File::create(tree.join("hole")).unwrap().set_len(1 << 40).unwrap();
    volume::make("ext4", &image, VOLUME >> 20, &tree);
    std::fs::File::options().write(true).open(&image).unwrap().set_len(BYTES).unwrap();
    image
}

/// What a hostile host does, over and over, and its name.
type Act<'a> = (&'a str, Box<dyn Fn() + Sync + 'a>);

/// What an honest host does until it is over.
type Honest<'a> = dyn Fn(u64, &AtomicBool) -> Waited + Sync + 'a;

/// Two honest hosts for a while, beside what `beside` does over and over, each to its end at least once;
/// what they waited for their commands.
fn while_honest(honest: &Honest<'_>, time: Duration, beside: &[Act<'_>]) -> Waited {
    let over = AtomicBool::new(false);
    let done: Vec<AtomicBool> = beside.iter().map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|threads| {
        let (over, done) = (&over, &done);
        let honest = [0, 1].map(|nth| threads.spawn(move || honest(nth, over)));
        for ((_, hostile), done) in beside.iter().zip(done) {
            threads.spawn(move || {
                // A host elsewhere has cores of its own: here it has what the others leave.
                let _ = rustix::process::nice(19);
                while !over.load(Ordering::Relaxed) {
                    // Where the server lets go of it in the middle it begins again.
                    match std::panic::catch_unwind(AssertUnwindSafe(hostile)) {
                        Ok(()) => done.store(true, Ordering::Relaxed),
                        Err(_) => hostile::pause(),
                    }
                }
            });
        }
        let begun = Instant::now();
        let undone = || {
            beside
                .iter()
                .zip(done)
                .find(|(_, done)| !done.load(Ordering::Relaxed))
                .map(|((name, _), _)| *name)
        };
        std::thread::sleep(time);
        while undone().is_some() && begun.elapsed() < time + PATIENCE {
            hostile::pause();
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(undone(), None, "never done to its end");
        honest.map(|host| host.join().unwrap()).into_iter().reduce(Waited::and).unwrap()
    })
}

/// Honest hosts alone and beside hostile ones in turns. `at_rest` waits until nothing is left of these, with
/// no more descriptors than given, and says what is kept.
fn soak(honest: &Honest<'_>, beside: &[Act<'_>], at_rest: impl Fn(Option<usize>) -> Kept) {
    // In turns, since what else the machine does changes by the minute.
    let rounds = (seconds() / 20).max(2) as u32;
    let part = Duration::from_secs(seconds()) / rounds / 5;
    let (mut before, mut ratios) = (None, Vec::new());
    for round in 0..rounds {
        let alone = while_honest(honest, part * 2, &[]);
        println!("alone:           {alone}");
        let beside = while_honest(honest, part * 3, beside);
        println!("beside hostile:  {beside}");
        ratios.push(beside.p999() / alone.p999());
        // From the second time on everything that grows once has grown.
        let kept = at_rest(before.map(|first: Kept| first.descriptors));
        println!("after round {round}:   {kept:?}");
        let first = *before.get_or_insert(kept);
        // The staging buffers' 64 MiB become resident as they are first used.
        assert!(kept.resident <= first.resident + (96 << 20), "{first:?}, then {kept:?}");
    }
    ratios.sort_unstable_by(f64::total_cmp);
    println!(
        "99.9th percentile, of what it is alone: median {:.2}, least {:.2}, most {:.2} of {rounds} rounds",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1]
    );
}

#[test]
fn honest_hosts_beside_hostile_ones() {
    let Some(folder) = needs::folder("soak::honest_hosts_beside_hostile_ones", &["mke2fs"]) else { return };
    let image = drive(folder.path());
    let served = Served::start(&image, folder.path());
    let honest = |nth, over: &AtomicBool| honest::run(honest::Tcp::connect(&served, nth), nth, over);
    soak(&honest, &hostile::acts(&served), |most| served.until_nothing_is_left(most));
    println!("slices: {}", served.slices());
    served.program.rests();
    let (exit, said) = served.program.stop();
    assert_eq!(exit, Some(0), "{said}");
}

#[test]
fn what_a_shutdown_gives_up_is_said_by_its_exit() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("drive");
    std::fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
    let served = Served::start(&image, folder.path());
    let _held = hostile::owes_data(&served);
    let (exit, said) = served.program.stop();
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("given up: 1 commands whose hosts did not let them end"), "{said}");
}
