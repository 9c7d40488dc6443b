//! Images that are in use: mounted by this machine, or served already. Who would write
//! them is refused, and who would read them beside a writer, with the reason and what to
//! do; the options that go on all the same do.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, ext};

use crate::{NQN, Server, can_mount};

pub fn nearside(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nearside"))
        .args(args)
        .env_remove("NEARSIDE_DRIVE")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn refused(args: &[&str], says: &[&str]) {
    let (code, out, err) = nearside(args);
    assert!(code == Some(2) && out.is_empty(), "{args:?}: {code:?} {out}");
    for word in says {
        assert!(err.contains(word), "{args:?}: {word:?} is not in {err}");
    }
}

/// `serve` of an image, which must not begin.
fn serve<'a>(store: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["serve", "--listen", "127.0.0.1:0", "--store", store][..], more].concat()
}

fn sync() {
    assert!(Command::new("sync").status().unwrap().success());
}

#[test]
fn a_mounted_image_is_refused() {
    let test = "root_server::in_use::a_mounted_image_is_refused";
    if !can_mount(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (image, link, place, drive) = (at("disk.img"), at("link.img"), at("mnt"), at("drive"));
    ext(Path::new(&image), 32, None, &["-t", "ext4"]);
    fs::hard_link(&image, &link).unwrap();
    fs::create_dir(&drive).unwrap();
    let mount = Mounted::new(&["-o", "loop"], Path::new(&image), Path::new(&place));
    fs::write(format!("{place}/public"), "one\n").unwrap();
    sync();
    let device =
        Command::new("losetup").args(["--noheadings", "--output", "NAME", "--associated", &image]).output();
    let device = String::from_utf8(device.unwrap().stdout).unwrap().trim().to_owned();
    let mounted = format!("mounted at {place}");

    let by = ["lies over it", &device, &mounted, "unmount", "--risk-corruption"];
    // By whatever name, and the device as well as the file.
    for store in [&image, &link] {
        refused(&serve(store, &[]), &by);
        refused(&["attach", "--store", store, &drive], &by);
    }
    refused(&serve(&device, &[]), &[&mounted, "unmount"]);
    let target = format!("uring:{image}");
    let bench = ["bench", "run", "-d", &target, "--rw", "randwrite", "--iodepth", "1", "--runtime", "20ms"];
    refused(&bench, &["in use", "lies over it"]);
    let (code, ..) = nearside(&["ls", "-d", &format!("unix:{drive}.sock"), "/"]);
    assert_eq!(code, Some(2), "nothing is attached");
    refused(&serve(&image, &["--read-only"]), &["lies over it", "--shared-image"]);
    refused(&serve(&image, &["--shared-image"]), &["--read-only"]);

    // A command reads it once, and says what that is worth.
    let (code, out, err) = nearside(&["cat", "-d", &image, "/public"]);
    assert_eq!((code, out.as_str()), (Some(0), "one\n"), "{err}");
    assert!(err.contains("lies over it") && err.contains(&mounted), "{err}");

    // A reader that relies on nothing: the block of a file that is gone is not shown under its name,
    // nor a new file missed.
    let server = Server::with(&image, &["--read-only", "--shared-image", "--trust"]);
    let remote = format!("nvme+tcp://127.0.0.1:{}/{NQN}/1", server.port);
    let cat = |path: &str| nearside(&["cat", "-d", &remote, path]);
    for round in 0..5 {
        let text = format!("round {round}\n");
        fs::write(format!("{place}/public"), &text).unwrap();
        sync();
        assert_eq!(cat("/public").1, text);
        fs::remove_file(format!("{place}/public")).unwrap();
        fs::write(format!("{place}/secret"), "SECRET\n").unwrap();
        sync();
        let (code, out, err) = cat("/public");
        assert!(code != Some(0) && out.is_empty() && err.contains("No such file"), "{out} {err}");
        fs::remove_file(format!("{place}/secret")).unwrap();
    }
    let (status, _) = server.stop();
    assert!(status.success());

    // With the word for it.
    let server = Server::with(&image, &["--risk-corruption"]);
    assert!(server.stop().0.success());
    drop(mount);
    let (status, said) = Server::start(&image).stop();
    assert!(status.success(), "{said}");
    let (code, _, err) = nearside(&["ls", "-d", &image, "/"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

#[test]
fn a_served_image_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if !needs::tools("root_server::in_use::a_served_image_is_refused", &["mke2fs"]) {
        return;
    }
    ext(&image, 16, None, &["-t", "ext4"]);
    let image = image.to_str().unwrap();
    let writer = Server::start(image);
    let by = format!("process {} (nearside) has it locked", writer.child.id());
    refused(&serve(image, &[]), &[&by]);
    refused(&serve(image, &["--risk-corruption"]), &[&by]);
    refused(&serve(image, &["--read-only"]), &[&by, "--shared-image"]);
    let target = format!("uring:{image}");
    let bench = ["bench", "run", "-d", &target, "--rw", "randwrite", "--iodepth", "1", "--runtime", "20ms"];
    refused(&[&bench[..], &["--destroy"]].concat(), &[&by]);
    let (code, _, err) = nearside(&["ls", "-d", image, "/"]);
    assert!(code == Some(0) && err.contains(&by), "{err}");
    let shared = Server::with(image, &["--read-only", "--shared-image"]);
    drop((writer, shared));
    // Readers bear each other, and keep a writer out.
    let readers = [Server::with(image, &["--read-only"]), Server::with(image, &["--read-only"])];
    let (code, _, err) = nearside(&["ls", "-d", image, "/"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    refused(&serve(image, &[]), &["has it locked", "(nearside)"]);
    drop(readers);
    assert!(Server::start(image).stop().0.success());
}
