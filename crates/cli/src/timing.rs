//! `--timing`: what an operation cost.

use std::io::Write;

use nearside_fsrlib::{Completion, Counters, Totals};
use serde_json::{Value, json};

use crate::args::Where;

/// What it cost.
pub struct Cost {
    pub located: Where,
    pub computed: Where,
    pub counters: Counters,
    pub totals: Totals,
    /// Opening the drive.
    pub open_ns: u64,
    /// From the first command to the end, output included.
    pub wall_ns: u64,
    pub completion: Completion,
}

fn place(place: Where) -> &'static str {
    match place {
        Where::Drive => "the drive",
        Where::Host => "the host",
    }
}

impl Cost {
    /// `{"type":"timing", ...}`; times in nanoseconds.
    pub fn json(&self) -> Value {
        let Cost { counters: c, totals: t, .. } = self;
        json!({
            "type": "timing",
            "located_by": if self.located == Where::Drive { "drive" } else { "host" },
            "computed_by": if self.computed == Where::Drive { "drive" } else { "host" },
            "locate_ns": c.locate_ns,
            "compute_ns": c.compute_ns,
            "round_trip_ns": t.round_trip_ns,
            "open_ns": self.open_ns,
            "wall_ns": self.wall_ns,
            "near_data_commands": t.near_data_commands,
            "read_commands": t.read_commands,
            "bytes_to_drive": t.bytes_out,
            "bytes_from_drive": t.bytes_in,
            "files": c.files,
            "bytes_scanned": c.bytes_scanned,
            "blocks_read": c.blocks_read,
            "cache_hits": c.cache_hits,
            "cache_misses": c.cache_misses,
            "completion": self.completion.model,
            "spinning_ns": self.completion.spinning_ns,
        })
    }
}

/// A time with a unit that fits.
pub fn time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// The table, on standard error.
pub fn print(cost: &Cost) {
    let Cost { counters: c, totals: t, .. } = cost;
    let files = if c.files == 1 { "file" } else { "files" };
    let rows = [
        ("locating", time(c.locate_ns), format!("by {}: {} {files}", place(cost.located), c.files)),
        (
            "computing",
            time(c.compute_ns),
            format!("by {}: {} bytes scanned", place(cost.computed), c.bytes_scanned),
        ),
        ("round trips", time(t.round_trip_ns), format!("all commands, {} completion", cost.completion.model)),
        ("in all", time(cost.wall_ns), format!("and {} to open the drive", time(cost.open_ns))),
        (
            "commands",
            t.commands().to_string(),
            format!("{} near-data, {} of blocks", t.near_data_commands, t.read_commands),
        ),
        ("to the drive", format!("{} B", t.bytes_out), String::new()),
        ("from the drive", format!("{} B", t.bytes_in), String::new()),
        (
            "in the drive",
            format!("{} blocks", c.blocks_read),
            format!("{} lookups from its cache, {} not", c.cache_hits, c.cache_misses),
        ),
    ];
    let wide = rows.iter().map(|r| r.1.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value, note) in rows {
        let pad = " ".repeat(wide - value.chars().count());
        text.push_str(format!("{name:<14}  {pad}{value}  {note}").trim_end());
        text.push('\n');
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_read_well() {
        assert_eq!(super::time(999), "999 ns");
        assert_eq!(super::time(12_345), "12.3 µs");
        assert_eq!(super::time(2_500_000_000), "2.50 s");
    }
}
