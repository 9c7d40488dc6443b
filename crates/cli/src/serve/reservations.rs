//! A namespace's reservations in a file, so that they outlive the server (Persist Through Power Loss).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use nearside_device::{HostId, Keep, Kept, Ticket};
use nearside_spec::reservation::Kind;
use serde::{Deserialize, Serialize};

use super::control::hex;
use super::save;

/// Bytes of a file at most: more than 256 registrants take.
const MOST: u64 = 256 << 10;

/// As the file has it.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct Words {
    persists: bool,
    generation: u32,
    registrants: Vec<Registrant>,
    /// RTYPE, and the holder.
    reservation: Option<(u8, String)>,
}

#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct Registrant {
    /// The host's identifier, 32 hexadecimal digits.
    host: String,
    key: u64,
}

fn host(text: &str) -> Result<HostId, String> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    number.map(u128::to_be_bytes).ok_or(format!("{text:?} is no host identifier of 32 hexadecimal digits"))
}

impl Words {
    fn of(kept: &Kept) -> Words {
        let registrant = |(host, key): &(HostId, u64)| Registrant { host: hex(host), key: *key };
        Words {
            persists: kept.persists,
            generation: kept.generation,
            registrants: kept.registrants.iter().map(registrant).collect(),
            reservation: kept.held.map(|(kind, holder)| (kind.to_field(), hex(&holder))),
        }
    }

    fn kept(&self) -> Result<Kept, String> {
        let mut kept = Kept { persists: self.persists, generation: self.generation, ..Kept::default() };
        for Registrant { host: name, key } in &self.registrants {
            let id = host(name)?;
            if kept.registrants.iter().any(|(other, _)| *other == id) {
                return Err(format!("host {name} is there twice"));
            }
            kept.registrants.push((id, *key));
        }
        if let Some((kind, holder)) = &self.reservation {
            let kind = Kind::from_field(*kind).ok_or(format!("{kind} is no kind of reservation"))?;
            let holder = host(holder)?;
            let is_there = kept.registrants.iter().any(|(host, _)| kind.is_of_all() || *host == holder);
            if !is_there {
                return Err("who holds the reservation is not registered".into());
            }
            kept.held = Some((kind, holder));
        }
        Ok(kept)
    }
}

/// What a file keeps; nothing where there is none yet.
pub fn read(path: &Path) -> Result<Kept, String> {
    let failed = |why: String| format!("reservations {}: {why}", path.display());
    let text = match fs::metadata(path) {
        Ok(is) if !is.is_file() => return Err(failed("it is no file".into())),
        Ok(is) if is.len() > MOST => return Err(failed(format!("{} bytes are too many", is.len()))),
        Ok(_) => fs::read_to_string(path).map_err(|e| failed(e.to_string()))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(e) => return Err(failed(e.to_string())),
    };
    let words: Words = serde_json::from_str(&text).map_err(|e| failed(e.to_string()))?;
    words.kept().map_err(failed)
}

/// Replaces the file.
fn write(path: &Path, kept: &Kept) -> Result<(), String> {
    let text = serde_json::to_string(&Words::of(kept)).map_err(|e| e.to_string())?;
    save::write(path, &(text + "\n"))
}

/// What a file keeps, and what keeps it from now on: by a thread of its own, in order.
pub fn open(path: &Path) -> Result<(Kept, Keep), String> {
    let kept = read(path)?;
    let (sender, receiver) = mpsc::channel::<(Kept, Arc<Ticket>)>();
    let path: PathBuf = path.to_owned();
    let keeps = move || {
        while let Ok((mut kept, ticket)) = receiver.recv() {
            // Each takes the place of those before it.
            let mut tickets = vec![ticket];
            for (newer, ticket) in receiver.try_iter() {
                kept = newer;
                tickets.push(ticket);
            }
            if let Err(error) = write(&path, &kept) {
                tracing::error!(error, "a host's reservation could not be kept");
                tickets.iter().for_each(|ticket| ticket.fails());
            }
        }
    };
    std::thread::Builder::new().name("reservations".into()).spawn(keeps).map_err(|e| e.to_string())?;
    let keep = move |kept, ticket| {
        if let Err(mpsc::SendError((_, ticket))) = sender.send((kept, ticket)) {
            ticket.fails();
        }
    };
    Ok((kept, Box::new(keep)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        assert_eq!(read(&path), Ok(Kept::default()));
        let kept = Kept {
            persists: true,
            generation: 9,
            registrants: vec![([0xab; 16], 1), ([2; 16], u64::MAX)],
            held: Some((Kind::ExclusiveAccess, [2; 16])),
        };
        write(&path, &kept).unwrap();
        assert_eq!(read(&path), Ok(kept));
        let a = "{\"host\":\"0101010101010101010101010101010f\",\"key\":1}";
        for (text, why) in [
            ("{".to_owned(), "EOF"),
            ("{\"persists\":true,\"generation\":1,\"registrants\":[],\"reservation\":null,\"x\":1}".into(), "unknown field"),
            (
                format!("{{\"persists\":true,\"generation\":1,\"registrants\":[{a},{a}],\"reservation\":null}}"),
                "is there twice",
            ),
            (
                "{\"persists\":true,\"generation\":1,\"registrants\":[{\"host\":\"+1\",\"key\":1}],\"reservation\":null}"
                    .into(),
                "is no host identifier",
            ),
            (
                format!("{{\"persists\":true,\"generation\":1,\"registrants\":[{a}],\"reservation\":[7,\"{:032x}\"]}}", 1),
                "7 is no kind",
            ),
            (
                format!("{{\"persists\":true,\"generation\":1,\"registrants\":[{a}],\"reservation\":[1,\"{:032x}\"]}}", 1),
                "is not registered",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let said = read(&path).unwrap_err();
            assert!(said.starts_with("reservations /") && said.contains(why), "{said}");
        }
        assert!(read(folder.path()).unwrap_err().ends_with("it is no file"));
    }

    #[test]
    fn what_cannot_be_kept_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone/r.json");
        let (_, keep) = open(&path).unwrap();
        let wait = |ticket: &mut Arc<Ticket>| {
            while Arc::get_mut(ticket).is_none() {
                std::thread::yield_now()
            }
        };
        let mut ticket = Arc::default();
        keep(Kept::default(), Arc::clone(&ticket));
        wait(&mut ticket);
        assert!(ticket.has_failed());
        fs::create_dir(folder.path().join("gone")).unwrap();
        let mut ticket = Arc::default();
        keep(Kept { generation: 4, ..Kept::default() }, Arc::clone(&ticket));
        wait(&mut ticket);
        assert!(!ticket.has_failed());
        assert_eq!(read(&path).unwrap().generation, 4);
    }
}
