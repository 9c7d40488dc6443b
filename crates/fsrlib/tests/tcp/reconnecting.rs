//! A session whose connection is lost goes on over another, and its answers are the same; what ends that.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearside_clock::TscClock;
use nearside_conformance::needs;
use nearside_device::{AnaState, Identity, PortStates};
use nearside_embedded::Options;
use nearside_firmware::Fsr;
use nearside_front_tcp::{Offer, Server};
use nearside_fsrlib::driver::Policy;
use nearside_fsrlib::driver::tcp::{Address, Addresses, Options as HostOptions, Recovery};
use nearside_fsrlib::{
    Answer, Ask, Error, Failure, Notice, Operation, Reconnecting, Record, Route, SearchOptions, Session,
    TcpPaths, Transport,
};
use nearside_store::{Dram, File, FileOptions};

use super::{NQN, image, records, serve_at};

/// So long that a test which waits for it has hung.
const NEVER: Duration = Duration::from_secs(100_000);
const SOON: Duration = Duration::from_millis(2);

type Told = Arc<Mutex<Vec<Notice>>>;
type Way = Reconnecting<TcpPaths<TscClock>, TscClock>;

fn every(reconnect_delay: Duration) -> Recovery {
    Recovery { reconnect_delay, ctrl_loss_tmo: None }
}

fn open_with(
    all: &[&Address],
    recovery: Recovery,
    heard: impl Fn(&Notice) + Send + 'static,
) -> Result<(Way, Told), String> {
    open_as(HostOptions { recovery, ..HostOptions::default() }, all, heard)
}

/// A way to those addresses, with what it was told of; `heard` hears it as well.
fn open_as(
    host: HostOptions,
    all: &[&Address],
    heard: impl Fn(&Notice) + Send + 'static,
) -> Result<(Way, Told), String> {
    let recovery = host.recovery;
    let authorities: Vec<String> = all.iter().map(|address| address.authority()).collect();
    let addresses: Addresses = format!("nvme+tcp://{}/{NQN}/1", authorities.join(",")).parse().unwrap();
    let paths = TcpPaths::new(addresses, host, Policy::Interrupt, TscClock::new());
    let told = Told::default();
    let tell = told.clone();
    let way = Reconnecting::connect(paths, recovery, TscClock::new(), move |notice| {
        heard(notice);
        tell.lock().unwrap().push(notice.clone());
    });
    Ok((way?, told))
}

fn open(all: &[&Address], recovery: Recovery) -> (Session<Way>, Told) {
    let (way, told) = open_with(all, recovery, |_| {}).unwrap();
    (Session::new(way, Arc::new(TscClock::new())).with_buffer(4096), told)
}

/// A session with a drive over the image in this process.
fn here(image: &Path) -> Session<impl Transport> {
    let drive = nearside_embedded::image(image, &Options::default()).unwrap();
    Session::new(drive, Arc::new(TscClock::new())).with_buffer(4096)
}

/// A server of an image, whose namespace has that UUID.
fn serve(image: &Path, at: Option<&Address>, uuid: u8) -> (Server<File, Fsr>, Address) {
    let store = File::open(image, FileOptions::read()).unwrap();
    serve_at(at, [uuid; 16], store, |offer| Offer { identity: Identity::Trust, ..offer })
}

/// A server without files.
fn empty(at: Option<&Address>, uuid: u8, hosts: Option<Vec<String>>) -> (Server<Dram, Fsr>, Address) {
    let store = Dram::new(1 << 20, 512).unwrap();
    serve_at(at, [uuid; 16], store, |offer| Offer { hosts, identity: Identity::Trust, ..offer })
}

/// The image that is searched, in a folder of its own.
fn volume(test: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = needs::folder(test, &["mke2fs"])?;
    let image = image(folder.path());
    Some((folder, image))
}

fn search() -> Operation {
    Operation::Search(SearchOptions {
        patterns: vec![b"ERROR".to_vec()],
        answer: Answer::Lines,
        numbers: true,
        text: true,
        ..SearchOptions::default()
    })
}

/// What a session answers, with something done after so many records.
fn answers<T: Transport>(
    session: &mut Session<T>,
    ask: &Ask,
    mut after: impl FnMut(usize),
) -> Result<Vec<Record<'static>>, Error> {
    let mut records = Vec::new();
    session.stream(ask, |record| {
        records.push(record.into_owned());
        after(records.len());
        ControlFlow::Continue(())
    })?;
    Ok(records)
}

#[test]
fn an_answer_of_many_commands_is_the_same_over_many_connections() {
    let Some((_folder, image)) = volume("an_answer_of_many_commands_is_the_same_over_many_connections")
    else {
        return;
    };
    let mut here = here(&image);
    let (server, address) = serve(&image, None, 9);
    let server = RefCell::new(Some(server));
    let own = HostOptions::default().host_nqn;
    let (mut there, told) = open(&[&address], every(SOON));
    let ask = Ask::tree("/", search());
    let want = records(&mut here, &ask);
    assert!(want.len() > 10_000);
    let got = answers(&mut there, &ask, |count| match count {
        // The server ends it, and serves on: while a command is out, or before.
        1 | 1_000 | 5_000 => assert_eq!(server.borrow().as_ref().unwrap().disconnect(NQN, &own), 1),
        // It ends, and another is there.
        2_000 | 10_000 => {
            drop(server.take());
            server.replace(Some(serve(&image, Some(&address), 9).0));
        }
        _ => {}
    });
    assert!(got.unwrap() == want, "byte for byte");
    let told = std::mem::take(&mut *told.lock().unwrap());
    let count = |which: fn(&Notice) -> bool| told.iter().filter(|notice| which(notice)).count();
    assert_eq!(count(|notice| matches!(notice, Notice::Lost(_))), 5, "{told:?}");
    assert_eq!(count(|notice| matches!(notice, Notice::Reconnected { of: None, .. })), 5, "{told:?}");

    // The host's own reads, and what a drive says of itself.
    there.set_route(Route::Host);
    let ask = Ask::path("/a/b/c/log", search());
    let want = records(&mut there, &ask);
    assert!(want.len() > 10_000);
    there.set_route(Route::Host);
    there.mount().unwrap();
    server.borrow().as_ref().unwrap().disconnect(NQN, &own);
    assert!(answers(&mut there, &ask, |_| {}).unwrap() == want);
    server.borrow().as_ref().unwrap().disconnect(NQN, &own);
    assert!(there.transport_mut().statistics().unwrap().is_some());
    server.borrow().as_ref().unwrap().disconnect(NQN, &own);
    assert!(there.transport_mut().taken().unwrap().is_some());
}

#[test]
fn commands_that_are_out_when_the_connection_ends_are_sent_again() {
    let Some((_folder, image)) = volume("commands_that_are_out_when_the_connection_ends_are_sent_again")
    else {
        return;
    };
    let want = records(&mut here(&image), &Ask::tree("/", search()));
    let (server, address) = serve(&image, None, 9);
    let own = HostOptions::default().host_nqn;
    let (mut there, told) = open(&[&address], every(SOON));
    let seen = AtomicUsize::new(0);
    let got = std::thread::scope(|scope| {
        // From elsewhere, while the search goes on.
        scope.spawn(|| {
            for step in 1..20 {
                while seen.load(Ordering::Relaxed) < step * 700 {
                    std::thread::yield_now();
                }
                server.disconnect(NQN, &own);
            }
        });
        let got = answers(&mut there, &Ask::tree("/", search()), |count| {
            seen.store(count, Ordering::Relaxed);
        });
        seen.store(usize::MAX, Ordering::Relaxed);
        got
    });
    assert!(got.unwrap() == want, "byte for byte");
    assert!(told.lock().unwrap().iter().any(|notice| matches!(notice, Notice::Reconnected { .. })));
}

#[test]
fn what_is_asked_together_goes_on_from_the_first_without_an_answer() {
    let Some((_folder, image)) = volume("what_is_asked_together_goes_on_from_the_first_without_an_answer")
    else {
        return;
    };
    let mut here = here(&image);
    let (server, address) = serve(&image, None, 9);
    let own = HostOptions::default().host_nqn;
    let (mut there, told) = open(&[&address], every(SOON));
    // Each differs from the next, so that none is in a list with others.
    let asks: Vec<Ask> = (0..40)
        .map(|nth| Ask::path("/a/b/c/log", Operation::Read { offset: nth * 997, len: 500 + nth }))
        .collect();
    let want = together(&mut here, &asks, |_| {});
    let got = together(&mut there, &asks, |nth| {
        if nth % 10 == 7 {
            server.disconnect(NQN, &own);
        }
    });
    assert_eq!(got, want);
    let told = told.lock().unwrap();
    assert_eq!(
        told.iter().filter(|notice| matches!(notice, Notice::Reconnected { .. })).count(),
        4,
        "{told:?}"
    );
}

/// What each is answered, with something done after each record.
fn together<T: Transport>(
    session: &mut Session<T>,
    asks: &[Ask],
    mut after: impl FnMut(usize),
) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    let ended = session.stream_each(asks, |nth, record| {
        all.push((nth, format!("{record:?}")));
        after(nth);
        ControlFlow::Continue(())
    });
    ended.unwrap();
    all
}

#[test]
fn another_address_takes_over_at_once() {
    let Some((_folder, image)) = volume("another_address_takes_over_at_once") else { return };
    let mut here = here(&image);
    let (first, one) = serve(&image, None, 9);
    let (_second, two) = serve(&image, None, 9);
    let (mut there, told) = open(&[&one, &two], every(NEVER));
    let ask = Ask::tree("/", search());
    let mut first = Some(first);
    let got = answers(&mut there, &ask, |count| {
        if count == 3_000 {
            drop(first.take());
        }
    });
    assert!(got.unwrap() == records(&mut here, &ask));
    let told = told.lock().unwrap();
    assert!(matches!(&told[..], [Notice::Lost(_), Notice::Moved(to)] if *to == two.authority()), "{told:?}");

    // One that is not there to begin with is passed over.
    let (mut there, told) = open(&[&one, &two], every(NEVER));
    there.nop().unwrap();
    assert!(told.lock().unwrap().is_empty());
}

/// Stands between a host and a target, and hands on what comes until it is told to keep it: then the target
/// is there for the host, and says nothing more.
fn between(target: &Address, keeps: &Arc<AtomicBool>) -> Address {
    let listener = TcpListener::bind((&*target.host, 0)).unwrap();
    let (port, to, keeps) = (listener.local_addr().unwrap().port(), target.authority(), keeps.clone());
    std::thread::spawn(move || {
        for host in listener.incoming() {
            let (host, target) = (host.unwrap(), TcpStream::connect(&to).unwrap());
            for (mut from, mut into) in
                [(host.try_clone().unwrap(), target.try_clone().unwrap()), (target, host)]
            {
                let keeps = keeps.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(len @ 1..) = from.read(&mut bytes) {
                        if !keeps.load(Ordering::Relaxed) && into.write_all(&bytes[..len]).is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    Address { port, ..target.clone() }
}

#[test]
fn a_drive_that_says_nothing_is_asked_elsewhere() {
    let (_server, direct) = empty(None, 9, None);
    let keeps = Arc::new(AtomicBool::new(false));
    let through = between(&direct, &keeps);
    // A keep alive is out as well when the time is over.
    let host = HostOptions {
        timeout_ms: 1_000,
        connect_ms: 500,
        keep_alive_ms: 500,
        recovery: every(NEVER),
        ..HostOptions::default()
    };
    let (way, told) = open_as(host, &[&through, &direct], |_| {}).unwrap();
    let mut session = Session::new(way, Arc::new(TscClock::new()));
    session.nop().unwrap();
    keeps.store(true, Ordering::Relaxed);
    session.nop().unwrap();
    let told = told.lock().unwrap();
    let [Notice::Lost(why), Notice::Moved(to)] = &told[..] else { panic!("{told:?}") };
    assert!(why.contains("no answer within 1000 ms") && *to == direct.authority(), "{told:?}");
}

#[test]
fn attempts_are_as_many_as_the_kernels() {
    let (server, address) = empty(None, 9, None);
    let recovery = Recovery { reconnect_delay: SOON, ctrl_loss_tmo: Some(SOON * 2 + SOON / 2) };
    let (mut session, told) = open(&[&address], recovery);
    session.nop().unwrap();
    drop(server);
    let lost = session.nop().unwrap_err();
    let text = lost.to_string();
    assert!(matches!(lost, Error::Lost(_)), "{text}");
    for part in [&*address.authority(), "no other could be made in 0.005 seconds, 3 attempts: connecting: "] {
        assert!(text.contains(part), "{text}");
    }
    let told: Vec<String> = told.lock().unwrap().iter().map(Notice::to_string).collect();
    assert!(told[0].starts_with("starting error recovery: driver: "), "{told:?}");
    for (nth, said) in told[1..7].chunks(2).enumerate() {
        assert_eq!(said[0], "Reconnecting in 0.002 seconds...");
        assert!(said[1].starts_with(&format!("Failed reconnect attempt {}/3: connecting: ", nth + 1)));
    }
    assert_eq!(told[7..], ["Removing controller..."]);
    // And so it stays, though the server comes back.
    let (_server, _) = empty(Some(&address), 9, None);
    assert_eq!(session.nop().unwrap_err().to_string(), text);
}

#[test]
fn without_attempts_a_loss_is_the_end() {
    let (server, address) = empty(None, 9, None);
    let recovery = Recovery { ctrl_loss_tmo: Some(Duration::ZERO), ..every(NEVER) };
    let (mut session, told) = open(&[&address], recovery);
    session.nop().unwrap();
    drop(server);
    let text = session.nop().unwrap_err().to_string();
    assert!(text.starts_with("driver: the "), "{text}");
    assert_eq!(session.nop().unwrap_err().to_string(), text);
    assert!(told.lock().unwrap().is_empty());
    // Nor is the first connection tried twice.
    let Err(nobody) = open_with(&[&address], every(NEVER), |_| {}) else { panic!("somebody answers") };
    assert!(nobody.starts_with("connecting: "), "{nobody}");
}

#[test]
fn a_host_that_is_refused_does_not_ask_again() {
    let own = HostOptions::default().host_nqn;
    let (server, address) = empty(None, 9, Some(vec![own]));
    let (mut session, told) = open(&[&address], every(SOON));
    session.nop().unwrap();
    drop(server);
    let (_server, _) = empty(Some(&address), 9, Some(vec!["nqn.2014-08.org.example:other".into()]));
    let text = session.nop().unwrap_err().to_string();
    assert!(
        text.contains("no other can be made: connect: ") && text.contains("does not allow the host"),
        "{text}"
    );
    let told = told.lock().unwrap();
    let [Notice::Lost(_), Notice::Waiting(_), Notice::Failed { attempt: 1, .. }, Notice::Removing] =
        &told[..]
    else {
        panic!("{told:?}")
    };
}

#[test]
fn an_address_that_refuses_leaves_the_others() {
    let own = HostOptions::default().host_nqn;
    let (first, one) = empty(None, 9, Some(vec![own.clone()]));
    let (second, two) = empty(None, 9, Some(vec![own.clone()]));
    let (mut session, told) = open(&[&one, &two], every(SOON));
    session.nop().unwrap();
    drop(first);
    let (_first, _) = empty(Some(&one), 9, Some(Vec::new()));
    session.nop().unwrap();
    // Both are lost, the first refuses; the second, which comes back, is all that there is.
    drop(second);
    let (second, _) = empty(Some(&two), 9, Some(vec![own]));
    session.nop().unwrap();
    assert_eq!(second.target().connected().len(), 1);
    drop(second);
    let (_second, _) = empty(Some(&two), 9, Some(Vec::new()));
    let text = session.nop().unwrap_err().to_string();
    assert!(text.contains(&format!("{}: connect: ", two.authority())), "{text} {told:?}");
}

/// The states are those of a server, as its owner sets them.
#[test]
fn an_address_that_does_not_serve_is_left_and_a_state_that_ends_is_waited_for() {
    let (server, one) = empty(None, 9, None);
    let listener = TcpListener::bind((&*one.host, 0)).unwrap();
    let two = Address { port: listener.local_addr().unwrap().port(), ..one.clone() };
    assert_eq!(server.listen(listener).unwrap(), 1);
    let subsystem = server.target().offers()[0].subsystem.clone();
    let set = |port: u16, all| subsystem.set_ana(port, PortStates { all, ..PortStates::default() });
    // There is another, which is taken at once.
    let (mut session, told) = open(&[&one, &two], every(NEVER));
    session.nop().unwrap();
    set(0, AnaState::Inaccessible);
    session.nop().unwrap();
    let said: Vec<Notice> = std::mem::take(&mut *told.lock().unwrap());
    assert!(matches!(&said[..], [Notice::Lost(_), Notice::Moved(to)] if *to == two.authority()), "{said:?}");
    assert!(said[0].to_string().contains("Asymmetric Access Inaccessible"), "{said:?}");
    // There is none, until an attempt later.
    let subsystem = subsystem.clone();
    let set = move |port: u16, all| subsystem.set_ana(port, PortStates { all, ..PortStates::default() });
    set(1, AnaState::PersistentLoss);
    let waits = AtomicUsize::new(0);
    let host = HostOptions { recovery: every(SOON), ..HostOptions::default() };
    let heard = move |notice: &Notice| {
        if matches!(notice, Notice::Waiting(_)) && waits.fetch_add(1, Ordering::Relaxed) == 2 {
            set(1, AnaState::NonOptimized);
        }
    };
    let (way, told) = open_as(host, &[&one, &two], heard).unwrap();
    let mut session = Session::new(way, Arc::new(TscClock::new()));
    session.nop().unwrap();
    let waits = told.lock().unwrap().iter().filter(|notice| matches!(notice, Notice::Waiting(_))).count();
    assert_eq!(waits, 3, "{told:?}");
}

#[test]
fn answers_of_two_drives_are_not_made_one() {
    for at_once in [true, false] {
        let (server, one) = empty(None, 9, None);
        let (_other, two) = empty(None, 8, None);
        let (mut session, told) = match at_once {
            true => open(&[&one, &two], every(NEVER)),
            false => open(&[&one], every(SOON)),
        };
        session.nop().unwrap();
        drop(server);
        let _again = (!at_once).then(|| empty(Some(&one), 8, None));
        let text = session.nop().unwrap_err().to_string();
        assert!(text.contains("namespace 1 there is another than it was"), "{text}");
        assert_eq!(told.lock().unwrap().last(), Some(&Notice::Removing));
    }
}

#[test]
fn who_gives_up_waits_no_longer() {
    let (server, address) = empty(None, 9, None);
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let heard = move |notice: &Notice| {
        if matches!(notice, Notice::Waiting(_)) {
            set.store(true, Ordering::Relaxed);
        }
    };
    let (mut way, _told) = open_with(&[&address], every(NEVER), heard).unwrap();
    way.set_stop(stop.clone());
    let mut session = Session::new(way, Arc::new(TscClock::new()));
    session.nop().unwrap();
    drop(server);
    let stopped = session.nop();
    assert!(matches!(stopped, Err(Error::Refused(Failure::Cancelled))), "{stopped:?}");
    // What is asked next looks at once whether it is there again.
    let (server, _) = empty(Some(&address), 9, None);
    stop.store(false, Ordering::Relaxed);
    session.nop().unwrap();
    // The new way is given up by the same flag.
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(session.nop(), Err(Error::Refused(Failure::Cancelled))));
    drop(server);
}
