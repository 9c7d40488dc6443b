//! ACT's own configuration files (act_storage): `key: value`, a line each, `#` begins a comment.
//!
//! Every key of act_storage is known, from today's and from earlier versions of it. What shapes the load is
//! taken; what only concerns ACT's own threads and files is among [`Config::notes`]. A key that ACT does not
//! know, one that is there twice, a value that is none and keys that contradict each other are errors, as is
//! a file without its devices, duration or rates.
//!
//! Source: Aerospike's act repository, version 6: README.md (ACT Configuration Reference), the example in
//! config/act_storage.conf, and what act_storage checks and prints. Where these differ, what it does counts:
//! `test-duration-sec` has no default, `tomb-raider-sleep-usec` is 0, records in a block are whole ones.

use std::collections::BTreeMap;

use super::derive::{Asked, Derived, LARGEST};
use super::load::{Load, MAX_LAG_NS};

/// A configuration file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The devices it names.
    pub devices: Vec<String>,
    /// Rates of all devices together, as ACT prints them.
    pub derived: Derived,
    /// The load of each device.
    pub load: Load,
    /// How long it runs, in seconds.
    pub seconds: u64,
    /// ACT observes once in so many seconds; slices are multiples of this.
    pub report_interval_sec: u64,
    /// Tables count in powers of two of a microsecond, else of a millisecond.
    pub microsecond_histograms: bool,
    /// What changes nothing here though it is in the file, a sentence each.
    pub notes: Vec<String>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", .line.map_or_else(String::new, |line| format!("line {line}: ")))]
pub struct ConfigError {
    /// From 1; none where something is not there at all.
    pub line: Option<usize>,
    /// What is wrong.
    pub reason: String,
}

/// Keys without an influence on the load that a drive sees from here, and why.
const WITHOUT: [(&[&str], &str); 5] = [
    (
        &[
            "service-threads",
            "transaction-queues",
            "transaction-threads",
            "num-queues",
            "threads-per-queue",
            "queue-per-device",
            "max-reqs-queued",
            "use-valloc",
        ],
        "operations start when they are due, not when one of ACT's threads is free",
    ),
    (&["disable-odsync"], "writes are as the target has them, without O_DSYNC"),
    (&["scheduler-mode"], "the block device keeps its scheduler"),
    (&["file-size-mbytes"], "the target has its own size"),
    (&["num-write-buffers"], "what is written does not compress"),
];

/// Of earlier programs, with another idea of a load.
const FIRST: [&str; 2] = ["large-block-ops-per-sec", "read-req-num-512-blocks"];

/// Of act_index.
const INDEX: [&str; 2] = ["cache-threads", "num-cache-threads"];

/// ACT's bounds of a file.
const MOST_DEVICES: usize = 128;
const LONGEST_NAME: usize = 127;

/// What the keys say, with act_storage's defaults.
struct Keys<'a> {
    asked: Asked,
    devices: Vec<String>,
    seconds: u64,
    report_interval_sec: u64,
    microsecond_histograms: bool,
    compress_pct: u64,
    service_threads: u64,
    disable_odsync: bool,
    commit_min_bytes: u64,
    tomb_raider: bool,
    tomb_raider_sleep_usec: u64,
    max_lag_sec: u64,
    notes: Vec<String>,
    /// On which line each key is.
    lines: BTreeMap<&'a str, usize>,
}

impl Config {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first line that is wrong, by its number; or what is not there.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut keys = Keys::default();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let fail = |reason: String| ConfigError { line: Some(number), reason };
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, value) = line
                .split_once(':')
                .map(|(key, value)| (key.trim(), value.trim()))
                .ok_or_else(|| fail(format!("{line:?} is no \"key: value\"")))?;
            // More devices may follow on a line of their own, as ACT reads them.
            if let Some(before) = keys.lines.insert(key, number)
                && key != "device-names"
            {
                return Err(fail(format!("{} is on line {before} already", key.escape_debug())));
            }
            keys.take(key, value).map_err(|why| fail(format!("{}: {why}", key.escape_debug())))?;
        }
        keys.config()
    }
}

/// A number within ACT's bounds.
fn number(value: &str, least: u64, most: u64) -> Result<u64, String> {
    match value.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("{value:?} is no number from {least} to {most}")),
    }
}

fn yes(value: &str) -> Result<bool, String> {
    match value {
        "yes" | "y" => Ok(true),
        "no" | "n" => Ok(false),
        _ => Err(format!("{value:?} is neither yes nor no")),
    }
}

impl Default for Keys<'_> {
    fn default() -> Self {
        Keys {
            asked: Asked::default(),
            devices: Vec::new(),
            seconds: 0,
            report_interval_sec: 1,
            microsecond_histograms: false,
            compress_pct: 100,
            service_threads: 0,
            disable_odsync: false,
            commit_min_bytes: 0,
            tomb_raider: false,
            tomb_raider_sleep_usec: 0,
            max_lag_sec: MAX_LAG_NS / 1_000_000_000,
            notes: Vec::new(),
            lines: BTreeMap::new(),
        }
    }
}

impl Keys<'_> {
    /// One line.
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        const MOST: u64 = u32::MAX as u64;
        let asked = &mut self.asked;
        match key {
            "device-names" => return self.name_devices(value),
            "test-duration-sec" => self.seconds = number(value, 1, MOST)?,
            "report-interval-sec" => self.report_interval_sec = number(value, 1, MOST)?,
            "microsecond-histograms" => self.microsecond_histograms = yes(value)?,
            "read-reqs-per-sec" => asked.read_reqs_per_sec = number(value, 0, MOST)?,
            "write-reqs-per-sec" => asked.write_reqs_per_sec = number(value, 0, MOST)?,
            "record-bytes" => asked.record_bytes = number(value, 1, LARGEST)?,
            "record-bytes-range-max" => asked.record_bytes_range_max = number(value, 0, LARGEST)?,
            "large-block-op-kbytes" => {
                let kbytes = number(value, 1, LARGEST >> 10)?;
                if !kbytes.is_power_of_two() {
                    return Err(format!("{kbytes} is no power of 2"));
                }
                asked.large_block_op_bytes = kbytes << 10;
            }
            "replication-factor" => asked.replication_factor = number(value, 1, MOST)?,
            "update-pct" => asked.update_pct = number(value, 0, 100)?,
            "defrag-lwm-pct" => asked.defrag_lwm_pct = number(value, 0, 99)?,
            "no-defrag-reads" => asked.no_defrag_reads = yes(value)?,
            "compress-pct" => self.compress_pct = number(value, 0, 100)?,
            "commit-to-device" => asked.commit_to_device = yes(value)?,
            "commit-min-bytes" => {
                self.commit_min_bytes = number(value, 0, LARGEST)?;
                if self.commit_min_bytes != 0 && !self.commit_min_bytes.is_power_of_two() {
                    return Err(format!("{value} is no power of 2"));
                }
            }
            "tomb-raider" => self.tomb_raider = yes(value)?,
            "tomb-raider-sleep-usec" => self.tomb_raider_sleep_usec = number(value, 0, MOST)?,
            "max-lag-sec" => self.max_lag_sec = number(value, 0, MOST)?,
            _ if FIRST.contains(&key) => {
                return Err("a key of the first ACT, which was told the rates of large blocks; act_storage \
                            derives them from write-reqs-per-sec and record-bytes"
                    .to_owned());
            }
            _ if INDEX.contains(&key) => {
                return Err("a key of act_index, whose load is not built".to_owned());
            }
            _ => return self.without(key, value),
        }
        Ok(())
    }

    /// A key that changes nothing here, or none at all.
    fn without(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            // 0 is ACT's word for five to each core.
            "service-threads" => self.service_threads = number(value, 0, u64::from(u32::MAX))?,
            "disable-odsync" => self.disable_odsync = yes(value)?,
            "queue-per-device" | "use-valloc" => drop(yes(value)?),
            "scheduler-mode" => {}
            _ => {
                let known = WITHOUT.iter().any(|(keys, _)| keys.contains(&key));
                if !known {
                    return Err("no key of act_storage".to_owned());
                }
                number(value, 0, u64::from(u32::MAX))?;
            }
        }
        let why = WITHOUT.iter().find(|(keys, _)| keys.contains(&key)).map_or("", |(_, why)| why);
        self.notes.push(format!("{key} does not apply here: {why}"));
        Ok(())
    }

    fn name_devices(&mut self, value: &str) -> Result<(), String> {
        let names = value.split([',', ';', ' ', '\t']).filter(|name| !name.is_empty());
        for name in names {
            if name.len() > LONGEST_NAME {
                return Err(format!("{name:?} is longer than {LONGEST_NAME} bytes"));
            }
            if self.devices.len() == MOST_DEVICES {
                return Err(format!("more than {MOST_DEVICES} devices"));
            }
            self.devices.push(name.to_owned());
        }
        Ok(())
    }

    /// Of the file as a whole.
    fn config(mut self) -> Result<Config, ConfigError> {
        let lines = std::mem::take(&mut self.lines);
        let fail = |key: &str, reason: String| ConfigError { line: lines.get(key).copied(), reason };
        if self.devices.is_empty() {
            let reason = "no device-names: the rates are totals over the devices that it names";
            return Err(fail("device-names", reason.to_owned()));
        }
        if self.seconds == 0 {
            return Err(fail("test-duration-sec", "no test-duration-sec".to_owned()));
        }
        let (asked, large) = (self.asked, self.asked.large_block_op_bytes);
        if self.disable_odsync && asked.commit_to_device {
            let reason =
                "disable-odsync: a write that commits to the device needs O_DSYNC (commit-to-device)";
            return Err(fail("disable-odsync", reason.to_owned()));
        }
        if self.commit_min_bytes > large {
            let reason = format!("commit-min-bytes: more than a large block ({large})");
            return Err(fail("commit-min-bytes", reason));
        }
        let derived =
            asked.derive().map_err(|wrong| fail(wrong.key, format!("{}: {}", wrong.key, wrong.reason)))?;
        let requests = derived.internal_read_reqs_per_sec + derived.internal_write_reqs_per_sec;
        if requests != 0 && requests < self.service_threads {
            let reason = format!("service-threads: more than the {requests} requests per second");
            return Err(fail("service-threads", reason));
        }
        if self.compress_pct < 100 {
            self.notes.push("compress-pct does not apply here: what is written does not compress".to_owned());
        }
        let load = Load {
            commit_bytes: self.commit_min_bytes as u32,
            tomb_raider_ns: self.tomb_raider.then_some(self.tomb_raider_sleep_usec * 1000),
            max_lag_ns: self.max_lag_sec * 1_000_000_000,
            ..Load::share(&derived, self.devices.len(), large as u32)
        };
        Ok(Config {
            devices: self.devices,
            derived,
            load,
            seconds: self.seconds,
            report_interval_sec: self.report_interval_sec,
            microsecond_histograms: self.microsecond_histograms,
            notes: self.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Profile;

    const MANDATORY: &str = "device-names: /dev/nvme0n1\ntest-duration-sec: 86400\n";

    fn read(more: &str) -> Result<Config, ConfigError> {
        Config::parse(&format!("{MANDATORY}{more}"))
    }

    #[test]
    fn the_file_that_act_ships_is_its_profile() {
        let text = "# ACT config, 3x for one device\n\ndevice-names: /dev/nvme0n1\n\n# mandatory:\ntest-duration-sec: 86400\n\
                    read-reqs-per-sec: 6000\nwrite-reqs-per-sec: 3000   # both per device set\nrecord-bytes: 1536\n\
                    large-block-op-kbytes: 128\nreplication-factor: 1\ndefrag-lwm-pct: 50\nmicrosecond-histograms: no\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.devices, ["/dev/nvme0n1"]);
        assert_eq!(config.load, Load::times(Profile::Act6, 3));
        assert_eq!((config.seconds, config.report_interval_sec), (86_400, 1));
        assert!(!config.microsecond_histograms && config.notes.is_empty());
    }

    #[test]
    fn the_rates_of_a_file_are_totals_over_its_devices() {
        let four = "device-names: /dev/a,/dev/b; /dev/c /dev/d\ntest-duration-sec: 1\n\
                    read-reqs-per-sec: 24000\nwrite-reqs-per-sec: 12000\n";
        let config = Config::parse(four).unwrap();
        assert_eq!(config.devices.len(), 4);
        assert_eq!(config.derived.internal_read_reqs_per_sec, 24_000);
        let (each, unit) = (config.load, Load::times(Profile::Act6, 3));
        assert_eq!((each.reads, each.large_reads), (unit.reads, unit.large_reads));
        // ACT adds up lines of devices.
        let lines =
            "device-names: /dev/a\ndevice-names: /dev/b\ntest-duration-sec: 1\nread-reqs-per-sec: 2000\n";
        assert_eq!(Config::parse(lines).unwrap().load.reads, 1000.0);
    }

    #[test]
    fn what_does_not_apply_is_said() {
        let config = read(
            "read-reqs-per-sec: 1000\nservice-threads: 40\ncompress-pct: 50\ndisable-odsync: yes\n\
             scheduler-mode: noop\nfile-size-mbytes: 100\nqueue-per-device: yes\nmax-reqs-queued: 100000\n\
             num-queues: 8\nthreads-per-queue: 4\ntransaction-queues: 1\ntransaction-threads: 4\n\
             use-valloc: no\nnum-write-buffers: 16\n",
        )
        .unwrap();
        assert_eq!(config.notes.len(), 13, "{:?}", config.notes);
        assert!(config.notes[0].starts_with("service-threads does not apply here: operations start"));
        assert!(config.notes[12].starts_with("compress-pct does not apply"));
        let config = read("read-reqs-per-sec: 1000\ncompress-pct: 100\nmax-lag-sec: 0\n").unwrap();
        assert_eq!((config.notes.len(), config.load.max_lag_ns), (0, 0));
    }

    #[test]
    fn what_is_wrong_is_said_by_line() {
        // Lines 1 and 2 are the mandatory ones.
        for (text, says) in [
            ("\nnonsense", "line 4: \"nonsense\""),
            ("read-reqs-per-sec: many", "line 3: read-reqs-per-sec: \"many\""),
            ("read-reqs-per-sec: 4294967296", "to 4294967295"),
            ("large-block-op-kbytes: 0", "line 3: large-block-op-kbytes: \"0\" is no number from 1 to 8192"),
            ("large-block-op-kbytes: 96", "no power of 2"),
            ("speed: 1", "line 3: speed: no key of act_storage"),
            ("record-bytes-rmx: 2048", "no key of act_storage"),
            ("read-reqs-per-sec: 1\nread-reqs-per-sec: 1", "line 4: read-reqs-per-sec is on line 3 already"),
            (
                "read-reqs-per-sec: 0",
                "line 3: read-reqs-per-sec: read-reqs-per-sec and write-reqs-per-sec are both 0",
            ),
            ("", "both 0, or not there"),
            (
                "read-reqs-per-sec: 1\nrecord-bytes: 200\nrecord-bytes-range-max: 200",
                "line 5: record-bytes-range-max",
            ),
            (
                "write-reqs-per-sec: 1\nlarge-block-op-kbytes: 1",
                "line 4: large-block-op-kbytes: not one record",
            ),
            ("record-bytes: 8388609", "from 1 to 8388608"),
            ("update-pct: 101", "from 0 to 100"),
            ("defrag-lwm-pct: 100", "from 0 to 99"),
            ("compress-pct: 101", "from 0 to 100"),
            ("replication-factor: 0", "from 1 to"),
            ("commit-to-device: maybe", "neither yes nor no"),
            ("commit-min-bytes: 600", "no power of 2"),
            (
                "read-reqs-per-sec: 1\ncommit-min-bytes: 262144",
                "line 4: commit-min-bytes: more than a large block",
            ),
            (
                "read-reqs-per-sec: 1\ncommit-to-device: yes\ndisable-odsync: yes",
                "line 5: disable-odsync: a write",
            ),
            (
                "read-reqs-per-sec: 39\nservice-threads: 40",
                "line 4: service-threads: more than the 39 requests",
            ),
            ("report-interval-sec: 0", "from 1 to"),
            ("read-req-num-512-blocks: 3", "of the first ACT"),
            ("cache-threads: 8", "act_index"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let error = |text: &str| Config::parse(text).unwrap_err();
        let missing = error("device-names: /dev/a\nread-reqs-per-sec: 1\n");
        assert_eq!((missing.line, missing.to_string().as_str()), (None, "no test-duration-sec"));
        let missing = error("test-duration-sec: 1\nread-reqs-per-sec: 1\n");
        assert!(missing.to_string().starts_with("no device-names"), "{missing}");
        let many = error(&format!("device-names: {}\n", "/dev/a,".repeat(129)));
        assert!(many.to_string().starts_with("line 1: device-names: more than 128"), "{many}");
    }

    #[test]
    fn records_that_are_only_read_need_fit_no_block() {
        let config = read("read-reqs-per-sec: 10\nrecord-bytes: 300000\n").unwrap();
        assert_eq!((config.load.record_bytes, config.load.large_writes), (300_000, 0.0));
    }

    #[test]
    fn every_key_of_acts_example_is_known() {
        let text = "# config/act_storage.conf, with its defaults written out\n\
            device-names: /dev/sdc\ntest-duration-sec: 86400\nread-reqs-per-sec: 2000\nwrite-reqs-per-sec: 1000\n\
            service-threads: 40\nreport-interval-sec: 1\nmicrosecond-histograms: no\nrecord-bytes: 1536\n\
            record-bytes-range-max: 0\nlarge-block-op-kbytes: 128\nreplication-factor: 1\nupdate-pct: 0\n\
            defrag-lwm-pct: 50\nno-defrag-reads: no\ncompress-pct: 100\ndisable-odsync: no\ncommit-to-device: no\n\
            tomb-raider: no\ntomb-raider-sleep-usec: 0\nmax-lag-sec: 10\n";
        assert_eq!(Config::parse(text).unwrap().load, Load::times(Profile::Act6, 1));
    }
}
