//! FAST'12 in small: what the paper claims holds on the model. Of what this machine measures only what no
//! load can change is judged: a medium takes its time, and waiting keeps the order.

mod small;

use nearside_studies::Paper::Fast12;
use nearside_studies::fast12::counters::Event;
use nearside_studies::{Column, Finding, Record};
use small::{holds_on_the_model, measured, small};

fn get<'a>(record: &'a Record, name: &str) -> &'a Finding {
    record.get(name).unwrap_or_else(|| panic!("nothing is called {name:?}"))
}

/// The model is within 10 % of what the text states, wherever it states a value.
fn near_the_paper(record: &Record, number: &str, except: &[&str]) {
    let mut compared = 0;
    for finding in record.findings(number).filter(|f| !except.contains(&&*f.figure.name)) {
        if let (Some(paper), Some(model)) = (&finding.paper, finding.model) {
            assert!(!paper.says.is_bound(), "FAST'12 states no bounds");
            let (low, high) = (paper.value * 0.9, paper.to.unwrap_or(paper.value) * 1.1);
            assert!((low..=high).contains(&model), "{}: {model}", finding.figure.name);
            compared += 1;
        }
    }
    assert!(compared > 0, "{number} compares nothing");
}

/// A CPU time that this machine measured says what its clock tells apart.
fn cpu_times_are_resolved(record: &Record, number: &str) {
    let of_cpu = |f: &&Finding| {
        let named = ["CPU time", "a neighbour's step"].iter().any(|what| f.figure.name.contains(what));
        named && f.measured().is_some() && !f.figure.unit.is_empty()
    };
    let found: Vec<_> = record.findings(number).filter(of_cpu).collect();
    assert!(!found.is_empty(), "{number} measures no CPU time");
    for finding in found {
        let resolution = finding.figure.resolution.unwrap_or(0.0);
        assert!(resolution > 0.0, "{}: resolved to {resolution}", finding.figure.name);
    }
}

#[test]
fn table_1() {
    let record = small(Fast12, "Table 1");
    holds_on_the_model(&record, "Table 1", &[]);
    near_the_paper(&record, "Table 1", &[]);
    for size in ["512 B", "4 KiB"] {
        let polling = get(&record, &format!("polling, Gen2, {size}"));
        // The medium's time is what it says, whatever comes on top.
        assert!(polling.measured().unwrap() >= polling.model.unwrap() * 0.99);
        let idle = measured(&record, &format!("interrupt, enters C-state, Gen2, {size}"));
        assert!(idle >= polling.model.unwrap() * 0.99);
    }
}

#[test]
fn figure_1() {
    let record = small(Fast12, "Fig. 1");
    holds_on_the_model(&record, "Fig. 1", &[]);
    near_the_paper(&record, "Fig. 1", &[]);
    for size in ["512 B", "4 KiB"] {
        measured(&record, &format!("asynchronous, Gen2, {size}"));
    }
    cpu_times_are_resolved(&record, "Fig. 1");
}

#[test]
fn figure_2() {
    let record = small(Fast12, "Fig. 2");
    holds_on_the_model(&record, "Fig. 2", &[]);
    near_the_paper(&record, "Fig. 2", &[]);
    // Absent only where there is no core for the second process.
    let alone = record.notes("Fig. 2").any(|note| note.contains("one core"));
    assert!(get(&record, "T_a + T_b").figure.ratio.is_some() || alone);
}

#[test]
fn figure_3() {
    let record = small(Fast12, "Fig. 3");
    holds_on_the_model(&record, "Fig. 3", &[]);
    near_the_paper(&record, "Fig. 3", &["threads on each CPU for that"]);
    let threads = get(&record, "threads on each CPU for that").model.unwrap();
    assert!((7.0..=8.0).contains(&threads), "{threads}");
}

#[test]
fn section_3_4() {
    let record = small(Fast12, "Section 3.4");
    holds_on_the_model(&record, "Section 3.4", &[]);
    near_the_paper(&record, "Section 3.4", &[]);
    for completions in [1, 16] {
        measured(&record, &format!("CPU time of a read, an interrupt for {completions} completions"));
    }
    cpu_times_are_resolved(&record, "Section 3.4");
    counters_are_read_or_named(&record);
}

fn counters_are_read_or_named(record: &Record) {
    let sets = ["16 KiB", "256 KiB", "4 MiB"];
    if record.get("a neighbour's step through 16 KiB, alone").is_none() {
        return assert!(record.notes("Section 3.4").any(|note| note.contains("no core beside the drive's")));
    }
    for event in Event::ALL.map(Event::name) {
        let of = |size: &str, how: &str| {
            record.get(&format!("{event} of a neighbour's 1,000 steps through {size}, {how}"))
        };
        let slots = |size| of(size, "in the slots of asynchronous reads");
        let read = sets.iter().all(|size| of(size, "alone").and(slots(size)).is_some());
        let named =
            record.notes("Section 3.4").any(|n| n.starts_with(&format!("{event} of the neighbour: ")));
        assert!(read != named, "{event}: read {read}, named {named}");
        if read && event == Event::Instructions.name() {
            // The same loop: who counts others' work as well, or scales by the wrong time, is far off.
            for size in sets {
                let ratio = slots(size).unwrap().figure.ratio.unwrap();
                assert!((0.9..1.1).contains(&ratio), "{size}: {ratio}");
            }
        }
    }
}

#[test]
fn section_3_5() {
    let record = small(Fast12, "Section 3.5");
    let pairs = |path: &str, call: &str, threads: &str| {
        get(&record, &format!("B before A, {path}, {call}, {threads}: pairs of 2000")).measured().unwrap()
    };
    holds_on_the_model(&record, "Section 3.5", &[]);
    for threads in ["one thread", "two threads"] {
        for call in ["blocking", "non-blocking"] {
            assert_eq!(pairs("synchronous", call, threads), 0.0, "{call}, {threads}");
        }
        assert_eq!(pairs("asynchronous", "blocking", threads), 0.0, "who waits for A has the order");
        // With two submission contexts and no barrier B may overtake A;
        // whether it does is the scheduler's affair.
        assert!((0.0..=2000.0).contains(&pairs("asynchronous", "non-blocking", threads)));
    }
    let claims: Vec<_> = record.claims("Section 3.5").collect();
    let by_chance = "with asynchronous completion a program has to rely on a barrier";
    let held = |c: &&nearside_studies::Claim| record.verdict(c, Column::Machine) == Some(true);
    assert!(claims.iter().all(|c| held(c) || c.text == by_chance), "{claims:#?}");
}

#[test]
fn section_4() {
    let record = small(Fast12, "Section 4");
    holds_on_the_model(&record, "Section 4", &[]);
    cpu_times_are_resolved(&record, "Section 4");
    for rule in ["hybrid", "synchronous"] {
        measured(&record, &format!("CPU time, {rule}, 524288 B, with stalls, this machine"));
    }
    // Where the device is slow the hybrid leaves the CPU to others; spinning does not.
    let model = |what: &str| get(&record, &format!("{what}, model")).model.unwrap();
    for (bytes, device) in [(524_288, "steady"), (512, "with stalls"), (524_288, "with stalls")] {
        let cpu = |rule| model(&format!("CPU time, {rule}, {bytes} B, {device}"));
        let (hybrid, spinning) = (cpu("hybrid"), cpu("synchronous"));
        assert!(hybrid < 0.7 * spinning, "{bytes} B, {device}: {hybrid} {spinning}");
    }
    // Whoever spins takes as much CPU as time.
    let [time, cpu] = ["time beyond the device's", "CPU time"]
        .map(|what| model(&format!("{what}, synchronous, 512 B, steady")));
    assert!((time + 2.05 - cpu).abs() < 0.01, "{time} {cpu}");
    let stalling = model("time beyond the device's, synchronous, 512 B, with stalls");
    assert!((stalling - time).abs() < 0.01, "a stall is the device's own time: {stalling}");
}

/// Their machine's column is root_apps' in crates/cli.
#[test]
fn swap_and_read_ahead() {
    let record = small(Fast12, "Swap");
    holds_on_the_model(&record, "Swap", &[]);
    for (number, record) in [("Swap", record), ("Read-ahead", small(Fast12, "Read-ahead"))] {
        assert!(
            record.notes(number).any(|note| note.contains("no program that attaches drives")),
            "{number}"
        );
    }
}
