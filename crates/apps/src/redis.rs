//! Redis (PIEEE'17 III-B): data in memory of which only a share is there, the rest paged to a drive by the
//! kernel. Two loads: gets of random keys, and a walk of all values within the server (a script that sums
//! words of each), as analytics in memory do.
//!
//! Clients speak RESP over a Unix socket; nothing is persisted (`--save ""`, no append-only file).

use nearside_clock::{Clock, TscClock};

use crate::program::named;
use crate::values::{Client, Gets, Server, Wire, gets, value_of};
use crate::{Failure, Group};

pub use crate::values::VALUE;

/// The program.
pub const PROGRAM: &str = "redis-server";

/// Sums the first and the last word of each value, modulo 2 to the power of 32.
const WALK: &str = "\
    local sum = 0 \
    for key = 0, ARGV[1] - 1 do \
        local value = redis.call('GET', 'key' .. key) \
        sum = (sum + struct.unpack('<I4', value) + struct.unpack('<I4', value, #value - 3)) % 4294967296 \
    end \
    return sum";

/// A running Redis; it ends with this value.
pub struct Redis {
    server: Server,
    keys: u64,
    /// What [`WALK`] has to come to.
    sum: u32,
}

impl Redis {
    /// Starts a Redis, in a group if one is given, and sets so many values of [`VALUE`] bytes.
    ///
    /// # Errors
    /// What Redis said, or that it is not here.
    pub fn filled(group: Option<&Group>, keys: u64) -> Result<Redis, Failure> {
        let mut program = named(PROGRAM)?;
        program.args(["--save", "", "--appendonly", "no", "--port", "0", "--loglevel", "warning"]);
        let server = Server::start(PROGRAM, program, "--unixsocket", group)?;
        let mut redis = Redis { server, keys, sum: 0 };
        let mut connection = redis.connect()?;
        let mut value = Vec::with_capacity(VALUE);
        for key in 0..keys {
            connection.set(key)?;
            value_of(key, &mut value);
            for word in [value.first_chunk(), value.last_chunk()].into_iter().flatten() {
                redis.sum = redis.sum.wrapping_add(u32::from_le_bytes(*word));
            }
        }
        Ok(redis)
    }

    fn connect(&mut self) -> Result<Connection, Failure> {
        Ok(Connection(Wire::over(PROGRAM, self.server.connect()?)))
    }

    /// Bytes of memory that it had at its peak.
    ///
    /// # Errors
    /// The system's.
    pub fn memory(&self) -> Result<u64, Failure> {
        self.server.memory()
    }

    /// Gets of random keys, by so many connections, each so many.
    ///
    /// # Errors
    /// The system's; an answer that is no answer; a key that is not there; a value that is another's.
    pub fn gets(&mut self, connections: u32, each: u64, seed: u64) -> Result<Gets, Failure> {
        let open = (0..connections).map(|_| self.connect()).collect::<Result<Vec<_>, _>>()?;
        gets(open, self.keys, each, seed)
    }

    /// A walk of all values within the server; gives what it took, in ns.
    ///
    /// # Errors
    /// The system's; a sum that is not that of the values.
    pub fn walk(&mut self) -> Result<u64, Failure> {
        let mut connection = self.connect()?;
        let clock = TscClock::new();
        let began = clock.now();
        connection.ask(&["EVAL", WALK, "0", &self.keys.to_string()])?;
        let sum = connection.head(b':')?;
        let ns = clock.now().since(began);
        match sum == i64::from(self.sum) {
            true => Ok(ns),
            false => Err(format!("{PROGRAM}: the values sum up to {sum}, not to {}", self.sum).into()),
        }
    }
}

/// A connection that speaks RESP.
struct Connection(Wire);

impl Client for Connection {
    fn get(&mut self, key: u64) -> Result<bool, Failure> {
        self.ask(&["GET", &format!("key{key}")])?;
        match self.head(b'$')? {
            // Nothing was to be let go.
            -1 => Err(format!("{PROGRAM}: key {key} is not there").into()),
            bytes if bytes == VALUE as i64 => self.0.value().map(|()| true),
            bytes => Err(format!("{PROGRAM}: key {key}: a value of {bytes} bytes").into()),
        }
    }

    fn check(&mut self, key: u64) -> Result<(), Failure> {
        self.0.check(key)
    }
}

/// A request's words, but for those that follow.
fn request(words: &[&str], following: usize) -> String {
    let head = format!("*{}\r\n", words.len() + following);
    words.iter().fold(head, |request, word| request + &format!("${}\r\n{word}\r\n", word.len()))
}

impl Connection {
    fn ask(&mut self, words: &[&str]) -> Result<(), Failure> {
        self.0.ask(&request(words, 0))
    }

    fn set(&mut self, key: u64) -> Result<(), Failure> {
        let head = request(&["SET", &format!("key{key}")], 1) + &format!("${VALUE}\r\n");
        self.0.ask_with_value(&head, key)?;
        match self.0.line()? {
            b"+OK" => Ok(()),
            other => Err(format!("{PROGRAM}: key {key}: {}", String::from_utf8_lossy(other)).into()),
        }
    }

    /// The number of an answer of that type: an integer (`:`), or the bytes that follow (`$`; -1: none).
    fn head(&mut self, kind: u8) -> Result<i64, Failure> {
        let line = self.0.line()?;
        let number = line.strip_prefix(&[kind]).and_then(|number| str::from_utf8(number).ok()?.parse().ok());
        number.ok_or_else(|| format!("{PROGRAM}: {}", String::from_utf8_lossy(line)).into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_value_is_its_keys_and_whole() {
        let asked = |answer: &[u8]| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(answer).unwrap();
            drop(theirs.shutdown(std::net::Shutdown::Write));
            let mut connection = Connection(Wire::over(PROGRAM, ours));
            connection.get(7).and_then(|_| connection.check(7))
        };
        let mut value = Vec::new();
        value_of(7, &mut value);
        let answer = |value: &[u8]| [&b"$4096\r\n"[..], value, b"\r\n"].concat();
        asked(&answer(&value)).unwrap();
        assert!(asked(&answer(&value)[..2000]).is_err(), "cut off");
        value[100] ^= 1;
        for wrong in [&answer(&value)[..], b"$-1\r\n", b"$4\r\nfour\r\n", b"-ERR no\r\n", b":4096\r\n"] {
            assert!(asked(wrong).is_err());
        }
    }

    #[test]
    fn a_request_has_its_words_counted() {
        assert_eq!(request(&["GET", "key7"], 0), "*2\r\n$3\r\nGET\r\n$4\r\nkey7\r\n");
        assert_eq!(request(&["SET", "key10"], 1), "*3\r\n$3\r\nSET\r\n$5\r\nkey10\r\n");
    }
}
