//! SIGHUP: the file is read again, and what can follow it while hosts are there does. What cannot is said,
//! and waits for a restart. A file with a fault changes nothing.

use serde::Serialize;
use toml::Table;

use super::plan::Plan;
use super::running::Running;
use crate::logs;

/// Reads the file of a server again. A fault is returned, and logged.
pub fn reload(running: &Running) -> Option<String> {
    if running.args().config.is_none() {
        tracing::warn!("SIGHUP: nothing is read again: it was started without --config");
        return None;
    }
    match Plan::of(running.args()).and_then(|plan| running.follow(&plan)) {
        Ok(waiting) => {
            waiting.iter().for_each(|what| tracing::warn!("SIGHUP: {what}"));
            tracing::info!("SIGHUP: the file is read again");
            None
        }
        Err(why) => {
            let why = logs::redacted(&why);
            tracing::error!("SIGHUP: nothing is changed: {why}");
            Some(format!("nothing is changed: {why}"))
        }
    }
}

/// What of a plan cannot follow: where it differs from what a server makes of it ([`Plan::following`]).
pub fn waiting(old: &Plan, new: &Plan) -> Vec<String> {
    let follows = old.following(new);
    let mut all = differing(&follows, new, "subsystem");
    for (is, wanted) in follows.subsystem.iter().zip(&new.subsystem) {
        let of = |key: String| format!("{key} of subsystem {}", wanted.nqn);
        all.extend(differing(is, wanted, "namespace").into_iter().map(of));
        for (is, wanted) in is.namespace.iter().zip(&wanted.namespace) {
            let keys = differing(is, wanted, "");
            all.extend(keys.into_iter().map(|key| of(format!("{key} of namespace {}", wanted.nsid))));
        }
        let functions = is.vfio_user.iter().any(|function| function.identity.is_none());
        if functions && old.named(&is.nqn).is_some_and(|old| old.identity != is.identity) {
            all.push(of("identity of the functions".into()));
        }
    }
    all
}

/// The keys whose values differ, but for one that is looked at by itself.
fn differing<T: Serialize>(is: &T, wanted: &T, apart: &str) -> Vec<String> {
    let [is, wanted] = [is, wanted].map(|of| Table::try_from(of).unwrap_or_default());
    let mut keys: Vec<&String> = is.keys().chain(wanted.keys()).collect();
    keys.sort();
    keys.dedup();
    let differ = |key: &&String| *key != apart && is.get(*key) != wanted.get(*key);
    keys.into_iter().filter(differ).cloned().collect()
}
