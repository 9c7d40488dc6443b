//! SIGHUP: the file is read again, and what can follow it while hosts are there does. What cannot is said,
//! and waits for a restart. A file with a fault changes nothing. Nobody who is connected is ended.

use serde::Serialize;
use toml::Table;

use super::ServeArgs;
use super::drive::ServedDrive;
use super::plan::{Plan, SubsystemPlan};
use crate::logs::{self, Logs};

/// What follows at once; `subsystem` is looked at one by one.
const LIVE: [&str; 3] = ["log", "open", "subsystem"];
const LIVE_OF_SUBSYSTEM: [&str; 5] = ["allow-hosts", "dh-groups", "hashes", "host", "identity"];

/// Reads the file of a server again that was started by `started`. A fault is returned, and logged.
pub fn reload(args: &ServeArgs, started: &Plan, drive: &ServedDrive, logs: &Logs) -> Option<String> {
    if args.config.is_none() {
        tracing::warn!("SIGHUP: nothing is read again: it was started without --config");
        return None;
    }
    let plan = match Plan::of(args) {
        Ok(plan) => plan,
        Err(why) => {
            let why = logs::redacted(&why);
            tracing::error!("SIGHUP: nothing is changed: {why}");
            return Some(format!("nothing is changed: {why}"));
        }
    };
    if let Err(why) = drive.admit(&plan) {
        tracing::error!("SIGHUP: nothing is changed: {why}");
        return Some(format!("nothing is changed: {why}"));
    }
    logs.change(plan.log.map(|level| level.0));
    for what in waiting(started, &plan) {
        tracing::warn!("SIGHUP: {what}: as it was until a restart");
    }
    tracing::info!("SIGHUP: the file is read again");
    None
}

/// What differs and cannot follow.
fn waiting(old: &Plan, new: &Plan) -> Vec<String> {
    let mut all = differing(old, new, &LIVE);
    for of_new in &new.subsystem {
        let Some(of_old) = named(old, &of_new.nqn) else {
            all.push(format!("subsystem {}, which is new", of_new.nqn));
            continue;
        };
        let keys = differing(of_old, of_new, &LIVE_OF_SUBSYSTEM);
        all.extend(keys.into_iter().map(|key| format!("{key} of subsystem {}", of_new.nqn)));
        let follows = of_old.vfio_user.iter().any(|function| function.identity.is_none());
        if follows && of_old.identity != of_new.identity {
            all.push(format!("identity of the functions of subsystem {}", of_new.nqn));
        }
    }
    let gone = old.subsystem.iter().filter(|subsystem| named(new, &subsystem.nqn).is_none());
    all.extend(gone.map(|subsystem| format!("subsystem {}, which is gone", subsystem.nqn)));
    all
}

fn named<'a>(plan: &'a Plan, nqn: &str) -> Option<&'a SubsystemPlan> {
    plan.subsystem.iter().find(|subsystem| subsystem.nqn == nqn)
}

/// The keys whose values differ, but for those of `live`.
fn differing<T: Serialize>(old: &T, new: &T, live: &[&str]) -> Vec<String> {
    let [old, new] = [old, new].map(|of| Table::try_from(of).unwrap_or_default());
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    let differ = |key: &&String| !live.contains(&key.as_str()) && old.get(*key) != new.get(*key);
    keys.into_iter().filter(differ).cloned().collect()
}
