//! The generator in simulated time: what it must hold whatever the engine does.

use nearside_clock::{Clock, Nanos, SimClock};
use nearside_loadgen::cost::GeneratorCost;
use nearside_loadgen::engine::null::Null;
use nearside_loadgen::engine::{Done, Engine, Failure, Io, Next, Submit};
use nearside_loadgen::record::Environment;
use nearside_loadgen::run::{Pace, SimError, real, simulated};
use nearside_loadgen::{
    Arrivals, Generator, Outcome, Plan, PlanError, Rw, Stream, Summary, Wake, Workload, WorkloadError,
};

const SECOND: u64 = 1_000_000_000;

fn reads(arrivals: Arrivals) -> Plan {
    Plan::new(Workload::new(Rw::RandRead, 4096, 1 << 30), arrivals, SECOND)
}

fn run(plan: &Plan, engine: &mut impl Engine) -> Outcome {
    simulated(plan, engine, &SimClock::new()).unwrap()
}

fn fixed(depth: usize, ns: u64) -> Null {
    Null::with_service(depth, move |_, now| now + ns)
}

#[test]
fn an_open_loop_offers_its_rate_and_takes_times_from_when_operations_were_due() {
    for arrivals in [Arrivals::Constant { rate: 10_000.0 }, Arrivals::Poisson { rate: 10_000.0 }] {
        let outcome = run(&reads(arrivals), &mut fixed(1024, 50_000));
        let stream = &outcome.streams[0];
        // A Poisson count's standard deviation is 100.
        let slack = if matches!(arrivals, Arrivals::Poisson { .. }) { 500 } else { 1 };
        assert!(stream.offered.abs_diff(10_000) <= slack, "{}", stream.offered);
        let both = outcome.both();
        assert_eq!(both.response.count(), stream.offered);
        assert_eq!((stream.late, stream.queued, stream.unsent, stream.errors), (0, 0, 0, 0));
        assert!(both.response.percentile(100.0).ns.abs_diff(50_000) <= 50, "three digits");
        assert_eq!(both.bytes, stream.offered * 4096);
        assert_eq!(outcome.window_ns(), SECOND);
    }
}

#[test]
fn what_waits_for_the_engine_counts_from_when_it_was_due() {
    // One at a time, each 150 us, offered every 100 us: the n-th waits n times 50 us.
    let mut plan = reads(Arrivals::Constant { rate: 10_000.0 });
    plan.drain_ns = 10 * SECOND;
    let outcome = run(&plan, &mut fixed(1, 150_000));
    let (stream, both) = (&outcome.streams[0], outcome.both());
    assert_eq!(both.response.count(), 9_999, "none is skipped");
    let longest = 9_998 * 50_000 + 150_000u64;
    assert!(both.response.max_ns().abs_diff(longest) < longest / 500, "{}", both.response.max_ns());
    let middle = both.response.percentile(50.0).ns;
    assert!(middle.abs_diff(longest / 2) < longest / 500, "{middle}");
    assert!(both.service.max_ns().abs_diff(150_000) < 200, "the device's own time stays apart");
    assert_eq!((stream.queued, stream.late), (9_998, 0));
    assert!(outcome.throughput() < 6_700.0 && outcome.offered() > 9_990.0);
}

#[test]
fn a_number_of_operations_is_kept_where_several_are_due_at_once() {
    let mut plan = reads(Arrivals::Closed { depth: 4 });
    (plan.runtime_ns, plan.count) = (None, Some(10));
    let outcome = run(&plan, &mut fixed(4, 1_000));
    assert_eq!((outcome.streams[0].offered, outcome.both().response.count()), (10, 10));
}

#[test]
fn a_number_of_operations_that_is_sent_late_shows_what_was_offered_and_what_was_carried() {
    let mut plan = reads(Arrivals::Constant { rate: 10_000.0 });
    (plan.runtime_ns, plan.count) = (None, Some(1_000));
    let outcome = run(&plan, &mut fixed(1, 200_000));
    assert!((outcome.offered() - 10_000.0).abs() < 50.0, "{}", outcome.offered());
    assert!((outcome.throughput() - 5_000.0).abs() < 50.0, "{}", outcome.throughput());
}

#[test]
fn what_was_never_sent_is_counted_with_what_it_waited() {
    let mut plan = reads(Arrivals::Constant { rate: 10_000.0 });
    plan.drain_ns = SECOND / 10;
    let outcome = run(&plan, &mut fixed(1, 1_000_000));
    let stream = &outcome.streams[0];
    assert_eq!(stream.offered, 9_999);
    assert_eq!(outcome.both().response.count(), 9_999);
    assert!(stream.unsent.abs_diff(9_999 - 1_100) < 5, "{}", stream.unsent);
    assert!(outcome.ended.0 < 12 * SECOND / 10);
}

#[test]
fn what_ends_after_the_window_makes_one_slice_however_late() {
    let mut plan = reads(Arrivals::Constant { rate: 10_000.0 });
    (plan.runtime_ns, plan.slice_ns) = (Some(SECOND / 1000), SECOND / 200_000);
    let outcome = run(&plan, &mut fixed(1024, SECOND / 2));
    let slices = &outcome.streams[0].slices;
    assert_eq!(slices.len(), 201, "each takes 200 KB");
    assert_eq!(slices[200].count(), outcome.both().response.count());
}

#[test]
fn service_times_have_slices_of_their_own_where_they_are_asked_for() {
    // One at a time, each 150 us, offered every 100 us, in slices of a tenth of the second.
    let mut plan = reads(Arrivals::Constant { rate: 10_000.0 });
    (plan.drain_ns, plan.slice_ns) = (10 * SECOND, SECOND / 10);
    assert!(run(&plan, &mut fixed(1, 150_000)).streams[0].service_slices.is_empty());
    plan.service_slices = true;
    let outcome = run(&plan, &mut fixed(1, 150_000));
    let stream = &outcome.streams[0];
    assert_eq!(stream.service_slices.len(), stream.slices.len());
    for (service, response) in stream.service_slices.iter().zip(&stream.slices) {
        assert_eq!(service.count(), response.count());
        assert!(service.max_ns().abs_diff(150_000) < 200, "{}", service.max_ns());
    }
    assert!(stream.slices[9].min_ns() > 100 * 150_000, "these waited");
}

#[test]
fn constant_streams_of_one_rate_may_begin_apart() {
    let mut plan = reads(Arrivals::Constant { rate: 10_000.0 });
    plan.streams.push(Stream { name: "others".into(), ..plan.streams[0].clone() });
    // One at a time: where both are due at once, one of them waits.
    let waited = |plan: &Plan| {
        let outcome = run(plan, &mut fixed(1, 30_000));
        outcome.streams.iter().map(|stream| stream.queued).collect::<Vec<_>>()
    };
    assert_eq!(waited(&plan), [0, 9_999]);
    plan.apart_ns = 40_000;
    assert_eq!(waited(&plan), [0, 0]);
}

#[test]
fn what_is_never_sent_is_left_out_in_parts() {
    let mut plan = reads(Arrivals::Constant { rate: 1e6 });
    plan.runtime_ns = Some(SECOND / 10);
    let mut engine = fixed(1, 10);
    let mut generator = Generator::new(&plan, 1, Nanos(0)).unwrap();
    let late = Nanos(100 * SECOND);
    let mut most = 0;
    loop {
        let unsent = |g: &Generator| g.progress().1.map(|stream| stream.unsent).sum::<u64>();
        let before = unsent(&generator);
        let step = generator.step(late, &mut engine);
        most = most.max(unsent(&generator) - before);
        if step.wake == Wake::Over {
            break;
        }
    }
    let outcome = generator.outcome();
    assert!((1..=4096).contains(&most), "{most}");
    assert_eq!(outcome.streams[0].unsent, outcome.streams[0].offered);
    assert!(outcome.streams[0].unsent.abs_diff(100_000) <= 1, "{}", outcome.streams[0].unsent);
}

/// Takes operations and never ends them.
struct Silent(usize);

impl Engine for Silent {
    fn depth(&self) -> usize {
        4
    }
    fn submit(&mut self, _: &Io, _: Nanos) -> Submit {
        if self.0 == 4 {
            return Submit::Full;
        }
        self.0 += 1;
        Submit::Taken
    }
    fn poll(&mut self, _: Nanos, _: &mut Vec<Done>) {}
    fn next(&self) -> Next {
        Next::At(Nanos(u64::MAX))
    }
}

#[test]
fn a_device_that_never_answers_does_not_hold_the_run() {
    let mut plan = reads(Arrivals::Constant { rate: 4.0 });
    plan.patience_ns = SECOND;
    let outcome = run(&plan, &mut Silent(0));
    let stream = &outcome.streams[0];
    assert_eq!((stream.unanswered, stream.offered), (3, 3));
    assert!(outcome.both().response.min_ns() > 2 * SECOND);
}

#[test]
fn a_closed_loop_keeps_its_depth() {
    for depth in [1u32, 7] {
        let outcome = run(&reads(Arrivals::Closed { depth }), &mut fixed(8, 100_000));
        let expected = f64::from(depth) * 10_000.0;
        assert!(
            (outcome.throughput() - expected).abs() <= 2.0 * f64::from(depth),
            "{}",
            outcome.throughput()
        );
        assert!(outcome.both().response.max_ns().abs_diff(100_000) < 100);
    }
}

#[test]
fn warm_up_and_ramp_are_not_measured_and_counts_bound() {
    let mut plan = reads(Arrivals::Constant { rate: 1_000.0 });
    (plan.warm_up_ns, plan.ramp_ns) = (SECOND / 2, SECOND);
    let outcome = run(&plan, &mut fixed(8, 1_000));
    assert_eq!((outcome.from, outcome.until), (Nanos(3 * SECOND / 2), Nanos(5 * SECOND / 2)));
    assert!(outcome.streams[0].offered.abs_diff(1_000) <= 1);
    assert_eq!(outcome.streams[0].offered, outcome.both().response.count());
    (plan.count, plan.runtime_ns) = (Some(123), None);
    let outcome = run(&plan, &mut fixed(8, 1_000));
    assert_eq!((outcome.streams[0].offered, outcome.both().response.count()), (123, 123));
    assert!((outcome.offered() - 1_000.0).abs() < 10.0, "{}", outcome.offered());
}

#[test]
fn streams_run_side_by_side_each_at_its_rate() {
    let mut plan = reads(Arrivals::Poisson { rate: 5_000.0 });
    for (name, rw, bs, rate) in
        [("large reads", Rw::RandRead, 131_072, 100.0), ("large writes", Rw::Write, 131_072, 50.0)]
    {
        let workload = Workload::new(rw, bs, 1 << 30);
        plan.streams.push(Stream { name: name.into(), workload, arrivals: Arrivals::Constant { rate } });
    }
    let outcome = run(&plan, &mut Null::with_service(64, |io, now| now + u64::from(io.len)));
    let offered: Vec<u64> = outcome.streams.iter().map(|s| s.offered).collect();
    assert!(
        offered[0].abs_diff(5_000) < 350 && offered[1].abs_diff(100) <= 1 && offered[2].abs_diff(50) <= 1
    );
    assert!(outcome.streams[0].reads.response.max_ns().abs_diff(4096) < 8);
    assert!(outcome.streams[1].reads.response.min_ns().abs_diff(131_072) < 200);
    assert_eq!(
        (outcome.streams[2].reads.response.count(), outcome.streams[2].writes.response.count()),
        (0, offered[2])
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let plan = reads(Arrivals::Poisson { rate: 50_000.0 });
    let one = |seed| {
        let plan = Plan { seed, ..plan.clone() };
        let mut places = Vec::new();
        let shared = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = shared.clone();
        let mut null = Null::with_service(64, move |io, now| {
            seen.borrow_mut().push((io.offset, now));
            now + 10_000
        });
        let outcome = run(&plan, &mut null);
        places.append(&mut shared.borrow_mut());
        (places, outcome.both().response.buckets().collect::<Vec<_>>())
    };
    assert!(one(1) == one(1));
    assert!(one(1) != one(2));
}

/// Every third operation fails.
struct Failing(Null);

impl Engine for Failing {
    fn depth(&self) -> usize {
        self.0.depth()
    }
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        self.0.submit(io, now)
    }
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.0.poll(now, done);
        for done in done {
            if (now.0 / 100_000).is_multiple_of(3) {
                done.result = Err(Failure::Errno(5));
            }
        }
    }
    fn next(&self) -> Next {
        self.0.next()
    }
}

#[test]
fn errors_are_counted_or_end_the_run() {
    let mut plan = reads(Arrivals::Constant { rate: 10_000.0 });
    plan.stop_on_error = false;
    let outcome = run(&plan, &mut Failing(fixed(8, 1_000)));
    assert_eq!((outcome.errors(), outcome.both().response.count()), (3_333, 6_666));
    assert_eq!(outcome.streams[0].first_error.unwrap().0, Failure::Errno(5));
    plan.stop_on_error = true;
    let outcome = run(&plan, &mut Failing(fixed(8, 1_000)));
    assert_eq!((outcome.errors(), outcome.both().response.count()), (1, 2));
}

#[test]
fn plans_that_cannot_run_are_refused() {
    let clock = SimClock::new();
    let wrong = |plan: Plan| match simulated(&plan, &mut Null::new(4), &clock) {
        Err(SimError::Plan(e)) => e,
        other => panic!("{other:?}"),
    };
    let plan = reads(Arrivals::Closed { depth: 4 });
    assert_eq!(wrong(Plan { streams: vec![], ..plan.clone() }), PlanError::NoStream);
    assert_eq!(wrong(Plan { runtime_ns: None, ..plan.clone() }), PlanError::NoBound);
    assert_eq!(wrong(Plan { slice_ns: 0, ..plan.clone() }), PlanError::NoSlice);
    assert!(matches!(
        wrong(reads(Arrivals::Closed { depth: 5 })),
        PlanError::Depth { depth: 5, most: 4, .. }
    ));
    assert!(matches!(wrong(reads(Arrivals::Closed { depth: 0 })), PlanError::Depth { .. }));
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
        assert!(matches!(wrong(reads(Arrivals::Poisson { rate })), PlanError::Rate { .. }));
    }
    let small = Plan::new(Workload::new(Rw::Read, 4096, 100), Arrivals::Closed { depth: 1 }, SECOND);
    assert!(matches!(wrong(small), PlanError::Workload { source: WorkloadError::Range { .. }, .. }));
    assert_eq!(clock.now(), Nanos(0));
}

#[test]
fn real_time_runs_the_same_machine() {
    let clock = nearside_clock::TscClock::new();
    let mut plan = reads(Arrivals::Poisson { rate: 20_000.0 });
    plan.runtime_ns = Some(SECOND / 5);
    let ran = real(&plan, &mut fixed(64, 20_000), &clock, Pace::default()).unwrap();
    let both = ran.outcome.both();
    assert!(both.response.count().abs_diff(4_000) < 400, "{}", both.response.count());
    assert_eq!(both.response.count(), ran.operations);
    assert!(both.response.min_ns() >= 19_980);
    // How long it had to wait is the machine's affair; that it did is accounted for.
    assert!(ran.cpu.spin_ns + ran.cpu.idle_ns > 0, "{:?}", ran.cpu);
}

/// Sends what it was given at its next look, as an engine does that calls the system to send, and answers at
/// the one after. Each start and each look takes time.
struct Sender {
    clock: SimClock,
    depth: usize,
    given: Vec<u32>,
    sent: Vec<u32>,
    looks: u64,
    sends: u64,
}

impl Engine for Sender {
    fn depth(&self) -> usize {
        self.depth
    }
    fn submit(&mut self, io: &Io, _: Nanos) -> Submit {
        self.clock.advance(200);
        self.given.push(io.token);
        Submit::Taken
    }
    fn poll(&mut self, _: Nanos, done: &mut Vec<Done>) {
        self.clock.advance(1_000);
        let at = self.clock.now();
        self.looks += 1;
        done.extend(self.sent.drain(..).map(|token| Done { token, at, result: Ok(()) }));
        self.sends += u64::from(!self.given.is_empty());
        self.sent.append(&mut self.given);
    }
    fn next(&self) -> Next {
        if self.given.is_empty() && self.sent.is_empty() { Next::Idle } else { Next::Poll }
    }
}

#[test]
fn what_is_due_together_is_sent_together() {
    const COUNT: u64 = 12_800;
    // By depth: how many go by one send.
    for (depth, together) in [(1, 1), (8, 8), (32, 32), (128, 32)] {
        let clock = SimClock::new();
        let (given, sent) = (Vec::new(), Vec::new());
        let mut sender = Sender { clock: clock.clone(), depth, given, sent, looks: 0, sends: 0 };
        let mut plan = reads(Arrivals::Closed { depth: depth as u32 });
        (plan.runtime_ns, plan.count) = (None, Some(COUNT));
        let ran = real(&plan, &mut sender, &clock, Pace::default()).unwrap();
        assert_eq!(ran.operations, COUNT);
        let most = COUNT / together + 2;
        assert!(sender.sends <= most, "depth {depth}: {} sends", sender.sends);
        assert!(sender.looks <= 2 * most, "depth {depth}: {} looks", sender.looks);
        // Three looks and two rounds of starts at most: each is dated when it was started.
        let stream = &ran.outcome.streams[0];
        let service = ran.outcome.both().service;
        assert!(service.max_ns() <= 400 * (together + 1) + 3_010, "depth {depth}: {}", service.max_ns());
        assert_eq!(stream.queued, 0);
        assert_eq!(stream.late > COUNT / 2, depth > 8, "depth {depth}: {} late", stream.late);
    }
}

#[test]
fn how_busy_the_generator_was_is_known() {
    let run = |depth: usize| {
        let clock = SimClock::new();
        let (given, sent) = (Vec::new(), Vec::new());
        let mut sender = Sender { clock: clock.clone(), depth, given, sent, looks: 0, sends: 0 };
        let mut plan = reads(Arrivals::Closed { depth: depth as u32 });
        (plan.runtime_ns, plan.count) = (None, Some(1_280));
        let ran = real(&plan, &mut sender, &clock, Pace::default()).unwrap();
        let (cost, environment) = (GeneratorCost::default(), Environment::default());
        let machine = Summary::real("target", "engine", &plan, &ran, cost, &environment).machine.unwrap();
        (ran, machine.instrument.unwrap())
    };
    // At a depth of one every other look finds nothing: 1,000 ns of the 2,200 of an operation.
    let (one, own) = run(1);
    let part = one.busy_ns as f64 / one.elapsed_ns as f64;
    assert!((part - 1_200.0 / 2_200.0).abs() < 0.01, "{part}");
    assert!(own.busy == part && own.late < 0.01 && own.delay_ns < 10.0 && !own.bottleneck, "{own:?}");
    // At 128 no look finds nothing.
    let (_, own) = run(128);
    assert!(own.busy > 0.98 && own.late > 0.8 && own.delay_ns > 1_000.0 && own.bottleneck, "{own:?}");
}
