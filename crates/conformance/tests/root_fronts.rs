//! The front for a live host, put to the suite; and the answers of all fronts, compared. Needs root and FUSE.

#[path = "fronts/fuse.rs"]
mod fuse;
#[path = "fronts/looped.rs"]
mod looped;
#[path = "fronts/vfio.rs"]
mod vfio;

use fuse::Fuse;
use looped::Looped;
use nearside_conformance::front::{answers, suite};
use nearside_conformance::{needs, volume};
use vfio::Vfio;

fn ready(name: &str, tools: &[&str]) -> bool {
    needs::fuse(name) && needs::root(name) && needs::tools(name, tools)
}

#[test]
fn file() {
    if ready("root_fronts::file", &[]) {
        suite(&Fuse { socket: false });
    }
}

#[test]
fn socket() {
    if ready("root_fronts::socket", &[]) {
        suite(&Fuse { socket: true });
    }
}

#[test]
fn every_front_gives_the_same_answers() {
    if !ready("root_fronts::every_front_gives_the_same_answers", &["mke2fs"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    for n in 0..50 {
        std::fs::write(tree.join(format!("a/b/{n}")), vec![n; 700 * n as usize]).unwrap();
    }
    volume::make("ext4", &image, 16, &tree);
    let right = answers(&Looped { lba_size: 512, reactors: 0 }, &image);
    assert!(right[0].records.len() > 50, "{right:?}");
    assert_eq!(answers(&Looped { lba_size: 4096, reactors: 0 }, &image), right);
    assert_eq!(answers(&Looped { lba_size: 512, reactors: 2 }, &image), right);
    assert_eq!(answers(&Fuse { socket: true }, &image), right);
    assert_eq!(
        answers(&Vfio { lba_size: 512, threads: 1, mapped_doorbells: false, by_messages: false }, &image),
        right
    );
}
