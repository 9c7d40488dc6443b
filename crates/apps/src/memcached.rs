//! memcached (PIEEE'17 V-C): in memory, paged to a drive by the kernel, and with its values in a file on a
//! drive (extstore).
//!
//! The client is ours: each of its connections asks for random keys, one at a time, over a Unix socket, by
//! memcached's text protocol, and checks every byte of every answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Stdio};

use nearside_clock::{Clock, TscClock};
use nearside_loadgen::Latency;
use nearside_random::{Rng, of_run};
use tempfile::TempDir;

use crate::ending::goes_on;
use crate::program::named;
use crate::wait::Patience;
use crate::{Failure, Group, Volume};

/// The program.
pub const PROGRAM: &str = "memcached";
/// Bytes of a value: a page's worth (PIEEE'17 V-C).
pub const VALUE: usize = 4096;

/// Where values are kept.
pub enum Kept<'a> {
    /// In memory.
    Memory,
    /// In memory of which the group may have only a part: the kernel pages.
    Paged(&'a Group),
    /// Keys in memory, values in a file on this volume; what the kernel keeps of the file is the group's
    /// memory.
    File(&'a Volume, &'a Group),
}

/// A running memcached; it ends with this value.
pub struct Cache {
    child: Child,
    place: TempDir,
    keys: u64,
    /// What it says, where it ends by itself.
    words: Option<ChildStderr>,
}

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

impl Cache {
    /// Starts a memcached of one thread for so many values, and sets them all.
    ///
    /// # Errors
    /// What memcached said, or that it is not here.
    pub fn filled(kept: &Kept<'_>, keys: u64) -> Result<Cache, Failure> {
        let place = TempDir::with_prefix("nearside-memcached-")?;
        let socket = place.path().join("socket");
        let mut program = named(PROGRAM)?;
        let mib = |bytes: u64, least: u64| bytes.div_ceil(1 << 20).max(least).to_string();
        // An item's header and its slab's waste are below half of a value.
        let all = mib(keys * (VALUE as u64) * 3 / 2, 64);
        program.args(["-u", "root", "-t", "1", "-a", "0700", "-s"]).arg(&socket);
        match kept {
            Kept::Memory | Kept::Paged(_) => drop(program.args(["-m", &all])),
            Kept::File(volume, _) => {
                let file = volume.path("extstore");
                let bytes = keys * (VALUE as u64) * 3;
                // Page size before path: memcached reads its options in order.
                let options = format!(
                    "ext_page_size=8,ext_item_size=512,ext_item_age=0,ext_threads=4,ext_path={}:{}m",
                    file.display(),
                    mib(bytes, 64)
                );
                // Values leave memory as fast as they come; keys and headers stay. Within what the group has.
                program.args(["-m", &mib(keys * (VALUE as u64) / 4, 8), "-o", &options]);
            }
        }
        let mut command = match kept {
            Kept::Paged(group) | Kept::File(_, group) => group.command(&program),
            Kept::Memory => program,
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        goes_on()?;
        let mut child = command.spawn()?;
        let words = child.stderr.take();
        let mut cache = Cache { child, place, keys, words };
        let slowly = matches!(kept, Kept::File(..));
        cache.fill(slowly)?;
        Ok(cache)
    }

    fn connect(&mut self) -> Result<Connection, Failure> {
        let socket = self.place.path().join("socket");
        let mut tries = Patience::seconds(20);
        loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => return Connection::over(stream),
                Err(e) if self.child.try_wait()?.is_some() || !tries.wait() => {
                    let mut said = String::new();
                    let _ = self.child.kill();
                    if let Some(mut words) = self.words.take() {
                        let _ = words.read_to_string(&mut said);
                    }
                    return Err(format!("{PROGRAM} did not start: {e}: {}", said.trim()).into());
                }
                Err(_) => {}
            }
        }
    }

    /// `slowly`: no faster than the file below takes what leaves memory; else memcached drops it.
    fn fill(&mut self, slowly: bool) -> Result<(), Failure> {
        let mut connection = self.connect()?;
        // Half of what its memory holds of them (see `filled`): more would be let go before it is written.
        let room = self.keys / 8;
        for key in 0..self.keys {
            connection.set(key)?;
            if slowly && key % 256 == 255 {
                connection.wait_until_written(key.saturating_sub(room))?;
            }
        }
        Ok(())
    }

    /// Gets of random keys, by so many connections, each so many.
    ///
    /// # Errors
    /// The system's; an answer that is no answer; a value that is another's.
    pub fn gets(&mut self, connections: u32, each: u64, seed: u64) -> Result<Gets, Failure> {
        let mut open = (0..connections).map(|_| self.connect()).collect::<Result<Vec<_>, _>>()?;
        let keys = self.keys;
        let clock = TscClock::new();
        let began = clock.now();
        let done = std::thread::scope(|scope| {
            let threads: Vec<_> = (0u64..)
                .zip(open.drain(..))
                .map(|(nth, mut connection)| {
                    scope.spawn(move || -> Result<(Latency, u64), String> {
                        let (mut response, mut missed) = (Latency::new(), 0);
                        let mut rng = Rng(of_run(seed, nth));
                        for _ in 0..each {
                            let key = rng.below(keys);
                            let began = clock.now();
                            let found = connection.get(key).map_err(|e| e.to_string())?;
                            response.record(clock.now().since(began));
                            match found {
                                true => connection.check(key).map_err(|e| e.to_string())?,
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
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection, and room for an answer.
struct Connection {
    stream: BufReader<UnixStream>,
    line: Vec<u8>,
    value: Vec<u8>,
    request: Vec<u8>,
}

/// The words of a value: a function of its key.
fn value_of(key: u64, into: &mut Vec<u8>) {
    into.clear();
    let mut rng = Rng(of_run(3, key));
    while into.len() < VALUE {
        into.extend_from_slice(&rng.draw().to_le_bytes());
    }
}

impl Connection {
    fn over(stream: UnixStream) -> Result<Connection, Failure> {
        let stream = BufReader::with_capacity(16 << 10, stream);
        Ok(Connection { stream, line: Vec::new(), value: Vec::new(), request: Vec::new() })
    }

    fn line(&mut self) -> Result<&[u8], Failure> {
        self.line.clear();
        // An answer's line is short; one without an end is no answer.
        (&mut self.stream).take(1024).read_until(b'\n', &mut self.line)?;
        match self.line.strip_suffix(b"\r\n") {
            Some(line) => Ok(line),
            None => {
                Err(format!("{PROGRAM}: no whole line: {:?}", String::from_utf8_lossy(&self.line)).into())
            }
        }
    }

    fn set(&mut self, key: u64) -> Result<(), Failure> {
        value_of(key, &mut self.value);
        self.request.clear();
        write!(self.request, "set key{key} 0 0 {VALUE}\r\n")?;
        self.request.extend_from_slice(&self.value);
        self.request.extend_from_slice(b"\r\n");
        self.stream.get_mut().write_all(&self.request)?;
        match self.line()? {
            b"STORED" => Ok(()),
            other => Err(format!("{PROGRAM}: key {key}: {}", String::from_utf8_lossy(other)).into()),
        }
    }

    /// Whether it has the key; then the value is here, for [`Connection::check`].
    fn get(&mut self, key: u64) -> Result<bool, Failure> {
        self.request.clear();
        write!(self.request, "get key{key}\r\n")?;
        self.stream.get_mut().write_all(&self.request)?;
        let expected = format!("VALUE key{key} 0 {VALUE}");
        match self.line()? {
            b"END" => return Ok(false),
            line if line == expected.as_bytes() => {}
            other => return Err(format!("{PROGRAM}: key {key}: {}", String::from_utf8_lossy(other)).into()),
        }
        self.request.resize(VALUE + 2, 0);
        self.stream.read_exact(&mut self.request)?;
        match self.line()? {
            b"END" => Ok(true),
            other => Err(format!("{PROGRAM}: key {key}: {}", String::from_utf8_lossy(other)).into()),
        }
    }

    /// Whether the value that came is the key's.
    fn check(&mut self, key: u64) -> Result<(), Failure> {
        value_of(key, &mut self.value);
        match self.request.get(..VALUE) {
            Some(came) if came == &self.value[..] => Ok(()),
            _ => Err(format!("{PROGRAM}: key {key}: the value is another's").into()),
        }
    }

    /// A counter of `stats`.
    fn counter(&mut self, name: &str) -> Result<u64, Failure> {
        self.stream.get_mut().write_all(b"stats\r\n")?;
        let mut found = 0;
        loop {
            match self.line()? {
                b"END" => return Ok(found),
                line => {
                    let line = String::from_utf8_lossy(line);
                    if let Some(value) = line.strip_prefix("STAT ").and_then(|l| l.strip_prefix(name)) {
                        found = value.trim().parse().unwrap_or(0);
                    }
                }
            }
        }
    }

    /// Waits until so many values have left memory for the file.
    fn wait_until_written(&mut self, values: u64) -> Result<(), Failure> {
        let mut tries = Patience::seconds(20);
        while self.counter("extstore_objects_written ")? < values {
            if !tries.wait() {
                return Err(format!("memcached has not written {values} values to its file in 20 s").into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server answers, and what the client makes of it.
    fn asked(answer: &[u8], key: u64) -> Result<bool, Failure> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer).unwrap();
        drop(theirs.shutdown(std::net::Shutdown::Write));
        let mut connection = Connection::over(ours)?;
        let found = connection.get(key)?;
        if found { connection.check(key).map(|()| true) } else { Ok(false) }
    }

    #[test]
    fn a_value_is_its_keys_and_whole() {
        let mut value = Vec::new();
        value_of(7, &mut value);
        let answer = |value: &[u8], key: u64| {
            [format!("VALUE key{key} 0 {VALUE}\r\n").as_bytes(), value, b"\r\nEND\r\n"].concat()
        };
        assert!(asked(&answer(&value, 7), 7).unwrap());
        assert!(!asked(b"END\r\n", 7).unwrap());
        value[100] ^= 1;
        for wrong in [answer(&value, 7), answer(&value, 8), b"SERVER_ERROR out of memory\r\n".to_vec()] {
            assert!(asked(&wrong, 7).is_err());
        }
        assert!(asked(&answer(&value, 7)[..2000], 7).is_err(), "cut off");
        assert!(asked(&[b'x'; 4096], 7).is_err(), "no line");
    }
}
