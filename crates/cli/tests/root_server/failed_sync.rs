//! A file whose fsync fails once, and would succeed again: whether bytes are durable that were
//! written before, nobody knows. No flush and no write with FUA is told as good from then on,
//! to no host, until the file is opened anew.

use std::sync::{Arc, Mutex};

use nearside_clock::{Nanos, TscClock};
use nearside_conformance::volume;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::IoBuffer;
use nearside_driver::tcp::{Association, Initiator};
use nearside_driver::{Command, Failure, Policy};
use nearside_embedded::Loopback;
use nearside_front_fuse::{AttachOptions, Attached, attach};
use nearside_spec::Status;

use nearside_store::{
    Backend, Channel, Data, Dram, Fault, Faulty, File, FileOptions, Kinds, Operation, Plan, Rule, Store,
    StoreError, Submitted, Token,
};

use crate::{Server, can_attach, connect};

const BLOCK: usize = 4096;

/// A file whose operations fail as planned, and the drive that it is.
fn failing(folder: &std::path::Path) -> (impl Sized, Attached, Arc<Mutex<Plan>>) {
    let store = Faulty::new(Dram::new(1 << 20, 512).unwrap(), 1, []);
    let plan = store.plan();
    let drive = Loopback::threaded(store, (), Config::default(), Rest::default()).unwrap();
    let attached = attach(drive.function.clone(), &AttachOptions::new(folder)).unwrap();
    // In the order in which they may be dropped, last first.
    (drive, attached, plan)
}

/// The next operation of these kinds fails, and none after it.
fn fail_once(plan: &Mutex<Plan>, kinds: Kinds) {
    plan.lock().unwrap().add(Rule { times: Some(1), ..Rule::new(kinds, Fault::Error) });
}

/// A host of the server.
pub struct Host(Initiator<TscClock>, Association);

impl Host {
    pub fn new(port: u16) -> Host {
        let controller = connect(port).unwrap();
        Host(controller.initiator(4, Policy::Interrupt, TscClock::new()).unwrap(), controller)
    }

    pub fn run(&mut self, command: Command, buffer: Option<Vec<u8>>) -> Result<Vec<u8>, Failure> {
        let done = self.0.execute(&command, buffer).unwrap();
        done.outcome.map(|_| done.buffer.unwrap_or_default())
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.run(Command::flush(1), None).map(drop)
    }

    pub fn write(&mut self, byte: u8) -> Result<(), Failure> {
        self.run(Command::write(1, 8, 8), Some(vec![byte; BLOCK])).map(drop)
    }

    fn durable_write(&mut self) -> Result<(), Failure> {
        self.run(Command::write(1, 16, 8).fua(), Some(vec![9; BLOCK])).map(drop)
    }

    fn durable_zeros(&mut self) -> Result<(), Failure> {
        self.run(Command::write_zeroes(1, 24, 8).fua(), None).map(drop)
    }

    fn read(&mut self) -> Vec<u8> {
        self.run(Command::read(1, 8, 8), Some(vec![0; BLOCK])).unwrap()
    }
}

/// A command after which bytes are to be durable.
type DurableCommand = fn(&mut Host) -> Result<(), Failure>;

fn is_write_fault(outcome: Result<(), Failure>) {
    assert!(
        matches!(outcome, Err(Failure::Status(status)) if status.code() == Status::WRITE_FAULT),
        "{outcome:?}"
    );
}

#[test]
fn a_host_is_told_nothing_as_durable_after_a_failed_fsync() {
    if !can_attach("root_server::failed_sync::a_host_is_told_nothing_as_durable_after_a_failed_fsync") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_drive, attached, plan) = failing(folder.path());
    let file = attached.file().to_str().unwrap().to_owned();
    let ways: [DurableCommand; 3] = [Host::flush, Host::durable_write, Host::durable_zeros];
    // A durable write comes to the file as one call, zeros as a call and an fsync.
    let kinds = [Kinds::Flushes, Kinds::Mutations, Kinds::Flushes];
    for (nr, (first, kinds)) in ways.into_iter().zip(kinds).enumerate() {
        let server = Server::start(&file);
        let mut host = Host::new(server.port);
        // What it was before does not matter: the file was opened anew.
        for way in ways {
            assert_eq!(way(&mut host), Ok(()), "{nr}");
        }
        assert_eq!(host.write(nr as u8 + 1), Ok(()));
        fail_once(&plan, kinds);
        is_write_fault(first(&mut host));
        assert_eq!(plan.lock().unwrap().failed(), nr as u64 + 1, "one call failed, and no other will");
        // The same host, another queue on another thread of the server, another host.
        let mut other = Host::new(server.port);
        let queue = host.1.initiator(4, Policy::Interrupt, TscClock::new()).unwrap();
        let first_queue = std::mem::replace(&mut host.0, queue);
        for round in 0..3 {
            for host in [&mut host, &mut other] {
                for way in ways {
                    is_write_fault(way(host));
                }
                // Bytes still move; nobody was promised that they last.
                assert_eq!(host.write(round + 100), Ok(()));
                assert!(host.read() == vec![round + 100; BLOCK]);
            }
        }
        assert_eq!(plan.lock().unwrap().failed(), nr as u64 + 1);
        drop((first_queue, host, other));
        let (status, said) = server.stop();
        assert!(!status.success() && said.contains("what was lost is not known"), "{status}: {said}");
    }
    let server = Server::start(&file);
    assert_eq!(Host::new(server.port).flush(), Ok(()));
    let (status, said) = server.stop();
    assert!(status.success() && said.is_empty(), "{status}: {said}");
    volume::detach(attached, Attached::detach).unwrap();
}

#[test]
fn a_file_store_knows_of_its_failed_fsync_by_every_backend() {
    if !can_attach("root_server::failed_sync::a_file_store_knows_of_its_failed_fsync_by_every_backend") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_drive, attached, plan) = failing(folder.path());
    let write = Operation::Write { offset: 0, len: BLOCK as u64, fua: true };
    for (backend, first, kinds) in [
        (Backend::Uring, Operation::Flush, Kinds::Flushes),
        (Backend::Uring, write, Kinds::Mutations),
        (Backend::Positioned, Operation::Flush, Kinds::Flushes),
        (Backend::Positioned, write, Kinds::Mutations),
    ] {
        let options = FileOptions { backend: Some(backend), ..FileOptions::serve() };
        let store = match File::open(attached.file(), options) {
            Ok(store) => store,
            Err(e) if backend == Backend::Uring => {
                eprintln!("io_uring: {e}");
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        let mut channels = [store.channel(Arc::default()).unwrap(), store.channel(Arc::default()).unwrap()];
        for channel in &mut channels {
            assert_eq!((run(channel, write), run(channel, Operation::Flush)), (Ok(()), Ok(())));
        }
        fail_once(&plan, kinds);
        run(&mut channels[0], first).unwrap_err();
        for channel in &mut channels {
            for operation in [Operation::Flush, write, Operation::Flush] {
                let error = run(channel, operation).unwrap_err().to_string();
                assert!(error.contains("earlier"), "{backend:?}: {error}");
            }
        }
    }
    volume::detach(attached, Attached::detach).unwrap();
}

pub fn run(channel: &mut impl Channel, operation: Operation) -> Result<(), StoreError> {
    let data = match operation {
        Operation::Read { len, .. } | Operation::Write { len, .. } => {
            Data::Owned(IoBuffer::new(len as usize).unwrap())
        }
        _ => Data::None,
    };
    let mut done = match channel.submit(operation, data, Token(1), Nanos(0)) {
        Submitted::Done(completion) => Some(completion.result),
        Submitted::Pending => None,
    };
    while done.is_none() {
        channel.poll(Nanos(0), &mut |_, completion| done = Some(completion.result));
    }
    done.unwrap()
}
