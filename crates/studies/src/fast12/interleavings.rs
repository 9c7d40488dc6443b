//! Section 3.5 as a model: both completion paths between a client and a device with two queues, explored in every order of their steps.
//!
//! Whoever takes part is a straight line of [`Step`]s; a state is how far each has come, which flags are set and what has arrived. All states
//! that can be reached are visited. A goes by the first queue, B by the second.
//!
//! - Synchronous: a call puts the command into its queue and waits for the completion, whatever the interface.
//! - Asynchronous: a call puts a request into its request queue; a submission context of that queue sends it. A blocking caller waits for the
//!   completion, a non-blocking one goes on.
//! - The device takes from its queues as it comes to them.

use std::collections::{BTreeSet, HashSet};

/// What can be waited for, by queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Flag {
    Requested,
    Submitted,
    Completed,
    /// The first thread has returned from its call (the client's own; one for both queues).
    Returned,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(Flag, usize),
    Wait(Flag, usize),
    /// The command of this queue reaches the device.
    Arrive(usize),
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Completion is synchronous.
    pub synchronous: bool,
    /// The client's calls are blocking.
    pub blocking: bool,
    /// One thread asks for both, or one for each.
    pub threads: usize,
    /// With two threads: the second one waits until the first has returned from its call.
    pub waits: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// The orders in which A and B can reach the device.
    pub orders: BTreeSet<String>,
    /// States that were visited.
    pub states: usize,
    /// States in which nobody can go on, though not all are at their end.
    pub stuck: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    at: Vec<usize>,
    flags: u8,
    arrived: Vec<usize>,
}

fn bit(flag: Flag, queue: usize) -> u8 {
    1 << (2 * flag as u8 + queue as u8)
}

impl Case {
    fn call(self, queue: usize) -> Vec<Step> {
        let first = if self.synchronous { Flag::Submitted } else { Flag::Requested };
        let mut steps = vec![Step::Set(first, queue)];
        if self.synchronous || self.blocking {
            steps.push(Step::Wait(Flag::Completed, queue));
        }
        steps
    }

    fn parties(self) -> Vec<Vec<Step>> {
        let mut parties = Vec::new();
        if self.threads == 1 {
            parties.push([self.call(0), self.call(1)].concat());
        } else {
            let mut second = if self.waits { vec![Step::Wait(Flag::Returned, 0)] } else { vec![] };
            second.extend(self.call(1));
            parties.extend([[self.call(0), vec![Step::Set(Flag::Returned, 0)]].concat(), second]);
        }
        for queue in 0..2 {
            if !self.synchronous {
                parties.push(vec![Step::Wait(Flag::Requested, queue), Step::Set(Flag::Submitted, queue)]);
            }
            let serve =
                [Step::Wait(Flag::Submitted, queue), Step::Arrive(queue), Step::Set(Flag::Completed, queue)];
            parties.push(serve.to_vec());
        }
        parties
    }

    /// Visits every state.
    pub fn explore(self) -> Explored {
        let parties = self.parties();
        let mut found = Explored::default();
        let start = State { at: vec![0; parties.len()], flags: 0, arrived: Vec::new() };
        let mut seen = HashSet::from([start.clone()]);
        let mut left = vec![start];
        while let Some(state) = left.pop() {
            let mut moved = false;
            for (party, steps) in parties.iter().enumerate() {
                let Some(step) = steps.get(state.at[party]) else { continue };
                let mut next = state.clone();
                next.at[party] += 1;
                match *step {
                    Step::Wait(flag, queue) if state.flags & bit(flag, queue) == 0 => continue,
                    Step::Wait(..) => {}
                    Step::Set(flag, queue) => next.flags |= bit(flag, queue),
                    Step::Arrive(queue) => next.arrived.push(queue),
                }
                moved = true;
                if seen.insert(next.clone()) {
                    left.push(next);
                }
            }
            if !moved {
                let ended = parties.iter().zip(&state.at).all(|(steps, at)| *at == steps.len());
                found.stuck += usize::from(!ended);
                found.orders.insert(state.arrived.iter().map(|queue| ['A', 'B'][*queue]).collect());
            }
        }
        found.states = seen.len();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(synchronous: bool, blocking: bool, threads: usize, waits: bool) -> Vec<String> {
        let found = Case { synchronous, blocking, threads, waits }.explore();
        assert_eq!(found.stuck, 0);
        assert!(found.states > 5, "{found:?}");
        found.orders.into_iter().collect()
    }

    #[test]
    fn synchronous_completion_keeps_the_clients_order() {
        for (blocking, threads) in [(true, 1), (false, 1), (true, 2), (false, 2)] {
            assert_eq!(orders(true, blocking, threads, true), ["AB"]);
        }
    }

    #[test]
    fn threads_that_do_not_wait_have_no_order() {
        assert_eq!(orders(true, true, 2, false), ["AB", "BA"]);
    }

    #[test]
    fn asynchronous_completion_keeps_it_only_for_who_waits_for_the_result() {
        assert_eq!(orders(false, true, 1, true), ["AB"]);
        assert_eq!(orders(false, true, 2, true), ["AB"]);
        assert_eq!(orders(false, false, 1, true), ["AB", "BA"]);
        assert_eq!(orders(false, false, 2, true), ["AB", "BA"]);
    }
}
