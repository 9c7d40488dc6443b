//! A command over the network whose server goes away: it goes on over another connection, or says why not.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nearside_conformance::needs;

use crate::fixture::{Ran, Volume, nearside, on, small};
use crate::network::{Served, serve, serve_at};

/// Every line of a tree: more than a buffer of the drive's, and than a pipe holds.
const SEARCH: [&str; 3] = ["-rn", "", "/logs"];
const SUBSYSTEM: &str = "nqn.2026-11.example:reconnect";
const HOST: &str = "nqn.2026-11.example:host";

/// HOST:PORT of a drive's name.
fn authority(drive: &str) -> &str {
    drive.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap()
}

fn kill(served: &mut Served) {
    served.server.kill().unwrap();
    served.server.wait().unwrap();
}

/// A search that has answered something. Most of its commands are not sent yet: its pipe is full.
struct Search {
    process: Child,
    out: Vec<u8>,
}

impl Search {
    fn start(drive: &str, options: &[&str]) -> Search {
        let mut search = nearside();
        search.args(["grep", "-d", drive]).args(options).args(SEARCH);
        let mut process = search.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = vec![0; 1000];
        process.stdout.as_mut().unwrap().read_exact(&mut out).unwrap();
        Search { process, out }
    }

    /// With all that it has answered.
    fn end(mut self) -> Ran {
        self.process.stdout.take().unwrap().read_to_end(&mut self.out).unwrap();
        let mut ran = Ran::from(self.process.wait_with_output().unwrap());
        ran.out = self.out;
        ran
    }
}

/// What the search has to answer.
fn whole(volume: &Volume) -> String {
    volume.run("grep", &SEARCH).good()
}

#[test]
fn a_search_goes_on_when_its_server_was_killed_and_is_back() {
    let Some(volume) = small("a_search_goes_on_when_its_server_was_killed_and_is_back") else { return };
    let image = volume.image.to_str().unwrap();
    let mut served = serve(&volume.image);
    let search = Search::start(&served.drive, &["--reconnect-delay", "1"]);
    kill(&mut served);
    let _again = serve_at(authority(&served.drive), &["--read-only", "--trust", "--store", image]);
    let ran = search.end();
    assert_eq!((ran.code, ran.text() == whole(volume)), (0, true), "{}", ran.err);
    let said: Vec<&str> = ran.err.lines().collect();
    let begin = format!("nearside: {}: ", served.drive);
    let said: Vec<&str> = said.iter().map(|line| line.strip_prefix(&begin).unwrap_or(line)).collect();
    assert!(said[0].starts_with("starting error recovery: driver: "), "{said:?}");
    assert_eq!(said[1..], ["Reconnecting in 1 seconds...", "Successfully reconnected (attempt 1/600)"]);
}

#[test]
fn a_second_address_takes_over() {
    let Some(volume) = small("a_second_address_takes_over") else { return };
    let (mut first, second) = (serve(&volume.image), serve(&volume.image));
    let both = format!("{},{}", authority(&first.drive), authority(&second.drive));
    let drive = first.drive.replace(authority(&first.drive), &both);
    let search = Search::start(&drive, &[]);
    kill(&mut first);
    let ran = search.end();
    assert_eq!((ran.code, ran.text() == whole(volume)), (0, true), "{}", ran.err);
    assert!(ran.err.ends_with(&format!(": going on by {}\n", authority(&second.drive))), "{}", ran.err);
    assert!(!ran.err.contains("Reconnecting"), "{}", ran.err);
    // The first that answers is taken.
    let info = on(Path::new(&drive), "info", &["--json"]);
    assert_eq!((info.code, info.err.as_str()), (0, ""));
    // A measurement has one connection, whose end it shows.
    let bench = Ran::from(nearside().args(["bench", "run", "-d", &drive]).output().unwrap());
    assert!(
        bench.code == 2 && bench.err.contains("one address is wanted here, not several"),
        "{}",
        bench.err
    );
}

#[test]
fn a_loss_ends_what_is_not_to_outlive_it() {
    let Some(volume) = small("a_loss_ends_what_is_not_to_outlive_it") else { return };
    let mut served = serve(&volume.image);
    let search = Search::start(&served.drive, &["--ctrl-loss-tmo", "0"]);
    kill(&mut served);
    let ran = search.end();
    assert_eq!(ran.code, 2);
    assert!(whole(volume).starts_with(&ran.text()));
    let begin = format!("nearside: {}: driver: the ", served.drive);
    assert!(ran.err.starts_with(&begin) && ran.err.lines().count() == 1, "{}", ran.err);

    let served = serve(&volume.image);
    for (option, number, taken) in [
        ("--ctrl-loss-tmo", "-1", true),
        ("--ctrl-loss-tmo", "-2", false),
        ("--reconnect-delay", "1", true),
        ("--reconnect-delay", "0", false),
    ] {
        let ran = on(Path::new(&served.drive), "ls", &[option, number, "/"]);
        assert_eq!(ran.code, if taken { 0 } else { 2 }, "{option} {number}: {}", ran.err);
    }
}

#[test]
fn a_server_that_is_another_one_ends_the_search() {
    let Some(volume) = small("a_server_that_is_another_one_ends_the_search") else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.img");
    std::fs::copy(&volume.image, &copy).unwrap();
    let images = [volume.image.to_str().unwrap(), copy.to_str().unwrap()];
    let server = |listen: &str, image: &str, host: &str| {
        let words = ["--read-only", "--trust", "--subsystem", SUBSYSTEM, "--allow-host", host];
        serve_at(listen, &[&words[..], &["--store", image]].concat())
    };
    for (image, host, why) in [
        (images[0], "nqn.2026-11.example:other", "does not allow the host"),
        (images[1], HOST, "namespace 1 there is another than it was"),
    ] {
        let mut served = server(&format!("{}:0", needs::loopback()), images[0], HOST);
        let search = Search::start(&served.drive, &["--hostnqn", HOST, "--reconnect-delay", "1"]);
        kill(&mut served);
        let _other = server(authority(&served.drive), image, host);
        let ran = search.end();
        assert!(ran.code == 2 && ran.err.lines().last().unwrap().contains(why), "{}", ran.err);
        assert!(ran.err.contains("; no other can be made: "), "{}", ran.err);
        assert_eq!(ran.err.matches("Reconnecting in").count(), 1, "{}", ran.err);
        // Nothing of the other is in the answer.
        assert!(whole(volume).starts_with(&ran.text()) && ran.out.len() < whole(volume).len());
    }
}

#[test]
fn the_wait_for_a_server_can_be_interrupted() {
    let Some(volume) = small("the_wait_for_a_server_can_be_interrupted") else { return };
    let mut served = serve(&volume.image);
    let mut search = Search::start(&served.drive, &["--reconnect-delay", "100000"]);
    kill(&mut served);
    let mut out = search.process.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let said = BufReader::new(search.process.stderr.take().unwrap()).lines();
    let waits = said.map(Result::unwrap).any(|line| line.contains("Reconnecting in 100000 seconds..."));
    assert!(waits);
    let id = search.process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(search.process.wait().unwrap().signal(), Some(2));
    reader.join().unwrap().unwrap();
}
