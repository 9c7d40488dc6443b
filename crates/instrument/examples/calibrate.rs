//! This machine's costs, and the completion paths by the model fed with them beside the same measured:
//! 4 KiB reads over a device time.

use std::time::{SystemTime, UNIX_EPOCH};

use nearside_instrument::Failure;
use nearside_instrument::calibrate::calibrate;
use nearside_instrument::completion::{Bench, POLICIES, compare, unpin};
use nearside_loadgen::floor::Effort;
use nearside_loadgen::record::Environment;
use nearside_media::Delay;
use nearside_sim::cpu::{Host, IoProgram};

fn main() -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let calibration = calibrate(Effort::FAST, Environment::gather(now))?;
    println!("{}", serde_json::to_string_pretty(&calibration.costs)?);
    for device_ns in [10_000, 50_000] {
        let delay = Delay::fixed(device_ns);
        let measured = compare(&mut Bench::new(delay.medium())?, 4096, 5, 500)?;
        unpin();
        for (policy, measured) in POLICIES.into_iter().zip(measured) {
            let host = Host::alike(calibration.costs.clone(), 1, 1, &IoProgram::reads(policy, 4096));
            let outcome = host.run(delay.medium())?;
            let model = outcome.threads[0].call.percentile(50.0).ns;
            let cpu = (outcome.time().total_ns() - outcome.time().idle_ns) / outcome.ended().max(1);
            println!(
                "{device_ns} ns, {}: response {model} ns, measured {}; CPU {cpu} ns, measured {:.0}",
                policy.name(),
                measured.percentile_ns(0.5),
                measured.cpu_ns
            );
        }
    }
    Ok(())
}
