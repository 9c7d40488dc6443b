//! Several paths to one namespace: a stock host's native multipath goes by the states that the server says,
//! and goes on when a path is pulled under it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::guest::{Guest, HOST};
use super::{NQN, Server, image, nearside, told};

/// A cable: passes on what comes, until it is pulled.
struct Cable {
    port: u16,
    /// `None`: it has been pulled.
    ends: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Cable {
    fn to(server: SocketAddr) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ends = Arc::new(Mutex::new(Some(Vec::new())));
        let plugged = ends.clone();
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let mut plugged = plugged.lock().unwrap();
                // Who comes by a cable that was pulled hears nothing more.
                let Some(ends) = &mut *plugged else { continue };
                let Ok(target) = TcpStream::connect(server) else { continue };
                ends.extend([host.try_clone().unwrap(), target.try_clone().unwrap()]);
                let (host_in, target_in) = (host.try_clone().unwrap(), target.try_clone().unwrap());
                std::thread::spawn(move || pass(host_in, target));
                std::thread::spawn(move || pass(target_in, host));
            }
        });
        Cable { port, ends }
    }

    fn pull(&self) {
        for end in self.ends.lock().unwrap().take().into_iter().flatten() {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = to.set_nodelay(true);
    let mut bytes = vec![0; 256 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// What the host's kernel says of each path of a namespace, in order of their controllers.
fn states(guest: &mut Guest, nsid: u32) -> String {
    guest
        .sh(&format!("cd /sys/class/nvme && cat nvme*/nvme0c*n{nsid}/ana_state"))
        .replace('\n', " ")
        .trim()
        .to_owned()
}

fn until_states(guest: &mut Guest, nsid: u32, wanted: &str) {
    guest.until(&format!(
        "[ \"$(cd /sys/class/nvme && echo $(cat nvme*/nvme0c*n{nsid}/ana_state))\" = '{wanted}' ]"
    ));
}

/// How many reads and writes have gone by a path.
fn gone_by(guest: &mut Guest, path: u32) -> u64 {
    let stat = guest.sh(&format!("awk '{{print $1 + $5}}' /sys/class/nvme/nvme{path}/nvme0c{path}n1/stat"));
    stat.trim().parse().unwrap()
}

/// A server with two namespaces, of groups 1 and 2.
fn serve(folder: &Path, port: u16) -> Server {
    let stores = [image(&folder.join("path1.img"), 64), image(&folder.join("path2.img"), 16)];
    let config = folder.join("paths.toml");
    let text = format!(
        "listen = [\"127.0.0.1:{port}\"]\ncontrol = \"paths.sock\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         [[subsystem.namespace]]\nnsid = 1\nstore = \"{}\"\n\
         [[subsystem.namespace]]\nnsid = 2\nstore = \"{}\"\nana-group = 2\n",
        stores[0], stores[1]
    );
    std::fs::write(&config, text).unwrap();
    let mut command = nearside();
    command.args(["serve", "--config"]).arg(&config);
    Server::started(command)
}

pub fn goes_another_way(guest: &mut Guest, folder: &Path, port: u16) {
    let server = serve(folder, port);
    let socket = folder.join("paths.sock").display().to_string();
    let control = |words: &[&str]| told(&[&["control", "--control", &socket], words].concat());
    let first = format!("127.0.0.1:{port}");
    let second = control(&["listener", "add", "127.0.0.1:0", "--json"]);
    let second: serde_json::Value = serde_json::from_str(&second).unwrap();
    let second = second["address"].as_str().unwrap().to_owned();
    let ana = |address: &str, state: &str, more: &[&str]| control(&[&["ana", address, state], more].concat());
    let cable = Cable::to(second.parse().unwrap());
    // What was refused before is not complained of here.
    guest.sh("dmesg -c > /dev/null");

    // Two controllers, one disk.
    for port in [port, cable.port] {
        guest.sh(&format!(
            "nvme connect -t tcp -a {HOST} -s {port} -n {NQN} --ctrl-loss-tmo=-1 --reconnect-delay=1"
        ));
    }
    guest.until("[ -b /dev/nvme0n2 ] && [ -e /sys/class/nvme/nvme1/nvme0c1n2 ]");
    guest.refused("[ -b /dev/nvme1n1 ]");
    assert_eq!(states(guest, 1), "optimized optimized");

    // The states of one group are those of its namespaces by that address, and of no other.
    ana(&first, "inaccessible", &["--group", "2"]);
    until_states(guest, 2, "inaccessible optimized");
    assert_eq!(states(guest, 1), "optimized optimized");
    let log = guest.sh("nvme ana-log /dev/nvme0");
    assert!(log.contains("optimized") && log.contains("inaccessible"), "{log}");
    ana(&second, "non-optimized", &[]);
    until_states(guest, 1, "optimized non-optimized");
    until_states(guest, 2, "inaccessible non-optimized");

    // The host uses the better of two.
    let write = |guest: &mut Guest| {
        let before = [0, 1].map(|path| gone_by(guest, path));
        guest.sh("dd if=/dev/urandom of=/dev/nvme0n1 bs=4k count=64 oflag=direct");
        [0, 1].map(|path| gone_by(guest, path) - before[path as usize])
    };
    let [better, worse] = write(guest);
    assert!(better >= 64 && worse == 0, "{better} by the better path, {worse} by the other");
    ana(&first, "inaccessible", &[]);
    until_states(guest, 1, "inaccessible non-optimized");
    let [none, all] = write(guest);
    assert!(none == 0 && all >= 64, "{none} by the inaccessible path, {all} by the other");

    // With none, I/O waits, and goes on with the first that there is.
    ana(&second, "inaccessible", &[]);
    until_states(guest, 1, "inaccessible inaccessible");
    guest.sh("(dd if=/dev/zero of=/dev/nvme0n1 bs=4k count=8 oflag=direct; echo $? > /tmp/waited) > /dev/null 2>&1 &");
    std::thread::sleep(Duration::from_secs(2));
    guest.refused("[ -e /tmp/waited ]");
    ana(&first, "optimized", &[]);
    guest.until("[ -e /tmp/waited ]");
    assert_eq!(guest.sh("cat /tmp/waited").trim(), "0");

    goes_on_under_a_load(guest, &ana, [&first, &second], &cable);
    let (_, complaints, _) = guest.ran("dmesg | grep -E 'I/O error|Buffer I/O'", 20);
    assert_eq!(complaints, "");
    guest.sh(&format!("nvme disconnect -n {NQN}"));
    server.stop();
}

/// Under a load that verifies, states change, and at last a cable is pulled.
fn goes_on_under_a_load(
    guest: &mut Guest,
    ana: &dyn Fn(&str, &str, &[&str]) -> String,
    [first, second]: [&str; 2],
    cable: &Cable,
) {
    guest.sh("rm -f /tmp/stop /tmp/ended; : > /tmp/runs");
    guest.sh(
        "(while [ ! -e /tmp/stop ]; do \
           fio --name=p --filename=/dev/nvme0n1 --rw=randrw --bssplit=512/20:4k/60:64k/20 --blockalign=512 --direct=1 --size=32m \
             --ioengine=io_uring --iodepth=8 --time_based --runtime=3 --verify=crc32c --verify_backlog=64 --verify_fatal=1 \
             || { echo failed > /tmp/ended; exit 1; }; \
           echo run >> /tmp/runs; \
         done; echo well > /tmp/ended) > /tmp/fio 2>&1 &",
    );
    let more_runs = |guest: &mut Guest, many: u32| {
        let runs = guest.sh("wc -l < /tmp/runs").trim().parse::<u32>().unwrap() + many;
        guest.until(&format!("[ $(wc -l < /tmp/runs) -ge {runs} -o -e /tmp/ended ]"));
        guest.sh("[ ! -e /tmp/ended ] || { cat /tmp/fio >&2; exit 1; }");
    };
    more_runs(guest, 1);
    for (away, here) in [(first, second), (second, first)].repeat(3) {
        ana(here, "optimized", &[]);
        ana(away, "change", &[]);
        std::thread::sleep(Duration::from_secs(1));
        ana(away, "inaccessible", &[]);
        std::thread::sleep(Duration::from_secs(1));
    }
    // Now by the second alone, which is about to go; the first is there before.
    ana(second, "optimized", &[]);
    ana(first, "non-optimized", &[]);
    until_states(guest, 1, "non-optimized optimized");
    more_runs(guest, 1);
    cable.pull();
    more_runs(guest, 2);
    guest.sh("touch /tmp/stop");
    guest.until("[ -e /tmp/ended ]");
}
