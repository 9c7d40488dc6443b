//! Which server a command asks: by its name, by its socket, or the only one of its user, else of this
//! machine.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use nearside_dma::system::{effective_ids, peer};
use nearside_spec::fabrics::PORT;
use serde_json::Value;

use crate::failure::Failure;
use crate::serve::beacon::{self, Found};
use crate::serve::control::{self, Request};

/// Which server is asked.
#[derive(Args)]
pub struct WhichServer {
    /// The server: its name, or its control socket [default: the user's only one, else this machine's]
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

    /// Asks it what goes into the file that it names.
    ///
    /// # Errors
    /// As of [`WhichServer::ask`]; that it is another user's, whose word such a file does not follow.
    pub fn ask_own(&self, request: &Request) -> Result<Value, Failure> {
        let (stream, at) = connected(self.control.as_deref())?;
        let uid = peer(&stream).map_err(|e| format!("{}: {e}", at.display()))?.uid;
        if uid != effective_ids().0 {
            let at = at.display();
            let why = format!("{at} is user {uid}'s: --to says which file is written (its own, or another)");
            return Err(Failure::Message(why));
        }
        Ok(control::ask(stream, &at, request)?)
    }
}

/// Asks the server of that name or socket; without one, the only server of this user, and where this user has
/// none the only one.
pub fn ask(which: Option<&Path>, request: &Request) -> Result<Value, String> {
    let (stream, at) = connected(which)?;
    control::ask(stream, &at, request)
}

/// A connection to it, and its socket. What another user calls a server is that user's word.
fn connected(which: Option<&Path>) -> Result<(UnixStream, PathBuf), String> {
    let mut all = beacon::find().unwrap_or_default();
    let Some(which) = which else {
        let own = |found: &Found| found.uid == effective_ids().0;
        if all.iter().any(own) {
            all.retain(own);
        }
        return match &all[..] {
            [] => connected_at(&beacon::usual_path(PORT)),
            [only] => connected_to(only),
            several => {
                Err(format!("there are {} servers; --control says which:\n{}", several.len(), list(several)))
            }
        };
    };
    let is_name = which.components().count() == 1 && !which.exists();
    let Some(name) = which.to_str().filter(|_| is_name) else { return connected_at(which) };
    all.retain(|found| found.told.as_ref().is_some_and(|(is, _)| is == name));
    match &all[..] {
        [only] => connected_to(only),
        [] => Err(format!("no server is called {name:?}, and there is no socket of that name")),
        several => Err(format!(
            "{} servers are called {name:?}; a socket says which:\n{}",
            several.len(),
            list(several)
        )),
    }
}

fn connected_at(path: &Path) -> Result<(UnixStream, PathBuf), String> {
    let stream = UnixStream::connect(path);
    let stream = stream.map_err(|e| format!("no server answers at {}: {e}", path.display()))?;
    Ok((stream, path.to_owned()))
}

fn connected_to(found: &Found) -> Result<(UnixStream, PathBuf), String> {
    found.connect().map(|(stream, path)| (stream, path.to_owned()))
}

/// Asks a server that was found.
pub fn ask_found(found: &Found, request: &Request) -> Result<Value, String> {
    let (stream, at) = connected_to(found)?;
    control::ask(stream, &at, request)
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
