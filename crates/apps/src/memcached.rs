//! memcached (PIEEE'17 V-C): in memory, paged to a drive by the kernel, and with its values in a file on a
//! drive (extstore).
//!
//! The client is ours: each of its connections asks for random keys, one at a time, over a Unix socket, by
//! memcached's text protocol, and checks every byte of every answer.

use crate::program::named;
use crate::values::{Client, Server, Wire, gets};
use crate::wait::Patience;
use crate::{Failure, Group, Volume};

pub use crate::values::{Gets, VALUE};

/// The program.
pub const PROGRAM: &str = "memcached";

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
    server: Server,
    keys: u64,
}

impl Cache {
    /// Starts a memcached of one thread for so many values, and sets them all.
    ///
    /// # Errors
    /// What memcached said, or that it is not here.
    pub fn filled(kept: &Kept<'_>, keys: u64) -> Result<Cache, Failure> {
        let mut program = named(PROGRAM)?;
        let mib = |bytes: u64, least: u64| bytes.div_ceil(1 << 20).max(least).to_string();
        // An item's header and its slab's waste are below half of a value.
        let all = mib(keys * (VALUE as u64) * 3 / 2, 64);
        program.args(["-u", "root", "-t", "1", "-a", "0700"]);
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
        let group = match kept {
            Kept::Paged(group) | Kept::File(_, group) => Some(*group),
            Kept::Memory => None,
        };
        let mut cache = Cache { server: Server::start(PROGRAM, program, "-s", group)?, keys };
        let slowly = matches!(kept, Kept::File(..));
        cache.fill(slowly)?;
        Ok(cache)
    }

    fn connect(&mut self) -> Result<Connection, Failure> {
        Ok(Connection(Wire::over(PROGRAM, self.server.connect()?)))
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
        let open = (0..connections).map(|_| self.connect()).collect::<Result<Vec<_>, _>>()?;
        gets(open, self.keys, each, seed)
    }
}

/// A connection that speaks memcached's text protocol.
struct Connection(Wire);

impl Client for Connection {
    /// Whether it has the key; then the value is here, for [`Client::check`].
    fn get(&mut self, key: u64) -> Result<bool, Failure> {
        self.0.ask(&format!("get key{key}\r\n"))?;
        let expected = format!("VALUE key{key} 0 {VALUE}");
        match self.0.line()? {
            b"END" => return Ok(false),
            line if line == expected.as_bytes() => {}
            other => return Err(wrong(key, other)),
        }
        self.0.value()?;
        match self.0.line()? {
            b"END" => Ok(true),
            other => Err(wrong(key, other)),
        }
    }

    fn check(&mut self, key: u64) -> Result<(), Failure> {
        self.0.check(key)
    }
}

fn wrong(key: u64, answer: &[u8]) -> Failure {
    format!("{PROGRAM}: key {key}: {}", String::from_utf8_lossy(answer)).into()
}

impl Connection {
    fn set(&mut self, key: u64) -> Result<(), Failure> {
        self.0.ask_with_value(&format!("set key{key} 0 0 {VALUE}\r\n"), key)?;
        match self.0.line()? {
            b"STORED" => Ok(()),
            other => Err(wrong(key, other)),
        }
    }

    /// A counter of `stats`.
    fn counter(&mut self, name: &str) -> Result<u64, Failure> {
        self.0.ask("stats\r\n")?;
        let mut found = 0;
        loop {
            match self.0.line()? {
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
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::values::value_of;

    /// What a server answers, and what the client makes of it.
    fn asked(answer: &[u8], key: u64) -> Result<bool, Failure> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer).unwrap();
        drop(theirs.shutdown(std::net::Shutdown::Write));
        let mut connection = Connection(Wire::over(PROGRAM, ours));
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
