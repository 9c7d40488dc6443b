//! The numbers of FAST'12's models, and where each comes from. The structures are taken apart whole: a number
//! that is new in one of them has to be accounted for here.

use nearside_media::dram::Prototype;
use nearside_sim::cpu::{Costs, IdleState};

use super::crossing::{LINES_NS, TRANSFERS};
use super::section4::{STALL_NS, STEADY};
use super::stated::{ASYNCHRONOUS, C_STATE, IDLE, INTERRUPT, LIMIT, POLLING, SYNCHRONOUS, T_A, T_B};
use crate::source::{Parameter, Parameters};

/// The host's CPUs and software.
pub const HOST: &str = "fast12-host";
/// The synchronous path's part of it.
pub const SYNC: [&str; 2] = ["fast12-host.submit_ns", "fast12-host.complete_ns"];
/// The asynchronous path's part of it, on a CPU that does nothing else.
pub const ASYNC: [&str; 7] = [
    "fast12-host.queue_ns",
    "fast12-host.context_ns",
    "fast12-host.delivery_ns",
    "fast12-host.handler_ns",
    "fast12-host.wake_ns",
    "fast12-host.back_ns",
    "fast12-host.resume_ns",
];
/// From the doorbell to the handler, beside the medium.
pub const DELIVERY: &str = "fast12-host.delivery_ns";
/// What a second process on the CPU costs.
pub const SWITCH: &str = "fast12-host.switch_ns";
/// The prototype on its two buses.
pub const MEDIA: [&str; 2] = ["fast12-gen2", "fast12-projection"];
/// The idle state by Table 1.
pub const IDLE_TABLE: &str = "fast12-idle-table";
/// The idle state by section 3.4.
pub const IDLE_TEXT: &str = "fast12-idle-text";
/// Section 4's device.
pub const DEVICE: &str = "fast12-section-4";
/// Lines that pass between the cores of host and drive, and the devices of the crossing.
pub const LINES: &str = "fast12-lines";
/// Section 3.5's interleavings.
pub const ORDER: &str = "fast12-interleavings";

/// All.
pub fn all() -> Vec<Parameter> {
    let order = Parameters::of(ORDER)
        .assumed("contexts", 2u32, "one submission context for each of A and B, as with a queue for each CPU")
        .list();
    let gen2 = medium(MEDIA[0], Prototype::GEN2, 0);
    let projection = medium(MEDIA[1], Prototype::PROJECTION, 1);
    let table = idle(IDLE_TABLE, IdleState::fast12_table(), false);
    let text = idle(IDLE_TEXT, IdleState::fast12_text(), true);
    let lines = Parameters::of(LINES)
        .assumed(
            "transfers",
            TRANSFERS,
            "round trips that a read waits for: command, completion, data; one of them is the handler's as well",
        )
        .assumed("round_trip_ns", LINES_NS[2], "none, and those of two machines with virtual cores: 108 and 300")
        .list();
    [host(), gen2, projection, table, text, section_4(), lines, order].concat()
}

fn host() -> Vec<Parameter> {
    let Costs {
        source: _,
        submit_ns,
        complete_ns,
        queue_ns,
        context_ns,
        delivery_ns,
        handler_ns,
        wake_ns,
        back_ns,
        switch_ns,
        resume_ns,
        slice_ns,
        idle_state: _,
    } = Costs::fast12();
    let sync = [SYNCHRONOUS, POLLING[0][1]];
    let half = "4.38 us less 2.9 us of device; halved, which is assumed and of which only the sum counts";
    let rest =
        "a third of what T_a leaves without call, return and a switch back, which is assumed to cost T_b";
    Parameters::of(HOST)
        .paper("submit_ns", submit_ns, &sync, half)
        .paper("complete_ns", complete_ns, &sync, half)
        .assumed_from("queue_ns", queue_ns, &sync, "as the synchronous path's call")
        .assumed_from("context_ns", context_ns, &[T_A, T_B], rest)
        .paper("delivery_ns", delivery_ns, &[INTERRUPT[0][1], POLLING[0][1]], "interrupt less polling, 4 KiB")
        .assumed_from("handler_ns", handler_ns, &[T_A, T_B], rest)
        .assumed_from("wake_ns", wake_ns, &[T_A, T_B], rest)
        .assumed_from("back_ns", back_ns, &sync, "as the synchronous path's return")
        .paper("switch_ns", switch_ns, &[T_B], "T_b")
        .fitted(
            "resume_ns",
            resume_ns,
            &[ASYNCHRONOUS],
            "none, or a switch's 1.4 us: with none T_a and T_d come to the 7.6 us of Fig. 1, with one to 9.0",
        )
        .assumed("slice_ns", slice_ns, "some milliseconds, as Linux has; no study comes to its end")
        .list()
}

fn medium(model: &'static str, prototype: Prototype, bus: usize) -> Vec<Parameter> {
    let Prototype { path_ns, command_ns, byte_ps } = prototype;
    let cells = POLLING[bus];
    let all = Parameters::of(model).paper("path_ns", path_ns, &cells, "512 B less its bytes").paper(
        "byte_ps",
        byte_ps,
        &cells,
        "4 KiB less 512 B, over 3584 B",
    );
    let all = match bus {
        0 => all.paper("command_ns", command_ns, &[LIMIT], "its reciprocal"),
        _ => all.assumed_from("command_ns", command_ns, &[LIMIT], "as on Gen2"),
    };
    all.list()
}

fn idle(model: &'static str, state: IdleState, by_text: bool) -> Vec<Parameter> {
    let IdleState { name: _, after_ns, entry_ns, exit_ns } = state;
    let all = Parameters::of(model).assumed("after_ns", after_ns, "entered at once").assumed(
        "entry_ns",
        entry_ns,
        "entering takes no time",
    );
    let all = match by_text {
        true => all.paper("exit_ns", exit_ns, &[IDLE], "the text's 2 us, which are not Table 1's"),
        false => {
            all.paper("exit_ns", exit_ns, &[C_STATE[1], INTERRUPT[0][1]], "C-state less interrupt, 4 KiB")
        }
    };
    all.list()
}

fn section_4() -> Vec<Parameter> {
    let why = "a device of our own: the paper has no numbers here";
    Parameters::of(DEVICE)
        .assumed("fixed_ns", STEADY.fixed_ns, why)
        .assumed("per_kib_ns", STEADY.per_kib_ns, why)
        .assumed("stall_ns", STALL_NS, "long enough to show; one read in 200, in a small run in 50")
        .list()
}

#[cfg(test)]
mod tests {
    use nearside_driver::Policy;

    use super::*;
    use crate::fast12::{SIZES, alone};

    #[test]
    fn the_numbers_are_what_their_cells_come_to() {
        let near =
            |value: u64, expected: f64| assert!((value as f64 - expected).abs() <= 1.0, "{value} {expected}");
        let ns = |less: f64| less * 1e3;
        for (bus, prototype) in [Prototype::GEN2, Prototype::PROJECTION].into_iter().enumerate() {
            let [small, large] = POLLING[bus].map(|cell| ns(cell.value));
            near(prototype.byte_ps, (large - small) * 1e3 / 3584.0);
            near(prototype.path_ns, small - 512.0 * prototype.byte_ps as f64 / 1e3);
            near(prototype.command_ns, 1e9 / LIMIT.value);
        }
        let costs = Costs::fast12();
        near(costs.submit_ns + costs.complete_ns, ns(SYNCHRONOUS.value - POLLING[0][1].value));
        near(costs.delivery_ns, ns(INTERRUPT[0][1].value - POLLING[0][1].value));
        near(costs.switch_ns, ns(T_B.value));
        let path = costs.queue_ns + costs.context_ns + costs.handler_ns + costs.wake_ns + costs.back_ns;
        near(path, ns(T_A.value - T_B.value));
        near(path + costs.delivery_ns + 2_900, ns(ASYNCHRONOUS.value));
        near(IdleState::fast12_table().exit_ns, ns(C_STATE[1].value - INTERRUPT[0][1].value));
        near(IdleState::fast12_text().exit_ns, ns(IDLE.value));
    }

    /// A read alone on its CPU depends on the numbers that its value names, and on no others.
    #[test]
    fn values_name_what_they_depend_on() {
        type More = fn(&mut Costs);
        let more: [(&str, More); 11] = [
            ("submit_ns", |c| c.submit_ns += 100),
            ("complete_ns", |c| c.complete_ns += 100),
            ("queue_ns", |c| c.queue_ns += 100),
            ("context_ns", |c| c.context_ns += 100),
            ("delivery_ns", |c| c.delivery_ns += 100),
            ("handler_ns", |c| c.handler_ns += 100),
            ("wake_ns", |c| c.wake_ns += 100),
            ("back_ns", |c| c.back_ns += 100),
            ("switch_ns", |c| c.switch_ns += 100),
            ("resume_ns", |c| c.resume_ns += 100),
            ("slice_ns", |c| c.slice_ns += 100),
        ];
        let mean = |costs: &Costs, policy, bytes| {
            let outcome = alone(costs, policy, bytes, Prototype::GEN2.medium()).unwrap();
            let thread = &outcome.threads[0];
            (thread.call.mean_ns(), thread.device.mean_ns())
        };
        for (policy, named, of_device) in
            [(Policy::Polled, &SYNC[..], &[][..]), (Policy::Interrupt, &ASYNC[..], &[DELIVERY][..])]
        {
            for (bytes, size) in SIZES {
                let (call, device) = mean(&Costs::fast12(), policy, bytes);
                for (name, change) in more {
                    let mut costs = Costs::fast12();
                    change(&mut costs);
                    let whole = format!("{HOST}.{name}");
                    let (other, other_device) = mean(&costs, policy, bytes);
                    let why = format!("{policy:?}, {size}: {name}");
                    assert_eq!((other - call).abs() > 1.0, named.contains(&&*whole), "{why}");
                    assert_eq!((other_device - device).abs() > 1.0, of_device.contains(&&*whole), "{why}");
                }
            }
        }
    }
}
