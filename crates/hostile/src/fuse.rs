//! What the kernel asks of a mount.
//!
//! `fuse_request`: a message as `/dev/fuse` gives it, in the machine's order; its first bytes as io_uring
//! brings them, too.

use nearside_front_fuse::wire::{ARGUMENTS, HEAD, IN_HEADER, Offer, Operation, Request};

/// EINVAL and EPROTO.
const REFUSALS: [i32; 2] = [22, 71];

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[at..at + N]);
    word
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(word(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(word(bytes, at))
}

/// Bytes of an operation's first argument (include/uapi/linux/fuse.h), and how many of them have to be there.
fn argument(opcode: u32) -> (usize, usize) {
    match opcode {
        4 => (88, 4),
        14 => (8, 4),
        15 | 28 => (40, 20),
        16 => (40, 36),
        43 => (32, 28),
        _ => (0, 0),
    }
}

/// Runs an input: what is decoded is what stands in the message, whatever it is; by io_uring it means the
/// same.
pub fn run(input: &[u8]) {
    let mut head = [0; HEAD];
    let len = input.len().min(HEAD);
    head[..len].copy_from_slice(&input[..len]);
    let Some(request) = Request::of_message(&head, input.len()) else {
        assert!(input.len() < IN_HEADER);
        return;
    };
    let (first, rest) = input.split_at(IN_HEADER);
    let (header, operation) = (request.header, request.operation());
    assert_eq!((header.len, header.unique), (u32_at(first, 0), u64_at(first, 8)));
    assert_eq!((header.node, header.uid), (u64_at(first, 16), u32_at(first, 24)));
    if header.len as usize != input.len() {
        return assert_eq!(operation, Ok(Operation::Unknown));
    }
    let opcode = u32_at(first, 4);
    let (whole, least) = argument(opcode);
    assert_eq!((header.opcode, operation.is_ok()), (opcode, rest.len() >= least));
    match operation {
        Err(errno) => assert_eq!(errno, REFUSALS[0]),
        Ok(operation) => says(operation, rest),
    }
    match Offer::of(rest) {
        Ok(offer) => {
            let extended = u32_at(rest, 12) & 1 << 30 != 0;
            assert!(u32_at(rest, 0) == 7 && u32_at(rest, 4) >= 28);
            assert_eq!(offer.has_ring(), extended && u32_at(rest, 16) & 1 << 9 != 0);
        }
        Err(errno) => assert!(REFUSALS.contains(&errno)),
    }
    if rest.len() >= whole {
        by_ring(&request, input, whole);
    }
}

/// What an operation says is what stands in its arguments.
fn says(operation: Operation, args: &[u8]) {
    match operation {
        Operation::SetAttr { valid } => assert_eq!(valid, u32_at(args, 0)),
        Operation::Open { flags } => assert_eq!(flags, u32_at(args, 0)),
        Operation::Read { offset, size } | Operation::ReadDir { offset, size } => {
            assert_eq!((offset, size), (u64_at(args, 8), u32_at(args, 16)));
        }
        Operation::Write { offset, size, flags } => {
            assert_eq!((offset, size, flags), (u64_at(args, 8), u32_at(args, 16), u32_at(args, 32)));
        }
        Operation::Fallocate { offset, len, mode } => {
            assert_eq!((offset, len, mode), (u64_at(args, 8), u64_at(args, 16), u32_at(args, 24)));
        }
        _ => {}
    }
}

/// The same request as io_uring brings it: its first argument apart from what comes after it.
fn by_ring(request: &Request<'_>, input: &[u8], whole: usize) {
    let (mut head, mut args, mut text) = ([0; IN_HEADER], [0; 128], [0; ARGUMENTS]);
    head.copy_from_slice(&input[..IN_HEADER]);
    let (argument, payload) = input[IN_HEADER..].split_at(whole);
    args[..whole].copy_from_slice(argument);
    let len = payload.len().min(ARGUMENTS);
    text[..len].copy_from_slice(&payload[..len]);
    let other = Request::of_entry(&head, &args, &text, payload.len());
    assert_eq!((other.header, other.operation()), (request.header, request.operation()));
    match request.operation() {
        Ok(Operation::Lookup) => assert_eq!(other.name, request.name),
        Ok(Operation::Write { .. }) => assert_eq!(other.payload, request.payload),
        _ => {}
    }
}

/// A message of every operation that is known, as a kernel sends it.
pub fn seeds() -> Vec<Vec<u8>> {
    let numbers = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let io = numbers(&[0, 4096, 512, 0, 0]);
    // Protocol 7.45, 128 KiB of read-ahead, all flags of both words.
    let init = numbers(&[7 | 45 << 32, 0xffff_ffff_0002_0000, u64::from(u32::MAX), 0, 0, 0, 0, 0]);
    let bodies = [
        (1, b"namespace\0".to_vec()),
        (2, numbers(&[1])),
        (3, numbers(&[0, 0])),
        (4, numbers(&[8; 11])),
        (14, numbers(&[2])),
        (15, io.clone()),
        (16, [io.clone(), vec![7; 512]].concat()),
        (17, vec![]),
        (18, numbers(&[0; 3])),
        (20, numbers(&[0, 1])),
        (25, numbers(&[0; 3])),
        (26, init),
        (27, numbers(&[0])),
        (28, io),
        (29, numbers(&[0; 3])),
        (36, numbers(&[5])),
        (38, vec![]),
        (42, numbers(&[1, 2, 1])),
        (43, numbers(&[0, 4096, 8192, 3])),
        (9999, vec![1; 200]),
    ];
    bodies.into_iter().map(|(opcode, body)| message(opcode, &body)).collect()
}

fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let len = (IN_HEADER + body.len()) as u32;
    let words = [len, opcode].map(u32::to_ne_bytes).concat();
    // Number, node; user and group, process and what is left.
    [&words[..], &7u64.to_ne_bytes(), &2u64.to_ne_bytes(), &[0; 16], body].concat()
}
