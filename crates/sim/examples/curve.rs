//! `cargo run --release -p nearside-sim --example curve -- MEDIA [medium]`: the whole curve as a table, and the CPU time that it took.

use nearside_dma::cpu::thread_cpu_ns;
use nearside_sim::curve::{CurveConfig, CurveError, Through, curve};

fn main() -> Result<(), CurveError> {
    let mut words = std::env::args().skip(1);
    let mut config = CurveConfig::new(&words.next().unwrap_or_else(|| "nand-p3700".to_owned()), 7);
    if words.next().as_deref() == Some("medium") {
        config.through = Through::Medium;
    }
    let begin = thread_cpu_ns()?;
    let result = curve(&config)?;
    let took = (thread_cpu_ns()? - begin) as f64 / 1e9;
    let mut operations = 0;
    for (at, point) in result.points.iter().enumerate() {
        let times = &point.summary.all.response;
        operations += times.count;
        let p = |percent| times.at(percent).map_or(0, |p| p.ns);
        let beyond = times.at(99.999).map_or(0, |p| p.beyond);
        let mark = match (result.knee == Some(at), point.saturated) {
            (true, _) => "knee",
            (_, true) => "saturated",
            _ => "",
        };
        println!(
            "{:>9.0}/s  mean {:>9.0}  p99 {:>9}  p99.999 {:>9} ns  ({beyond} of {} beyond)  {mark}",
            point.rate,
            times.mean_ns,
            p(99.0),
            p(99.999),
            times.count
        );
    }
    println!("{}: {operations} operations, {took:.1} s of CPU time", config.through);
    Ok(())
}
