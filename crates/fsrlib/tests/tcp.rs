//! A drive over NVMe/TCP: our initiator against our target. The same answers as the drive gives without a
//! network, whatever was agreed on; blocks of every size; what is refused.

use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::TscClock;
use nearside_conformance::{needs, volume};
use nearside_device::{Identity, Namespace, Subsystem};
use nearside_driver::{Controller, Host};
use nearside_embedded::Options;
use nearside_firmware::{Config, Fsr};
use nearside_front_tcp::{Offer, Server, Target};
use nearside_fsrlib::driver::tcp::{
    Address, Association, Initiator, Options as HostOptions, discover, subtype,
};
use nearside_fsrlib::driver::{Command, Error as DriverError, Failure as Ended, Policy, RejectReason};
use nearside_fsrlib::{
    Answer, Ask, Credentials, Error, Failure, Operation, Record, Route, SearchOptions, Session, TcpTransport,
    Transport, describe, own_credentials,
};
use nearside_random::Rng;
use nearside_spec::Status;
use nearside_store::{Delay, Dram, File, FileOptions, Modelled, Store};

#[path = "tcp/reconnecting.rs"]
mod reconnecting;
#[path = "tcp/remote.rs"]
mod remote;

const NQN: &str = "nqn.2014-08.org.example:drive";
const BLOCK: usize = 512;

/// A target with one subsystem of one namespace; hosts are believed.
fn serve<S: Store>(store: S, hosts: Option<Vec<String>>) -> (Server<S, Fsr>, Address) {
    serve_as(store, |offer| Offer { hosts, identity: Identity::Trust, ..offer })
}

/// The same, offered as told.
fn serve_as<S: Store>(
    store: S,
    offer: impl FnOnce(Offer<S, Fsr>) -> Offer<S, Fsr>,
) -> (Server<S, Fsr>, Address) {
    serve_at(None, [9; 16], store, offer)
}

/// The same where another server was, or where none has been, with a namespace of that UUID.
fn serve_at<S: Store>(
    at: Option<&Address>,
    uuid: [u8; 16],
    store: S,
    offer: impl FnOnce(Offer<S, Fsr>) -> Offer<S, Fsr>,
) -> (Server<S, Fsr>, Address) {
    let clock = TscClock::new();
    let firmware = Fsr::new(Arc::new(clock), Config::default());
    let subsystem = Subsystem::new();
    let namespace = Namespace::new(store, firmware, BLOCK as u32, uuid, false).unwrap();
    subsystem.add(1, Arc::new(namespace)).unwrap();
    let target = Target::new(nearside_front_tcp::Options::default()).unwrap();
    target.offer(offer(Offer::new(NQN, "7", subsystem)));
    let (host, port) = at.map_or((needs::loopback().to_string(), 0), |at| (at.host.clone(), at.port));
    let listener = TcpListener::bind((&*host, port)).unwrap();
    let at = listener.local_addr().unwrap();
    let server = Server::start(target, vec![listener], clock).unwrap();
    (server, format!("nvme+tcp://{at}/{NQN}/1").parse().unwrap())
}

fn connect(address: &Address, host: HostOptions) -> Association {
    Association::connect(address, host, Arc::new(TscClock::new())).unwrap()
}

fn digests(header_digest: bool, data_digest: bool) -> HostOptions {
    HostOptions { header_digest, data_digest, ..HostOptions::default() }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    Rng(seed).bytes(len)
}

#[test]
fn blocks_of_every_size_come_back() {
    let (_server, address) = serve(Dram::new(32 << 20, 512).unwrap(), None);
    for (host, policy) in [
        (digests(false, false), Policy::Polled),
        (digests(true, false), Policy::Interrupt),
        (digests(false, true), Policy::Hybrid),
        (digests(true, true), Policy::Interrupt),
    ] {
        let controller = connect(&address, host);
        let most = controller.max_transfer();
        let mut initiator = controller.initiator(32, policy, TscClock::new()).unwrap();
        let mut run = |command: Command, buffer| initiator.execute(&command, buffer).unwrap();
        let sizes = [512, 1024, 4096, 8192, 8704, 12_800, 65_536, 131_072, 1 << 20];
        for (nr, len) in sizes.into_iter().filter(|len| *len <= most).enumerate() {
            let (slba, blocks) = (nr as u64 * 2049 + 3, (len / BLOCK) as u32);
            let bytes = pattern(len, nr as u64);
            let wrote = run(Command::write(1, slba, blocks), Some(bytes.clone()));
            assert_eq!(wrote.outcome.map(drop), Ok(()), "{len}");
            let read = run(Command::read(1, slba, blocks), Some(vec![0; len]));
            assert_eq!((read.outcome.map(drop), read.moved), (Ok(()), len));
            assert!(read.buffer.unwrap() == bytes, "{len} bytes by {policy:?}");
        }
        assert_eq!(run(Command::flush(1), None).outcome.map(drop), Ok(()));
        let last = (32 << 20) / BLOCK as u64;
        let mut refused = |command, bytes, status: Status| {
            let failure = run(command, Some(vec![0; bytes])).outcome.unwrap_err();
            assert!(matches!(failure, Ended::Status(s) if s.code() == status), "{failure}");
        };
        refused(Command::read(1, last, 1), BLOCK, Status::LBA_OUT_OF_RANGE);
        refused(Command::write(1, last - 1, 32), 32 * BLOCK, Status::LBA_OUT_OF_RANGE);
        refused(Command::read(2, 0, 1), BLOCK, Status::INVALID_NAMESPACE);
        let large = initiator.execute(&Command::read(1, 0, 1), Some(vec![0; most + BLOCK]));
        assert_eq!(large.unwrap_err().reason, RejectReason::Buffer);
    }
}

#[test]
fn who_is_there_and_who_may_come() {
    let own = HostOptions::default().host_nqn;
    let (_server, address) = serve(Dram::new(1 << 20, 512).unwrap(), Some(vec![own]));
    let at = Address::discovery(&address.authority()).unwrap();
    let seen = |host: HostOptions| {
        let entries = discover(&at, host, Arc::new(TscClock::new())).unwrap();
        entries.iter().filter(|e| e.subtype() == subtype::NVM).map(|e| e.port()).collect::<Vec<_>>()
    };
    assert_eq!(seen(HostOptions::default()), [address.port.to_string()]);
    let other = HostOptions::for_host("nqn.2014-08.org.example:other").unwrap();
    assert!(seen(other.clone()).is_empty());
    let refused = Association::connect(&address, other, Arc::new(TscClock::new())).unwrap_err();
    assert!(
        refused.to_string().contains("does not allow the host nqn.2014-08.org.example:other"),
        "{refused}"
    );
    let absent = Address { subsystem: "nqn.2014-08.org.example:absent".into(), ..address.clone() };
    let refused =
        Association::connect(&absent, HostOptions::default(), Arc::new(TscClock::new())).unwrap_err();
    assert!(matches!(refused, DriverError::Refused { .. }), "{refused}");
    let controller = connect(&address, HostOptions::default());
    assert_eq!(controller.namespaces(&mut Host::threaded(TscClock::new())).unwrap(), [1]);
    assert!(matches!(
        controller.namespace(Some(3), &mut Host::threaded(TscClock::new())),
        Err(DriverError::Namespace { nsid: 3, .. })
    ));
}

#[test]
fn an_association_is_kept_alive_and_missed_when_the_target_goes() {
    let (server, address) = serve(Dram::new(1 << 20, 512).unwrap(), None);
    let controller = connect(&address, HostOptions { keep_alive_ms: 3_000, ..HostOptions::default() });
    let mut initiator = controller.initiator(4, Policy::Interrupt, TscClock::new()).unwrap();
    // More than twice what the target waits for; only the thread speaks meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(7_000));
    let read = |i: &mut Initiator<TscClock>| i.execute(&Command::read(1, 0, 1), Some(vec![0; BLOCK]));
    assert_eq!(read(&mut initiator).unwrap().outcome.map(drop), Ok(()));
    drop(server);
    match read(&mut initiator) {
        Ok(ended) => assert_eq!(ended.outcome, Err(Ended::Lost)),
        Err(rejected) => assert_eq!(rejected.reason, RejectReason::Dead),
    }
    assert_eq!(read(&mut initiator).unwrap_err().reason, RejectReason::Dead);
}

fn image(folder: &Path) -> std::path::PathBuf {
    let tree = folder.join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    let text: String = (0..50_000).map(|i| format!("{i} {}\n", ["INFO", "ERROR", "WARN"][i % 3])).collect();
    std::fs::write(tree.join("a/b/c/log"), &text).unwrap();
    std::fs::write(tree.join("a/tiny"), "ERROR\n").unwrap();
    let image = folder.join("disk.img");
    volume::make("ext4", &image, 32, &tree);
    image
}

fn records<T: Transport>(session: &mut Session<T>, ask: &Ask) -> Vec<Record<'static>> {
    let mut records = Vec::new();
    let answer = session.stream(ask, |record| {
        records.push(record.into_owned());
        ControlFlow::Continue(())
    });
    answer.unwrap();
    records
}

fn asks() -> Vec<Ask> {
    let search = |answer| {
        let patterns = vec![b"ERROR".to_vec()];
        Operation::Search(SearchOptions {
            patterns,
            answer,
            numbers: true,
            text: true,
            ..SearchOptions::default()
        })
    };
    vec![
        Ask::path("/a/b/c/log", search(Answer::Count)),
        Ask::path("/a/b/c/log", search(Answer::Lines)),
        Ask::tree("/", search(Answer::Count)),
        Ask::path("/a/b/c/log", Operation::Count),
        Ask::tree("/a", Operation::List),
        Ask::path("/a/b/c/log", Operation::Read { offset: 1000, len: 300_000 }),
    ]
}

#[test]
fn a_drive_answers_over_the_network_as_it_does_here() {
    let Some(folder) = needs::folder("a_drive_answers_over_the_network_as_it_does_here", &["mke2fs"]) else {
        return;
    };
    let image = image(folder.path());
    let here = nearside_embedded::image(&image, &Options::default()).unwrap();
    let mut here = Session::new(here, Arc::new(TscClock::new())).with_buffer(64 << 10);
    let store = File::open(&image, FileOptions::read()).unwrap();
    let (_server, address) = serve(store, None);
    for (host, policy) in [
        (digests(false, false), Policy::Polled),
        (digests(true, true), Policy::Interrupt),
        (digests(false, false), Policy::Hybrid),
    ] {
        let transport = TcpTransport::over(&connect(&address, host), policy, TscClock::new()).unwrap();
        let mut there = Session::new(transport, Arc::new(TscClock::new())).with_buffer(64 << 10);
        let before = there.transport_mut().taken().unwrap();
        let sent = there.totals().near_data_commands;
        for ask in asks() {
            assert_eq!(records(&mut there, &ask), records(&mut here, &ask), "{ask:?}");
        }
        assert!(before.is_some() && there.totals().near_data_commands > sent);
        there.set_route(Route::Host);
        let [ask, ..] = &asks()[..] else { panic!() };
        assert_eq!(records(&mut there, ask), records(&mut here, ask), "by the host's own reads");
    }
}

#[test]
fn what_a_hosts_word_is_worth_is_said_per_host() {
    let Some(folder) = needs::folder("what_a_hosts_word_is_worth_is_said_per_host", &["mke2fs"]) else {
        return;
    };
    let tree = folder.path().join("tree/a");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("secret"), "word\n").unwrap();
    std::fs::set_permissions(tree.join("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let owner = own_credentials().unwrap();
    let image = image(folder.path());
    let store = File::open(&image, FileOptions::read()).unwrap();
    let host = |name: &str| HostOptions::for_host(&format!("nqn.2014-08.org.example:{name}")).unwrap();
    let (_server, address) = serve_as(store, |offer| Offer {
        identities: vec![
            (host("trusted").host_nqn, Identity::Trust),
            (host("owner").host_nqn, Identity::SquashAll { uid: owner.uid, gid: owner.gid }),
            (host("nobody").host_nqn, Identity::SquashAll { uid: 65_533, gid: 65_532 }),
            (host("refused").host_nqn, Identity::Refuse),
        ],
        ..offer
    });
    let root = Credentials { uid: 0, gid: 0, groups: vec![0] };
    let stranger = Credentials { uid: 12_345, gid: 12_345, groups: vec![] };
    // Who comes, for whom it asks, and what the error has to say; `None`: it may read.
    for (name, who, said) in [
        ("trusted", &root, None),
        ("trusted", &owner, None),
        ("trusted", &stranger, Some("Permission denied")),
        ("owner", &stranger, None),
        ("owner", &root, None),
        ("nobody", &root, Some("takes user 0 of this host for 65533:65532")),
        ("nobody", &owner, Some("for 65533:65532")),
        ("refused", &root, Some("answers no near-data requests")),
        ("refused", &stranger, Some("answers no near-data requests")),
        // All others: root is nobody, whoever else is believed.
        ("unnamed", &root, Some("takes root of this host for 65534:65534")),
        ("unnamed", &stranger, Some("Permission denied")),
    ] {
        let transport =
            TcpTransport::over(&connect(&address, host(name)), Policy::Interrupt, TscClock::new()).unwrap();
        let mut session = Session::new(transport, Arc::new(TscClock::new())).with_credentials(who.clone());
        let mut failed = Vec::new();
        let mut lines = 0;
        let patterns = vec![b"word".to_vec()];
        let search =
            SearchOptions { patterns, answer: Answer::Count, text: true, ..SearchOptions::default() };
        let answer = session.stream(&Ask::path("/a/secret", Operation::Search(search)), |record| {
            match record {
                Record::Matches(count) => lines += count,
                Record::Failed { failure, .. } => failed.push(describe(&failure).to_string()),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        failed.extend(answer.err().map(|error| error.to_string()));
        let failed = failed.join("; ");
        match said {
            None => assert_eq!((lines, failed.as_str()), (1, ""), "{name} for {who:?}"),
            Some(said) => assert!(lines == 0 && failed.contains(said), "{name} for {who:?}: {failed:?}"),
        }
    }
}

/// What a drive takes long for leaves its host's core alone, by every policy; a read is polled to its end.
#[test]
fn who_polls_sleeps_while_a_near_data_command_takes_long() {
    let store = Modelled::new(Dram::new(1 << 20, 512).unwrap(), Delay::fixed(20_000_000).medium());
    let (_server, address) = serve(store, None);
    let controller = connect(&address, HostOptions::default());
    let transport = TcpTransport::over(&controller, Policy::Polled, TscClock::new()).unwrap();
    let mut session = Session::new(transport, Arc::new(TscClock::new()));
    session.transport_mut().read(0, &mut [0; 512]).unwrap();
    let polled = session.transport_mut().initiator().account();
    assert_eq!((polled.sleeps, polled.stalls), (0, 0), "{polled:?}");
    let nothing = session.stream(&Ask::path("/", Operation::Stat), |_| ControlFlow::Continue(()));
    assert!(matches!(nothing, Err(Error::Refused(Failure::NoVolume(_)))), "{nothing:?}");
    let slept = session.transport_mut().initiator().account();
    // The command that waits for the medium; another that the machine kept from running is another.
    let commands = slept.synchronous - polled.synchronous;
    assert!((1..=commands).contains(&slept.stalls) && slept.sleeps > 0, "{polled:?}, then {slept:?}");
}

#[test]
fn what_is_given_up_is_cancelled_and_the_connection_goes_on() {
    let store = Dram::new(1 << 20, 512).unwrap();
    let (_server, address) = serve(store, None);
    let controller = connect(&address, HostOptions::default());
    let mut transport = TcpTransport::over(&controller, Policy::Interrupt, TscClock::new()).unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    transport.set_stop(stop.clone());
    let mut session = Session::new(transport, Arc::new(TscClock::new()));
    let stopped = session.nop();
    assert!(matches!(stopped, Err(Error::Refused(Failure::Cancelled))), "{stopped:?}");
    stop.store(false, Ordering::Relaxed);
    session.nop().unwrap();
    // A request that is none fails as such: its `result` does not wait for it in vain.
    let mut reply = Vec::new();
    let refused = session.transport_mut().near_data(&[1; 64], 4096, &mut reply).unwrap_err();
    assert!(
        matches!(refused, Error::Nvme { status, .. } if status.code() == Status::INVALID_FIELD),
        "{refused}"
    );
    session.nop().unwrap();
}
