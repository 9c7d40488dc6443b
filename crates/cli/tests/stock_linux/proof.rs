//! A stock Linux that proves who it is before it is served (DH-HMAC-CHAP), and has the subsystem prove it
//! too: the newest kernel that Debian has, since Debian 12's has no in-band authentication.

use std::path::Path;

use super::guest::Guest;
use super::secured::{Secured, keeps_what_is_written, queues, refused};
use super::told;

const DISKS: &str = "nqn.2026-11.dev.nearside:disks";
const STRANGER: &str =
    "--hostnqn=nqn.2026-11.dev.nearside:stranger --hostid=00000000-0000-4000-8000-00000000c0df";

/// By what a host proves itself: a subsystem's only hash function and group, or those that it prefers.
#[derive(Clone, Copy)]
struct Way {
    hash: &'static str,
    group: &'static str,
    /// The form of the host's key (`gen-dhchap-key --hmac`), and its bytes.
    key: [u8; 2],
}

const WAYS: [Way; 3] = [
    Way { hash: "sha-256", group: "null", key: [1, 32] },
    Way { hash: "sha-384", group: "ffdhe2048", key: [2, 48] },
    Way { hash: "sha-512", group: "ffdhe3072", key: [3, 64] },
];
const PREFERRED: Way = Way { hash: "sha-256", group: "ffdhe2048", key: [0, 32] };

fn nqn(name: &str) -> String {
    format!("nqn.2026-11.dev.nearside:{name}")
}

/// A subsystem in a server's file, with the keys of its one host.
fn subsystem(nqn: &str, more: &str, host: &str, key: &str) -> String {
    format!(
        "[[subsystem]]\nnqn = '{nqn}'\n{more}\n[[subsystem.host]]\nnqn = '{host}'\nkey-file = '{key}'\n\
         controller-key-file = 'disks.key'\n[[subsystem.namespace]]\nnsid = 1\nstore = 'dram:16MiB'\n"
    )
}

/// Each way of doing it, and each of not doing it.
pub fn proves_who_it_is(guest: &mut Guest, folder: &Path) {
    let host = guest.sh("cat /etc/nvme/hostnqn").trim().to_owned();

    // The host's own keys are made by nvme-cli, the others by us.
    let mut keys: Vec<String> = Vec::new();
    let mut file = subsystem(DISKS, "", &host, "host.key");
    for Way { hash, group, key: [hmac, length] } in WAYS {
        let key = guest.sh(&format!("nvme gen-dhchap-key --hmac={hmac} --key-length={length} --nqn={host}"));
        keys.push(Secured::keep(folder, &format!("{hmac}.key"), &key));
        let only = format!("hashes = ['{hash}']\ndh-groups = ['{group}']");
        file += &subsystem(&nqn(hash), &only, &host, &format!("{hmac}.key"));
    }
    let made = || told(&["key", "generate"]);
    let [mine, next, disks, other] =
        ["host.key", "next.key", "disks.key", "other.key"].map(|name| Secured::keep(folder, name, &made()));
    let served = Secured::start(folder, &file);

    for (way, key) in WAYS.into_iter().zip(&keys) {
        proves_it(guest, &served, &nqn(way.hash), way, &[key, &disks]);
    }
    // Of the two the host only.
    proves_it(guest, &served, DISKS, PREFERRED, &[&mine]);
    is_refused(guest, &served, [&mine, &disks, &other]);
    proves_it_again(guest, &served, [&mine, &next, &disks]);

    // And nobody has told a key.
    let (log, status) = (served.log(), served.status(&[]) + &served.status(&["--json"]));
    assert!(log.contains(&host) && status.contains(DISKS), "{log}\n{status}");
    for key in keys.iter().chain([&mine, &next, &disks, &other]) {
        let secret = &key["DHHC-1:00:".len()..][..16];
        assert!(!log.contains(secret) && !status.contains(secret), "{key} in:\n{log}\n{status}");
    }
    served.server.stop();
}

/// Each queue of the host's by itself; and then it is served.
fn proves_it(guest: &mut Guest, served: &Secured, nqn: &str, way: Way, keys: &[&String]) {
    let before = ["queues_authenticated", "authentications_failed"].map(|name| served.count(name));
    guest.sh("dmesg -c > /dev/null");
    guest.sh(&served.connect(nqn, keys));
    guest.until("[ -b /dev/nvme0n1 ]");
    let said = guest.sh("dmesg");
    let hash = way.hash.replace('-', "");
    let how = format!("qid 0: authenticated with hash hmac({hash}) dhgroup {}\n", way.group);
    assert!(said.contains(&how), "no {how} in:\n{said}");
    assert_eq!(said.contains("qid 0: controller authenticated\n"), keys.len() == 2, "{said}");
    keeps_what_is_written(guest);
    let queues = queues(guest);
    let after = ["queues_authenticated", "authentications_failed"].map(|name| served.count(name));
    assert_eq!(after, [before[0] + queues, before[1]]);
    assert!(served.status(&[]).contains(", authenticated"), "{}", served.status(&[]));
    guest.sh(&format!("nvme disconnect -n {nqn}"));
}

/// Without a key, with another, for another subsystem, and by a name that is not on the list.
fn is_refused(guest: &mut Guest, served: &Secured, [mine, disks, other]: [&String; 3]) {
    let proved = served.count("queues_authenticated");
    let failed = served.count("authentications_failed");
    // It does not try, and is therefore not counted.
    refused(guest, &served.connect(DISKS, &[]), "qid 0: no key\n");
    refused(guest, &served.connect(DISKS, &[other, disks]), "qid 0: authentication failed");
    served.until_failed(failed + 1);
    refused(guest, &served.connect(DISKS, &[mine, other]), "qid 0: controller authentication failed");
    served.until_failed(failed + 2);
    let stranger = format!("{} {STRANGER}", served.connect(DISKS, &[mine, disks]));
    refused(guest, &stranger, "is not allowed, hostnqn: nqn.2026-11.dev.nearside:stranger");
    assert_eq!(served.count("authentications_failed"), failed + 2);
    assert_eq!(served.count("queues_authenticated"), proved);
    let log = served.log();
    assert!(
        log.contains("a host was not authenticated") && log.contains("not offered to this host"),
        "{log}"
    );
}

/// Under a load it gets another key, and proves that it has it on the queues that it has; then it loses it.
fn proves_it_again(guest: &mut Guest, served: &Secured, [mine, next, disks]: [&String; 3]) {
    let set = |key: &String| format!("echo {key} > /sys/class/nvme/nvme0/dhchap_secret");
    guest.sh(&served.connect(DISKS, &[mine, disks]));
    guest.until("[ -b /dev/nvme0n1 ]");
    guest.sh(
        "(fio --name=a --filename=/dev/nvme0n1 --allow_file_create=0 --rw=randrw --bs=4k --direct=1 --size=4m --verify=crc32c \
           --verify_fatal=1 --verify_backlog=64 --ioengine=io_uring --iodepth=4 --time_based --runtime=3600; \
         touch /tmp/ended) > /tmp/fio 2>&1 &",
    );
    let goes_on = |guest: &mut Guest| {
        let count = "$(awk '{print $1 + $5}' /sys/block/nvme0n1/stat)";
        let before = guest.sh(&format!("echo {count}"));
        guest.until(&format!("[ -e /tmp/ended ] || [ {count} -ge $(({} + 500)) ]", before.trim()));
        guest.sh("[ ! -e /tmp/ended ] || { cat /tmp/fio >&2; exit 1; }");
    };
    goes_on(guest);
    Secured::keep(&served.folder, "host.key", next);
    served.reload();
    let proved = served.count("queues_authenticated");
    guest.sh("dmesg -c > /dev/null");
    guest.sh(&set(next));
    let queues = queues(guest);
    served.until("all queues again", |served| served.count("queues_authenticated") >= proved + queues);
    goes_on(guest);
    let said = guest.sh("dmesg");
    assert!(said.contains("re-authenticating controller") && !said.contains("recovery"), "{said}");

    // The old key is none any more: the host is cut off, and its next connection does not come about.
    let failed = served.count("authentications_failed");
    guest.sh(&set(mine));
    guest.until("[ -e /tmp/ended ] && [ ! -e /sys/class/nvme/nvme0 ]");
    let said = guest.sh("dmesg; cat /tmp/fio");
    assert!(said.contains("qid 0: authentication failed") && said.contains("Input/output error"), "{said}");
    served.until_failed(failed + 2);
}
