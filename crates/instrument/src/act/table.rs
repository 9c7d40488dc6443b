//! ACT's tables, laid out as its act_latency.py prints them.

use std::fmt::Write as _;

use super::load::names;
use super::report::{Host, Report, Slice, columns};

/// A histogram's name and its slices.
type Column<'a> = (String, &'a [Slice]);

impl Report {
    /// All of a run: the small operations by the time of the I/O and beside it by the time since they were
    /// due, then the large ones, then what the host took. Columns are ACT's seven, after those of `more`
    /// (nanoseconds) that it has not.
    pub fn text(&self, more: &[u64], microseconds: bool) -> String {
        let mut bounds = columns(microseconds);
        bounds.extend(more);
        bounds.sort_unstable();
        bounds.dedup();
        let mut parts = Vec::new();
        for table in self.tables.iter().filter(|table| table.judged) {
            let due = format!("{}-from-due", table.name);
            let both = [(table.name.clone(), &table.io[..]), (due, &table.due)];
            parts.push(self.beside(&both, &bounds, microseconds));
        }
        let large: Vec<Column<'_>> = [names::LARGE_READS, names::LARGE_WRITES, names::TOMB_RAIDER]
            .iter()
            .filter_map(|name| self.tables.iter().find(|table| table.name == *name))
            .map(|table| (table.name.clone(), &table.io[..]))
            .collect();
        if !large.is_empty() {
            parts.push(self.beside(&large, &columns(microseconds), microseconds));
        }
        parts.extend(self.host.as_ref().map(Host::text));
        parts.join("\n")
    }

    /// Tables side by side, a line for each slice.
    fn beside(&self, tables: &[Column<'_>], bounds: &[u64], microseconds: bool) -> String {
        let (unit, label) = if microseconds { (1e3, "%>(us)") } else { (1e6, "%>(ms)") };
        let width = 7 * bounds.len();
        let mut out = String::new();
        let mut line = |first: &str, of: &dyn Fn(&Column<'_>) -> String| {
            let cells: String = tables.iter().map(|table| format!("  {}", of(table))).collect();
            let _ = writeln!(out, "{}", format!("{first:>5}{cells}").trim_end());
        };
        let each = |of: &dyn Fn(u64) -> String| bounds.iter().map(|ns| of(*ns)).collect::<String>();
        line("", &|(name, _)| format!(" {name:<0$}", width - 1));
        line("", &|_| format!(" {label:<0$}", width - 1));
        line("slice", &|_| each(&|ns| format!("{:>7}", ns as f64 / unit)));
        let rule = each(&|_| " ------".to_owned());
        line("-----", &|_| rule.clone());
        // The average and the greatest are those of the rounded shares.
        let share = |slice: &Slice, ns| (self.percent_above(slice, ns) * 100.0).round() / 100.0;
        let cell = |percent: f64| format!("{percent:>7.2}");
        let slices = tables.iter().map(|(_, slices)| slices.len()).max().unwrap_or(0);
        for index in 0..slices {
            line(&(index + 1).to_string(), &|(_, slices)| {
                slices.get(index).map_or_else(String::new, |slice| each(&|ns| cell(share(slice, ns))))
            });
        }
        line("-----", &|_| rule.clone());
        line("avg", &|(_, slices)| {
            let sum = |ns| slices.iter().map(|slice| share(slice, ns)).sum::<f64>();
            each(&|ns| cell(sum(ns) / slices.len().max(1) as f64))
        });
        line("max", &|(_, slices)| {
            each(&|ns| cell(slices.iter().map(|slice| share(slice, ns)).fold(0.0, f64::max)))
        });
        out
    }
}

impl Host {
    /// What the host took, in a few lines.
    fn text(&self) -> String {
        let (ms, all) = (|ns: u64| ns as f64 / 1e6, &self.all);
        let mut out = format!(
            "host: {} stalls above {} us ({} while only waiting), {:.1} ms together, {:.3} ms the longest",
            all.count,
            self.threshold_ns as f64 / 1e3,
            self.spinning,
            ms(all.total_ns),
            ms(all.longest_ns),
        );
        if let Some(ns) = self.scheduler_wait_ns {
            let _ = write!(out, "; {:.1} ms without a core", ms(ns));
        }
        if let Some(ns) = self.stolen_ns {
            let _ = write!(out, "; {:.0} ms stolen by the hypervisor", ms(ns));
        }
        out.push('\n');
        if self.slices.len() > 1 {
            for (index, slice) in self.slices.iter().enumerate().filter(|(_, slice)| slice.count > 0) {
                let (count, total, longest) = (slice.count, ms(slice.total_ns), ms(slice.longest_ns));
                let _ = writeln!(out, "  slice {}: {count}, {total:.1} ms, {longest:.3} ms", index + 1);
            }
            if self.overflowed {
                out += "  there were more stalls than were kept: later slices have too few\n";
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Stalled, known};
    use super::*;

    #[test]
    fn the_table_is_acts() {
        // The README's example, of the first, the third and the ninth slice.
        let slice = |one: u64, eight: u64| [(1_000_000, one), (8_000_000, eight)];
        let (a, b, c) = (slice(167, 0), slice(180, 14), slice(270, 73));
        let report = known("reads", &[(10_000, &a), (10_000, &b), (10_000, &c)]);
        let text = report.beside(
            &[("reads".into(), &report.tables[0].io)],
            &[1, 8, 64].map(|ms| ms * 1_000_000),
            false,
        );
        let expected = [
            "        reads",
            "        %>(ms)",
            "slice        1      8     64",
            "-----   ------ ------ ------",
            "    1     1.67   0.00   0.00",
            "    2     1.80   0.14   0.00",
            "    3     2.70   0.73   0.00",
            "-----   ------ ------ ------",
            "  avg     2.06   0.29   0.00",
            "  max     2.70   0.73   0.00",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn small_and_large_operations_have_tables_of_their_own() {
        let mut report = known("reads", &[(100, &[(1_000_000, 1)])]);
        report.tables[0].due = known("reads", &[(100, &[(1_000_000, 50)])]).tables.remove(0).io;
        report.tables.extend(known("large-block-reads", &[(8, &[(2_000_000, 2)])]).tables);
        report.tables.extend(known("large-block-writes", &[(8, &[(1_000_000, 8)])]).tables);
        let text = report.text(&[128_000], false);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["reads", "reads-from-due"]);
        assert_eq!(rows[2][..9], ["slice", "0.128", "1", "2", "4", "8", "16", "32", "64"]);
        assert_eq!((rows[4][2], rows[4][10]), ("1.00", "50.00"));
        let large = rows.iter().position(|row| *row == ["large-block-reads", "large-block-writes"]).unwrap();
        assert_eq!(rows[large + 2][..3], ["slice", "1", "2"]);
        assert_eq!((rows[large + 4][2], rows[large + 4][8]), ("25.00", "100.00"));
        assert!(!text.contains("host:"));
        let micro = report.text(&[], true);
        assert!(micro.contains("%>(us)"), "{micro}");
    }

    #[test]
    fn the_hosts_part_stands_beside() {
        let host = Host {
            threshold_ns: 5_000,
            all: Stalled { count: 3, total_ns: 2_500_000, longest_ns: 1_250_000 },
            spinning: 2,
            slices: vec![
                Stalled::default(),
                Stalled { count: 3, total_ns: 2_500_000, longest_ns: 1_250_000 },
            ],
            overflowed: true,
            scheduler_wait_ns: Some(2_000_000),
            stolen_ns: None,
        };
        let report = Report { host: Some(host), ..known("reads", &[(1, &[]), (1, &[])]) };
        let text = report.text(&[], false);
        assert!(
            text.contains("host: 3 stalls above 5 us (2 while only waiting), 2.5 ms together, 1.250 ms"),
            "{text}"
        );
        assert!(
            text.contains("; 2.0 ms without a core\n  slice 2: 3, 2.5 ms, 1.250 ms\n  there were more"),
            "{text}"
        );
    }
}
