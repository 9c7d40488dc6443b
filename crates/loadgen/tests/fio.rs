//! Against fio on the same file at the same rate.

mod beside_fio;

use nearside_conformance::needs;

#[test]
fn medians_are_those_of_fio() {
    if !needs::tools("medians_are_those_of_fio", &["fio"]) {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, direct) = beside_fio::target(folder.path());
    let rounds: Vec<(f64, f64)> = (0..3).map(|_| beside_fio::round(&path, direct, 700)).collect();
    println!("ours and fio's, ns: {rounds:?}");
    // Loosely, since others use the machine: the ranges of the rounds, a factor of two wider at each end, meet.
    let range = |of: fn(&(f64, f64)) -> f64| {
        let all = rounds.iter().map(of);
        (all.clone().fold(f64::INFINITY, f64::min) / 2.0, all.fold(0.0, f64::max) * 2.0)
    };
    let (ours, theirs) = (range(|r| r.0), range(|r| r.1));
    assert!(ours.0 <= theirs.1 && theirs.0 <= ours.1, "{rounds:?}");
}
