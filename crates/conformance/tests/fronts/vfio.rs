//! The front for virtual machines: a PCIe function over vfio-user, with our driver as its client.

use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_conformance::front::{Front, Fronts};
use nearside_device::{Identity, Namespace, Subsystem};
use nearside_driver::{Driver, DriverConfig, Policy, Threaded};
use nearside_embedded::{AnyStore, firmware};
use nearside_front_vfio::{Offer, Server};

use crate::looped::Queues;

/// Drives of this front.
pub struct Vfio {
    /// Bytes of a logical block.
    pub lba_size: u32,
    /// Threads of the function.
    pub threads: usize,
    /// Whether the driver maps the doorbells; else it keeps them in memory and tells of those that the drive
    /// sleeps at.
    pub mapped_doorbells: bool,
    /// Whether the drive has to ask for the driver's memory, queues included, by messages.
    pub by_messages: bool,
}

impl Fronts for Vfio {
    fn start(&self, store: AnyStore) -> Box<dyn Front> {
        let place = tempfile::tempdir().unwrap();
        let subsystem = Subsystem::new();
        let namespace = Namespace::new(store, firmware(), self.lba_size, [7; 16], true).unwrap();
        subsystem.add(1, Arc::new(namespace)).unwrap();
        let offer = Offer {
            threads: self.threads,
            identity: Identity::Trust,
            mapped_doorbells: self.mapped_doorbells,
            ..Offer::new("nqn.2026-11.dev.nearside:slot", "SLOT", subsystem)
        };
        let server = Server::start(offer, &place.path().join("vfio.sock"), TscClock::new()).unwrap();
        let config = DriverConfig { by_messages: self.by_messages, ..DriverConfig::default() };
        let driver = Driver::connect(server.path(), config, TscClock::new()).unwrap();
        Box::new(Queues::new(driver, Threaded, Policy::Hybrid, (server, place)))
    }
}
