//! What no server does when it is told: each command's own status or loss, ways that take many requests at
//! once and are lost with them. Servers are in `tests/tcp/reconnecting.rs`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;

use nearside_clock::TscClock;
use nearside_spec::Status;

use super::*;

/// The namespace cannot be had by this path just now.
const INACCESSIBLE: Status = Status::ANA_INACCESSIBLE;
const SOON: Duration = Duration::from_millis(1);
/// So long that a test which waits for it has hung.
const NEVER: Duration = Duration::from_secs(100_000);

/// What a path says to the command after so many it has taken since the start, by all its ways.
type Script = fn(path: usize, command: usize) -> Result<(), Error>;

/// The paths of a scripted drive, and the requests that each was sent, by path.
struct Drive {
    paths: usize,
    script: Script,
    sent: Rc<RefCell<Vec<(usize, u8)>>>,
    opened: Rc<RefCell<Vec<usize>>>,
}

struct Way {
    path: usize,
    script: Script,
    sent: Rc<RefCell<Vec<(usize, u8)>>>,
}

impl Paths for Drive {
    type Way = Way;

    fn names(&self) -> Vec<String> {
        (0..self.paths).map(|nth| format!("path{nth}")).collect()
    }

    fn open(&mut self, path: usize) -> Result<Way, Unopened> {
        self.opened.borrow_mut().push(path);
        Ok(Way { path, script: self.script, sent: self.sent.clone() })
    }

    fn leave(&mut self, _way: Way) {}
}

impl Way {
    fn take(&mut self, request: u8) -> Result<(), Error> {
        let mut sent = self.sent.borrow_mut();
        let before = sent.len();
        sent.push((self.path, request));
        (self.script)(self.path, before)
    }
}

impl Transport for Way {
    fn near_data(&mut self, request: &[u8], _capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        self.take(request[0])?;
        *reply = request.to_vec();
        Ok(())
    }

    /// Three at once.
    fn near_data_each(&mut self, requests: Requests<'_>, replies: Replies<'_>) {
        let mut out = VecDeque::new();
        loop {
            while out.len() < 3
                && let Some((request, _)) = requests.next()
            {
                let taken = self.take(request[0]);
                out.push_back((request, taken));
            }
            let Some((request, taken)) = out.pop_front() else { return };
            if replies(taken.map(|()| &request[..])).is_break() {
                return;
            }
        }
    }

    fn read(&mut self, _offset: u64, _into: &mut [u8]) -> Result<u64, Error> {
        self.take(0).map(|()| 1)
    }

    fn capacity(&self) -> u64 {
        1 << 20
    }

    fn block_size(&self) -> u32 {
        512
    }

    fn completion(&self) -> Completion {
        Completion::default()
    }
}

struct Rig {
    way: Reconnecting<Drive, TscClock>,
    sent: Rc<RefCell<Vec<(usize, u8)>>>,
    opened: Rc<RefCell<Vec<usize>>>,
    told: Arc<Mutex<Vec<String>>>,
}

fn rig(paths: usize, reconnect_delay: Duration, attempts: u32, script: Script) -> Rig {
    let (sent, opened, told) = (Rc::default(), Rc::default(), Arc::default());
    let drive = Drive { paths, script, sent: Rc::clone(&sent), opened: Rc::clone(&opened) };
    let recovery = Recovery { reconnect_delay, ctrl_loss_tmo: Some(reconnect_delay * attempts) };
    let tell: Arc<Mutex<Vec<String>>> = Arc::clone(&told);
    let tell = move |notice: &Notice| tell.lock().unwrap().push(notice.to_string());
    let way = Reconnecting::connect(drive, recovery, TscClock::new(), tell).unwrap();
    Rig { way, sent, opened, told }
}

fn lost() -> Error {
    Error::Lost("lost".into())
}

fn inaccessible() -> Error {
    Error::Nvme { what: "a read", status: INACCESSIBLE }
}

/// Sends requests 0 to `count`; what each was answered.
fn each(rig: &mut Rig, count: u8) -> Vec<Result<u8, String>> {
    let mut answers = Vec::new();
    let mut requests = (0..count).map(|nth| (vec![nth], 1));
    rig.way.near_data_each(&mut requests, &mut |answer| {
        answers.push(answer.map(|reply| reply[0]).map_err(|error| error.to_string()));
        ControlFlow::Continue(())
    });
    answers
}

#[test]
fn requests_that_are_out_are_sent_again_and_no_others() {
    // The first way is lost with requests 2, 3 and 4 out.
    let mut rig = rig(2, NEVER, 1, |path, command| match (path, command) {
        (0, 2..) => Err(lost()),
        _ => Ok(()),
    });
    assert_eq!(each(&mut rig, 7), (0..7).map(Ok).collect::<Vec<_>>());
    let first = [0, 1, 2, 3, 4].map(|request| (0, request));
    let second = [2, 3, 4, 5, 6].map(|request| (1, request));
    assert_eq!(rig.sent.borrow()[..], [first, second].concat());
    assert_eq!(rig.told.lock().unwrap()[..], ["starting error recovery: path0: lost", "going on by path1"]);
}

#[test]
fn what_the_drive_refuses_is_an_answer() {
    let mut rig = rig(2, NEVER, 1, |_, command| match command {
        1 => Err(Error::Nvme { what: "a read", status: Status::INVALID_FIELD }),
        // Path related, and not to be retried.
        2 => Err(Error::Nvme { what: "a read", status: INACCESSIBLE.dnr() }),
        3 => Err(Error::Refused(Failure::Cancelled)),
        _ => Ok(()),
    });
    let answers = each(&mut rig, 6);
    let good: Vec<u8> = answers.iter().flatten().copied().collect();
    assert_eq!((answers.len(), &good[..]), (6, &[0, 4, 5][..]));
    assert_eq!((rig.sent.borrow().len(), rig.told.lock().unwrap().len()), (6, 0));
}

#[test]
fn a_path_that_does_not_serve_is_left_for_another() {
    let mut rig = rig(3, NEVER, 1, |path, _| if path == 2 { Ok(()) } else { Err(inaccessible()) });
    rig.way.read(0, &mut [0; 512]).unwrap();
    assert_eq!(rig.sent.borrow()[..], [(0, 0), (1, 0), (2, 0)]);
    // The path that serves is kept.
    rig.way.read(0, &mut [0; 512]).unwrap();
    assert_eq!((rig.sent.borrow().len(), &rig.opened.borrow()[..]), (4, &[0, 1, 2][..]));
}

#[test]
fn where_no_path_serves_all_are_asked_again_after_the_delay() {
    // A change of state that takes a while.
    let mut transition = rig(2, SOON, 9, |_, command| if command < 5 { Err(inaccessible()) } else { Ok(()) });
    transition.way.read(0, &mut [0; 512]).unwrap();
    assert_eq!(
        transition.sent.borrow().iter().map(|(path, _)| *path).collect::<Vec<_>>(),
        [0, 1, 1, 0, 0, 1]
    );
    // One that does not end: the attempts do, though each of them makes a connection.
    let mut never = rig(1, SOON, 3, |_, _| Err(inaccessible()));
    let over = never.way.read(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(over.starts_with("path0 does not serve (the drive refused a read: "), "{over}");
    assert!(over.contains("in 0.003 seconds, 3 attempts: the drive refused a read"), "{over}");
    assert_eq!(never.sent.borrow().len(), 4);
    let waits = never.told.lock().unwrap().iter().filter(|said| said.starts_with("Reconnecting in")).count();
    assert_eq!(waits, 3);
    // Without attempts the status is the answer, and the way stays.
    let mut once = rig(1, SOON, 0, |_, command| if command == 0 { Err(inaccessible()) } else { Ok(()) });
    assert!(matches!(once.way.read(0, &mut [0; 512]), Err(Error::Nvme { status: INACCESSIBLE, .. })));
    once.way.read(0, &mut [0; 512]).unwrap();
    assert_eq!(once.opened.borrow()[..], [0]);
}

#[test]
fn a_command_that_loses_every_connection_ends() {
    let mut rig = rig(1, SOON, 1_000, |_, command| if command < 6 { Err(lost()) } else { Ok(()) });
    let over = rig.way.read(0, &mut [0; 512]).unwrap_err().to_string();
    assert_eq!(over, "lost: with this command out, 6 connections in turn");
    assert_eq!(rig.sent.borrow().len(), 6);
    // The next one is not its fault.
    rig.way.read(0, &mut [0; 512]).unwrap();
}

#[test]
fn what_cannot_be_had_any_more_is_said_to_each_that_asks() {
    let mut rig = rig(1, SOON, 0, |_, command| if command == 1 { Err(lost()) } else { Ok(()) });
    let answers = each(&mut rig, 4);
    assert_eq!(answers, [Ok(0), Err("lost".into()), Err("lost".into()), Err("lost".into())]);
    assert_eq!(each(&mut rig, 2), [Err("lost".into()), Err("lost".into())]);
}
