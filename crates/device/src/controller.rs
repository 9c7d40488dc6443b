//! A controller: its function, and the reactors that work for it.

use std::io;
use std::sync::{Arc, Mutex};

use nearside_dma::{Function, Memory, REGISTERS_SIZE, Region, Vector, Wakeup};
use nearside_store::Store;

use crate::config::Config;
use crate::firmware::Firmware;
use crate::namespace::Namespace;
use crate::reactor::Reactor;
use crate::shared::{Counters, ErrorLog, Interrupts, Mailbox, Shared};

/// A controller with one namespace. Its reactors go to a runner ([`crate::runner`]), its function to a front.
pub struct Controller<S: Store, F: Firmware<S> = ()> {
    /// What the host sees.
    pub function: Function,
    /// What works; the first does the registers and admin commands as well.
    pub reactors: Vec<Reactor<S, F>>,
    /// The namespace.
    pub namespace: Arc<Namespace<S, F>>,
}

impl<S: Store, F: Firmware<S>> Controller<S, F> {
    /// A controller over a store, with its firmware (`()`: none). The memory table is empty: the host maps its memory.
    pub fn new(store: S, firmware: F, config: Config) -> io::Result<Self> {
        config.check().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let shared = config.reactors > 1;
        let namespace = Arc::new(Namespace::new(store, firmware, config.lba_size, config.uuid, shared)?);
        let vectors: io::Result<Vec<Vector>> = (0..config.vectors).map(|_| Vector::new()).collect();
        let function = Function {
            registers: Arc::new(Region::shared("nearside-registers", REGISTERS_SIZE)?),
            memory: Arc::new(Memory::new()),
            vectors: vectors?.into(),
            wakeup: Arc::new(Wakeup::for_sleepers(config.reactors)?),
        };
        let shared = Arc::new(Shared {
            namespace: namespace.clone(),
            function: function.clone(),
            mailboxes: (0..config.reactors).map(|_| Mailbox::default()).collect(),
            interrupts: Interrupts::default(),
            errors: Mutex::new(ErrorLog::default()),
            counters: (0..config.reactors).map(|_| Counters::default()).collect(),
            write_through: (!config.write_cache).into(),
            config,
        });
        let reactors = (0..shared.config.reactors).map(|id| Reactor::new(id, shared.clone()));
        Ok(Controller { function, reactors: reactors.collect::<io::Result<_>>()?, namespace })
    }
}
