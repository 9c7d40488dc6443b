//! The keys of a subsystem's hosts, from their files.

use std::path::Path;
use std::sync::Arc;

use nearside_auth::{Credentials, Group, Hash, Key};

use super::plan::SubsystemPlan;

/// What each host has to prove that has a key. Every file that is wrong is in the error.
pub fn credentials(plan: &SubsystemPlan) -> Result<Vec<(String, Arc<Credentials>)>, String> {
    let hashes =
        plan.hashes.as_ref().map_or(Hash::ALL.to_vec(), |all| all.iter().map(|name| name.0).collect());
    let groups =
        plan.dh_groups.as_ref().map_or(Group::ALL.to_vec(), |all| all.iter().map(|name| name.0).collect());
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for host in &plan.host {
        let mut key = |path: &Path| match Key::read(path) {
            Ok(key) => Some(key),
            Err(why) => {
                faults.push(format!("key of {} for {}: {}: {why}", host.nqn, plan.nqn, path.display()));
                None
            }
        };
        let Some(own) = host.key_file.as_deref().and_then(&mut key) else { continue };
        let controller = host.controller_key_file.as_deref().and_then(&mut key);
        if controller.as_ref() == Some(&own) {
            faults.push(format!("{}: {}: its key and the subsystem's are the same", plan.nqn, host.nqn));
        }
        let (hashes, groups) = (hashes.clone(), groups.clone());
        found.push((host.nqn.clone(), Arc::new(Credentials { host: own, controller, hashes, groups })));
    }
    if faults.is_empty() { Ok(found) } else { Err(faults.join("\n")) }
}
