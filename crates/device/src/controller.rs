//! A controller: its function, and the reactors that work for it.

use std::io;
use std::sync::{Arc, Mutex};

use nearside_dma::{Function, Memory, REGISTERS_SIZE, Region, Vector, Wakeup};
use nearside_store::Store;

use crate::config::Config;
use crate::firmware::Firmware;
use crate::namespace::Namespace;
use crate::reactor::Reactor;
use crate::shared::{ControllerShared, Counters, ErrorLog, Interrupts, Mailbox};
use crate::subsystem::Subsystem;

/// A controller of a subsystem. Its reactors go to a runner ([`crate::runner`]), its function to a front.
pub struct Controller<S: Store, F: Firmware<S> = ()> {
    /// What the host sees.
    pub function: Function,
    /// What works; the first does the registers and admin commands as well.
    pub reactors: Vec<Reactor<S, F>>,
}

impl<S: Store, F: Firmware<S>> Controller<S, F> {
    /// A controller alone in its subsystem, whose namespace 1 lies in a store with its firmware (`()`: none).
    /// The memory table is empty: the host maps its memory.
    ///
    /// # Errors
    /// `InvalidInput` where `config` or the block sizes are wrong; else the system's or the store's.
    pub fn alone(store: S, firmware: F, config: Config) -> io::Result<(Self, Arc<Namespace<S, F>>)> {
        config.check().map_err(invalid)?;
        let shared = config.reactors > 1;
        let namespace = Namespace::new(store, firmware, config.lba_size, config.uuid, shared)?;
        let namespace = Arc::new(namespace);
        let subsystem = Subsystem::new();
        subsystem.add(1, namespace.clone()).map_err(|e| invalid(e.to_string()))?;
        let wakeup = Arc::new(Wakeup::for_sleepers(config.reactors)?);
        let mut controller = Controller::of(&subsystem, config, wakeup)?;
        for reactor in &mut controller.reactors {
            reactor.attach(1)?;
        }
        Ok((controller, namespace))
    }

    /// A controller of a subsystem; `wakeup` has a sleeper for whoever runs each of its reactors. Its ways
    /// into the stores are made when commands first name the namespaces.
    ///
    /// # Errors
    /// `InvalidInput` where `config` is wrong; else the system's: no memory for the registers, no
    /// descriptors for the interrupts.
    pub fn of(
        subsystem: &Arc<Subsystem<S, F>>,
        config: Config,
        wakeup: Arc<Wakeup>,
    ) -> io::Result<Controller<S, F>> {
        config.check().map_err(invalid)?;
        let (registers, vectors) = match config.fabric {
            Some(_) => (Region::anonymous(REGISTERS_SIZE)?, 0),
            None => (Region::shared("nearside-registers", REGISTERS_SIZE)?, config.vectors),
        };
        let vectors: io::Result<Vec<Vector>> = (0..vectors).map(|_| Vector::new()).collect();
        let function = Function {
            registers: Arc::new(registers),
            memory: Arc::new(Memory::new()),
            vectors: vectors?.into(),
            wakeup,
        };
        let shared = Arc::new(ControllerShared {
            subsystem: subsystem.clone(),
            function: function.clone(),
            mailboxes: (0..config.reactors).map(|_| Mailbox::default()).collect(),
            interrupts: Interrupts::default(),
            errors: Mutex::new(ErrorLog::default()),
            counters: (0..config.reactors).map(|_| Counters::default()).collect(),
            write_through: (!config.write_cache).into(),
            command_sets: false.into(),
            shadow: Mutex::default(),
            shadow_set: 0.into(),
            host_id: Mutex::new(config.host.identifier),
            named: 0.into(),
            config,
        });
        subsystem.join(&shared);
        let reactors = (0..shared.config.reactors).map(|id| Reactor::new(id, shared.clone())).collect();
        Ok(Controller { function, reactors })
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
