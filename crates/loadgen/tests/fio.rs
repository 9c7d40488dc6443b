//! Beside fio on the same file at the same rate: the comparison as the benchmark makes it. How the medians
//! compare is a record's affair, since it is the machine's: here both are found.

mod beside_fio;

use nearside_conformance::needs;

#[test]
fn both_find_a_median() {
    if !needs::tools("fio::both_find_a_median", &["fio"]) {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, direct) = beside_fio::target(folder.path());
    let (ours, theirs) = beside_fio::round(&path, direct, 700);
    println!("ours and fio's, ns: {ours} {theirs}");
    // A read of a file is a system call at the least.
    assert!(ours > 50.0 && theirs > 50.0, "{ours} {theirs}");
}
