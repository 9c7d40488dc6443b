//! Optimizing the Performance of NDP Operations by Retrieving File Semantics in Storage (Li, Chen, et al.;
//! DAC 2023).

mod fig2;
mod fig5;
mod fig6;
mod fleet;
mod monitor;
mod operations;
pub mod parameters;
mod provider;
pub mod rig;
mod stated;
mod tables;

use crate::Study;

/// Its tables and figures, in its order.
pub const STUDIES: &[Study] = &[
    fig2::STUDY,
    provider::STUDY,
    monitor::STUDY,
    tables::TABLE1,
    tables::TABLE2,
    fig5::STUDY,
    fig6::STUDY,
    operations::STUDY,
    fleet::STUDY,
];
