//! The same commands over the network: `nearside serve` in a process of its own,
//! and drives named nvme+tcp://.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nearside_conformance::needs;

use crate::fixture::{Ran, TEXTS, nearside, on, small};

pub struct Served {
    pub server: Child,
    pub drive: String,
    /// Of its control socket.
    folder: tempfile::TempDir,
}

impl Served {
    /// Commands that it has answered.
    fn commands(&self) -> u64 {
        let mut status = nearside();
        status.args(["status", "--json", "--control"]).arg(self.folder.path().join("control"));
        Ran::from(status.output().unwrap()).json()[0]["commands"].as_u64().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub fn serve(image: &Path) -> Served {
    serve_with(&["--read-only", "--trust", "--store", image.to_str().unwrap()])
}

pub fn serve_with(arguments: &[&str]) -> Served {
    serve_at(&format!("{}:0", needs::loopback()), arguments)
}

/// A server that awaits hosts there.
pub fn serve_at(listen: &str, arguments: &[&str]) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let mut server = nearside();
    server.args(["serve", "--listen", listen]).args(arguments);
    server.arg("--control").arg(folder.path().join("control"));
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let drive = lines.find_map(|line| {
        let line = line.unwrap();
        line.starts_with("nvme+tcp://").then(|| line.split(": ").next().unwrap().to_owned())
    });
    Served { server, drive: drive.expect("the server says its drive's name"), folder }
}

#[test]
fn commands_say_the_same_over_the_network() {
    let Some(volume) = small("commands_say_the_same_over_the_network") else { return };
    let served = serve(&volume.image);
    let there = |command: &str, args: &[&str]| on(Path::new(&served.drive), command, args);
    let same = |command: &str, args: &[&str]| {
        let (here, there) = (volume.run(command, args), there(command, args));
        assert_eq!(
            (there.code, &there.out, &there.err),
            (here.code, &here.out, &here.err),
            "{command} {args:?}"
        );
    };
    same("grep", &["-rn", "e", "/logs"]);
    same("grep", &["-c", "nothing of the kind", "/hello.txt"]);
    same("grep", &["x", "/absent"]);
    same("ls", &["-l", "/"]);
    same("stat", &TEXTS);
    same("find", &["/"]);
    same("cat", &TEXTS);
    same("wc", &TEXTS);
    same("cksum", &TEXTS);
    for args in [["--completion", "interrupt"], ["--completion", "hybrid"]] {
        same("cat", &[&args[..], &["/hello.txt"]].concat());
    }
    same("cksum", &["--locate", "host", "/hello.txt"]);
    let plain = there("cat", &["/hello.txt"]).good();
    assert_eq!(there("cat", &["--hdr-digest", "--data-digest", "/hello.txt"]).good(), plain);
    let info = there("info", &["--json"]).json();
    assert_eq!(info[0]["block_size"], 512);
}

/// A file's bytes that an application changes by its own mapping of what the drive lies in.
#[test]
fn near_data_commands_see_what_an_application_maps_and_stores() {
    let Some(volume) = small("near_data_commands_see_what_an_application_maps_and_stores") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = folder.path().join("pmem.img");
    let bytes = std::fs::read(&volume.image).unwrap();
    std::fs::write(&image, &bytes).unwrap();
    let text = std::fs::read(volume.tree.join("hello.txt")).unwrap();
    let mut places = (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(&text));
    let (at, None) = (places.next().unwrap(), places.next()) else { panic!("the text is there twice") };
    let file = std::fs::File::options().read(true).write(true).open(&image).unwrap();
    let (application, _) = nearside_dma::Region::of_file(&file, bytes.len(), true).unwrap();
    for options in [&["--read-only", "--trust"][..], &["--trust"]] {
        let store = format!("pmem:{}", image.display());
        let served = serve_with(&[options, &["--store", &store]].concat());
        let ask = |command: &str, args: &[&str]| on(Path::new(&served.drive), command, args);
        assert_eq!(ask("info", &["--json"]).json()[0]["medium"], "mapped file");
        assert!(ask("info", &[]).good().contains("medium           mapped file\n"));
        let mut status = nearside();
        status.args(["status", "--control"]).arg(served.folder.path().join("control"));
        let status = Ran::from(status.output().unwrap()).good();
        assert!(status.contains("medium: mapped file\n"), "{status}");
        application.write(at, &text);
        let before = ask("cksum", &["/hello.txt"]).good();
        assert_eq!(before, volume.run("cksum", &["/hello.txt"]).good());
        let changed: Vec<u8> = text.iter().map(|byte| if *byte == b'\n' { *byte } else { b'Z' }).collect();
        application.write(at, &changed);
        application.sync(at, text.len()).unwrap();
        assert_ne!(ask("cksum", &["/hello.txt"]).good(), before);
        assert!(ask("grep", &["^ZZ*$", "/hello.txt"]).good().contains('Z'));
        assert_eq!(ask("cat", &["/hello.txt"]).good().as_bytes(), changed);
    }
}

#[test]
fn subsystems_are_discovered_and_measured() {
    let Some(volume) = small("subsystems_are_discovered_and_measured") else { return };
    let served = serve(&volume.image);
    let authority = served.drive.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap();
    let found = Ran::from(nearside().args(["discover", authority]).output().unwrap()).good();
    assert_eq!(format!("{}/1\n", found.trim_end()), format!("{}\n", served.drive));
    let folder = tempfile::tempdir().unwrap();
    let mut run = nearside();
    run.args([
        "bench",
        "run",
        "-d",
        &served.drive,
        "--iodepth",
        "4",
        "--runtime",
        "100ms",
        "--json",
        "--out",
    ]);
    let ran = Ran::from(run.arg(folder.path()).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let mut write = nearside();
    write.args([
        "bench",
        "run",
        "-d",
        &served.drive,
        "--iodepth",
        "1",
        "--rw",
        "randwrite",
        "--runtime",
        "100ms",
    ]);
    let refused = Ran::from(write.output().unwrap());
    assert!(refused.code == 2 && refused.err.contains("--destroy"), "{}", refused.err);
}

/// Behind a port forward the address listened at is nobody's:
/// the discovery log names what it is told, as do the lines that are printed.
#[test]
fn hosts_are_told_of_the_address_that_is_advertised() {
    let listen = ["--store", "dram:1MiB", "--trust", "--listen", "127.0.0.1:0"];
    let advertise = ["--advertise", "192.0.2.7:14420", "--advertise", "192.0.2.8"];
    let served = serve_with(&[&listen[..], &advertise].concat());
    let authority = served.drive.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap();
    let found = Ran::from(nearside().args(["discover", authority]).output().unwrap()).good();
    let names: Vec<&str> = found.lines().collect();
    assert!(names[0].starts_with("nvme+tcp://192.0.2.7:14420/nqn."), "{found}");
    assert!(names[1].starts_with("nvme+tcp://192.0.2.8:") && !names[1].contains(":0/"), "{found}");
    let too_many = ["serve", "--store", "dram:1MiB", "--advertise", "192.0.2.7", "--advertise", "192.0.2.8"];
    let ran = Ran::from(nearside().args(too_many).output().unwrap());
    assert!(ran.code != 0 && ran.err.contains("2 addresses are advertised and 1 listened at"), "{}", ran.err);
}

/// As `nearside serve ... | head -1`, or a launcher that has read what it wanted.
#[test]
fn a_server_serves_on_where_nobody_reads_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let mut server = nearside();
    server.args(["serve", "--listen", "127.0.0.1:0", "--store", "dram:1MiB", "--control"]).arg(&control);
    let server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut served = Served { server, drive: String::new(), folder };
    drop(served.server.stdout.take());
    while !nearside().args(["status", "--control"]).arg(&control).output().unwrap().status.success() {
        assert_eq!(served.server.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(5));
    }
    // It hears the signal only after it has spoken.
    assert!(Command::new("kill").arg(served.server.id().to_string()).status().unwrap().success());
    assert_eq!(served.server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_raises_its_limit_of_descriptors_to_what_it_accepts() {
    let program = nearside().get_program().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 64 && exec \"$0\" \"$@\""]).arg(program);
    shell.args(["serve", "--listen", "127.0.0.1:0", "--store", "dram:1MiB", "--control"]);
    let server = shell.arg(folder.path().join("control")).stdout(Stdio::piped()).spawn().unwrap();
    let mut served = Served { server, drive: String::new(), folder };
    // It has said something, so it serves.
    let mut line = String::new();
    let mut said = BufReader::new(served.server.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", served.server.id())).unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = limit.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().unwrap_or(u64::MAX);
    assert!(number(words[3]) >= number(words[4]).min(4096), "{limit}");
}

#[test]
fn a_certification_comes_as_the_host_that_is_allowed() {
    let name = "nqn.2026-11.dev.nearside:certifier";
    let served = serve_with(&["--store", "dram:64MiB", "--trust", "--allow-host", name]);
    let folder = tempfile::tempdir().unwrap();
    let act = |host: &[&str]| {
        let mut act = nearside();
        act.args([
            "act",
            "-d",
            &served.drive,
            "--multiple",
            "1",
            "--runtime",
            "300ms",
            "--destroy",
            "--json",
        ]);
        Ran::from(act.arg("--out").arg(folder.path()).args(host).output().unwrap())
    };
    let refused = act(&[]);
    assert!(refused.code == 2 && refused.err.contains("does not allow the host"), "{}", refused.err);
    let ran = act(&["--hostnqn", name]);
    let verdicts = ran.json().iter().filter(|line| line["type"] == "verdict").count();
    assert!(ran.code < 2 && verdicts == 3, "{} {}", ran.code, ran.err);
}

#[test]
fn a_server_that_is_killed_ends_the_measuring_at_once() {
    for completion in ["polled", "interrupt", "hybrid"] {
        let mut served = serve_with(&["--store", "dram:64MiB", "--trust"]);
        let folder = tempfile::tempdir().unwrap();
        let mut run = nearside();
        run.args(["bench", "run", "-d", &served.drive, "--completion", completion, "--iodepth", "8"]);
        run.args(["--runtime", "120s", "--json", "--out"]).arg(folder.path());
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        let before = served.commands();
        while served.commands() < before + 10_000 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{completion}: nothing is read");
        }
        let killed = Instant::now();
        served.server.kill().unwrap();
        let ran = Ran::from(run.wait_with_output().unwrap());
        assert!(killed.elapsed() < Duration::from_secs(60), "{completion}: {:?}", killed.elapsed());
        assert!(
            ran.code == 1 && ran.err.contains("the connection to it"),
            "{completion}: {} {}",
            ran.code,
            ran.err
        );
        // And nobody is there any more.
        let mut late = nearside();
        late.args(["bench", "run", "-d", &served.drive, "--iodepth", "1", "--out"]).arg(folder.path());
        let late = Ran::from(late.output().unwrap());
        assert!(late.code == 2 && late.err.contains("connecting: "), "{}", late.err);
    }
}

#[test]
fn names_that_lead_nowhere() {
    let nqn = "nqn.2014-08.org.example:none";
    for (drive, why) in [
        ("nvme+tcp://127.0.0.1:1/".to_owned() + nqn, "connecting: "),
        ("nvme+tcp://127.0.0.1".to_owned(), "no subsystem"),
        ("nvme+tcp://127.0.0.1/none".to_owned(), "an NQN begins with"),
    ] {
        let ran = on(Path::new(&drive), "ls", &["/"]);
        assert!(ran.code == 2 && ran.err.contains(why), "{drive}: {}", ran.err);
    }
    let mounted = Ran::from(nearside().args(["ls", "--mounted", "/proc/self"]).output().unwrap());
    assert!(mounted.code == 2 && mounted.err.contains("it is on no block device"), "{}", mounted.err);
    let none = Ran::from(nearside().args(["ls", "/"]).output().unwrap());
    assert!(none.code == 2 && none.err.contains("--drive"), "{}", none.err);
}

#[test]
fn what_is_no_socket_is_not_taken_for_the_control_socket() {
    let folder = tempfile::tempdir().unwrap();
    let precious = folder.path().join("disk.img");
    std::fs::write(&precious, "precious").unwrap();
    let serve = |control: &Path| {
        // One that serves in spite of it ends as well.
        let mut server = Command::new("timeout");
        server.arg("300").arg(nearside().get_program());
        server.args(["serve", "--store", "dram:1MiB", "--listen", "127.0.0.1:0", "--control"]);
        Ran::from(server.arg(control).output().unwrap())
    };
    let refused = serve(&precious);
    assert!(refused.code == 2 && refused.out.is_empty(), "{}", refused.err);
    assert!(refused.err.contains("disk.img: it exists and is no socket"), "{}", refused.err);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    // One that another server answers at.
    let served = serve_with(&["--store", "dram:1MiB"]);
    let control = served.folder.path().join("control");
    let refused = serve(&control);
    assert!(refused.code == 2 && refused.err.contains("somebody serves it"), "{}", refused.err);
    assert_eq!(served.commands(), 0);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&control).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}
