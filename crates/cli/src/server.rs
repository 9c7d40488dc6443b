//! Which server a command asks: by its name, by its socket, or the only one of this machine.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use nearside_spec::fabrics::PORT;
use serde_json::Value;

use crate::failure::Failure;
use crate::serve::beacon::{self, Found};
use crate::serve::control::{self, Request};

/// Which server is asked.
#[derive(Args)]
pub struct WhichServer {
    /// The server: its name, or its control socket [default: the only one of this machine]
    #[arg(long = "control", visible_alias = "socket", value_name = "NAME|PATH", global = true)]
    control: Option<PathBuf>,
}

impl WhichServer {
    /// Asks it.
    ///
    /// # Errors
    /// The server's own words; or that there is none, or more than one, of which it could be any.
    pub fn ask(&self, request: &Request) -> Result<Value, Failure> {
        Ok(ask(self.control.as_deref(), request)?)
    }
}

/// Asks the server of that name or socket; without one, the only server.
pub fn ask(which: Option<&Path>, request: &Request) -> Result<Value, String> {
    match which {
        Some(which) => ask_named(which, request),
        None => match &beacon::find().unwrap_or_default()[..] {
            [] => ask_at(&beacon::usual_path(PORT), request),
            [only] => ask_found(only, request),
            several => {
                Err(format!("there are {} servers; --control says which:\n{}", several.len(), list(several)))
            }
        },
    }
}

fn ask_named(which: &Path, request: &Request) -> Result<Value, String> {
    let is_name = which.components().count() == 1 && !which.exists();
    let Some(name) = which.to_str().filter(|_| is_name) else { return ask_at(which, request) };
    let mut all = beacon::find().unwrap_or_default();
    let called = |found: &Found| found.told.as_ref().is_some_and(|(is, _)| is == name);
    all.retain(called);
    match &all[..] {
        [only] => ask_found(only, request),
        [] => Err(format!("no server is called {name:?}, and there is no socket of that name")),
        several => Err(format!(
            "{} servers are called {name:?}; a socket says which:\n{}",
            several.len(),
            list(several)
        )),
    }
}

fn ask_at(path: &Path, request: &Request) -> Result<Value, String> {
    let stream = UnixStream::connect(path);
    let stream = stream.map_err(|e| format!("no server answers at {}: {e}", path.display()))?;
    control::ask(stream, path, request)
}

/// Asks a server that was found.
pub fn ask_found(found: &Found, request: &Request) -> Result<Value, String> {
    let (stream, path) = found.connect()?;
    control::ask(stream, path, request)
}

fn list(all: &[Found]) -> String {
    all.iter().map(|found| format!("  {}", line(found))).collect::<Vec<_>>().join("\n")
}

/// A server, in a line.
pub fn line(found: &Found) -> String {
    match &found.told {
        Some((name, control)) => format!("{name}: process {}, {}", found.pid, control.display()),
        None => format!("process {} of user {}, which only that user and root may ask", found.pid, found.uid),
    }
}
