//! A stock Linux as host of `nearside serve`: it discovers, connects, makes volumes, mounts them, searches
//! them inside the drive, and finds everything again after the server was started anew. And as maker of
//! images, which are read when it has ended.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nearside_conformance::{needs, today};
use nearside_near_data::Record;
use nearside_near_data::wire::decode_reply;

mod compute;
#[allow(dead_code, reason = "each test uses a part")]
mod guest;
mod images;
mod paths;
mod proof;
mod secured;
mod tls;

use guest::{Guest, HOST};

const NQN: &str = "nqn.2026-11.dev.nearside:guest";
const TRACE: &str = "/sys/kernel/tracing";

/// One guest at a time: each takes two cores, and what it is told to do while time passes goes on meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static GUEST: Mutex<()> = Mutex::new(());
    GUEST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `nearside serve` and the port that it listens on.
struct Server {
    child: Child,
    port: u16,
    _out: BufReader<ChildStdout>,
}

fn nearside() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.env_remove("NEARSIDE_DRIVE").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

impl Server {
    fn start(port: u16, arguments: &[&str]) -> Server {
        let listen = format!("127.0.0.1:{port}");
        let mut command = nearside();
        command.args(["serve", "--listen", &listen, "--subsystem", NQN]).args(arguments);
        Server::started(command)
    }

    fn started(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("nvme connect ") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "serve ended: {:?}", child.wait());
        }
        let mut words = line.split_whitespace().skip_while(|word| *word != "-s");
        let port = words.nth(1).unwrap().parse().unwrap();
        Server { child, port, _out: out }
    }

    /// By SIGTERM: all that was taken is on the stores when it has ended.
    fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a command of `nearside` says.
fn told(words: &[&str]) -> String {
    let ran = nearside().args(words).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

fn image(path: &Path, mib: u64) -> String {
    std::fs::File::create(path).unwrap().set_len(mib << 20).unwrap();
    format!("file:{}", path.display())
}

/// What every file below a folder of the guest is, by name and content.
fn hashes(guest: &mut Guest, folder: &str) -> String {
    guest.sh(&format!("cd {folder} && find . -type f | sort | xargs sha256sum"))
}

/// Lines of each file that have the word, as grep in the guest counts them: `PATH:COUNT` in order of paths.
fn grep(guest: &mut Guest, word: &str, folder: &str) -> Vec<String> {
    let (_, out, _) = guest.ran(
        &format!("cd {folder} && find tree -type f | xargs grep -HcF {word} | grep -v ':0$' | sort"),
        120,
    );
    out.lines().map(str::to_owned).collect()
}

/// The same by `nearside grep` on a drive, which prints absolute paths.
fn near_data(out: &str) -> Vec<String> {
    let mut lines: Vec<String> = out.lines().map(|line| line.trim_start_matches('/').to_owned()).collect();
    lines.sort();
    lines
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(pair).collect()
}

/// A search with nothing but nvme-cli: Set Features carries the request, Get Features fetches the reply,
/// as docs/NVME.md has it.
fn by_features(guest: &mut Guest, nvme: &str, device: &str, word: &str, path: &str) -> u64 {
    let told = include_str!("../../../../docs/NVME.md");
    let from = told.find("    request() {").expect("the function that makes a request");
    let function = &told[from..from + told[from..].find("\n    }\n").expect("its end") + 7];
    let function: Vec<&str> =
        function.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    guest.sh(&format!("{}\nrequest {word} {path} > /tmp/request", function.join("\n")));
    // The page's own lines, with this tool on this device.
    let lines = told.lines().filter_map(|line| line.strip_prefix("    nvme "));
    let mut lines = lines.map(|line| format!("{nvme} {}", line.replace("/dev/nvme0", device)));
    let (set, get) =
        (lines.next().expect("the request is sent"), lines.next().expect("the reply is fetched"));
    guest.sh(&format!("cd /tmp && {set}"));
    let get = get.split(" | ").next().unwrap().to_owned();
    guest.until(&format!("{get} | head -c 4 | grep -q NDRP"));
    let fetched = guest.sh(&format!("{get} | od -An -v -tx1"));
    let fetched = hex(&fetched);
    let reply = decode_reply(&fetched).expect("a reply");
    assert_eq!(reply.failure, None);
    let counts = reply.records.iter().filter_map(|record| match record {
        Record::Matches(count) => Some(*count),
        _ => None,
    });
    counts.sum()
}

#[test]
fn a_stock_linux_keeps_its_files_on_it_and_searches_them_in_it() {
    let test = "stock_linux::a_stock_linux_keeps_its_files_on_it_and_searches_them_in_it";
    // A guest takes minutes: one of the two a day, and one of root_vfio's.
    if !guest::possible(test) || !today::takes(0, 2) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let stores = [image(&folder.path().join("one.img"), 192), image(&folder.path().join("two.img"), 192)];
    let stores: Vec<&str> = stores.iter().flat_map(|store| ["--store", store]).collect();
    let trusting = [&stores[..], &["--trust"]].concat();
    let server = Server::start(0, &trusting);
    let port = server.port;
    let mut booted = images::boot(folder.path());
    let guest = &mut booted;

    guest.sh("dmesg -c > /dev/null");
    let connect = format!("nvme connect -t tcp -a {HOST} -s {port} -n {NQN}");
    discovers_and_connects(guest, port, &connect);
    let before = makes_volumes(guest);
    finds_what_fsync_made_durable(guest);
    let imports = finds_what_grep_finds(guest, port);
    says_by_which_way(guest, &imports);
    takes_paths_of_the_host(guest);
    answers_nvme_cli(guest, test, &imports);
    keeps_what_fio_wrote(guest);

    // The server ends and starts anew: what the host had made durable is there.
    guest.sh("mkfs.f2fs -q -f /dev/nvme0n2 && mount -t f2fs /dev/nvme0n2 /mnt/two && mkdir /mnt/two/tree");
    guest.sh("tar xf /tmp/tree.tar -C /mnt/two/tree && umount /mnt/one && umount /mnt/two");
    guest.sh(&format!("nvme disconnect -n {NQN}"));
    server.stop();
    let server = Server::start(port, &trusting);
    still_has(guest, &connect, &before);
    server.stop();

    serves_two_hosts(guest, folder.path(), port, &connect, &trusting);
    knows_its_hosts(guest, port, &connect, &stores);
    keeps_what_is_reserved(guest, folder.path(), port, &connect);
    compute::runs_programs(guest, test, folder.path(), port, &connect);
    paths::goes_another_way(guest, folder.path(), port);
    let said = images::made(guest, test, folder.path());
    booted.powered_off(600);
    if let Some(said) = said {
        images::are_read(&said, folder.path());
    }
}

#[test]
fn the_newest_linux_proves_who_it_is_and_encrypts() {
    let test = "stock_linux::the_newest_linux_proves_who_it_is_and_encrypts";
    if !guest::possible(test) || !today::takes(1, 2) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let Some(mut guest) = Guest::boot_newest(test, folder.path()) else { return };
    proof::proves_who_it_is(&mut guest, folder.path());
    tls::connects_by_tls(&mut guest, folder.path());
    tls::concatenates(&mut guest, folder.path());
    tls::the_kernel_encrypts(&mut guest);
}

/// Several queues, some of them polled.
fn discovers_and_connects(guest: &mut Guest, port: u16, connect: &str) {
    let found = guest.sh(&format!("nvme discover -t tcp -a {HOST} -s {port}"));
    assert!(found.contains(NQN) && found.contains("trtype:  tcp"), "{found}");
    guest.sh(&format!("{connect} --nr-io-queues=2 --nr-poll-queues=1"));
    guest.until("[ -b /dev/nvme0n2 ]");
    let list = guest.sh("nvme list");
    assert!(list.contains("Nearside") && list.contains("/dev/nvme0n1"), "{list}");
}

/// A volume of each kind, and a tree on it; what is in them.
fn makes_volumes(guest: &mut Guest) -> [String; 2] {
    guest.sh("mkdir -p /mnt/one /mnt/two && /usr/bin/mke2fs -q -t ext4 /dev/nvme0n1 && mkfs.f2fs -q -f /dev/nvme0n2");
    guest.sh("mount -t ext4 /dev/nvme0n1 /mnt/one && mount -t f2fs /dev/nvme0n2 /mnt/two");
    guest.sh("cd /usr/lib/python3* && tar cf /tmp/tree.tar $(find . -name '*.py' | sort | head -n 200)");
    for at in ["/mnt/one", "/mnt/two"] {
        guest.sh(&format!("mkdir {at}/tree && tar xf /tmp/tree.tar -C {at}/tree"));
    }
    guest.sh("sync");
    let before = [hashes(guest, "/mnt/one"), hashes(guest, "/mnt/two")];
    assert!(before[0].lines().count() >= 100, "{}", before[0]);
    assert_eq!(before[0], before[1]);
    before
}

/// While both are mounted and written, and nothing is at home yet: new files, longer ones, and some written
/// in place, each asked for as soon as its `fsync` has returned.
fn finds_what_fsync_made_durable(guest: &mut Guest) {
    for (at, device) in [("/mnt/one", "/dev/ng0n1"), ("/mnt/two", "/dev/ng0n2")] {
        let same = format!("/job/nearside cat -d {device} /live/$f | cmp - {at}/live/$f || exit 1");
        guest.sh(&format!(
            "mkdir {at}/live; for n in $(seq 12); do f=f$n; head -c $((n * 3001)) /dev/urandom > {at}/live/$f; \
             sync {at}/live/$f; {same}; f=f$((n / 2 + 1)); head -c 900 /dev/urandom >> {at}/live/$f; \
             sync {at}/live/$f; {same}; f=f1; dd if=/dev/urandom of={at}/live/$f bs=500 count=2 seek=1 \
             conv=notrunc,fsync 2> /dev/null; {same}; done"
        ));
        guest.sh(&format!("rm -r {at}/live && sync -f {at}"));
    }
}

/// Read-only for ext4, unmounted for F2FS: all is at home. Gives what grep finds of the first word.
fn finds_what_grep_finds(guest: &mut Guest, port: u16) -> Vec<String> {
    let words = ["import", "class", "no such word"];
    let expected: Vec<_> = words.iter().map(|word| grep(guest, &format!("'{word}'"), "/mnt/one")).collect();
    assert!(expected[0].len() > 50 && expected[2].is_empty(), "{expected:?}");
    guest.sh("mount -o remount,ro /mnt/one && umount /mnt/two");
    // The kernel's own record says which way commands came:
    // io_uring on the character devices, ioctls on the block devices.
    guest.sh(&format!("mount -t tracefs none {TRACE} && echo 1 > {TRACE}/events/io_uring/enable"));
    for (word, expected) in words.iter().zip(&expected) {
        for (device, by_ring) in
            [("/dev/nvme0n1", false), ("/dev/ng0n1", true), ("/dev/nvme0n2", false), ("/dev/nvme0", true)]
        {
            guest.sh(&format!("echo > {TRACE}/trace"));
            let ask = format!("/job/nearside grep -d {device} -a -r -c -F '{word}' /tree | grep -v ':0$'");
            let (_, out, err) = guest.ran(&ask, 120);
            assert!(&near_data(&out) == expected, "{word} on {device}: {err}\n{out}\n{expected:?}");
            // The probe, and the two halves of at least one search.
            let (_, commands, _) = guest.ran(&format!("grep -c 'opcode URING_CMD' {TRACE}/trace"), 20);
            let commands: u32 = commands.trim().parse().unwrap();
            assert_eq!(commands >= 3, by_ring, "{commands} io_uring commands on {device}");
        }
        // From another host, over the network.
        let drive = format!("nvme+tcp://127.0.0.1:{port}/{NQN}/1");
        let ran =
            nearside().args(["grep", "-d", &drive, "-a", "-r", "-c", "-F", word, "/tree"]).output().unwrap();
        let out = String::from_utf8_lossy(&ran.stdout);
        let out: String =
            out.lines().filter(|line| !line.ends_with(":0")).map(|line| format!("{line}\n")).collect();
        assert_eq!(
            &near_data(&out),
            expected,
            "{word} over the network: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }
    expected.into_iter().next().unwrap()
}

fn says_by_which_way(guest: &mut Guest, imports: &[String]) {
    for (device, way) in [("/dev/ng0n1", "io_uring"), ("/dev/nvme0n1", "ioctl")] {
        let told = guest.sh(&format!("/job/nearside info -d {device}"));
        assert!(told.contains(way), "{device}: {told}");
        // It has written, and been watched at that.
        assert!(told.contains("live view"), "{device}: {told}");
        // Reads of the host's own, many at once, and more than fits in one command.
        let read = guest.sh(&format!(
            "/job/nearside grep -d {device} --locate host --compute host -a -r -c -F import /tree | grep -v ':0$'"
        ));
        assert_eq!(near_data(&read), imports, "{device}");
        let largest = guest.sh("cd /mnt/one && ls -S $(find tree -type f) | head -n 1").trim().to_owned();
        let copied =
            guest.sh(&format!("/job/nearside cat -d {device} /{largest} | cmp - /mnt/one/{largest}"));
        assert_eq!(copied, "", "{largest} on {device}");
    }
}

/// They are shown as grep shows them, also where they are relative or a glob.
fn takes_paths_of_the_host(guest: &mut Guest) {
    for (folder, path) in
        [("/", "/mnt/one/tree"), ("/mnt/one", "tree"), ("/mnt/one/tree", "."), ("/mnt", "one/")]
    {
        let mounted = guest.sh(&format!(
            "cd {folder} && /job/nearside grep --mounted -a -r -c -F import {path} | grep -v ':0$' | sort"
        ));
        let known = guest.sh(&format!(
            "cd {folder} && find {path} -type f | xargs grep -HcF import | grep -v ':0$' | sort"
        ));
        assert_eq!(mounted, known, "{path} in {folder}");
    }
    let found = guest.sh("cd /mnt/one && /job/nearside find --mounted tree -type f | sort");
    assert_eq!(found, guest.sh("cd /mnt/one && find tree -type f | sort"));
    let summed = guest.sh("cd /mnt/one/tree && /job/nearside cksum --mounted --glob -a sha256 '*.py' | sort");
    let known = guest.sh("cd /mnt/one/tree && sha256sum *.py | sort");
    assert_eq!(summed, known);
}

/// With nothing but that.
fn answers_nvme_cli(guest: &mut Guest, test: &str, imports: &[String]) {
    let (name, count) = imports[0].rsplit_once(':').unwrap();
    let mut tools = vec!["nvme"];
    match guest.ran("nvme-newest version", 60) {
        (0, version, _) if version.contains("nvme version") => tools.push("nvme-newest"),
        _ => needs::left_out(
            &format!("{test} (the newest nvme-cli)"),
            "Debian's packages could not be fetched",
        ),
    }
    for nvme in tools {
        for device in ["/dev/nvme0", "/dev/nvme0n1"] {
            let counted = by_features(guest, nvme, device, "import", &format!("/{name}"));
            assert_eq!(counted.to_string(), count, "{name} by {nvme} on {device}");
        }
    }
}

/// It checks by itself, through interrupts and polled.
fn keeps_what_fio_wrote(guest: &mut Guest) {
    for engine in ["--ioengine=psync", "--ioengine=io_uring --iodepth=16", "--ioengine=pvsync2 --hipri"] {
        guest.sh_within(
            &format!(
                "cd /tmp && fio --name=v --filename=/dev/nvme0n2 --rw=randrw --bssplit=512/20:4k/60:128k/20 --blockalign=512 \
                 --direct=1 --size=24m --verify=crc32c --verify_fatal=1 --do_verify=1 {engine}"
            ),
            300,
        );
    }
}

/// And the kernel has complained of nothing.
fn still_has(guest: &mut Guest, connect: &str, before: &[String; 2]) {
    guest.sh(connect);
    guest.until("[ -b /dev/nvme0n2 ]");
    guest.sh("mount -t ext4 /dev/nvme0n1 /mnt/one && mount -t f2fs /dev/nvme0n2 /mnt/two");
    assert_eq!([hashes(guest, "/mnt/one"), hashes(guest, "/mnt/two")], *before);
    guest.sh(&format!("umount /mnt/one && umount /mnt/two && nvme disconnect -n {NQN}"));
    // Warnings are not asked for: the kernel's own polling over TCP prints one.
    let (_, complaints, _) = guest
        .ran("dmesg | grep -iE 'nvme.*(error|timeout|reset|reconnect|could not)|I/O error|BUG:|Oops'", 20);
    assert_eq!(complaints, "");
}

/// And a namespace that comes and goes while one of them works.
fn serves_two_hosts(guest: &mut Guest, folder: &Path, port: u16, connect: &str, trusting: &[&str]) {
    let control = folder.join("control");
    let control = control.to_str().unwrap();
    let server = Server::start(port, &[trusting, &["--control", control]].concat());
    guest.sh(connect);
    guest.until("[ -b /dev/nvme0n2 ]");
    let drive = format!("nvme+tcp://127.0.0.1:{port}/{NQN}/1");
    let mut second = nearside();
    second.args([
        "bench",
        "run",
        "-d",
        &drive,
        "--hostnqn",
        "nqn.2026-11.dev.nearside:second",
        "--json",
        "--out",
    ]);
    let second = second.arg(folder).args(["--iodepth", "4", "--runtime", "8s"]).stdout(Stdio::piped());
    let second = second.spawn().unwrap();
    let begun = std::time::Instant::now();
    while !told(&["status", "--control", control]).contains("nearside:second") {
        assert!(begun.elapsed().as_secs() < 60, "the second host did not come");
    }
    let status = told(&["status", "--control", control]);
    assert!(status.contains(NQN) && status.contains("00000000c0de"), "{status}");
    guest.sh("(fio --name=w --filename=/dev/nvme0n2 --rw=randrw --bs=4k --iodepth=8 --ioengine=io_uring --direct=1 --time_based --runtime=8 \
              --verify=crc32c --verify_backlog=64 --verify_fatal=1 --size=16m; echo $? > /tmp/ended) > /tmp/fio 2>&1 &");
    told(&["namespace", "--control", control, "add", "7", "dram:16MiB"]);
    guest.refused("[ -e /tmp/ended ]");
    guest.until("[ -b /dev/nvme0n3 -o -b /dev/nvme0n7 ]");
    let device = guest.sh("ls /dev/nvme0n3 /dev/nvme0n7 2> /dev/null | head -n 1").trim().to_owned();
    guest.sh(&format!("dd if=/dev/urandom of=/tmp/r bs=64k count=16 && dd if=/tmp/r of={device} bs=64k oflag=direct && dd if={device} bs=64k count=16 iflag=direct | cmp - /tmp/r"));
    told(&["namespace", "--control", control, "remove", "7"]);
    let second = second.wait_with_output().unwrap();
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stdout));
    guest.until(&format!("[ ! -b {device} ]"));
    guest.until("[ -e /tmp/ended ]");
    assert_eq!(guest.sh("cat /tmp/ended; rm /tmp/ended").trim(), "0", "{}", guest.sh("cat /tmp/fio"));
    guest.sh(&format!("nvme disconnect -n {NQN}"));
    server.stop();
}

/// A host that is not on the list, and one that is.
fn knows_its_hosts(guest: &mut Guest, port: u16, connect: &str, stores: &[&str]) {
    let mine = guest.sh("cat /etc/nvme/hostnqn").trim().to_owned();
    let server =
        Server::start(port, &[stores, &["--allow-host", "nqn.2026-11.dev.nearside:someone-else"]].concat());
    let refused = guest.refused(connect);
    assert!(!refused.is_empty());
    guest.refused("[ -b /dev/nvme0n1 ]");
    server.stop();
    let server = Server::start(port, &[stores, &["--allow-host", &mine]].concat());
    guest.sh(connect);
    guest.until("[ -b /dev/nvme0n1 ]");
    // Root of a host that is not trusted is nobody.
    guest.sh("mount -t ext4 /dev/nvme0n1 /mnt/one && mkdir -m 700 /mnt/one/secret && echo word > /mnt/one/secret/file && umount /mnt/one");
    let denied = guest.refused("/job/nearside grep -d /dev/nvme0n1 word /secret/file");
    assert!(denied.contains("Permission denied") && denied.contains("65534"), "{denied}");
    guest.sh(&format!("nvme disconnect -n {NQN}"));
    server.stop();
}

/// A host reserves a namespace by nvme-cli; others are kept out, also when the server has been killed, until
/// one of them preempts it.
fn keeps_what_is_reserved(guest: &mut Guest, folder: &Path, port: u16, connect: &str) {
    let config = folder.join("reserved.toml");
    let store = image(&folder.join("reserved.img"), 32);
    std::fs::write(
        &config,
        format!(
            "listen = [\"127.0.0.1:{port}\"]\n[[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.namespace]]\nnsid = 1\n\
             store = \"{store}\"\nreservations = \"reserved.json\"\n"
        ),
    )
    .unwrap();
    let serve = || {
        let mut command = nearside();
        command.args(["serve", "--config"]).arg(&config);
        Server::started(command)
    };
    let host = |nr: u8| {
        let id = format!("{nr:08}-1111-4111-8111-111111111111");
        format!("{connect} --hostnqn=nqn.2014-08.org.nvmexpress:uuid:{id} --hostid={id}")
    };
    let mut with = |nr: u8, what: &mut dyn FnMut(&mut Guest)| {
        guest.sh(&host(nr));
        guest.until("[ -b /dev/nvme0n1 ]");
        what(guest);
        guest.sh(&format!("nvme disconnect -n {NQN}"));
    };
    let reads = "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct";
    let writes = "dd if=/dev/zero of=/dev/nvme0n1 bs=4k count=1 oflag=direct";
    let holder = |guest: &mut Guest| {
        let report = guest.sh("nvme resv-report /dev/nvme0n1 --eds -o json");
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        (report["rtype"].clone(), report["regctl"].clone(), report["ptpls"].clone())
    };
    let server = serve();
    with(1, &mut |guest| {
        guest.sh("nvme resv-register /dev/nvme0n1 --nrkey=7 --rrega=0 --cptpl=3");
        guest.sh("nvme resv-acquire /dev/nvme0n1 --crkey=7 --rtype=2 --racqa=0");
        assert_eq!(holder(guest), (2.into(), 1.into(), 1.into()));
        guest.sh(&format!("{reads} && {writes}"));
    });
    // Killed, as by a loss of power.
    drop(server);
    let _server = serve();
    with(2, &mut |guest| {
        assert_eq!(holder(guest), (2.into(), 1.into(), 1.into()));
        guest.refused(reads);
        guest.refused(writes);
        guest.refused("nvme resv-acquire /dev/nvme0n1 --crkey=7 --rtype=2 --racqa=0");
        guest.sh("nvme resv-register /dev/nvme0n1 --nrkey=9 --rrega=0");
        guest.refused(reads);
        guest.sh("nvme resv-acquire /dev/nvme0n1 --crkey=9 --prkey=7 --rtype=1 --racqa=2");
        guest.sh(&format!("{reads} && {writes}"));
    });
    with(1, &mut |guest| {
        assert_eq!(holder(guest), (1.into(), 1.into(), 1.into()));
        guest.sh(reads);
        guest.refused(writes);
        guest.refused("nvme resv-release /dev/nvme0n1 --crkey=7 --rtype=1 --rrela=0");
    });
    with(2, &mut |guest| {
        guest.sh("nvme resv-release /dev/nvme0n1 --crkey=9 --rrela=1");
        assert_eq!(holder(guest), (0.into(), 0.into(), 1.into()));
    });
    with(1, &mut |guest| {
        guest.sh(writes);
    });
}
