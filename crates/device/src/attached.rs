//! The namespaces that a reactor has a way into. A namespace that goes leaves its place once its last command
//! here has ended.

use std::io;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_spec::Status;
use nearside_store::{Data, Operation, Store, Submitted, Token};

use crate::firmware::{Firmware, Seat, Worker};
use crate::io::Limits;
use crate::namespace::{Access, Namespace};
use crate::reservation::Standing;
use crate::shared::ControllerShared;
use crate::throttle::{Account, Gate};
use crate::traffic::OpenMeter;

/// A reactor's way into a namespace.
pub(crate) struct Attached<S: Store, F: Firmware<S>> {
    pub(crate) nsid: u32,
    pub(crate) access: Access<S, F>,
    pub(crate) worker: F::Worker,
    pub(crate) limits: Limits,
    pub(crate) meter: OpenMeter,
    /// What its commands pass, where they have a quota.
    pub(crate) gate: Option<Box<Gate>>,
    /// What its near-data commands' time is taken from.
    pub(crate) account: Arc<Account>,
    /// What the host may do, and under which reservation and by which name.
    pub(crate) standing: ((u64, u32), Standing),
    /// What its commands are answered, where the host does not reach the namespace by its port.
    pub(crate) barred: Option<Status>,
    /// The namespace has been removed: no new commands.
    pub(crate) removed: bool,
}

impl<S: Store, F: Firmware<S>> Attached<S, F> {
    pub(crate) fn new(
        nsid: u32,
        namespace: &Arc<Namespace<S, F>>,
        shared: &ControllerShared<S, F>,
        reactor: usize,
    ) -> io::Result<Attached<S, F>> {
        let (memory, wakeup) = (&shared.function.memory, &shared.function.wakeup);
        let config = &shared.config;
        let namespaces = config.namespaces.as_ref();
        let seat = Seat { memory, wakeup, host: &config.host, namespaces, reactor };
        // Before the namespace's length is looked at: who changes that finds the meter, or was there before.
        let meter = shared.subsystem.ledger().open(nsid, &config.host.nqn);
        let blocks = namespace.blocks();
        meter.is_within(blocks);
        let of = shared.subsystem.buckets(nsid, &config.host.nqn);
        Ok(Attached {
            nsid,
            access: namespace.access(memory.clone())?,
            worker: F::worker(namespace, &seat)?,
            limits: Limits {
                command_set: namespace.command_set(),
                blocks,
                lba_shift: namespace.lba_shift(),
                max_transfer: config.max_transfer(),
                near_data: namespace.observer().is_present(),
                read_only: namespace.read_only(),
                shared: config.has_others(),
                fabric: config.fabric.is_some(),
            },
            account: Account::of(&of, meter.share()),
            gate: (!of.is_empty()).then(|| Box::new(Gate::new(of))),
            meter,
            standing: Default::default(),
            barred: shared.bars(nsid),
            removed: false,
        })
    }

    /// The byte behind its last block.
    pub(crate) fn end(&self) -> u64 {
        self.limits.blocks << self.limits.lba_shift
    }

    /// Hands an operation to the store. Where the command entered its range was checked; the store checks it
    /// by rules of its own, but knows neither where the namespace ends nor whether that may be written.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        operation: Operation,
        data: Data<'_>,
        token: Token,
        now: Nanos,
    ) -> Submitted {
        assert!(self.limits.allow(&operation), "{operation:?} is not for namespace {}", self.nsid);
        self.access.submit(operation, data, token, now)
    }
}

/// What a reactor is attached to, by places that commands in flight name.
pub(crate) struct Attachments<S: Store, F: Firmware<S>> {
    places: Vec<Option<Box<Attached<S, F>>>>,
    /// For each namespace identifier its place.
    by_nsid: Vec<Option<u16>>,
    /// How many are gone and still have their place.
    pub(crate) leaving: usize,
}

impl<S: Store, F: Firmware<S>> Attachments<S, F> {
    pub(crate) const fn new() -> Self {
        Attachments { places: Vec::new(), by_nsid: Vec::new(), leaving: 0 }
    }

    /// The place of a namespace.
    #[inline]
    pub(crate) fn find(&self, nsid: u32) -> Option<usize> {
        self.by_nsid.get(nsid as usize).copied().flatten().map(usize::from)
    }

    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&Attached<S, F>> {
        self.places.get(place)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Attached<S, F>> {
        self.places.get_mut(place)?.as_deref_mut()
    }

    /// Panics where a command names a place that it does not hold.
    #[inline]
    pub(crate) fn at(&mut self, place: usize) -> &mut Attached<S, F> {
        match self.get_mut(place) {
            Some(attached) => attached,
            None => panic!("no namespace at place {place}"),
        }
    }

    pub(crate) fn insert(&mut self, attached: Attached<S, F>) -> usize {
        let nsid = attached.nsid as usize;
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(Box::new(attached));
        if self.by_nsid.len() <= nsid {
            self.by_nsid.resize(nsid + 1, None);
        }
        self.by_nsid[nsid] = u16::try_from(place).ok();
        place
    }

    /// No new commands find it.
    pub(crate) fn leave(&mut self, place: usize) {
        let attached = self.at(place);
        attached.removed = true;
        let nsid = attached.nsid as usize;
        self.by_nsid[nsid] = None;
        self.leaving += 1;
    }

    /// Gives the places of those that left and that nobody `uses` to others.
    pub(crate) fn remove_drained(&mut self, uses: impl Fn(usize) -> bool) -> usize {
        let mut cleared = 0;
        for (place, attached) in self.places.iter_mut().enumerate() {
            if attached
                .as_ref()
                .is_some_and(|a| a.removed && a.access.in_flight() + a.worker.in_flight() == 0)
                && !uses(place)
            {
                *attached = None;
                cleared += 1;
            }
        }
        assert!(cleared <= self.leaving, "{cleared} namespaces cleared out, {} were leaving", self.leaving);
        self.leaving -= cleared;
        cleared
    }

    /// All that are not gone, by place.
    pub(crate) fn present(&self) -> impl Iterator<Item = usize> {
        let gone = |a: &Option<Box<Attached<S, F>>>| a.as_ref().is_none_or(|a| a.removed);
        self.places.iter().enumerate().filter(move |(_, a)| !gone(a)).map(|(place, _)| place)
    }

    /// Those whose commands wait, by place.
    pub(crate) fn gated(&self) -> impl Iterator<Item = usize> {
        let waits = |a: &Attached<S, F>| a.gate.as_ref().is_some_and(|gate| gate.held() > 0);
        let places = self.places.iter().enumerate();
        places.filter(move |(_, a)| a.as_deref().is_some_and(waits)).map(|(place, _)| place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Attached<S, F>> {
        self.places.iter().filter_map(Option::as_deref)
    }

    /// How many places there are, taken or not.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Attached<S, F>> {
        self.places.iter_mut().filter_map(Option::as_deref_mut)
    }
}

#[cfg(test)]
mod tests {
    use nearside_store::Dram;

    use super::*;
    use crate::{Config, Controller};

    /// Submits an operation of a namespace of 1 MiB past all checks of commands.
    fn submit(read_only: bool, operation: Operation) {
        let config = Config { lba_size: 512, ..Config::default() };
        let (mut controller, _) = Controller::alone(Dram::new(1 << 20, 512).unwrap(), (), config).unwrap();
        let attached = controller.reactors[0].attached.at(0);
        attached.limits.read_only = read_only;
        let _ = attached.submit(operation, Data::None, Token(0), Nanos(0));
    }

    #[test]
    fn what_lies_within_the_namespace_reaches_the_store() {
        submit(false, Operation::Deallocate { offset: (1 << 20) - 512, len: 512 });
        submit(true, Operation::Flush);
    }

    #[test]
    #[should_panic(expected = "is not for namespace 1")]
    fn nothing_behind_the_namespace_reaches_the_store() {
        submit(false, Operation::Read { offset: 1 << 20, len: 512 });
    }

    #[test]
    #[should_panic(expected = "is not for namespace 1")]
    fn no_write_reaches_the_store_of_a_read_only_namespace() {
        submit(true, Operation::WriteZeroes { offset: 0, len: 512, fua: false });
    }
}
