//! Table 1: the device's time by polling and by interrupt, software excluded.
//!
//! On this machine: from the doorbell until the completion is seen by a thread that spins, or by one that the
//! interrupt wakes. The interrupt is an eventfd here, whose waiter the kernel has to schedule, so that the
//! row holds a wake-up. The C-state's row is that of a CPU that has nothing else to do, the row above that of
//! one which a second process keeps awake.

use nearside_driver::Policy;
use nearside_instrument::completion::Bench;
use nearside_media::dram::Prototype;
use nearside_sim::cpu::{Costs, IdleState};

use super::machine::{device_time, path_core};
use super::parameters::{DELIVERY, IDLE_TABLE, MEDIA};
use super::second::Second;
use super::stated::{C_STATE, INTERRUPT, POLLING};
use super::{BUSES, SIZES, alone};
use crate::Relation::Arithmetic;
use crate::{Bound, Chart, Claim, Failure, Finding, Run, Scale, Stated, Study};

/// Table 1.
pub const STUDY: Study =
    Study { number: "Table 1", title: "the device's time by polling and by interrupt", section: "3.1", run };

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("times", "Time to finish a read, software excluded", Scale::linear("µs")));
    let costs = Costs::fast12();
    let idling = costs.clone().idling(IdleState::fast12_table());
    let mut slower = Claim::new("an interrupt adds to the device's time", "Table 1");
    let mut rows = Vec::new();
    for (b, (bus, bus_name)) in BUSES.into_iter().enumerate() {
        let times = Times::new(run, bus)?;
        for (s, (bytes, size)) in SIZES.into_iter().enumerate() {
            let name = |how: &str| format!("{how}, {bus_name}, {size}");
            let model = |costs: &Costs, policy| -> Result<f64, Failure> {
                Ok(alone(costs, policy, bytes, bus.medium())?.threads[0].device.mean_ns() / 1e3)
            };
            run.say(&name("reads"));
            let [polling, awake, idle] = times.measure(run, bytes)?;
            let place = |f: Finding, how: &str| {
                let bus = if b == 0 { "Gen2" } else { "projection" };
                f.point("times", how, &*format!("{bus}, {size}"))
            };
            let polled = Finding::new(name("polling"), "us")
                .paper(&POLLING[b][s])
                .model(model(&costs, Policy::Polled)?)
                .from(Arithmetic, &[MEDIA[b]])
                .machine(&polling);
            let polled = run.finding(place(polled, "polling"));
            let interrupt = Finding::new(name("interrupt"), "us")
                .paper(&INTERRUPT[b][s])
                .model(model(&costs, Policy::Interrupt)?)
                .from(Arithmetic, &[MEDIA[b], DELIVERY])
                .machine(&awake)
                .beside(&polled);
            let interrupt = run.finding(place(interrupt, "interrupt"));
            slower = slower.both(interrupt.ratio(), Bound::Above(1.0));
            if b == 0 {
                let c_state = Finding::new(name("interrupt, enters C-state"), "us")
                    .paper(&C_STATE[s])
                    .model(model(&idling, Policy::Interrupt)?)
                    .from(Arithmetic, &[MEDIA[b], DELIVERY, IDLE_TABLE])
                    .machine(&idle)
                    .beside(&interrupt);
                rows.push((C_STATE[s], run.finding(place(c_state, "C-state"))));
            }
            rows.extend([(POLLING[b][s], polled), (INTERRUPT[b][s], interrupt)]);
        }
    }
    run.claim(slower);
    claims(run, &rows);
    run.note(idle_states());
    Ok(())
}

/// Six rows went into the model, named in [`super::parameters`]; the other four come out of sums with them.
fn claims(run: &mut Run<'_>, rows: &[(Stated, Finding)]) {
    let went_in: Vec<String> = super::parameters::all().into_iter().flat_map(|p| p.cells).collect();
    let (in_it, out): (Vec<_>, Vec<_>) =
        rows.iter().partition(|(stated, _)| went_in.iter().any(|cell| cell == stated.cell));
    for (text, rows) in [
        ("the table's rows that the model was made from come out of it", in_it),
        ("the table's other rows: an interrupt adds to each bus and size what it adds to 4 KiB on Gen2", out),
    ] {
        let claim = Claim::new(text, "Table 1");
        run.claim(rows.iter().fold(claim, |claim, (stated, row)| claim.model(row, Bound::stated(stated))));
    }
}
/// Which idle states this machine has.
fn idle_states() -> String {
    let cpuidle = std::path::Path::new("/sys/devices/system/cpu/cpu0/cpuidle");
    let states: Vec<String> = std::fs::read_dir(cpuidle)
        .into_iter()
        .flatten()
        .filter_map(|state| std::fs::read_to_string(state.ok()?.path().join("name")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    if states.is_empty() {
        "This machine shows its kernel no idle states: an idle CPU halts, and what that becomes is decided below the kernel. The row \
         \"enters C-state\" is that of a CPU which halts."
            .to_owned()
    } else {
        format!("This machine's idle states: {}.", states.join(", "))
    }
}

/// The drive in real time.
struct Times {
    bench: Bench,
    rounds: usize,
    count: usize,
}

impl Times {
    fn new(run: &Run<'_>, bus: Prototype) -> Result<Times, Failure> {
        let (rounds, count) = run.sized((3, 300), (9, 3_000));
        Ok(Times { bench: Bench::new(bus.medium())?, rounds, count })
    }

    /// Medians of each round in microseconds:
    /// polling, interrupt with the CPU kept awake, interrupt with the CPU idle.
    fn measure(&self, run: &Run<'_>, bytes: u32) -> Result<[Vec<f64>; 3], Failure> {
        let us = |bytes, interrupt| -> Result<f64, Failure> {
            Ok(device_time(self.bench.driver(), bytes, interrupt, self.count)? as f64 / 1e3)
        };
        let mut medians: [Vec<f64>; 3] = Default::default();
        for _ in 0..self.rounds {
            medians[0].push(us(bytes, false)?);
            medians[2].push(us(bytes, true)?);
            // With one core the drive itself keeps it awake.
            if let Some(core) = path_core() {
                let second = Second::slots(run.helper(), core)?;
                medians[1].push(us(bytes, true)?);
                drop(second);
            }
        }
        Ok(medians)
    }
}
