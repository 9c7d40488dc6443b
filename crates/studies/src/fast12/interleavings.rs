//! Section 3.5 as a model: both completion paths between a client that wants B after A and a device, checked
//! in every state that it can reach. They are a few dozen, so that visiting them takes no model checker; the
//! tests compare with one (`stateright`), state by state.
//!
//! A and B go by queues of their own. A request is asked for, stands in its queue of requests (asynchronous
//! only), is submitted to the device's queue, taken by the device, and completed; then, or before, the
//! client's call returns. Every step that can be made next can be made first.
//!
//! - Synchronous: the call itself submits, and returns when the request is completed, whatever the interface.
//! - Asynchronous: the call puts the request into its queue; a submission context of that queue submits it. A
//!   blocking call returns when the request is completed, a non-blocking one at once. With a barrier between
//!   the two, B's context waits until A is completed.
//! - The device takes from its queues as it comes to them.

use std::collections::{HashMap, VecDeque};
use std::fmt;

/// What the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    A,
    B,
}
use Request::{A, B};

/// By which path requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Synchronous,
    Asynchronous { barrier: bool },
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    OneThread,
    /// The second thread asks for B; it may wait until the first tells it that its call has returned.
    TwoThreads {
        waits: bool,
    },
}

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub path: Path,
    /// The client's calls are blocking.
    pub blocking: bool,
    pub client: Client,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Explored {
    /// States that can be reached; all were visited.
    pub states: usize,
    /// Both can reach the device in the client's order.
    pub in_order: bool,
    /// How B can reach the device before A, step by step.
    pub overtaken: Option<String>,
    /// Somebody can come to wait for ever.
    pub stuck: bool,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    Wanted,
    Queued,
    Submitted,
    Taken,
    Completed,
}

/// Where everybody is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    stage: [Stage; 2],
    returned: [bool; 2],
    /// The first thread has told the second.
    told: bool,
    /// What the device has taken, in its order.
    arrived: Vec<Request>,
}

/// A step of whoever takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Call(Request),
    Submit(Request),
    Take(Request),
    Complete(Request),
    Return(Request),
    Tell,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(r) => write!(f, "{r:?} is asked for"),
            Step::Submit(r) => write!(f, "{r:?}'s context submits it"),
            Step::Take(r) => write!(f, "the device takes {r:?}"),
            Step::Complete(r) => write!(f, "{r:?} is completed"),
            Step::Return(r) => write!(f, "{r:?}'s call returns"),
            Step::Tell => write!(f, "the first thread tells the second"),
        }
    }
}

impl Case {
    /// Visits every state, nearest first.
    pub fn explore(self) -> Explored {
        let mut found = Explored { states: 0, in_order: false, overtaken: None, stuck: false };
        // How each state was first reached.
        let mut reached = HashMap::from([(State::start(), None)]);
        let mut queue = VecDeque::from([State::start()]);
        while let Some(state) = queue.pop_front() {
            found.in_order |= state.is_in_order();
            if state.is_overtaken() && found.overtaken.is_none() {
                found.overtaken = Some(way(&reached, &state));
            }
            let steps = self.steps(&state);
            found.stuck |= steps.is_empty() && !state.is_at_the_end();
            for step in steps {
                let next = self.after(&state, step);
                if !reached.contains_key(&next) {
                    reached.insert(next.clone(), Some((state.clone(), step)));
                    queue.push_back(next);
                }
            }
        }
        found.states = reached.len();
        found
    }

    /// All steps that can be made next.
    fn steps(self, state: &State) -> Vec<Step> {
        let steps = [Step::Call, Step::Submit, Step::Take, Step::Complete, Step::Return];
        let all = [A, B].into_iter().flat_map(|request| steps.map(|step| step(request)));
        all.chain([Step::Tell]).filter(|step| self.allows(state, *step)).collect()
    }

    fn after(self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::Call(request) => {
                let queued = matches!(self.path, Path::Asynchronous { .. });
                next.stage[request as usize] = if queued { Stage::Queued } else { Stage::Submitted };
            }
            Step::Submit(request) => next.stage[request as usize] = Stage::Submitted,
            Step::Take(request) => {
                next.stage[request as usize] = Stage::Taken;
                next.arrived.push(request);
            }
            Step::Complete(request) => next.stage[request as usize] = Stage::Completed,
            Step::Return(request) => next.returned[request as usize] = true,
            Step::Tell => next.told = true,
        }
        next
    }

    /// Whether a step can be made next.
    fn allows(self, state: &State, step: Step) -> bool {
        let stage = |request: Request| state.stage[request as usize];
        let returned = |request: Request| state.returned[request as usize];
        match step {
            Step::Call(A) => stage(A) == Stage::Wanted,
            Step::Call(B) => {
                stage(B) == Stage::Wanted
                    && match self.client {
                        Client::OneThread => returned(A),
                        Client::TwoThreads { waits } => state.told || !waits,
                    }
            }
            Step::Submit(request) => {
                let held = request == B && self.path == Path::Asynchronous { barrier: true };
                stage(request) == Stage::Queued && (!held || stage(A) == Stage::Completed)
            }
            Step::Take(request) => stage(request) == Stage::Submitted,
            Step::Complete(request) => stage(request) == Stage::Taken,
            Step::Return(request) => {
                let waits = self.blocking || self.path == Path::Synchronous;
                let from = if waits { Stage::Completed } else { Stage::Queued };
                !returned(request) && stage(request) >= from
            }
            Step::Tell => matches!(self.client, Client::TwoThreads { .. }) && returned(A) && !state.told,
        }
    }
}

impl State {
    fn start() -> State {
        State { stage: [Stage::Wanted; 2], returned: [false; 2], told: false, arrived: Vec::new() }
    }

    fn is_in_order(&self) -> bool {
        self.arrived == [A, B]
    }

    fn is_overtaken(&self) -> bool {
        self.arrived.first() == Some(&B)
    }

    fn is_at_the_end(&self) -> bool {
        self.returned == [true; 2] && self.stage == [Stage::Completed; 2]
    }
}

/// The steps that lead to a state, in words.
fn way(reached: &HashMap<State, Option<(State, Step)>>, to: &State) -> String {
    let mut steps = Vec::new();
    let mut state = to;
    while let Some(Some((before, step))) = reached.get(state) {
        steps.push(step.to_string());
        state = before;
    }
    steps.reverse();
    steps.join("; ")
}

#[cfg(test)]
mod tests {
    use stateright::{Checker, Model, Property};

    use super::*;

    const IN_ORDER: &str = "the device takes A, then B";
    const NOT_OVERTAKEN: &str = "B reaches the device after A";
    const NOT_STUCK: &str = "nobody waits for ever";

    impl Model for Case {
        type State = State;
        type Action = Step;

        fn init_states(&self) -> Vec<State> {
            vec![State::start()]
        }

        fn actions(&self, state: &State, actions: &mut Vec<Step>) {
            actions.extend(self.steps(state));
        }

        fn next_state(&self, state: &State, step: Step) -> Option<State> {
            Some(self.after(state, step))
        }

        fn properties(&self) -> Vec<Property<Self>> {
            vec![
                Property::sometimes(IN_ORDER, |_, state: &State| state.is_in_order()),
                Property::always(NOT_OVERTAKEN, |_, state: &State| !state.is_overtaken()),
                Property::always(NOT_STUCK, |case: &Case, state: &State| {
                    !case.steps(state).is_empty() || state.is_at_the_end()
                }),
                // Never decided before the last state.
                Property::always("every state is visited", |_, _| true),
            ]
        }
    }

    const ONE: Client = Client::OneThread;
    const TWO: Client = Client::TwoThreads { waits: true };
    const ASYNCHRONOUS: Path = Path::Asynchronous { barrier: false };

    fn overtaken(path: Path, blocking: bool, client: Client) -> Option<String> {
        let case = Case { path, blocking, client };
        let found = case.explore();
        let checker = case.checker().spawn_bfs().join();
        let said = (checker.discovery(IN_ORDER).is_some(), checker.discovery(NOT_STUCK).is_some());
        assert_eq!((found.in_order, found.stuck), said, "{case:?}");
        assert_eq!(found.states, checker.unique_state_count(), "{case:?}");
        // Its way leads to some state in which it has happened, ours to the nearest.
        let theirs = checker.discovery(NOT_OVERTAKEN).map(|path| path.into_actions().len());
        let ours = found.overtaken.as_ref().map(|way| way.split("; ").count());
        assert!(ours.is_some() == theirs.is_some() && ours <= theirs, "{case:?}: {ours:?} and {theirs:?}");
        assert!(found.in_order && !found.stuck, "{case:?}: {found:?}");
        // Of a straight line of steps there are no more than it is long.
        assert!(found.states > 8, "{case:?}: {found:?}");
        found.overtaken
    }

    #[test]
    fn synchronous_completion_keeps_the_clients_order() {
        for (blocking, client) in [(true, ONE), (false, ONE), (true, TWO), (false, TWO)] {
            assert_eq!(overtaken(Path::Synchronous, blocking, client), None);
        }
    }

    #[test]
    fn threads_that_do_not_wait_have_no_order() {
        let alone = Client::TwoThreads { waits: false };
        let how = overtaken(Path::Synchronous, true, alone).expect("B can overtake A");
        assert!(how.ends_with("B is asked for; the device takes B") && !how.contains("takes A"), "{how}");
    }

    #[test]
    fn asynchronous_completion_keeps_it_only_for_who_waits_for_the_result() {
        for client in [ONE, TWO] {
            assert_eq!(overtaken(ASYNCHRONOUS, true, client), None);
            let how = overtaken(ASYNCHRONOUS, false, client).expect("B can overtake A");
            let mut last = 0;
            for step in ["A is asked for", "A's call returns", "B is asked for", "the device takes B"] {
                let at = how.find(step).unwrap_or_else(|| panic!("no {step:?} in {how}"));
                assert!(at >= last, "{how}");
                last = at;
            }
            assert!(!how.contains("takes A"), "{how}");
        }
    }

    #[test]
    fn a_barrier_keeps_it() {
        for (blocking, client) in [(true, ONE), (false, ONE), (true, TWO), (false, TWO)] {
            assert_eq!(overtaken(Path::Asynchronous { barrier: true }, blocking, client), None);
        }
    }
}
