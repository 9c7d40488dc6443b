//! The keys of a subsystem's hosts, from their files.

use std::path::Path;
use std::sync::Arc;

use nearside_auth::{Credentials, Group, Hash, Key, KeyError, TlsKey};

use super::plan::SubsystemPlan;

/// What hosts that have keys prove, by their names.
#[derive(Default)]
pub struct Secrets {
    pub credentials: Vec<(String, Arc<Credentials>)>,
    pub tls_keys: Vec<(String, TlsKey)>,
}

/// The keys of all. Every file that is wrong is in the error.
pub fn of_hosts(plan: &SubsystemPlan) -> Result<Secrets, String> {
    let hashes =
        plan.hashes.as_ref().map_or(Hash::ALL.to_vec(), |all| all.iter().map(|name| name.0).collect());
    let groups =
        plan.dh_groups.as_ref().map_or(Group::ALL.to_vec(), |all| all.iter().map(|name| name.0).collect());
    let (mut found, mut faults) = (Secrets::default(), Vec::new());
    for host in &plan.host {
        let name = format!("key of {} for {}", host.nqn, plan.nqn);
        if let Some(path) = host.tls_key_file.as_deref() {
            let key = noted(&name, path, TlsKey::read(path), &mut faults);
            found.tls_keys.extend(key.map(|key| (host.nqn.clone(), key)));
        }
        let mut key = |path: &Path| noted(&name, path, Key::read(path), &mut faults);
        let Some(own) = host.key_file.as_deref().and_then(&mut key) else { continue };
        let controller = host.controller_key_file.as_deref().and_then(&mut key);
        if controller.as_ref() == Some(&own) {
            faults.push(format!("{}: {}: its key and the subsystem's are the same", plan.nqn, host.nqn));
        }
        let (hashes, groups) = (hashes.clone(), groups.clone());
        let credentials = Credentials { host: own, controller, hashes, groups };
        found.credentials.push((host.nqn.clone(), Arc::new(credentials)));
    }
    if faults.is_empty() { Ok(found) } else { Err(faults.join("\n")) }
}

fn noted<T>(name: &str, path: &Path, read: Result<T, KeyError>, faults: &mut Vec<String>) -> Option<T> {
    read.map_err(|why| faults.push(format!("{name}: {}: {why}", path.display()))).ok()
}
