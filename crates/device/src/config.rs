//! What a controller is like.

use std::collections::BTreeSet;

use nearside_dma::PAGE_SIZE;

/// Queue pairs that fit the doorbells, the admin pair included.
pub(crate) const MAX_QUEUES: usize = 64;

/// A controller's properties, fixed when it is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of a logical block: 512 or 4096.
    pub lba_size: u32,
    /// Reactors: 1 for an I/O path without locks.
    pub reactors: usize,
    /// I/O queue pairs offered, at most 63.
    pub io_queues: u16,
    /// Entries of an I/O queue, at most 65536 and at least 2.
    pub queue_entries: u32,
    /// Interrupt vectors.
    pub vectors: u16,
    /// Log2 of the largest transfer in 4 KiB pages (MDTS), 1 to 12; 8 is 1 MiB.
    pub mdts: u8,
    /// Whether a volatile write cache is reported, which a host then flushes.
    pub write_cache: bool,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Model, at most 40.
    pub model: String,
    /// Subsystem NQN.
    pub subsystem: String,
    /// The UUID of the namespace of a controller that is alone ([`crate::Controller::alone`]).
    pub uuid: [u8; 16],
    /// The host, as far as near-data commands ask.
    pub host: Host,
    /// CNTLID, where there is no fabric.
    pub cntlid: u16,
    /// Whether other controllers have the namespaces as well. Behind a fabric they always may.
    pub shared: bool,
    /// The port by which its host came, where there is more than one way ([`crate::Subsystem::set_ana`]).
    pub port: Option<u16>,
    /// The namespaces that the controller is attached to: its host finds no other, and is told of no other
    /// (Base 2.0, 2.1.1). They need not exist yet. `None`: all of the subsystem.
    pub namespaces: Option<BTreeSet<u32>>,
    /// Whether Doorbell Buffer Config is there, by which a host keeps its doorbells in memory: for a host
    /// whose writes to the registers cost it much and are told to the drive ([`nearside_dma::Wakeup::wake`]).
    pub shadow_doorbells: bool,
    /// What a controller behind a fabric has beside. Its host is a front in this process, which signals and
    /// is signalled nothing.
    pub fabric: Option<Fabric>,
}

/// A host, to near-data commands: its name and its identifier together say who it is, and tags of one host
/// mean nothing to another. Behind shared memory there is one host, without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its NQN, as its Connect command said it.
    pub nqn: String,
    /// Its host identifier.
    pub identifier: [u8; 16],
    /// Whether its word on who asks is believed.
    pub identity: Identity,
}

/// What becomes of the uid and the gids in a near-data request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// They are believed.
    #[default]
    Trust,
    /// User 0 becomes this user with this group alone, group 0 this group.
    SquashRoot {
        /// In the place of user 0.
        uid: u32,
        /// In the place of group 0.
        gid: u32,
    },
    /// Whoever asks becomes this user with this group alone.
    SquashAll {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Requests are refused.
    Refuse,
}

/// A controller behind a fabric: fields of Identify Controller that only such have, and what its Connect
/// command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// CNTLID.
    pub cntlid: u16,
    /// A discovery controller.
    pub discovery: bool,
    /// Bytes of data that an I/O command's capsule may carry; a multiple of 16.
    pub in_capsule: u32,
    /// Commands outstanding on one queue at most (MAXCMD).
    pub max_commands: u16,
    /// KATO of the Connect command; 0 never expires.
    pub keep_alive_ms: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            lba_size: 512,
            reactors: 1,
            io_queues: 32,
            queue_entries: 4096,
            vectors: 33,
            mdts: 8,
            write_cache: true,
            serial: "NEARSIDE0".into(),
            model: "Nearside".into(),
            subsystem: "nqn.2026-11.dev.nearside:drive".into(),
            uuid: *b"Nearside\x00\x01\x40\x02\x80\x03\x00\x01",
            host: Host::default(),
            cntlid: 1,
            shared: false,
            port: None,
            namespaces: None,
            shadow_doorbells: false,
            fabric: None,
        }
    }
}

impl Config {
    /// Its controller's identifier.
    pub(crate) fn number(&self) -> u16 {
        self.fabric.as_ref().map_or(self.cntlid, |fabric| fabric.cntlid)
    }

    /// Why it cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bounds = [
            ("reactors", self.reactors as u64, 1, 16),
            ("io_queues", self.io_queues.into(), 1, MAX_QUEUES as u64 - 1),
            ("queue_entries", self.queue_entries.into(), 2, 65536),
            ("vectors", self.vectors.into(), 1, MAX_QUEUES as u64),
            ("mdts", self.mdts.into(), 1, 12),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(format!("{name} is {value}; it can be {least} to {most}"));
            }
        }
        if self.subsystem.len() > 223 {
            return Err("a subsystem NQN has at most 223 bytes".into());
        }
        Ok(())
    }

    /// Whether the controller is attached to that namespace, where it exists.
    pub(crate) fn has(&self, nsid: u32) -> bool {
        self.namespaces.as_ref().is_none_or(|these| these.contains(&nsid))
    }

    /// Whether other hosts may have the controller's namespaces as well, so that they can be reserved, and
    /// whether there may be other ways to them.
    pub(crate) fn has_others(&self) -> bool {
        self.shared || self.fabric.as_ref().is_some_and(|fabric| !fabric.discovery)
    }

    /// Bytes of the largest transfer.
    pub fn max_transfer(&self) -> u64 {
        (PAGE_SIZE as u64) << self.mdts
    }
}
