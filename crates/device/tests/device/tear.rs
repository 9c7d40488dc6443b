//! Two reactors, each with a queue of its own, on the same few blocks at the same time: a logical block is
//! never torn.

use std::sync::atomic::Ordering;

use crate::rig::*;
use nearside_clock::{Clock, TscClock};
use nearside_device::runner::{Rest, Threaded};
use nearside_random::Rng;
use nearside_spec::registers::{self as reg, Cc, csts};

const BASE_IOVA: u64 = 0x4000_0000;
const LBA: u32 = 4096;
const BLOCKS: u64 = 4;
const OPERATIONS: u32 = 20_000;

#[test]
fn a_block_is_never_torn() {
    let config = Config { lba_size: LBA, reactors: 2, ..Config::default() };
    let (controller, _) = Controller::alone(dram(BLOCKS * u64::from(LBA)), (), config).unwrap();
    let function = controller.function.clone();
    let memory = std::sync::Arc::new(nearside_dma::Region::shared("tear", 1 << 20).unwrap());
    function.memory.map(BASE_IOVA, memory.clone()).unwrap();
    let clock = TscClock::new();
    let runner = Threaded::start(controller, clock, Rest::default()).unwrap();
    let set = |at: usize, value: u32| {
        function.registers.word32(at).store(value, Ordering::Release);
        function.wakeup.wake();
    };
    let deadline = clock.now() + 60_000_000_000;
    let patience = || {
        assert!(clock.now() < deadline, "the drive does not answer");
        std::thread::yield_now();
    };
    function.registers.word32(reg::AQA).store(31 << 16 | 31, Ordering::Relaxed);
    function.registers.word64(reg::ASQ).store(BASE_IOVA, Ordering::Relaxed);
    function.registers.word64(reg::ACQ).store(BASE_IOVA + 0x2000, Ordering::Relaxed);
    set(reg::CC, Cc::DEFAULTS.0 | Cc::EN);
    while function.registers.word32(reg::CSTS).load(Ordering::Acquire) != csts::RDY {
        patience();
    }
    // One command of a queue, from submission to completion; `nth` counts the queue's commands.
    let run = |queue: u16, nth: u32, entry: SubmissionEntry| {
        let (at, slot) = (usize::from(queue) * 0x4000, (nth % 32) as usize);
        memory.write_words(at + slot * 64, &entry.cdw);
        set(reg::sq_tail_doorbell(queue), (nth + 1) % 32);
        let word = memory.word64(at + 0x2000 + slot * 16 + 8);
        let second = loop {
            let second = word.load(Ordering::Acquire);
            if (second >> 48 & 1 == 1) == (nth / 32).is_multiple_of(2) {
                break second;
            }
            patience();
        };
        set(reg::cq_head_doorbell(queue), (nth + 1) % 32);
        assert!(second >> 49 == 0, "{entry:?}: {second:#x}");
    };
    let mut nth = 0;
    for queue in [1u16, 2] {
        let base = BASE_IOVA + u64::from(queue) * 0x4000;
        for (opcode, at, more) in
            [(admin::CREATE_CQ, base + 0x2000, 0), (admin::CREATE_SQ, base, u32::from(queue) << 16)]
        {
            let mut e = SubmissionEntry::new(opcode, nth as u16, 0);
            e.set_quad(6, at);
            e.cdw[10] = 31 << 16 | u32::from(queue);
            e.cdw[11] = 1 | more;
            run(0, nth, e);
            nth += 1;
        }
    }
    std::thread::scope(|scope| {
        for queue in [1u16, 2] {
            let (memory, run) = (&memory, &run);
            scope.spawn(move || {
                let at = 0x2_0000 + usize::from(queue) * 0x1_0000;
                let mut random = Rng(queue.into());
                for nth in 0..OPERATIONS {
                    let slba = random.below(BLOCKS);
                    let iova = BASE_IOVA + at as u64;
                    if random.below(2) == 0 {
                        memory.fill(at, LBA as usize, random.draw() as u8);
                        run(queue, nth, transfer(io::WRITE, slba, 1, iova, 0));
                    } else {
                        run(queue, nth, transfer(io::READ, slba, 1, iova, 0));
                        let mut block = vec![0; LBA as usize];
                        memory.read(at, &mut block);
                        assert!(block.iter().all(|&b| b == block[0]), "block {slba} is torn");
                    }
                }
            });
        }
    });
    drop(runner);
}
