//! NVMe/TCP on loopback, target on one core and initiator on another,
//! beside what two bare socket programs do with the same messages.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside_auth::TlsKey;
use nearside_channel::Tls;
use nearside_clock::{Clock, Nanos, TscClock};
use nearside_device::{Firmware, Namespace, Subsystem};
use nearside_dma::cpu::{CpuClock, thread_cpu_ns};
use nearside_driver::tcp::{Address, Association, Initiator, Options as HostOptions};
use nearside_driver::{Command, Controller, Host, Policy, QueueConfig};
use nearside_embedded::{AnyStore, firmware};
use nearside_firmware::Fsr;
use nearside_front_tcp::{Offer, Options, Server, Target};
use nearside_fsrlib::{Ask, Session, TcpTransport};
use nearside_instrument::Failure;
use nearside_instrument::completion::{cores, pin, unpin};
use nearside_instrument::dataset::{self, NEEDLE, Shape};
use nearside_instrument::near_data::{count_of, search};
use nearside_instrument::volume::{self, Kind};
use nearside_loadgen::record::Figure;
use nearside_random::Random;
use nearside_store::FileOptions;

use crate::figures::{Sink, median};
use crate::sockets::{self, Cores};

const NQN: &str = "nqn.2014-08.org.nearside:bench";
pub(crate) const BLOCK: usize = 512;
/// Bytes of the drive, and of the floor's source.
const BYTES: usize = 1 << 30;
pub(crate) const PIECE: usize = 128 << 10;

/// A target over a store, its thread on the first core.
pub(crate) struct Serving<F: Firmware<AnyStore> = Fsr> {
    address: Address,
    server: Server<AnyStore, F>,
    host: HostOptions,
}

impl Serving {
    fn start(word: &str) -> Result<Serving, Failure> {
        Serving::with(word, firmware())
    }
}

impl<F: Firmware<AnyStore>> Serving<F> {
    pub(crate) fn with(word: &str, firmware: F) -> Result<Serving<F>, Failure> {
        Serving::keyed(word, firmware, None)
    }

    /// With a key hosts come over TLS.
    pub(crate) fn keyed(word: &str, firmware: F, tls: Option<(TlsKey, Tls)>) -> Result<Serving<F>, Failure> {
        let host = HostOptions { tls: tls.clone(), ..HostOptions::default() };
        let store = AnyStore::open(word, FileOptions::read())?;
        let subsystem = Subsystem::new();
        let namespace = Namespace::new(store, firmware, BLOCK as u32, [7; 16], false)?;
        subsystem.add(1, Arc::new(namespace)).map_err(|e| format!("{e:?}"))?;
        let (key, tls) = tls.unzip();
        let target = Target::new(Options { tls, ..Options::default() })?;
        let tls_keys = key.map(|key| (host.host_nqn.clone(), key)).into_iter().collect();
        target.offer(Offer { tls_keys, ..Offer::new(NQN, "1", subsystem) });
        // Threads begin where the one is that makes them.
        pin(0);
        let server = Server::start(target, vec![TcpListener::bind("127.0.0.1:0")?], TscClock::new());
        pin(1);
        let server = server?;
        let port = server.addresses().first().map_or(0, |a| a.port());
        let address = format!("nvme+tcp://127.0.0.1:{port}/{NQN}/1").parse()?;
        Ok(Serving { address, server, host })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn connect(&self) -> Result<Association, Failure> {
        Ok(Association::connect(&self.address, self.host.clone(), Arc::new(TscClock::new()))?)
    }
}

/// One queue, and commands of one size.
pub(crate) struct Load {
    initiator: Initiator<TscClock>,
    bytes: usize,
    random: Random,
    /// Each command's latency, where they are wanted.
    latencies: Option<Vec<u64>>,
}

impl Load {
    pub(crate) fn new(controller: &Association, depth: u16, bytes: usize) -> Result<Load, Failure> {
        let initiator = controller.initiator(depth, Policy::Polled, TscClock::new())?;
        Ok(Load { initiator, bytes, random: Random::new(9), latencies: None })
    }

    fn slba(&mut self) -> u64 {
        self.random.below((BYTES / self.bytes) as u64) * (self.bytes / BLOCK) as u64
    }

    /// Keeps `depth` reads out for so long: how many a second.
    pub(crate) fn reads(&mut self, depth: usize, time: Duration) -> Result<f64, Failure> {
        let clock = *self.initiator.clock();
        let blocks = (self.bytes / BLOCK) as u32;
        let mut spare: Vec<Vec<u8>> = (0..depth).map(|_| vec![0; self.bytes]).collect();
        let (begun, mut done) = (clock.now(), 0u64);
        let end = begun + time.as_nanos() as u64;
        let mut now = begun;
        while now < end || spare.len() < depth {
            while now < end
                && let Some(buffer) = spare.pop()
            {
                let command = Command::read(1, self.slba(), blocks);
                let _ = self.initiator.submit(&command, Some(buffer)).map_err(|e| e.to_string())?;
            }
            self.initiator.look();
            while let Some((_, ended)) = self.initiator.take_any() {
                done += 1;
                if let Some(latencies) = &mut self.latencies {
                    latencies.push(ended.latency_ns);
                }
                ended.outcome?;
                spare.extend(ended.buffer);
            }
            now = clock.now();
        }
        Ok(done as f64 * 1e9 / now.since(begun) as f64)
    }

    /// Runs it: what that came to, and the median latency of its commands, in microseconds.
    pub(crate) fn timed<T>(
        &mut self,
        run: impl FnOnce(&mut Load) -> Result<T, Failure>,
    ) -> Result<(T, f64), Failure> {
        self.latencies = Some(Vec::new());
        let ran = run(self)?;
        Ok((ran, median(self.latencies.take().unwrap_or_default()) / 1e3))
    }

    /// Writes the whole drive once: memory that was never written is one page of zeros,
    /// which stays in the cache.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        let mut buffer = vec![0; self.bytes];
        (0..self.bytes / 8)
            .for_each(|i| buffer[i * 8..][..8].copy_from_slice(&self.random.bits().to_le_bytes()));
        for at in (0..BYTES).step_by(self.bytes) {
            let command = Command::write(1, (at / BLOCK) as u64, (self.bytes / BLOCK) as u32);
            let done = self.initiator.execute(&command, Some(buffer)).map_err(|e| e.to_string())?;
            done.outcome?;
            buffer = done.buffer.unwrap_or_default();
        }
        Ok(())
    }
}

/// What a load carries: operations per second, and per second of CPU time of the target's threads and of the
/// host's, which both spin.
#[derive(Clone, Copy)]
struct Carried {
    rate: f64,
    per_core: [f64; 2],
}

impl Carried {
    fn of(serving: &Serving, load: &mut Load, depth: usize, time: Duration) -> Result<Carried, Failure> {
        let spent = || Ok::<_, Failure>([serving.server.cpu_ns()?, thread_cpu_ns()?]);
        let (before, clock) = (spent()?, *load.initiator.clock());
        let begun = clock.now();
        let rate = load.reads(depth, time)?;
        let count = rate * clock.now().since(begun) as f64 / 1e9;
        let after = spent()?;
        let per_core = [0, 1].map(|side| count * 1e9 / (after[side] - before[side]).max(1) as f64);
        Ok(Carried { rate, per_core })
    }
}

/// All of it.
pub fn tcp(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let pair: Cores = match cores() {
        [one, two, ..] => (*one, *two),
        _ => return Err("NVMe/TCP is measured on two cores".into()),
    };
    let (rounds, time) = if fast { (3, 300) } else { (9, 1_000) };
    let time = Duration::from_millis(time);
    eprintln!("NVMe/TCP: a drive of 1 GiB, filled over the network ...");
    let serving = Serving::start("dram:1GiB")?;
    let controller = serving.connect()?;
    Load::new(&controller, 1, PIECE)?.fill()?;
    let source: Arc<Vec<u8>> = {
        let mut random = Random::new(3);
        Arc::new((0..BYTES / 8).flat_map(|_| random.bits().to_le_bytes()).collect())
    };
    let mut one = Load::new(&controller, 1, 4096)?;
    let mut many = Load::new(&controller, 128, 4096)?;
    let mut large = Load::new(&controller, 8, PIECE)?;
    let mut runs: [Vec<f64>; 9] = Default::default();
    let mut per_core: [Vec<f64>; 6] = Default::default();
    for round in 0..=rounds {
        let count = if fast { 5_000 } else { 30_000 };
        let ping = median(sockets::ping_pong(pair, count)?) / 1e3;
        let exchange = median(sockets::exchanges(pair, &source, count)?) / 1e3;
        let (single, read) = one.timed(|one| Carried::of(&serving, one, 1, time))?;
        let bare = |window| sockets::messages(pair, &source, window, time).map(|rate| rate / 1e3);
        let (some, bare_some) = (Carried::of(&serving, &mut many, 32, time)?, bare(32)?);
        let (more, bare_more) = (Carried::of(&serving, &mut many, 128, time)?, bare(128)?);
        let values = [
            read,
            ping,
            some.rate / 1e3,
            bare_some,
            more.rate / 1e3,
            bare_more,
            large.reads(8, time)? * PIECE as f64 / 1e9,
            sockets::stream(pair, &source, PIECE, time)? / 1e9,
            exchange,
        ];
        // The first round warms what there is.
        if round > 0 {
            runs.iter_mut().zip(values).for_each(|(runs, value)| runs.push(value));
            let sides = [single, some, more].into_iter().flat_map(|carried| carried.per_core);
            per_core.iter_mut().zip(sides).for_each(|(runs, value)| runs.push(value / 1e3));
        }
    }
    let names = [
        ("TCP: 4 KiB read, QD1 polled: median", "64-byte ping-pong, spinning on recv", "us"),
        ("TCP: 4 KiB random reads, QD32", "the same messages between bare sockets", "k/s"),
        ("TCP: 4 KiB random reads, QD128", "the same messages between bare sockets", "k/s"),
        ("TCP: 128 KiB reads, QD8", "a stream", "GB/s"),
    ];
    for ((ours, floor, unit), pair) in names.into_iter().zip(runs.chunks(2)) {
        if let [ours_runs, floor_runs] = pair {
            sink(Figure::of(ours, unit, ours_runs).beside(&Figure::of(floor, unit, floor_runs)));
        }
    }
    // A ping-pong moves no data; a read alone sends these.
    let floor = Figure::of("72 B and 4 KiB back between bare sockets, spinning on recv", "us", &runs[8]);
    sink(Figure::of("TCP: 4 KiB read, QD1 polled: median / its messages", "us", &runs[0]).beside(&floor));
    for (depth, sides) in [1, 32, 128].into_iter().zip(per_core.chunks(2)) {
        for (side, runs) in ["target", "host"].into_iter().zip(sides) {
            let name = format!("TCP: 4 KiB random reads, QD{depth}, for each core of the {side}");
            sink(Figure::of(&name, "k/s", runs));
        }
    }
    drop((one, many, large));
    idle(&serving, &controller, fast, sink)?;
    near_data(rounds, fast, sink)?;
    unpin();
    Ok(())
}

/// What an idle server with 64 queues costs, of one core; the initiator's threads sleep.
fn idle(serving: &Serving, first: &Association, fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let second = serving.connect()?;
    let (mut queues, mut host) = (Vec::new(), Host::threaded(TscClock::new()));
    for controller in [first, &second] {
        for _ in 0..32 {
            queues.push(controller.queue(QueueConfig::of_depth(32), &mut host)?);
        }
    }
    let period = Duration::from_secs(if fast { 1 } else { 5 });
    let mut runs = Vec::new();
    for _ in 0..3 {
        let before = CpuClock::process().now_ns()?;
        let start = Instant::now();
        std::thread::sleep(period);
        let used = (CpuClock::process().now_ns()? - before) as f64;
        runs.push(100.0 * used / start.elapsed().as_nanos() as f64);
    }
    sink(Figure::of("TCP: CPU of an idle server with 64 queues, part of one core", "%", &runs));
    Ok(())
}

/// A search in a file of 16 KiB at depth 5, beside the same two commands with nothing to do.
fn near_data(rounds: usize, fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    if !Kind::Ext4.tools_are_here() {
        eprintln!("NVMe/TCP: no mke2fs, no near-data figures");
        return Ok(());
    }
    let folder = tempfile::tempdir_in("target")?;
    let tree = folder.path().join("tree");
    let shape = Shape { files: 1, file_bytes: 16 << 10, depth: 5, fan: 1 };
    let written = dataset::write_deep(&tree, shape, 11, |_| {})?;
    let image = folder.path().join("small.img");
    volume::make(Kind::Ext4, &image, &tree, 32 << 20)?;
    let serving = Serving::start(&format!("dram:{}", image.display()))?;
    let transport = TcpTransport::over(&serving.connect()?, Policy::Polled, TscClock::new())?;
    let mut session = Session::new(transport, Arc::new(TscClock::new())).with_buffer(4096);
    let path = written.files.first().ok_or("no file was written")?;
    let ask = Ask::path(path.as_str(), count_of(NEEDLE));
    let count = if fast { 500 } else { 5_000 };
    let clock = TscClock::new();
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut searches = Vec::with_capacity(count);
        let mut nops = Vec::with_capacity(count);
        for _ in 0..count {
            let (found, _, ns) = search(&mut session, &ask)?;
            if found != written.needles {
                return Err(format!("{found} lines found of {}", written.needles).into());
            }
            searches.push(ns);
            let begun: Nanos = clock.now();
            session.nop()?;
            nops.push(clock.now().since(begun));
        }
        if round > 0 {
            ours.push(median(searches) / 1e3);
            floor.push(median(nops) / 1e3);
        }
    }
    let name = "TCP: near-data search of 16 KiB at depth 5, warm: median";
    let nop = Figure::of("an execute and result pair of nop", "us", &floor);
    sink(Figure::of(name, "us", &ours).beside(&nop));
    Ok(())
}
