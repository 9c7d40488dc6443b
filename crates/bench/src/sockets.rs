//! What the network itself gives, between two bare programs that know nothing of NVMe:
//! a ping-pong, the messages of reads, a stream.
//!
//! Both ends spin on nonblocking sockets, each on a core of its own. What is sent for a read lies at a random
//! place of a memory as large as the drive that it stands beside.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nearside_dma::cpu::pin_to_core;
use nearside_random::Random;

/// Bytes of a command capsule.
pub const UP: usize = 72;
/// Bytes of a C2HData PDU with 4 KiB.
pub const DOWN: usize = 24 + BLOCK;
const BLOCK: usize = 4096;

/// Server and client.
pub type Cores = (usize, usize);

/// A connection to a thread that runs `serve` on the first core; the caller moves to the second.
fn connected(
    (server, client): Cores,
    serve: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static,
) -> io::Result<(TcpStream, JoinHandle<io::Result<()>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let thread = std::thread::spawn(move || {
        pin_to_core(server)?;
        let (socket, _) = listener.accept()?;
        prepare(&socket)?;
        serve(socket)
    });
    pin_to_core(client)?;
    let socket = TcpStream::connect(address)?;
    prepare(&socket)?;
    Ok((socket, thread))
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)
}

fn ended(socket: TcpStream, thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    drop(socket);
    match thread.join().unwrap_or_else(|_| Err(io::Error::other("the other end panicked"))) {
        // The client goes without a word.
        Err(e) if !matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Err(e),
        _ => Ok(()),
    }
}

/// Reads what is there; 0 where there is nothing yet.
fn read(mut socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    match socket.read(into) {
        Ok(0) => Err(ErrorKind::ConnectionReset.into()),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

fn write_all(mut socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(wrote) => bytes = &bytes[wrote..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A 64-byte ping-pong, both ends spinning on recv: nanoseconds of each round trip.
pub fn ping_pong(cores: Cores, count: usize) -> io::Result<Vec<u64>> {
    const LEN: usize = 64;
    let echo = |socket: TcpStream| {
        let mut bytes = [0; LEN];
        let mut got = 0;
        loop {
            got += read(&socket, &mut bytes[got..])?;
            if got == LEN {
                write_all(&socket, &bytes)?;
                got = 0;
            }
        }
    };
    let (socket, thread) = connected(cores, echo)?;
    let times = round_trips(&socket, LEN, LEN, count)?;
    ended(socket, thread)?;
    Ok(times)
}

/// What a read of 4 KiB alone sends, a command one way and the data behind a header back, both ends spinning
/// on recv: nanoseconds of each round trip.
pub fn exchanges(cores: Cores, source: &Arc<Vec<u8>>, count: usize) -> io::Result<Vec<u64>> {
    let source = source.clone();
    let (socket, thread) = connected(cores, move |socket| answer(&socket, &source))?;
    let times = round_trips(&socket, UP, DOWN, count)?;
    ended(socket, thread)?;
    Ok(times)
}

/// Sends so many bytes and waits for so many, again and again: nanoseconds of each.
fn round_trips(socket: &TcpStream, up: usize, down: usize, count: usize) -> io::Result<Vec<u64>> {
    let mut times = Vec::with_capacity(count);
    let (sent, mut inbox) = (vec![7; up], vec![0; down]);
    for _ in 0..count {
        let start = Instant::now();
        write_all(socket, &sent)?;
        let mut got = 0;
        while got < down {
            got += read(socket, &mut inbox[got..])?;
        }
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// The messages of 4 KiB random reads, `window` in flight, for so long: how many a second.
pub fn messages(cores: Cores, source: &Arc<Vec<u8>>, window: usize, time: Duration) -> io::Result<f64> {
    let source = source.clone();
    let (mut socket, thread) = connected(cores, move |socket| answer(&socket, &source))?;
    let asks = vec![1; window * UP];
    let mut inbox = vec![0; 128 << 10];
    write_all(&socket, &asks)?;
    let (mut got, mut answered) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..64 {
            got += read(&socket, &mut inbox)?;
            let whole = got / DOWN;
            got %= DOWN;
            if whole > 0 {
                answered += whole;
                write_all(&socket, &asks[..whole * UP])?;
            }
        }
    }
    let rate = answered as f64 / start.elapsed().as_secs_f64();
    socket.flush()?;
    ended(socket, thread)?;
    Ok(rate)
}

/// Messages that one call of the system sends.
const BATCH: usize = 64;

fn answer(mut socket: &TcpStream, source: &[u8]) -> io::Result<()> {
    let blocks = (source.len() / BLOCK) as u64;
    let mut random = Random::new(5);
    let mut inbox = vec![0; 64 << 10];
    let header = [7; DOWN - BLOCK];
    let (mut got, mut owed) = (0, 0);
    loop {
        got += read(socket, &mut inbox)?;
        owed += got / UP;
        got %= UP;
        while owed > 0 {
            let now = owed.min(BATCH);
            let mut slices = [IoSlice::new(&[]); 2 * BATCH];
            for pair in slices.chunks_exact_mut(2).take(now) {
                let at = (random.bits() % blocks) as usize * BLOCK;
                pair[0] = IoSlice::new(&header);
                pair[1] = IoSlice::new(&source[at..at + BLOCK]);
            }
            let mut rest = &mut slices[..2 * now];
            while !rest.is_empty() {
                match socket.write_vectored(rest) {
                    Ok(wrote) => IoSlice::advance_slices(&mut rest, wrote),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
            owed -= now;
        }
    }
}

/// A stream of pieces from random places, read into one buffer: bytes a second.
pub fn stream(cores: Cores, source: &Arc<Vec<u8>>, piece: usize, time: Duration) -> io::Result<f64> {
    let source = source.clone();
    let send = move |socket: TcpStream| {
        let mut random = Random::new(5);
        let places = (source.len() / piece) as u64;
        loop {
            let at = (random.bits() % places) as usize * piece;
            write_all(&socket, &source[at..at + piece])?;
        }
    };
    let (socket, thread) = connected(cores, send)?;
    let mut inbox = vec![0; piece];
    let mut got = 0;
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..64 {
            got += read(&socket, &mut inbox)?;
        }
    }
    let rate = got as f64 / start.elapsed().as_secs_f64();
    ended(socket, thread)?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floors_run() {
        let source = Arc::new(vec![3; 1 << 20]);
        let time = Duration::from_millis(50);
        assert_eq!(ping_pong((0, 0), 20).unwrap().len(), 20);
        assert_eq!(exchanges((0, 0), &source, 20).unwrap().len(), 20);
        assert!(messages((0, 0), &source, 4, time).unwrap() > 0.0);
        assert!(stream((0, 0), &source, 128 << 10, time).unwrap() > 0.0);
    }
}
