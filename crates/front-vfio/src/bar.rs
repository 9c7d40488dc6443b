//! BAR 0: the controller's registers, its doorbells, the MSI-X table and its pending bits.
//!
//! Registers and doorbells are the words of the controller's function, which a host in this process writes
//! itself; here a write comes as a message, so that what is read-only is so, and the bits of INTMS and INTMC
//! are set and cleared at once.

use std::sync::atomic::Ordering;

use nearside_dma::{DOORBELLS, Function, REGISTERS_SIZE};
use nearside_spec::registers as reg;

/// Bytes of the BAR.
pub(crate) const SIZE: usize = 0x4000;
/// Where the MSI-X table is, and the bits of vectors that are pending.
pub(crate) const TABLE: usize = REGISTERS_SIZE;
pub(crate) const PENDING: usize = 0x3000;
/// Bytes of a vector's entry in the table.
const ENTRY: usize = 16;

/// The MSI-X table, as the client wrote it: interrupts go by eventfds, and nothing here asks it.
pub(crate) struct Bar {
    table: Vec<u8>,
}

impl Bar {
    pub(crate) fn new(vectors: usize) -> Bar {
        let mut table = vec![0; vectors * ENTRY];
        // Vector control: masked.
        table.chunks_mut(ENTRY).for_each(|entry| entry[12] = 1);
        Bar { table }
    }

    /// Reads from `at` on; what is nothing reads as zeros.
    pub(crate) fn read(&self, function: &Function, at: usize, into: &mut [u8]) {
        for (to, at) in into.iter_mut().zip(at..) {
            *to = match at {
                0..REGISTERS_SIZE => register(function, at / 4 * 4).to_le_bytes()[at % 4],
                TABLE..PENDING => self.table.get(at - TABLE).copied().unwrap_or(0),
                PENDING.. => {
                    let vectors = function.vectors.iter().skip((at - PENDING) * 8).take(8);
                    vectors.enumerate().map(|(bit, v)| u8::from(v.is_pending()) << bit).sum()
                }
            };
        }
    }

    /// Writes from `at` on what can be written.
    pub(crate) fn write(&mut self, function: &Function, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        let mut word = at / 4 * 4;
        while word < end {
            let (mut data, mut mask) = ([0; 4], [0; 4]);
            for at in word.max(at)..end.min(word + 4) {
                (data[at - word], mask[at - word]) = (bytes[at - (end - bytes.len())], 0xff);
            }
            let (data, mask) = (u32::from_le_bytes(data), u32::from_le_bytes(mask));
            match word {
                0..DOORBELLS => write_register(function, word, data, mask),
                // Doorbells are written whole (Base 2.0, 3.1.3).
                DOORBELLS..REGISTERS_SIZE if mask == u32::MAX => {
                    function.registers.word32(word).store(data, Ordering::Release);
                }
                TABLE..PENDING => {
                    for at in 0..4 {
                        if mask >> (8 * at) & 1 != 0
                            && let Some(byte) = self.table.get_mut(word - TABLE + at)
                        {
                            *byte = data.to_le_bytes()[at];
                        }
                    }
                }
                _ => {}
            }
            word += 4;
        }
        if at < REGISTERS_SIZE {
            function.wakeup.wake();
        }
    }
}

fn register(function: &Function, at: usize) -> u32 {
    // Both read as the mask (3.1.3.3).
    let at = if at == reg::INTMC { reg::INTMS } else { at };
    function.registers.word32(at).load(Ordering::Acquire)
}

fn write_register(function: &Function, at: usize, data: u32, mask: u32) {
    const ASQ_HIGH: usize = reg::ASQ + 4;
    const ACQ_HIGH: usize = reg::ACQ + 4;
    let word = function.registers.word32(at);
    match at {
        reg::INTMS | reg::INTMC => {
            word.fetch_or(data, Ordering::AcqRel);
        }
        reg::CC | reg::AQA | reg::ASQ | ASQ_HIGH | reg::ACQ | ACQ_HIGH => {
            // One session writes registers, and the controller writes none of these.
            let old = word.load(Ordering::Relaxed);
            word.store(old & !mask | data, Ordering::Release);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nearside_dma::{EventFd, Memory, Region, Vector, Wakeup};

    use super::*;

    fn function() -> Function {
        Function {
            registers: Arc::new(Region::anonymous(REGISTERS_SIZE).unwrap()),
            memory: Arc::new(Memory::new()),
            vectors: (0..33).map(|_| Vector::new().unwrap()).collect::<Vec<_>>().into(),
            wakeup: Arc::new(Wakeup::new().unwrap()),
        }
    }

    fn read<const N: usize>(bar: &Bar, function: &Function, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bar.read(function, at, &mut bytes);
        bytes
    }

    #[test]
    fn registers_are_written_as_they_may_be() {
        let (function, mut bar) = (function(), Bar::new(33));
        function.registers.word64(reg::CAP).store(0x0102_0304_0506_0708, Ordering::Relaxed);
        // All of it, wildly.
        for at in (0..DOORBELLS).step_by(4).filter(|at| *at != reg::CC) {
            bar.write(&function, at, &[0xff; 4]);
        }
        assert_eq!(read(&bar, &function, reg::CAP), 0x0102_0304_0506_0708u64.to_le_bytes());
        assert_eq!(read(&bar, &function, reg::CSTS), [0; 4]);
        assert_eq!(read(&bar, &function, reg::ASQ), [0xff; 8]);
        bar.write(&function, reg::ASQ, &0x1_2345_6000u64.to_le_bytes());
        assert_eq!(function.registers.word64(reg::ASQ).load(Ordering::Relaxed), 0x1_2345_6000);
        // A byte of a register, and both masks as one.
        bar.write(&function, reg::CC, &0x0046_0000u32.to_le_bytes());
        bar.write(&function, reg::CC, &[1]);
        assert_eq!(function.registers.word32(reg::CC).load(Ordering::Relaxed), 0x0046_0001);
        assert_eq!(read::<4>(&bar, &function, reg::INTMC), read(&bar, &function, reg::INTMS));
    }

    #[test]
    fn doorbells_are_whole_and_a_message_may_have_two() {
        let (function, mut bar) = (function(), Bar::new(33));
        bar.write(&function, reg::sq_tail_doorbell(1), &[5, 0, 0, 0, 7, 0, 0, 0]);
        bar.write(&function, reg::sq_tail_doorbell(2), &[9, 9]);
        let at = |at| function.registers.word32(at).load(Ordering::Relaxed);
        assert_eq!(
            (at(reg::sq_tail_doorbell(1)), at(reg::cq_head_doorbell(1)), at(reg::sq_tail_doorbell(2))),
            (5, 7, 0)
        );
        bar.write(&function, SIZE - 3, &[1; 3]);
    }

    #[test]
    fn the_table_keeps_what_is_written_and_what_is_pending_shows() {
        let (function, mut bar) = (function(), Bar::new(33));
        assert_eq!(read(&bar, &function, TABLE + 12), [1, 0, 0, 0]);
        bar.write(&function, TABLE + 32 * ENTRY, &[7; 16]);
        bar.write(&function, TABLE + 33 * ENTRY, &[7; 16]);
        assert_eq!(read(&bar, &function, TABLE + 32 * ENTRY), [7; 16]);
        assert_eq!(read(&bar, &function, TABLE + 33 * ENTRY), [0; 16]);
        for vector in [0, 9, 32] {
            function.vectors[vector].deliver_to(None);
            function.vectors[vector].signal();
        }
        assert_eq!(read(&bar, &function, PENDING), [1, 2, 0, 0, 1, 0, 0, 0]);
        function.vectors[9].deliver_to(Some(EventFd::new().unwrap()));
        assert_eq!(read(&bar, &function, PENDING), [1, 0, 0, 0, 1, 0, 0, 0]);
    }
}
