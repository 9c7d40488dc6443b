//! What a command costs the controller: one thread fills a submission queue with 32 reads or writes by raw
//! stores, steps the reactor, reads the completions. Beside it the same copies alone. Run small as a test
//! (`--test`).

#[path = "../tests/device/rig/mod.rs"]
mod rig;

use std::sync::atomic::Ordering;

use nearside_clock::{Clock, TscClock};
use nearside_spec::registers as reg;
use rig::*;

const DEPTH: u32 = 31;
const STORE: u64 = 512 << 20;

fn main() {
    let small = std::env::args().any(|a| a == "--test");
    let rounds = if small { 50 } else { 60_000 };
    let clock = TscClock::new();
    println!("{:>22} {:>12} {:>12}", "", "ns/command", "copies alone");
    for (name, opcode, bytes) in [
        ("read 512", io::READ, 512),
        ("write 512", io::WRITE, 512),
        ("read 4096", io::READ, 4096),
        ("write 4096", io::WRITE, 4096),
    ] {
        let (mut ours, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..if small { 1 } else { 7 } {
            ours.push(through_the_controller(&clock, opcode, bytes, rounds));
            copies.push(copies_alone(&clock, opcode, bytes, rounds));
        }
        ours.sort_by(f64::total_cmp);
        copies.sort_by(f64::total_cmp);
        println!("{name:>22} {:>12.1} {:>12.1}", ours[ours.len() / 2], copies[copies.len() / 2]);
    }
}

fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *seed >> 33
}

fn filled() -> Dram {
    let store = Dram::new(STORE, 512).unwrap();
    let mut host = Host::ready(store.clone(), Config::default());
    for slba in (0..STORE / 512).step_by(2048) {
        let pages: Vec<u8> = (1..256u64).flat_map(|i| (FREE + i * 4096).to_le_bytes()).collect();
        host.put(BASE + (12 << 20), &pages);
        host.put(FREE, &vec![slba as u8 | 1; 1 << 20]);
        host.run(1, transfer(io::WRITE, slba, 2048, FREE, BASE + (12 << 20)));
    }
    store
}

fn through_the_controller(clock: &TscClock, opcode: u8, bytes: u32, rounds: u32) -> f64 {
    let mut host = Host::ready(filled(), Config::default());
    let memory = host.memory.clone();
    let registers = host.function.registers.clone();
    let (sq, cq) = (0x4000, 0x6000);
    let (mut tail, mut head, mut phase) = (0u32, 0u32, true);
    let mut seed = 1;
    let begin = clock.now();
    for _ in 0..rounds {
        for i in 0..DEPTH {
            let page = next(&mut seed) % (STORE / u64::from(bytes));
            let slba = page * u64::from(bytes / 512);
            let entry = transfer(opcode, slba, bytes / 512, FREE + u64::from(i) * 4096, 0);
            memory.write_words(sq + tail as usize * 64, &entry.cdw);
            tail = (tail + 1) % 32;
        }
        registers.word32(reg::sq_tail_doorbell(1)).store(tail, Ordering::Release);
        let mut done = 0;
        while done < DEPTH {
            host.drive.pump(clock.now());
            loop {
                let second = memory.word64(cq + head as usize * 16 + 8).load(Ordering::Acquire);
                if (second >> 48 & 1 != 0) != phase {
                    break;
                }
                assert!(second >> 49 == 0);
                done += 1;
                head = (head + 1) % 32;
                phase ^= head == 0;
            }
        }
        registers.word32(reg::cq_head_doorbell(1)).store(head, Ordering::Release);
    }
    clock.now().since(begin) as f64 / f64::from(rounds * DEPTH)
}

fn copies_alone(clock: &TscClock, opcode: u8, bytes: u32, rounds: u32) -> f64 {
    use nearside_store::{Channel, Data, Operation, Store, Token};
    let host = Host::ready(dram(1 << 20), Config::default());
    let store = filled();
    let mut channel = store.channel(host.function.memory.clone()).unwrap();
    let mut seed = 1;
    let begin = clock.now();
    let mut offsets = [0; DEPTH as usize];
    for _ in 0..rounds {
        for at in &mut offsets {
            *at = next(&mut seed) % (STORE / u64::from(bytes)) * u64::from(bytes);
            channel.prefetch(*at, bytes.into(), false);
        }
        for (i, &offset) in offsets.iter().enumerate() {
            let span = host.function.memory.resolve(FREE + i as u64 * 4096, bytes as usize).unwrap();
            let len = bytes.into();
            let operation = match opcode {
                io::READ => Operation::Read { offset, len },
                _ => Operation::Write { offset, len, fua: false },
            };
            let _ = channel.submit(operation, Data::Spans(&[span]), Token(0), nearside_clock::Nanos(0));
        }
    }
    clock.now().since(begin) as f64 / f64::from(rounds * DEPTH)
}
