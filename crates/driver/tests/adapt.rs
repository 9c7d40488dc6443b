//! The example application, `examples/adapt.rs`:
//! it adds up right however it reads, and reads as the completion model asks.

#[path = "../examples/adapt.rs"]
mod adapt;

use adapt::{Strategy, over};
use nearside_driver::Policy;

#[test]
fn an_application_adapts_to_the_completion_model() {
    const BLOCKS: u64 = 60;
    let sum = BLOCKS * (BLOCKS + 1) / 2;
    let read = |policy, device_ns| {
        let (found, strategy, _) = over(policy, device_ns, BLOCKS).unwrap();
        assert_eq!(found, sum);
        strategy
    };
    assert_eq!(read(Policy::Polled, 0), Strategy::OnDemand);
    assert_eq!(read(Policy::Interrupt, 0), Strategy::Ahead(8));
    // The hybrid has learned that this drive is slow.
    assert_eq!(read(Policy::Hybrid, 2_000_000), Strategy::Ahead(8));
}
