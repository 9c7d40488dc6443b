//! Get Log Page (Base 2.0, 5.16).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use nearside_clock::Nanos;
use nearside_spec::command::{common, log_page};
use nearside_spec::identify::csi;
use nearside_spec::layout::{Wire, ascii};
use nearside_spec::log::{FirmwareSlots, LOG_SUPPORTED, Smart, changed_namespaces, effects, event, lid};
use nearside_spec::opcode::{LOG_NEAR_DATA, admin, compute, io, memory};
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::{Backing, Store};

use super::features::{TEMPERATURE, supported};
use super::{Admin, AdminCommand, Answer, send};
use crate::config::Config;
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::io::BROADCAST;
use crate::shared::{ControllerShared, Counters};

impl<S: Store, F: Firmware<S>> AdminCommand<'_, S, F> {
    pub(super) fn get_log_page(&mut self) -> Result<Answer, Fault> {
        let shared = self.reactor.shared.clone();
        let log = self.entry.get(log_page::LID);
        let page = self
            .admin
            .page(&shared, self.entry, self.now)
            .ok_or(Fault::new(Status::INVALID_LOG_PAGE).of(log_page::LID))?;
        // Those that are about a namespace here are about the controller all the same; others name none.
        let of_namespace = |nsid| shared.namespace(nsid).is_some();
        if !matches!(self.entry.nsid(), 0 | BROADCAST) && !of_namespace(self.entry.nsid()) {
            return Err(Fault::new(Status::INVALID_NAMESPACE).of(common::NSID));
        }
        let numd_z =
            u64::from(self.entry.get(log_page::NUMDL_Z)) | u64::from(self.entry.get(log_page::NUMDU)) << 16;
        let len = (numd_z + 1) * 4;
        if len > shared.config.max_transfer() {
            return Err(Fault::field(log_page::NUMDL_Z));
        }
        // OT: offsets by index are of logs that we do not have.
        if self.entry.get(log_page::OT) {
            return Err(Fault::field(log_page::OT));
        }
        let offset = self.entry.get(log_page::LPO);
        if !offset.is_multiple_of(4) || offset > page.len() as u64 {
            return Err(Fault::field(log_page::LPO));
        }
        let mut data = page.get(offset as usize..).unwrap_or(&[]).to_vec();
        data.resize(len as usize, 0);
        send(&shared, self.entry, &data)?;
        // RAE keeps what the page would set free.
        if !self.entry.get(log_page::RAE) {
            self.admin.events.log_read(log);
            if log == lid::CHANGED_NAMESPACES {
                self.admin.changed.clear();
            }
            if log == lid::RESERVATION && self.admin.notifications.read() {
                let Admin { events, .. } = self.admin;
                events.add(event::IO_COMMAND_SET, event::RESERVATION_LOG, lid::RESERVATION);
            }
        }
        Ok(Answer::Now(0))
    }
}

impl Admin {
    fn page<S: Store, F: Firmware<S>>(
        &self,
        shared: &ControllerShared<S, F>,
        entry: &SubmissionEntry,
        now: Nanos,
    ) -> Option<Vec<u8>> {
        let (log, nsid) = (entry.get(log_page::LID), entry.nsid());
        let firmware = shared.firmware();
        let fabric = shared.config.fabric.is_some();
        let page = match log {
            lid::SUPPORTED => {
                let ours = firmware.is_some().then_some(LOG_NEAR_DATA);
                let known = [
                    lid::SUPPORTED,
                    lid::ERROR,
                    lid::SMART,
                    lid::FIRMWARE,
                    lid::CHANGED_NAMESPACES,
                    lid::EFFECTS,
                    lid::FEATURES,
                ];
                let of_others = [lid::ANA, lid::RESERVATION].into_iter();
                let of_others = of_others.filter(|_| shared.config.has_others());
                let all = known.into_iter().chain(ours).chain(of_others).chain(shared.subsystem.published());
                table(1024, all.map(|id| (id, LOG_SUPPORTED)))
            }
            lid::CHANGED_NAMESPACES => {
                let changed: Vec<u32> = self.changed.iter().copied().collect();
                changed_namespaces(&changed).to_vec()
            }
            lid::ANA if shared.config.has_others() => {
                let Config { port, .. } = shared.config;
                let shown: BTreeSet<u32> = shared.namespaces().into_iter().map(|(nsid, _)| nsid).collect();
                shared.subsystem.ana_page(port, |nsid| shown.contains(&nsid), entry.get(log_page::RGO))
            }
            lid::RESERVATION if shared.config.has_others() => self.notifications.page().0.to_vec(),
            lid::ERROR => {
                let log = shared.errors.lock().unwrap_or_else(|e| e.into_inner());
                let mut page: Vec<u8> = log.entries.iter().flat_map(|e| e.0).collect();
                page.resize(crate::shared::ERROR_LOG_ENTRIES * 64, 0);
                page
            }
            lid::SMART => self.smart(shared, now).0.to_vec(),
            lid::FIRMWARE => {
                let mut slots = FirmwareSlots::default();
                slots.set_afi(1).set_frs1(ascii(env!("CARGO_PKG_VERSION")));
                slots.0.to_vec()
            }
            lid::EFFECTS => {
                let sets = shared.command_sets.load(Ordering::Relaxed);
                commands(firmware.is_some(), &shared.config, (sets, entry.get(log_page::CSI)))
            }
            lid::FEATURES => {
                const CONTROLLER: u32 = 1 << 21;
                const NAMESPACE: u32 = 1 << 20;
                table(
                    1024,
                    supported(shared).map(|(id, of_namespace, _)| {
                        (id, 1 | if of_namespace { NAMESPACE } else { CONTROLLER })
                    }),
                )
            }
            LOG_NEAR_DATA if let Some(namespace) = firmware => {
                // What it can do is the same for all; what it has seen, each namespace's own.
                let named = shared.namespace(nsid).filter(|named| named.observer().is_present());
                let namespace = named.unwrap_or(namespace);
                let mut page = namespace.observer().capabilities(fabric);
                let taken = shared.counters.iter().map(|c| c.near_data.load(Ordering::Relaxed)).sum::<u64>();
                page.set_taken(taken).set_backing(namespace.store().backing().map_or(0, Backing::number));
                page.0.to_vec()
            }
            _ => shared.subsystem.page(log)?.to_vec(),
        };
        Some(page)
    }

    fn smart<S: Store, F: Firmware<S>>(&self, shared: &ControllerShared<S, F>, now: Nanos) -> Smart {
        let sum = |counter: fn(&Counters) -> &AtomicU64| -> u128 {
            shared.counters.iter().map(|c| u128::from(counter(c).load(Ordering::Relaxed))).sum()
        };
        // Thousands of 512-byte units, rounded up.
        let units = |bytes: u128| bytes.div_ceil(512_000);
        let errors = shared.errors.lock().unwrap_or_else(|e| e.into_inner()).count;
        let mut smart = Smart::default();
        smart
            .set_critical_warning(self.features.critical_warning())
            .set_composite_temperature(TEMPERATURE)
            .set_available_spare(100)
            .set_spare_threshold(10)
            .set_data_units_read(units(sum(|c| &c.bytes_read)))
            .set_data_units_written(units(sum(|c| &c.bytes_written)))
            .set_host_reads(sum(|c| &c.reads))
            .set_host_writes(sum(|c| &c.writes))
            .set_power_cycles(1)
            .set_power_on_hours((now.since(self.started) / 3_600_000_000_000).into())
            .set_media_errors(sum(|c| &c.media_errors))
            .set_error_entries(errors.into());
        smart
    }
}

/// A table of dwords by number.
fn table(len: usize, entries: impl Iterator<Item = (u8, u32)>) -> Vec<u8> {
    let mut page = vec![0; len];
    for (id, value) in entries {
        value.store(page.get_mut(usize::from(id) * 4..).unwrap_or(&mut []));
    }
    page
}

/// Commands Supported and Effects: admin commands, then I/O commands of a command set.
fn commands(near_data: bool, config: &Config, (sets, csi): (bool, u8)) -> Vec<u8> {
    let fabric = config.fabric.is_some();
    let queues = [admin::DELETE_SQ, admin::CREATE_SQ, admin::DELETE_CQ, admin::CREATE_CQ];
    let admin = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ];
    let reads = [io::FLUSH, io::READ, io::COMPARE];
    let changes = [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT];
    let ours = [io::NEAR_DATA_CANCEL, io::NEAR_DATA_EXECUTE, io::NEAR_DATA_RESULT, io::NEAR_DATA];
    let ours = ours.into_iter().filter(|&id| near_data && !(fabric && id == io::NEAR_DATA));
    let buffers = config.shadow_doorbells.then_some(admin::DOORBELL_BUFFER_CONFIG);
    let reserving =
        [io::RESERVATION_REGISTER, io::RESERVATION_REPORT, io::RESERVATION_ACQUIRE, io::RESERVATION_RELEASE];
    let reserving = reserving.into_iter().filter(|_| config.has_others());
    let programs = [admin::LOAD_PROGRAM, admin::PROGRAM_ACTIVATION, admin::MEMORY_RANGE_SET];
    let programs = programs.into_iter().filter(|_| sets);
    let admin =
        admin.into_iter().chain(queues.into_iter().filter(|_| !fabric)).chain(buffers).chain(programs);
    let mut page = table(1024, admin.map(|id| (id, effects::SUPPORTED)));
    let of_set: &[u8] = match csi {
        csi::MEMORY if sets => &[memory::COPY, memory::READ, memory::FILL, memory::WRITE],
        csi::COMPUTE if sets => &[compute::EXECUTE],
        _ => &[],
    };
    if !of_set.is_empty() {
        page.extend(table(1024, of_set.iter().map(|id| (*id, effects::SUPPORTED))));
        page.resize(4096, 0);
        return page;
    }
    let io = reads
        .into_iter()
        .chain(ours)
        .chain(reserving)
        .map(|id| (id, effects::SUPPORTED))
        .chain(changes.into_iter().map(|id| (id, effects::SUPPORTED | effects::BLOCKS_CHANGE)));
    page.extend(table(1024, io));
    page.resize(4096, 0);
    page
}
