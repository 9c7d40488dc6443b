//! The namespaces that a reactor has a way into. A namespace that goes leaves its place once its last command here has ended.

use std::io;
use std::sync::Arc;

use nearside_store::Store;

use crate::firmware::{Firmware, Seat, Worker};
use crate::io::Limits;
use crate::namespace::{Access, Namespace};
use crate::shared::Shared;

/// A reactor's way into a namespace.
pub(crate) struct Attached<S: Store, F: Firmware<S>> {
    pub(crate) nsid: u32,
    pub(crate) access: Access<S, F>,
    pub(crate) worker: F::Worker,
    pub(crate) limits: Limits,
    /// The namespace has been removed: no new commands.
    pub(crate) gone: bool,
}

impl<S: Store, F: Firmware<S>> Attached<S, F> {
    pub(crate) fn new(
        nsid: u32,
        namespace: &Arc<Namespace<S, F>>,
        shared: &Shared<S, F>,
        reactor: usize,
    ) -> io::Result<Attached<S, F>> {
        let (memory, wakeup) = (&shared.function.memory, &shared.function.wakeup);
        let config = &shared.config;
        let seat = Seat { memory, wakeup, host: &config.host, reactor };
        Ok(Attached {
            nsid,
            access: namespace.access(memory.clone())?,
            worker: F::worker(namespace, &seat)?,
            limits: Limits {
                blocks: namespace.blocks(),
                lba_shift: namespace.lba_shift(),
                max_transfer: config.max_transfer(),
                near_data: namespace.observer().is_present(),
                read_only: namespace.read_only(),
                fabric: config.fabric.is_some(),
            },
            gone: false,
        })
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
        attached.gone = true;
        let nsid = attached.nsid as usize;
        self.by_nsid[nsid] = None;
        self.leaving += 1;
    }

    /// Gives the places of those that left and that nobody `uses` to others.
    pub(crate) fn clear_out(&mut self, uses: impl Fn(usize) -> bool) -> usize {
        let mut cleared = 0;
        for (place, attached) in self.places.iter_mut().enumerate() {
            if attached.as_ref().is_some_and(|a| a.gone && a.access.in_flight() + a.worker.in_flight() == 0)
                && !uses(place)
            {
                *attached = None;
                cleared += 1;
            }
        }
        self.leaving -= cleared;
        cleared
    }

    /// All that are not gone, by place.
    pub(crate) fn present(&self) -> impl Iterator<Item = usize> {
        let gone = |a: &Option<Box<Attached<S, F>>>| a.as_ref().is_none_or(|a| a.gone);
        self.places.iter().enumerate().filter(move |(_, a)| !gone(a)).map(|(place, _)| place)
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
