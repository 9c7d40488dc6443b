//! Namespaces that several controllers share, and that come and go under them.

use std::sync::Arc;

use crate::rig::*;
use nearside_device::{AddError, Fabric, Namespace, Subsystem};
use nearside_spec::identify::{IdentifyController, cns};
use nearside_spec::log::{event, lid};
use nearside_store::{Delay, Modelled};

fn slow(bytes: u64) -> impl Store {
    Modelled::new(dram(bytes), Delay::fixed(1_000_000).medium())
}

fn namespace<S: Store>(store: S, id: u8) -> Arc<Namespace<S>> {
    Arc::new(Namespace::new(store, (), 512, [id; 16], true).unwrap().with_nguid([id + 1; 16]))
}

fn read(nsid: u32) -> SubmissionEntry {
    let mut entry = transfer(io::READ, 0, 1, FREE, 0);
    entry.cdw[1] = nsid;
    entry
}

fn list<S: Store>(host: &mut Host<S>, above: u32) -> Vec<u8> {
    host.admin(command(admin::IDENTIFY, above, &[cns::ACTIVE_NAMESPACES.into()])).unwrap();
    host.bytes(FREE, 16)
}

#[test]
fn controllers_share_namespaces_that_come_and_go() {
    let subsystem = Subsystem::new();
    subsystem.add(1, namespace(dram(1 << 20), 1)).unwrap();
    subsystem.add(5, namespace(dram(1 << 20), 5)).unwrap();
    assert_eq!(subsystem.add(5, namespace(dram(1 << 20), 5)), Err(AddError::Exists(5)));
    assert_eq!(subsystem.add(0, namespace(dram(1 << 20), 5)), Err(AddError::OutOfRange(0)));
    let (mut a, mut b) =
        (Host::among(&subsystem, Config::default()), Host::among(&subsystem, Config::default()));
    assert_eq!(list(&mut a, 0), [1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(list(&mut b, 1)[..8], [5, 0, 0, 0, 0, 0, 0, 0]);
    // What one writes the other reads, and only in that namespace.
    a.put(FREE, &[7; 512]);
    let mut write = transfer(io::WRITE, 0, 1, FREE, 0);
    write.cdw[1] = 5;
    assert!(a.run(1, write).status().is_success());
    assert!(b.run(1, read(5)).status().is_success());
    assert_eq!(b.bytes(FREE, 512), [7; 512]);
    assert!(b.run(1, read(1)).status().is_success());
    assert_eq!(b.bytes(FREE, 512), [0; 512]);
    assert!(same(b.run(1, read(2)).status(), Status::INVALID_NAMESPACE.dnr()));

    // One host wants to be told of changes, the other does not.
    a.admin(command(admin::SET_FEATURES, 0, &[0x0b, event::NAMESPACE_NOTICES])).unwrap();
    for host in [&mut a, &mut b] {
        host.submit(0, command(admin::ASYNC_EVENT_REQUEST, 0, &[]));
    }
    let weak = Arc::downgrade(&subsystem.remove(5).unwrap());
    let told = a.completed(0).unwrap();
    assert_eq!(told.result(), nearside_spec::log::async_event(event::NOTICE, 0, lid::CHANGED_NAMESPACES));
    assert!(b.completed(0).is_none());
    assert!(weak.upgrade().is_none(), "nobody holds the namespace any more");
    assert!(same(a.run(1, read(5)).status(), Status::INVALID_NAMESPACE.dnr()));
    let changed = |host: &mut Host<Dram>| {
        host.admin(command(
            admin::GET_LOG_PAGE,
            0xffff_ffff,
            &[u32::from(lid::CHANGED_NAMESPACES) | 3 << 16],
        ))
        .unwrap();
        host.bytes(FREE, 8)
    };
    // Added before the page was read: one event for both.
    subsystem.add(2, namespace(dram(1 << 20), 2)).unwrap();
    a.submit(0, command(admin::ASYNC_EVENT_REQUEST, 0, &[]));
    assert!(a.completed(0).is_none());
    assert_eq!(changed(&mut a), [2, 0, 0, 0, 5, 0, 0, 0]);
    assert!(a.completed(0).is_some());
    assert_eq!(changed(&mut a), [0; 8]);
    assert!(a.run(1, read(2)).status().is_success());
    // All namespaces are flushed by one command, each of them by its own.
    for nsid in [1, 2, 0xffff_ffff] {
        let flush = SubmissionEntry::new(io::FLUSH, 3, nsid);
        assert!(b.run(1, flush).status().is_success());
    }
}

#[test]
fn a_controller_has_the_namespaces_that_it_is_attached_to_and_no_other() {
    let subsystem = Subsystem::new();
    for nsid in 1..=3 {
        subsystem.add(nsid, namespace(dram(1 << 20), nsid as u8)).unwrap();
    }
    let of = |namespaces: &[u32]| Config {
        namespaces: Some(namespaces.iter().copied().collect()),
        shared: true,
        ..Config::default()
    };
    let (mut a, mut b) = (Host::among(&subsystem, of(&[1, 7])), Host::among(&subsystem, of(&[2, 3])));
    assert_eq!(list(&mut a, 0)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(list(&mut b, 0)[..12], [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    // As one that does not exist, for every command that names it.
    for nsid in [2, 3] {
        let invalid = Status::INVALID_NAMESPACE.dnr();
        let mut write = transfer(io::WRITE, 0, 1, FREE, 0);
        write.cdw[1] = nsid;
        for entry in [read(nsid), write, SubmissionEntry::new(io::FLUSH, 3, nsid)] {
            assert!(same(a.run(1, entry).status(), invalid), "{entry:?}");
        }
        let smart = [u32::from(lid::SMART) | 127 << 16];
        for entry in [
            command(admin::IDENTIFY, nsid, &[cns::NAMESPACE_DESCRIPTORS.into()]),
            command(admin::GET_LOG_PAGE, nsid, &smart),
        ] {
            assert!(same(a.admin(entry).unwrap_err(), invalid), "{entry:?}");
        }
        a.put(FREE, &[9; 4096]);
        a.admin(command(admin::IDENTIFY, nsid, &[cns::NAMESPACE.into()])).unwrap();
        assert_eq!(a.bytes(FREE, 4096), [0; 4096]);
    }
    a.admin(command(admin::IDENTIFY, 0, &[cns::CONTROLLER.into()])).unwrap();
    let identity = IdentifyController(a.bytes(FREE, 4096).try_into().unwrap());
    assert_eq!(identity.tnvmcap(), 1 << 20);
    // Of another's namespace that goes it hears nothing; of its own that comes it does.
    for host in [&mut a, &mut b] {
        host.admin(command(admin::SET_FEATURES, 0, &[0x0b, event::NAMESPACE_NOTICES])).unwrap();
        host.submit(0, command(admin::ASYNC_EVENT_REQUEST, 0, &[]));
    }
    subsystem.remove(3).unwrap();
    assert!(a.completed(0).is_none());
    assert!(b.completed(0).is_some());
    subsystem.add(7, namespace(dram(1 << 20), 7)).unwrap();
    assert!(a.completed(0).is_some());
    assert!(a.run(1, read(7)).status().is_success());
    assert!(same(b.run(1, read(7)).status(), Status::INVALID_NAMESPACE.dnr()));
    // What all namespaces are asked of is asked of its own.
    assert!(a.run(1, SubmissionEntry::new(io::FLUSH, 3, 0xffff_ffff)).status().is_success());
}

#[test]
fn a_protected_namespace_is_read_only_whatever_its_store_allows() {
    let subsystem = Subsystem::new();
    let store = Namespace::new(dram(1 << 20), (), 512, [1; 16], true).unwrap();
    subsystem.add(1, Arc::new(store.protected(true))).unwrap();
    let mut host = Host::among(&subsystem, Config::default());
    let mut deallocate = command(io::DATASET_MANAGEMENT, 1, &[0, 1 << 2]);
    deallocate.cdw[6..8].copy_from_slice(&read(1).cdw[6..8]);
    for entry in [transfer(io::WRITE, 0, 1, FREE, 0), transfer(io::WRITE_ZEROES, 0, 1, 0, 0), deallocate] {
        assert!(same(host.run(1, entry).status(), Status::READ_ONLY_NAMESPACE.dnr()));
    }
    assert!(host.run(1, read(1)).status().is_success());
}

#[test]
fn a_namespace_leaves_when_its_last_command_has_ended() {
    let subsystem = Subsystem::new();
    subsystem.add(1, namespace(slow(1 << 20), 1)).unwrap();
    let mut host = Host::among(&subsystem, Config::default());
    host.submit(1, read(1));
    host.settle(0);
    let weak = Arc::downgrade(&subsystem.remove(1).unwrap());
    subsystem.add(1, namespace(slow(1 << 20), 9)).unwrap();
    host.settle(0);
    assert!(weak.upgrade().is_some(), "a read is still under way");
    // The new one of that number is there at once.
    host.submit(1, read(1));
    host.settle(10_000_000);
    host.reap(1);
    let done: Vec<bool> = host.queues[1].done.drain(..).map(|e| e.status().is_success()).collect();
    assert_eq!(done, [true, true]);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_controller_behind_a_fabric_says_so() {
    let subsystem = Subsystem::new();
    subsystem.add(1, namespace(dram(1 << 20), 1)).unwrap();
    let fabric =
        Fabric { cntlid: 77, discovery: false, in_capsule: 8192, max_commands: 128, keep_alive_ms: 0 };
    let config = Config { fabric: Some(fabric), ..Config::default() };
    let mut host = Host::among(&subsystem, config);
    host.admin(command(admin::IDENTIFY, 0, &[cns::CONTROLLER.into()])).unwrap();
    let id = IdentifyController::from_bytes(&host.bytes(FREE, 4096));
    assert_eq!((id.cntlid(), id.cntrltype(), id.ioccsz(), id.iorcsz()), (77, 1, 516, 1));
    assert_eq!((id.msdbd(), id.ofcs(), id.maxcmd(), id.sgls() & 3), (1, 1, 128, 1));
    // An SGL is as long as its command's data, and admin commands take them.
    let sgl = |opcode, nsid, len: u32| {
        let mut entry = command(opcode, nsid, &[0, 0, 0]);
        entry.cdw[0] |= 1 << 14;
        entry.set_quad(8, len.into());
        entry
    };
    assert!(host.run(1, sgl(io::READ, 1, 512)).status().is_success());
    for len in [511, 513, 1024] {
        assert!(same(host.run(1, sgl(io::READ, 1, len)).status(), Status::INVALID_SGL_LENGTH.dnr()));
    }
    let mut identify = sgl(admin::IDENTIFY, 1, 4096);
    identify.cdw[10] = cns::NAMESPACE_DESCRIPTORS.into();
    host.admin(identify).unwrap();
    assert_eq!(host.bytes(FREE + 4, 36)[..16], [1; 16]);
    assert_eq!(host.bytes(FREE + 24, 16), [2; 16]);
}
