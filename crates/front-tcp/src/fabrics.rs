//! Fabrics commands (Base 2.0, chapter 6): Connect, Property Get and Set, Disconnect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use nearside_device::{Controller, Firmware, Subsystem};
use nearside_dma::Region;
use nearside_spec::fabrics::command::{
    ANY_CONTROLLER, CATTR_NO_FLOW, Connect, ConnectData, FabricsCommand, Property, at,
};
use nearside_spec::fabrics::{nqn, status};
use nearside_spec::registers as reg;
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Store;

use crate::association::Association;
use crate::connection::{Connection, Cx, Moving, Phase};
use crate::queue::{MAX_ENTRIES, RINGS, RINGS_IOVA};
use crate::target::{Target, publish};
use crate::thread::{Mail, pool_iova};

/// Why a Connect failed: its status and DW0.
type Failed = (Status, u32);

fn invalid(offset: u16, in_data: bool) -> Failed {
    (status::INVALID_PARAMETERS.dnr(), status::invalid_parameter(offset, in_data))
}

impl<S: Store, F: Firmware<S>> Connection<S, F> {
    /// Executes a Fabrics command; `data` came in its capsule.
    pub(crate) fn fabrics(&mut self, entry: &SubmissionEntry, data: &[u8], cx: &mut Cx<'_, S, F>) {
        if let Some(queue) = &mut self.queue {
            queue.advance();
        }
        let answer = match FabricsCommand::decode(entry) {
            Some(FabricsCommand::Connect(connect)) => {
                match self.connect(entry.cid(), &connect, data, cx.target) {
                    Ok(moving) => {
                        self.phase = Phase::Moving(Box::new(moving));
                        return;
                    }
                    Err((status, dw0)) => {
                        tracing::info!(peer = %self.peer, status = status::name(status), "Connect was refused");
                        Err((status, dw0))
                    }
                }
            }
            _ if !self.is_serving() => Err((Status::COMMAND_SEQUENCE_ERROR.dnr(), 0)),
            Some(FabricsCommand::PropertyGet(property)) => self.property_get(&property),
            Some(FabricsCommand::PropertySet(property)) => self.property_set(&property, cx),
            Some(FabricsCommand::Disconnect { recfmt }) => self.disconnect(recfmt),
            Some(FabricsCommand::Unknown(_)) | None => Err((Status::INVALID_FIELD.dnr(), 0)),
        };
        let (status, result) = match answer {
            Ok(result) => (Status::SUCCESS, result),
            Err((status, dw0)) => (status, u64::from(dw0)),
        };
        self.answer(entry.cid(), result, status, &cx.target.counters);
    }

    fn is_admin(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.id == 0)
    }

    fn property_get(&self, property: &Property) -> Result<u64, Failed> {
        let field = (Status::INVALID_FIELD.dnr(), 0);
        let Some(association) = self.association.as_ref().filter(|_| self.is_admin()) else {
            return Err(field);
        };
        let registers = association.registers();
        match (property.attrib, property.offset as usize) {
            (1, reg::CAP) => Ok(registers.word64(reg::CAP).load(Ordering::Relaxed)),
            (0, at @ (reg::VS | reg::CC | reg::CSTS | reg::CRTO)) => {
                Ok(registers.word32(at).load(Ordering::Acquire).into())
            }
            _ => Err(field),
        }
    }

    fn property_set(&mut self, property: &Property, cx: &mut Cx<'_, S, F>) -> Result<u64, Failed> {
        let field = (Status::INVALID_FIELD.dnr(), 0);
        let admin = self.queue.as_mut().filter(|queue| queue.id == 0);
        let (Some(association), Some(queue), Some(local)) = (&self.association, admin, &mut cx.local) else {
            return Err(field);
        };
        if (property.attrib, property.offset as usize) != (0, reg::CC) {
            return Err(field);
        }
        let registers = association.registers();
        let before = reg::Cc(registers.word32(reg::CC).load(Ordering::Relaxed));
        let value = reg::Cc(property.value as u32);
        if value.enabled() && !before.enabled() {
            queue.rewind(&association.rings);
            let pair = queue.pair();
            let entries = pair.entries - 1;
            registers.word32(reg::AQA).store(entries << 16 | entries, Ordering::Relaxed);
            registers.word64(reg::ASQ).store(pair.sq, Ordering::Relaxed);
            registers.word64(reg::ACQ).store(pair.cq, Ordering::Relaxed);
        }
        registers.word32(reg::CC).store(value.0, Ordering::Release);
        // Most of it is done at once; the thread's next turn goes on.
        local.reactor.step(cx.now);
        local.due = Some(cx.now);
        let reset = before.enabled() && !value.enabled();
        if reset {
            // What was outstanding is not answered.
            queue.forget(cx.pool, &mut local.orphans);
        }
        if reset || (before.shn() == 0 && value.shn() != 0) {
            // The I/O queues of all threads go. The admin queue stays for a look at CSTS.
            for thread in 0..association.threads {
                cx.target.post(thread, Mail::QueuesEnd(association.cntlid));
            }
        }
        Ok(0)
    }

    fn disconnect(&mut self, recfmt: u16) -> Result<u64, Failed> {
        if recfmt != 0 {
            return Err((status::INCOMPATIBLE_FORMAT.dnr(), 0));
        }
        if self.is_admin() {
            return Err((status::INVALID_QUEUE_TYPE.dnr(), 0));
        }
        self.phase = Phase::Closing;
        Ok(0)
    }

    /// Checks a Connect, and makes the controller where it is an admin queue's.
    fn connect(
        &mut self,
        cid: u16,
        connect: &Connect,
        data: &[u8],
        target: &Target<S, F>,
    ) -> Result<Moving<S, F>, Failed> {
        if !matches!(self.phase, Phase::Initialized) {
            return Err((Status::COMMAND_SEQUENCE_ERROR.dnr(), 0));
        }
        if connect.recfmt != 0 {
            return Err((status::INCOMPATIBLE_FORMAT.dnr(), 0));
        }
        if data.len() != ConnectData::SIZE {
            return Err((Status::INVALID_SGL_LENGTH.dnr(), 0));
        }
        let data = ConnectData::from_bytes(data);
        let (subnqn, hostnqn) = (data.subnqn(), data.hostnqn());
        let subnqn = nqn::from_field(&subnqn).map_err(|_| invalid(at::SUBNQN, true))?;
        let hostnqn = nqn::from_field(&hostnqn).map_err(|_| invalid(at::HOSTNQN, true))?;
        let entries = u32::from(connect.sqsize_z) + 1;
        if !(2..=MAX_ENTRIES).contains(&entries) {
            return Err(invalid(at::SQSIZE, false));
        }
        // Base 2.0, 5.27.1.25: over fabrics it is never zero.
        if data.hostid() == [0; 16] {
            return Err(invalid(at::HOSTID, true));
        }
        let flow = connect.cattr & CATTR_NO_FLOW == 0;
        let association = if connect.qid == 0 {
            self.associate(connect, &data, subnqn, hostnqn, target)?
        } else {
            let association = target.association(data.cntlid());
            let association = association.filter(|a| a.nqn == subnqn).ok_or(invalid(at::CNTLID, true))?;
            if association.host_nqn != hostnqn {
                return Err(invalid(at::HOSTNQN, true));
            }
            if association.host_id != data.hostid() {
                return Err(invalid(at::HOSTID, true));
            }
            if association.offer.is_none() {
                return Err((status::INVALID_QUEUE_TYPE.dnr(), 0));
            }
            if connect.qid > association.io_queues {
                return Err(invalid(at::QID, false));
            }
            if !association.is_enabled() {
                return Err((Status::COMMAND_SEQUENCE_ERROR.dnr(), 0));
            }
            self.admit(hostnqn, data.hostid(), target)?;
            association
        };
        Ok(Moving { association, cid, qid: connect.qid, entries, flow })
    }

    /// Counts this connection as one of a host, which becomes its place. Refused where the host has as many as it may have.
    fn admit(&mut self, hostnqn: &str, hostid: [u8; 16], target: &Target<S, F>) -> Result<u32, Failed> {
        // Another Connect on the same connection counts once.
        self.ticket = None;
        let Some(ticket) = target.hosts.admit(hostnqn, hostid) else {
            target.counters.over_quota.fetch_add(1, Ordering::Relaxed);
            return Err((status::CONTROLLER_BUSY, 0));
        };
        let place = ticket.place();
        self.ticket = Some(ticket);
        Ok(place)
    }

    /// A new controller for a host.
    fn associate(
        &mut self,
        connect: &Connect,
        data: &ConnectData,
        subnqn: &str,
        hostnqn: &str,
        target: &Target<S, F>,
    ) -> Result<Arc<Association<S, F>>, Failed> {
        if data.cntlid() < ANY_CONTROLLER - 1 {
            // Controllers here are dynamic: a host cannot choose.
            return Err(invalid(at::CNTLID, true));
        }
        let offer = match subnqn {
            nqn::DISCOVERY => None,
            _ => Some(target.offered(subnqn).ok_or(invalid(at::SUBNQN, true))?),
        };
        if offer.as_ref().is_some_and(|offer| !offer.allows(hostnqn)) {
            return Err((status::INVALID_HOST.dnr(), 0));
        }
        let place = self.admit(hostnqn, data.hostid(), target)?;
        let threads = target.posts.len();
        let mut made = Vec::new();
        let association = target.associate(|cntlid| {
            let subsystem = match &offer {
                Some(offer) => offer.subsystem.clone(),
                None => Subsystem::new(),
            };
            let config =
                target.config(cntlid, offer.as_deref(), subnqn, hostnqn, data.hostid(), connect.kato);
            let (io_queues, max_transfer) = (config.io_queues, config.max_transfer() as u32);
            let controller = Controller::of(&subsystem, config, target.wakeup.clone())?;
            let rings = Arc::new(Region::anonymous((usize::from(io_queues) + 1) * RINGS)?);
            let memory = &controller.function.memory;
            let pools = target.pools.lock().unwrap_or_else(|e| e.into_inner());
            for (thread, pool) in pools.iter().enumerate() {
                if let Some(pool) = pool {
                    memory.map(pool_iova(thread), pool.clone()).map_err(std::io::Error::other)?;
                }
            }
            memory.map(RINGS_IOVA, rings.clone()).map_err(std::io::Error::other)?;
            made = controller.reactors;
            let association = Arc::new(Association {
                cntlid,
                host_nqn: hostnqn.to_owned(),
                host_id: data.hostid(),
                place,
                peer: self.peer,
                local: self.address,
                offer: offer.clone(),
                subsystem,
                nqn: subnqn.to_owned(),
                function: controller.function,
                rings,
                io_queues,
                max_transfer,
                first: usize::from(cntlid) % threads,
                threads,
                queues: AtomicU16::new(0),
                ended: AtomicBool::new(false),
            });
            Ok::<_, std::io::Error>(association)
        });
        let association = match association {
            Ok(Some(association)) => association,
            Ok(None) => return Err((status::CONTROLLER_BUSY, 0)),
            Err(error) => {
                tracing::warn!(%error, "no controller could be made");
                return Err((Status::INTERNAL_ERROR, 0));
            }
        };
        if offer.is_none() {
            publish(&association.subsystem, target.discovery_log(hostnqn, self.address));
        }
        tracing::info!(cntlid = association.cntlid, host = hostnqn, subsystem = subnqn, peer = %self.peer, "connected");
        for (index, reactor) in made.into_iter().enumerate() {
            let thread = (association.first + index) % threads;
            target.post(thread, Mail::Reactor(association.clone(), Box::new(reactor)));
        }
        Ok(association)
    }
}
