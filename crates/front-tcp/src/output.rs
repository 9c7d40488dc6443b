//! What a connection has to send: headers, and data where they lie, in order.

use std::collections::VecDeque;
use std::io::{self, Write};

use nearside_channel::{Channel, RECORD};
use nearside_dma::Region;
use nearside_dma::socket::{self, SendPiece};
use nearside_spec::fabrics::pdu::DIGEST;

use crate::pool::{Buffer, Pool};

/// Headers with digests and padding that stand in place together: a response and the header of the next data.
const INLINE: usize = 56;

enum OutputItem {
    Inline([u8; INLINE], u8),
    Bytes(Box<[u8]>),
    /// Bytes of a lent buffer, which goes back when they are sent.
    Staged(Buffer, usize),
}

impl OutputItem {
    fn len(&self) -> usize {
        match self {
            OutputItem::Inline(_, len) => usize::from(*len),
            OutputItem::Bytes(bytes) => bytes.len(),
            OutputItem::Staged(_, len) => *len,
        }
    }
}

/// The queue.
#[derive(Default)]
pub(crate) struct Output {
    items: VecDeque<OutputItem>,
    /// Bytes of the first item that are sent.
    sent: usize,
    /// Bytes that are not.
    waiting: usize,
    /// Where what goes into one record of TLS is put together; empty without it.
    record: Vec<u8>,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes not yet sent.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Bytes that wait, with what it takes to keep them: many short answers are no less than a few long ones.
    pub(crate) fn cost(&self) -> usize {
        self.waiting + self.items.len() * size_of::<OutputItem>()
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.waiting += bytes.len();
        // Few pieces are what a call of the system takes.
        if let Some(OutputItem::Inline(inline, len)) = self.items.back_mut()
            && let Some(to) = inline.get_mut(usize::from(*len)..usize::from(*len) + bytes.len())
        {
            to.copy_from_slice(bytes);
            *len += bytes.len() as u8;
            return;
        }
        let mut inline = [0; INLINE];
        let item = match inline.get_mut(..bytes.len()) {
            Some(to) => {
                to.copy_from_slice(bytes);
                OutputItem::Inline(inline, bytes.len() as u8)
            }
            None => OutputItem::Bytes(bytes.into()),
        };
        self.items.push_back(item);
    }

    /// A PDU's header, its digest where there is one, and padding up to `until` (0: none).
    pub(crate) fn header(&mut self, header: &[u8], digest: bool, until: usize) {
        let mut bytes = [0; INLINE + 128];
        let mut len = header.len();
        bytes[..len].copy_from_slice(header);
        if digest {
            bytes[len..len + DIGEST].copy_from_slice(&crc32c::crc32c(header).to_le_bytes());
            len += DIGEST;
        }
        self.bytes(&bytes[..len.max(until)]);
    }

    pub(crate) fn staged(&mut self, buffer: Buffer, len: usize) {
        self.waiting += len;
        self.items.push_back(OutputItem::Staged(buffer, len));
    }

    /// Sends what the socket takes. Returns the bytes.
    pub(crate) fn send(&mut self, channel: &mut Channel, pool: &mut Pool) -> io::Result<usize> {
        let mut total = 0;
        if self.items.is_empty() {
            return Ok(0);
        }
        let region = pool.region().clone();
        let record = &mut self.record;
        while !self.items.is_empty() {
            let mut from = self.sent;
            let pieces = self.items.iter().map(|item| {
                let from = std::mem::take(&mut from);
                match item {
                    OutputItem::Inline(bytes, len) => SendPiece::Bytes(&bytes[from..usize::from(*len)]),
                    OutputItem::Bytes(bytes) => SendPiece::Bytes(&bytes[from..]),
                    OutputItem::Staged(buffer, len) => {
                        SendPiece::Region(&region, buffer.offset + from, len - from)
                    }
                }
            });
            let done = match channel.is_socket() {
                true => socket::send(channel.socket(), pieces),
                false => send_record(channel, record, pieces),
            };
            let (sent, given) = match done {
                Ok(sent) => sent,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(total),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            total += sent;
            self.waiting -= sent;
            self.sent += sent;
            while let Some(first) = self.items.front()
                && self.sent >= first.len()
            {
                self.sent -= first.len();
                if let Some(OutputItem::Staged(buffer, _)) = self.items.pop_front() {
                    pool.give_back(buffer);
                }
            }
            if sent < given {
                return Ok(total);
            }
        }
        Ok(total)
    }

    /// Nothing of it will be sent.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        for item in self.items.drain(..) {
            if let OutputItem::Staged(buffer, _) = item {
                pool.give_back(buffer);
            }
        }
        (self.sent, self.waiting) = (0, 0);
    }
}

/// Sends as many of the pieces as go into one record of TLS: how many bytes were sent, of how many.
fn send_record<'a>(
    channel: &mut Channel,
    record: &mut Vec<u8>,
    pieces: impl Iterator<Item = SendPiece<'a>>,
) -> io::Result<(usize, usize)> {
    record.resize(RECORD, 0);
    let mut len = 0;
    for piece in pieces {
        let to = &mut record[len..];
        len += match piece {
            SendPiece::Bytes(bytes) => {
                let n = bytes.len().min(to.len());
                to[..n].copy_from_slice(&bytes[..n]);
                n
            }
            SendPiece::Region(region, offset, bytes) => {
                let n = bytes.min(to.len());
                region.read(offset, &mut to[..n]);
                n
            }
        };
        if len == RECORD {
            break;
        }
    }
    Ok((channel.write(&record[..len])?, len))
}

/// CRC-32C of bytes of a region, appended to `crc`.
pub(crate) fn digest(region: &Region, mut offset: usize, mut len: usize, mut crc: u32) -> u32 {
    let mut bytes = [0; 4096];
    while len > 0 {
        let n = len.min(bytes.len());
        region.read(offset, &mut bytes[..n]);
        crc = crc32c::crc32c_append(crc, &bytes[..n]);
        (offset, len) = (offset + n, len - n);
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn headers_that_meet_are_one_piece() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (target, _) = listener.accept().unwrap();
        let mut pool = Pool::new(32 << 20, 0).unwrap();
        let mut output = Output::default();
        let mut wanted = Vec::new();
        for nr in 0..3u8 {
            let buffer = pool.take(0, 512).unwrap();
            pool.region().fill(buffer.offset, 512, 0x80 + nr);
            output.header(&[nr; 24], true, 0);
            output.staged(buffer, 512);
            output.header(&[0x40 + nr; 24], false, 0);
            let crc = crc32c::crc32c(&[nr; 24]).to_le_bytes();
            wanted.extend([&[nr; 24][..], &crc, &[0x80 + nr; 512], &[0x40 + nr; 24]].concat());
        }
        // A header, three data, two pairs of a response and a header, the last response.
        assert_eq!(output.items.len(), 7);
        // What stands behind something long begins anew.
        output.bytes(&[7; INLINE]);
        output.bytes(&[8; 200]);
        output.bytes(&[9; 8]);
        wanted.extend([&[7; INLINE][..], &[8; 200], &[9; 8]].concat());
        assert_eq!((output.items.len(), output.waiting()), (10, wanted.len()));
        let mut channel = Channel::plain(target);
        assert_eq!(output.send(&mut channel, &mut pool).unwrap(), wanted.len());
        drop(channel);
        let mut got = Vec::new();
        host.read_to_end(&mut got).unwrap();
        assert!(got == wanted && output.is_empty());
    }
}
