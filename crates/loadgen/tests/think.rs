//! Think time in simulated time: when operations start, and what their response times say.

use std::cell::RefCell;
use std::rc::Rc;

use nearside_clock::{Clock, Nanos, SimClock};
use nearside_loadgen::engine::null::Null;
use nearside_loadgen::run::simulated;
use nearside_loadgen::{Arrivals, Plan, PlanError, Rw, Think, Trigger, Workload};

const SERVICE: u64 = 100;
const THINK: u64 = 10_000;

/// When each of `count` operations was submitted, in nanoseconds; the longest response time.
fn starts(depth: u32, blocks: u32, trigger: Trigger, count: u64) -> (Vec<u64>, u64) {
    let starts = Rc::new(RefCell::new(Vec::new()));
    let seen = starts.clone();
    let mut engine = Null::with_service(64, move |_, now| {
        seen.borrow_mut().push(now.0);
        now + SERVICE
    });
    let think = Some(Think { time_ns: THINK, spin_ns: 0, blocks, trigger });
    let workload = Workload { think, ..Workload::new(Rw::Read, 4096, 1 << 20) };
    let mut plan = Plan::new(workload, Arrivals::Closed { depth }, 0);
    (plan.runtime_ns, plan.count) = (None, Some(count));
    let clock = SimClock::new();
    let began = clock.now().0;
    let outcome = simulated(&plan, &mut engine, &clock).unwrap();
    assert_eq!(outcome.both().response.count(), count);
    let starts = starts.borrow().iter().map(|at| at - began).collect();
    (starts, outcome.both().response.max_ns())
}

#[test]
fn the_next_operations_are_due_when_the_pause_is_over() {
    let (starts, longest) = starts(1, 2, Trigger::Complete, 5);
    // Two one after the other, then a pause from when the second has ended.
    let pair = 2 * SERVICE + THINK;
    assert_eq!(starts, [0, SERVICE, pair, pair + SERVICE, 2 * pair]);
    assert_eq!(longest, SERVICE, "nobody waits while there is thinking");
}

#[test]
fn all_in_flight_end_before_a_pause() {
    // Four start at once; the first that ends asks for a pause, and the other three count for the next ones:
    // from then on there is one at a time, as with fio.
    let (starts, longest) = starts(4, 1, Trigger::Complete, 7);
    let round = SERVICE + THINK;
    assert_eq!(starts, [0, 0, 0, 0, round, 2 * round, 3 * round]);
    assert_eq!(longest, SERVICE);
}

#[test]
fn started_operations_may_count_instead() {
    let (starts, _) = starts(4, 3, Trigger::Issue, 7);
    let round = SERVICE + THINK;
    assert_eq!(starts, [0, 0, 0, round, round, round, 2 * round]);
}

/// Pauses as fio 3.33 made them: 40 reads of a file by libaio took so many times the think time of 20 ms, and
/// some time for the reads. Here they are counted.
#[test]
fn as_many_pauses_as_fio_makes() {
    for (depth, blocks, trigger, fios) in [
        (1, 1, Trigger::Complete, 39),
        (1, 2, Trigger::Complete, 19),
        (1, 8, Trigger::Complete, 4),
        (4, 1, Trigger::Complete, 36),
        (4, 1, Trigger::Issue, 39),
        (4, 2, Trigger::Issue, 19),
        (4, 3, Trigger::Issue, 13),
        (4, 8, Trigger::Issue, 4),
    ] {
        let (starts, _) = starts(depth, blocks, trigger, 40);
        let pauses = starts.windows(2).filter(|pair| pair[1] - pair[0] >= THINK).count();
        assert_eq!(pauses, fios, "depth {depth}, blocks {blocks}, {trigger:?}");
    }
}

#[test]
fn an_open_loop_has_nobody_who_thinks() {
    let wrong = |think: Think, arrivals: Arrivals| {
        let workload = Workload { think: Some(think), ..Workload::new(Rw::Read, 4096, 1 << 20) };
        let plan = Plan::new(workload, arrivals, 1_000_000);
        let error = nearside_loadgen::Generator::new(&plan, 4, Nanos(0)).err();
        matches!(error, Some(PlanError::Think { .. }))
    };
    let think = Think { time_ns: 10, spin_ns: 10, blocks: 1, trigger: Trigger::Complete };
    let closed = Arrivals::Closed { depth: 1 };
    assert!(!wrong(think, closed));
    assert!(wrong(think, Arrivals::Constant { rate: 1e3 }) && wrong(think, Arrivals::Poisson { rate: 1e3 }));
    assert!(wrong(Think { blocks: 0, ..think }, closed) && wrong(Think { spin_ns: 11, ..think }, closed));
}

#[test]
fn spinning_comes_first() {
    let think = Some(Think { time_ns: THINK, spin_ns: 4_000, blocks: 1, trigger: Trigger::Complete });
    let workload = Workload { think, ..Workload::new(Rw::Read, 4096, 1 << 20) };
    let plan = Plan::new(workload, Arrivals::Closed { depth: 1 }, 1_000_000);
    let mut generator = nearside_loadgen::Generator::new(&plan, 1, Nanos(0)).unwrap();
    let mut engine = Null::with_service(1, |_, now| now + SERVICE);
    generator.step(Nanos(0), &mut engine);
    assert_eq!(generator.spins_until(), Nanos(0));
    generator.step(Nanos(SERVICE), &mut engine);
    assert_eq!(generator.spins_until(), Nanos(SERVICE + 4_000));
}
