//! What act_storage derives from a configuration, for twenty-two of them, worked out by hand from its
//! documentation (README, ACT Configuration Reference; config/act_storage.conf; what it prints as its derived
//! configuration).
//!
//! The formulas, by the letters that the table names:
//!
//! - R: reads of records = read-reqs-per-sec + write-reqs-per-sec x update-pct / 100, whole
//! - S: a record as stored = record-bytes up to a multiple of 16; the mean of a range = half of both ends'
//!   sum
//! - B: records in a large block = large-block-op-kbytes x 1024 / S, whole
//! - W: large blocks filled per second = write-reqs-per-sec x replication-factor / B
//! - A: amplification = 100 / (100 - defrag-lwm-pct)
//! - L: large reads = large writes = W x A
//! - C: with commit-to-device, single writes = write-reqs-per-sec x replication-factor, and of the large
//!   writes only those of defragmentation = W x (A - 1)
//! - N: with no-defrag-reads, large reads = 0
//! - D: of each device, the total divided by their number

use nearside_instrument::act::config::Config;

struct Row {
    /// The keys, and the formulas that are at work beside R, S, B, W, A and L.
    keys: &'static str,
    /// Smallest and largest record as stored, in bytes.
    stored: (u32, u32),
    /// Reads and single writes per second.
    internal: (u64, u64),
    /// Large reads and large writes per second.
    large: (f64, f64),
    /// Of each device: reads, large writes per second.
    each: (f64, f64),
}

const ONE: &str = "read-reqs-per-sec: 2000; write-reqs-per-sec: 1000; ";

#[rustfmt::skip]
fn table() -> Vec<Row> {
    let row = |keys, stored, internal, large, each| Row { keys, stored, internal, large, each };
    vec![
        // 1x: B = 131072 / 1536 = 85; W = 11.7647; L = 23.5294.
        row("", (1536, 1536), (2000, 0), (23.5294, 23.5294), (2000.0, 23.5294)),
        // 30x on one device: 30000 / 85 x 2.
        row("=read-reqs-per-sec: 60000; write-reqs-per-sec: 30000", (1536, 1536), (60_000, 0), (705.8824, 705.8824), (60_000.0, 705.8824)),
        // 60x on four (D): 240000 / 85 x 2.
        row("=device-names: /dev/a,/dev/b,/dev/c,/dev/d; read-reqs-per-sec: 480000; write-reqs-per-sec: 240000", (1536, 1536), (480_000, 0), (5647.0588, 5647.0588), (120_000.0, 1411.7647)),
        // The README's record: S = 1504, B = 87, where its example divides bytes (22.949).
        row("record-bytes: 1500", (1504, 1504), (2000, 0), (22.9885, 22.9885), (2000.0, 22.9885)),
        // Reads grow by the client's updates only, not by the replicas'; compression changes no size.
        row("replication-factor: 2; update-pct: 50; compress-pct: 50", (1536, 1536), (2500, 0), (47.0588, 47.0588), (2500.0, 47.0588)),
        row("update-pct: 100", (1536, 1536), (3000, 0), (23.5294, 23.5294), (3000.0, 23.5294)),
        // R = 2000 + 330.33, whole; 1001 / 85 x 2.
        row("=read-reqs-per-sec: 2000; write-reqs-per-sec: 1001; update-pct: 33", (1536, 1536), (2330, 0), (23.5529, 23.5529), (2330.0, 23.5529)),
        // S = 2816, B = 46.
        row("record-bytes-range-max: 4096", (1536, 4096), (2000, 0), (43.4783, 43.4783), (2000.0, 43.4783)),
        // S = (112 + 304) / 2 = 208, B = 630.
        row("record-bytes: 100; record-bytes-range-max: 299", (112, 304), (2000, 0), (3.1746, 3.1746), (2000.0, 3.1746)),
        // B = 1048576 / 1536 = 682.
        row("large-block-op-kbytes: 1024", (1536, 1536), (2000, 0), (2.9326, 2.9326), (2000.0, 2.9326)),
        // A = 2.5, as the documentation has it for 60, 1.667 for 40; 1 for 0.
        row("defrag-lwm-pct: 60", (1536, 1536), (2000, 0), (29.4118, 29.4118), (2000.0, 29.4118)),
        row("defrag-lwm-pct: 40", (1536, 1536), (2000, 0), (19.6078, 19.6078), (2000.0, 19.6078)),
        row("defrag-lwm-pct: 0", (1536, 1536), (2000, 0), (11.7647, 11.7647), (2000.0, 11.7647)),
        // N, as for a store in memory: no reads at all.
        row("=write-reqs-per-sec: 1000; no-defrag-reads: yes", (1536, 1536), (0, 0), (0.0, 23.5294), (0.0, 23.5294)),
        // C.
        row("commit-to-device: yes", (1536, 1536), (2000, 1000), (23.5294, 11.7647), (2000.0, 11.7647)),
        // C: 3000 single writes; W = 35.2941, A = 4.
        row("commit-to-device: yes; replication-factor: 3; defrag-lwm-pct: 75", (1536, 1536), (2000, 3000), (141.1765, 105.8824), (2000.0, 105.8824)),
        // Reads only; an update-pct of no writes.
        row("=read-reqs-per-sec: 2000; update-pct: 50", (1536, 1536), (2000, 0), (0.0, 0.0), (2000.0, 0.0)),
        // A record fills a block; one that does not leaves the rest of it empty: B = 1 both times.
        row("record-bytes: 131072", (131_072, 131_072), (2000, 0), (2000.0, 2000.0), (2000.0, 2000.0)),
        row("record-bytes: 100000", (100_000, 100_000), (2000, 0), (2000.0, 2000.0), (2000.0, 2000.0)),
        // R = 2001 + 99.9, whole; 999 / 85 x 2 over two (D).
        row("=device-names: /dev/a /dev/b; read-reqs-per-sec: 2001; write-reqs-per-sec: 999; update-pct: 10", (1536, 1536), (2100, 0), (23.5059, 23.5059), (1050.0, 11.7529)),
        // S = 16, B = 8192.
        row("record-bytes: 1", (16, 16), (2000, 0), (0.2441, 0.2441), (2000.0, 0.2441)),
        // C with N: W = 12.1951 of 82 records (S = 1584), A = 2.
        row("commit-to-device: yes; no-defrag-reads: yes; record-bytes: 1577", (1584, 1584), (2000, 1000), (0.0, 12.1951), (2000.0, 12.1951)),
    ]
}

#[test]
fn loads_are_those_that_act_derives() {
    let rows = table();
    assert_eq!(rows.len(), 22);
    let mut wrong = Vec::new();
    for row in rows {
        let keys = row.keys.strip_prefix('=').map_or_else(|| format!("{ONE}{}", row.keys), str::to_owned);
        let devices = if keys.contains("device-names") { "" } else { "device-names: /dev/a\n" };
        let lines = keys.replace("; ", "\n");
        let config = Config::parse(&format!("{devices}test-duration-sec: 60\n{lines}\n")).unwrap();
        let (derived, load, devices) = (config.derived, config.load, config.devices.len() as f64);
        let mut check = |what: &str, got: f64, expected: f64| {
            if (got - expected).abs() >= 0.000_05 {
                wrong.push(format!("{keys}: {what}: {got}, not {expected}"));
            }
        };
        check("stored", f64::from(derived.record_stored_bytes), f64::from(row.stored.0));
        check("stored at most", f64::from(derived.record_stored_bytes_range_max), f64::from(row.stored.1));
        check("read size", f64::from(load.record_bytes), f64::from(row.stored.0));
        check("greatest read size", f64::from(load.record_bytes_max), f64::from(row.stored.1));
        check("internal reads", derived.internal_read_reqs_per_sec as f64, row.internal.0 as f64);
        check("internal writes", derived.internal_write_reqs_per_sec as f64, row.internal.1 as f64);
        check("large reads", derived.large_block_reads_per_sec, row.large.0);
        check("large writes", derived.large_block_writes_per_sec, row.large.1);
        check("each device's reads", load.reads, row.each.0);
        check("each device's large writes", load.large_writes, row.each.1);
        check("all devices' large reads", load.large_reads * devices, row.large.0);
        check("all devices' single writes", load.writes * devices, row.internal.1 as f64);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
