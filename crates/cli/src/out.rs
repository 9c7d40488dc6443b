//! Standard output: bytes as they are, line by line on a terminal,
//! where names are quoted ([`crate::terminal`]), and JSON.

use std::borrow::Cow;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::fd::AsFd;

use rustix::fs::FileType;
use serde::Serialize;
use serde_json::{Serializer, Value, json};

use crate::{progress, terminal};

/// What a server says when it is ready, in one write. It serves on where whoever read that has gone:
/// its work is elsewhere.
pub fn announce(lines: &[String]) -> io::Result<()> {
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Standard output.
pub struct Out {
    to: BufWriter<StdoutLock<'static>>,
    /// Whether a person reads it.
    pub terminal: bool,
    /// Whether anything was written.
    pub used: bool,
    /// Each line is written at once, also where nobody is seen to read it.
    pub line_buffered: bool,
    /// Bytes so far.
    pub written: u64,
}

impl Default for Out {
    fn default() -> Out {
        Out::new()
    }
}

impl Out {
    /// Takes standard output.
    pub fn new() -> Out {
        let terminal = terminal::output();
        Out {
            to: BufWriter::with_capacity(64 * 1024, io::stdout().lock()),
            terminal,
            used: false,
            line_buffered: false,
            written: 0,
        }
    }

    /// A JSON object on a line of its own.
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn json(&mut self, value: &Value) -> io::Result<()> {
        if self.terminal {
            value.serialize(&mut Serializer::with_formatter(&mut *self, terminal::JsonForTerminal))?;
        } else {
            serde_json::to_writer(&mut *self, value)?;
        }
        self.line(b"")
    }

    /// A name, or a part of one, of a volume or a peer.
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn name(&mut self, name: &[u8]) -> io::Result<()> {
        let name = self.shown(name);
        self.write_all(&name)
    }

    /// How a name is shown.
    pub fn shown<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        if self.terminal { terminal::quoted(name) } else { Cow::Borrowed(name) }
    }

    /// A text that holds words of a volume or a peer, on a line of its own or in one.
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        match self.terminal {
            true => self.write_all(&terminal::escaped(text.as_bytes())),
            false => self.write_all(text.as_bytes()),
        }
    }

    /// Whole lines of text that holds such words.
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn lines(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            self.text(line)?;
            self.line(b"")?;
        }
        Ok(())
    }

    /// So many of the last bytes of a file are to be written and not sent ([`Out::send`]). A pipe holds pages
    /// of the file that was sent: who reads them later finds what the file has there then. When so many bytes
    /// have followed that no pipe holds them, all before them were read. A socket does not say what was.
    pub fn unsent(&self) -> u64 {
        /// The most that a pipe holds, unless who may everything has said otherwise (pipe(7)).
        const PIPE: u64 = 1 << 20;
        let kind = rustix::fs::fstat(self.to.get_ref()).map(|is| FileType::from_raw_mode(is.st_mode));
        match kind {
            Ok(FileType::RegularFile | FileType::CharacterDevice | FileType::BlockDevice) => 0,
            Ok(FileType::Fifo) => PIPE,
            _ => u64::MAX,
        }
    }

    /// Has the kernel hand on up to `len` bytes of a file from byte `at` on, and says how many it has; 0
    /// where it does not, whatever the reason: who reads and writes them hears that.
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn send(&mut self, file: impl AsFd, at: u64, len: usize) -> io::Result<usize> {
        self.to.flush()?;
        let sent = rustix::fs::sendfile(self.to.get_ref(), file, Some(&mut { at }), len).unwrap_or(0);
        self.used |= sent > 0;
        self.written += sent as u64;
        Ok(sent)
    }

    /// Bytes and the line's end.
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn line(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.write_all(b"\n")
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.used {
            progress::give_way();
            self.used = true;
        }
        let n = self.to.write(bytes)?;
        self.written += n as u64;
        if self.terminal && bytes.contains(&b'\n')
            || self.line_buffered && bytes.iter().any(|b| matches!(b, 0 | b'\n'))
        {
            self.to.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Bytes in JSON as ripgrep has them: `{"text": "..."}`, or `{"bytes": "<base64>"}` where they are not UTF-8.
pub fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "bytes": base64(bytes) }),
    }
}

/// RFC 4648, section 4.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let symbol = ALPHABET[(word >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { symbol as char } else { '=' });
        }
    }
    text
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_as_rfc_4648_section_10() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(super::base64(plain.as_bytes()), coded);
        }
    }
}
