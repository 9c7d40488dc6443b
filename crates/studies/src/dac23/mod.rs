//! Optimizing the Performance of NDP Operations by Retrieving File Semantics in Storage (Li, Chen, et al.; DAC 2023).

use crate::Study;

/// Its tables and figures, in its order.
pub const STUDIES: &[Study] = &[];
