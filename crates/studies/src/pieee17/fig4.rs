//! Fig. 4: latency from the application and at the device, for the Optane SSD beside a NAND NVMe SSD.
//!
//! The model's host software is FAST'12's asynchronous path, so that the sum is a prediction. On this machine
//! the drive takes the model's time in real time, and its host is the driver here, polled.

use nearside_driver::Policy;
use nearside_embedded::Model;
use nearside_media::AnyMedium;
use nearside_sim::cpu::{Costs, Host, IoProgram};

use super::layers::{Read, medians_us, traced};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study};

/// PIEEE'17, Fig. 4: latency at application and device.
pub const STUDY: Study = Study {
    number: "Fig. 4",
    title: "Latency from application to device, Optane beside NAND",
    section: "III-B",
    run,
};

const CAPACITY: u64 = 2 << 30;

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
        let mut at_device = Finding::new(format!("{name}: at the device"), "us").model(*device);
        let mut by_system = Finding::new(format!("{name}: the system adds"), "us").model(*added);
        let mut whole = Finding::new(format!("{name}: from the application"), "us").model(device + added);
        if name == "Optane" {
            at_device = at_device.paper(8.0, "III-B: less than");
            by_system = by_system.paper(4.0, "III-B: less than");
            whole = whole.paper(11.0, "III-B: about");
        }
        if let Some((medium, system)) = measured {
            at_device = at_device.machine(&medium);
            by_system = by_system.machine(&system);
            whole = whole.machine(&medians_us(&reads, Read::total));
        }
        run.finding(at_device.point("latency", "device", name));
        run.finding(by_system.point("latency", "system", name));
        run.finding(whole);
    }
    let [(optane, system), (nand, _)] = modelled[..] else { return Ok(()) };
    run.claim(
        Claim::new(
            "An Optane SSD takes less than 8 us at the device, about 11 from the application",
            "III-B",
        )
        .model(optane < 8.0 && (optane + system - 11.0).abs() < 1.5)
        .because(format!(
            "{optane:.1} us and {:.1} us; a NAND drive's {nand:.0} us at the device",
            optane + system
        )),
    );
    run.claim(
        Claim::new("The system adds less than 4 us", "III-B")
            .model(system < 4.0)
            .because(format!("{system:.1} us, by FAST'12's asynchronous path")),
    );
    run.note("The SATA system of 2008 (140 us of NAND and 40 us of system, of which the adapter about 25 and software about 12) is not modelled.");
    Ok(())
}
