//! Platform Storage Performance With 3D XPoint Technology (Hady, Foong, Veal, Williams; Proc. IEEE 2017).

mod fig11;
mod fig12;
mod fig2;
mod fig3;
mod fig4;
mod fig5;
mod fig6;
mod fig7;
mod fig8;
pub mod fit;
mod gauge;
mod layers;
mod paging;
pub mod parameters;
mod persistent;
pub(crate) mod real;
mod rig;
mod rocksdb;
mod stated;

use crate::Study;

/// Its figures, in its order.
pub const STUDIES: &[Study] = &[
    fig2::STUDY,
    fig3::STUDY,
    fig4::STUDY,
    paging::STUDY,
    fig5::STUDY,
    fig6::STUDY,
    fig7::STUDY,
    fig8::STUDY,
    rocksdb::FIG_9,
    rocksdb::FIG_10,
    fig11::STUDY,
    fig12::STUDY,
    persistent::STUDY,
];
