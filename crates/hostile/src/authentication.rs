//! `tcp_auth`: what either end of an authentication is told by one that knows no key. First byte: bits 1:0
//! what the rest is: a key's text, messages for a controller, or for a host; bit 2 a host that wants a proof.
//! Each message has its length before it (two bytes). No message makes anybody believe anything.

use std::sync::{Arc, LazyLock};

use nearside_auth::{Authenticator, Credentials, Exchange, Fetched, Group, Hash, Key, Keys, Outcome};

const HOST: &str = "nqn.2014-08.org.example:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:subsystem";

/// Keys that no input knows. Without an exchange of exponentials, which is slow.
static KNOWN: LazyLock<Arc<Credentials>> = LazyLock::new(|| {
    let key = || Key::generate(None, 32).expect("random numbers");
    let (hashes, groups) = (Hash::ALL.to_vec(), vec![Group::Null]);
    Arc::new(Credentials { host: key(), controller: Some(key()), hashes, groups })
});

fn messages(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (message, after) = after.split_at(after.len().min(u16::from_le_bytes(*len).into()));
        all.push(message);
        rest = after;
    }
    all
}

/// Runs an input.
pub fn run(input: &[u8]) {
    let Some((&what, rest)) = input.split_first() else { return };
    let known = &*KNOWN;
    let keys =
        Keys { host: known.host.clone(), controller: known.controller.clone().filter(|_| what & 4 != 0) };
    match what & 3 {
        0 => {
            if let Ok(text) = std::str::from_utf8(rest)
                && let Ok(key) = text.parse::<Key>()
            {
                assert_eq!(key.interchange().parse::<Key>().ok(), Some(key));
            }
        }
        1 => {
            let mut controller = Authenticator::new(HOST, SUBSYSTEM);
            for message in messages(rest) {
                if !message.is_empty() {
                    let (work, outcome) = controller.take(message, || Some(known.clone()));
                    assert_ne!(outcome, Some(Outcome::Authenticated));
                    if let Some(work) = work {
                        controller.done(work.run());
                    }
                } else if let Fetched::Message(_, outcome) = controller.fetch() {
                    assert_ne!(outcome, Some(Outcome::Authenticated));
                }
            }
        }
        _ => {
            let Ok(mut exchange) = Exchange::new(&keys, HOST, SUBSYSTEM) else { return };
            for message in messages(rest) {
                let _ = exchange.reply(message);
                // A proof that nobody could make is not taken for one.
                assert!(keys.controller.is_none() || !matches!(exchange.finish(message), Ok(Some(_))));
            }
        }
    }
}

/// A key, and what honest ends say to each other.
pub fn seeds() -> Vec<Vec<u8>> {
    let known = &*KNOWN;
    let keys = Keys { host: known.host.clone(), controller: None };
    let mut seeds = vec![b"\x00DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:".to_vec()];
    let Ok(mut exchange) = Exchange::new(&keys, HOST, SUBSYSTEM) else { return seeds };
    let mut controller = Authenticator::new(HOST, SUBSYSTEM);
    let with_len = |message: &[u8]| [&(message.len() as u16).to_le_bytes()[..], message].concat();
    let negotiate = exchange.negotiate();
    if let (Some(work), _) = controller.take(&negotiate, || Some(known.clone())) {
        controller.done(work.run());
    }
    if let Fetched::Message(challenge, _) = controller.fetch()
        && let Ok(reply) = exchange.reply(&challenge)
    {
        let host = [negotiate, Vec::new(), reply, Vec::new()].map(|message| with_len(&message)).concat();
        seeds.push([&[1][..], &host].concat());
        seeds.extend([2, 6].map(|what| [&[what][..], &with_len(&challenge)].concat()));
    }
    seeds
}
