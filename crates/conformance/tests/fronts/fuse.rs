//! The front for a live host: the namespace as a file in a mount, and the socket beside it.

use std::any::Any;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nearside_conformance::front::{Front, Fronts, Refusal};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_embedded::{AnyStore, Loopback, firmware};
use nearside_front_fuse::{AttachOptions, Attached, attach};
use nearside_spec::Status;
use nearside_spec::socket::{Hello, REPLY_FRAME, ReplyFrame, RequestFrame, RequestKind};
use nearside_store::Store;
use rustix::fs::{FallocateFlags, fallocate};

const BLOCK: u64 = 512;

/// Drives of this front.
pub struct Fuse {
    /// Whether bytes are read by the socket; else from the file.
    pub socket: bool,
}

struct Mounted {
    by_socket: bool,
    file: fs::File,
    /// The same, opened so that each write is durable.
    synced: fs::File,
    capacity: u64,
    socket: PathBuf,
    /// Connections that nobody is using.
    idle: Mutex<Vec<UnixStream>>,
    attached: Mutex<Option<Attached>>,
    _drive: Box<dyn Any + Send + Sync>,
    _place: tempfile::TempDir,
}

impl Fronts for Fuse {
    fn start(&self, store: AnyStore) -> Box<dyn Front> {
        let place = tempfile::tempdir().unwrap();
        let writable = !store.read_only();
        let drive = Loopback::threaded(store, firmware(), Config::default(), Rest::default()).unwrap();
        let at = place.path().join("drive");
        fs::create_dir(&at).unwrap();
        let attached = attach(drive.function.clone(), &AttachOptions::new(at)).unwrap();
        let open = |flags| {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(writable).custom_flags(flags).open(attached.file()).unwrap()
        };
        assert_eq!(fs::OpenOptions::new().write(true).open(attached.file()).is_ok(), writable);
        let (file, synced) = (open(0), open(libc_dsync()));
        let (capacity, socket) = (file.metadata().unwrap().len(), attached.socket().to_owned());
        let attached = Mutex::new(Some(attached));
        Box::new(Mounted {
            by_socket: self.socket,
            file,
            synced,
            capacity,
            socket,
            idle: Mutex::default(),
            attached,
            _drive: Box::new(drive),
            _place: place,
        })
    }
}

/// O_DSYNC.
fn libc_dsync() -> i32 {
    rustix::fs::OFlags::DSYNC.bits() as i32
}

fn refusal(error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull => Refusal::OutOfRange,
        // A file that is open for reading says so before the drive is asked.
        io::ErrorKind::ReadOnlyFilesystem => Refusal::ReadOnly,
        _ if error.raw_os_error() == Some(9) => Refusal::ReadOnly,
        _ if error.raw_os_error() == Some(5) => Refusal::Medium,
        _ => Refusal::Other(error.to_string()),
    }
}

fn ask(stream: &mut UnixStream, frame: RequestFrame, bytes: &[u8]) -> io::Result<(Status, Vec<u8>)> {
    stream.write_all(&[&frame.encode()[..], bytes].concat())?;
    answer(stream)
}

fn answer(stream: &mut UnixStream) -> io::Result<(Status, Vec<u8>)> {
    let mut head = [0; REPLY_FRAME];
    stream.read_exact(&mut head)?;
    let head = ReplyFrame::decode(&head).unwrap();
    let mut reply = vec![0; head.len as usize];
    stream.read_exact(&mut reply)?;
    Ok((Status(head.status), reply))
}

fn frame(kind: RequestKind, len: usize, room: usize, offset: u64) -> RequestFrame {
    RequestFrame { kind, len: len as u32, room: room as u32, offset }
}

fn connect(socket: &Path) -> Result<UnixStream, Refusal> {
    UnixStream::connect(socket).map_err(refusal)
}

impl Mounted {
    /// One exchange, on a connection that is there or on a new one:
    /// who has one keeps it, also while all that there may be are taken.
    fn exchange(&self, frame: RequestFrame, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let idle = self.idle.lock().unwrap().pop();
        let mut stream = idle.map_or_else(|| connect(&self.socket), Ok)?;
        let (status, reply) = ask(&mut stream, frame, bytes).map_err(refusal)?;
        self.idle.lock().unwrap().push(stream);
        match status.code() {
            status if status.is_success() => Ok(reply),
            Status::LBA_OUT_OF_RANGE => Err(Refusal::OutOfRange),
            Status::UNRECOVERED_READ | Status::INTERNAL_ERROR => Err(Refusal::Medium),
            status => Err(Refusal::Other(status.to_string())),
        }
    }

    /// By whole blocks, of at most what a frame may ask for.
    fn read_by_socket(&self, offset: u64, into: &mut [u8]) -> Result<(), Refusal> {
        let end = offset.checked_add(into.len() as u64).ok_or(Refusal::OutOfRange)?;
        let (mut at, mut all) = (offset / BLOCK * BLOCK, Vec::new());
        let skip = (offset - at) as usize;
        while at < end {
            let room = (end - at).min(1 << 20).next_multiple_of(BLOCK);
            all.extend(self.exchange(frame(RequestKind::Read, 0, room as usize, at), &[])?);
            at += room;
        }
        into.copy_from_slice(&all[skip..skip + into.len()]);
        Ok(())
    }
}

impl Front for Mounted {
    fn capacity(&self) -> u64 {
        let hello = self.exchange(frame(RequestKind::Hello, 0, 64, 0), &[]).unwrap();
        assert_eq!(Hello::decode(&hello), Some(Hello { capacity: self.capacity, block_size: BLOCK as u32 }));
        self.capacity
    }

    fn unit(&self) -> u64 {
        1
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Refusal> {
        if self.by_socket {
            return self.read_by_socket(offset, into);
        }
        match self.file.read_exact_at(into, offset) {
            // Past the end of a file there is nothing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Refusal::OutOfRange),
            result => result.map_err(refusal),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), Refusal> {
        let file = if durable { &self.synced } else { &self.file };
        file.write_all_at(bytes, offset).map_err(refusal)
    }

    fn flush(&self) -> Result<(), Refusal> {
        self.file.sync_all().map_err(refusal)
    }

    fn zero(&self, offset: u64, len: u64, free: bool) -> Result<(), Refusal> {
        let how = if free { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, offset, len).map_err(|e| refusal(e.into()))
    }

    fn near_data(&self, request: &[u8], room: usize) -> Result<Vec<u8>, Refusal> {
        self.exchange(frame(RequestKind::NearData, request.len(), room, 0), request)
    }

    fn nonsense(&self) {
        let mut stream = connect(&self.socket).unwrap();
        // Refused, and the connection goes on.
        for bad in [
            frame(RequestKind::Read, 0, 512, self.capacity),
            frame(RequestKind::Read, 0, 512, u64::MAX - 511),
            frame(RequestKind::Read, 0, 100, 0),
            frame(RequestKind::Read, 0, 512, 7),
            frame(RequestKind::Read, 0, u32::MAX as usize, 0),
        ] {
            let (status, reply) = ask(&mut stream, bad, &[]).unwrap();
            assert!(!status.is_success() && reply.is_empty(), "{bad:?}");
        }
        // Not a frame, or one that promises too much: answered and closed.
        let too_long = frame(RequestKind::NearData, u32::MAX as usize, 512, 0).encode();
        for bad in [[0xffu8; 24], too_long] {
            let mut stream = connect(&self.socket).unwrap();
            stream.write_all(&bad).unwrap();
            assert!(!answer(&mut stream).unwrap().0.is_success());
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "still open");
        }
        // Half a frame, and a frame without the bytes that it promises.
        for part in [&too_long[..7], &frame(RequestKind::NearData, 100, 512, 0).encode()] {
            connect(&self.socket).unwrap().write_all(part).unwrap();
        }
        // Many connections: those beyond the bound are closed, the others stay.
        let many: Vec<_> =
            (0..nearside_front_fuse::MAX_CONNECTIONS + 20).map(|_| connect(&self.socket)).collect();
        let (status, _) = ask(&mut stream, frame(RequestKind::Hello, 0, 64, 0), &[]).unwrap();
        assert!(status.is_success());
        drop(many);
    }

    fn abandon(&self, request: &[u8]) {
        let mut stream = connect(&self.socket).unwrap();
        let head = frame(RequestKind::NearData, request.len(), 4096, 0).encode();
        stream.write_all(&[&head[..], request].concat()).unwrap();
    }

    fn end(&self) {
        // Detached while it is in use: the mount is put out of sight.
        drop(self.attached.lock().unwrap().take());
        assert!(!self.socket.exists());
    }
}
