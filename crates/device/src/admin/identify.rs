//! Identify (Base 2.0, 5.17).

use std::sync::atomic::Ordering;

use nearside_dma::PAGE_SIZE;
use nearside_spec::command::{common, identify};
use nearside_spec::fabrics::{IORCSZ, controller_type, ioccsz, sgls};
use nearside_spec::identify::{
    IdentifyCompute, IdentifyController, IdentifyControllerNvm, IdentifyMemory, IdentifyNamespace,
    IdentifyNamespaceIndependent, cns, csi, namespace_descriptors,
};
use nearside_spec::layout::{Wire, ascii};
use nearside_spec::log::event;
use nearside_spec::registers::VERSION_2_0;
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Store;

use super::events::REQUESTS;
use super::{ABORT_LIMIT, Answer, send};
use crate::ana;
use crate::config::Config;
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::io::BROADCAST;
use crate::namespace::{CommandSet, Namespace};
use crate::reactor::Reactor;
use crate::shared::{ControllerShared, ERROR_LOG_ENTRIES};
use crate::subsystem::MAX_NSID;

/// CMIC of a controller beside others: several ports, several controllers.
const SHARED: u8 = 1 | 1 << 1;
/// The same: Asymmetric Namespace Access Reporting.
const ANA: u8 = 1 << 3;

pub(super) fn identify<S: Store, F: Firmware<S>>(
    reactor: &mut Reactor<S, F>,
    entry: &SubmissionEntry,
) -> Result<Answer, Fault> {
    let shared = &reactor.shared;
    let nsid = entry.nsid();
    let set = entry.get(identify::CSI);
    let which = entry.get(identify::CNS);
    let invalid = Fault::new(Status::INVALID_NAMESPACE).of(common::NSID);
    let of_set = matches!(
        which,
        cns::NAMESPACE_COMMAND_SET | cns::CONTROLLER_COMMAND_SET | cns::ACTIVE_NAMESPACES_COMMAND_SET
    );
    let others = shared.command_sets.load(Ordering::Relaxed);
    if of_set && set != csi::NVM && !(others && [csi::MEMORY, csi::COMPUTE].contains(&set)) {
        return Err(Fault::field(identify::CSI));
    }
    // A structure of one command set says nothing of a namespace of another.
    let of = |namespace: &Namespace<S, F>| match which {
        cns::NAMESPACE => namespace.command_set() == CommandSet::Nvm,
        cns::NAMESPACE_COMMAND_SET => namespace.command_set().csi() == set,
        _ => true,
    };
    if shared.namespace(nsid).is_some_and(|namespace| !of(&namespace)) {
        return Err(invalid);
    }
    // A valid identifier that no namespace has is answered with zeros (5.17.2.1).
    let of_one = |known: &dyn Fn(&Namespace<S, F>) -> [u8; 4096]| match shared.namespace(nsid) {
        Some(namespace) => Ok(known(&namespace)),
        None if (1..=MAX_NSID).contains(&nsid) => Ok([0; 4096]),
        None => Err(invalid),
    };
    let with_others = shared.config.fabric.is_some() || shared.config.shared;
    let data = match which {
        cns::NAMESPACE => of_one(&|n| namespace(n, with_others).0)?,
        cns::NAMESPACE_INDEPENDENT => of_one(&|n| {
            let mut id = IdentifyNamespaceIndependent::default();
            let rescap = reservable(n, with_others);
            id.set_nsattr(n.read_only().into()).set_nmic(with_others.into()).set_rescap(rescap).set_nstat(1);
            id.set_anagrpid(if with_others { n.ana_group() } else { 0 });
            id.0
        })?,
        cns::NAMESPACE_COMMAND_SET => of_one(&of_command_set)?,
        cns::CONTROLLER => controller(shared).0,
        // None has limits of its own.
        cns::CONTROLLER_COMMAND_SET => IdentifyControllerNvm::default().0,
        cns::ACTIVE_NAMESPACES | cns::ACTIVE_NAMESPACES_COMMAND_SET => {
            if nsid >= BROADCAST - 1 {
                return Err(invalid);
            }
            let mut list = [0; 4096];
            let any = which == cns::ACTIVE_NAMESPACES;
            let mut above = shared.namespaces();
            above.retain(|(id, namespace)| *id > nsid && (any || namespace.command_set().csi() == set));
            for ((id, _), place) in above.into_iter().zip(list.as_chunks_mut::<4>().0) {
                id.store(place);
            }
            list
        }
        cns::NAMESPACE_DESCRIPTORS => match shared.namespace(nsid) {
            Some(namespace) => {
                namespace_descriptors(namespace.uuid(), namespace.nguid(), namespace.command_set().csi())
            }
            None => return Err(invalid),
        },
        cns::COMMAND_SETS => {
            // One combination: all that there are.
            let mut list = [0; 4096];
            let others = if shared.has_command_sets() { 1 << csi::MEMORY | 1 << csi::COMPUTE } else { 0 };
            (1u64 << csi::NVM | others).store(&mut list);
            list
        }
        _ => return Err(Fault::field(identify::CNS)),
    };
    send(shared, entry, &data)?;
    Ok(Answer::Now(0))
}

/// Notices that a controller can give (OAES), as bits of Asynchronous Event Configuration.
pub(super) fn notices(config: &Config) -> u32 {
    match &config.fabric {
        Some(fabric) if fabric.discovery => event::DISCOVERY_NOTICES,
        _ if config.has_others() => event::NAMESPACE_NOTICES | event::ANA_NOTICES,
        _ => event::NAMESPACE_NOTICES,
    }
}

fn controller<S: Store, F: Firmware<S>>(shared: &ControllerShared<S, F>) -> IdentifyController {
    let config = &shared.config;
    let mut subnqn = [0; 256];
    config.subsystem.as_bytes().iter().zip(&mut subnqn).for_each(|(from, to)| *to = *from);
    let mut id = IdentifyController::default();
    id.set_sn(ascii(&config.serial))
        .set_mn(ascii(&config.model))
        .set_fr(ascii(env!("CARGO_PKG_VERSION")))
        .set_mdts(config.mdts)
        .set_cntlid(config.cntlid)
        .set_cmic(if config.shared { SHARED | ANA } else { 0 })
        // Doorbell Buffer Config.
        .set_oacs(u16::from(config.shadow_doorbells) << 8)
        .set_oaes(notices(config))
        .set_ver(VERSION_2_0)
        .set_rtd3r(500_000)
        .set_rtd3e(500_000)
        // A 128-bit host identifier.
        .set_ctratt(1)
        .set_cntrltype(1)
        .set_acl_z(ABORT_LIMIT as u8 - 1)
        .set_aerl_z(REQUESTS as u8 - 1)
        // Slot 1, read-only.
        .set_frmw(1 | 1 << 1)
        // Commands and effects; extended lengths and offsets.
        .set_lpa(1 << 1 | 1 << 2)
        .set_elpe_z(ERROR_LOG_ENTRIES as u8 - 1)
        .set_avscc(0)
        .set_wctemp(343)
        .set_cctemp(353)
        .set_tnvmcap(capacity(shared))
        .set_kas(1)
        .set_sqes(0x66)
        .set_cqes(0x44)
        .set_nn(MAX_NSID)
        // Compare, Dataset Management, Write Zeroes, Save and Select, Reservations, Timestamp.
        .set_oncs(1 | 1 << 2 | 1 << 3 | 1 << 4 | u16::from(config.has_others()) << 5 | 1 << 6)
        // Present where it can be switched; FFFFFFFFh flushes all namespaces.
        .set_vwc(u8::from(config.write_cache) | 3 << 1)
        .set_icsvscc(1)
        // SGLs without alignment, bit buckets, and lists longer than the data.
        .set_sgls(1 | 1 << 16 | 1 << 18)
        .set_mnan(MAX_NSID)
        .set_subnqn(subnqn)
        .set_psd0_mp(100);
    if let Some(fabric) = &config.fabric {
        id.set_cntlid(fabric.cntlid)
            .set_cmic(if fabric.discovery { SHARED } else { SHARED | ANA })
            .set_cntrltype(if fabric.discovery { controller_type::DISCOVERY } else { controller_type::IO })
            .set_maxcmd(fabric.max_commands)
            .set_sgls(sgls::SUPPORTED | sgls::OFFSET | sgls::TRANSPORT)
            .set_ioccsz(ioccsz(fabric.in_capsule))
            .set_iorcsz(IORCSZ)
            .set_msdbd(1)
            // Disconnect.
            .set_ofcs(1);
        if fabric.discovery {
            // It has no features but its own: Linux sets the time where it may.
            id.set_oncs(0);
        }
    }
    if config.has_others() {
        id.set_anatt(ana::TRANSITION_S)
            .set_anacap(ana::CAPABILITIES)
            .set_anagrpmax(ana::MAX_ANA_GROUP)
            .set_nanagrpid(ana::MAX_ANA_GROUP);
    }
    id
}

/// Bytes of all namespaces of blocks.
fn capacity<S: Store, F: Firmware<S>>(shared: &ControllerShared<S, F>) -> u128 {
    let all = shared.namespaces();
    let blocks = all.iter().filter(|(_, namespace)| namespace.command_set() == CommandSet::Nvm);
    blocks.map(|(_, namespace)| u128::from(namespace.bytes())).sum()
}

/// What is specific to a namespace's command set.
fn of_command_set<S: Store, F: Firmware<S>>(namespace: &Namespace<S, F>) -> [u8; 4096] {
    match namespace.command_set() {
        // Storage tags and their formats; there are none.
        CommandSet::Nvm => [0; 4096],
        CommandSet::Memory => IdentifyMemory::default().set_size(namespace.bytes()).0,
        CommandSet::Compute => namespace.observer().programs().map_or([0; 4096], |id: IdentifyCompute| id.0),
    }
}

/// RESCAP: who has a namespace alone has nobody to keep out.
fn reservable<S: Store, F: Firmware<S>>(namespace: &Namespace<S, F>, shared: bool) -> u8 {
    let blocks = namespace.command_set() == CommandSet::Nvm;
    if shared && blocks { namespace.reservations().capabilities() } else { 0 }
}

fn namespace<S: Store, F: Firmware<S>>(namespace: &Namespace<S, F>, shared: bool) -> IdentifyNamespace {
    let blocks = namespace.blocks();
    let per_page = (PAGE_SIZE >> namespace.lba_shift()) as u16;
    let mut id = IdentifyNamespace::default();
    id.set_nsze(blocks)
        .set_ncap(blocks)
        .set_nuse(blocks)
        // The preferred sizes below are meant.
        .set_nsfeat(1 << 4)
        // Whether other controllers have it as well.
        .set_nmic(shared.into())
        .set_rescap(reservable(namespace, shared))
        .set_nguid(*namespace.nguid())
        // Deallocated blocks read as zeros; Write Zeroes may deallocate.
        .set_dlfeat(1 | 1 << 3)
        .set_nvmcap(namespace.bytes().into())
        .set_npwg_z(per_page - 1)
        .set_npwa_z(per_page - 1)
        .set_npdg_z(per_page - 1)
        .set_npda_z(per_page - 1)
        .set_nows_z(per_page - 1)
        .set_anagrpid(if shared { namespace.ana_group() } else { 0 })
        .set_nsattr(namespace.read_only().into())
        .set_block_shift(namespace.lba_shift() as u8);
    id
}
