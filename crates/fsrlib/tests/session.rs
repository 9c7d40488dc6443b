//! A session against a drive of a few lines:
//! one command per operation, cursors followed, hostile replies refused.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::SimClock;
use nearside_fsrlib::{
    Answer, Ask, Completion, Counters, Credentials, Cursor, Error, Failure, Operation, Record, Reply,
    Request, SearchOptions, Session, SocketTransport, Target, Transport,
};
use nearside_near_data::wire;
use nearside_spec::Status;
use nearside_spec::socket::{Hello, REQUEST_FRAME, ReplyFrame, RequestFrame, RequestKind};

/// Answers with what it was given, and keeps what it was asked.
#[derive(Default)]
struct Script {
    replies: VecDeque<Vec<u8>>,
    asked: Vec<Request>,
    /// Bytes that each reply could fill.
    rooms: Vec<usize>,
    /// It refuses lists of paths as a field of the command, as a drive from before them.
    knows_no_lists: bool,
}

impl Transport for Script {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        self.asked.push(wire::decode_request(request).unwrap());
        self.rooms.push(capacity);
        if self.knows_no_lists && matches!(self.asked.last(), Some(Request { target: Target::Paths(_), .. }))
        {
            return Err(Error::Nvme { what: "a near-data command", status: Status::INVALID_FIELD.dnr() });
        }
        *reply = self.replies.pop_front().expect("a command that was not expected");
        assert!(reply.len() <= capacity);
        Ok(())
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<u64, Error> {
        panic!("no reads are expected");
    }

    fn capacity(&self) -> u64 {
        0
    }

    fn block_size(&self) -> u32 {
        512
    }

    fn completion(&self) -> Completion {
        Completion::default()
    }
}

fn session(replies: impl IntoIterator<Item = Reply<'static>>) -> Session<Script> {
    let replies = replies.into_iter().map(|r| wire::encode_reply(&r, 1 << 20).ok().unwrap()).collect();
    Session::new(Script { replies, ..Script::default() }, Arc::new(SimClock::default()))
}

fn search(pattern: &str) -> Operation {
    let patterns = vec![pattern.into()];
    Operation::Search(SearchOptions { patterns, answer: Answer::Count, ..SearchOptions::default() })
}

#[test]
fn one_operation_is_one_command() {
    let answer = Reply { records: vec![Record::Matches(3)], ..Reply::default() };
    let credentials = Credentials { uid: 7, gid: 8, groups: vec![9] };
    let mut session = session([answer]).with_credentials(credentials.clone()).with_partition(2);
    let ask = Ask::path("/var/log/syslog", search("ERROR"));
    let mut seen = Vec::new();
    let summary = session
        .stream(&ask, |record| {
            seen.push(record.into_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen, [Record::Matches(3)]);
    assert_eq!(summary.moved.near_data_commands, 1);
    assert_eq!(summary.moved.read_commands, 0);
    assert!(summary.moved.bytes_out > 64 && summary.moved.bytes_in >= 96);
    let [request] = &session.transport().asked[..] else { panic!("one command") };
    assert_eq!((request.partition, &request.credentials), (2, &credentials));
    assert_eq!(request.target, Target::Path(b"/var/log/syslog".to_vec()));
}

#[test]
fn who_asks_for_little_describes_little_memory() {
    let long = vec![b'/'; 1025];
    let asks = [
        (Ask::path("/f", Operation::Stat), 8 << 10),
        (Ask::path("/f", Operation::Nop), 8 << 10),
        (Ask::path(&long[..1024], Operation::Count), 8 << 10),
        // Its entry, with the longest link and warnings, might not fit.
        (Ask::path(&long[..], Operation::Stat), 256 << 10),
        (Ask::path("/f", search("x")), 256 << 10),
        (Ask::path("/f", Operation::List), 256 << 10),
        (Ask::tree("/f", Operation::Stat), 256 << 10),
    ];
    let replies = asks.iter().map(|_| Reply::default());
    let mut session = session(replies);
    for (ask, room) in &asks {
        session.stream(ask, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(session.transport().rooms.last(), Some(room), "{ask:?}");
    }
}

#[test]
fn a_cursor_is_followed_until_there_is_none() {
    let more = |n: u64| Some(Cursor { path: b"/f".to_vec(), offset: n, ..Cursor::default() });
    let part = |n, more| Reply { records: vec![Record::Matches(n)], more, ..Reply::default() };
    let mut session = session([part(1, more(10)), part(2, more(20)), part(3, None)]);
    let all: Vec<Record> = session.records(&Ask::path("/f", search("x"))).map(Result::unwrap).collect();
    assert_eq!(all, [Record::Matches(1), Record::Matches(2), Record::Matches(3)]);
    let asked = &session.transport().asked;
    assert_eq!([&asked[0].resume, &asked[1].resume, &asked[2].resume], [&None, &more(10), &more(20)]);
}

/// What came of the asks of a list: which, and the record or the failure.
type Came = Vec<(usize, Result<Record<'static>, Failure>)>;

#[test]
fn several_operations_are_answered_in_their_order() {
    let matches = |n| Record::Matches(n);
    let answer = |n| Reply { records: vec![matches(n)], ..Reply::default() };
    let refused = Reply { failure: Some(Failure::NotFound), ..Reply::default() };
    let more = Some(Cursor { path: b"/f2".to_vec(), offset: 9, ..Cursor::default() });
    let first_part = Reply { more: more.clone(), ..answer(2) };
    let asks: Vec<Ask> = (0..5).map(|n| Ask::path(format!("/f{n}"), search("x"))).collect();
    // The third goes on, by a command of its own, before the fourth is heard.
    let mut session = session([answer(0), refused, first_part, answer(3), answer(4), answer(5)]);
    let mut came: Came = Vec::new();
    let summary = session.stream_each(&asks, |nth, answer| {
        came.push((nth, answer.map(Record::into_owned)));
        ControlFlow::Continue(())
    });
    let want = [
        (0, Ok(matches(0))),
        (1, Err(Failure::NotFound)),
        (2, Ok(matches(2))),
        (2, Ok(matches(3))),
        (3, Ok(matches(4))),
        (4, Ok(matches(5))),
    ];
    assert_eq!(came, want);
    let moved = summary.unwrap().moved;
    assert_eq!((moved.near_data_commands, moved, moved.bytes_in > 6 * 96), (6, session.totals(), true));
    let asked = &session.transport().asked;
    assert_eq!((&asked[3].target, &asked[3].resume), (&Target::Path(b"/f2".to_vec()), &more));
}

#[test]
fn several_operations_end_with_who_takes_their_records_and_with_the_drive() {
    let answer = |n| Reply { records: vec![Record::Matches(n)], ..Reply::default() };
    let asks: Vec<Ask> = (0..4).map(|n| Ask::path(format!("/f{n}"), search("x"))).collect();
    let mut enough = session([answer(0), answer(1)]);
    let mut seen = 0;
    let summary = enough.stream_each(&asks, |nth, _| {
        seen += 1;
        if nth == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((seen, summary.unwrap().moved.near_data_commands), (2, 2));
    // A request that none may be: what comes before it is answered.
    let long = [asks[0].clone(), Ask::path(vec![b'/'; 200_000], search("x")), asks[1].clone()];
    let mut session = session([answer(0)]);
    let mut seen = Vec::new();
    let failed = session.stream_each(&long, |nth, _| {
        seen.push(nth);
        ControlFlow::Continue(())
    });
    assert!(matches!(failed, Err(Error::Form { what: "request", .. })), "{failed:?}");
    assert_eq!(seen, [0]);
}

/// What came of the stats of so many paths, and of which targets the drive was asked.
fn stats(script: Script, count: usize) -> (Came, Result<u64, Error>, Vec<Target>) {
    let mut session = Session::new(script, Arc::new(SimClock::default()));
    let asks: Vec<Ask> = (0..count).map(|n| Ask::path(format!("/f{n}"), Operation::Stat)).collect();
    let mut came = Came::new();
    let summary = session.stream_each(&asks, |nth, answer| {
        came.push((nth, answer.map(Record::into_owned)));
        ControlFlow::Continue(())
    });
    let asked = session.transport().asked.iter().map(|request| request.target.clone()).collect();
    (came, summary.map(|summary| summary.moved.near_data_commands), asked)
}

fn list(range: std::ops::Range<usize>) -> Target {
    Target::Paths(range.map(|n| format!("/f{n}")).collect())
}

fn script(replies: &[Reply<'_>]) -> Script {
    let replies = replies.iter().map(|r| wire::encode_reply(r, 1 << 20).ok().unwrap()).collect();
    Script { replies, ..Script::default() }
}

fn entry(path: &str) -> Record<'static> {
    Record::Entry(nearside_near_data::FileEntry::of_name(path.as_bytes().to_vec().into(), 0o100_000))
}

#[test]
fn a_list_of_paths_is_one_command_and_what_it_leaves_is_asked_again() {
    let more = Some(Cursor { places: vec![3, 0, 0, 0], ..Cursor::default() });
    let parts = [
        Reply {
            records: vec![
                entry(""),
                Record::Answered(None),
                Record::Answered(Some(Failure::NotFound)),
                entry(""),
            ],
            more,
            ..Reply::default()
        },
        Reply {
            records: vec![entry(""), Record::Answered(None), entry("/own"), Record::Answered(None)],
            ..Reply::default()
        },
    ];
    let (came, commands, asked) = stats(script(&parts), 4);
    let right = [(0, "/f0"), (2, "/f2"), (2, "/f2"), (3, "/own")];
    let mut right: Came = right.into_iter().map(|(nth, path)| (nth, Ok(entry(path)))).collect();
    right.insert(1, (1, Err(Failure::NotFound)));
    assert_eq!(came, right);
    assert_eq!((commands.unwrap(), &asked[..]), (2, &[list(0..4), list(2..4)][..]));
}

#[test]
fn a_drive_that_knows_no_lists_is_asked_path_by_path() {
    let one = |path: &str| Reply { records: vec![entry(path)], ..Reply::default() };
    let script = Script { knows_no_lists: true, ..script(&[one("/f0"), one("/f1"), one("/f2")]) };
    let (came, commands, asked) = stats(script, 3);
    assert_eq!(came, [(0, Ok(entry("/f0"))), (1, Ok(entry("/f1"))), (2, Ok(entry("/f2")))]);
    // It is asked for one list, and never again.
    let path = |n: usize| Target::Path(format!("/f{n}").into_bytes());
    assert_eq!((commands.unwrap(), &asked[..]), (4, &[list(0..3), path(0), path(1), path(2)][..]));
}

/// Lists whose answers say nothing of any path, or more than was asked: each path is asked about once, alone.
#[test]
fn a_drive_that_answers_lists_with_nonsense_is_left_or_asked_path_by_path() {
    let one = |path: &str| Reply { records: vec![entry(path)], ..Reply::default() };
    for nothing in [
        Reply::default(),
        Reply { failure: Some(Failure::NotFound), ..Reply::default() },
        Reply { records: vec![], more: Some(Cursor::default()), ..Reply::default() },
    ] {
        let (came, commands, _) = stats(script(&[nothing, one("/f0"), one("/f1")]), 2);
        assert_eq!(came, [(0, Ok(entry("/f0"))), (1, Ok(entry("/f1")))]);
        assert_eq!(commands.unwrap(), 3);
    }
    let much = Reply { records: vec![Record::Answered(None); 9], ..Reply::default() };
    let (came, commands, _) = stats(script(&[much]), 2);
    assert_eq!((came, commands.unwrap()), (vec![], 1));
    let other = Script { replies: [vec![1; 200]].into(), ..Script::default() };
    assert!(matches!(stats(other, 2).1, Err(Error::Form { what: "reply", .. })));
}

#[test]
fn nothing_is_sent_for_records_that_nobody_takes() {
    let more = Some(Cursor { path: b"/f".to_vec(), offset: 9, ..Cursor::default() });
    let mut session = session([Reply { records: vec![Record::Matches(1)], more, ..Reply::default() }]);
    let summary = session.stream(&Ask::path("/f", search("x")), |_| ControlFlow::Break(())).unwrap();
    assert_eq!(summary.moved.near_data_commands, 1);
}

/// The file at which an answer goes on is one, however many replies it takes.
#[test]
fn a_file_of_several_replies_is_seen_once() {
    let reply = |files, offset: Option<u64>| Reply {
        records: vec![Record::Matches(1)],
        counters: Counters { files, bytes_scanned: 10, ..Counters::default() },
        more: offset.map(|offset| Cursor { path: b"/f".to_vec(), offset, ..Cursor::default() }),
        ..Reply::default()
    };
    let mut session = session([reply(3, Some(9)), reply(1, Some(19)), reply(4, None)]);
    let summary = session.stream(&Ask::tree("/", search("x")), |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(session.seen().get(), (6, 30));
    assert_eq!(summary.counters.files, 8, "what was located");
}

#[test]
fn a_drive_that_makes_no_progress_is_left() {
    // Cursors that go round, without a record between them.
    let at = |offset, records| Reply {
        records,
        more: Some(Cursor { path: b"/f".to_vec(), offset, ..Cursor::default() }),
        ..Reply::default()
    };
    let mut session = session([at(1, vec![Record::Matches(1)]), at(2, Vec::new()), at(1, Vec::new())]);
    let error = session.records(&Ask::path("/f", search("x"))).find_map(Result::err).unwrap();
    assert!(error.to_string().contains("no progress"), "{error}");
    assert_eq!(session.transport().asked.len(), 2);
}

#[test]
fn what_came_before_a_refusal_is_handed_on_first() {
    let reply = Reply {
        failure: Some(Failure::ChangedDuringScan),
        records: vec![Record::Matches(1)],
        ..Reply::default()
    };
    let mut session = session([reply]);
    let all: Vec<_> = session.records(&Ask::path("/f", search("x"))).collect();
    assert!(matches!(all[0], Ok(Record::Matches(1))));
    assert!(matches!(all[1], Err(Error::Refused(Failure::ChangedDuringScan))));
    assert_eq!(all.len(), 2);
}

#[test]
fn a_reply_that_is_none_is_an_error() {
    let mut session = session([]);
    for bytes in [vec![], b"NDRP".to_vec(), vec![0xff; 200]] {
        session.transport_mut().replies.push_back(bytes);
        let error = session.nop().unwrap_err();
        assert!(matches!(error, Error::Form { what: "reply", .. }), "{error}");
    }
}

/// A drive at a socket: connection after connection, each of a drive of so many
/// bytes that closes it after so many requests.
fn drive_at(path: &Path, connections: Vec<(u64, usize)>) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for (capacity, requests) in connections {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, capacity, requests);
        }
    })
}

fn answer(mut stream: UnixStream, capacity: u64, requests: usize) {
    let mut frame = [0; REQUEST_FRAME];
    for _ in 0..requests {
        if stream.read_exact(&mut frame).is_err() {
            return;
        }
        let frame = RequestFrame::decode(&frame).unwrap();
        let mut body = vec![0; frame.len as usize];
        stream.read_exact(&mut body).unwrap();
        let (status, bytes) = match frame.kind {
            RequestKind::Hello => (0, Hello { capacity, block_size: 512 }.encode().to_vec()),
            RequestKind::Read if frame.offset >= capacity => (0x80, vec![]),
            RequestKind::Read => (0, vec![frame.offset as u8; frame.room as usize]),
            // Nobody here may ask for them.
            RequestKind::Statistics => (0x4002, vec![]),
            RequestKind::NearData => {
                let request = wire::decode_request(&body).unwrap();
                assert_eq!(request.operation, Operation::Nop);
                (0, wire::encode_reply(&Reply::default(), frame.room as usize).ok().unwrap())
            }
        };
        let head = ReplyFrame { status, len: bytes.len() as u32 }.encode();
        stream.write_all(&[&head[..], &bytes].concat()).unwrap();
    }
}

#[test]
fn a_connection_that_was_let_go_of_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.sock");
    // Closed after one command; then with the next command; then there is another drive; then none.
    let drive = drive_at(&path, vec![(8192, 2), (8192, 3), (4096, 9)]);
    let transport = SocketTransport::connect(&path).unwrap();
    let mut session = Session::new(transport, Arc::new(SimClock::default()));
    for _ in 0..3 {
        session.nop().unwrap();
    }
    let error = session.nop().unwrap_err();
    assert!(error.to_string().contains("another drive"), "{error}");
    drop(session);
    drive.join().unwrap();
    // A stream that came connected has nowhere to go.
    let (here, there) = UnixStream::pair().unwrap();
    let drive = std::thread::spawn(move || answer(there, 8192, 2));
    let transport = SocketTransport::over(here, "pair".into()).unwrap();
    let mut session = Session::new(transport, Arc::new(SimClock::default()));
    session.nop().unwrap();
    assert!(session.nop().unwrap_err().to_string().starts_with("pair: "));
    drive.join().unwrap();
}

/// A drive that works for ever hears of it: its peer goes. The next command comes by a new connection.
#[test]
fn what_is_given_up_ends_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let drive = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        answer(stream.try_clone().unwrap(), 8192, 1);
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        answer(listener.accept().unwrap().0, 8192, 2);
        heard.len()
    });
    let mut transport = SocketTransport::connect(&path).unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    transport.set_stop(stop.clone());
    let mut session = Session::new(transport, Arc::new(SimClock::default()));
    let given_up = session.nop();
    assert!(matches!(given_up, Err(Error::Refused(Failure::Cancelled))), "{given_up:?}");
    stop.store(false, Ordering::Relaxed);
    session.nop().unwrap();
    drop(session);
    assert!(drive.join().unwrap() > REQUEST_FRAME);
}

#[test]
fn over_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.sock");
    let drive = drive_at(&path, vec![(8192, 99)]);
    let transport = SocketTransport::connect(&path).unwrap();
    assert_eq!((transport.capacity(), transport.block_size()), (8192, 512));
    let mut session = Session::new(transport, Arc::new(SimClock::default()));
    assert_eq!(session.nop().unwrap().moved.near_data_commands, 1);
    assert_eq!(session.read_bytes(513, 600).unwrap().len(), 600);
    assert_eq!(session.totals().bytes_in, 96 + 1024);
    let error = session.read_bytes(8192, 512).unwrap_err();
    assert!(error.to_string().contains("LBA Out of Range"), "{error}");
    drop(session);
    drive.join().unwrap();
}

#[test]
fn a_socket_that_is_not_there_is_named() {
    let error = SocketTransport::connect(Path::new("/nonexistent/drive.sock")).unwrap_err();
    assert!(error.to_string().starts_with("unix:/nonexistent/drive.sock: "), "{error}");
}
