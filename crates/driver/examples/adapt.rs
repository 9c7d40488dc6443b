//! An application that asks which completion model holds, and adapts its reading to it (FAST'12, section 4: a
//! "query [of the] underlying completion model should help applications decide the best I/O strategy").
//!
//! It adds up a file of records. Where a read completes within its own call sooner than anything useful could
//! be done meanwhile, it reads each block when it needs it: reading ahead "becomes far less effective and
//! could even hurt". Where reads complete asynchronously, it keeps some out.
//!
//!     cargo run -p nearside-driver --example adapt

use std::collections::VecDeque;

use nearside_clock::{Clock, TscClock};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::policy::Path;
use nearside_driver::{
    Command, CommandKind, DmaBuffer, DriverConfig, Finished, Initiator, InitiatorConfig, Peer, Policy,
    Service, Threaded,
};
use nearside_embedded::Loopback;
use nearside_store::{Delay, Dram, Modelled};

/// Why it stopped.
pub type Failure = Box<dyn std::error::Error>;

/// How it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Each block when it is needed.
    OnDemand,
    /// So many blocks ahead.
    Ahead(usize),
}

const BLOCK: usize = 4096;
/// Reads that are kept out where they complete asynchronously.
const AHEAD: usize = 8;

/// What the driver's answer means for this application.
pub fn choose<P: Peer, C: Clock>(io: &Initiator<P, C>) -> Strategy {
    let expected = io.expectation(CommandKind::Read, BLOCK);
    match expected.plan.path {
        // It spins from the start: the read is over before this thread could have done anything else.
        Path::Synchronous if expected.plan.sleep_ns == 0 => Strategy::OnDemand,
        _ => Strategy::Ahead(AHEAD),
    }
}

/// Adds up the first words of `blocks` blocks; how it read them at the end.
pub fn add_up<P: Peer, C: Clock>(io: &mut Initiator<P, C>, blocks: u64) -> Result<(u64, Strategy), Failure> {
    let mut free: Vec<DmaBuffer> = (0..AHEAD).map(|_| io.buffer(BLOCK)).collect::<Result<_, _>>()?;
    let mut out = VecDeque::new();
    let (mut sum, mut asked) = (0u64, 0);
    let mut strategy = choose(io);
    for _ in 0..blocks {
        // Asked again as it goes: the driver learns how this drive behaves.
        strategy = choose(io);
        let ahead = match strategy {
            Strategy::OnDemand => 1,
            Strategy::Ahead(count) => count,
        };
        while asked < blocks && out.len() < ahead {
            let Some(buffer) = free.pop() else { break };
            let read = Command::read(1, asked * (BLOCK / 512) as u64, (BLOCK / 512) as u32);
            out.push_back(io.submit(&read, Some(buffer)).map_err(|e| format!("refused: {:?}", e.reason))?);
            asked += 1;
        }
        let handle = out.pop_front().ok_or("nothing is out")?;
        let Finished { outcome, buffer, .. } = io.wait(handle);
        outcome.map_err(|e| e.to_string())?;
        let buffer = buffer.ok_or("the buffer was lost")?;
        let mut word = [0; 8];
        buffer.read(0, &mut word);
        sum = sum.wrapping_add(u64::from_le_bytes(word));
        free.push(buffer);
    }
    Ok((sum, strategy))
}

/// The application over a drive that takes `device_ns` for a read:
/// its sum, how it read at the end, and how long a block took.
pub fn over(policy: Policy, device_ns: u64, blocks: u64) -> Result<(u64, Strategy, u64), Failure> {
    let clock = TscClock::new();
    let store = Modelled::new(Dram::new(16 << 20, 512)?, Delay::fixed(device_ns).medium());
    let config = Config { lba_size: 512, ..Config::default() };
    let mut drive = Loopback::threaded(store, (), config, Rest::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let service = Service::start(&driver, 32, clock, || ())?;
    let config = InitiatorConfig { policy: Policy::Polled, ..InitiatorConfig::default() };
    let mut io = Initiator::new(&driver, config, clock, Threaded, Some(service.handle()))?;
    for block in 0..blocks {
        let mut buffer = io.buffer(BLOCK)?;
        buffer.fill(0);
        buffer.write(0, &(block + 1).to_le_bytes());
        let write = Command::write(1, block * (BLOCK / 512) as u64, (BLOCK / 512) as u32);
        let done = io.execute(&write, Some(buffer)).map_err(|e| format!("refused: {:?}", e.reason))?;
        done.outcome.map_err(|e| e.to_string())?;
    }
    io.set_policy(policy);
    let from = clock.now();
    let (sum, strategy) = add_up(&mut io, blocks)?;
    let each_ns = clock.now().since(from) / blocks.max(1);
    io.close()?;
    Ok((sum, strategy, each_ns))
}

#[allow(dead_code, reason = "a test uses the rest")]
fn main() -> Result<(), Failure> {
    for policy in [Policy::Polled, Policy::Interrupt, Policy::Hybrid] {
        for device_us in [0, 10, 1000] {
            let (sum, strategy, each_ns) = over(policy, device_us * 1000, 200)?;
            let each_us = each_ns as f64 / 1e3;
            println!(
                "{:9} device {device_us:4} us: {strategy:?}, {each_us:.1} us a block, sum {sum}",
                policy.name()
            );
        }
    }
    Ok(())
}
