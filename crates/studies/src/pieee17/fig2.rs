//! Fig. 2: what contributes to the time of an I/O, layer by layer: application, driver, queue, device, medium.
//!
//! The model's software is FAST'12's (the only measured split of a stack that is known here), its device the paper's "less than 8 us".

use nearside_driver::Policy;
use nearside_media::AnyMedium;
use nearside_sim::cpu::{Costs, Host, IoProgram};

use super::layers::{LAYERS, medians_us, plain, total, traced};
use crate::{Chart, Claim, Failure, Finding, Run, Study};

/// See the module.
pub const STUDY: Study =
    Study { number: "Fig. 2", title: "Where an I/O's time goes, layer by layer", section: "III", run };

/// Media by the paper's kinds: none, Optane's, a NAND drive's single read.
const MEDIA: [(&str, &str); 3] = [("memory", "own"), ("Optane", "optane-p4800x"), ("NAND read", "own,101us")];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::stacked("layers", "A read of 4 KiB by layer, polled", "us"));
    let (batches, count) = run.sized((3, 300), (15, 3000));
    let mut shares = Vec::new();
    for (name, word) in MEDIA {
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
                Finding::new(format!("{name}: {layer}"), "us").machine(&medians_us(&reads, |r| r[i]));
            // The model knows software and device, not what is within them.
            match layer {
                "driver" => finding = finding.model(software),
                "medium" => finding = finding.model(response - software),
                _ => {}
            }
            run.finding(finding.point("layers", layer, name));
        }
        let all = run
            .finding(Finding::new(format!("{name}: all layers"), "us").machine(&medians_us(&reads, total)));
        let medium = Finding::new(String::new(), "us").machine(&medians_us(&reads, |r| r[4]));
        shares.push(100.0 * medium.measured().unwrap_or(0.0) / all.measured().unwrap_or(1.0));
    }
    cost(run, batches, count)?;
    run.claim(
        Claim::new("The faster the medium, the more of an I/O's time is the system's", "III")
            .machine(shares[0] < shares[1] && shares[1] < shares[2])
            .because(format!(
                "the medium's share: {:.0} % in memory, {:.0} % Optane, {:.0} % NAND",
                shares[0], shares[1], shares[2]
            )),
    );
    run.note(
        "A layer's time is what it does before and after the layers below it. Queue: from the doorbell until the drive has fetched and checked the \
         command. Device: from there to the medium, and from the medium's end until the completion is visible to the driver.",
    );
    Ok(())
}

/// What the trace points cost: the same reads with and without those in the drive, in turn.
fn cost(run: &mut Run<'_>, batches: usize, count: usize) -> Result<(), Failure> {
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for _ in 0..batches {
        for with in [true, false] {
            let medium = AnyMedium::parse("own")?;
            let reads = match with {
                true => traced(medium)?.reads(count)?,
                false => plain(medium)?.reads(count)?,
            };
            if with { on.push(reads) } else { off.push(reads) }
        }
    }
    let off = run.finding(
        Finding::new("memory: without the drive's trace points", "us").machine(&medians_us(&off, total)),
    );
    let on = Finding::new("memory: with them", "us").machine(&medians_us(&on, total));
    run.finding(on.beside(&off));
    Ok(())
}
