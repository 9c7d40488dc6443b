//! When Poll is Better than Interrupt (Yang, Minturn, Hady; FAST 2012).
//!
//! The model is that of the host's CPUs ([`nearside_sim::cpu`]), fed with what the paper measured with 4 KiB and nothing else, over the
//! prototype's medium ([`nearside_media::dram`]). This machine runs the real drive over the same medium in real time, on one
//! core, and the driver on another; what one path costs beside the other is compared, not what either costs beside a kernel's of 2010.

use nearside_driver::Policy;
use nearside_media::Medium;
use nearside_media::dram::Prototype;
use nearside_sim::cpu::{Costs, Host, HostOutcome, IoProgram};

use crate::{Failure, Study};

pub mod second;
mod table1;

/// Its tables, figures and sections, in its order.
pub const STUDIES: &[Study] = &[table1::STUDY];

/// The two sizes of the paper.
const SIZES: [(u32, &str); 2] = [(512, "512 B"), (4096, "4 KiB")];

/// A thread alone on its CPU, reading as fast as it can: the model.
fn alone(costs: &Costs, policy: Policy, bytes: u32, medium: impl Medium) -> Result<HostOutcome, Failure> {
    Ok(Host::alike(costs.clone(), 1, 1, &IoProgram::reads(policy, bytes)).run(medium)?)
}

/// The prototype's buses.
const BUSES: [(Prototype, &str); 2] =
    [(Prototype::GEN2, "Gen2"), (Prototype::PROJECTION, "8 Gb/s projection")];
