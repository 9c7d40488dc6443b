//! Namespaces that become longer or shorter under their hosts.

use std::fs::File;
use std::io::ErrorKind;
use std::sync::Arc;

use crate::rig::*;
use nearside_device::{Namespace, Subsystem};
use nearside_spec::identify::cns;
use nearside_spec::log::{event, lid};
use nearside_store::{Backend, Delay, FileOptions, Modelled, Parametric};

type Slow = Modelled<nearside_store::File, Parametric>;

const MIB: u64 = 1 << 20;

fn subsystem(file: &tempfile::NamedTempFile) -> Arc<Subsystem<Slow>> {
    file.as_file().set_len(MIB).unwrap();
    let options = FileOptions { backend: Some(Backend::Positioned), ..FileOptions::serve() };
    let store = nearside_store::File::open(file.path(), options).unwrap();
    let slow = Modelled::new(store, Delay::fixed(1_000_000).medium());
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(slow, (), 512, [1; 16], true).unwrap())).unwrap();
    subsystem
}

fn controller(subsystem: &Arc<Subsystem<Slow>>) -> Host<Slow> {
    let mut host = Host::among(subsystem, Config { shared: true, ..Config::default() });
    host.admin(command(admin::SET_FEATURES, 0, &[0x0b, event::NAMESPACE_NOTICES])).unwrap();
    host
}

fn blocks(host: &mut Host<Slow>) -> u64 {
    host.admin(command(admin::IDENTIFY, 1, &[cns::NAMESPACE.into()])).unwrap();
    let size = host.bytes(FREE, 24);
    let field = |at: usize| u64::from_le_bytes(size[at..at + 8].try_into().unwrap());
    assert_eq!((field(8), field(16)), (field(0), field(0)), "NCAP and NUSE");
    field(0)
}

fn changed(host: &mut Host<Slow>) -> Vec<u8> {
    let page = [u32::from(lid::CHANGED_NAMESPACES) | 3 << 16];
    host.admin(command(admin::GET_LOG_PAGE, 0xffff_ffff, &page)).unwrap();
    host.bytes(FREE, 8)
}

fn len(file: &File) -> u64 {
    file.metadata().unwrap().len()
}

/// What it ends with, within a simulated second.
fn status(host: &mut Host<Slow>, opcode: u8, slba: u64) -> Status {
    host.run(1, transfer(opcode, slba, 1, FREE, 0)).status()
}

#[test]
fn hosts_are_told_of_another_length_and_find_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let subsystem = subsystem(&file);
    let (mut a, mut b) = (controller(&subsystem), controller(&subsystem));
    let out_of_range = |status| assert!(same(status, Status::LBA_OUT_OF_RANGE.dnr()), "{status:?}");
    for host in [&mut a, &mut b] {
        assert_eq!(blocks(host), 2048);
        out_of_range(status(host, io::WRITE, 2048));
        host.submit(0, command(admin::ASYNC_EVENT_REQUEST, 0, &[]));
    }
    assert!(subsystem.resize(1, Some(2 * MIB), |_| panic!("nothing is waited for")).unwrap());
    assert_eq!(len(file.as_file()), 2 * MIB);
    let notice = nearside_spec::log::async_event(
        event::NOTICE,
        event::NAMESPACE_ATTRIBUTE_CHANGED,
        lid::CHANGED_NAMESPACES,
    );
    for host in [&mut a, &mut b] {
        assert_eq!(host.completed(0).unwrap().result(), notice);
        assert_eq!(changed(host), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(blocks(host), 4096);
        assert!(status(host, io::WRITE, 4095).is_success());
        out_of_range(status(host, io::READ, 4096));
    }
    // The same again is none.
    assert!(!subsystem.resize(1, Some(2 * MIB), |_| false).unwrap());
    // Underneath.
    file.as_file().set_len(3 * MIB + 100).unwrap();
    assert!(subsystem.resize(1, None, |_| false).unwrap());
    assert!(!subsystem.resize(1, None, |_| false).unwrap());
    assert_eq!(blocks(&mut a), 6144);
    assert!(status(&mut b, io::READ, 6143).is_success());
    file.as_file().set_len(MIB).unwrap();
    assert!(subsystem.resize(1, None, |_| false).unwrap());
    assert_eq!(blocks(&mut a), 2048);
    out_of_range(status(&mut a, io::READ, 2048));
    // What cannot be.
    let kind = |bytes| subsystem.resize(1, bytes, |_| false).unwrap_err().kind();
    assert_eq!(kind(Some(511)), ErrorKind::InvalidInput);
    file.as_file().set_len(100).unwrap();
    assert_eq!(kind(None), ErrorKind::InvalidInput);
    assert_eq!(subsystem.resize(2, None, |_| false).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(blocks(&mut a), 2048);
}

#[test]
fn what_is_in_flight_beyond_the_new_end_is_waited_for() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let subsystem = subsystem(&file);
    let mut host = controller(&subsystem);
    host.put(FREE, &[7; 512]);
    let mut write = transfer(io::WRITE, 2047, 1, FREE, 0);
    write.cdw[0] = write.cdw[0] & 0xffff | 7 << 16;
    host.submit(1, write);
    host.settle(0);
    // Whoever gives up has lost nothing.
    let kind = subsystem
        .resize(1, Some(MIB / 2), |_| {
            host.settle(0);
            false
        })
        .unwrap_err()
        .kind();
    assert_eq!((kind, len(file.as_file())), (ErrorKind::TimedOut, MIB));
    host.settle(0);
    assert_eq!(blocks(&mut host), 2048);
    // The write ends well, what comes meanwhile is refused, and then the file is cut off.
    let mut write = transfer(io::WRITE, 2047, 1, FREE, 0);
    write.cdw[0] = write.cdw[0] & 0xffff | 8 << 16;
    host.settle(2_000_000);
    host.submit(1, write);
    host.settle(0);
    let mut waits = 0;
    let shorter = subsystem.resize(1, Some(MIB / 2), |_| {
        waits += 1;
        assert_eq!(len(file.as_file()), MIB);
        if waits == 2 {
            let mut read = transfer(io::READ, 1024, 1, FREE + 4096, 0);
            read.cdw[0] = read.cdw[0] & 0xffff | 9 << 16;
            host.submit(1, read);
        }
        host.settle(300_000);
        waits < 100
    });
    assert!(shorter.unwrap() && waits >= 3, "{waits}");
    assert_eq!((len(file.as_file()), blocks(&mut host)), (MIB / 2, 1024));
    host.reap(1);
    let done: Vec<_> =
        host.queues[1].done.drain(..).map(|done| (done.cid(), done.status().is_success())).collect();
    assert_eq!(done, [(7, true), (9, false), (8, true)]);
    // Where something has been written there in the meantime, all is as it was.
    let wait = |_: &Namespace<Slow>| {
        host.settle(0);
        true
    };
    let used = subsystem.resize_if(1, Some(MIB / 4), wait, || Err(std::io::Error::other("used")));
    assert_eq!(used.unwrap_err().to_string(), "used");
    assert_eq!((len(file.as_file()), blocks(&mut host)), (MIB / 2, 1024));
    assert!(status(&mut host, io::READ, 1023).is_success());
}

#[test]
fn a_command_of_several_ranges_ends_at_the_one_that_is_gone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let subsystem = subsystem(&file);
    let mut host = controller(&subsystem);
    let range = |slba: u64, blocks: u32| [&[0; 4][..], &blocks.to_le_bytes(), &slba.to_le_bytes()].concat();
    host.put(FREE, &[range(0, 8), range(2040, 8)].concat());
    let mut deallocate = command(io::DATASET_MANAGEMENT, 1, &[1, 1 << 2]);
    deallocate.set_quad(6, FREE);
    host.submit(1, deallocate);
    host.settle(0);
    let shorter = subsystem.resize(1, Some(MIB / 2), |_| {
        host.settle(300_000);
        true
    });
    assert!(shorter.unwrap());
    host.settle(2_000_000);
    host.reap(1);
    let done = host.queues[1].done.pop_front().unwrap();
    assert!(same(done.status(), Status::LBA_OUT_OF_RANGE.dnr()), "{:?}", done.status());
}
