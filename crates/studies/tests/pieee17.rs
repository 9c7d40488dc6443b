//! PIEEE'17 in small: what the paper claims holds on the model; in real time only who has the larger part.

mod small;

use std::sync::{Mutex, PoisonError};

use nearside_studies::Paper::Pieee17;
use nearside_studies::Record;
use small::{holds_on_the_model, small};

/// One at a time: two that measure in real time would take the core from each other.
fn study(number: &str) -> Record {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let record = small(Pieee17, number);
    holds_on_the_model(&record, number, &[]);
    record
}

fn model(record: &Record, name: &str) -> f64 {
    let finding = record.get(name).unwrap_or_else(|| panic!("no finding {name:?}"));
    finding.model.unwrap_or_else(|| panic!("{name:?} has no model's value"))
}

#[test]
fn figs_2_and_4() {
    let record = study("Fig. 2");
    assert!(record.claims("Fig. 2").all(|c| c.machine == Some(true)), "a slower medium has the larger part");
    // The layers of a read are all of it: their medians add up to about its median.
    let of = |name: &str| record.get(&format!("NAND read: {name}")).unwrap().measured().unwrap();
    let layers: f64 = ["application", "driver", "queue", "device", "medium"].map(of).iter().sum();
    assert!((layers / of("all layers") - 1.0).abs() < 0.2, "{layers} of {}", of("all layers"));
    for medium in ["memory", "Optane", "NAND read"] {
        let of = |name: &str| record.get(&format!("{medium}: {name}")).unwrap().measured().unwrap();
        // Both ways of a layer have their own time: without its own trace point on the way back, one of the two would be empty.
        for layer in ["queue", "device"] {
            let back = of(&format!("{layer}, of it on the way back"));
            assert!(back > 0.0 && back <= of(layer), "{medium}: {layer} {}, back {back}", of(layer));
        }
    }
    study("Fig. 4");
}

fn machine(record: &Record, name: &str) -> f64 {
    let finding = record.get(name).unwrap_or_else(|| panic!("no finding {name:?}"));
    finding.measured().unwrap_or_else(|| panic!("{name:?} has no value of this machine"))
}

#[test]
fn fig_3() {
    let record = study("Fig. 3");
    // The adapter's 25 us are there in real time, whatever else is.
    let adds = machine(&record, "SAS over PCIe, one read at a time: the adapter and its drives' ports");
    assert!(adds > 12.0, "{adds} us");
    for name in ["SATA", "SAS", "PCIe"] {
        // Nobody is faster than the interface. Bounded by a number of operations, a run's end counts some more than its window held.
        let name = format!("{name}: most");
        assert!(machine(&record, &name) < model(&record, &name) * 1.1, "{name}");
    }
}

#[test]
fn fig_5() {
    let record = study("Fig. 5");
    let iops = |drive: &str, depth: u32| machine(&record, &format!("{drive}, queue depth {depth}"));
    let ratio = iops("Optane", 8) / iops("NAND", 8);
    assert!(ratio > 2.0, "at a queue depth of 8 Optane has many times NAND's: {ratio}");
    let ratio = iops("NAND", 128) / iops("NAND", 1);
    assert!(ratio > 4.0, "NAND lives from its queue: {ratio}");
}

#[test]
fn fig_6() {
    let record = study("Fig. 6");
    let cases = [
        "(a) an I/O every 20 us, an SSD of 100 us",
        "(b) an I/O every 20 us, an SSD of 10 us",
        "(c) an I/O every 4 us, an SSD of 10 us",
    ];
    assert!((model(&record, &format!("{}: response time", cases[2])) - 20.0).abs() < 0.1);
    let depth = |case: usize, which: &str| machine(&record, &format!("{}: queue depth {which}", cases[case]));
    for which in ["at the SSD", "of the system"] {
        assert!(depth(0, which) > 1.5 * depth(1, which), "the slow SSD holds many times as many");
        for (case, name) in cases.iter().enumerate() {
            assert!(depth(case, which) > 0.0, "{name}, {which}");
            let looked = record.get(&format!("{name}: queue depth {which}, by looking")).unwrap();
            if let Some(ratio) = looked.figure.ratio {
                assert!((0.25..4.0).contains(&ratio), "{name}, {which}: by looking {ratio} of Little's law");
            }
        }
    }
    // Nothing takes less than its time: neither the SSD's, nor the system's 10 us.
    for (case, (ssd, system)) in [(5.0, 0.5), (0.5, 0.5), (2.5, 2.5)].into_iter().enumerate() {
        let (at_ssd, all) = (depth(case, "at the SSD"), depth(case, "of the system"));
        assert!(at_ssd > 0.9 * ssd && all - at_ssd > 0.9 * system, "{}: {at_ssd} of {all}", cases[case]);
    }
}

#[test]
fn figs_7_and_8() {
    let record = study("Fig. 7");
    let ratio = machine(&record, "NAND's mean over Optane's");
    assert!(ratio > 2.0, "{ratio}");
    let record = study("Fig. 8");
    let rises = |drive: &str, depth: u32| {
        let mean = |depth: u32| machine(&record, &format!("{drive}: mean at queue depth {depth}"));
        mean(depth) / mean(1)
    };
    assert!(rises("NAND", 128) > 1.5, "{}", rises("NAND", 128));
}

#[test]
fn fig_11() {
    let record = study("Fig. 11");
    let optane = model(&record, "Optane: standard");
    assert!((120.0..180.0).contains(&optane), "{optane}");
}
