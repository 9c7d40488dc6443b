//! From the name of a drive to a session, as often as one is wanted.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use nearside_clock::TscClock;
use nearside_embedded::named::{Place, Way};
use nearside_embedded::partition::{Logical, Wanted};
use nearside_embedded::{AnyStore, Error, Options, image_over, open_image};
use nearside_fsrlib::driver::{Policy, tcp};
use nearside_fsrlib::{Credentials, Encoding, Session, State, Transport};

/// Bytes of the buffer that a reply may fill.
const BUFFER: usize = 1 << 20;

/// A session by any way.
pub type AnySession = Session<Box<dyn Transport>>;

/// How a drive is opened.
pub struct How {
    pub(crate) name: OsString,
    pub(crate) partition: Option<Wanted>,
    pub(crate) volume: Option<Logical>,
    pub(crate) credentials: Credentials,
    pub(crate) allow_unrecovered: bool,
    pub(crate) home: bool,
    pub(crate) policy: Policy,
    pub(crate) network: tcp::Options,
    /// The first session's: of a drive of this process what it lies in, and the partition's number.
    pub(crate) found: Found,
}

/// What the first session finds for those after it.
#[derive(Default)]
pub(crate) struct Found {
    store: OnceLock<AnyStore>,
    number: OnceLock<u32>,
}

/// Why there is no session.
#[derive(Debug)]
pub struct Refusal {
    /// What it means to the system.
    pub kind: io::ErrorKind,
    /// For the user, with the drive's name.
    pub text: String,
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal { kind: io::ErrorKind::Other, text }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal { kind: error.kind(), text: error.to_string() }
    }
}

impl How {
    /// The partition's number, once a session is open.
    pub fn number(&self) -> u32 {
        self.found.number.get().copied().unwrap_or(0)
    }

    /// A session of the thread that asks, in the name of whom it was opened for, and what its user should
    /// know.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn open(&self) -> Result<(AnySession, Vec<String>), Refusal> {
        let invalid = |text| Refusal { kind: io::ErrorKind::InvalidInput, text };
        let place = Place::of(&self.name).map_err(invalid)?;
        let way = Way {
            policy: self.policy,
            network: self.network.clone(),
            tell: None,
            encoding: Encoding::default(),
            stop: None,
        };
        let mut notes = Vec::new();
        let transport = match place.reach(way)? {
            None => Box::new(self.embedded(self.store(&mut notes)?)?),
            Some(_) if self.volume.is_some() => {
                let why = "a logical volume is of images and block devices that are opened here";
                return Err(invalid(format!("{}: {why}", self.name.display())));
            }
            Some(transport) => transport,
        };
        let writer = self.found.store.get().and_then(AnyStore::writer);
        let state = if self.home || writer.is_some() { State::Home } else { State::Recovered };
        let mut session = Session::new(transport, Arc::new(TscClock::new()))
            .with_buffer(BUFFER)
            .with_credentials(self.credentials.clone())
            .with_state(state)
            .with_allow_unrecovered(self.allow_unrecovered);
        if self.found.number.get().is_none() {
            let number = number_of(&mut session, self.partition.as_ref());
            let number = number.map_err(|why| invalid(format!("{}: {why}", self.name.display())))?;
            let _the_same = self.found.number.set(number);
        }
        Ok((session.with_partition(self.number()), notes))
    }

    /// What a drive of this process lies in: all of an image or a block device, or a logical volume.
    fn store(&self, notes: &mut Vec<String>) -> Result<AnyStore, Refusal> {
        if let Some(store) = self.found.store.get() {
            return Ok(store.clone());
        }
        let path = Path::new(&self.name);
        let of_store = |error| match error {
            Error::Store(error) => Refusal::from(error),
            other => Refusal::from(other.to_string()),
        };
        let mut store = open_image(path).map_err(of_store)?;
        if let Some(volume) = &self.volume {
            let partition = match &self.partition {
                None => None,
                wanted => {
                    let drive: Box<dyn Transport> = Box::new(self.embedded(store.clone())?);
                    let mut session = Session::new(drive, Arc::new(TscClock::new()));
                    let number = number_of(&mut session, wanted.as_ref());
                    Some(number.map_err(|why| format!("{}: {why}", path.display()))?)
                }
            };
            store = store.logical_volume(partition, volume)?;
            // What is in the volume has no partition of the disk's.
            let _first = self.found.number.set(0);
        }
        if let Some(writer) = store.writer() {
            notes.push(format!(
                "{}: {writer}: what is written meanwhile may be missing in an answer, or show in part",
                path.display()
            ));
        }
        notes.extend_from_slice(store.notes());
        Ok(self.found.store.get_or_init(|| store).clone())
    }

    fn embedded(&self, store: AnyStore) -> Result<impl Transport + use<>, Refusal> {
        let mut options = Options { policy: self.policy, ..Options::default() };
        options.firmware.allow_unrecovered = self.allow_unrecovered;
        options.firmware.state = if self.home { State::Home } else { State::Recovered };
        let drive = image_over(store, &options);
        Ok(drive.map_err(|error| format!("{}: {error}", self.name.display()))?)
    }
}

fn number_of(session: &mut AnySession, wanted: Option<&Wanted>) -> Result<u32, String> {
    match wanted {
        None => Ok(0),
        Some(Wanted::Number(number)) => Ok(*number),
        Some(known) => known.among(&session.partitions().map_err(|error| error.to_string())?),
    }
}
