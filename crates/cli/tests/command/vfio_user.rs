//! The same commands on a drive in another process: `nearside serve --vfio-user`, and drives named
//! vfio-user:PATH.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{Ran, TEXTS, nearside, on, small};

struct Served {
    server: Child,
    drive: String,
    _folder: TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(store: &str) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm1.sock");
    let mut server = nearside();
    server.args(["serve", "--trust", "--store", store, "--vfio-user"]).arg(&socket);
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    // It is there once it says how QEMU has it.
    lines
        .find(|line| line.as_ref().unwrap().contains("vm1.sock"))
        .expect("the server says what QEMU is given")
        .unwrap();
    Served { server, drive: format!("vfio-user:{}", socket.display()), _folder: folder }
}

/// The metrics at an address.
fn metrics(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// What they say under a name of the function at one.sock.
fn metric(address: &str, name: &str) -> String {
    let said = metrics(address);
    let named = |line: &&str| line.split('{').next() == Some(name) && line.contains("one.sock");
    let line = said.lines().find(named).unwrap_or_else(|| panic!("{said}"));
    line.rsplit_once("} ").unwrap().1.to_owned()
}

#[test]
fn status_and_metrics_tell_of_functions_and_of_who_has_them() {
    let folder = tempfile::tempdir().unwrap();
    // A port that is free now.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let plan = format!(
        "metrics = '{address}'\ncontrol = 'control.sock'\n[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\n\
         [[subsystem.namespace]]\nnsid = 1\nstore = 'dram:16MiB'\n\
         [[subsystem.vfio-user]]\nsocket = 'one.sock'\nnamespaces = [1, 9]\n\
         [[subsystem.vfio-user]]\nsocket = 'two.sock'\ndoorbells = 'mapped'\n"
    );
    std::fs::write(folder.path().join("plan.toml"), plan).unwrap();
    let inside = || {
        let mut command = nearside();
        command.current_dir(folder.path());
        command
    };
    let mut server = inside();
    let mut server = server.args(["serve", "--config", "plan.toml"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().contains("two.sock")).expect("it serves").unwrap();
    let drive = format!("vfio-user:{}", folder.path().join("one.sock").display());
    let served = Served { server, drive, _folder: tempfile::tempdir().unwrap() };
    let status = |more: &[&str]| {
        let words = [&["status", "--control", "control.sock"], more].concat();
        Ran::from(inside().args(words).output().unwrap())
    };
    let function = || serde_json::from_slice::<Value>(&status(&["--json"]).out).unwrap()["functions"].take();
    let said = status(&[]).text();
    assert!(said.contains("namespaces 1, 9, trapped doorbells; no client"), "{said}");
    assert!(said.contains("all namespaces, mapped doorbells; no client"), "{said}");
    assert_eq!(function()[0]["clients"], 0);
    assert_eq!(metric(&address, "nearside_function_clients"), "0");
    let said = metrics(&address);
    assert!(said.contains("nsid=\"1\",medium=\"memory\"} 16777216"), "{said}");

    let mut client = inside();
    client.args(["bench", "run", "-d", &served.drive, "--iodepth", "1", "--runtime", "600s"]);
    client.stdout(Stdio::null());
    let mut client = client.spawn().unwrap();
    // It may connect more than once: what is told is told of a moment.
    let mut until = |seen: &dyn Fn() -> bool| {
        while !seen() {
            assert!(client.try_wait().unwrap().is_none(), "the client ended");
        }
    };
    until(&|| {
        let [one, two] = [0, 1].map(|nth| function()[nth].take());
        assert_eq!(two["connected"], false);
        one["enabled"] == true && one["connected"] == true && one["regions"] != 0 && one["mapped_bytes"] != 0
    });
    until(&|| status(&[]).text().contains("; a client that has enabled it, "));
    until(&|| metric(&address, "nearside_function_mapped_bytes") != "0");
    client.kill().unwrap();
    client.wait().unwrap();
    while function()[0]["connected"] == true {
        std::thread::yield_now();
    }
    assert_eq!(function()[0]["mapped_bytes"], 0);
    let clients = function()[0]["clients"].to_string();
    assert_eq!(metric(&address, "nearside_function_clients_accepted_total"), clients);
    assert_ne!(clients, "0");
}

#[test]
fn commands_say_the_same_of_a_drive_in_another_process() {
    let Some(volume) = small("commands_say_the_same_of_a_drive_in_another_process") else { return };
    let served = serve(&format!("dram:{}", volume.image.display()));
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
    same("cat", &["--get-features", "/hello.txt"]);
    let info = there("info", &["--json"]).json();
    assert_eq!(info[0]["block_size"], 512);
    assert!(there("info", &[]).text().contains(&served.drive));
}

#[test]
fn it_is_measured_by_every_model() {
    let served = serve("dram:16MiB");
    let folder = tempfile::tempdir().unwrap();
    let bench = |words: &[&str]| {
        let mut run = nearside();
        run.arg("bench").args(words).args(["--runtime", "50ms", "--out"]).arg(folder.path());
        Ran::from(run.output().unwrap())
    };
    for model in ["polled", "interrupt", "hybrid"] {
        let ran = bench(&["run", "-d", &served.drive, "--iodepth", "4", "--json", "--completion", model]);
        assert_eq!(ran.code, 0, "{model}: {}", ran.err);
        assert!(ran.text().contains(&format!("nearside over vfio-user, {model}")), "{}", ran.text());
    }
    let curve = bench(&["curve", "-d", &served.drive, "--loads", "1", "--depths", "1"]);
    assert_eq!(curve.code, 0, "{}", curve.err);
    let compared = bench(&["compare", "dram:16MiB", &served.drive, "--loads", "1", "--depths", "1"]);
    assert_eq!(compared.code, 0, "{}", compared.err);
    let write = ["run", "-d", &served.drive, "--iodepth", "1", "--rw", "randwrite"];
    let refused = bench(&write);
    assert!(refused.code == 2 && refused.err.contains("--destroy"), "{}", refused.err);
    assert_eq!(bench(&[&write[..], &["--destroy"]].concat()).code, 0);
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("vfio-user:{}", folder.path().join(name).display());
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("left")).unwrap());
    for (name, why) in [("none", "there is no such socket"), ("left", "nobody serves this socket")] {
        let drive = at(name);
        let ran = on(Path::new(&drive), "cat", &["/x"]);
        assert_eq!((ran.code, ran.err), (2, format!("nearside: {drive}: connecting: {why}\n")));
        let mut run = nearside();
        run.args(["bench", "run", "-d", &drive, "--iodepth", "1"]);
        let ran = Ran::from(run.output().unwrap());
        assert!(ran.code == 2 && ran.err.contains(&drive) && ran.err.contains(why), "{}", ran.err);
    }
    let ran =
        Ran::from(nearside().args(["bench", "run", "-d", "vfio-user:", "--iodepth", "1"]).output().unwrap());
    assert!(ran.code == 2 && ran.err.contains("names no socket"), "{}", ran.err);
}

/// A message of vfio-user: its number, and what follows the header.
fn message(id: u16, command: u16, body: &[u8]) -> Vec<u8> {
    let words = [u32::from(id) | u32::from(command) << 16, 16 + body.len() as u32, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).chain(body.iter().copied()).collect()
}

/// The operator is told, once for each client, of memory that comes without a descriptor.
#[test]
fn a_client_that_keeps_its_memory_to_itself_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm1.sock");
    let mut server = nearside();
    server.args(["serve", "--store", "dram:16MiB", "--vfio-user"]).arg(&socket);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().contains("vm1.sock")).unwrap().unwrap();
    // Flags (read and write), offset, address 0, a page.
    let page: Vec<u8> = [32u32, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
    let page: Vec<u8> =
        page.into_iter().chain([0u64, 0, 4096].iter().flat_map(|quad| quad.to_le_bytes())).collect();
    let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    for (id, (command, body)) in
        [(1, vec![0, 0, 1, 0]), (2, page.clone()), (3, page[..24].to_vec()), (2, page)]
            .into_iter()
            .enumerate()
    {
        // Unmapping has flags of its own, and no offset.
        let body = if command == 3 {
            [24u32, 0, 0, 0, 4096, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
        } else {
            body
        };
        client.write_all(&message(id as u16, command, &body)).unwrap();
        let mut header = [0; 16];
        client.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!((word(8), word(12)), (1, 0), "message {id} is answered, and well");
        client.read_exact(&mut vec![0; word(4) as usize - 16]).unwrap();
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let mut log = String::new();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(log.matches("the client keeps its memory to itself").count(), 1, "{log}");
}
