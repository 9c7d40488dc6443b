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
use super::second::Second;
use super::{BUSES, SIZES, alone};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

/// Table 1.
pub const STUDY: Study =
    Study { number: "Table 1", title: "the device's time by polling and by interrupt", section: "3.1", run };

/// What the paper measured, in microseconds with 512 B and with 4 KiB, on Gen2 and as projected.
const POLLING: [[f64; 2]; 2] = [[1.5, 2.9], [0.9, 1.5]];
const INTERRUPT: [[f64; 2]; 2] = [[2.6, 4.1], [2.0, 2.6]];
const C_STATE: [f64; 2] = [3.3, 4.6];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("times", "Time to finish a read, software excluded", Scale::linear("µs")));
    let costs = Costs::fast12();
    let idling = costs.clone().idling(IdleState::fast12_table());
    let mut worst: f64 = 0.0;
    let mut slower: [Vec<Option<f64>>; 2] = Default::default();
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
                .paper(POLLING[b][s], "Table 1")
                .model(model(&costs, Policy::Polled)?)
                .machine(&polling);
            let polled = run.finding(place(polled, "polling"));
            let interrupt = Finding::new(name("interrupt"), "us")
                .paper(INTERRUPT[b][s], "Table 1")
                .model(model(&costs, Policy::Interrupt)?)
                .machine(&awake)
                .beside(&polled);
            let interrupt = run.finding(place(interrupt, "interrupt"));
            let rows = if b == 0 {
                let c_state = Finding::new(name("interrupt, enters C-state"), "us")
                    .paper(C_STATE[s], "Table 1")
                    .model(model(&idling, Policy::Interrupt)?)
                    .machine(&idle)
                    .beside(&interrupt);
                vec![polled, interrupt, run.finding(place(c_state, "C-state"))]
            } else {
                vec![polled, interrupt]
            };
            let [_, interrupt, ..] = &rows[..] else { continue };
            slower[0].push(interrupt.model_ratio);
            slower[1].push(interrupt.figure.ratio);
            for row in rows {
                if let (Some(paper), Some(model)) = (&row.paper, row.model) {
                    worst = worst.max((model / paper.value - 1.0).abs() * 100.0);
                }
            }
        }
    }
    let claim = Claim::new("an interrupt adds to the device's time", "Table 1");
    let [model, machine] = slower.map(criteria::all_above_one);
    run.claim(Claim { model, machine, ..claim });
    run.claim(
        Claim::new("512 B are predicted from 4 KiB within 10 %", "Table 1")
            .model(worst <= 10.0)
            .because(format!("the model is at most {worst:.1} % off any row")),
    );
    run.note(idle_states());
    Ok(())
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
    bench: Bench<nearside_media::dram::DramPrototype>,
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
