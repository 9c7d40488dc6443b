//! Each operation that computes, by DAC'23's three ways: wholly on the host, located by the host and computed
//! by the drive, and by FSR. The paper has string search alone; what it says of near-data operations is held
//! here against each of the drive's.
//!
//! Times and bytes moved, over the size of the file, buffer hit and missed. What is computed costs the
//! model the paper's loop over bytes whatever it is, so that the model's operations differ by what they read
//! and answer; what they cost a processor, this machine's column has.

use std::fs;
use std::io::Write;
use std::path::Path;

use nearside_fsrlib::{
    Aggregate, Comparison, Digest, Element, Function, GatherOptions, Literal, NearestOptions, Operation,
    Pooling, Route, SelectOptions, Table, Term,
};
use nearside_instrument::dataset::Chain;
use nearside_instrument::volume::Kind;
use nearside_random::Rng;

use super::parameters::{ALL, HOST_CORE, host_computes};
use super::rig::{ABOUT, Bed, Buffer, Machine, Model, Took, dataset_with, needle, saved, us};
use crate::Relation::Simulated;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// Every operation by the three ways that DAC'23 compares.
pub const STUDY: Study = Study {
    number: "Operations",
    title: "Every operation: on the host, by the existing near-data path, by FSR",
    section: "I",
    run,
};

/// Directories above each file.
const DEPTH: usize = 20;
/// Numbers in a row of a table.
const COLUMNS: u32 = 128;
/// Rows that are put together, and how many bags of them.
const ROWS: u32 = 20;
const BAGS: usize = 4;
/// Wholly on the host; located there and computed in the drive; both in the drive.
const WAYS: [(&str, Route); 3] =
    [("host", Route::Host), ("existing path", Route::Blocks), ("FSR", Route::Drive)];

/// What is asked of a file.
struct Asked {
    name: &'static str,
    /// What the file is called before its size.
    file: &'static str,
    operation: Operation,
}

impl Asked {
    fn path(&self, bytes: usize) -> String {
        match self.file {
            "record" => Chain::path(DEPTH, bytes),
            file => named(DEPTH, file, bytes),
        }
    }
}

/// A file beside the chain's own.
fn named(depth: usize, file: &str, bytes: usize) -> String {
    let beside = Chain::path(depth, bytes);
    let (folder, _) = beside.rsplit_once('/').unwrap_or_default();
    format!("{folder}/{file}-{bytes}")
}

/// All that compute over the bytes of a file, with one question each.
fn asked(bytes: usize) -> Vec<Asked> {
    let table = Table { raw: Some((Element::F32, COLUMNS)), scale: 1.0 };
    let rows = bytes as u64 / u64::from(4 * COLUMNS);
    let mut rng = Rng(bytes as u64);
    let indices = (0..ROWS as usize * BAGS).map(|_| rng.below(rows)).collect();
    let gather =
        GatherOptions { table, pooling: Pooling::Sum, indices, bags: vec![ROWS; BAGS], weights: vec![] };
    let query = (0..COLUMNS).map(|n| if n % 3 == 0 { -1.0 } else { 0.5 }).collect();
    let nearest = NearestOptions { table, count: 10, query, ..NearestOptions::default() };
    let sum = |function, column: &str| Aggregate { function, column: Some(column.to_owned()) };
    let select = SelectOptions {
        filter: vec![
            Term::Column("price".to_owned()),
            Term::Literal(Literal::Int(99)),
            Term::Compare(Comparison::GreaterOrEqual),
        ],
        group_by: vec!["city".to_owned()],
        aggregates: vec![sum(Function::Count, "id"), sum(Function::Sum, "distance")],
        ..SelectOptions::default()
    };
    let of = |name, file, operation| Asked { name, file, operation };
    vec![
        of("search", "record", needle()),
        of("count", "record", Operation::Count),
        of("CRC-32C", "record", Operation::Checksum(Digest::Crc32c)),
        of("SHA-256", "record", Operation::Checksum(Digest::Sha256)),
        of("select", "rows", Operation::Select(Box::new(select))),
        of("gather", "numbers", Operation::Gather(gather)),
        of("nearest", "numbers", Operation::Nearest(nearest)),
    ]
}

/// The tables beside the chain's files: text, and numbers.
fn tables(root: &Path, bytes: usize) -> std::io::Result<()> {
    const CITIES: [&str; 4] = ["Berlin", "Oslo", "Paris", "Rome"];
    let at = |file| root.join(named(DEPTH, file, bytes).trim_start_matches('/'));
    let mut rng = Rng(bytes as u64);
    let mut text = b"id,city,price,distance\n".to_vec();
    let mut id = 0u32;
    loop {
        let (city, price, distance) = (rng.pick(&CITIES), rng.below(100), rng.below(10_000));
        let mut line = Vec::new();
        writeln!(line, "{id},{city},{price},{}.{:02}", distance / 100, distance % 100)?;
        if text.len() + line.len() > bytes {
            break;
        }
        text.extend(line);
        id += 1;
    }
    fs::write(at("rows"), text)?;
    let numbers = (0..bytes / 4).flat_map(|_| (rng.below(2_000) as f32 / 1e3 - 1.0).to_le_bytes());
    fs::write(at("numbers"), numbers.collect::<Vec<u8>>())
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let sizes: &[usize] = run.sized(&[64 << 10, 1 << 20], &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]);
    let chain = Chain { depth: DEPTH, files: sizes.iter().map(|bytes| (DEPTH, *bytes)).collect() };
    let more = |root: &Path| sizes.iter().try_for_each(|bytes| tables(root, *bytes));
    let data = dataset_with(run, Kind::F2fs, chain, &more)?;
    for buffer in Buffer::BOTH {
        let caption =
            format!("What FSR saves against a host that computes, {}: model and machine", buffer.name());
        let (x, y) = (Scale::log("bytes of the file"), Scale::linear("saved, %"));
        run.chart(Chart::lines(buffer.name(), &caption, x, y));
    }
    let caption = "Bytes moved of the largest file, both ways together";
    run.chart(Chart::sides("bytes", caption, Scale::log("bytes")));
    let mut model = Model::new(&data)?;
    let mut machine = Machine::new(&data)?;
    let mut found = Found::default();
    for &bytes in sizes {
        for asked in asked(bytes) {
            for buffer in Buffer::BOTH {
                one(run, &mut model, &mut machine, (&asked, bytes, buffer), &mut found)?;
            }
            if Some(&bytes) == sizes.last() {
                moved(run, &mut machine, &asked, bytes, &mut found)?;
            }
        }
    }
    found.claims(run);
    run.note(ABOUT);
    run.note(
        "Programs of users and rules of YARA are not among them: what they cost is theirs. The model's host computes at a quarter of the time that the drive's \
         core takes for a byte, and pays nothing for the copy; a faster one shifts the size from which it is ahead. On this machine both are \
         the same processor, nothing is between them but a queue in memory, and what is computed is the same code: what FSR saves is commands and copies alone.",
    );
    Ok(())
}

/// What claims are made of.
#[derive(Default)]
struct Found {
    /// The existing path and FSR, wherever both were timed.
    times: Vec<[Finding; 2]>,
    /// A host that computes and FSR: bytes.
    bytes: Vec<[Finding; 2]>,
}

/// An operation on a file by each way, timed.
fn one(
    run: &mut Run<'_>,
    model: &mut Model,
    machine: &mut Machine,
    (asked, bytes, buffer): (&Asked, usize, Buffer),
    found: &mut Found,
) -> Result<(), Failure> {
    let path = asked.path(bytes);
    let mut ways = Vec::new();
    let mut runs: [Vec<Took>; 3] = Default::default();
    if buffer == Buffer::Hit {
        // In turns, so that what the machine does meanwhile meets all.
        for _ in 0..run.sized(3, 20) {
            for ((_, route), runs) in WAYS.iter().zip(&mut runs) {
                machine.session().set_route(*route);
                runs.push(machine.once(&path, &asked.operation, buffer)?);
            }
        }
    }
    for ((name, route), runs) in WAYS.iter().zip(&runs) {
        model.session().set_route(*route);
        let took = model.once(&path, &asked.operation, buffer)?;
        let (total, basis) = match route {
            Route::Host => (took.total + host_computes(took.bytes), [&ALL[..], &[HOST_CORE]].concat()),
            _ => (took.total, ALL.to_vec()),
        };
        let called = format!("{}, {} KiB, {}: {name}", asked.name, bytes >> 10, buffer.name());
        let mut finding = Finding::new(called, "us").model(total as f64 / 1e3).from(Simulated, &basis);
        if buffer == Buffer::Hit {
            finding = finding.machine(&us(runs, |took| took.total));
        }
        ways.push(run.finding(finding));
    }
    let [host, existing, fsr] = &ways[..] else { return Ok(()) };
    let less = |of: fn(&Finding) -> Option<f64>| Some(saved(of(fsr)?, of(host)?));
    let called =
        format!("{}, {} KiB, {}: FSR saves against the host", asked.name, bytes >> 10, buffer.name());
    let mut finding = Finding::new(called, "%").model(less(|f| f.model).unwrap_or(0.0));
    finding = finding.from(Simulated, &[&ALL[..], &[HOST_CORE]].concat());
    if buffer == Buffer::Hit {
        let [host, _, fsr] = &runs;
        let runs = host.iter().zip(fsr).map(|(host, fsr)| saved(fsr.total as f64, host.total as f64));
        finding = finding.machine(&runs.collect::<Vec<_>>());
    }
    run.finding(finding.point(buffer.name(), asked.name, bytes as f64));
    found.times.push([existing.clone(), fsr.clone()]);
    Ok(())
}

/// What each way moves over the drive's queue.
fn moved(
    run: &mut Run<'_>,
    machine: &mut Machine,
    asked: &Asked,
    bytes: usize,
    found: &mut Found,
) -> Result<(), Failure> {
    let mut ways = Vec::new();
    for (name, route) in WAYS {
        machine.session().set_route(route);
        let took = machine.once(&asked.path(bytes), &asked.operation, Buffer::Hit)?;
        let called = format!("{}, {} KiB: bytes moved, {name}", asked.name, bytes >> 10);
        let finding = Finding::new(called, "B").machine(&[took.bytes as f64]);
        ways.push(run.finding(finding.point("bytes", name, asked.name)));
    }
    if let [host, _, fsr] = &ways[..] {
        found.bytes.push([host.clone(), fsr.clone()]);
    }
    Ok(())
}

impl Found {
    fn claims(&self, run: &mut Run<'_>) {
        let claim = Claim::new("FSR optimizes the performance of NDP operations, whatever is computed", "I");
        run.claim(self.times.iter().fold(claim, |claim, [existing, fsr]| {
            let ratio = || Quantity::from(fsr).over(existing);
            let claim = claim.model(ratio(), Bound::Below(1.0));
            if fsr.measured().is_some() { claim.machine(ratio(), Bound::Below(1.0)) } else { claim }
        }));
        let claim = Claim::new("NDP reduces data movement between the host and the device", "Abstract");
        run.claim(self.bytes.iter().fold(claim, |claim, [host, fsr]| {
            claim.machine(Quantity::from(fsr).over(host), Bound::Below(1.0))
        }));
    }
}
