//! When Poll is Better than Interrupt (Yang, Minturn, Hady; FAST 2012).
//!
//! The model is that of the host's CPUs ([`nearside_sim::cpu`]) over the prototype's medium
//! ([`nearside_media::dram`]); [`parameters`] has what was put into both. This machine runs the real drive
//! over the same medium in real time, on one core, and the driver on another; what one path costs beside the
//! other is compared, not what either costs beside a kernel's of 2010.

use nearside_driver::Policy;
use nearside_media::Medium;
use nearside_media::dram::Prototype;
use nearside_sim::cpu::{Costs, Host, HostOutcome, IoProgram};

use crate::{Failure, Study};

mod changing;
pub mod counters;
mod crossing;
mod figure1;
mod figure2;
mod figure3;
mod interleavings;
mod machine;
mod orders;
pub mod parameters;
mod pollution;
mod read_ahead;
mod rules;
pub mod second;
mod section34;
mod section35;
mod section4;
mod stated;
mod swap;
mod table1;

/// Its tables, figures and sections, in its order.
pub const STUDIES: &[Study] = &[
    table1::STUDY,
    figure1::STUDY,
    figure2::STUDY,
    figure3::STUDY,
    section34::STUDY,
    section35::STUDY,
    section4::STUDY,
    swap::STUDY,
    read_ahead::STUDY,
];

/// The two sizes of the paper.
const SIZES: [(u32, &str); 2] = [(512, "512 B"), (4096, "4 KiB")];

/// A thread alone on its CPU, reading as fast as it can: the model.
fn alone(costs: &Costs, policy: Policy, bytes: u32, medium: impl Medium) -> Result<HostOutcome, Failure> {
    Ok(Host::alike(costs.clone(), 1, 1, &IoProgram::reads(policy, bytes)).run(medium)?)
}

/// The second process's share of the model.
struct Beside {
    outcome: HostOutcome,
}

impl Beside {
    fn per_io_us(&self, ns: u64) -> f64 {
        ns as f64 / 1e3 / self.outcome.ended().max(1) as f64
    }

    /// T_u: what the second process gets of each read.
    fn useful_us(&self) -> f64 {
        self.per_io_us(self.outcome.threads[1].time.user_ns)
    }

    /// T_a + T_b: what the asynchronous path takes of the CPU.
    fn software_us(&self) -> f64 {
        self.per_io_us(self.outcome.time().system_ns)
    }

    /// T_d: from the doorbell to the handler.
    fn device_us(&self) -> f64 {
        self.outcome.threads[0].device.mean_ns() / 1e3
    }
}

/// An asynchronous reader with the second process on its CPU: the model of Fig. 2.
fn with_second(costs: &Costs, bytes: u32, medium: impl Medium) -> Result<Beside, Failure> {
    let mut host = Host::alike(costs.clone(), 1, 1, &IoProgram::reads(Policy::Interrupt, bytes));
    host.threads.push(nearside_sim::cpu::Thread::busy(0));
    Ok(Beside { outcome: host.run(medium)? })
}

/// The prototype's buses.
const BUSES: [(Prototype, &str); 2] =
    [(Prototype::GEN2, "Gen2"), (Prototype::PROJECTION, "8 Gb/s projection")];
