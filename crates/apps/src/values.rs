//! What memcached and Redis have in common: a server of values behind a Unix socket, and clients that ask it
//! for random keys, one at a time each, and check every byte of every answer.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use nearside_clock::{Clock, TscClock};
use nearside_loadgen::Latency;
use nearside_random::{Rng, of_run};
use tempfile::TempDir;

use crate::ending::goes_on;
use crate::program::number_after;
use crate::wait::Patience;
use crate::{Failure, Group};

/// Bytes of a value: a page's worth (PIEEE'17 V-C).
pub const VALUE: usize = 4096;

/// What a run of gets came to.
#[derive(Clone, Debug)]
pub struct Gets {
    /// Gets per second, of all connections.
    pub per_second: f64,
    /// Their response times.
    pub response: Latency,
    /// Keys that it had not.
    pub missed: u64,
}

/// The bytes of a value: a function of its key.
pub(crate) fn value_of(key: u64, into: &mut Vec<u8>) {
    into.clear();
    let mut rng = Rng(of_run(3, key));
    while into.len() < VALUE {
        into.extend_from_slice(&rng.draw().to_le_bytes());
    }
}

/// A running server; it ends with this value.
pub(crate) struct Server {
    name: &'static str,
    child: Child,
    place: TempDir,
}

impl Server {
    /// Starts it, in a group if there is one; `socket` is its option for the path it is to listen on.
    pub(crate) fn start(
        name: &'static str,
        mut program: Command,
        socket: &str,
        group: Option<&Group>,
    ) -> Result<Server, Failure> {
        let place = TempDir::with_prefix(format!("nearside-{name}-"))?;
        program.arg(socket).arg(place.path().join("socket"));
        let mut command = match group {
            Some(group) => group.command(&program),
            None => program,
        };
        let words = File::create(place.path().join("words"))?;
        command.stdin(Stdio::null()).stdout(words.try_clone()?).stderr(words);
        goes_on()?;
        Ok(Server { name, child: command.spawn()?, place })
    }

    /// Bytes of memory that it had at its peak.
    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kib = number_after(&status, "VmHWM:").ok_or_else(|| format!("{}: no memory", self.name))?;
        Ok(kib as u64 * 1024)
    }

    pub(crate) fn connect(&mut self) -> Result<UnixStream, Failure> {
        let socket = self.place.path().join("socket");
        let mut tries = Patience::seconds(20);
        loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => return Ok(stream),
                Err(e) if self.child.try_wait()?.is_some() || !tries.wait() => {
                    let said = std::fs::read(self.place.path().join("words")).unwrap_or_default();
                    let said = String::from_utf8_lossy(&said);
                    return Err(format!("{} did not start: {e}: {}", self.name, said.trim()).into());
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to such a server, in its own protocol.
pub(crate) trait Client: Send {
    /// Whether it has the key; then the value is here, for [`Client::check`].
    fn get(&mut self, key: u64) -> Result<bool, Failure>;
    /// Whether the value that came is the key's.
    fn check(&mut self, key: u64) -> Result<(), Failure>;
}

/// Gets of random keys of the first `keys`, by each client so many.
pub(crate) fn gets(clients: Vec<impl Client>, keys: u64, each: u64, seed: u64) -> Result<Gets, Failure> {
    let clock = TscClock::new();
    let began = clock.now();
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0u64..)
            .zip(clients)
            .map(|(nth, mut client)| {
                scope.spawn(move || -> Result<(Latency, u64), String> {
                    let (mut response, mut missed) = (Latency::new(), 0);
                    let mut rng = Rng(of_run(seed, nth));
                    for _ in 0..each {
                        let key = rng.below(keys);
                        let began = clock.now();
                        let found = client.get(key).map_err(|e| e.to_string())?;
                        response.record(clock.now().since(began));
                        match found {
                            true => client.check(key).map_err(|e| e.to_string())?,
                            false => missed += 1,
                        }
                    }
                    Ok((response, missed))
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a client's thread failed".to_owned()))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, String>>()
    })?;
    let ns = clock.now().since(began);
    let (mut response, mut missed) = (Latency::new(), 0);
    for (of_one, missed_one) in &done {
        response.merge(of_one);
        missed += missed_one;
    }
    let per_second = response.count() as f64 * 1e9 / ns.max(1) as f64;
    Ok(Gets { per_second, response, missed })
}

/// A stream of requests and answers, whose words end in CR LF, and room for a value.
pub(crate) struct Wire {
    name: &'static str,
    stream: BufReader<UnixStream>,
    line: Vec<u8>,
    value: Vec<u8>,
    /// A request with its value, or a value that came.
    room: Vec<u8>,
}

impl Wire {
    /// `name`: whose it is, for errors.
    pub(crate) fn over(name: &'static str, stream: UnixStream) -> Wire {
        let stream = BufReader::with_capacity(16 << 10, stream);
        Wire { name, stream, line: Vec::new(), value: Vec::new(), room: Vec::new() }
    }

    pub(crate) fn ask(&mut self, request: &str) -> Result<(), Failure> {
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    /// A request that ends with a key's value.
    pub(crate) fn ask_with_value(&mut self, request: &str, key: u64) -> Result<(), Failure> {
        value_of(key, &mut self.value);
        self.room.clear();
        for part in [request.as_bytes(), &self.value, b"\r\n"] {
            self.room.extend_from_slice(part);
        }
        Ok(self.stream.get_mut().write_all(&self.room)?)
    }

    /// An answer's next line, without its end.
    pub(crate) fn line(&mut self) -> Result<&[u8], Failure> {
        self.line.clear();
        // An answer's line is short; one without an end is no answer.
        (&mut self.stream).take(1024).read_until(b'\n', &mut self.line)?;
        match self.line.strip_suffix(b"\r\n") {
            Some(line) => Ok(line),
            None => {
                let line = String::from_utf8_lossy(&self.line);
                Err(format!("{}: no whole line: {line:?}", self.name).into())
            }
        }
    }

    /// Takes a value from an answer, with the line's end behind it.
    pub(crate) fn value(&mut self) -> Result<(), Failure> {
        self.room.resize(VALUE + 2, 0);
        Ok(self.stream.read_exact(&mut self.room)?)
    }

    /// Whether the value that came is the key's.
    pub(crate) fn check(&mut self, key: u64) -> Result<(), Failure> {
        value_of(key, &mut self.value);
        match self.room.strip_suffix(b"\r\n") {
            Some(came) if came == &self.value[..] => Ok(()),
            _ => Err(format!("{}: key {key}: the value is another's", self.name).into()),
        }
    }
}
