//! From the name of a drive to a session.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nearside_channel::Tls;
use nearside_clock::TscClock;
use nearside_driver::tcp::Recovery;
use nearside_driver::{Policy, tcp};
use nearside_embedded::Options;
use nearside_embedded::named::{Place, Way};
use nearside_fsrlib::{Encoding, Session, Transport};

use crate::calls::{Stop, bytes};
use crate::types::{NEARSIDE_FOR_EVER, NEARSIDE_NO_ATTEMPT, nearside_options};

/// How a drive is opened.
pub(crate) struct How {
    policy: Policy,
    network: tcp::Options,
}

impl How {
    /// As the caller's options say; null: the defaults.
    ///
    /// # Safety
    /// Strings in the options are null or terminated.
    pub(crate) unsafe fn of(options: Option<&nearside_options>) -> Result<How, String> {
        let mut how = How { policy: Policy::Polled, network: tcp::Options::default() };
        let Some(options) = options else { return Ok(how) };
        how.policy = match options.completion {
            0 => Policy::Polled,
            1 => Policy::Interrupt,
            2 => Policy::Hybrid,
            other => return Err(format!("completion model {other} is not known")),
        };
        let text = |text| {
            // SAFETY: as this function demands.
            let text: Result<&[u8], Stop> = unsafe { bytes(text) };
            text.ok().map(OsStr::from_bytes)
        };
        if let Some(name) = text(options.host_nqn) {
            let name = name.to_str().ok_or("host_nqn: not UTF-8")?;
            how.network = tcp::Options::for_host(name).map_err(|e| format!("host_nqn {e}"))?;
        }
        match (text(options.host_key_file), text(options.controller_key_file)) {
            (Some(own), other) => {
                how.network = how.network.with_keys_of(Path::new(own), other.map(Path::new))?;
            }
            (None, Some(_)) => return Err("controller_key_file needs host_key_file".into()),
            (None, None) => {}
        }
        match text(options.tls_key_file) {
            Some(_) if options.concatenates != 0 => {
                return Err("concatenates: tls_key_file encrypts already".into());
            }
            Some(key) => how.network = how.network.with_tls_key_of(Path::new(key), encrypts()?)?,
            None if options.concatenates != 0 && how.network.keys.is_none() => {
                return Err("concatenates needs host_key_file".into());
            }
            None if options.concatenates != 0 => how.network.concatenates = Some(encrypts()?),
            None => {}
        }
        how.network.recovery = recovery(options);
        how.network.header_digest = options.header_digest != 0;
        how.network.data_digest = options.data_digest != 0;
        Ok(how)
    }
}

/// TLS by OpenSSL.
#[cfg(feature = "tls")]
fn encrypts() -> Result<Tls, String> {
    Ok(Tls::new(nearside_tls::OpenSsl::default()))
}

/// None.
#[cfg(not(feature = "tls"))]
fn encrypts() -> Result<Tls, String> {
    Err("this build has no TLS (its feature `tls`)".to_owned())
}

fn recovery(options: &nearside_options) -> Recovery {
    let own = Recovery::default();
    let ms = |ms: u32| Duration::from_millis(ms.into());
    let reconnect_delay = match options.reconnect_delay_ms {
        0 => own.reconnect_delay,
        delay => ms(delay),
    };
    let ctrl_loss_tmo = match options.ctrl_loss_tmo_ms {
        0 => own.ctrl_loss_tmo,
        NEARSIDE_FOR_EVER => None,
        NEARSIDE_NO_ATTEMPT => Some(Duration::ZERO),
        time => Some(ms(time)),
    };
    Recovery { reconnect_delay, ctrl_loss_tmo }
}

/// Opens the drive of a name.
pub(crate) fn open(drive: &[u8], how: How) -> Result<Session<Box<dyn Transport>>, String> {
    let name = OsStr::from_bytes(drive);
    let How { policy, network } = how;
    let way = Way { policy, network, tell: None, encoding: Encoding::default(), stop: None };
    let transport: Box<dyn Transport> = match Place::of(name)?.reach(way)? {
        Some(transport) => transport,
        None => {
            let options = Options { policy, ..Options::default() };
            let drive = nearside_embedded::image(Path::new(name), &options);
            Box::new(drive.map_err(|e| format!("{}: {e}", name.display()))?)
        }
    };
    Ok(Session::new(transport, Arc::new(TscClock::new())))
}
