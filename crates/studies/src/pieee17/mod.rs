//! Platform Storage Performance With 3D XPoint Technology (Hady, Foong, Veal, Williams; Proc. IEEE 2017).

use crate::Study;

/// Its tables and figures, in its order.
pub const STUDIES: &[Study] = &[];
