//! Section 3.5: whether B reaches the device after A where a client asks for A and then for B, by both paths.
//!
//! The drive logs the order in which commands reach its medium. A and B go by two queue pairs, as of a host
//! with a queue for each CPU; the asynchronous path has a submission context for each, on CPUs of their own.
//! Nothing but the client's own waiting orders the two: there is no barrier. "Non-blocking" over synchronous
//! completion is what the paper describes: the operating system "already completes the I/O upon the return
//! from a non-blocking I/O submission call".
//!
//! The model of both paths ([`super::interleavings`]) is checked in every state:
//! 1 where B can come first, 0 where it cannot.

use std::sync::mpsc::channel;

use nearside_clock::TscClock;
use nearside_dma::cpu::pin_to_core;
use nearside_driver::{Command, DmaBuffer, Driver, Finished, Handle, Initiator, Policy, Service, Threaded};
use nearside_instrument::completion::{Bench, cores};
use nearside_media::dram::Prototype;

use super::interleavings::{Case, Client, Path};
use super::machine::{Log, Logged, initiator};
use super::orders;
use super::parameters::ORDER;
use crate::Relation::Simulated;
use crate::{Bound, Claim, Failure, Finding, Quantity, Run, Study};

/// Section 3.5.
pub const STUDY: Study = Study {
    number: "Section 3.5",
    title: "ordering without barriers; a TPC-C-like run, verified",
    section: "3.5",
    run,
};

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let pairs = run.sized(2_000, 30_000);
    let (medium, log) = Logged::new(Prototype::GEN2.medium());
    let bench = Bench::new(medium)?;
    log.take();
    let (mut first, mut possible): ([Vec<Quantity>; 2], [Vec<Quantity>; 2]) = Default::default();
    let (mut swapped, mut with_barrier) = (0.0, 0.0);
    let (mut states, mut how) = ([0; 2], None);
    for (threads, threads_name) in [(1, "one thread"), (2, "two threads")] {
        let client = if threads == 1 { Client::OneThread } else { Client::TwoThreads { waits: true } };
        for (blocking, call) in [(true, "blocking"), (false, "non-blocking")] {
            for (p, (policy, path)) in
                [(Policy::Polled, "synchronous"), (Policy::Interrupt, "asynchronous")].into_iter().enumerate()
            {
                let name = format!("B before A, {path}, {call}, {threads_name}");
                run.say(&name);
                ask(bench.driver(), policy, blocking, threads, pairs)?;
                let count = inversions(&log, pairs)? as f64;
                let model = [Path::Synchronous, Path::Asynchronous { barrier: false }][p];
                let explored = Case { path: model, blocking, client }.explore();
                if explored.stuck || !explored.in_order {
                    return Err(format!("{name}: the model comes to no end: {explored:?}").into());
                }
                let overtakes = f64::from(u8::from(explored.overtaken.is_some()));
                let possibly = Finding::new(format!("{name}: possible"), "").model(overtakes);
                possible[p].push((&run.finding(possibly.from(Simulated, &[ORDER]))).into());
                let seen = Finding::new(format!("{name}: pairs of {pairs}"), "").machine(&[count]);
                first[p].push((&run.finding(seen)).into());
                swapped += if p == 1 { count } else { 0.0 };
                states[p] += explored.states;
                how = how.or(explored.overtaken);
            }
            let barrier = Case { path: Path::Asynchronous { barrier: true }, blocking, client };
            with_barrier += f64::from(u8::from(barrier.explore().overtaken.is_some()));
        }
    }
    for (path, states) in ["synchronous", "asynchronous"].into_iter().zip(states) {
        run.finding(
            Finding::new(format!("states of the model, {path}"), "")
                .model(states as f64)
                .from(Simulated, &[ORDER]),
        );
    }
    let any = Finding::new("B before A, asynchronous, of all pairs", "").machine(&[swapped]);
    let any = run.finding(any);
    let barrier = Finding::new("clients that B overtakes with a barrier", "").model(with_barrier);
    let barrier = run.finding(barrier.from(Simulated, &[ORDER]));
    let [never_first, _] = first;
    let [never_possible, possible] = possible;
    let claim = Claim::new("with synchronous completion B never reaches the device before A", "3.5");
    let claim = never_possible.into_iter().fold(claim, |claim, of| claim.model(of, Bound::AtMost(0.0)));
    run.claim(never_first.into_iter().fold(claim, |claim, of| claim.machine(of, Bound::AtMost(0.0))));
    // The model has it of clients that do not wait for A's completion: the last of each pair of calls.
    let claim = Claim::new("with asynchronous completion a program has to rely on a barrier", "3.5");
    let claim =
        possible.into_iter().skip(1).step_by(2).fold(claim, |claim, of| claim.model(of, Bound::Above(0.0)));
    run.claim(claim.model(&barrier, Bound::AtMost(0.0)).machine(&any, Bound::Above(0.0)).because(format!(
        "The model's way to it: {}. With a barrier there is none",
        how.unwrap_or_default()
    )));
    drop(bench);
    orders::study(run)
}

/// A client's way to one queue pair.
struct Door {
    io: Initiator<Threaded, TscClock>,
    buffer: Option<DmaBuffer>,
}

/// What a non-blocking call gives back.
enum Called {
    Done(Finished),
    Out(Handle),
}

impl Door {
    /// A non-blocking call: it returns as soon as its path lets it.
    fn call(&mut self, command: &Command) -> Result<Called, Failure> {
        let refused = |e: nearside_driver::Rejected| format!("a command was refused: {:?}", e.reason);
        let handle = self.io.submit(command, self.buffer.take()).map_err(refused)?;
        Ok(match self.io.completion_model().policy {
            // Synchronous completion: the call returns with the result.
            Policy::Polled => Called::Done(self.io.wait(handle)),
            _ => Called::Out(handle),
        })
    }

    fn finish(&mut self, called: Called) -> Result<(), Failure> {
        let done = match called {
            Called::Done(done) => done,
            Called::Out(handle) => self.io.wait(handle),
        };
        done.outcome.map_err(|e| format!("a command failed: {e}"))?;
        self.buffer = done.buffer;
        Ok(())
    }
}

/// The command of that number: it writes the block of that number, so that the log can tell it.
fn command(number: u64) -> Command {
    Command::write(1, number % BLOCKS, 1)
}

/// Blocks that commands are told apart by.
const BLOCKS: u64 = 100_000;

/// Asks for `pairs` of A and B, A by the first door and B by the second. With two threads the second one asks
/// when the first has returned from its call: the client's own synchronisation.
fn ask(driver: &Driver, policy: Policy, blocking: bool, threads: usize, pairs: u64) -> Result<(), Failure> {
    let (mut services, mut doors) = (Vec::new(), Vec::new());
    for side in 0..2 {
        // The submission contexts run on CPUs of their own, where there are two.
        let core = cores().get(side % cores().len().max(1)).copied();
        let pin = move || drop(core.map(pin_to_core));
        let service = Service::start(driver, 32, TscClock::new(), pin)?;
        let mut io = initiator(driver, &service)?;
        io.set_policy(policy);
        let buffer = Some(io.buffer(512)?);
        doors.push(Door { io, buffer });
        services.push(service);
    }
    let [mut first, mut second] = <[Door; 2]>::try_from(doors).map_err(|_| "two doors")?;
    let call = |door: &mut Door, number| -> Result<Option<Called>, Failure> {
        let called = door.call(&command(number))?;
        if blocking {
            door.finish(called)?;
            return Ok(None);
        }
        Ok(Some(called))
    };
    if threads == 1 {
        for pair in 0..pairs {
            let a = call(&mut first, 2 * pair)?;
            let b = call(&mut second, 2 * pair + 1)?;
            a.map_or(Ok(()), |a| first.finish(a))?;
            b.map_or(Ok(()), |b| second.finish(b))?;
        }
    } else {
        std::thread::scope(|scope| -> Result<(), Failure> {
            let (go, gone) = channel::<()>();
            let (answer, answered) = channel::<()>();
            let (second, call) = (&mut second, &call);
            let other = scope.spawn(move || -> Result<(), String> {
                for pair in 0..pairs {
                    gone.recv().map_err(|e| e.to_string())?;
                    let b = call(second, 2 * pair + 1).map_err(|e| e.to_string())?;
                    b.map_or(Ok(()), |b| second.finish(b)).map_err(|e| e.to_string())?;
                    answer.send(()).map_err(|e| e.to_string())?;
                }
                Ok(())
            });
            let mut mine = || -> Result<(), Failure> {
                for pair in 0..pairs {
                    let a = call(&mut first, 2 * pair)?;
                    go.send(())?;
                    a.map_or(Ok(()), |a| first.finish(a))?;
                    answered.recv()?;
                }
                Ok(())
            };
            let mine = mine();
            drop(go);
            other.join().map_err(|_| "the second thread panicked")??;
            mine
        })?;
    }
    first.io.close()?;
    second.io.close()?;
    Ok(())
}

/// In how many pairs B reached the medium before A.
fn inversions(log: &Log, pairs: u64) -> Result<u64, Failure> {
    let mut at = vec![usize::MAX; BLOCKS as usize];
    let mut swapped = 0;
    let mut seen = 0;
    for (n, arrival) in log.take().iter().enumerate() {
        let number = arrival.offset / 512;
        seen += 1;
        at[number as usize] = n;
        // Numbers come again after BLOCKS commands; both of a pair are there before its next turn.
        let other = at[(number ^ 1) as usize];
        if number % 2 == 0 && other != usize::MAX {
            swapped += 1;
        }
        if other != usize::MAX {
            at[number as usize] = usize::MAX;
            at[(number ^ 1) as usize] = usize::MAX;
        }
    }
    if seen == 2 * pairs {
        Ok(swapped)
    } else {
        Err(format!("{seen} commands reached the device of {}", 2 * pairs).into())
    }
}
