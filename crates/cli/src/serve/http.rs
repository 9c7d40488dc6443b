//! HTTP of a server, for those who look: OpenMetrics and, where asked for, a page for people. What is asked
//! is read by httparse; nothing can be changed, and each connection is answered once.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use super::drive::Seen;
use super::history::History;
use super::listener::{self, PATIENCE, Peer};
use super::{metrics, page};

/// Bytes of a request's head, and its fields.
const HEAD: usize = 8 << 10;
const FIELDS: usize = 64;

/// What is shown at an address.
pub struct Site {
    pub seen: Arc<Seen>,
    /// There where the page is.
    pub history: Option<Arc<History>>,
}

/// Answers at `address`, on threads of its own. The address that it has become.
pub fn start(address: SocketAddr, site: Site) -> Result<SocketAddr, String> {
    let failed = |e: &dyn Display| format!("{address}: {e}");
    let listener = TcpListener::bind(address).map_err(|e| failed(&e))?;
    let at = listener.local_addr().map_err(|e| failed(&e))?;
    listener::open("http", listener, PATIENCE, move |peer| answer(peer, &site)).map_err(|e| failed(&e))?;
    Ok(at)
}

/// Reads a request and answers it.
fn answer(peer: &mut dyn Peer, site: &Site) -> io::Result<()> {
    let mut head = [0; HEAD];
    let mut len = 0;
    let reply = loop {
        if let Some(reply) = reply(&head[..len], site) {
            break reply;
        }
        if len == head.len() {
            break Reply::of("431 Request Header Fields Too Large");
        }
        match peer.read(&mut head[len..])? {
            0 => return Ok(()),
            more => len += more,
        }
    };
    peer.write_all(&reply.bytes())
}

/// What is answered; the head alone where no more was asked for.
struct Reply {
    status: &'static str,
    kind: &'static str,
    body: String,
    head_only: bool,
}

impl Reply {
    /// One that says its status.
    fn of(status: &'static str) -> Reply {
        Reply { status, kind: "text/plain; charset=utf-8", body: format!("{status}\n"), head_only: false }
    }

    fn bytes(self) -> Vec<u8> {
        let Reply { status, kind, body, head_only } = self;
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: {}\r\n\r\n",
            body.len(),
            page::policy(),
        )
        .into_bytes();
        if !head_only {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// The reply to a head; `None` while it is not whole.
fn reply(head: &[u8], site: &Site) -> Option<Reply> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(status) if status.is_partial() => return None,
        Ok(_) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Some(Reply::of("431 Request Header Fields Too Large"));
        }
        Err(_) => return Some(Reply::of("400 Bad Request")),
    }
    let head_only = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(Reply::of("405 Method Not Allowed")),
    };
    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    // A name leads to this machine where somebody else's server says so: a page of that server's would read
    // what is here, whatever address it is at.
    let meant = |host: &[u8]| std::str::from_utf8(host).is_ok_and(is_address);
    if !hosts.all(|field| meant(field.value)) {
        return Some(Reply { head_only, ..Reply::of("421 Misdirected Request") });
    }
    let path = request.path.unwrap_or("").split(['?', '#']).next().unwrap_or("");
    let reply = match (path, &site.history) {
        ("/metrics", _) => metrics::text(&site.seen).map(|text| (metrics::TYPE, text)),
        ("/", Some(_)) => Ok(("text/html; charset=utf-8", page::html().to_owned())),
        ("/status.json", Some(history)) => {
            Ok(("application/json", page::state(&site.seen, history).to_string()))
        }
        _ => return Some(Reply { head_only, ..Reply::of("404 Not Found") }),
    };
    let found = |(kind, body)| Reply { status: "200 OK", kind, body, head_only };
    Some(reply.map_or_else(|_| Reply::of("500 Internal Server Error"), found))
}

/// Whether a host that was asked for is an address, or a machine's name for itself.
fn is_address(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names() {
        for host in ["127.0.0.1:9421", "localhost", "LOCALHOST:1", "[::1]:9421", "[::1]", "192.0.2.1"] {
            assert!(is_address(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:9421", "", "127.0.0.1.example.com", "[::1.x]"] {
            assert!(!is_address(host), "{host}");
        }
    }
}
