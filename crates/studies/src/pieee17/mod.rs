//! Platform Storage Performance With 3D XPoint Technology (Hady, Foong, Veal, Williams; Proc. IEEE 2017).

mod fig11;
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
pub mod parameters;
mod real;
mod rig;
mod stated;

use crate::Study;

/// Its figures, in its order.
pub const STUDIES: &[Study] = &[
    fig2::STUDY,
    fig3::STUDY,
    fig4::STUDY,
    fig5::STUDY,
    fig6::STUDY,
    fig7::STUDY,
    fig8::STUDY,
    fig11::STUDY,
];
