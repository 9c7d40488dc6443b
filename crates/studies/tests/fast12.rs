//! FAST'12 in small: what the paper claims holds on the model; in real time only ratios, with wide margins.

mod small;

use nearside_studies::Paper::Fast12;
use small::{holds_on_the_model, small};

#[test]
fn table_1() {
    let record = small(Fast12, "Table 1");
    holds_on_the_model(&record, "Table 1", &[]);
    for (bus, size) in [("Gen2", "512 B"), ("Gen2", "4 KiB")] {
        let polling = record.get(&format!("polling, {bus}, {size}")).unwrap();
        // The medium's time is what it says, whatever comes on top.
        assert!(polling.measured().unwrap() >= polling.model.unwrap() * 0.99);
        let idle = record.get(&format!("interrupt, enters C-state, {bus}, {size}")).unwrap();
        assert!(idle.measured().unwrap() > polling.measured().unwrap(), "a wake-up takes time");
    }
}
