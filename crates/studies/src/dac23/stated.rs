//! What DAC'23 states, each number once.

use crate::finding::Stated;

const fn cell(cell: &'static str, value: f64) -> Stated {
    Stated::equal(cell, value)
}

/// A row of Table I or II: directory data, node address table, finding the entry, total, in microseconds.
pub type Row = [Stated; 4];

/// The depths of both tables.
pub const DEPTHS: [usize; 3] = [5, 10, 20];

/// Tables I and II, by depth.
pub const TABLES: [[Row; 3]; 2] = [
    [
        [
            cell("DAC'23 Table I: directory data, depth 5", 7.0),
            cell("DAC'23 Table I: NAT, depth 5", 9.0),
            cell("DAC'23 Table I: find entry, depth 5", 39.0),
            cell("DAC'23 Table I: total, depth 5", 130.0),
        ],
        [
            cell("DAC'23 Table I: directory data, depth 10", 12.0),
            cell("DAC'23 Table I: NAT, depth 10", 15.0),
            cell("DAC'23 Table I: find entry, depth 10", 67.0),
            cell("DAC'23 Table I: total, depth 10", 227.0),
        ],
        [
            cell("DAC'23 Table I: directory data, depth 20", 23.0),
            cell("DAC'23 Table I: NAT, depth 20", 39.0),
            cell("DAC'23 Table I: find entry, depth 20", 125.0),
            cell("DAC'23 Table I: total, depth 20", 419.0),
        ],
    ],
    [
        [
            cell("DAC'23 Table II: directory data, depth 5", 2951.0),
            cell("DAC'23 Table II: NAT, depth 5", 255.0),
            cell("DAC'23 Table II: find entry, depth 5", 40.0),
            cell("DAC'23 Table II: total, depth 5", 3321.0),
        ],
        [
            cell("DAC'23 Table II: directory data, depth 10", 4933.0),
            cell("DAC'23 Table II: NAT, depth 10", 262.0),
            cell("DAC'23 Table II: find entry, depth 10", 67.0),
            cell("DAC'23 Table II: total, depth 10", 5395.0),
        ],
        [
            cell("DAC'23 Table II: directory data, depth 20", 8895.0),
            cell("DAC'23 Table II: NAT, depth 20", 287.0),
            cell("DAC'23 Table II: find entry, depth 20", 128.0),
            cell("DAC'23 Table II: total, depth 20", 9543.0),
        ],
    ],
];
/// Columns of a [`Row`].
pub const NAT: usize = 1;
/// See [`NAT`].
pub const ENTRY: usize = 2;
/// See [`NAT`].
pub const TOTAL: usize = 3;

/// I: "may cost 84.6% execution time of the whole data path".
pub const SHARE: Stated = cell("DAC'23 I: locating's share", 84.6);
/// II-B: locating, on a hit and on a miss, in microseconds.
pub const LOCATING: [Stated; 2] =
    [cell("DAC'23 II-B: locating, buffer hit", 739.0), cell("DAC'23 II-B: locating, buffer miss", 3900.0)];
/// II-B: "the computing process just takes around 700us".
pub const COMPUTING: Stated = Stated::about("DAC'23 II-B: computing", 700.0);
/// II-B: "more than 48% performance improvement".
pub const IMPROVES: Stated = Stated::above("DAC'23 II-B: improvement", 48.0);
/// III-D: the monitor, in microseconds: in the common case, and where the cache is updated.
pub const MONITOR: [Stated; 2] = [
    Stated::below("DAC'23 III-D: common case", 1.0),
    Stated::below("DAC'23 III-D: update of the cache", 60.0),
];
/// III-D: "most write I/Os (more than 610us)".
pub const WRITE: Stated = Stated::above("DAC'23 III-D: a write", 610.0);
/// IV-A: "eight-channel and eight-way".
pub const CHANNELS: Stated = cell("DAC'23 IV-A: channels and ways", 8.0);
/// IV-C: what FSR saves of locating, in percent: the least and the most, on a hit and on a miss.
pub const SAVES: [[Stated; 2]; 2] = [
    [cell("DAC'23 IV-C: buffer hit, the least", 78.1), cell("DAC'23 IV-C: buffer hit, the most", 83.94)],
    [cell("DAC'23 IV-C: buffer miss, the least", 32.89), cell("DAC'23 IV-C: buffer miss, the most", 39.95)],
];
/// IV-D: what it saves of the search: the least and the most, on a hit at depth 20 and on a miss at any
/// depth.
pub const SEARCH: [[Stated; 2]; 2] = [
    [
        cell("DAC'23 IV-D: buffer hit, depth 20, the least", 6.95),
        cell("DAC'23 IV-D: buffer hit, depth 20, 16 KiB", 51.96),
    ],
    [cell("DAC'23 IV-D: buffer miss, the least", 5.48), cell("DAC'23 IV-D: buffer miss, the most", 23.15)],
];
/// IV-D: "When the requested file size exceeds 4MB, the performance improvement [...] is less than 10%".
pub const LARGE: Stated = Stated::below("DAC'23 IV-D: files of more than 4 MB", 10.0);
