//! The bare ring that queue pairs are measured beside: requests end in order, with their data.

#[path = "../benches/common/ring.rs"]
mod ring;

use std::sync::Arc;

use nearside_dma::Region;
use ring::{Request, ring};

#[test]
fn requests_end_in_order_with_their_data() {
    let (mut client, mut server) = ring(8).unwrap();
    let store = Arc::new(Region::anonymous(1 << 20).unwrap());
    let memory = Arc::new(Region::anonymous(8 * 512).unwrap());
    let (s, m) = (store.clone(), memory.clone());
    let total = 20_000u64;
    let thread = std::thread::spawn(move || {
        let mut served = 0;
        while served < total as usize {
            match server.serve(&s, &m) {
                0 => std::thread::yield_now(),
                n => served += n,
            }
        }
    });
    // Slot i writes block b, then reads it back.
    let (mut sent, mut ended) = (0u64, 0u64);
    while ended < total {
        while sent < total && client.outstanding() < 8 {
            let (slot, pair) = (sent % 8, sent / 16);
            let block = (pair * 8 + slot) % 2048;
            let write = sent / 8 % 2 == 0;
            if write {
                memory.fill(slot as usize * 512, 512, pair as u8 ^ slot as u8);
            } else {
                memory.fill(slot as usize * 512, 512, 0);
            }
            assert!(client.submit(&Request { write, len: 512, store: block * 512, memory: slot * 512 }));
            sent += 1;
        }
        if !client.complete() {
            std::thread::yield_now();
            continue;
        }
        let (slot, pair) = (ended % 8, ended / 16);
        if ended / 8 % 2 == 1 {
            let mut back = [0; 512];
            memory.read(slot as usize * 512, &mut back);
            assert_eq!(back, [pair as u8 ^ slot as u8; 512], "request {ended}");
        }
        ended += 1;
    }
    thread.join().unwrap();
}
