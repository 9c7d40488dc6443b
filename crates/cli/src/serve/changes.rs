//! Changes to what is served, while it is served: each is made to a copy of the plan, which is then checked
//! and applied as a file is that is read again ([`super::running`]). What cannot be is an error here.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::plan::{AnaName, Bandwidth, HostPlan, Level, NamespacePlan, Plan, SubsystemPlan};
use super::ports::{Bound, place, same};
use nearside_spec::fabrics::{DISCOVERY_PORT, PORT};

/// A change, as it is asked for at the control socket. Without a subsystem the only one is meant.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change", deny_unknown_fields)]
pub enum Change {
    /// Hosts of that name may connect. Where all may, `restrict` says that it is one of few from now on.
    AddHost {
        subsystem: Option<String>,
        host: HostPlan,
        restrict: bool,
    },
    /// They may not any more, and what was said of them is forgotten.
    RemoveHost {
        subsystem: Option<String>,
        nqn: String,
    },
    AddSubsystem {
        subsystem: Box<SubsystemPlan>,
    },
    RemoveSubsystem {
        nqn: String,
    },
    /// Hosts are awaited there as well; `discovery`: the usual port is discovery's.
    AddListener {
        address: String,
        discovery: bool,
    },
    RemoveListener {
        address: String,
    },
    AddNamespace {
        subsystem: Option<String>,
        namespace: NamespacePlan,
    },
    RemoveNamespace {
        subsystem: Option<String>,
        nsid: u32,
    },
    /// By an address, some ANA groups or all have another state.
    SetAna {
        subsystem: Option<String>,
        listen: String,
        state: AnaName,
        groups: Option<BTreeSet<u32>>,
    },
    LogLevel {
        level: Level,
    },
    /// What may be had in a second; what is not said is unlimited. Of a namespace, or of a host.
    Limit {
        subsystem: Option<String>,
        nsid: Option<u32>,
        host: Option<String>,
        iops: Option<u64>,
        bandwidth: Option<Bandwidth>,
        near_data_cpu: Option<u64>,
    },
}

impl Change {
    /// The plan with the change. Addresses are named as the plan has them, or as they are `bound`.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub fn apply(self, plan: &mut Plan, bound: &[Bound]) -> Result<(), String> {
        match self {
            Change::AddHost { subsystem, host, restrict } => {
                add_host(plan.the_mut(subsystem.as_deref())?, host, restrict)
            }
            Change::RemoveHost { subsystem, nqn } => remove_host(plan.the_mut(subsystem.as_deref())?, &nqn),
            Change::AddSubsystem { subsystem } => {
                if plan.named(&subsystem.nqn).is_some() {
                    return Err(format!("there is a subsystem {} already", subsystem.nqn));
                }
                plan.subsystem.push(*subsystem);
                Ok(())
            }
            Change::RemoveSubsystem { nqn } => {
                let before = plan.subsystem.len();
                plan.subsystem.retain(|subsystem| subsystem.nqn != nqn);
                if plan.subsystem.len() == before { Err(no_subsystem(&nqn)) } else { Ok(()) }
            }
            Change::AddListener { address, discovery } => add_listener(plan, address, discovery),
            Change::RemoveListener { address } => remove_listener(plan, &address, bound),
            Change::AddNamespace { subsystem, namespace } => {
                let subsystem = plan.the_mut(subsystem.as_deref())?;
                if subsystem.namespace.iter().any(|other| other.nsid == namespace.nsid) {
                    return Err(format!("there is a namespace {} already", namespace.nsid));
                }
                subsystem.namespace.push(namespace);
                Ok(())
            }
            Change::RemoveNamespace { subsystem, nsid } => {
                let subsystem = plan.the_mut(subsystem.as_deref())?;
                let before = subsystem.namespace.len();
                subsystem.namespace.retain(|namespace| namespace.nsid != nsid);
                let gone = subsystem.namespace.len() < before;
                if gone { Ok(()) } else { Err(format!("there is no namespace {nsid}")) }
            }
            Change::SetAna { subsystem, listen, state, groups } => {
                let at = place(&plan.listen, PORT, &listen, bound)?;
                let word = plan.listen[at.ok_or_else(|| no_listener(&listen))?].clone();
                plan.the_mut(subsystem.as_deref())?.set_ana(&word, state, groups);
                Ok(())
            }
            Change::LogLevel { level } => {
                plan.log = Some(level);
                Ok(())
            }
            Change::Limit { subsystem, nsid, host, iops, bandwidth, near_data_cpu } => {
                let subsystem = plan.the_mut(subsystem.as_deref())?;
                if let Some(nsid) = nsid {
                    let mut all = subsystem.namespace.iter_mut();
                    let of = all.find(|of| of.nsid == nsid).ok_or(format!("there is no namespace {nsid}"))?;
                    (of.iops, of.bandwidth, of.near_data_cpu) = (iops, bandwidth, near_data_cpu);
                }
                if let Some(nqn) = host {
                    let at = subsystem.host.iter().position(|of| of.nqn == nqn).unwrap_or_else(|| {
                        subsystem.host.push(HostPlan::named(nqn));
                        subsystem.host.len() - 1
                    });
                    let of = &mut subsystem.host[at];
                    (of.iops, of.bandwidth, of.near_data_cpu) = (iops, bandwidth, near_data_cpu);
                    if of.is_bare() {
                        subsystem.host.remove(at);
                    }
                }
                Ok(())
            }
        }
    }
}

pub fn no_subsystem(nqn: &str) -> String {
    format!("there is no subsystem {nqn}")
}

fn add_host(subsystem: &mut SubsystemPlan, host: HostPlan, restrict: bool) -> Result<(), String> {
    let all_may = subsystem.hosts().is_none();
    let said = !host.is_bare();
    let may = subsystem.hosts().is_some_and(|hosts| hosts.contains(&host.nqn));
    let known = subsystem.host.iter().position(|other| other.nqn == host.nqn);
    if may && !said {
        return Err(format!("{} may connect already", host.nqn));
    }
    if all_may && (!said || host.is_keyed()) && !restrict {
        return Err(format!(
            "every host may connect to {}: --restrict lets in only those that are named from now on",
            subsystem.nqn
        ));
    }
    // Those who have keys may come without a list; where there is one, it says who may.
    if !may && (!host.is_keyed() || subsystem.allow_hosts.is_some()) && (restrict || !all_may) {
        let keyed = subsystem.hosts().unwrap_or_default();
        let list = subsystem.allow_hosts.get_or_insert(keyed);
        list.push(host.nqn.clone());
    }
    match known {
        _ if !said => {}
        Some(at) => {
            // What it may have in a second stays.
            let HostPlan { iops, bandwidth, near_data_cpu, .. } = subsystem.host[at];
            subsystem.host[at] = HostPlan { iops, bandwidth, near_data_cpu, ..host };
        }
        None => subsystem.host.push(host),
    }
    Ok(())
}

fn remove_host(subsystem: &mut SubsystemPlan, nqn: &str) -> Result<(), String> {
    let listed = subsystem.allow_hosts.as_ref().is_some_and(|hosts| hosts.iter().any(|host| host == nqn));
    let said = subsystem.host.iter().any(|host| host.nqn == nqn);
    if !listed && !said {
        return Err(match subsystem.hosts() {
            None => {
                format!("every host may connect to {}: there is no list to take {nqn} from", subsystem.nqn)
            }
            Some(_) => format!("{} has no host {nqn}", subsystem.nqn),
        });
    }
    let few = subsystem.hosts().is_some();
    subsystem.host.retain(|host| host.nqn != nqn);
    if let Some(hosts) = &mut subsystem.allow_hosts {
        hosts.retain(|host| host != nqn);
    }
    // The last one to go opens the door to nobody.
    if few && subsystem.hosts().is_none() {
        subsystem.allow_hosts = Some(Vec::new());
    }
    Ok(())
}

fn add_listener(plan: &mut Plan, address: String, discovery: bool) -> Result<(), String> {
    if discovery {
        plan.discovery.push(address);
        return Ok(());
    }
    if plan.advertise.len() > plan.listen.len() {
        return Err(
            "advertise tells of discovery's addresses by their places, which another address before them \
                    would change: say it in the file, and have it read again"
                .into(),
        );
    }
    plan.listen.push(address);
    Ok(())
}

fn no_listener(address: &str) -> String {
    format!("no host is awaited at {address}")
}

fn remove_listener(plan: &mut Plan, address: &str, bound: &[Bound]) -> Result<(), String> {
    let nth = match place(&plan.listen, PORT, address, bound)? {
        Some(at) => {
            let word = plan.listen.remove(at);
            for subsystem in &mut plan.subsystem {
                subsystem.port.retain(|port| !same(&port.listen, &word, PORT));
            }
            at
        }
        None => {
            let at = place(&plan.discovery, DISCOVERY_PORT, address, bound)?;
            let at = at.ok_or_else(|| no_listener(address))?;
            plan.discovery.remove(at);
            plan.listen.len() + at
        }
    };
    if nth < plan.advertise.len() {
        plan.advertise.remove(nth);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "nqn.2026-11.example:a";
    const WEB: &str = "nqn.2026-11.example:web";

    fn plan(more: &str) -> Plan {
        let text = format!("{more}\n[[subsystem.namespace]]\nnsid = 1\nstore = 'dram:1MiB'\n");
        toml::from_str(&text).unwrap()
    }

    fn host(nqn: &str, key: Option<&str>) -> HostPlan {
        HostPlan { key_file: key.map(Into::into), ..HostPlan::named(nqn.into()) }
    }

    fn hosts(plan: &Plan) -> Option<Vec<String>> {
        plan.subsystem[0].hosts()
    }

    #[test]
    fn a_host_that_goes_opens_no_door_and_one_that_comes_closes_none_unasked() {
        let mut all = plan(&format!("[[subsystem]]\nnqn = '{A}'"));
        let add = |key, restrict| Change::AddHost { subsystem: None, host: host(WEB, key), restrict };
        let remove = || Change::RemoveHost { subsystem: None, nqn: WEB.into() };
        for key in [None, Some("/k")] {
            assert!(add(key, false).apply(&mut all, &[]).unwrap_err().contains("--restrict"));
            assert!(remove().apply(&mut all, &[]).unwrap_err().contains("every host may connect"));
            assert_eq!(hosts(&all), None);
            let mut few = all.clone();
            add(key, true).apply(&mut few, &[]).unwrap();
            assert_eq!(hosts(&few), Some(vec![WEB.to_owned()]), "{key:?}");
            remove().apply(&mut few, &[]).unwrap();
            assert_eq!(hosts(&few), Some(vec![]), "{key:?}");
            assert!(remove().apply(&mut few, &[]).unwrap_err().contains("has no host"));
            add(key, false).apply(&mut few, &[]).unwrap();
            assert_eq!(hosts(&few), Some(vec![WEB.to_owned()]), "{key:?}");
            let again = add(None, false).apply(&mut few, &[]);
            assert!(again.unwrap_err().contains("may connect already"), "{key:?}");
        }
        // Beside hosts with keys, one without.
        let mut keyed =
            plan(&format!("[[subsystem]]\nnqn = '{A}'\nhost = [{{ nqn = '{WEB}', key-file = '/k' }}]"));
        Change::AddHost { subsystem: None, host: host("nqn.2026-11.example:b", None), restrict: false }
            .apply(&mut keyed, &[])
            .unwrap();
        assert_eq!(hosts(&keyed), Some(vec![WEB.to_owned(), "nqn.2026-11.example:b".to_owned()]));
    }

    #[test]
    fn listeners_take_what_is_advertised_for_them_along() {
        let text = "listen = ['127.0.0.1:1', '127.0.0.1:2']\ndiscovery = ['127.0.0.1:3']\n\
                    advertise = ['192.0.2.1', '192.0.2.2']\n";
        let mut plan = plan(&format!("{text}[[subsystem]]\nnqn = '{A}'"));
        let add = |address: &str, discovery| Change::AddListener { address: address.into(), discovery };
        let remove = |address: &str| Change::RemoveListener { address: address.into() };
        assert!(remove("127.0.0.1:9").apply(&mut plan, &[]).unwrap_err().contains("no host is awaited"));
        remove("127.0.0.1:1").apply(&mut plan, &[]).unwrap();
        assert_eq!(
            (plan.listen.clone(), plan.advertise.clone()),
            (vec!["127.0.0.1:2".into()], vec!["192.0.2.2".into()])
        );
        add("127.0.0.1:4", false).apply(&mut plan, &[]).unwrap();
        add("127.0.0.1", true).apply(&mut plan, &[]).unwrap();
        remove("127.0.0.1:8009").apply(&mut plan, &[]).unwrap();
        assert_eq!(plan.discovery, ["127.0.0.1:3"]);
        plan.advertise = vec!["192.0.2.2".into(), "192.0.2.4".into(), "192.0.2.3".into()];
        assert!(add("127.0.0.1:5", false).apply(&mut plan, &[]).unwrap_err().contains("by their places"));
        remove("127.0.0.1:3").apply(&mut plan, &[]).unwrap();
        assert_eq!(plan.advertise, ["192.0.2.2", "192.0.2.4"]);
    }
    /// Of a word whose port the system chooses, what it chose is a name as well, and the word stays.
    #[test]
    fn an_address_goes_by_its_word_and_by_what_it_was_bound_to() {
        const ANY: &str = "127.0.0.1:0";
        let text = format!("listen = ['{ANY}']\ndiscovery = ['{ANY}']\n[[subsystem]]\nnqn = '{A}'");
        let plan = plan(&text);
        let one =
            |usual: u16, port: u16| Bound { word: ANY.into(), usual, at: ([127, 0, 0, 1], port).into() };
        let bound = [one(PORT, 1001), one(DISCOVERY_PORT, 1002)];
        let inaccessible: AnaName = "inaccessible".parse().unwrap();
        let ana = |listen: &str| Change::SetAna {
            subsystem: None,
            listen: listen.into(),
            state: inaccessible,
            groups: None,
        };
        let remove = |address: &str| Change::RemoveListener { address: address.into() };
        for address in [ANY, "127.0.0.1:1001"] {
            let mut changed = plan.clone();
            ana(address).apply(&mut changed, &bound).unwrap();
            let ports = &changed.subsystem[0].port;
            assert_eq!((ports.len(), &*ports[0].listen, ports[0].ana_state), (1, ANY, inaccessible));
            remove(address).apply(&mut changed, &bound).unwrap();
            assert_eq!((changed.listen.len(), changed.discovery.len()), (0, 1), "{address}");
            assert!(changed.subsystem[0].port.is_empty(), "{address}");
        }
        let mut changed = plan.clone();
        remove("127.0.0.1:1002").apply(&mut changed, &bound).unwrap();
        assert_eq!((changed.listen.len(), changed.discovery.len()), (1, 0));
        // No namespace is found by discovery's, nobody listens at another, and of two neither is meant.
        let mut twice = plan.clone();
        twice.listen.push(ANY.into());
        for (plan, address, why) in [
            (&plan, "127.0.0.1:1002", "no host is awaited at 127.0.0.1:1002"),
            (&plan, "127.0.0.1:1003", "no host is awaited at 127.0.0.1:1003"),
            (&twice, "127.0.0.1:1001", "127.0.0.1:1001 is one of several that are configured as 127.0.0.1:0"),
        ] {
            assert_eq!(ana(address).apply(&mut plan.clone(), &bound), Err(why.to_owned()));
        }
    }
}
