//! The host's end of NVMe/TCP against a target that keeps to a script: honest with every combination of
//! digests and alignment, and hostile. Nothing that a target sends may do more than end its connection.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_driver::tcp::{Association, Options, Queue};
use nearside_driver::{
    Command, Completed, Controller, Error, Failure, Host, Policy, QueueConfig, RejectReason, Threaded,
    Transport,
};
use nearside_random::Rng;
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::FabricsCommand;
use nearside_spec::fabrics::pdu::{DataHeader, Fatal, FatalStatus, Pdu, Side, TerminateRequest};
use nearside_spec::{Status, opcode};

use crate::scripted::{BLOCKS, Received, Target, Wire};

const BLOCK: usize = 512;

fn options(timeout_ms: u64) -> Options {
    Options { timeout_ms, keep_alive_ms: 0, ..Options::default() }
}

/// A disk in memory, with R2T for what is not in the capsule and C2HData in several pieces.
fn serve(wire: &mut Wire, pieces: usize, success: bool) {
    let mut disk = vec![0u8; BLOCKS as usize * BLOCK];
    while let Some((entry, inside)) = wire.command() {
        let cid = entry.cid();
        let at = entry.quad(10) as usize * BLOCK;
        let len = CapsuleData::of(&entry).unwrap().len() as usize;
        match entry.opcode() {
            opcode::io::READ => {
                let bytes = disk[at..at + len].to_vec();
                let piece = len.div_ceil(pieces).next_multiple_of(4);
                for (nr, part) in bytes.chunks(piece).enumerate() {
                    let last = nr * piece + part.len() == len;
                    wire.data(cid, (nr * piece) as u32, part, last, last && success);
                }
                if !success {
                    wire.respond(cid, 0, Status::SUCCESS);
                }
            }
            opcode::io::WRITE => {
                let mut bytes = inside;
                // Halves, to see that it goes on.
                while bytes.len() < len {
                    let want = (len / 2).next_multiple_of(4).min(len - bytes.len());
                    wire.ask(cid, bytes.len() as u32, want as u32);
                    let end = bytes.len() + want;
                    while bytes.len() < end {
                        let Some(Received { pdu: Pdu::Data(d), data }) = wire.receive() else { panic!() };
                        assert_eq!((d.cccid, d.ttag, d.offset as usize), (cid, 77, bytes.len()));
                        assert!(data.len() <= crate::scripted::MAX_DATA as usize);
                        bytes.extend(data);
                        assert_eq!(d.last, bytes.len() == end);
                    }
                }
                disk[at..at + len].copy_from_slice(&bytes);
                wire.respond(cid, 0, Status::SUCCESS);
            }
            opcode::io::FLUSH => wire.respond(cid, 0, Status::SUCCESS),
            _ => wire.respond(cid, 0, Status::INVALID_OPCODE.dnr()),
        }
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    Rng(seed).bytes(len)
}

fn blocks(command: fn(u32, u64, u32) -> Command, slba: u64, bytes: usize) -> Command {
    command(1, slba, (bytes / BLOCK) as u32)
}

#[test]
fn data_arrive_whatever_was_agreed() {
    for (digests, alignment_z, pieces, success, policy) in [
        ((false, false), 0, 1, true, Policy::Polled),
        ((true, false), 0, 3, false, Policy::Interrupt),
        ((false, true), 7, 2, true, Policy::Hybrid),
        ((true, true), 31, 5, false, Policy::Hybrid),
    ] {
        let script = Arc::new(move |wire: &mut Wire| serve(wire, pieces, success));
        let target = Target::start_for("nqn", alignment_z, script);
        let options = Options { header_digest: digests.0, data_digest: digests.1, ..options(20_000) };
        let controller = target.connect(options);
        let namespace = controller.namespace(None, &mut host()).unwrap();
        assert_eq!((namespace.blocks, namespace.block_size), (BLOCKS, 512));
        let mut initiator = controller.initiator(16, policy, TscClock::new()).unwrap();
        assert_eq!(initiator.queue().digests(), digests);
        let sizes = [512, 4096, 8192, 8704, 65_536, 262_144, 1 << 20];
        for (nr, len) in sizes.into_iter().enumerate() {
            let bytes = pattern(len, nr as u64);
            let slba = nr as u64 * 2048;
            let write = initiator.execute(&blocks(Command::write, slba, len), Some(bytes.clone())).unwrap();
            assert_eq!((write.outcome, write.moved), (Ok(0), len));
            let read = initiator.execute(&blocks(Command::read, slba, len), Some(vec![0; len])).unwrap();
            assert_eq!((read.outcome, read.moved), (Ok(0), len));
            assert!(read.buffer.unwrap() == bytes, "{len} bytes");
        }
        // Many at once, in any order, each with its own buffer.
        let mut out = Vec::new();
        for nr in 0..16u64 {
            let command = blocks(Command::read, 2048 * (nr % 6), sizes[nr as usize % 6]);
            out.push(initiator.submit(&command, Some(vec![0; sizes[nr as usize % 6]])).unwrap());
        }
        let full = initiator.submit(&Command::flush(1), None).unwrap_err();
        assert_eq!(full.reason, RejectReason::Full);
        while initiator.outstanding() > 0 {
            initiator.wait_any(Nanos(u64::MAX));
            while let Some((handle, done)) = initiator.take_any() {
                let nr = out.iter().position(|&it| it == handle).unwrap() % 6;
                assert!(done.buffer.unwrap() == pattern(sizes[nr], nr as u64));
            }
        }
        let unknown = initiator.execute(&Command::raw(0x70, 1), None).unwrap();
        assert_eq!(unknown.outcome, Err(Failure::Status(Status::INVALID_OPCODE.dnr())));
        let bidirectional = initiator.execute(&Command::raw(0xc3, 1), Some(vec![0; 64])).unwrap_err();
        assert_eq!(bidirectional.reason, RejectReason::Buffer);
        assert_eq!(bidirectional.buffer.map(|b| b.len()), Some(64));
        drop(initiator);
        target.end(controller);
    }
}

fn host() -> Host<TscClock, Threaded> {
    Host::threaded(TscClock::new())
}

/// Polls until the queue is over; the error, and how the commands ended.
fn until_over(queue: &mut Queue) -> (Error, Vec<Completed<Vec<u8>>>) {
    let clock = TscClock::new();
    let begun = Instant::now();
    let mut ended = Vec::new();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not over");
        if let Err(error) = queue.poll(clock.now(), |done| ended.push(done)) {
            assert!(!queue.is_alive() && queue.outstanding() == 0);
            let dead = queue.submit(&Command::flush(1), None, 0, clock.now()).unwrap_err();
            assert_eq!(dead.reason, RejectReason::Dead);
            return (error, ended);
        }
        queue.sleep(Duration::from_millis(20));
    }
}

/// A queue with a read of 8 KiB and a write of 64 KiB out (identifiers in that order), and a target that
/// answers as told. Its commands may take a minute: only a target that never answers runs into that.
fn provoked(
    digests: bool,
    script: impl Fn(&mut Wire, u16, u16) + Send + Sync + 'static,
) -> (Error, Vec<Completed<Vec<u8>>>) {
    provoked_within(60_000, digests, script)
}

fn provoked_within(
    timeout_ms: u64,
    digests: bool,
    script: impl Fn(&mut Wire, u16, u16) + Send + Sync + 'static,
) -> (Error, Vec<Completed<Vec<u8>>>) {
    let target = Target::start(move |wire| {
        let (read, _) = wire.command().unwrap();
        let (write, _) = wire.command().unwrap();
        script(wire, read.cid(), write.cid());
        // Until the host has gone.
        while wire.receive().is_some() {}
    });
    let options = Options { header_digest: digests, data_digest: digests, ..options(timeout_ms) };
    let controller = target.connect(options);
    let mut queue = controller.queue(QueueConfig::of_depth(4), &mut host()).unwrap();
    let now = TscClock::new().now();
    queue.submit(&blocks(Command::read, 0, 8192), Some(vec![0; 8192]), 1, now).unwrap();
    queue.submit(&blocks(Command::write, 0, 65_536), Some(vec![7; 65_536]), 2, now).unwrap();
    let result = until_over(&mut queue);
    drop(queue);
    target.end(controller);
    result
}

fn lost(ended: &[Completed<Vec<u8>>]) {
    assert_eq!(ended.len(), 2);
    for done in ended {
        assert_eq!(done.outcome, Err(Failure::Lost));
        assert!(done.buffer.is_some(), "the buffer comes back");
    }
}

type Misdeed = fn(&mut Wire, u16, u16);

#[test]
fn a_target_that_breaks_the_protocol_loses_its_connection() {
    let cases: &[(&str, FatalStatus, u32, Misdeed)] = &[
        ("data for no command", FatalStatus::INVALID_FIELD, 8, |w, read, _| {
            w.data(read ^ 2, 0, &[0; 512], true, false);
        }),
        ("data of a command of long ago", FatalStatus::INVALID_FIELD, 8, |w, read, _| {
            w.data(read.wrapping_add(1 << 11), 0, &[0; 512], true, false);
        }),
        ("data beyond the buffer", FatalStatus::OUT_OF_RANGE, 0, |w, read, _| {
            w.data(read, 0, &[0; 8196], true, true);
        }),
        ("data beyond the buffer in a second piece", FatalStatus::OUT_OF_RANGE, 0, |w, read, _| {
            w.data(read, 0, &[0; 8188], false, false);
            w.data(read, 8188, &[0; 8], true, false);
        }),
        ("data with a gap", FatalStatus::OUT_OF_RANGE, 0, |w, read, _| {
            w.data(read, 4096, &[0; 4096], true, true)
        }),
        ("data at the end of the world", FatalStatus::OUT_OF_RANGE, 0, |w, read, _| {
            w.data(read, u32::MAX - 3, &[0; 4], true, false);
        }),
        ("data for a write", FatalStatus::SEQUENCE, 0, |w, _, write| w.data(write, 0, &[0; 4], true, false)),
        ("a response to nothing", FatalStatus::INVALID_FIELD, 20, |w, read, _| {
            w.respond(read ^ 2, 0, Status::SUCCESS);
        }),
        ("R2T for a read", FatalStatus::SEQUENCE, 0, |w, read, _| w.ask(read, 0, 512)),
        ("R2T for nothing", FatalStatus::INVALID_FIELD, 8, |w, read, _| w.ask(read ^ 2, 0, 512)),
        ("R2T beyond the buffer", FatalStatus::OUT_OF_RANGE, 0, |w, _, write| w.ask(write, 0, 65_540)),
        ("R2T not from the beginning", FatalStatus::OUT_OF_RANGE, 0, |w, _, write| w.ask(write, 4, 512)),
        ("R2T for the same again", FatalStatus::OUT_OF_RANGE, 0, |w, _, write| {
            w.ask(write, 0, 512);
            w.receive().unwrap();
            w.ask(write, 0, 512);
        }),
        ("R2T of nothing", FatalStatus::INVALID_FIELD, 16, |w, _, write| w.ask(write, 0, 0)),
        ("no such PDU", FatalStatus::INVALID_FIELD, 0, |w, _, _| w.put(&[0x55; 24])),
        ("a PDU to the controller", FatalStatus::SEQUENCE, 0, |w, read, _| {
            let data = DataHeader { cccid: read, ttag: 0, offset: 0, len: 0, last: true, success: false };
            w.put(&data.host(&Default::default()));
        }),
        ("a length that is none", FatalStatus::INVALID_FIELD, 4, |w, _, _| {
            w.put(&[7, 0, 24, 24, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }),
        ("a digest that was not agreed on", FatalStatus::INVALID_FIELD, 1, |w, _, _| {
            w.put(&[5, 1, 24, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }),
        ("a second ICResp", FatalStatus::SEQUENCE, 0, |w, _, _| {
            let again = nearside_spec::fabrics::pdu::Initialize {
                version: 0,
                alignment_z: 0,
                header_digest: false,
                data_digest: false,
                limit: 8192,
            };
            w.put(&again.response());
        }),
    ];
    for &(name, status, information, misdeed) in cases {
        let want = Fatal { status, information };
        let (error, ended) = provoked(false, move |wire, read, write| {
            misdeed(wire, read, write);
            assert_eq!(wire.farewell(), want, "{name}");
        });
        assert!(matches!(error, Error::Protocol(fatal) if fatal == want), "{name}: {error}");
        lost(&ended);
    }
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let (error, ended) = provoked(true, |wire, read, _| {
        let mut bytes = nearside_spec::fabrics::pdu::response(
            &nearside_spec::CompletionEntry::new(0, 0, 0, read, Status::SUCCESS, false),
            &wire.down,
        )
        .to_vec();
        bytes.extend(0x0102_0304u32.to_le_bytes());
        wire.socket.write_all(&bytes).unwrap();
        assert_eq!(wire.farewell(), Fatal::digest(0x0102_0304));
    });
    assert!(matches!(error, Error::Protocol(fatal) if fatal == Fatal::digest(0x0102_0304)), "{error}");
    lost(&ended);
}

#[test]
fn a_wrong_data_digest_fails_its_command_only() {
    let target = Target::start(|wire| {
        for damage in [true, false] {
            let (read, _) = wire.command().unwrap();
            let header =
                DataHeader { cccid: read.cid(), ttag: 0, offset: 0, len: 512, last: true, success: true };
            wire.put(&header.controller(&wire.down));
            let mut bytes = vec![9; 512];
            let crc = crc32c::crc32c(&bytes) ^ u32::from(damage);
            bytes.extend(crc.to_le_bytes());
            wire.socket.write_all(&bytes).unwrap();
        }
    });
    let controller = target.connect(Options { data_digest: true, ..options(20_000) });
    let mut initiator = controller.initiator(4, Policy::Interrupt, TscClock::new()).unwrap();
    let mut read = || initiator.execute(&blocks(Command::read, 0, 512), Some(vec![0; 512])).unwrap();
    assert_eq!(read().outcome, Err(Failure::Digest));
    let second = read();
    assert_eq!((second.outcome, second.buffer), (Ok(0), Some(vec![9; 512])));
    drop(initiator);
    target.end(controller);
}

#[test]
fn fewer_bytes_than_asked_for_is_no_success() {
    let target = Target::start(|wire| {
        let (read, _) = wire.command().unwrap();
        wire.data(read.cid(), 0, &[1; 512], true, true);
        let (read, _) = wire.command().unwrap();
        wire.respond(read.cid(), 0, Status::SUCCESS);
        let (write, _) = wire.command().unwrap();
        wire.respond(write.cid(), 0, Status::SUCCESS);
        let (write, _) = wire.command().unwrap();
        wire.respond(write.cid(), 0, Status::WRITE_FAULT);
    });
    let controller = target.connect(options(20_000));
    let mut initiator = controller.initiator(4, Policy::Polled, TscClock::new()).unwrap();
    for _ in 0..2 {
        let read = initiator.execute(&blocks(Command::read, 0, 4096), Some(vec![0; 4096])).unwrap();
        assert_eq!(read.outcome, Err(Failure::Short));
    }
    let mut write = || initiator.execute(&blocks(Command::write, 0, 65_536), Some(vec![0; 65_536])).unwrap();
    assert_eq!(write().outcome, Err(Failure::Short));
    assert_eq!(write().outcome, Err(Failure::Status(Status::WRITE_FAULT)));
    drop(initiator);
    target.end(controller);
}

#[test]
fn half_a_pdu_and_then_silence_times_out() {
    for bytes in [0, 5, 20, 24, 500] {
        let (error, ended) = provoked_within(1_500, false, move |wire, read, _| {
            let header = DataHeader { cccid: read, ttag: 0, offset: 0, len: 8192, last: true, success: true };
            let mut whole = header.controller(&wire.down).to_vec();
            whole.resize(1000, 3);
            wire.socket.write_all(&whole[..bytes]).unwrap();
        });
        assert!(matches!(error, Error::TimedOut { timeout_ms: 1_500, .. }), "{bytes} bytes: {error}");
        lost(&ended);
    }
}

#[test]
fn a_target_that_goes_is_missed_at_once() {
    let (error, ended) = provoked(false, |wire, _, _| {
        wire.socket.shutdown(std::net::Shutdown::Write).unwrap();
    });
    assert!(matches!(error, Error::Closed), "{error}");
    lost(&ended);
    let (error, ended) = provoked(false, |wire, _, _| {
        let request = TerminateRequest::new(Side::Host, Fatal::LIMIT_EXCEEDED, &[4; 72]);
        wire.socket.write_all(request.bytes()).unwrap();
    });
    assert!(matches!(error, Error::Terminated(Fatal::LIMIT_EXCEEDED)), "{error}");
    lost(&ended);
}

#[test]
fn a_response_before_all_data_went_keeps_the_buffer() {
    // The target answers while the host's data still fill the socket, and reads them afterwards.
    let target = Target::start(|wire| {
        let (write, _) = wire.command().unwrap();
        wire.ask(write.cid(), 0, 1 << 20);
        wire.respond(write.cid(), 0, Status::WRITE_FAULT);
        let mut got = 0;
        while got < 1 << 20 {
            let Some(Received { pdu: Pdu::Data(_), data }) = wire.receive() else { panic!() };
            assert!(data.iter().all(|&b| b == 5));
            got += data.len();
        }
    });
    let controller = target.connect(options(20_000));
    let mut initiator = controller.initiator(4, Policy::Interrupt, TscClock::new()).unwrap();
    let write = initiator.execute(&blocks(Command::write, 0, 1 << 20), Some(vec![5; 1 << 20])).unwrap();
    assert_eq!(write.outcome, Err(Failure::Status(Status::WRITE_FAULT)));
    drop(initiator);
    target.end(controller);
}

#[test]
fn a_host_that_is_not_allowed_is_told_so() {
    let target = Target::start_for("nqn.2014-08.org.example:other", 0, Arc::new(|_: &mut Wire| ()));
    let error =
        Association::connect(&target.address, options(20_000), Arc::new(TscClock::new())).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("does not allow the host nqn.2014-08.org.nvmexpress:uuid:"), "{text}");
}

#[test]
fn nobody_and_someone_silent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = format!("nvme+tcp://127.0.0.1:{port}/{}", crate::scripted::NQN).parse().unwrap();
    let clock = Arc::new(TscClock::new());
    let options = Options { connect_ms: 200, ..options(200) };
    let error = Association::connect(&address, options.clone(), clock.clone()).unwrap_err();
    assert!(matches!(error, Error::TimedOut { command: "initialisation", timeout_ms: 200 }), "{error}");
    drop(listener);
    let error = Association::connect(&address, options, clock).unwrap_err();
    assert!(matches!(error, Error::Connection { what: "connecting", .. }), "{error}");
}

/// The target grants four I/O queues. Six dials end at once, six Connects are refused, four are good; after
/// two of those have gone there is room for two, of which one is not over for the target yet.
#[test]
fn an_identifier_comes_back_when_its_connection_was_not_made_or_has_ended() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        let mut seen = Vec::new();
        let mut threads = Vec::new();
        for dial in 0..19 {
            let (socket, _) = listener.accept().unwrap();
            if (1..=6).contains(&dial) {
                continue;
            }
            let mut wire = Wire::initialize(socket, 0).unwrap();
            let (entry, data) = wire.command().unwrap();
            let Some(FabricsCommand::Connect(connect)) = FabricsCommand::decode(&entry) else { panic!() };
            seen.push(connect.qid);
            if (7..=12).contains(&dial) {
                wire.respond(entry.cid(), 0, nearside_spec::fabrics::status::CONTROLLER_BUSY);
                continue;
            }
            let mut latest = entry;
            if dial == 18 {
                wire.respond(entry.cid(), 0, Status::COMMAND_SEQUENCE_ERROR);
                latest = wire.command().unwrap().0;
            }
            crate::scripted::manage(&mut wire, &latest, &data, "nqn");
            threads.push(std::thread::spawn(move || {
                while let Some((entry, data)) = wire.command() {
                    crate::scripted::manage(&mut wire, &entry, &data, "nqn");
                }
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        seen
    };
    let target = std::thread::spawn(serve);
    let address = format!("nvme+tcp://127.0.0.1:{port}/{}", crate::scripted::NQN).parse().unwrap();
    let controller = Association::connect(&address, options(60_000), Arc::new(TscClock::new())).unwrap();
    for dial in 1..=12 {
        let error = controller.queue(QueueConfig::of_depth(4), &mut host()).unwrap_err();
        assert!(!matches!(error, Error::NoQueues(_)), "dial {dial}: {error}");
    }
    let mut queues: Vec<Queue> =
        (0..4).map(|_| controller.queue(QueueConfig::of_depth(4), &mut host()).unwrap()).collect();
    assert!(matches!(controller.queue(QueueConfig::of_depth(4), &mut host()), Err(Error::NoQueues(4))));
    queues.drain(1..3);
    queues.extend((0..2).map(|_| controller.queue(QueueConfig::of_depth(4), &mut host()).unwrap()));
    assert!(matches!(controller.queue(QueueConfig::of_depth(4), &mut host()), Err(Error::NoQueues(4))));
    drop((queues, controller));
    let seen = target.join().unwrap();
    // The admin queue, those refused, and four of four; then the two that had ended.
    assert_eq!(seen[0], 0);
    let mut good = seen[7..11].to_vec();
    assert_eq!(good[1..3], seen[11..13]);
    good.sort();
    assert_eq!(good, [1, 2, 3, 4]);
}
