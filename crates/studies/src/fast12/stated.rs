//! What FAST'12 states, each number once.

use crate::finding::Stated;

const fn cell(cell: &'static str, value: f64) -> Stated {
    Stated::equal(cell, value)
}

/// Table 1, polling, in microseconds: Gen2 and the projection, each with 512 B and with 4 KiB.
pub const POLLING: [[Stated; 2]; 2] = [
    [cell("FAST'12 Table 1: polling, Gen2, 512 B", 1.5), cell("FAST'12 Table 1: polling, Gen2, 4 KiB", 2.9)],
    [
        cell("FAST'12 Table 1: polling, projection, 512 B", 0.9),
        cell("FAST'12 Table 1: polling, projection, 4 KiB", 1.5),
    ],
];
/// Table 1, interrupt, alike.
pub const INTERRUPT: [[Stated; 2]; 2] = [
    [
        cell("FAST'12 Table 1: interrupt, Gen2, 512 B", 2.6),
        cell("FAST'12 Table 1: interrupt, Gen2, 4 KiB", 4.1),
    ],
    [
        cell("FAST'12 Table 1: interrupt, projection, 512 B", 2.0),
        cell("FAST'12 Table 1: interrupt, projection, 4 KiB", 2.6),
    ],
];
/// Table 1, interrupt with the C-state, Gen2.
pub const C_STATE: [Stated; 2] =
    [cell("FAST'12 Table 1: C-state, 512 B", 3.3), cell("FAST'12 Table 1: C-state, 4 KiB", 4.6)];
/// 3.3: the synchronous path, 4 KiB on Gen2.
pub const SYNCHRONOUS: Stated = cell("FAST'12 3.3: synchronous, 4 KiB", 4.38);
/// 3.3: the asynchronous path.
pub const ASYNCHRONOUS: Stated = cell("FAST'12 3.3: asynchronous, 4 KiB", 7.6);
/// 3.3: the synchronous path as projected.
pub const PROJECTED: Stated = cell("FAST'12 3.3: synchronous, projection, 4 KiB", 3.0);
/// 3.3: T_a + T_b, on Gen2 and as projected.
pub const WORK: Stated = cell("FAST'12 3.3: T_a + T_b", 6.3);
/// Fig. 2: T_a.
pub const T_A: Stated = cell("FAST'12 Fig. 2: T_a", 4.9);
/// Fig. 2: T_b, which is also 3.3's least time of a device that leaves anyone anything.
pub const T_B: Stated = cell("FAST'12 Fig. 2: T_b", 1.4);
/// Fig. 2: T_d, as Table 1 has it.
pub const T_D: Stated = INTERRUPT[0][1];
/// Fig. 2: T_u.
pub const T_U: Stated = cell("FAST'12 Fig. 2: T_u", 2.7);
/// 3.4: "up to 2 million IOPS - the hardware limitation of our prototype device".
pub const LIMIT: Stated = cell("FAST'12 3.4: the prototype's limit", 2e6);
/// 3.4: "only 60-70% of the synchronous model".
pub const SHARE: Stated = Stated::range("FAST'12 3.4: asynchronous over synchronous", 0.6, 0.7);
/// 3.4: "up to 8 threads per CPU".
pub const THREADS: Stated = cell("FAST'12 3.4: threads per CPU", 8.0);
/// 3.4: "an additional 2 us in observed hardware latency".
pub const IDLE: Stated = cell("FAST'12 3.4: the C-state adds", 2.0);
