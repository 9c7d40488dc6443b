//! PIEEE'17 in small: what the paper claims holds on the model; in real time only who has the larger part.

mod small;

use nearside_studies::Paper::Pieee17;
use nearside_studies::Record;
use small::{holds_on_the_model, small};

fn study(number: &str) -> Record {
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

#[test]
fn fig_3() {
    study("Fig. 3");
}

#[test]
fn figs_5_to_8() {
    study("Fig. 5");
    let record = study("Fig. 6");
    assert!((model(&record, "(c) an I/O every 4 us, an SSD of 10 us: response time") - 20.0).abs() < 0.1);
    study("Fig. 7");
    study("Fig. 8");
}

#[test]
fn fig_11() {
    let record = study("Fig. 11");
    let optane = model(&record, "Optane: standard");
    assert!((120.0..180.0).contains(&optane), "{optane}");
}
