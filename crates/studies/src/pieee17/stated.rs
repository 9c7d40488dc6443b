//! What PIEEE'17 states, each number once.

use crate::finding::Stated;

/// III-A: what a host bus adapter adds, in microseconds.
pub const ADAPTER: Stated = Stated::about("PIEEE'17 III-A: a host bus adapter adds", 25.0);
/// III-B: "near PCIe theoretical maximum", in thousands of reads a second.
pub const PCIE: Stated = Stated::about("PIEEE'17 III-B: PCIe's most", 800.0);
/// III-B: from the doorbell to the interrupt, in microseconds.
pub const DEVICE: Stated = Stated::below("PIEEE'17 III-B: Optane at the device", 8.0);
/// III-B: what the system adds.
pub const SYSTEM: Stated = Stated::below("PIEEE'17 III-B: the system adds", 4.0);
/// III-B: from the application.
pub const APPLICATION: Stated = Stated::about("PIEEE'17 III-B: Optane from the application", 11.0);
/// III-B: a page miss by paging, in microseconds, of a NAND SSD and of an Optane SSD.
pub const MISS: [Stated; 2] = [
    Stated::equal("PIEEE'17 III-B: a page miss, NAND", 92.0),
    Stated::equal("PIEEE'17 III-B: a page miss, Optane", 16.0),
];
/// III-B: "the code to implement paging incurred overheads of only 5 us".
pub const PAGING: Stated = Stated::equal("PIEEE'17 III-B: the code of paging", 5.0);
/// IV: NAND at a queue depth of 128, in thousands of operations a second.
pub const NAND_128: Stated = Stated::about("PIEEE'17 IV: NAND at a queue depth of 128", 300.0);
/// IV: "a similar IOPS" of Optane at 4.
pub const OPTANE_4: Stated = Stated::about("PIEEE'17 IV: Optane at a queue depth of 4", 300.0);
/// IV, Fig. 6: an I/O every so many microseconds, in (a) and (b) and in (c).
pub const EVERY: [Stated; 2] = [
    Stated::equal("PIEEE'17 IV: Fig. 6, an I/O every", 20.0),
    Stated::equal("PIEEE'17 IV: Fig. 6 (c), an I/O every", 4.0),
];
/// IV, Fig. 6: what the system adds, the slow SSD, the fast one.
pub const DELAYS: [Stated; 3] = [
    Stated::equal("PIEEE'17 IV: Fig. 6, the system adds", 10.0),
    Stated::equal("PIEEE'17 IV: Fig. 6, the slow SSD", 100.0),
    Stated::equal("PIEEE'17 IV: Fig. 6, the fast SSD", 10.0),
];
/// IV, Fig. 6: the queue depth at the SSD in (a), (b), (c).
pub const DEPTHS: [Stated; 3] = [
    Stated::equal("PIEEE'17 IV: Fig. 6 (a), at the SSD", 5.0),
    Stated::equal("PIEEE'17 IV: Fig. 6 (b), at the SSD", 0.5),
    Stated::equal("PIEEE'17 IV: Fig. 6 (c), at the SSD", 2.5),
];
/// IV, Fig. 6: "an overall average queue depth of 5" in (c).
pub const DEPTH_OF_ALL: Stated = Stated::equal("PIEEE'17 IV: Fig. 6 (c), of the system", 5.0);
/// IV, Fig. 7: NAND's mean over Optane's.
pub const MEANS: Stated = Stated::about("PIEEE'17 IV: NAND's mean over Optane's", 10.0);
/// IV, Fig. 8: Optane's 99.999th percentile under heavy load, in microseconds.
pub const OPTANE_FAR: Stated = Stated::below("PIEEE'17 IV: Optane's p99.999", 100.0);
/// IV, Fig. 8: NAND's 99th percentile.
pub const NAND_P99: Stated = Stated::above("PIEEE'17 IV: NAND's p99", 1_000.0);
/// IV, Fig. 8: NAND's 99.999th percentile "approaches 10 ms".
pub const NAND_FAR: Stated = Stated::about("PIEEE'17 IV: NAND's p99.999", 10_000.0);
/// V-A: "a 3x advantage in throughput" of RocksDB's Gets.
pub const ROCKSDB: Stated = Stated::equal("PIEEE'17 V-A: Optane's throughput over NAND's", 3.0);
/// V-A: "for all thread counts" the prototype "delivers requests in 1/10th the time": NAND's p99
/// over Optane's.
pub const ROCKSDB_P99: Stated = Stated::equal("PIEEE'17 V-A: NAND's p99 over Optane's", 10.0);
/// V-B: Optane's multiple by the standard rule, and by the tightened one.
pub const OPTANE: [Stated; 2] = [
    Stated::equal("PIEEE'17 V-B: Optane, standard", 150.0),
    Stated::equal("PIEEE'17 V-B: Optane, tightened", 125.0),
];
/// V-B: NAND's by the tightened rule.
pub const NAND: Stated = Stated::equal("PIEEE'17 V-B: NAND, tightened", 8.0);
/// V-B: Optane's over NAND's, by both rules.
pub const OVER_NAND: [Stated; 2] = [
    Stated::equal("PIEEE'17 V-B: Optane over NAND, standard", 3.75),
    Stated::equal("PIEEE'17 V-B: Optane over NAND, tightened", 15.0),
];
/// V-C: memcached's response time by paging over that in DRAM.
pub const PAGED: Stated = Stated::equal("PIEEE'17 V-C: paging's response time over DRAM's", 45.0);
/// V-C: "at less than 20 % of throughput".
pub const PAGED_RATE: Stated = Stated::below("PIEEE'17 V-C: paging's throughput over DRAM's", 0.2);
/// V-C: fatcache has "at least 60 % of the throughput of memcached with DRAM alone".
pub const FATCACHE_RATE: Stated = Stated::above("PIEEE'17 V-C: fatcache's throughput over DRAM's", 0.6);
/// V-C: what fatcache adds on an unloaded system, in microseconds, and at the 99th percentile.
pub const FATCACHE_ADDS: [Stated; 2] = [
    Stated::equal("PIEEE'17 V-C: fatcache adds", 10.0),
    Stated::equal("PIEEE'17 V-C: fatcache adds at p99", 110.0),
];
