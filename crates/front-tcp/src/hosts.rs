//! Hosts that are here: each has a place, by which the threads' pools know it, and a bounded number of
//! connections. Who a host is, its name and its identifier say together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Who = (String, [u8; 16]);

#[derive(Default)]
struct Present {
    hosts: HashMap<Who, Host>,
    /// Places that were given back.
    free: Vec<u32>,
    /// Places ever given.
    places: u32,
}

struct Host {
    place: u32,
    connections: usize,
}

/// All of them.
pub(crate) struct Hosts {
    present: Arc<Mutex<Present>>,
    most: usize,
}

/// A connection of a host. Dropped, it counts no more; with its last one, a host is gone.
pub(crate) struct Ticket {
    present: Arc<Mutex<Present>>,
    who: Who,
    place: u32,
}

fn lock(present: &Mutex<Present>) -> MutexGuard<'_, Present> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hosts {
    /// With at most so many connections each.
    pub(crate) fn new(most: usize) -> Hosts {
        Hosts { present: Arc::default(), most }
    }

    /// One more connection of a host; `None`: it has all that it may have.
    pub(crate) fn admit(&self, nqn: &str, identifier: [u8; 16]) -> Option<Ticket> {
        let mut present = lock(&self.present);
        let Present { hosts, free, places } = &mut *present;
        let who = (nqn.to_owned(), identifier);
        let host = hosts.entry(who.clone()).or_insert_with(|| {
            let place = free.pop().unwrap_or_else(|| {
                *places += 1;
                *places - 1
            });
            Host { place, connections: 0 }
        });
        let place = host.place;
        if host.connections >= self.most {
            // Where none may be, none is.
            if host.connections == 0 {
                hosts.remove(&who);
                free.push(place);
            }
            return None;
        }
        host.connections += 1;
        Some(Ticket { present: self.present.clone(), who, place })
    }
}

impl Ticket {
    /// The host's place.
    pub(crate) fn place(&self) -> u32 {
        self.place
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut present = lock(&self.present);
        if let Some(host) = present.hosts.get_mut(&self.who) {
            assert!(host.connections > 0, "a host without connections has lost one");
            host.connections -= 1;
            if host.connections == 0 {
                present.hosts.remove(&self.who);
                present.free.push(self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_its_name_and_its_identifier() {
        let hosts = Hosts::new(2);
        let one = [hosts.admit("a", [1; 16]).unwrap(), hosts.admit("a", [1; 16]).unwrap()];
        assert!(hosts.admit("a", [1; 16]).is_none());
        let (other, third) = (hosts.admit("a", [2; 16]).unwrap(), hosts.admit("b", [1; 16]).unwrap());
        assert_eq!([one[0].place(), one[1].place(), other.place(), third.place()], [0, 0, 1, 2]);
        drop(one);
        // The place of one that is gone is another's.
        assert_eq!(hosts.admit("c", [1; 16]).unwrap().place(), 0);
        assert_eq!((other.place(), lock(&hosts.present).hosts.len()), (1, 2));
    }
}
