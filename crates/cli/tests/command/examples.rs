//! Every example is run: of each command's `--help`, of README.md and of docs/*.md, by a shell, as they stand
//! there but for names that a fixture has others for, and for sizes and times that would take long. What this
//! machine cannot run is understood at least ([`WITHOUT`] says why), and printed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_conformance::programs::program;
use nearside_conformance::volume::{install, must, tool};
use nearside_conformance::{needs, volume};
use nearside_embedded::AnyStore;
use nearside_near_data::wire::decode_request;
use nearside_store::{Channel, Data, FileOptions, Operation, Store, Submitted, Token};
use tempfile::TempDir;

use crate::fixture::{Ran, ext4, nearside, record};

/// A line of shell, and where it stands.
#[derive(Clone, Debug)]
struct Example {
    from: String,
    line: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The lines below "Examples:" in the help of a command and those below it.
/// Each command that does something has some.
fn of_help(command: &clap::Command, path: &str, found: &mut Vec<Example>) {
    let before = found.len();
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    for line in lines.take_while(|line| !line.is_empty()) {
        let line = line.strip_prefix("  ").unwrap_or_else(|| panic!("{path} --help: {line:?}"));
        found.push(Example { from: format!("{path} --help"), line: line.to_owned() });
    }
    if found.len() > before {
        return;
    }
    assert!(command.has_subcommands(), "{path} --help has no example");
    for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
        of_help(below, &format!("{path} {}", below.get_name()), found);
    }
}

/// Lines of the blocks of a page that are set apart by four spaces or by fences,
/// and what stands between backticks elsewhere.
fn of_page(name: &str, text: &str) -> (Vec<Example>, Vec<Example>) {
    let (mut lines, mut mentions) = (Vec::new(), Vec::new());
    let mut fenced = false;
    for line in text.lines() {
        let example = |line: &str| Example { from: name.to_owned(), line: line.to_owned() };
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            lines.push(example(line));
        } else if let Some(line) = line.strip_prefix("    ") {
            lines.push(example(line));
        } else {
            mentions.extend(line.split('`').skip(1).step_by(2).map(example));
        }
    }
    (lines, mentions)
}

fn pages() -> Vec<(String, String)> {
    let folder = root();
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(folder.join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    names.into_iter().map(|name| (name.clone(), fs::read_to_string(folder.join(name)).unwrap())).collect()
}

/// What an example has that a machine may not, and why it is understood only.
const WITHOUT: [(&str, &str); 18] = [
    ("nearside sql", "the program for SQL: the tests of crates/sql run it"),
    ("/dev/ng0n1", "a kernel that is connected to the drive: tests/stock_linux runs it in a guest"),
    ("--mounted", "a mounted volume: tests/stock_linux and tests/root_attach run it"),
    ("pmem:/mnt/dax", "persistent memory: tests/root_server has it on a file that is mapped"),
    ("unix:", "a drive that is attached: tests/root_attach runs it as root"),
    ("nearside attach", "FUSE: tests/root_attach runs it as root"),
    ("--out keyring:", "a key that stays with its user: keyring.rs here makes some, and ends them"),
    ("nearside control", "a server that is to be changed: control.rs here has one"),
    ("namespace resize 1 ", "a server that is to be changed: control.rs here has one"),
    ("nearside app", "root, and the application's package: tests/root_apps runs each"),
    ("--precondition", "minutes of writing in a flash's own time: bench.rs here has it in simulated time"),
    ("uring-iopoll:", "a device with polled queues"),
    ("--calibrate", "ten seconds of measuring: the tests of crates/bench do"),
    ("nearside demo", "a minute of measuring: the tests of crates/demo run each act"),
    ("nearside study all", "hours of measuring: the tests of crates/studies run each study"),
    ("nearside study fast12 --fast", "minutes of measuring: the tests of crates/studies run each study"),
    ("nearside study fast12 --figure 3", "minutes of measuring: the tests of crates/studies run each study"),
    (
        "nearside study fast12 --figure table1",
        "minutes of measuring: the tests of crates/studies run each study",
    ),
];

/// What the examples name, and what has its place here. In this order.
fn mapped(line: &str, served: &Served) -> String {
    let drive = &served.drive;
    let authority = drive.strip_prefix("nvme+tcp://").unwrap().split('/').next().unwrap();
    let several = drive.replace(authority, &format!("{authority},127.0.0.2:4420"));
    let mut line = line.to_owned();
    let records = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/record/");
    for (from, to) in [
        ("studies/record/", records),
        ("nvme+tcp://HOST:4420/NQN/1", &**drive),
        ("nvme+tcp://127.0.0.1:4420/NQN/1", drive),
        ("nvme+tcp://127.0.0.1:4420,127.0.0.2:4420/NQN/1", &several),
        ("nvme+tcp://HOST:4420,OTHER:4420/NQN/1", &several),
        ("vfio-user:/run/nearside/vm1.sock", &format!("vfio-user:{}", served.function.display())),
        ("discover 127.0.0.1:4420", &format!("discover {authority}")),
        ("discover 127.0.0.1 ", &format!("discover {authority} ")),
        ("--control /run/nearside-4420.sock", ""),
        ("--control /run/nearside/control.sock", ""),
        ("nearside status", &format!("nearside status --control {}", served.control.display())),
        ("nearside namespace", &format!("nearside namespace --control {}", served.control.display())),
        ("add 10 file:disk.img", "add 10 file:third.img"),
        ("--listen 127.0.0.1:4420", ""),
        ("--http 127.0.0.1:9421", "--http 127.0.0.1:0"),
        ("nearside serve", "nearside serve --listen 127.0.0.1:0 --control served"),
        ("add 8 file:disk.img", "add 8 file:other.img"),
        ("/dev/sdb", "sdb"),
        ("/dev/nvme0n1", "nvme0n1"),
        ("bench curve -d model:optane-p4800x:16GiB", "bench curve -d model:optane-p4800x:16MiB"),
        ("16GiB", "256MiB"),
        ("4GiB", "256MiB"),
        ("1GiB", "16MiB"),
        ("99.999", "90"),
        ("--runtime 30s", "--runtime 20ms"),
        ("--runtime 24h", "--runtime 20ms"),
        ("--steady-state=10s", "--steady-state=10ms"),
        ("bench curve", "bench curve --runtime 20ms --loads 1 --depths 1 --out pages"),
        ("bench compare", "bench compare --runtime 20ms --loads 1 --depths 1 --out pages"),
        ("bench run", "bench run --runtime 20ms --out pages"),
        ("bench replay", "bench replay --out pages"),
        ("sim curve", "sim curve --capacity 256MiB --percentile 90 --loads 1 --depths 1 --out pages"),
        ("nearside act", "nearside act --runtime 50ms --most 4 --out pages"),
    ] {
        line = line.replace(from, to);
    }
    // A job file says how long.
    if line.contains("--fio-job") {
        line = line.replace("--runtime 20ms ", "");
    }
    if line.contains("--config actconfig") || line.contains("--multiple") {
        line = line.replace("--most 4 ", "");
    }
    line
}

struct Served {
    server: Child,
    _out: BufReader<ChildStdout>,
    drive: String,
    control: PathBuf,
    /// The socket of its PCIe function.
    function: PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(folder: &Path) -> Served {
    let (control, function) = (folder.join("control"), folder.join("function"));
    let mut server = nearside();
    server.current_dir(folder).args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--trust",
        "--read-only",
        "--programs",
        "--rules",
        "--store",
        "file:served.img",
    ]);
    server.arg("--vfio-user").arg(&function);
    let mut server = server.arg("--control").arg(&control).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("nvme+tcp://") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the server ended");
    }
    let drive = line.split(": ").next().unwrap().to_owned();
    Served { server, _out: out, drive, control, function }
}

const RULES: &[u8] = b"rule elf { strings: $magic = { 7f 45 4c 46 } condition: $magic at 0 }\n";

/// What the examples look for in the volume.
fn fill(tree: &Path, programs: &[PathBuf]) {
    let put = |path: &str, bytes: &[u8]| {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put("etc/passwd", b"root:x:0:0::/root:/bin/sh\n");
    put("etc/group", b"root:x:0:\n");
    put("etc/app.conf", b"Timeout = 3\n");
    put("var/log/syslog", &b"a line with ERROR and WARN\n".repeat(50_000));
    put("var/log/app.log", b"ERROR here\nWARN there\n");
    put("var/empty", b"");
    put("etc/rules.yar", RULES);
    put("home/user/note", b"a secret\n");
    put("home/user/key", b"BEGIN PRIVATE KEY\n");
    put("bin/ls", b"\x7fELF");
    put("boot/vmlinuz-6.1", b"kernel\n");
    put("usr/lib/libx.so", b"\x7fELF");
    put("usr/share/doc/x/README", b"words\n");
    let header = format!("{:117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
    let numbers: Vec<u8> = (0..12u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    put("srv/rows.npy", &[&b"\x93NUMPY\x01\0\x76\0"[..], header.as_bytes(), &numbers].concat());
    put("var/data/trips.csv", b"id,city,price\n1,Bern,12.5\n2,Basel,8\n3,,20\n");
    put("var/data/trips.parquet", include_bytes!("trips.parquet"));
    put("var/log/web/a.jsonl", b"{\"host\": \"a\", \"status\": 500, \"ms\": 3.5}\n");
    put("srv/rows.f16", &[0, 0x3c].repeat(8));
    put("var/log/access.log", b"::1 - - [27/Nov/2026:12:00:00 +0000] \"GET /\" 503 17\n");
    let picture =
        [&b"BM"[..], &[0; 8], &[54, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 24], &[0; 29]];
    put("srv/photo.bmp", &picture.concat());
    for program in programs {
        let name = program.file_name().unwrap();
        put(&format!("usr/lib/{}", name.display()), &fs::read(program).unwrap());
    }
    symlink("ls", tree.join("bin/sh")).unwrap();
    fs::set_permissions(tree.join("bin/ls"), fs::Permissions::from_mode(0o4755)).unwrap();
}

/// The files that the examples name, in a folder; the volume holds what they look for.
fn fixture(programs: &[PathBuf]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fill(&tree, programs);
    for program in programs {
        fs::copy(program, folder.path().join(program.file_name().unwrap())).unwrap();
    }
    fs::create_dir(folder.path().join("rules")).unwrap();
    for place in ["rules.yar", "rules/elf.yar"] {
        fs::write(folder.path().join(place), RULES).unwrap();
    }
    let volume = ext4(folder, tree, 64);
    let folder = volume.folder;
    let at = |name: &str| folder.path().join(name);
    fs::rename(&volume.image, at("disk.img")).unwrap();
    let qemu_img = |words: &[&str]| must(tool("qemu-img").args(words).current_dir(folder.path()));
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", "disk.img", "disk.qcow2"]);
    qemu_img(&["snapshot", "-c", "before", "disk.qcow2"]);
    // One file is not served and written to at once.
    for copy in ["served.img", "other.img", "third.img"] {
        fs::copy(at("disk.img"), at(copy)).unwrap();
    }
    physical_volume(folder.path());
    // The volume, whose label is "fixture", as the second partition, in a table of the old kind.
    let image = fs::read(at("disk.img")).unwrap();
    let mut disk = vec![0u8; (2 << 20) + image.len()];
    for (entry, from, bytes) in [(446, 1 << 20, 1 << 20), (462, 2 << 20, image.len())] {
        disk[entry + 4] = 0x83;
        disk[entry + 8..entry + 12].copy_from_slice(&((from / 512) as u32).to_le_bytes());
        disk[entry + 12..entry + 16].copy_from_slice(&((bytes / 512) as u32).to_le_bytes());
    }
    disk[2 << 20..].copy_from_slice(&image);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(at("sdb"), disk).unwrap();
    for name in ["old.img", "new.img"] {
        fs::copy(at("disk.img"), at(name)).unwrap();
    }
    for name in ["scratch.img", "nvme0n1"] {
        fs::write(at(name), vec![7; 64 << 20]).unwrap();
    }
    fs::write(
        at("job.fio"),
        "[global]\nfilename=disk.img\nioengine=io_uring\nruntime=100ms\n[reads]\nrw=randread\nbs=4k\n",
    )
    .unwrap();
    fs::write(at("trace.log"), "fio version 3 iolog\n1 f read 0 4096\n9 f write 4096 512\n").unwrap();
    fs::write(at("trace.csv"), "7,hm,0,Read,0,4096,1\n9,hm,0,Write,512,512,1\n").unwrap();
    fs::write(at("before.img"), vec![1; 1 << 20]).unwrap();
    let namespace = "[[subsystem.namespace]]\nnsid = 1\nstore = 'file:disk.img'\n";
    fs::write(at("serve.toml"), format!("[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\n{namespace}"))
        .unwrap();
    log_of_writes(&at("disk.log"));
    for name in ["before.jsonl", "after.jsonl"] {
        fs::write(at(name), record(100.0)).unwrap();
    }
    fs::write(
        at("actconfig_3x_1d.txt"),
        "device-names: sdb\nread-reqs-per-sec: 300\nwrite-reqs-per-sec: 100\ntest-duration-sec: 1\n",
    )
    .unwrap();
    folder
}

/// A physical volume of LVM, with a file system in the first 2 MiB of the volume "root".
fn physical_volume(folder: &Path) {
    let at = |name: &str| folder.join(name);
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/images/lvm.img.gz");
    let mut lvm = must(tool("gzip").args(["-dc", packed])).stdout;
    fs::create_dir_all(at("small/etc")).unwrap();
    fs::write(at("small/etc/fstab"), "/dev/vg0/root / ext4\n").unwrap();
    volume::ext(&at("two"), 2, Some(&at("small")), &["-t", "ext4"]);
    let two = fs::read(at("two")).unwrap();
    lvm[128 << 10..][..two.len()].copy_from_slice(&two);
    fs::write(at("lvm.img"), lvm).unwrap();
}

/// A write log of 1000 writes on a disk of 1 MiB, and a mark.
fn log_of_writes(path: &Path) {
    let store = AnyStore::open("dram:1MiB", FileOptions::serve()).unwrap().logged(path).unwrap();
    let mut channel = store.channel(Arc::default()).unwrap();
    for nr in 0..1000 {
        let write = Operation::WriteZeroes { offset: nr % 2000 * 512, len: 512, fua: nr % 9 == 0 };
        let done = channel.submit(write, Data::None, Token(nr), Nanos(0));
        assert!(matches!(done, Submitted::Done(done) if done.result.is_ok()));
    }
    store.write_log().unwrap().mark(b"upgraded");
}

/// Folders for PATH with a program named `nearside`: the command, and one that only writes down its words.
struct Programs {
    real: PathBuf,
    scribe: PathBuf,
    words: PathBuf,
}

impl Programs {
    fn new(folder: &Path) -> Programs {
        let programs = Programs {
            real: folder.join("real"),
            scribe: folder.join("scribe"),
            words: folder.join("words"),
        };
        fs::create_dir(&programs.real).unwrap();
        fs::create_dir(&programs.scribe).unwrap();
        symlink(env!("CARGO_BIN_EXE_nearside"), programs.real.join("nearside")).unwrap();
        let script = format!(
            "#!/bin/sh\nprintf '%s\\0' \"$@\" >> '{0}'\nprintf '\\n\\0' >> '{0}'\n",
            programs.words.display()
        );
        let written = folder.join("script");
        fs::write(&written, script).unwrap();
        install(&written, &programs.scribe.join("nearside"));
        programs
    }

    /// A shell, or what starts one, in a folder; it finds `nearside` in another.
    fn shell(&self, program: &str, words: &[&str], within: &Path, nearside: &Path) -> Command {
        let path = format!("{}:{}", nearside.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new(program);
        shell.args(words).current_dir(within).env("PATH", path).env("XDG_RUNTIME_DIR", within);
        shell.env_remove("NEARSIDE_DRIVE").env("LC_ALL", "C").env("TZ", "UTC").stdin(Stdio::null());
        shell
    }

    /// The words of every `nearside` that a line calls, as a shell has them.
    fn words_of(&self, line: &str, within: &Path) -> Vec<Vec<String>> {
        fs::write(&self.words, "").unwrap();
        let _ = self.shell("sh", &["-c", line], within, &self.scribe).output().unwrap();
        let text = fs::read_to_string(&self.words).unwrap();
        let mut calls = vec![vec![]];
        for word in text.split_terminator('\0') {
            match word {
                "\n" => calls.push(vec![]),
                word => calls.last_mut().unwrap().push(word.to_owned()),
            }
        }
        calls.pop();
        calls
    }
}

/// Starts what stays, waits until it says that it is there, and ends it by SIGTERM.
fn comes_and_goes(mut shell: Command, line: &str) {
    let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    out.read_line(&mut said).unwrap();
    let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let ran = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(!said.is_empty() && ended.success(), "{line}: {err}");
    assert!(ran.status.success() && err.is_empty(), "{line}: {:?}: {err}", ran.status);
}

#[test]
fn every_example_runs() {
    let test = "command::every_example_runs";
    if !needs::tools(test, &["mke2fs", "qemu-img", "timeout", "jq", "cmp", "make", "python3"]) {
        return;
    }
    let Some(programs) = ["words", "log", "thumbnail"].map(|name| program(test, name)).into_iter().collect()
    else {
        return;
    };
    let programs: Vec<PathBuf> = programs;
    let mut examples = Vec::new();
    of_help(&nearside_cli::definitions(), "nearside", &mut examples);
    assert!(examples.len() > 50, "{}", examples.len());
    for (name, text) in pages() {
        examples.extend(of_page(&name, &text).0);
    }
    let folder = fixture(&programs);
    let at = folder.path();
    let served = serve(at);
    let programs = Programs::new(at);
    let (mut ran, mut understood, mut others) = (0, Vec::new(), BTreeSet::new());
    for Example { from, line } in &examples {
        if let Some(target) = line.strip_prefix("make ") {
            let target = target.split_whitespace().next().unwrap();
            let made = Command::new("make").args(["-n", target]).current_dir(root()).output().unwrap();
            assert!(made.status.success(), "{from}: {line}: {}", String::from_utf8_lossy(&made.stderr));
            ran += 1;
            continue;
        }
        let program = line.split_whitespace().next().unwrap_or_default();
        if program != "nearside" && !["nvme", "mount", "umount"].contains(&program) {
            continue;
        }
        if program != "nearside" {
            others.insert(format!("{from}: {line}"));
            continue;
        }
        // A name that stands for one is none.
        let calls = programs.words_of(&line.replace("/NQN/", "/nqn.2026-11.dev.nearside:example/"), at);
        assert!(!calls.is_empty(), "{from}: {line}: no call of nearside");
        for words in calls {
            let words = std::iter::once("nearside".to_owned()).chain(words);
            nearside_cli::understands(words).unwrap_or_else(|why| panic!("{from}: {line}\n{why}"));
        }
        if let Some((_, why)) = WITHOUT.iter().find(|(has, _)| line.contains(has)) {
            understood.push(format!("{from}: {line}  ({why})"));
            continue;
        }
        let here = mapped(line, &served);
        let ends = ["--check", "--print-config"].iter().any(|option| line.contains(option));
        if line.starts_with("nearside serve") && !ends {
            // The shell becomes the command, which so gets the signal itself.
            comes_and_goes(programs.shell("sh", &["-c", &format!("exec {here}")], at, &programs.real), line);
        } else {
            let mut shell = programs.shell("timeout", &["600", "sh", "-c", &here], at, &programs.real);
            let Ran { code, err, out } = Ran::from(shell.output().unwrap());
            let out = String::from_utf8_lossy(&out[out.len().saturating_sub(2000)..]).into_owned();
            // Whether a busy machine bears a load in real time is no example's matter: then nothing passes.
            let failed = line.starts_with("nearside act") && !line.contains("--simulated") && code == 1;
            assert!(code == 0 || failed, "{from}: {line}\nas {here}\nends with {code}: {out}{err}");
        }
        ran += 1;
    }
    println!("{ran} examples ran. Understood and not run:\n  {}", understood.join("\n  "));
    println!("Of other programs:\n  {}", others.into_iter().collect::<Vec<_>>().join("\n  "));
    for (has, _) in WITHOUT {
        assert!(understood.iter().any(|line| line.contains(has)), "no example has {has} any more");
    }
    assert!(ran > understood.len() && ran > 40, "{ran} ran");
}

#[test]
fn what_pages_mention_is_there() {
    let definitions = nearside_cli::definitions();
    let mut seen = 0;
    for (name, text) in pages() {
        for Example { line, .. } in of_page(&name, &text).1 {
            let mut words = line.split_whitespace().peekable();
            if words.next() != Some("nearside") || line.contains("COMMAND") {
                continue;
            }
            let mut command = &definitions;
            while let Some(below) = words.peek().and_then(|word| command.find_subcommand(word)) {
                command = below;
                words.next();
            }
            assert!(
                command.get_name() != "nearside" || words.peek().is_none(),
                "{name}: `{line}` is no command"
            );
            for option in words.filter_map(|word| word.trim_matches(|c| "[],".contains(c)).strip_prefix("--"))
            {
                let option = option.split('=').next().unwrap();
                let known = command.get_arguments().any(|a| a.get_long() == Some(option));
                assert!(known, "{name}: `{line}`: no --{option}");
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn the_recipe_without_the_command_makes_a_request() {
    let test = "command::the_recipe_without_the_command_makes_a_request";
    if !needs::tools(test, &["python3"]) {
        return;
    }
    let text = fs::read_to_string(root().join("docs/NVME.md")).unwrap();
    let lines: Vec<String> = of_page("docs/NVME.md", &text).0.into_iter().map(|e| e.line).collect();
    let lines: Vec<&str> =
        lines.iter().map(String::as_str).take_while(|line| !line.starts_with("nvme ")).collect();
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new("sh").args(["-c", &lines.join("\n")]).current_dir(folder.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let bytes = fs::read(folder.path().join("request")).unwrap();
    assert_eq!(bytes.len(), 4096);
    let request = decode_request(&bytes).expect("a request");
    let shown = format!("{request:?}");
    assert!(shown.contains("Count"), "{shown}");
}
