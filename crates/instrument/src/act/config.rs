//! ACT's own configuration files (act_storage): `key: value`, a line each, `#` begins a comment.
//!
//! What shapes the load is taken. What only concerns ACT's own threads and files is named
//! among [`Config::ignored`]; what would change the load in a way that is not built here is an
//! error, as is a key that ACT does not know.

use super::load::Load;

/// A configuration file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The devices it names.
    pub devices: Vec<String>,
    /// The load of each device.
    pub load: Load,
    /// How long it runs, in seconds.
    pub seconds: u64,
    /// Keys that change nothing here.
    pub ignored: Vec<String>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ConfigError {
    /// From 1; after the last line: of the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Keys without an influence on the load that a drive sees from here.
const IGNORED: [&str; 13] = [
    "service-threads",
    "num-queues",
    "threads-per-queue",
    "cache-threads",
    "report-interval-sec",
    "microsecond-histograms",
    "scheduler-mode",
    "disable-odsync",
    "read-req-timeout-ms",
    "write-req-timeout-ms",
    "tomb-raider-sleep-usec",
    "file-size-mbytes",
    "query-thread-priority",
];

/// What the keys say, with act_storage's defaults.
struct Keys {
    read_reqs: f64,
    write_reqs: f64,
    record_bytes: u64,
    record_bytes_max: u64,
    large_kbytes: u64,
    replication: f64,
    update_pct: f64,
    defrag_lwm_pct: f64,
    compress_pct: f64,
    max_lag_sec: u64,
    seconds: u64,
}

impl Config {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first line that is wrong: a key that ACT does not know, or a value that is none.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut keys = Keys {
            read_reqs: 2000.0,
            write_reqs: 1000.0,
            record_bytes: 1536,
            record_bytes_max: 0,
            large_kbytes: 128,
            replication: 1.0,
            update_pct: 0.0,
            defrag_lwm_pct: 50.0,
            compress_pct: 100.0,
            max_lag_sec: 10,
            seconds: 86_400,
        };
        let (mut devices, mut ignored) = (Vec::new(), Vec::new());
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            let fail = |reason: String| Err(ConfigError { line: last, reason });
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let Some((key, value)) = line.split_once(':').map(|(k, v)| (k.trim(), v.trim())) else {
                return fail(format!("{line:?} is no \"key: value\""));
            };
            let number = |least: u64, most: u64| match value.parse::<u64>() {
                Ok(n) if (least..=most).contains(&n) => Ok(n),
                _ => Err(ConfigError {
                    line: last,
                    reason: format!("{key}: {value:?} is no number from {least} to {most}"),
                }),
            };
            match key {
                "device-names" => {
                    devices.extend(
                        value.split([',', ';']).map(|d| d.trim().to_owned()).filter(|d| !d.is_empty()),
                    );
                }
                "test-duration-sec" => keys.seconds = number(1, 366 * 86_400)?,
                "read-reqs-per-sec" => keys.read_reqs = number(0, 1 << 30)? as f64,
                "write-reqs-per-sec" => keys.write_reqs = number(0, 1 << 30)? as f64,
                "record-bytes" => keys.record_bytes = number(1, 8 << 20)?,
                "record-bytes-rmx" => keys.record_bytes_max = number(0, 8 << 20)?,
                "large-block-op-kbytes" => keys.large_kbytes = number(1, 8 << 10)?,
                "replication-factor" => keys.replication = number(1, 16)? as f64,
                "update-pct" => keys.update_pct = number(0, 100)? as f64,
                "defrag-lwm-pct" => keys.defrag_lwm_pct = number(0, 99)? as f64,
                "compress-pct" => keys.compress_pct = number(1, 100)? as f64,
                "max-lag-sec" => keys.max_lag_sec = number(0, 3600)?,
                "commit-to-device" | "tomb-raider" if value == "no" => {}
                "commit-min-bytes" if value == "0" => {}
                "commit-to-device" | "commit-min-bytes" | "tomb-raider" => {
                    return fail(format!("{key}: {value}: that load is not built"));
                }
                _ if IGNORED.contains(&key) => ignored.push(key.to_owned()),
                _ => return fail(format!("{key}: no key of act_storage that is known here")),
            }
        }
        keys.config(devices, ignored).map_err(|reason| ConfigError { line: last + 1, reason })
    }
}

impl Keys {
    /// act_storage's arithmetic: a write of a client becomes one on each replica; its
    /// records fill large blocks, which are rewritten when only `defrag_lwm_pct` of them is
    /// in use; an update reads its record first.
    fn config(self, devices: Vec<String>, ignored: Vec<String>) -> Result<Config, String> {
        if self.record_bytes_max != 0 && self.record_bytes_max < self.record_bytes {
            return Err("record-bytes-rmx is below record-bytes".to_owned());
        }
        let record = (self.record_bytes + self.record_bytes.max(self.record_bytes_max)) as f64 / 2.0;
        let stored = record * self.compress_pct / 100.0;
        // Records begin at multiples of 16 bytes.
        let stored = (stored / 16.0).ceil() * 16.0;
        let large_bytes = self.large_kbytes << 10;
        if stored > large_bytes as f64 {
            return Err("a record is longer than a large block".to_owned());
        }
        let writes = self.write_reqs * self.replication;
        let defragmented = 100.0 / (100.0 - self.defrag_lwm_pct);
        let large = writes * stored / large_bytes as f64 * defragmented;
        let load = Load {
            reads: self.read_reqs + writes * self.update_pct / 100.0,
            read_bytes: stored as u32,
            large_reads: large,
            large_writes: large,
            large_bytes: large_bytes as u32,
            max_lag_ns: self.max_lag_sec * 1_000_000_000,
        };
        if load.reads <= 0.0 {
            return Err("a load without reads measures nothing".to_owned());
        }
        Ok(Config { devices, load, seconds: self.seconds, ignored })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Profile;

    #[test]
    fn the_file_that_act_ships_is_its_profile() {
        let text = "# ACT config, 3x for one device\n\ndevice-names: /dev/nvme0n1\n\n# mandatory:\ntest-duration-sec: 86400\n\
                    read-reqs-per-sec: 6000\nwrite-reqs-per-sec: 3000   # both per device set\nrecord-bytes: 1536\n\
                    large-block-op-kbytes: 128\nreplication-factor: 1\ndefrag-lwm-pct: 50\nmicrosecond-histograms: no\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.devices, ["/dev/nvme0n1"]);
        assert_eq!(config.load, Load::times(Profile::Act6, 3));
        assert_eq!((config.seconds, config.ignored), (86_400, vec!["microsecond-histograms".to_owned()]));
        assert_eq!(Config::parse("").unwrap().load, Load::times(Profile::Act6, 1));
    }

    #[test]
    fn updates_replicas_and_compression_change_the_load() {
        let load = |text: &str| Config::parse(text).unwrap().load;
        assert_eq!(load("update-pct: 50").reads, 2500.0);
        assert_eq!(load("replication-factor: 2\nupdate-pct: 50").reads, 3000.0);
        assert_eq!(load("replication-factor: 2").large_writes, 2.0 * load("").large_writes);
        assert_eq!(load("defrag-lwm-pct: 75").large_writes, 2.0 * load("").large_writes);
        assert_eq!(load("compress-pct: 50").read_bytes, 768);
        assert_eq!(load("record-bytes: 100\nrecord-bytes-rmx: 299").read_bytes, 208);
    }

    #[test]
    fn what_is_wrong_is_said_by_line() {
        for (text, says) in [
            ("\nnonsense", "line 2: \"nonsense\""),
            ("read-reqs-per-sec: many", "line 1: read-reqs-per-sec: \"many\""),
            ("large-block-op-kbytes: 0", "from 1 to"),
            ("commit-to-device: yes", "not built"),
            ("speed: 1", "speed"),
            ("read-reqs-per-sec: 0", "without reads"),
            ("record-bytes: 200\nrecord-bytes-rmx: 100", "below"),
            ("record-bytes: 8000000", "longer"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
