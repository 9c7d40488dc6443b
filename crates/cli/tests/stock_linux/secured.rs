//! A server whose hosts have keys, and what a guest of the newest kernel does with one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::guest::{Guest, HOST, must};
use super::{Server, nearside, told};

/// A server whose hosts have keys, in files of its folder; what it says is in its log.
pub struct Secured {
    pub server: Server,
    pub folder: PathBuf,
}

impl Secured {
    /// With what its file has beside where it listens and what it says.
    pub fn start(folder: &Path, rest: &str) -> Secured {
        let config = folder.join("secured.toml");
        let file = format!("listen = ['127.0.0.1:0']\ncontrol = 'secured.sock'\nlog = 'trace'\n{rest}");
        fs::write(&config, file).unwrap();
        let mut command = nearside();
        command.args(["serve", "--config"]).arg(&config);
        command.env_remove("NEARSIDE_LOG").stderr(fs::File::create(folder.join("secured.log")).unwrap());
        Secured { server: Server::started(command), folder: folder.to_owned() }
    }

    /// A key's file, which only its owner may read; gives the key.
    pub fn keep(folder: &Path, name: &str, key: &str) -> String {
        let path = folder.join(name);
        fs::write(&path, key).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        key.trim().to_owned()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("secured.log")).unwrap()
    }

    pub fn status(&self, more: &[&str]) -> String {
        let socket = self.folder.join("secured.sock");
        told(&[&["status", "--control", socket.to_str().unwrap()], more].concat())
    }

    pub fn count(&self, name: &str) -> u64 {
        let status: Value = serde_json::from_str(&self.status(&["--json"])).unwrap();
        status[name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"))
    }

    /// What the last word of a host that gives up has to come to first.
    pub fn until(&self, what: &str, holds: impl Fn(&Secured) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn until_failed(&self, count: u64) {
        self.until_count("authentications_failed", count);
    }

    /// What was refused may be known to its host before it is counted.
    pub fn until_count(&self, name: &str, count: u64) {
        self.until(&format!("{name}: {count}"), |served| served.count(name) >= count);
        assert_eq!(self.count(name), count);
    }

    /// Has it read its file again.
    pub fn reload(&self) {
        must(Command::new("kill").args(["-HUP", &self.server.child.id().to_string()]));
        self.until("SIGHUP", |served| served.log().contains("the file is read again"));
    }

    /// The guest's words; with its own key of DH-HMAC-CHAP and the subsystem's, as far as there are.
    pub fn connect(&self, nqn: &str, keys: &[&String]) -> String {
        let options = ["--dhchap-secret", "--dhchap-ctrl-secret"];
        let keys: String = options.iter().zip(keys).map(|(option, key)| format!(" {option}={key}")).collect();
        format!("nvme connect -t tcp -a {HOST} -s {} -n {nqn} --reconnect-delay=1{keys}", self.server.port)
    }
}

/// That a word of the guest's is refused, that its kernel says why, and that nothing of it stays.
pub fn refused(guest: &mut Guest, words: &str, said: &str) {
    guest.sh("dmesg -c > /dev/null");
    guest.refused(words);
    let kernel = guest.sh("dmesg");
    assert!(kernel.contains(said), "{words}: no {said} in:\n{kernel}");
    guest.refused("[ -e /dev/nvme0 -o -e /dev/nvme0n1 ]");
}

/// Verified I/O of several sizes on the guest's disk.
pub fn keeps_what_is_written(guest: &mut Guest) {
    guest.sh(
        "cd /tmp && fio --name=v --filename=/dev/nvme0n1 --allow_file_create=0 --rw=randrw --bssplit=512/20:4k/60:128k/20 --blockalign=512 --direct=1 \
         --size=4m --verify=crc32c --verify_fatal=1 --do_verify=1 --ioengine=io_uring --iodepth=8",
    );
}

/// Of the host's connection.
pub fn queues(guest: &mut Guest) -> u64 {
    let queues = guest.sh("cat /sys/class/nvme/nvme0/queue_count").trim().parse().unwrap();
    assert!(queues >= 2, "{queues} queues");
    queues
}
