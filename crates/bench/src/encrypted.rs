//! What TLS costs: the same loads on a drive over NVMe/TCP with it and without, in turns.

use std::time::Duration;

use nearside_auth::TlsKey;
use nearside_channel::Tls;
use nearside_embedded::firmware;
use nearside_instrument::Failure;
use nearside_instrument::completion::unpin;
use nearside_loadgen::record::Figure;
use nearside_tls::OpenSsl;

use crate::figures::Sink;
use crate::tcp::{Load, PIECE, Serving};

/// A drive's loads: one read after the other, many small ones, some large ones.
struct Loads {
    // Dropped in this order.
    one: Load,
    many: Load,
    large: Load,
    _serving: Serving,
}

impl Loads {
    fn over(tls: Option<(TlsKey, Tls)>) -> Result<Loads, Failure> {
        let serving = Serving::keyed("dram:1GiB", firmware(), tls)?;
        let controller = serving.connect()?;
        Load::new(&controller, 1, PIECE)?.fill()?;
        let [one, many, large] =
            [(1, 4096), (32, 4096), (8, PIECE)].map(|(depth, bytes)| Load::new(&controller, depth, bytes));
        Ok(Loads { one: one?, many: many?, large: large?, _serving: serving })
    }

    /// Median latency in us, thousands of small reads and GB of large ones a second.
    fn run(&mut self, time: Duration) -> Result<[f64; 3], Failure> {
        let rate = self.many.reads(32, time)? / 1e3;
        let (_, latency) = self.one.timed(|one| one.reads(1, time))?;
        Ok([latency, rate, self.large.reads(8, time)? * PIECE as f64 / 1e9])
    }
}

/// All of it.
pub fn encrypted(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (rounds, time) = if fast { (3, 300) } else { (9, 1_000) };
    let time = Duration::from_millis(time);
    let key = TlsKey::generate(None, 32)?;
    let (mut plain, mut over_tls) =
        (Loads::over(None)?, Loads::over(Some((key, Tls::new(OpenSsl::default()))))?);
    let mut runs: [[Vec<f64>; 2]; 3] = Default::default();
    // The first round warms what there is.
    for round in 0..=rounds {
        let both = [over_tls.run(time)?, plain.run(time)?];
        for (of, runs) in runs.iter_mut().enumerate().filter(|_| round > 0) {
            runs.iter_mut().zip(both).for_each(|(runs, values)| runs.push(values[of]));
        }
    }
    let names = [
        ("TCP over TLS: 4 KiB read, QD1 polled: median", "us"),
        ("TCP over TLS: 4 KiB random reads, QD32", "k/s"),
        ("TCP over TLS: 128 KiB reads, QD8", "GB/s"),
    ];
    for ((name, unit), [ours, plain]) in names.into_iter().zip(&runs) {
        sink(Figure::of(name, unit, ours).beside(&Figure::of("without TLS", unit, plain)));
    }
    drop((plain, over_tls));
    unpin();
    Ok(())
}
