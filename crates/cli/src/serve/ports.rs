//! Which way to a subsystem's namespaces is to be used: the states of their ANA groups by each address.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use nearside_device::{AnaState, MAX_ANA_GROUP, PortStates};
use nearside_spec::fabrics::PORT;
use serde::{Deserialize, Serialize};

use super::plan::{AnaName, Plan, SubsystemPlan, resolve};

/// What state groups have by an address.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PortPlan {
    /// One of those at which hosts are awaited.
    pub listen: String,
    pub ana_state: AnaName,
    /// Which; without it, all that are not named for the same address.
    pub ana_groups: Option<BTreeSet<u32>>,
}

/// Whether two words are one address, where `usual` is the port unless one is given.
pub fn same(one: &str, other: &str, usual: u16) -> bool {
    one == other || resolve(one, usual).is_ok_and(|at| resolve(other, usual) == Ok(at))
}

/// An address at which hosts are awaited.
pub struct Bound {
    /// As the plan has it.
    pub word: String,
    /// The port that is meant where that says none.
    pub usual: u16,
    /// As it is: where the word says port 0, the system has chosen one.
    pub at: SocketAddr,
}

/// The place of an address among those words of a plan for which `usual` is the port unless one is given: by
/// the word, or else by what it was bound to. `None`: it is none of them.
///
/// # Errors
/// It is bound by a word that stands there more than once.
pub fn place(words: &[String], usual: u16, address: &str, bound: &[Bound]) -> Result<Option<usize>, String> {
    if let Some(at) = words.iter().position(|word| same(word, address, usual)) {
        return Ok(Some(at));
    }
    let Ok(at) = resolve(address, usual) else { return Ok(None) };
    let Some(Bound { word, .. }) = bound.iter().find(|bound| bound.usual == usual && bound.at == at) else {
        return Ok(None);
    };
    let mut all = (0..words.len()).filter(|nth| words[*nth] == *word);
    match (all.next(), all.next()) {
        (_, Some(_)) => Err(format!("{address} is one of several that are configured as {word}")),
        (one, None) => Ok(one),
    }
}

impl Plan {
    /// Whether hosts are awaited there.
    pub fn listens(&self, address: &str) -> bool {
        self.listen.iter().any(|word| same(word, address, PORT))
    }
}

impl SubsystemPlan {
    /// The states of its groups by an address.
    pub fn ana(&self, listen: &str) -> PortStates {
        let mut states = PortStates::default();
        for port in self.port.iter().filter(|port| same(&port.listen, listen, PORT)) {
            match &port.ana_groups {
                None => states.all = port.ana_state.0,
                Some(groups) => states.groups.extend(groups.iter().map(|group| (*group, port.ana_state.0))),
            }
        }
        states
    }

    /// Some groups, or all, have a state by an address from now on.
    pub fn set_ana(&mut self, listen: &str, state: AnaName, groups: Option<BTreeSet<u32>>) {
        let Some(groups) = groups else {
            self.port.retain(|port| !same(&port.listen, listen, PORT));
            if state.0 != AnaState::default() {
                self.port.push(PortPlan { listen: listen.to_owned(), ana_state: state, ana_groups: None });
            }
            return;
        };
        for port in self.port.iter_mut().filter(|port| same(&port.listen, listen, PORT)) {
            if let Some(of) = &mut port.ana_groups {
                of.retain(|group| !groups.contains(group));
            }
        }
        self.port.retain(|port| port.ana_groups.as_ref().is_none_or(|groups| !groups.is_empty()));
        if self.ana(listen).all == state.0 {
            return;
        }
        let is = |port: &&mut PortPlan| same(&port.listen, listen, PORT) && port.ana_state == state;
        match self.port.iter_mut().find(is).and_then(|port| port.ana_groups.as_mut()) {
            Some(there) => there.extend(groups),
            None => self.port.push(PortPlan {
                listen: listen.to_owned(),
                ana_state: state,
                ana_groups: Some(groups),
            }),
        }
    }
}

/// What is wrong with the states of a plan's ports.
pub fn faults(plan: &Plan) -> Vec<String> {
    let mut faults = Vec::new();
    for subsystem in &plan.subsystem {
        let mut said = BTreeSet::new();
        for PortPlan { listen, ana_state: AnaName(state), ana_groups } in &subsystem.port {
            let named = format!("port {listen} of {}", subsystem.nqn);
            if !plan.listens(listen) {
                faults.push(format!("{named}: listen has no such address"));
            }
            let at = resolve(listen, PORT).map_or(listen.clone(), |at| at.to_string());
            let groups = ana_groups.iter().flatten().copied();
            for group in groups.clone().filter(|group| !(1..=MAX_ANA_GROUP).contains(group)) {
                faults.push(format!("{named}: ANA group {group}; it can be 1 to {MAX_ANA_GROUP}"));
            }
            let state = state.name();
            if !said.insert((at.clone(), Err(state))) {
                faults.push(format!("{named}: {state} is there more than once"));
            }
            // 0 is none.
            let all: Vec<u32> = if ana_groups.is_none() { vec![0] } else { groups.collect() };
            for group in all {
                if !said.insert((at.clone(), Ok(group))) {
                    let which = if group == 0 { "all groups".into() } else { format!("ANA group {group}") };
                    faults.push(format!("{named}: {which} more than once"));
                }
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACE: &str = "[[subsystem.namespace]]\nnsid = 1\nstore = 'dram:1MiB'\n";

    fn plan(ports: &str) -> Plan {
        let text = format!(
            "listen = ['127.0.0.1', '127.0.0.1:2']\n[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\n{ports}\n{NAMESPACE}"
        );
        toml::from_str(&text).unwrap()
    }

    fn port(listen: &str, state: &str, groups: &str) -> String {
        format!("[[subsystem.port]]\nlisten = '{listen}'\nana-state = '{state}'\n{groups}\n")
    }

    #[test]
    fn faults_of_ports() {
        let two = [
            port("127.0.0.1:4420", "inaccessible", ""),
            port("127.0.0.1", "optimized", "ana-groups = [1, 128]"),
        ];
        assert_eq!(faults(&plan(&two.concat())), Vec::<String>::new());
        for (ports, fault) in [
            (port("127.0.0.1:3", "change", ""), "listen has no such address"),
            (port("127.0.0.1", "change", "ana-groups = [129]"), "ANA group 129; it can be 1 to 128"),
            (port("127.0.0.1", "change", "ana-groups = [0]"), "ANA group 0; it can be 1 to 128"),
            (
                [&two[0], &*port("127.0.0.1", "inaccessible", "ana-groups = [1]")].concat(),
                "inaccessible is there more",
            ),
            ([&two[0], &*port("127.0.0.1", "change", "")].concat(), "all groups more than once"),
            (
                [&two[1], &*port("127.0.0.1:4420", "change", "ana-groups = [128]")].concat(),
                "ANA group 128 more than",
            ),
        ] {
            let found = faults(&plan(&ports));
            assert!(found.len() == 1 && found[0].contains(fault), "{fault}: {found:?}");
        }
        assert!(
            "optimised".parse::<AnaName>().unwrap_err().contains("optimized, non-optimized, inaccessible")
        );
    }

    #[test]
    fn what_is_set_holds_and_is_no_fault() {
        let mut plan = plan("");
        let mut expected = PortStates::default();
        let all = AnaState::ALL.map(AnaName);
        let mut random = nearside_random::Rng(7);
        for _ in 0..2_000 {
            let state = all[random.below(5) as usize];
            let listen = if random.below(2) == 0 { "127.0.0.1" } else { "127.0.0.1:4420" };
            let group = 1 + random.below(3) as u32;
            if random.below(6) == 0 {
                plan.subsystem[0].set_ana(listen, state, None);
                expected = PortStates { all: state.0, ..PortStates::default() };
            } else {
                plan.subsystem[0].set_ana(listen, state, Some([group].into()));
                expected.groups.insert(group, state.0);
            }
            assert_eq!(faults(&plan), Vec::<String>::new());
            let states = plan.subsystem[0].ana("127.0.0.1:4420");
            for group in 1..=4 {
                assert_eq!(states.of(group), expected.of(group), "{group}: {:?}", plan.subsystem[0].port);
            }
            assert_eq!(plan.subsystem[0].ana("127.0.0.1:2"), PortStates::default());
        }
    }
}
