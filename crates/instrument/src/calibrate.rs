//! The costs of this machine's host software, for the model of the host's CPUs in `nearside-sim`.
//!
//! What is measured: our driver's submission and completion; raising an eventfd, waiting on one, the wake-up
//! with its switch on one core; the wake-up from another core. What the parameters are made of:
//!
//! | parameter | here |
//! | --- | --- |
//! | `submit`, `complete` | the queue pair: entry and doorbell; phase tag and buffer. No system call |
//! | `queue` | one signal to the submission context |
//! | `context` | switch to it, its wait returns, submission |
//! | `delivery` | wake-up from another core, less switch and return, which are the handler's |
//! | `handler` | switch to it, its wait returns, completion |
//! | `wake` | one signal to the caller |
//! | `back` | the caller's wait returns |
//! | `switch`, `resume` | the wake-up's switch: even a lone caller is switched back to from a thread |
//!
//! Idle states are within `delivery`: the other core sleeps while the wake-up is measured.
//! The slice is Linux's default, not measured.

use nearside_clock::{Clock, TscClock};
use nearside_device::Config;
use nearside_dma::cpu::allowed_cores;
use nearside_driver::{Command, Controller, DriverConfig, Peer, QueueConfig, Transport};
use nearside_embedded::Loopback;
use nearside_loadgen::floor::{self, Effort};
use nearside_loadgen::record::{Environment, Figure};
use nearside_sim::cpu::Costs;
use nearside_store::Null;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// What a calibration found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Where and when.
    pub environment: Environment,
    /// The model's parameters.
    pub costs: Costs,
    /// What they were made of.
    pub figures: Vec<Figure>,
}

/// EEVDF's base slice on a machine of several cores, in nanoseconds.
const SLICE_NS: u64 = 3_000_000;

/// Measures this machine, in about a second with [`Effort::FAST`]. With one core there is no
/// other to wake from: the interrupt's delivery is then taken to be one signal. `environment` is
/// the machine's, from [`Environment::gather`].
///
/// # Errors
/// What the machine does not give: threads, memory, eventfds.
pub fn calibrate(effort: Effort, environment: Environment) -> Result<Calibration, Failure> {
    let cores = allowed_cores()?;
    let core = *cores.first().ok_or("no core is allowed")?;
    let [signal, wait, switch] = floor::switch(effort, core)?;
    let wake = match cores.get(1) {
        Some(&other) => floor::wake_up(effort, core, other)?,
        None => None,
    };
    let [submit, complete] = driver(effort)?;
    let [signal_ns, wait_ns, switch_ns] = [&signal, &wait, &switch].map(|figure| figure.value.round() as u64);
    let [submit_ns, complete_ns] = [&submit, &complete].map(|figure| figure.value.round() as u64);
    let wake_ns = wake.as_ref().map_or(0, |figure| figure.value.round() as u64);
    let costs = Costs {
        source: format!("measured on {}, {}", environment.machine(), environment.date),
        submit_ns,
        complete_ns,
        queue_ns: signal_ns,
        context_ns: switch_ns + wait_ns + submit_ns,
        delivery_ns: wake_ns.saturating_sub(switch_ns + wait_ns).max(signal_ns),
        handler_ns: switch_ns + wait_ns + complete_ns,
        wake_ns: signal_ns,
        back_ns: wait_ns,
        switch_ns,
        resume_ns: switch_ns,
        slice_ns: SLICE_NS,
        idle_state: None,
    };
    let figures = [signal, wait, switch, submit, complete].into_iter().chain(wake).collect();
    Ok(Calibration { environment, costs, figures })
}

/// Commands out at a time.
const BATCH: u16 = 32;

/// Our driver's own time for a read of 4 KiB: entry and doorbell; phase tag and buffer.
fn driver(effort: Effort) -> Result<[Figure; 2], Failure> {
    let clock = TscClock::new();
    let mut drive = Loopback::inline(Null::new(64 << 20, 512)?, (), Config::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let mut host = drive.host(&clock);
    let mut queue = driver.queue(QueueConfig { depth: BATCH, interrupt: false }, &mut host)?;
    let mut buffers =
        (0..BATCH).map(|_| driver.pool().take(4096)).collect::<Result<Vec<_>, nearside_driver::Error>>()?;
    let rounds = u64::from(effort.operations / u32::from(BATCH)).max(8);
    let (mut submits, mut completes) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let (mut submit_ns, mut complete_ns) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let begin = clock.now();
            for (at, buffer) in (0u64..).zip(buffers.drain(..)) {
                let slba = (round * 32 + at) % 1000 * 8;
                let command = Command::read(1, slba, 8);
                queue.submit(&command, Some(buffer), at, begin).map_err(|_| "a read was refused")?;
                queue.ring();
            }
            submit_ns.push(clock.now().since(begin));
            while queue.outstanding() > 0 {
                host.peer.pump(clock.now());
                let from = clock.now();
                let mut count = 0;
                while let Some(done) = queue.reap() {
                    buffers.extend(done.buffer);
                    count += 1;
                }
                if count == u64::from(BATCH) {
                    complete_ns.push(clock.now().since(from));
                }
            }
        }
        submits.push(median(&mut submit_ns) / f64::from(BATCH));
        completes.push(median(&mut complete_ns) / f64::from(BATCH));
    }
    driver.delete(queue, &mut host, drop)?;
    Ok([Figure::of("driver, submission", "ns", &submits), Figure::of("driver, completion", "ns", &completes)])
}

fn median(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |ns| *ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_driver::Policy;
    use nearside_media::Delay;
    use nearside_sim::cpu::{Host, IoProgram};

    #[test]
    fn this_machine_can_be_put_into_the_model() {
        let calibration = calibrate(Effort::TEST, Environment::gather(0)).unwrap();
        let costs = &calibration.costs;
        assert!(costs.submit_ns > 0 && costs.complete_ns > 0 && costs.queue_ns > 0 && costs.switch_ns > 0);
        let json = serde_json::to_string(&calibration).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&json).unwrap(), calibration);
        // Whatever the machine: two system calls and two switches more are not faster.
        let mean = |policy| {
            let host = Host::alike(costs.clone(), 1, 1, &IoProgram::reads(policy, 4096));
            host.run(Delay::fixed(10_000).medium()).unwrap().threads[0].call.mean_ns()
        };
        assert!(mean(Policy::Interrupt) > mean(Policy::Polled));
    }
}
