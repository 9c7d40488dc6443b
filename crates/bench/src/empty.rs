//! A FUSE file system with nothing behind it, whose requests come by io_uring: what the way to any drive
//! that a program serves takes at least. One file, read only; a read is answered with the bytes that its
//! buffer has, at once. A thread for each of the kernel's queues, as libfuse has it.

use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Barrier};

use nearside_dma::fuse::ring::{FuseRing, RingEvent, RingRequest};
use nearside_dma::fuse::{FuseDevice, MountOptions};
use nearside_dma::{Region, cpu, system};
use nearside_instrument::Failure;

/// The file's name.
pub const FILE: &str = "file";
/// Bytes of it.
pub const BYTES: u64 = 1 << 30;
/// Requests in flight of each queue.
const DEPTH: usize = 32;
/// Bytes of a request's data at most.
const PAYLOAD: usize = 128 << 10;
const NODE: u64 = 2;

/// Mounts it at `at`, says so, and serves until standard input ends.
pub fn serve(at: &Path) -> Result<(), Failure> {
    let device = Arc::new(FuseDevice::mount(at, MountOptions { read_only: true, allow_other: false })?);
    let queues = u16::try_from(cpu::possible_cores()?)?;
    let (made, accepted) = (Barrier::new(usize::from(queues) + 1), Barrier::new(usize::from(queues) + 1));
    let rest = Region::anonymous(PAYLOAD)?;
    let mut head = [0; 80];
    // INIT.
    device.receive(&mut head, (&rest, 0, PAYLOAD))?;
    std::thread::scope(|scope| {
        for queue in 0..queues {
            let (device, made, accepted) = (&device, &made, &accepted);
            scope.spawn(move || serve_queue(device, queue, made, accepted).expect("a queue of the kernel's"));
        }
        made.wait();
        device.reply(&reply(unique_of(&head), 0, &accept()), None)?;
        accepted.wait();
        println!("mounted");
        scope.spawn(|| {
            let mut head = [0; 80];
            // FORGET and INTERRUPT come here, and want no reply.
            while device.receive(&mut head, (&rest, 0, PAYLOAD)).is_ok() {}
        });
        io::stdin().read_to_end(&mut Vec::new())?;
        Ok(system::unmount(at, true)?)
    })
}

fn serve_queue(device: &Arc<FuseDevice>, queue: u16, made: &Barrier, accepted: &Barrier) -> io::Result<()> {
    let mut ring = FuseRing::new(device.clone(), DEPTH)?;
    let memory = Arc::new(Region::anonymous(DEPTH * PAYLOAD)?);
    made.wait();
    accepted.wait();
    for entry in 0..DEPTH {
        ring.register(queue, &memory, entry * PAYLOAD, PAYLOAD);
    }
    while ring.out() > 0 {
        ring.wait(None)?;
        while let Some(event) = ring.take() {
            let RingEvent::Request(entry) = event else { continue };
            let request = ring.request(entry);
            let (errno, len) = match answer(&request) {
                Answer::Error(errno) => (errno, 0),
                Answer::Data(len) => (0, len),
                Answer::Body(body) => {
                    memory.write(entry * PAYLOAD, &body);
                    (0, body.len())
                }
            };
            let head = reply(unique_of(&request.head), errno, &[]);
            ring.reply(entry, head.first_chunk().ok_or(io::ErrorKind::InvalidData)?, len as u32);
        }
    }
    Ok(())
}

enum Answer {
    Error(i32),
    Data(usize),
    Body(Vec<u8>),
}

/// To a request of include/uapi/linux/fuse.h.
fn answer(request: &RingRequest) -> Answer {
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let node = u64::from(number(&request.head, 16));
    match number(&request.head, 4) {
        // LOOKUP: node, generation, validity of the entry and of its attributes.
        1 if node == 1 => {
            Answer::Body([words(&[NODE, 0, 3600, 3600]), vec![0; 8], attributes(NODE)].concat())
        }
        // GETATTR.
        3 => Answer::Body([words(&[3600]), vec![0; 8], attributes(node)].concat()),
        // OPEN: FOPEN_DIRECT_IO.
        14 => Answer::Body(words(&[0, 1])),
        // READ: its size, and nothing beyond the end is asked for.
        15 => Answer::Data(number(&request.args, 16) as usize),
        // RELEASE, FLUSH, DESTROY.
        18 | 25 | 38 => Answer::Body(Vec::new()),
        _ => Answer::Error(rustix::io::Errno::NOSYS.raw_os_error()),
    }
}

/// `struct fuse_attr`: the directory or the file, root's.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, bytes) = if node == NODE { (0o100_444, BYTES) } else { (0o40_555, 0) };
    // Number, size, blocks, three times, their nanoseconds; mode, links, owner, device, block size, flags.
    let rest = [0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat();
    [words(&[node, bytes, bytes / 512, 0, 0, 0]), rest].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_out_header` before the body.
fn reply(unique: u64, errno: i32, body: &[u8]) -> Vec<u8> {
    let head = [(16 + body.len()) as u32, errno.wrapping_neg() as u32].map(u32::to_ne_bytes).concat();
    [head, unique.to_ne_bytes().to_vec(), body.to_vec()].concat()
}

fn unique_of(head: &[u8]) -> u64 {
    head.get(8..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// `struct fuse_init_out` of protocol 7.38: ASYNC_READ, ASYNC_DIO, MAX_PAGES, INIT_EXT; FUSE_OVER_IO_URING.
fn accept() -> Vec<u8> {
    let flags = 1u32 | 1 << 15 | 1 << 22 | 1 << 30;
    let in_flight = (DEPTH as u32) << 16 | DEPTH as u32;
    let pages = (PAYLOAD / 4096) as u32;
    let first = [7, 38, 0, flags, in_flight, PAYLOAD as u32, 1, pages, 1 << 9];
    [first.map(u32::to_ne_bytes).concat(), vec![0; 28]].concat()
}
