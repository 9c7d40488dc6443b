//! Fig. 2: what contributes to the time of an I/O, layer by layer:
//! application, driver, queue, device, medium.
//!
//! The model's software is FAST'12's (the only measured split of a stack that is known here),
//! its device the paper's "less than 8 us".

use nearside_driver::Policy;
use nearside_media::AnyMedium;
use nearside_sim::cpu::{Costs, Host, IoProgram};

use super::layers::{LAYERS, Read, half_traced, medians_us, plain, traced};
use super::parameters::{NAND_READ, P4800X};
use crate::Relation::Arithmetic;
use crate::fast12::parameters::SYNC;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Study};

/// PIEEE'17, Fig. 2: the layers of an I/O.
pub const STUDY: Study =
    Study { number: "Fig. 2", title: "Where an I/O's time goes, layer by layer", section: "III", run };

/// Media by the paper's kinds: none, Optane's, a NAND drive's single read.
/// Each with its word and its model's numbers.
const MEDIA: [(&str, &str, &[&str]); 3] = [
    ("memory", "own", &SYNC),
    ("Optane", "optane-p4800x", &[SYNC[0], SYNC[1], P4800X]),
    ("NAND read", "own,101us", &[SYNC[0], SYNC[1], NAND_READ]),
];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::stacked("layers", "A read of 4 KiB by layer, polled", "us"));
    let (batches, count) = run.sized((3, 300), (15, 3000));
    let mut shares: Vec<Finding> = Vec::new();
    for (name, word, numbers) in MEDIA {
        run.say(&format!("{name}: reads ..."));
        let mut rig = traced(AnyMedium::parse(word)?)?;
        rig.reads(count)?;
        let reads = (0..batches).map(|_| rig.reads(count)).collect::<Result<Vec<_>, _>>()?;
        drop(rig);
        let costs = Costs::fast12();
        let host = Host::alike(costs.clone(), 1, 1, &IoProgram::reads(Policy::Polled, 4096));
        let response = host.run(AnyMedium::parse(word)?)?.response().mean_ns() / 1e3;
        let software = (costs.submit_ns + costs.complete_ns) as f64 / 1e3;
        for (i, layer) in LAYERS.into_iter().enumerate() {
            let mut finding =
                Finding::new(format!("{name}: {layer}"), "us").machine(&medians_us(&reads, |r| r.layer(i)));
            // The model knows software and device, not what is within them.
            match layer {
                "driver" => finding = finding.model(software).from(Arithmetic, &SYNC),
                "medium" => finding = finding.model(response - software).from(Arithmetic, numbers),
                _ => {}
            }
            run.finding(finding.point("layers", layer, name));
            if matches!(layer, "driver" | "queue" | "device") {
                let back = medians_us(&reads, |r| r.back(i));
                run.finding(
                    Finding::new(format!("{name}: {layer}, of it on the way back"), "us").machine(&back),
                );
            }
        }
        let all = run.finding(
            Finding::new(format!("{name}: all layers"), "us").machine(&medians_us(&reads, Read::total)),
        );
        let medium = Finding::new(String::new(), "us").machine(&medians_us(&reads, Read::medium));
        let share = 100.0 * medium.figure.value / all.figure.value;
        shares.push(run.finding(Finding::new(format!("{name}: the medium's share"), "%").machine(&[share])));
    }
    cost(run, batches, count)?;
    let claim = Claim::new("The faster the medium, the more of an I/O's time is the system's", "III");
    run.claim(shares.windows(2).fold(claim, |claim, pair| {
        claim.machine(Quantity::from(&pair[1]).over(&pair[0]), Bound::Above(1.0))
    }));
    run.note(
        "A layer's time is what it does before and after the layers below it. Queue: from the doorbell until the drive has fetched and checked the \
         command, and from the completion's posting until the driver sees it. Device: from there to the medium, and from the medium's end until \
         the completion is posted.",
    );
    Ok(())
}

/// What the trace points cost: the same reads without those in the drive, with those before the medium,
/// with that of the answer too, in turn.
fn cost(run: &mut Run<'_>, batches: usize, count: usize) -> Result<(), Failure> {
    let (mut none, mut some, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..batches {
        let medium = || AnyMedium::parse("own");
        none.push(plain(medium()?)?.reads(count)?);
        some.push(half_traced(medium()?)?.reads(count)?);
        all.push(traced(medium()?)?.reads(count)?);
    }
    let us = |reads: &[Vec<Read>]| medians_us(reads, Read::total);
    let none =
        run.finding(Finding::new("memory: without the drive's trace points", "us").machine(&us(&none)));
    let some = Finding::new("memory: with those before the medium", "us").machine(&us(&some));
    run.finding(some.beside(&none));
    run.finding(Finding::new("memory: with all of them", "us").machine(&us(&all)).beside(&none));
    Ok(())
}
