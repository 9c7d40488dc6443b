//! The beginning and the end of a connection:
//! ICReq and ICResp, termination requests, and what stands around a PDU's data.

use nearside_clock::Clock;
use nearside_spec::fabrics::pdu::{self, DIGEST, Fatal, HEAD, Head, Initialize, Pdu, Side, Terms};

use super::host::Options;
use super::stream::Stream;
use crate::Error;

/// Asks, and waits for the answer: what both sides agreed on.
pub(super) fn initialize(
    stream: &mut Stream,
    options: &Options,
    clock: &dyn Clock,
) -> Result<Initialize, Error> {
    let request = Initialize {
        version: 0,
        alignment_z: 0,
        header_digest: options.header_digest,
        data_digest: options.data_digest,
        limit: 0,
    };
    stream.put(&request.request());
    let deadline = clock.now() + options.connect_ms * 1_000_000;
    let response = loop {
        stream.send(&mut ()).map_err(lost)?;
        if let Some(response) = initialized(stream)? {
            break response;
        }
        let now = clock.now();
        if now >= deadline {
            return Err(Error::TimedOut { command: "initialisation", timeout_ms: options.connect_ms });
        }
        stream.wait(Some(deadline - now));
        stream.receive(&mut []).map_err(lost)?;
    };
    // What was not asked for cannot be granted.
    if (response.header_digest && !options.header_digest) || (response.data_digest && !options.data_digest) {
        return Err(refuse(stream, Fatal::field(11), &response.response()));
    }
    Ok(response)
}

/// ICResp, when it has come.
fn initialized(stream: &mut Stream) -> Result<Option<Initialize>, Error> {
    let terms = Terms::default();
    let bytes = stream.bytes();
    let Some(first) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let head = match Head::decode(first, Side::Host, &terms) {
        Ok(head) => head,
        Err(fatal) => return Err(refuse_received(stream, fatal)),
    };
    let Some(header) = bytes.get(..head.header_len()) else { return Ok(None) };
    match Pdu::decode(&head, header) {
        Ok(Pdu::InitializeResponse(response)) => {
            stream.take(head.header_len());
            Ok(Some(response))
        }
        Ok(Pdu::Terminate(fatal)) => Err(Error::Terminated(fatal)),
        Ok(_) => Err(refuse_received(stream, Fatal::SEQUENCE)),
        Err(fatal) => Err(refuse_received(stream, fatal)),
    }
}

fn refuse_received(stream: &mut Stream, fatal: Fatal) -> Error {
    let offending: Vec<u8> = stream.bytes().iter().take(128).copied().collect();
    refuse(stream, fatal, &offending)
}

/// Tells the target what it did wrong, and ends the connection.
pub(super) fn refuse(stream: &mut Stream, fatal: Fatal, offending: &[u8]) -> Error {
    stream.put(pdu::TerminateRequest::new(Side::Controller, fatal, offending).bytes());
    let _ = stream.send(&mut ());
    stream.finish();
    Error::Protocol(fatal)
}

pub(super) fn lost(source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::Closed,
        _ => Error::Connection { what: "the connection", source },
    }
}

/// A header, its digest, and padding up to data of `len` bytes.
pub(super) fn put_header<const N: usize>(stream: &mut Stream, terms: &Terms, header: &[u8; N], len: usize) {
    stream.put(header);
    let mut end = N;
    if terms.header_digest {
        stream.put(&crc32c::crc32c(header).to_le_bytes());
        end += DIGEST;
    }
    if len > 0 {
        // HLEN is 24 or 72.
        let pad = usize::from(terms.data_offset(N as u8)).saturating_sub(end);
        stream.put([0; 128].get(..pad).unwrap_or(&[]));
    }
}

pub(super) fn put_digest(stream: &mut Stream, terms: &Terms, bytes: &[u8]) {
    if terms.data_digest {
        stream.put(&crc32c::crc32c(bytes).to_le_bytes());
    }
}
