//! A hostile host, driven by bytes: arbitrary commands, data pointers and host memory against a small controller. It must not panic,
//! must come to rest, and must not write outside the memory that is mapped (the canary around it).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_dma::Region;
use nearside_spec::registers as reg;

use super::rig::*;

/// Bytes of one command in the input.
const STRIDE: usize = 64;

/// Runs commands made of `input` on the admin queue and on I/O queue 1, `pointers_only`: reads, writes, compares and
/// deallocations that are right but for their data pointers.
pub fn run(input: &[u8], pointers_only: bool) {
    let store = dram(1 << 20);
    let mut host =
        Host::ready(store, Config { queue_entries: 64, io_queues: 4, vectors: 2, ..Config::default() });
    // Mapped for the controller is all but the region's last MiB: a second region, whose mapping has been taken away.
    let canary = Arc::new(Region::anonymous(1 << 20).unwrap());
    canary.fill(0, 1 << 20, 0xa5);
    let canary_at = BASE + MEMORY as u64;
    host.function.memory.map(canary_at, canary.clone()).unwrap();
    host.function.memory.unmap(canary_at).unwrap();
    // Lists and segments are the input itself.
    let lists = FREE + (1 << 20);
    host.put(lists, &input[..input.len().min(1 << 20)]);
    for chunk in input.chunks(STRIDE).take(64) {
        let mut bytes = [0; STRIDE];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let mut entry = SubmissionEntry::default();
        for (to, from) in entry.cdw.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*from);
        }
        // Most addresses that are drawn at random lie nowhere: bend some of them to where something is.
        for low in [6, 8] {
            let value = entry.quad(low);
            match value >> 61 {
                0 | 1 => entry.set_quad(low, lists + value % (1 << 20)),
                2 => entry.set_quad(low, (lists + value % (1 << 20)) & !4095),
                3 => entry.set_quad(low, canary_at - 4096 + value % 8192),
                _ => {}
            }
        }
        let queue = u16::from(bytes[63] & 1);
        if pointers_only {
            let opcode =
                [io::READ, io::WRITE, io::COMPARE, io::DATASET_MANAGEMENT][usize::from(bytes[0] & 3)];
            entry.cdw[0] = u32::from(opcode) | entry.cdw[0] & 0xffff_c000;
            entry.cdw[1] = 1;
            entry.set_quad(10, u64::from(bytes[40]));
            entry.cdw[12] = u32::from(bytes[48]) << 2;
            if opcode == io::DATASET_MANAGEMENT {
                entry.cdw[11] = 4;
            }
        }
        let queue = if pointers_only { 1 } else { queue };
        // A command may create, delete or stop whatever it likes, so queue 1 may be gone.
        host.submit(queue, entry);
        host.settle(1_000_000);
        host.reap(queue);
    }
    let mut after = vec![0; 1 << 20];
    canary.read(0, &mut after);
    assert!(after.iter().all(|&b| b == 0xa5), "memory that is not mapped was written");
    host.set_register(reg::CC, 0);
    host.settle(1_000_000_000);
    assert_eq!(host.function.registers.word32(reg::CSTS).load(Ordering::Acquire), 0, "a reset always ends");
}
