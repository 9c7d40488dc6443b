//! A stock Linux that connects by TLS 1.3 with a key that both have (`tlshd` makes the handshake, the kernel
//! goes on by it): without the key, by another's name, and in the clear it is not served.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::guest::{Guest, HOST, NEARSIDE};
use super::secured::{Secured, keeps_what_is_written, queues, refused};
use super::told;

const PLAIN: &str = "NEARSIDE-IN-THE-CLEAR";
/// `tlshd`'s last word of a handshake.
const DONE: &str = "Handshake with 'machine' (10.0.2.2) succeeded\n";
const COUNTS: [&str; 2] = ["connections_encrypted", "connections_not_encrypted"];
/// The subsystem whose host has keys of both kinds.
const BOTH: &str = "nqn.2026-11.dev.nearside:both";
const OTHER: &str = "nqn.2026-11.dev.nearside:other";
const OTHER_ID: &str = "00000000-0000-4000-8000-00000000c0df";

/// A hash function of keys (`gen-tls-key --hmac`), by which the handshake and its cipher are chosen.
#[derive(Clone, Copy)]
struct Kind {
    hmac: u8,
    cipher: &'static str,
}

const KINDS: [Kind; 2] = [Kind { hmac: 1, cipher: "AES-128-GCM" }, Kind { hmac: 2, cipher: "AES-256-GCM" }];

impl Kind {
    fn nqn(self) -> String {
        format!("nqn.2026-11.dev.nearside:tls-{}", self.hmac)
    }
}

/// Who is between a host and a server: passes on what comes, and keeps it.
struct Tap {
    port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn to(server: u16) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let Ok(target) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let (host_in, target_in) = (host.try_clone().unwrap(), target.try_clone().unwrap());
                let (up, down) = (kept.clone(), kept.clone());
                std::thread::spawn(move || pass(host_in, target, &up));
                std::thread::spawn(move || pass(target_in, host, &down));
            }
        });
        Tap { port, seen }
    }

    fn has_seen(&self, what: &str) -> bool {
        self.seen.lock().unwrap().windows(what.len()).any(|bytes| bytes == what.as_bytes())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let _ = to.set_nodelay(true);
    let mut bytes = vec![0; 256 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        seen.lock().unwrap().extend_from_slice(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn connect(port: u16, nqn: &str, more: &str) -> String {
    format!("nvme connect -t tcp -a {HOST} -s {port} -n {nqn} --reconnect-delay=1 {more}")
}

/// The keyring has this key and no other; gives its number there.
fn has_only(guest: &mut Guest, key: &str, identity: u8, host: &str, nqn: &str) -> String {
    guest.sh("keyctl clear %:.nvme");
    let inserted = guest.sh(&format!(
        "nvme check-tls-key --keydata={key} --identity={identity} --hostnqn={host} --subsysnqn={nqn} --insert"
    ));
    inserted.trim().rsplit(' ').next().unwrap().to_owned()
}

/// A subsystem in a server's file, of one namespace, whose hosts have keys.
fn subsystem(nqn: &str, hosts: &[(&str, String)]) -> String {
    let host = |(host, keys): &(&str, String)| format!("[[subsystem.host]]\nnqn = '{host}'\n{keys}\n");
    let hosts: String = hosts.iter().map(host).collect();
    format!("[[subsystem]]\nnqn = '{nqn}'\n{hosts}[[subsystem.namespace]]\nnsid = 1\nstore = 'dram:16MiB'\n")
}

/// Each kind of key by each version of its name, and each way of being refused.
pub fn connects_by_tls(guest: &mut Guest, folder: &Path) {
    let host = guest.sh("cat /etc/nvme/hostnqn").trim().to_owned();
    let mut file = "tls = 'required'\n".to_owned();
    let keys = KINDS.map(|kind| {
        // Another host has another key.
        let [own, _] = ["web", "other"].map(|name| {
            let key = guest.sh(&format!("nvme gen-tls-key --hmac={}", kind.hmac));
            Secured::keep(folder, &format!("{name}-{}.tls", kind.hmac), &key)
        });
        let of = |name: &str| format!("tls-key-file = '{name}-{}.tls'", kind.hmac);
        file += &subsystem(&kind.nqn(), &[(&host, of("web")), (OTHER, of("other"))]);
        own
    });
    let proof = Secured::keep(folder, "web.key", &told(&["key", "generate"]));
    let of_both = "tls-key-file = 'web-1.tls'\nkey-file = 'web.key'".to_owned();
    file += &subsystem(BOTH, &[(&host, of_both)]);
    let served = Secured::start(folder, &file);
    guest.sh("tlshd -s >> /tmp/tlshd 2>&1 &");
    guest.until("grep -q 'Kernel capabilities' /tmp/tlshd");

    for (kind, key) in KINDS.into_iter().zip(&keys) {
        for identity in [0, 1] {
            is_encrypted(guest, &served, kind, key, identity, &host);
        }
    }
    is_refused(guest, &served, &keys[0], &host);
    proves_it_as_well(guest, &served, &keys[0], &proof, &host);
    discovers(guest, &served, &keys[0], &host);

    let (log, status) = (served.log(), served.status(&[]) + &served.status(&["--json"]));
    assert!(log.contains(&host) && status.contains(BOTH), "{log}\n{status}");
    for key in &keys {
        let secret = &key["NVMeTLSkey-1:01:".len()..][..16];
        assert!(!log.contains(secret) && !status.contains(secret), "{key} in:\n{log}\n{status}");
    }
    served.server.stop();
}

/// A key of DH-HMAC-CHAP alone: what it agrees on with the subsystem encrypts all connections but the first,
/// and is another each time that the host connects.
pub fn concatenates(guest: &mut Guest, folder: &Path) {
    let host = guest.sh("cat /etc/nvme/hostnqn").trim().to_owned();
    let [own, theirs] =
        ["own.key", "theirs.key"].map(|name| Secured::keep(folder, name, &told(&["key", "generate"])));
    let keys = "key-file = 'own.key'\ncontroller-key-file = 'theirs.key'".to_owned();
    let served = Secured::start(folder, &subsystem(BOTH, &[(&host, keys)]));
    let tap = Tap::to(served.server.port);
    for with in
        [format!("--dhchap-secret={own}"), format!("--dhchap-secret={own} --dhchap-ctrl-secret={theirs}")]
    {
        guest.sh("keyctl clear %:.nvme; : > /tmp/tlshd");
        let encrypted = served.count(COUNTS[0]);
        guest.sh(&connect(tap.port, BOTH, &format!("{with} --concat")));
        guest.until("[ -b /dev/nvme0n1 ]");
        let queues = queues(guest);
        let of = format!("Using psk identity NVMe1G01 {host} {BOTH} ");
        let named = |guest: &mut Guest| {
            let said = guest.sh("cat /tmp/tlshd");
            let digests =
                said.split(&of).skip(1).map(|rest| rest.split_whitespace().next().unwrap_or_default());
            digests.map(str::to_owned).collect::<Vec<_>>()
        };
        let first = named(guest);
        assert!(first.len() as u64 == queues && first.iter().all(|digest| *digest == first[0]), "{first:?}");
        assert_eq!(served.count(COUNTS[0]), encrypted + queues);
        assert_eq!(guest.sh("cat /sys/class/nvme/nvme0/tls_mode").trim(), "concat");
        assert!(served.status(&[]).contains(", authenticated, over TLS"), "{}", served.status(&[]));
        keeps_what_is_written(guest);
        guest.sh("nvme reset /dev/nvme0");
        guest.until("[ $(cat /sys/class/nvme/nvme0/state) = live ]");
        let second = named(guest).split_off(first.len());
        assert!(second.len() as u64 == queues && second[0] != first[0], "{first:?} {second:?}");
        guest.sh(&format!(
            "yes {PLAIN} | head -c 65536 | dd of=/dev/nvme0n1 bs=64k iflag=fullblock oflag=direct"
        ));
        keeps_what_is_written(guest);
        guest.sh(&format!("nvme disconnect -n {BOTH}"));
    }
    assert!(!tap.has_seen(PLAIN));
    assert_eq!(served.count(COUNTS[1]), 0);
    served.server.stop();
}

/// What a server of the guest's own has its kernel encrypt: what it sends, where it is told to.
pub fn the_kernel_encrypts(guest: &mut Guest) {
    let host = guest.sh("cat /etc/nvme/hostnqn").trim().to_owned();
    // Of this guest alone: how many connections its kernel has sent and received by TLS.
    let by_kernel = |guest: &mut Guest| {
        let counted = guest.sh("cat /proc/net/tls_stat");
        ["TlsTxSw", "TlsRxSw", "TlsDecryptError"].map(|name| -> u64 {
            let line = counted.lines().find(|line| line.split_whitespace().next() == Some(name));
            line.and_then(|line| line.split_whitespace().nth(1)).unwrap().parse().unwrap()
        })
    };
    for (kind, kernel) in [(KINDS[0], true), (KINDS[1], true), (KINDS[1], false)] {
        let nqn = kind.nqn();
        let key = guest.sh(&format!("nvme gen-tls-key --hmac={}", kind.hmac)).trim().to_owned();
        has_only(guest, &key, 1, &host, &nqn);
        let file = format!(
            "listen = ['127.0.0.1:4420']\ncontrol = '/tmp/own.sock'\ntls = 'required'\nkernel-tls = {kernel}\n{}",
            subsystem(&nqn, &[(&host, "tls-key-file = '/tmp/own.tls'".into())])
        );
        guest.sh(&format!("cat > /tmp/own.toml <<'FILE'\n{file}FILE"));
        guest.sh(&format!("umask 077 && echo {key} > /tmp/own.tls"));
        guest
            .sh(&format!("{NEARSIDE} serve --config /tmp/own.toml > /tmp/own 2>&1 & echo $! > /tmp/own.pid"));
        guest.until("[ -S /tmp/own.sock ]");
        let connect = format!("nvme connect -t tcp -a 127.0.0.1 -n {nqn} --reconnect-delay=1");
        let before = by_kernel(guest);
        guest.sh(&format!("{connect} --tls --hdr-digest --data-digest"));
        guest.until("[ -b /dev/nvme0n1 ]");
        // The host's are the kernel's always.
        let queues = queues(guest);
        let sent = queues * if kernel { 2 } else { 1 };
        assert_eq!(by_kernel(guest), [before[0] + sent, before[1] + queues, 0]);
        keeps_what_is_written(guest);
        // A host that says farewell, and comes again.
        guest.sh("nvme reset /dev/nvme0");
        guest.until("[ $(cat /sys/class/nvme/nvme0/state) = live ]");
        assert_eq!(by_kernel(guest), [before[0] + 2 * sent, before[1] + 2 * queues, 0]);
        keeps_what_is_written(guest);
        guest.sh(&format!("nvme disconnect -n {nqn}"));
        // OpenSSL at the other end.
        let drive =
            format!("-d nvme+tcp://127.0.0.1:4420/{nqn}/1 --hostnqn {host} --tls-key-file /tmp/own.tls");
        let read =
            format!("{NEARSIDE} bench run {drive} --bs 128k --iodepth 4 --runtime 2s --output-format json");
        let run: serde_json::Value = serde_json::from_str(guest.sh(&read).lines().next().unwrap()).unwrap();
        let (bytes, errors) = (run["all"]["bytes"].as_u64(), run["errors"].as_u64());
        assert!(bytes > Some(1 << 20) && errors == Some(0), "{bytes:?} bytes, {errors:?} errors");
        // In the clear it is not let in, and whoever has another key is not.
        refused(guest, &connect, "failed to receive icresp");
        guest.sh("kill $(cat /tmp/own.pid)");
        guest.until("! [ -d /proc/$(cat /tmp/own.pid) ]");
        let said = guest.sh("cat /tmp/own");
        assert!(!said.contains("panic") && !said.contains(&key[17..33]), "{said}");
    }
}

/// All that goes over each queue's connection; also after the host has made them anew.
fn is_encrypted(guest: &mut Guest, served: &Secured, kind: Kind, key: &str, identity: u8, host: &str) {
    let nqn = kind.nqn();
    let before = COUNTS.map(|name| served.count(name));
    let number = has_only(guest, key, identity, host, &nqn);
    guest.sh(": > /tmp/tlshd");
    let tap = Tap::to(served.server.port);
    guest.sh(&connect(tap.port, &nqn, "--tls --hdr-digest --data-digest"));
    guest.until("[ -b /dev/nvme0n1 ]");
    let queues = queues(guest);
    let said = guest.sh("cat /tmp/tlshd");
    let name = format!("NVMe{identity}R0{} {host} {nqn}", kind.hmac);
    let cipher = format!("Session description: (TLS1.3)--({})\n", kind.cipher);
    for what in [&format!("Using psk identity {name}"), &cipher, DONE] {
        assert_eq!(said.matches(what).count() as u64, queues, "{what} in:\n{said}");
    }
    let by = guest.sh("cd /sys/class/nvme/nvme0 && echo $(cat tls_mode tls_key)");
    assert_eq!(by.trim(), format!("tls {number}"));
    assert!(served.status(&[]).contains(", over TLS"), "{}", served.status(&[]));

    guest.sh(&format!(
        "yes {PLAIN} | head -c 1048576 > /tmp/plain && dd if=/tmp/plain of=/dev/nvme0n1 bs=1M oflag=direct"
    ));
    guest.sh("dd if=/dev/nvme0n1 bs=64k count=16 iflag=direct | cmp - /tmp/plain");
    keeps_what_is_written(guest);
    guest.sh("nvme reset /dev/nvme0");
    guest.until("[ $(cat /sys/class/nvme/nvme0/state) = live ]");
    let said = guest.sh("cat /tmp/tlshd");
    assert_eq!(said.matches(DONE).count() as u64, 2 * queues, "{said}");
    keeps_what_is_written(guest);
    guest.sh(&format!("nvme disconnect -n {nqn}"));
    // The key's name is in the clear; what was written is not, nor what a controller says of itself.
    assert!(tap.has_seen(&name) && !tap.has_seen(PLAIN) && !tap.has_seen("Nearside"));
    assert_eq!(COUNTS.map(|name| served.count(name)), [before[0] + 2 * queues, before[1]]);
}

/// With no key, in the clear, with another key by the name of its own, and with its own by another's.
fn is_refused(guest: &mut Guest, served: &Secured, key: &str, host: &str) {
    let port = served.server.port;
    let [nqn, second] = KINDS.map(Kind::nqn);
    let by_tls = connect(port, &nqn, "--tls");
    let before = served.count("connections_not_encrypted");
    guest.sh("keyctl clear %:.nvme");
    // It does not try.
    refused(guest, &by_tls, "no valid PSK found");
    assert_eq!(served.count("connections_not_encrypted"), before);
    refused(guest, &connect(port, &nqn, ""), "failed to receive icresp");
    served.until_count("connections_not_encrypted", before + 1);
    for identity in [0, 1] {
        let other = guest.sh("nvme gen-tls-key --hmac=1");
        has_only(guest, other.trim(), identity, host, &nqn);
        guest.sh(": > /tmp/tlshd");
        refused(guest, &by_tls, "TLS handshake complete, error -13");
        let said = guest.sh("cat /tmp/tlshd");
        assert!(said.contains("Received alert") && !said.contains(DONE), "{said}");
        served.until_count("connections_not_encrypted", before + 2 + u64::from(identity));
    }
    // Who has proved by its key that it is one, and then says that it is another, or wants another subsystem.
    let number = has_only(guest, key, 1, host, &nqn);
    let own = format!("--tls --tls-key=0x{number}");
    let name = format!("--hostnqn={OTHER} --hostid={OTHER_ID}");
    let as_other = connect(port, &nqn, &format!("{own} {name}"));
    refused(guest, &as_other, &format!("is not allowed, hostnqn: {OTHER}"));
    refused(guest, &connect(port, &second, &own), &format!("is not allowed, hostnqn: {host}"));
    guest.sh(&format!("{by_tls} && nvme disconnect -n {nqn}"));
    let log = served.log();
    assert!(log.contains("a connection was refused"), "{log}");
}

/// A host with keys of both kinds has to prove it by both.
fn proves_it_as_well(guest: &mut Guest, served: &Secured, key: &str, proof: &str, host: &str) {
    let port = served.server.port;
    has_only(guest, key, 1, host, BOTH);
    refused(guest, &connect(port, BOTH, "--tls"), "qid 0: no key\n");
    guest.sh("dmesg -c > /dev/null");
    guest.sh(&connect(port, BOTH, &format!("--tls --dhchap-secret={proof}")));
    guest.until("[ -b /dev/nvme0n1 ]");
    let said = guest.sh("dmesg");
    assert!(said.contains("qid 0: authenticated with hash hmac(sha256) dhgroup ffdhe2048\n"), "{said}");
    assert_eq!(guest.sh("cat /sys/class/nvme/nvme0/tls_mode").trim(), "tls");
    assert!(served.status(&[]).contains(", authenticated, over TLS"), "{}", served.status(&[]));
    keeps_what_is_written(guest);
    guest.sh(&format!("nvme disconnect -n {BOTH}"));
}

/// The host's key is there by the name of the discovery subsystem as well.
fn discovers(guest: &mut Guest, served: &Secured, key: &str, host: &str) {
    let discover = format!("nvme discover -t tcp -a {HOST} -s {}", served.server.port);
    refused(guest, &discover, "failed to receive icresp");
    has_only(guest, key, 1, host, "nqn.2014-08.org.nvmexpress.discovery");
    let found = guest.sh(&format!("{discover} --tls"));
    let entries = found.matches("treq:    required").count();
    assert!(found.contains(BOTH) && entries == 4, "{found}");
    assert_eq!(found.matches("sectype: tls13").count(), entries, "{found}");
}
