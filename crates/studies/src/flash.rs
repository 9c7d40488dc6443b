//! The numbers of a modelled flash drive, each with where it comes from.

use nearside_media::nand::{Controller, Geometry, NandDrive, Timings};

use crate::finding::Stated;
use crate::source::{Parameter, Source};

/// Some of a drive's numbers, by name; where they come from; which cells; how.
pub type Entry<'a> = (&'a [&'a str], Source, &'a [Stated], &'a str);

/// All of a drive's numbers. The structures are taken apart whole: none is left out.
fn numbers(drive: &NandDrive) -> Vec<(&'static str, f64)> {
    let NandDrive { geometry, timings, controller, capacity: _, physical_permille, seed: _ } = *drive;
    let Geometry { channels, ways, planes, blocks: _, pages, page_bytes } = geometry;
    let Timings {
        read_ns,
        retry_per_million,
        program_ns,
        erase_ns,
        spread_permille,
        channel_ns_per_kib,
        suspend_ns,
        patience_ns,
    } = timings;
    let c: Controller = controller;
    let whole = u64::from(c.whole_units);
    let protected = u64::from(c.protected);
    let of_geometry = [
        ("channels", channels),
        ("ways", ways),
        ("planes", planes),
        ("pages", pages),
        ("page_bytes", page_bytes),
    ];
    let others = [
        ("lower_read_ns", read_ns[0]),
        ("upper_read_ns", read_ns[1]),
        ("retry_per_million", retry_per_million),
        ("lower_program_ns", program_ns[0]),
        ("upper_program_ns", program_ns[1]),
        ("erase_ns", erase_ns),
        ("spread_permille", spread_permille),
        ("channel_ns_per_kib", channel_ns_per_kib),
        ("suspend_ns", suspend_ns.unwrap_or(0)),
        ("patience_ns", patience_ns),
        ("physical_permille", physical_permille),
    ];
    let Controller {
        read_ns,
        hit_ns,
        write_ns,
        read_busy_ns,
        write_busy_ns,
        move_busy_ns,
        link_ns_per_kib,
        protected: _,
        write_buffer_bytes,
        read_buffer_bytes,
        whole_units: _,
    } = c;
    let around = [
        ("firmware_read_ns", read_ns),
        ("firmware_hit_ns", hit_ns),
        ("firmware_write_ns", write_ns),
        ("read_busy_ns", read_busy_ns),
        ("write_busy_ns", write_busy_ns),
        ("move_busy_ns", move_busy_ns),
        ("link_ns_per_kib", link_ns_per_kib),
        ("protected", protected),
        ("write_buffer_bytes", write_buffer_bytes),
        ("read_buffer_bytes", read_buffer_bytes),
        ("whole_units", whole),
    ];
    let of_geometry = of_geometry.map(|(name, value)| (name, u64::from(value)));
    of_geometry.into_iter().chain(others).chain(around).map(|(name, value)| (name, value as f64)).collect()
}

/// A drive's parameters by what its entries say; what no entry names is assumed, and says so.
pub fn parameters(model: &str, drive: &NandDrive, entries: &[Entry<'_>]) -> Vec<Parameter> {
    let entry = |name: &str| entries.iter().find(|(names, ..)| names.contains(&name)).copied();
    numbers(drive)
        .into_iter()
        .map(|(name, value)| {
            let unnamed: Entry<'_> = (&[], Source::Assumed, &[], "no source is known");
            let (_, source, cells, how) = entry(name).unwrap_or(unnamed);
            let cells = cells.iter().map(|stated| stated.cell.to_owned()).collect();
            Parameter {
                model: model.to_owned(),
                name: name.to_owned(),
                value,
                source,
                cells,
                how: how.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_numbers_that_there_are() {
        let drive = nearside_media::nand::p3700();
        let names: Vec<&str> = numbers(&drive).into_iter().map(|(name, _)| name).collect();
        for paper in crate::Paper::ALL {
            for p in paper.parameters().iter().filter(|p| p.model.starts_with("nand-")) {
                assert!(names.contains(&&*p.name));
                assert_ne!(p.how, "no source is known", "{}.{}", p.model, p.name);
            }
        }
        let unnamed = parameters("m", &drive, &[]);
        assert!(unnamed.iter().all(|p| p.source == Source::Assumed) && unnamed.len() == names.len());
    }
}
