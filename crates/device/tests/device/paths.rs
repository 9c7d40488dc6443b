//! Asymmetric Namespace Access: what a port's state answers, what hosts are told of a change, and that nobody
//! else notices.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rig::*;
use nearside_device::{AnaState, Host as Named, Namespace, PortStates, Subsystem};
use nearside_spec::feature::fid;
use nearside_spec::identify::{IdentifyController, IdentifyNamespace, IdentifyNamespaceIndependent, cns};
use nearside_spec::log::{AnaGroup, AnaHeader, async_event, event, lid};
use nearside_spec::opcode::FEATURE_NEAR_DATA;
use nearside_store::{Delay, Modelled};

/// Namespaces 1 and 2 in group 1, namespace 3 in group 9.
fn subsystem() -> Arc<Subsystem<Dram>> {
    let subsystem = Subsystem::new();
    for (nsid, group) in [(1, 1), (2, 1), (3, 9)] {
        let namespace = Namespace::new(dram(1 << 20), (), 512, [nsid as u8; 16], true).unwrap();
        subsystem.add(nsid, Arc::new(namespace.in_ana_group(group))).unwrap();
    }
    subsystem
}

fn host_of<S: Store, F: Firmware<S>>(subsystem: &Arc<Subsystem<S, F>>, port: Option<u16>) -> Host<S, F> {
    let named = Named { identifier: [port.unwrap_or(99) as u8 + 1; 16], ..Named::default() };
    let config = Config { shared: true, port, host: named, ..Config::default() };
    Host::among(subsystem, config)
}

fn all(state: AnaState) -> PortStates {
    PortStates { all: state, groups: BTreeMap::new() }
}

fn of_group(group: u32, state: AnaState) -> PortStates {
    PortStates { groups: [(group, state)].into(), ..PortStates::default() }
}

fn of(nsid: u32, opcode: u8) -> SubmissionEntry {
    let mut entry = transfer(opcode, 0, 1, FREE, 0);
    entry.cdw[1] = nsid;
    entry
}

/// The statuses of a Read, a Write, a Flush and a Reservation Report, which are one.
fn answers<S: Store>(host: &mut Host<S>, nsid: u32) -> Status {
    let mut report = of(nsid, io::RESERVATION_REPORT);
    (report.cdw[10], report.cdw[11], report.cdw[12]) = (1023, 1, 0);
    let mut flush = of(nsid, io::FLUSH);
    flush.cdw[10..].fill(0);
    flush.set_quad(6, 0);
    let all = [of(nsid, io::READ), of(nsid, io::WRITE), flush, report];
    let statuses = all.map(|entry| host.run(1, entry).status().code());
    assert!(statuses.iter().all(|status| *status == statuses[0]), "{statuses:?}");
    statuses[0]
}

/// Change count, and of each group its number, its change count, its state and its namespaces.
type Page = (u64, Vec<(u32, u64, u8, Vec<u32>)>);

fn page<S: Store>(host: &mut Host<S>, alone: bool) -> Page {
    let dword = u32::from(lid::ANA) | u32::from(alone) << 8 | 1023 << 16;
    host.admin(command(admin::GET_LOG_PAGE, 0, &[dword])).unwrap();
    let bytes = host.bytes(FREE, 4096);
    let header = AnaHeader::from_bytes(&bytes);
    let mut at = AnaHeader::SIZE;
    let groups = (0..header.ngrps()).map(|_| {
        let group = AnaGroup::from_bytes(&bytes[at..]);
        let ids = &bytes[at + AnaGroup::SIZE..][..4 * group.nnv() as usize];
        at += AnaGroup::SIZE + ids.len();
        let ids = ids.chunks(4).map(|id| u32::from_le_bytes(id.try_into().unwrap())).collect();
        (group.agid(), group.chgcnt(), group.state(), ids)
    });
    let groups = groups.collect();
    (header.chgcnt(), groups)
}

#[test]
fn a_state_bars_what_is_behind_its_port_and_nothing_else() {
    let subsystem = subsystem();
    let mut by = [Some(0), Some(1), None].map(|port| host_of(&subsystem, port));
    let expect = |by: &mut [Host<Dram>; 3], first: [Status; 3]| {
        for nsid in 1..=3 {
            assert_eq!(answers(&mut by[0], nsid), first[nsid as usize - 1], "namespace {nsid}");
            assert_eq!(answers(&mut by[1], nsid), Status::SUCCESS);
            assert_eq!(answers(&mut by[2], nsid), Status::SUCCESS);
        }
    };
    expect(&mut by, [Status::SUCCESS; 3]);
    for (state, answer) in [
        (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
        (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
        (AnaState::Change, Status::ANA_TRANSITION),
        (AnaState::NonOptimized, Status::SUCCESS),
        (AnaState::Optimized, Status::SUCCESS),
    ] {
        subsystem.set_ana(0, all(state));
        expect(&mut by, [answer; 3]);
        subsystem.set_ana(0, of_group(1, state));
        expect(&mut by, [answer, answer, Status::SUCCESS]);
        subsystem.set_ana(0, of_group(9, state));
        expect(&mut by, [Status::SUCCESS, Status::SUCCESS, answer]);
    }
    // Who comes later finds what holds.
    subsystem.set_ana(4, of_group(9, AnaState::Inaccessible));
    let mut late = host_of(&subsystem, Some(4));
    assert_eq!(
        [1, 2, 3].map(|nsid| answers(&mut late, nsid)),
        [Status::SUCCESS, Status::SUCCESS, Status::ANA_INACCESSIBLE]
    );
    // So does a namespace that comes later.
    let namespace = Namespace::new(dram(1 << 20), (), 512, [4; 16], true).unwrap();
    subsystem.add(4, Arc::new(namespace.in_ana_group(9))).unwrap();
    assert_eq!(answers(&mut late, 4), Status::ANA_INACCESSIBLE);
    // A host may try again; Do Not Retry would end its file system.
    assert_eq!(late.run(1, of(4, io::READ)).status().0 & 1 << 14, 0);
}

/// By whichever command it comes. Where it is not barred, this firmware knows none of it.
#[test]
fn near_data_work_is_barred_as_well() {
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(dram(1 << 20), Present, 512, [1; 16], true).unwrap())).unwrap();
    let mut host = host_of(&subsystem, Some(0));
    let mut answers = || {
        let mut work = of(1, io::NEAR_DATA);
        (work.cdw[10], work.cdw[11], work.cdw[12]) = (64, 4096, 1);
        let feature = |opcode| command(opcode, 1, &[FEATURE_NEAR_DATA.into(), 1]);
        let by_feature = [admin::SET_FEATURES, admin::GET_FEATURES].map(feature);
        let by_feature = by_feature.map(|entry| host.admin(entry).unwrap_err().code());
        [host.run(1, work).status().code(), by_feature[0], by_feature[1]]
    };
    assert_eq!(answers(), [Status::INVALID_OPCODE; 3]);
    subsystem.set_ana(0, all(AnaState::Inaccessible));
    assert_eq!(answers(), [Status::ANA_INACCESSIBLE; 3]);
}

#[test]
fn a_flush_of_all_says_no_where_it_cannot_reach_one() {
    let subsystem = subsystem();
    let mut host = host_of(&subsystem, Some(0));
    let flush = SubmissionEntry::new(io::FLUSH, 1, u32::MAX);
    assert_eq!(host.run(1, flush).status().code(), Status::SUCCESS);
    subsystem.set_ana(0, of_group(9, AnaState::Inaccessible));
    assert_eq!(host.run(1, flush).status().code(), Status::ANA_INACCESSIBLE);
    // A shutdown flushes them all the same.
    subsystem.set_ana(0, all(AnaState::Inaccessible));
    host.set_register(nearside_spec::registers::CC, host.register(nearside_spec::registers::CC) | 1 << 14);
    host.settle(1_000_000_000);
    assert_eq!(host.register(nearside_spec::registers::CSTS) >> 2 & 3, 2);
}

#[test]
fn what_was_begun_goes_on_to_its_end() {
    let subsystem = Subsystem::new();
    let slow = Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium());
    subsystem.add(1, Arc::new(Namespace::new(slow, (), 512, [1; 16], true).unwrap())).unwrap();
    let mut host = host_of(&subsystem, Some(0));
    host.submit(1, of(1, io::WRITE));
    assert!(host.completed(1).is_none());
    subsystem.set_ana(0, all(AnaState::Inaccessible));
    host.submit(1, of(1, io::READ));
    assert_eq!(host.completed(1).unwrap().status().code(), Status::ANA_INACCESSIBLE);
    host.settle(10_000_000);
    host.reap(1);
    assert_eq!(host.completed(1).unwrap().status().code(), Status::SUCCESS);
}

#[test]
fn hosts_are_told_and_read_what_holds() {
    let subsystem = subsystem();
    let mut host = host_of(&subsystem, Some(7));
    let mut other = host_of(&subsystem, Some(8));
    assert_eq!(page(&mut host, false), (0, vec![(1, 0, 1, vec![1, 2]), (9, 0, 1, vec![3])]));
    for host in [&mut host, &mut other] {
        host.submit(0, command(admin::ASYNC_EVENT_REQUEST, 0, &[]));
    }
    // Who did not ask for the notice gets none.
    subsystem.set_ana(7, all(AnaState::Change));
    assert!(host.completed(0).is_none());
    for host in [&mut host, &mut other] {
        host.admin(command(admin::SET_FEATURES, 0, &[fid::ASYNC_EVENT.into(), event::ANA_NOTICES])).unwrap();
    }
    subsystem.set_ana(7, of_group(9, AnaState::NonOptimized));
    let told = async_event(event::NOTICE, event::ANA_CHANGE, lid::ANA);
    assert_eq!(host.completed(0).unwrap().result(), told);
    assert_eq!(page(&mut host, false), (2, vec![(1, 2, 1, vec![1, 2]), (9, 2, 2, vec![3])]));
    assert_eq!(page(&mut host, true), (2, vec![(1, 2, 1, vec![]), (9, 2, 2, vec![])]));
    // Hosts read in pieces what there could be, and not what there is.
    let mut rest = command(admin::GET_LOG_PAGE, 0, &[u32::from(lid::ANA) | 1023 << 16, 0, 4096]);
    assert!(host.admin(rest).is_ok() && host.bytes(FREE, 4096) == [0; 4096]);
    rest.cdw[12] = 8212;
    refused(host.admin(rest), Status::INVALID_FIELD.dnr());
    // What holds already is no change.
    host.submit(0, command(admin::ASYNC_EVENT_REQUEST, 0, &[]));
    subsystem.set_ana(7, of_group(9, AnaState::NonOptimized));
    assert!(host.completed(0).is_none());
    subsystem.set_ana(7, all(AnaState::Optimized));
    assert_eq!(host.completed(0).unwrap().result(), told);
    assert!(other.completed(0).is_none(), "by another port nothing has changed");
    assert_eq!(page(&mut other, false).0, 0);
}

#[test]
fn identify_says_what_there_is() {
    let subsystem = subsystem();
    let identify = |host: &mut Host<Dram>, which: u8, nsid| {
        host.admin(command(admin::IDENTIFY, nsid, &[which.into()])).unwrap();
        host.bytes(FREE, 4096)
    };
    let mut host = host_of(&subsystem, Some(0));
    let id = IdentifyController::from_bytes(&identify(&mut host, cns::CONTROLLER, 0));
    assert_eq!((id.cmic() & 1 << 3, id.oaes() & event::ANA_NOTICES), (1 << 3, event::ANA_NOTICES));
    assert_eq!((id.anacap() & 0x1f, id.anagrpmax(), id.nanagrpid()), (0x1f, 128, 128));
    assert!(id.anatt() > 0);
    for (nsid, group) in [(1, 1), (3, 9)] {
        let id = IdentifyNamespace::from_bytes(&identify(&mut host, cns::NAMESPACE, nsid));
        let independent = identify(&mut host, cns::NAMESPACE_INDEPENDENT, nsid);
        let independent = IdentifyNamespaceIndependent::from_bytes(&independent);
        assert_eq!((id.anagrpid(), independent.anagrpid()), (group, group));
    }
    // Who has a drive alone has one path to it.
    let mut alone = Host::ready(dram(1 << 20), Config::default());
    let id = IdentifyController::from_bytes(&identify(&mut alone, cns::CONTROLLER, 0));
    assert_eq!((id.cmic(), id.oaes() & event::ANA_NOTICES, id.anagrpmax(), id.anatt()), (0, 0, 0, 0));
    let page = alone.admin(command(admin::GET_LOG_PAGE, 0, &[u32::from(lid::ANA) | 7 << 16]));
    refused(page, Status::INVALID_LOG_PAGE.dnr());
}
