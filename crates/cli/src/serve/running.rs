//! A server as it runs, and the one way in which it changes: a plan is made that differs, checked as a file
//! is, and applied; SIGHUP and the control socket both come by here, one at a time. What cannot be applied
//! changes nothing.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use super::changes::Change;
use super::drive::{Seen, ServedDrive};
use super::plan::Plan;
use super::{ServeArgs, check, reload};
use crate::logs::Logs;

/// A server that runs.
pub struct Running {
    args: ServeArgs,
    logs: Logs,
    seen: Arc<Seen>,
    state: Mutex<State>,
}

struct State {
    /// What is served, and how.
    plan: Plan,
    /// `None`: it has ended.
    drive: Option<ServedDrive>,
}

const ENDS: &str = "the server is ending";

impl Running {
    pub fn new(args: ServeArgs, logs: Logs, plan: Plan, drive: ServedDrive) -> Arc<Running> {
        let (seen, state) = (drive.seen().clone(), Mutex::new(State { plan, drive: Some(drive) }));
        Arc::new(Running { args, logs, seen, state })
    }

    /// What it was started by.
    pub fn args(&self) -> &ServeArgs {
        &self.args
    }

    /// What its owner is told of.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What is served now.
    pub fn plan(&self) -> Plan {
        self.state().plan.clone()
    }

    /// Something of the drive, while it serves.
    pub fn with<R>(&self, with: impl FnOnce(&mut ServedDrive) -> Result<R, String>) -> Result<R, String> {
        with(self.state().drive.as_mut().ok_or(ENDS)?)
    }

    /// Follows a plan as far as it can be followed; returns the rest, in words, and what a user should know.
    ///
    /// # Errors
    /// Every fault of it; then nothing has changed.
    pub fn follow(&self, wanted: &Plan) -> Result<Vec<String>, String> {
        self.follow_in(&mut self.state(), wanted)
    }

    fn follow_in(&self, state: &mut State, wanted: &Plan) -> Result<Vec<String>, String> {
        let State { plan, drive } = state;
        let drive = drive.as_mut().ok_or(ENDS)?;
        let new = plan.following(wanted);
        let before: BTreeSet<String> = check::of_machine(plan).into_iter().collect();
        let mut faults = check::of_plan(wanted);
        // What stays as it is until a restart may not go with what is wanted.
        let own = check::of_plan(&new).into_iter().filter(|fault| !faults.contains(fault));
        faults.extend([own.collect(), check::of_machine(&new)].concat());
        // What runs has its own files and sockets.
        faults.retain(|fault| !before.contains(fault));
        if !faults.is_empty() {
            return Err(faults.join("\n"));
        }
        let told = reload::waiting(plan, wanted)
            .into_iter()
            .map(|what| format!("{what}: as it was until a restart"));
        let mut told: Vec<String> = told.collect();
        told.extend(drive.apply(&new)?);
        self.logs.change(new.log.map(|level| level.0));
        let open = |plan: &Plan| -> BTreeSet<(SocketAddr, String)> {
            plan.open_to_all().map(|(address, nqn)| (address, nqn.to_owned())).collect()
        };
        for (address, nqn) in open(&new).difference(&open(plan)) {
            tracing::warn!(%address, nqn, "whoever reaches this address may connect");
        }
        *plan = new;
        Ok(told)
    }

    /// Makes a change; what a user should know, and the address of a new listener.
    ///
    /// # Errors
    /// Why it cannot be; then nothing has changed.
    pub fn change(&self, change: Change) -> Result<(Vec<String>, Option<SocketAddr>), String> {
        if matches!(change, Change::LogLevel { .. }) && self.logs.is_set_by_environment() {
            return Err("NEARSIDE_LOG says how much this server logs".into());
        }
        let state = &mut *self.state();
        let mut wanted = state.plan.clone();
        let listener = match &change {
            Change::AddListener { address, .. } => Some(address.clone()),
            _ => None,
        };
        let bound = state.drive.as_ref().map(ServedDrive::bound).unwrap_or_default();
        change.apply(&mut wanted, &bound)?;
        let notes = self.follow_in(state, &wanted)?;
        let State { plan, drive } = state;
        let address = listener.and_then(|word| {
            let at = drive.as_mut()?.settled(&word)?;
            let mut all = plan.discovery.iter_mut().rev().chain(plan.listen.iter_mut().rev());
            if let Some(is) = all.find(|is| **is == word) {
                *is = at.to_string();
            }
            Some(at)
        });
        Ok((notes, address))
    }

    /// Ends: what was taken is finished, then all stores are flushed. An error says what was given up.
    pub fn stop(&self) -> Result<(), String> {
        let drive = self.state().drive.take();
        drive.map_or(Ok(()), ServedDrive::stop)
    }
}
