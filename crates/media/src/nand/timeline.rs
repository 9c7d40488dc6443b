//! The flash array's timelines.
//!
//! A die does one operation at a time. What the host waits for, a read, is placed at once and its end is
//! known. What nobody waits for yet (programs, erases, the reads of garbage collection) stands in the die's
//! queue and is begun, in order, once the die is idle; a read that comes meanwhile goes first. An operation
//! that has waited longer than the flash's patience goes before reads again, so that a die under steady reads
//! still writes. A read never waits for what comes after it, so its end is final when it is placed; only
//! whoever asks for the end of a queued operation ([`Nand::wait`], [`Nand::drain`]) has it placed before
//! later reads.

use nearside_random::draw;

use std::collections::VecDeque;

use super::calendar::Calendar;
use super::{Geometry, Timings};

/// A queued program's place: to ask when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    die: u32,
    nth: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Read,
    Program,
    Erase,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    kind: WorkKind,
    unit: u32,
    bytes: u32,
    since: u64,
}

#[derive(Clone, Debug, Default)]
struct Die {
    queue: VecDeque<Queued>,
    /// Operations taken from the queue so far; with the queue's length, the name of the next one.
    begun: u64,
    /// The end of what has been placed.
    free_at: u64,
    /// The last placed operation is a program or an erase that a read may suspend.
    suspendable: bool,
    /// The end of the last read placed into a suspended operation.
    reads_until: u64,
    /// The unit of the last placed program, and its end.
    programming: Option<(u32, u64)>,
}

/// The dies and channels of a drive, in time.
#[derive(Clone, Debug)]
pub struct Nand {
    timings: Timings,
    channels: Vec<Calendar>,
    dies: Vec<Die>,
    pages: u32,
    random: u64,
    now: u64,
}

impl Nand {
    /// An idle array.
    pub fn new(geometry: &Geometry, timings: Timings, seed: u64) -> Nand {
        Nand {
            timings,
            channels: vec![Calendar::default(); geometry.channels.max(1) as usize],
            dies: vec![Die::default(); geometry.dies().max(1) as usize],
            pages: geometry.pages.max(1),
            random: seed,
            now: 0,
        }
    }

    /// Every die idle at time 0 and nothing queued; what is drawn at random goes on.
    pub fn reset(&mut self) {
        self.dies.fill_with(Die::default);
        self.channels.fill_with(Calendar::default);
        self.now = 0;
    }

    /// The host reads `bytes` of a unit: when they are in the controller. Times never go back from call to
    /// call.
    pub fn read(&mut self, die: u32, unit: u32, bytes: u32, now: u64) -> u64 {
        self.advance(die, now);
        let patience = self.timings.patience_ns;
        if let Some(front) = self.dies[die as usize].queue.front()
            && front.since + patience <= now.max(self.dies[die as usize].free_at)
        {
            self.begin(die);
        }
        let sensing = self.sensing(unit);
        let suspend = self.timings.suspend_ns;
        let it = &mut self.dies[die as usize];
        let interrupts = suspend.filter(|_| it.suspendable && it.free_at > now);
        let start = match interrupts {
            Some(_) if it.reads_until > now => it.reads_until,
            Some(suspend_ns) => now + suspend_ns,
            None => now.max(it.free_at),
        };
        let end = self.transfer(die, start + sensing, bytes);
        let it = &mut self.dies[die as usize];
        if interrupts.is_some() {
            let held_ns = end - now.max(it.reads_until);
            if let Some((_, programmed)) = &mut it.programming
                && *programmed == it.free_at
            {
                *programmed += held_ns;
            }
            it.free_at += held_ns;
            it.reads_until = end;
        } else {
            it.free_at = end;
            it.suspendable = false;
        }
        end
    }

    /// Whether a unit's program is queued or going on: its bytes are then still in the controller.
    pub fn in_flight(&mut self, die: u32, unit: u32, now: u64) -> bool {
        self.advance(die, now);
        let it = &self.dies[die as usize];
        it.programming.is_some_and(|(it, end)| it == unit && end > now)
            || it.queue.iter().any(|q| q.kind == WorkKind::Program && q.unit == unit)
    }

    /// Queues the program of a unit.
    pub fn program(&mut self, die: u32, unit: u32, bytes: u32, now: u64) -> Ticket {
        self.queue(die, Queued { kind: WorkKind::Program, unit, bytes, since: now })
    }

    /// Queues a read that no host waits for.
    pub fn background_read(&mut self, die: u32, unit: u32, bytes: u32, now: u64) {
        self.queue(die, Queued { kind: WorkKind::Read, unit, bytes, since: now });
    }

    /// Queues the erasure of a block.
    pub fn erase(&mut self, die: u32, now: u64) {
        self.queue(die, Queued { kind: WorkKind::Erase, unit: 0, bytes: 0, since: now });
    }

    /// Whether a queued program has ended by `now`.
    pub fn ended(&mut self, ticket: Ticket, now: u64) -> bool {
        self.advance(ticket.die, now);
        let it = &self.dies[ticket.die as usize];
        it.begun > ticket.nth && it.programming.is_none_or(|(_, end)| end <= now)
    }

    /// When a queued program ends; it goes before the reads that come from now on, and so does all that was
    /// queued before it.
    pub fn wait(&mut self, ticket: Ticket, now: u64) -> u64 {
        self.advance(ticket.die, now);
        while self.dies[ticket.die as usize].begun <= ticket.nth {
            self.begin(ticket.die);
        }
        let end = self.dies[ticket.die as usize].programming.map_or(now, |(_, end)| end);
        end.max(now)
    }

    /// When all that is queued on any die has ended; it goes before later reads.
    pub fn drain(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        let mut end = now;
        for die in 0..self.dies.len() as u32 {
            while !self.dies[die as usize].queue.is_empty() {
                self.begin(die);
            }
            if let Some((_, programmed)) = self.dies[die as usize].programming {
                end = end.max(programmed);
            }
        }
        end
    }

    /// Dies that are not idle at `now`.
    pub fn busy(&mut self, now: u64) -> usize {
        (0..self.dies.len() as u32)
            .filter(|&die| {
                self.advance(die, now);
                self.dies[die as usize].free_at > now
            })
            .count()
    }

    fn queue(&mut self, die: u32, op: Queued) -> Ticket {
        let it = &mut self.dies[die as usize];
        it.queue.push_back(op);
        Ticket { die, nth: it.begun + it.queue.len() as u64 - 1 }
    }

    /// Begins what a die would have begun by itself until `now`.
    fn advance(&mut self, die: u32, now: u64) {
        self.now = self.now.max(now);
        while let Some(front) = self.dies[die as usize].queue.front()
            && front.since.max(self.dies[die as usize].free_at) <= now
        {
            self.begin(die);
        }
    }

    /// Places the front of a die's queue behind what is placed.
    fn begin(&mut self, die: u32) {
        let it = &mut self.dies[die as usize];
        let Some(op) = it.queue.pop_front() else { return };
        it.begun += 1;
        let start = op.since.max(it.free_at);
        let end = match op.kind {
            WorkKind::Read => {
                let sensing = self.sensing(op.unit);
                self.transfer(die, start + sensing, op.bytes)
            }
            WorkKind::Program => {
                let loaded = self.transfer(die, start, op.bytes);
                let program_ns = self.timings.program_ns[self.upper(op.unit)];
                loaded + self.vary(program_ns)
            }
            WorkKind::Erase => start + self.vary(self.timings.erase_ns),
        };
        let it = &mut self.dies[die as usize];
        it.free_at = end;
        it.suspendable = op.kind != WorkKind::Read;
        it.reads_until = 0;
        if op.kind == WorkKind::Program {
            it.programming = Some((op.unit, end));
        }
    }

    fn transfer(&mut self, die: u32, earliest: u64, bytes: u32) -> u64 {
        let ns = u64::from(bytes) * self.timings.channel_ns_per_kib / 1024;
        let channel = die as usize % self.channels.len();
        self.channels[channel].reserve(earliest, ns, self.now) + ns
    }

    /// Whether a unit lies in upper pages. Two bits in a cell: half of the pages are slow.
    fn upper(&self, unit: u32) -> usize {
        (unit % self.pages % 2) as usize
    }

    fn sensing(&mut self, unit: u32) -> u64 {
        let once = self.timings.read_ns[self.upper(unit)];
        let again = match self.timings.retry_per_million {
            0 => 0,
            chance if draw(&mut self.random) % 1_000_000 < chance => 3 * once,
            _ => 0,
        };
        self.vary(once) + again
    }

    /// A time with its spread.
    fn vary(&mut self, ns: u64) -> u64 {
        let spread = ns * self.timings.spread_permille / 1000;
        if spread == 0 { ns } else { ns - spread + draw(&mut self.random) % (2 * spread + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMINGS: Timings = Timings {
        read_ns: [50_000, 100_000],
        retry_per_million: 0,
        program_ns: [400_000, 1_000_000],
        erase_ns: 3_000_000,
        spread_permille: 0,
        channel_ns_per_kib: 1_000,
        suspend_ns: None,
        patience_ns: u64::MAX / 2,
    };
    const GEOMETRY: Geometry =
        Geometry { channels: 2, ways: 2, planes: 1, blocks: 4, pages: 8, page_bytes: 16384 };

    fn nand(timings: Timings) -> Nand {
        Nand::new(&GEOMETRY, timings, 1)
    }

    #[test]
    fn dies_work_side_by_side_and_share_their_channel() {
        let mut nand = nand(TIMINGS);
        assert_eq!(nand.read(0, 0, 4096, 0), 54_000);
        assert_eq!(nand.read(1, 0, 4096, 0), 54_000, "another channel");
        assert_eq!(nand.read(2, 0, 4096, 0), 58_000, "the same channel as die 0, after its transfer");
        assert_eq!(nand.read(0, 1, 4096, 0), 54_000 + 104_000, "the same die, an upper page");
        assert_eq!(nand.busy(54_001), 2);
    }

    #[test]
    fn reads_go_before_what_has_not_begun() {
        let mut nand = nand(TIMINGS);
        let first = nand.program(0, 0, 16384, 0);
        let second = nand.program(0, 1, 16384, 0);
        // The first has begun; the second waits for the read.
        assert_eq!(nand.read(0, 4, 4096, 1000), 416_000 + 54_000);
        assert!(nand.in_flight(0, 0, 415_999) && nand.in_flight(0, 1, 415_999));
        assert!(!nand.in_flight(0, 0, 416_000) && nand.ended(first, 416_000));
        assert!(!nand.ended(second, 500_000));
        assert_eq!(nand.wait(second, 500_000), 470_000 + 16_000 + 1_000_000);
        nand.erase(0, 500_000);
        nand.program(1, 0, 16384, 500_000);
        assert_eq!(nand.drain(500_000), 1_486_000);
        assert_eq!(nand.read(0, 0, 1024, 500_000), 1_486_000 + 3_000_000 + 51_000);
    }

    #[test]
    fn patience_ends() {
        let mut nand = nand(Timings { patience_ns: 1_000_000, ..TIMINGS });
        let (mut now, mut ended) = (0u64, 0);
        let mut last = nand.read(0, 0, 4096, 0);
        let ticket = nand.program(0, 0, 16384, 0);
        // Reads without a gap: the program goes in between once it has waited.
        while ended == 0 && now < 10_000_000 {
            now = last - 10_000;
            last = nand.read(0, 0, 4096, now);
            if nand.ended(ticket, now) {
                ended = now;
            }
        }
        assert!((1_400_000..1_700_000).contains(&ended), "ended by {ended}");
    }

    #[test]
    fn suspended_programs_take_longer_and_let_reads_through() {
        let mut nand = nand(Timings { suspend_ns: Some(20_000), ..TIMINGS });
        let ticket = nand.program(0, 0, 16384, 0);
        assert_eq!(nand.read(0, 0, 4096, 100_000), 100_000 + 20_000 + 54_000);
        assert_eq!(nand.read(0, 0, 4096, 100_000), 174_000 + 54_000);
        assert!(!nand.ended(ticket, 416_000));
        // What was held up for the two reads is added: from 100,000 to 228,000.
        assert_eq!(nand.read(1, 0, 4096, 416_000), 416_000 + 54_000);
        assert_eq!(nand.dies[0].free_at, 416_000 + 128_000);
    }
}
