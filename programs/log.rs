//! Parses a log of a web server (the common and the combined format): emits, as JSON, the requests whose
//! status is at least what it is told (`-p 500`; 400 where it is told nothing).
#![no_std]
#![no_main]

mod nearside;

/// Longest line that is looked at; of longer ones, the beginning.
const LINE: usize = 16 << 10;

#[unsafe(no_mangle)]
extern "C" fn run() {
    let mut text = [0; 16];
    let least = match nearside::parameters(&mut text) {
        b"" => 400,
        text => number(text).unwrap_or_else(|| nearside::fail("a status is a number, as -p 500")),
    };
    let mut buffer = [0; 32 << 10];
    let mut line = [0; LINE];
    let mut len = 0;
    loop {
        let at = nearside::offset();
        let n = nearside::next(&mut buffer);
        if n == 0 {
            break;
        }
        let mut from = 0;
        for (place, byte) in buffer[..n].iter().enumerate() {
            if *byte != b'\n' {
                continue;
            }
            // Most lines lie within what has come at once.
            if len == 0 {
                show(&buffer[from..place], least);
            } else {
                append(&mut line, &mut len, &buffer[from..place]);
                show(&line[..len], least);
                len = 0;
            }
            from = place + 1;
            // What comes from here on does not depend on what was before.
            nearside::restart(at + from as u64);
        }
        append(&mut line, &mut len, &buffer[from..n]);
    }
    if len > 0 {
        show(&line[..len], least);
    }
}

fn append(line: &mut [u8; LINE], len: &mut usize, part: &[u8]) {
    let n = part.len().min(LINE - *len);
    line[*len..*len + n].copy_from_slice(&part[..n]);
    *len += n;
}

/// `HOST IDENT USER [TIME] "REQUEST" STATUS BYTES ...`
fn show(line: &[u8], least: u64) {
    let Some((host, rest)) = cut(line, b' ') else { return };
    let Some((_, rest)) = cut(rest, b'[') else { return };
    let Some((time, rest)) = cut(rest, b']') else { return };
    let Some((_, rest)) = cut(rest, b'"') else { return };
    let Some((request, rest)) = cut(rest, b'"') else { return };
    let mut words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let Some(status) = words.next().and_then(number) else { return };
    if status < least {
        return;
    }
    let mut record = Record { bytes: [0; 2 * LINE], len: 0 };
    for (name, value) in [("{\"host\":", host), (",\"time\":", time), (",\"request\":", request)] {
        record.put(name.as_bytes());
        record.text(value);
    }
    record.put(b",\"status\":");
    record.put(nearside::decimal(status, &mut [0; 20]));
    record.put(b"}\n");
    nearside::emit(&record.bytes[..record.len]);
}

fn cut(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.len() < 16 && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
}

struct Record {
    bytes: [u8; 2 * LINE],
    len: usize,
}

impl Record {
    fn put(&mut self, part: &[u8]) {
        let n = part.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&part[..n]);
        self.len += n;
    }

    /// A text as JSON has it; what is not ASCII as it is.
    fn text(&mut self, text: &[u8]) {
        self.put(b"\"");
        for byte in text {
            match byte {
                b'"' | b'\\' => self.put(&[b'\\', *byte]),
                0..0x20 => {
                    let hex = b"0123456789abcdef";
                    self.put(b"\\u00");
                    self.put(&[hex[usize::from(byte >> 4)], hex[usize::from(byte & 15)]]);
                }
                _ => self.put(&[*byte]),
            }
        }
        self.put(b"\"");
    }
}
