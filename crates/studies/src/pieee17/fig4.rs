//! Fig. 4: latency from the application and at the device, for the Optane SSD beside a NAND NVMe SSD.
//!
//! The model's host software is FAST'12's asynchronous path, so that the sum is a prediction. On this machine
//! the drive takes the model's time in real time, and its host is the driver here, polled.

use nearside_driver::Policy;
use nearside_embedded::Model;
use nearside_media::AnyMedium;
use nearside_sim::cpu::{Costs, Host, IoProgram};

use super::layers::{Read, medians_us, traced};
use super::parameters::{P3700, P4800X};
use super::stated::{APPLICATION, DEVICE, SYSTEM};
use crate::Relation::{Arithmetic, Simulated};
use crate::{Bound, Chart, Claim, Failure, Finding, Run, Scale, Stated, Study};

/// PIEEE'17, Fig. 4: latency at application and device.
pub const STUDY: Study = Study {
    number: "Fig. 4",
    title: "Latency from application to device, Optane beside NAND",
    section: "III-B",
    run,
};

const CAPACITY: u64 = 2 << 30;
/// What the system's part is made of: FAST'12's asynchronous path without the interrupt's delivery, which the
/// device's time has in it here.
const HOST: [&str; 5] = [
    "fast12-host.queue_ns",
    "fast12-host.context_ns",
    "fast12-host.handler_ns",
    "fast12-host.wake_ns",
    "fast12-host.back_ns",
];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides(
        "latency",
        "A read of 4 KiB: at the device, and what the system adds",
        Scale::log("us"),
    ));
    let mut modelled = Vec::new();
    for word in ["optane-p4800x", "nand-p3700"] {
        let mut model = Model::parse(word, CAPACITY)?;
        if let Model::Flash(flash) = &mut model {
            flash.precondition(0.2, 1);
        }
        let program = IoProgram { span: CAPACITY, ..IoProgram::reads(Policy::Interrupt, 4096) };
        // The device's time has the interrupt in it already.
        let costs = Costs { delivery_ns: 0, ..Costs::fast12() };
        let host = Host::alike(costs, 1, 1, &program).run(model)?;
        let all = host.response().mean_ns() / 1e3;
        let device = host.threads[0].device.mean_ns() / 1e3;
        modelled.push((device, all - device));
    }
    run.say("Optane's time in real time ...");
    let (batches, count) = run.sized((3, 300), (15, 3000));
    let mut rig = traced(AnyMedium::parse("optane-p4800x")?)?;
    rig.reads(count)?;
    let reads = (0..batches).map(|_| rig.reads(count)).collect::<Result<Vec<_>, _>>()?;
    drop(rig);
    // The drive's own work comes on top of the modelled device's, which is a whole drive's:
    // it counts as the system's here.
    let medium = medians_us(&reads, Read::medium);
    let system = medians_us(&reads, |read| read.total() - read.medium());
    for ((name, (device, added)), measured) in
        ["Optane", "NAND"].into_iter().zip(&modelled).zip([Some((medium, system)), None])
    {
        let optane = name == "Optane";
        let (model, relation) = if optane { (P4800X, Arithmetic) } else { (P3700, Simulated) };
        let all: Vec<&str> = HOST.into_iter().chain([model]).collect();
        let mut at_device = Finding::new(format!("{name}: at the device"), "us").model(*device);
        let mut by_system = Finding::new(format!("{name}: the system adds"), "us").model(*added);
        let mut whole = Finding::new(format!("{name}: from the application"), "us").model(device + added);
        at_device = at_device.from(relation, &[model]);
        by_system = by_system.from(Arithmetic, &HOST);
        whole = whole.from(relation, &all);
        if optane {
            at_device = at_device.paper(&DEVICE);
            by_system = by_system.paper(&SYSTEM);
            whole = whole.paper(&APPLICATION);
        }
        if let Some((medium, system)) = measured {
            at_device = at_device.machine(&medium);
            by_system = by_system.machine(&system);
            whole = whole.machine(&medians_us(&reads, Read::total));
        }
        let found = [
            (run.finding(at_device.point("latency", "device", name)), DEVICE),
            (run.finding(by_system.point("latency", "system", name)), SYSTEM),
            (run.finding(whole), APPLICATION),
        ];
        if optane {
            claims(run, &found);
        }
    }
    run.note("The SATA system of 2008 (140 us of NAND and 40 us of system, of which the adapter about 25 and software about 12) is not modelled.");
    Ok(())
}

fn claims(run: &mut Run<'_>, found: &[(Finding, Stated); 3]) {
    let texts = [
        "An Optane SSD takes less than 8 us at the device",
        "The system adds less than 4 us",
        "From the application it is about 11 us",
    ];
    for (text, (finding, stated)) in texts.into_iter().zip(found) {
        run.claim(Claim::new(text, "III-B").model(finding, Bound::stated(stated)));
    }
}
