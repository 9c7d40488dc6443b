//! The FUSE protocol (include/uapi/linux/fuse.h), as far as one file in one directory needs it: requests from
//! bytes, replies to bytes. Numbers are in the machine's order.
//!
//! A request is its header, the operation's fixed arguments, and what is left: a name, or a file's bytes. A
//! request too short for its operation is none (its sender gets an errno); what an operation does not
//! need of its arguments is not looked at.
//!
//! Both ways by which requests come end in one [`Request`]: [`Request::of_message`] for `/dev/fuse`,
//! [`Request::of_entry`] for io_uring.

/// Bytes of `struct fuse_in_header`.
pub const IN_HEADER: usize = 40;
/// Bytes of the arguments of a read or write: what stands before a file's bytes.
pub const ARGUMENTS: usize = 40;
/// Bytes of a message of `/dev/fuse` that tell what it is; of a write, a file's bytes come after them.
pub const HEAD: usize = IN_HEADER + ARGUMENTS;
/// Bytes of `struct fuse_out_header`.
pub(crate) const OUT_HEADER: usize = 16;
/// The root directory.
pub(crate) const ROOT: u64 = 1;

/// `struct fuse_in_header`, as far as anybody asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InHeader {
    /// Bytes of the whole request.
    pub len: u32,
    /// The operation's number.
    pub opcode: u32,
    /// The request's number, which its reply has.
    pub unique: u64,
    /// What it is about.
    pub node: u64,
    /// Who asks.
    pub uid: u32,
}

/// A request, as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who asks for what.
    pub header: InHeader,
    /// The operation's fixed arguments.
    pub args: &'a [u8],
    /// The name that is looked up; empty where it is longer than any that there is.
    pub name: &'a [u8],
    /// Bytes of a file that lie in its buffer.
    pub payload: usize,
}

impl<'a> Request<'a> {
    /// A message of `/dev/fuse` of `len` bytes, the first of which are `head`'s. `None`: one so short that
    /// nobody could be answered.
    pub fn of_message(head: &'a [u8; HEAD], len: usize) -> Option<Request<'a>> {
        let (header, _) = head.split_first_chunk().filter(|_| len >= IN_HEADER)?;
        let header = InHeader::of(header);
        // A request that says another length than it has is none that is known.
        let opcode = if header.len as usize == len { header.opcode } else { u32::MAX };
        let args = head.get(IN_HEADER..len.min(HEAD)).unwrap_or(&[]);
        let name = if len <= HEAD { args } else { &[] };
        Some(Request { header: InHeader { opcode, ..header }, args, name, payload: len.saturating_sub(HEAD) })
    }

    /// An entry of io_uring's: its header, the operation's first argument with zeros after it, and a payload
    /// of `payload` bytes, which `text` has where it has room for them.
    pub fn of_entry(
        head: &[u8; IN_HEADER],
        args: &'a [u8],
        text: &'a [u8; ARGUMENTS],
        payload: usize,
    ) -> Request<'a> {
        Request { header: InHeader::of(head), args, name: text.get(..payload).unwrap_or(&[]), payload }
    }

    /// What is asked.
    ///
    /// # Errors
    /// The errno that it deserves: EINVAL where it is too short for its operation.
    pub fn operation(&self) -> Result<Operation, i32> {
        Operation::of(self.header.opcode, self.args)
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, i32> {
    word(bytes, at).map(u32::from_ne_bytes).ok_or(libc::EINVAL)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, i32> {
    word(bytes, at).map(u64::from_ne_bytes).ok_or(libc::EINVAL)
}

impl InHeader {
    pub(crate) fn of(bytes: &[u8; IN_HEADER]) -> InHeader {
        let [l0, l1, l2, l3, o0, o1, o2, o3, u0, u1, u2, u3, u4, u5, u6, u7, rest @ ..] = *bytes;
        let [n0, n1, n2, n3, n4, n5, n6, n7, i0, i1, i2, i3, ..] = rest;
        InHeader {
            len: u32::from_ne_bytes([l0, l1, l2, l3]),
            opcode: u32::from_ne_bytes([o0, o1, o2, o3]),
            unique: u64::from_ne_bytes([u0, u1, u2, u3, u4, u5, u6, u7]),
            node: u64::from_ne_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
            uid: u32::from_ne_bytes([i0, i1, i2, i3]),
        }
    }
}

/// What is asked. Offsets and sizes are in bytes, flags the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "operations and arguments have the kernel's names")]
pub enum Operation {
    Lookup,
    /// The kernel has forgotten nodes, or no longer waits for a request: no reply.
    Forget,
    GetAttr,
    SetAttr {
        valid: u32,
    },
    Open {
        flags: u32,
    },
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        size: u32,
        flags: u32,
    },
    StatFs,
    Flush,
    Fsync,
    Release,
    OpenDir,
    ReadDir {
        offset: u64,
        size: u32,
    },
    Fallocate {
        offset: u64,
        len: u64,
        mode: u32,
    },
    Init,
    Destroy,
    /// Any other.
    Unknown,
}

impl Operation {
    /// From its number and fixed arguments; or the errno that they deserve.
    pub(crate) fn of(opcode: u32, args: &[u8]) -> Result<Operation, i32> {
        Ok(match opcode {
            1 => Operation::Lookup,
            // FORGET, INTERRUPT, BATCH_FORGET.
            2 | 36 | 42 => Operation::Forget,
            3 => Operation::GetAttr,
            4 => Operation::SetAttr { valid: u32_at(args, 0)? },
            14 => Operation::Open { flags: u32_at(args, 0)? },
            15 => Operation::Read { offset: u64_at(args, 8)?, size: u32_at(args, 16)? },
            16 => Operation::Write {
                offset: u64_at(args, 8)?,
                size: u32_at(args, 16)?,
                flags: u32_at(args, 32)?,
            },
            17 => Operation::StatFs,
            // RELEASE, RELEASEDIR.
            18 | 29 => Operation::Release,
            20 => Operation::Fsync,
            25 => Operation::Flush,
            26 => Operation::Init,
            27 => Operation::OpenDir,
            28 => Operation::ReadDir { offset: u64_at(args, 8)?, size: u32_at(args, 16)? },
            38 => Operation::Destroy,
            43 => Operation::Fallocate {
                offset: u64_at(args, 8)?,
                len: u64_at(args, 16)?,
                mode: u32_at(args, 24)?,
            },
            _ => Operation::Unknown,
        })
    }

    /// Whether the kernel itself may be who asks, in anybody's name: what was opened before, written back or
    /// forgotten.
    pub(crate) fn is_of_open_file(self) -> bool {
        !matches!(
            self,
            Operation::Lookup
                | Operation::GetAttr
                | Operation::SetAttr { .. }
                | Operation::Open { .. }
                | Operation::OpenDir
                | Operation::StatFs
                | Operation::Unknown
        )
    }
}

/// Bytes of a reply that are no file's, at most [`Body::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    bytes: [u8; Body::MOST],
    len: usize,
}

impl Body {
    /// The longest: fuse_entry_out, or the directory.
    pub(crate) const MOST: usize = 128;

    pub(crate) const EMPTY: Body = Body { bytes: [0; Body::MOST], len: 0 };

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds bytes; what there is no room for is left out.
    fn add(mut self, more: &[u8]) -> Body {
        let room = self.bytes.get_mut(self.len..).unwrap_or(&mut []);
        let part = more.len().min(room.len());
        room.iter_mut().zip(more).for_each(|(to, from)| *to = *from);
        self.len += part;
        self
    }

    pub(crate) fn u16(self, value: u16) -> Body {
        self.add(&value.to_ne_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Body {
        self.add(&value.to_ne_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Body {
        self.add(&value.to_ne_bytes())
    }

    fn zeros(self, count: usize) -> Body {
        self.add(&[0; Body::MOST][..count.min(Body::MOST)])
    }

    /// `struct fuse_attr`.
    fn attr(self, attr: &Attr) -> Body {
        let times = [attr.since_s; 3]
            .into_iter()
            .fold(self.u64(attr.node).u64(attr.size).u64(attr.size.div_ceil(512)), Body::u64);
        [attr.since_ns; 3]
            .into_iter()
            .fold(times, Body::u32)
            .u32(attr.mode)
            .u32(1)
            .u32(attr.uid)
            .u32(attr.gid)
            .u32(0)
            .u32(4096)
            .u32(0)
    }

    /// `struct fuse_entry_out`: node, generation, how long it holds (entry, attributes: s, ns).
    pub(crate) fn entry(attr: &Attr) -> Body {
        Body::EMPTY.u64(attr.node).u64(0).u64(VALID_S).u64(VALID_S).u32(0).u32(0).attr(attr)
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attributes(attr: &Attr) -> Body {
        Body::EMPTY.u64(VALID_S).u32(0).u32(0).attr(attr)
    }

    /// `struct fuse_open_out`, without a handle.
    pub(crate) fn opened(flags: u32) -> Body {
        Body::EMPTY.u64(0).u32(flags).u32(0)
    }

    /// `struct fuse_write_out`.
    pub(crate) fn written(bytes: u32) -> Body {
        Body::EMPTY.u32(bytes).u32(0)
    }

    /// `struct fuse_statfs_out`: nothing to say of a directory with one file, but blocks of 512 bytes and
    /// names of at most 255.
    pub(crate) fn statfs() -> Body {
        Body::EMPTY.zeros(40).u32(512).u32(255).zeros(32)
    }

    /// Adds a `struct fuse_dirent`, where it is not longer than `room` with what is there; says whether.
    pub(crate) fn dirent(self, node: u64, next: u64, kind: u32, name: &str, room: usize) -> Option<Body> {
        let len = (24 + name.len()).next_multiple_of(8);
        if self.len + len > room.min(Body::MOST) {
            return None;
        }
        let with = self.u64(node).u64(next).u32(name.len() as u32).u32(kind).add(name.as_bytes());
        Some(with.zeros(len - 24 - name.len()))
    }
}

/// How long the kernel may believe what it was told, in seconds: nothing here changes.
const VALID_S: u64 = 3600;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) node: u64,
    pub(crate) size: u64,
    /// With the file's kind.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// All of its times.
    pub(crate) since_s: u64,
    pub(crate) since_ns: u32,
}

/// `struct fuse_out_header`: bytes of all of the reply, a negative errno or 0, whose reply it is.
pub(crate) fn out_header(payload: u32, errno: i32, unique: u64) -> [u8; OUT_HEADER] {
    let mut head = [0; OUT_HEADER];
    let words = Body::EMPTY
        .u32(payload.saturating_add(OUT_HEADER as u32))
        .u32(errno.saturating_neg() as u32)
        .u64(unique);
    head.iter_mut().zip(words.bytes()).for_each(|(to, from)| *to = *from);
    head
}

/// What the kernel offers at first, and what is taken of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    major: u32,
    minor: u32,
    read_ahead: u32,
    flags: u64,
}

const ASYNC_READ: u64 = 1 << 0;
const BIG_WRITES: u64 = 1 << 5;
const ASYNC_DIO: u64 = 1 << 15;
const PARALLEL_DIROPS: u64 = 1 << 18;
const ABORT_ERROR: u64 = 1 << 21;
const MAX_PAGES: u64 = 1 << 22;
const INIT_EXT: u64 = 1 << 30;
const OVER_IO_URING: u64 = 1 << 41;

/// The protocol that is spoken here, and the oldest that the kernel may speak (Linux 4.20).
const MAJOR: u32 = 7;
const MINOR: u32 = 38;
const OLDEST: u32 = 28;

impl Offer {
    /// From the arguments of INIT (`struct fuse_init_in`).
    ///
    /// # Errors
    /// EINVAL where they are too short, EPROTO for a protocol that is not spoken here.
    pub fn of(args: &[u8]) -> Result<Offer, i32> {
        let low = u64::from(u32_at(args, 12)?);
        let high = if low & INIT_EXT != 0 { u64::from(u32_at(args, 16)?) } else { 0 };
        let offer = Offer {
            major: u32_at(args, 0)?,
            minor: u32_at(args, 4)?,
            read_ahead: u32_at(args, 8)?,
            flags: low | high << 32,
        };
        if offer.major != MAJOR || offer.minor < OLDEST {
            return Err(libc::EPROTO);
        }
        Ok(offer)
    }

    /// Whether requests may come by io_uring.
    pub fn has_ring(&self) -> bool {
        self.flags & OVER_IO_URING != 0
    }

    /// What is taken (`struct fuse_init_out`): requests of at most `payload` bytes, so many in flight.
    pub(crate) fn accept(&self, payload: u32, in_flight: u16, ring: bool) -> Body {
        let wanted =
            ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIROPS | ABORT_ERROR | MAX_PAGES | INIT_EXT;
        let taken = self.flags & (wanted | if ring { OVER_IO_URING } else { 0 });
        let pages = u16::try_from(payload / 4096).unwrap_or(u16::MAX);
        Body::EMPTY
            .u32(MAJOR)
            .u32(MINOR.min(self.minor))
            .u32(self.read_ahead)
            .u32(taken as u32)
            .u16(in_flight)
            .u16(in_flight)
            .u32(payload)
            .u32(1)
            .u16(pages)
            .u16(0)
            .u32((taken >> 32) as u32)
            .zeros(28)
    }
}

#[cfg(test)]
mod tests {
    use nearside_random::Rng;

    use super::*;

    #[test]
    fn lengths_are_the_kernels() {
        let attr = Attr { node: 2, size: 1, mode: 0, uid: 0, gid: 0, since_s: 0, since_ns: 0 };
        assert_eq!(Body::entry(&attr).len(), 128);
        assert_eq!(Body::attributes(&attr).len(), 104);
        assert_eq!((Body::opened(0).len(), Body::written(1).len(), Body::statfs().len()), (16, 8, 80));
        let mut init = [0; 64];
        for (at, word) in [(0, 7u32), (4, 45), (8, 131_072), (12, u32::MAX), (16, u32::MAX)] {
            init[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let offer = Offer::of(&init).unwrap();
        assert!(offer.has_ring());
        for ring in [false, true] {
            let reply = offer.accept(1 << 20, 64, ring);
            assert_eq!(reply.len(), 64);
            assert_eq!(u32_at(reply.bytes(), 32).unwrap() >> (41 - 32) & 1, u32::from(ring));
            assert_eq!(reply.bytes()[28..30], 256u16.to_ne_bytes());
        }
        init[0] = 8;
        assert_eq!(Offer::of(&init), Err(libc::EPROTO));
        assert_eq!(Offer::of(&init[..15]), Err(libc::EINVAL));
        assert_eq!(out_header(8, libc::EIO, 3)[4..8], (-libc::EIO).to_ne_bytes());
    }

    #[test]
    fn a_request_too_short_is_none() {
        let whole = [0u8; 40];
        for (opcode, least) in [(4, 4), (14, 4), (15, 20), (16, 36), (28, 20), (43, 28)] {
            assert!(Operation::of(opcode, &whole[..least]).is_ok(), "{opcode}");
            assert_eq!(Operation::of(opcode, &whole[..least - 1]), Err(libc::EINVAL), "{opcode}");
        }
        let mut random = Rng(3);
        for _ in 0..100_000 {
            let bytes = random.bytes(random.clone().index(64));
            let _ = Operation::of(random.index(64) as u32, &bytes);
            let _ = Offer::of(&bytes);
        }
    }

    /// A message of `/dev/fuse`: its header, and what comes after it.
    fn message(opcode: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = [(IN_HEADER as u32 + rest.len() as u32).to_ne_bytes(), opcode.to_ne_bytes()].concat();
        bytes.extend([7u64.to_ne_bytes(), 2u64.to_ne_bytes(), [0; 8], [0; 8]].concat());
        bytes.extend(rest);
        bytes
    }

    /// The same request, by a ring: its first argument (of so many bytes) apart from what is left.
    fn by_ring<'a>(
        bytes: &'a [u8],
        first: usize,
        args: &'a mut [u8; 128],
        text: &'a mut [u8; ARGUMENTS],
    ) -> Request<'a> {
        let (head, rest) = bytes.split_first_chunk().unwrap();
        let (argument, rest) = rest.split_at(first.min(rest.len()));
        args[..argument.len()].copy_from_slice(argument);
        let len = rest.len().min(text.len());
        text[..len].copy_from_slice(&rest[..len]);
        Request::of_entry(head, args, text, rest.len())
    }

    /// Seeded changes of every operation's message: nothing ends it, and what is whole means the same by
    /// either way.
    #[test]
    fn changed_requests_mean_the_same_by_either_way() {
        // Of each operation: its first argument's bytes, as the kernel has it.
        let firsts = [(1, 0), (3, 16), (4, 88), (14, 8), (15, 40), (16, 40), (20, 16), (28, 40), (43, 32)];
        let mut random = Rng(17);
        let mut same = 0;
        for round in 0..100_000 {
            let (opcode, first) = random.pick(&firsts);
            let rest = if opcode == 1 { b"namespace\0".to_vec() } else { random.bytes(first) };
            let after = if opcode == 16 { random.index(64) } else { 0 };
            let mut bytes = message(opcode, &[rest, random.bytes(after)].concat());
            for _ in 0..random.index(3) {
                let at = random.index(bytes.len());
                bytes[at] = random.draw() as u8;
            }
            if random.below(8) == 0 {
                bytes.truncate(random.index(bytes.len()));
            }
            let mut head = [0; HEAD];
            let len = bytes.len().min(HEAD);
            head[..len].copy_from_slice(&bytes[..len]);
            let Some(request) = Request::of_message(&head, bytes.len()) else {
                assert!(bytes.len() < IN_HEADER);
                continue;
            };
            let operation = request.operation();
            let _ = Offer::of(request.args);
            if request.header.len as usize != bytes.len() {
                assert_eq!(operation, Ok(Operation::Unknown), "{round}");
                continue;
            }
            if request.header.opcode != opcode || bytes.len() < IN_HEADER + first {
                continue;
            }
            let (mut args, mut text) = ([0; 128], [0; ARGUMENTS]);
            let other = by_ring(&bytes, first, &mut args, &mut text);
            assert_eq!((other.operation(), other.header), (operation, request.header), "{round}");
            match operation {
                Ok(Operation::Lookup) => assert_eq!(other.name, request.name, "{round}"),
                Ok(Operation::Write { .. }) => assert_eq!(other.payload, request.payload, "{round}"),
                _ => {}
            }
            same += 1;
        }
        assert!(same > 50_000, "{same}");
    }

    #[test]
    fn a_directory_ends_where_the_room_does() {
        let one = Body::EMPTY.dirent(1, 1, 4, ".", 64).unwrap();
        assert_eq!(one.len(), 32);
        assert_eq!(one.dirent(2, 2, 8, "namespace", 64), None);
        assert_eq!(one.dirent(2, 2, 8, "namespace", 72).unwrap().len(), 72);
        assert_eq!(one.dirent(2, 2, 8, &"n".repeat(200), usize::MAX), None);
    }
}
