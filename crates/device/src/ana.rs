//! Asymmetric Namespace Access (Base 2.0, 8.1): in what state hosts find the groups of a subsystem's
//! namespaces by each of its ports.
//!
//! All ports lead to the same store, so that a state is what the drive's owner says of it: a port that is to
//! be used, one that is not, one that is about to be taken away.

use std::collections::BTreeMap;

use nearside_spec::Status;
use nearside_spec::log::{AnaGroup, AnaHeader};

use crate::subsystem::MAX_NSID;

/// The largest ANA group (ANAGRPMAX), and how many there are (NANAGRPID).
pub const MAX_ANA_GROUP: u32 = 128;
/// ANACAP: all five states are reported, and a namespace stays in its group.
pub(crate) const CAPABILITIES: u8 = 0x1f | 1 << 6;
/// Bytes of the log page, however much of it is said: hosts read as much as there could be, in pieces.
const PAGE: usize =
    AnaHeader::SIZE + MAX_ANA_GROUP as usize * AnaGroup::SIZE + MAX_NSID as usize * size_of::<u32>();
/// ANATT: how long a host waits in the state `change`, in seconds.
pub(crate) const TRANSITION_S: u8 = 10;

/// A state of a group on a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AnaState {
    /// This port is to be used.
    #[default]
    Optimized,
    /// Where no other is optimized, this one.
    NonOptimized,
    /// Its namespaces are not reached here for now.
    Inaccessible,
    /// Nor will they be.
    PersistentLoss,
    /// They are between two states.
    Change,
}

impl AnaState {
    /// All, by their numbers.
    pub const ALL: [AnaState; 5] = [
        AnaState::Optimized,
        AnaState::NonOptimized,
        AnaState::Inaccessible,
        AnaState::PersistentLoss,
        AnaState::Change,
    ];

    /// Its number in the log page.
    pub fn number(self) -> u8 {
        match self {
            AnaState::Optimized => 1,
            AnaState::NonOptimized => 2,
            AnaState::Inaccessible => 3,
            AnaState::PersistentLoss => 4,
            AnaState::Change => 0xf,
        }
    }

    /// Its name, as Linux's target has it.
    pub fn name(self) -> &'static str {
        match self {
            AnaState::Optimized => "optimized",
            AnaState::NonOptimized => "non-optimized",
            AnaState::Inaccessible => "inaccessible",
            AnaState::PersistentLoss => "persistent-loss",
            AnaState::Change => "change",
        }
    }

    /// By its name.
    pub fn of_name(name: &str) -> Option<AnaState> {
        AnaState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// What commands of a namespace in this state are answered; `None`: they are executed.
    pub(crate) fn bars(self) -> Option<Status> {
        match self {
            AnaState::Optimized | AnaState::NonOptimized => None,
            AnaState::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => Some(Status::ANA_TRANSITION),
        }
    }
}

/// The states of groups on one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStates {
    /// Of every group that is not named.
    pub all: AnaState,
    /// Of those that are.
    pub groups: BTreeMap<u32, AnaState>,
}

impl PortStates {
    /// Of one group.
    pub fn of(&self, group: u32) -> AnaState {
        self.groups.get(&group).copied().unwrap_or(self.all)
    }
}

/// A port's states, and how often they have changed.
#[derive(Debug, Default)]
struct Port {
    states: PortStates,
    changes: u64,
    of_groups: BTreeMap<u32, u64>,
}

/// What is known of a subsystem's ports. On one that nothing is known of, and for a controller behind none,
/// all is optimized.
#[derive(Debug, Default)]
pub(crate) struct Ports(BTreeMap<u16, Port>);

impl Ports {
    /// The state of a group for a controller's host.
    pub(crate) fn state(&self, port: Option<u16>, group: u32) -> AnaState {
        self.port(port).map_or(AnaState::Optimized, |port| port.states.of(group))
    }

    /// The states on a port.
    pub(crate) fn states(&self, number: u16) -> PortStates {
        self.0.get(&number).map(|port| port.states.clone()).unwrap_or_default()
    }

    fn port(&self, port: Option<u16>) -> Option<&Port> {
        self.0.get(&port?)
    }

    /// From now on a port has these states; whether any is another.
    pub(crate) fn set(&mut self, number: u16, states: PortStates) -> bool {
        let port = self.0.entry(number).or_default();
        let changed: Vec<u32> =
            (1..=MAX_ANA_GROUP).filter(|group| port.states.of(*group) != states.of(*group)).collect();
        for group in &changed {
            *port.of_groups.entry(*group).or_default() += 1;
        }
        port.changes += u64::from(!changed.is_empty());
        port.states = states;
        !changed.is_empty()
    }

    /// The log page for a controller's host: its namespaces by their groups; `alone`: groups without them.
    pub(crate) fn page(
        &self,
        port: Option<u16>,
        namespaces: &BTreeMap<u32, Vec<u32>>,
        alone: bool,
    ) -> Vec<u8> {
        let known = self.port(port);
        let mut header = AnaHeader::default();
        header.set_chgcnt(known.map_or(0, |port| port.changes)).set_ngrps(namespaces.len() as u16);
        let mut page = header.0.to_vec();
        for (&group, nsids) in namespaces {
            let nsids: &[u32] = if alone { &[] } else { nsids };
            let changes = known.and_then(|port| port.of_groups.get(&group).copied());
            let mut entry = AnaGroup::default();
            entry
                .set_agid(group)
                .set_nnv(nsids.len() as u32)
                .set_chgcnt(changes.unwrap_or(0))
                .set_state(self.state(port, group).number());
            page.extend(entry.0);
            page.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        page.resize(PAGE, 0);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(all: AnaState, groups: &[(u32, AnaState)]) -> PortStates {
        PortStates { all, groups: groups.iter().copied().collect() }
    }

    #[test]
    fn a_page_has_the_states_of_its_port_and_counts_their_changes() {
        let mut ports = Ports::default();
        let namespaces = BTreeMap::from([(1, vec![1, 2]), (7, vec![3])]);
        assert!(ports.set(4, states(AnaState::Inaccessible, &[(7, AnaState::Optimized)])));
        assert!(!ports.set(
            4,
            states(AnaState::Inaccessible, &[(7, AnaState::Optimized), (1, AnaState::Inaccessible)])
        ));
        assert!(ports.set(4, states(AnaState::Change, &[(7, AnaState::Optimized)])));
        let page = ports.page(Some(4), &namespaces, false);
        assert!(page.len() == 8208 && page[16 + 2 * 32 + 3 * 4..].iter().all(|byte| *byte == 0));
        let header = AnaHeader::from_bytes(&page);
        assert_eq!((header.chgcnt(), header.ngrps()), (2, 2));
        let first = AnaGroup::from_bytes(&page[16..]);
        assert_eq!((first.agid(), first.nnv(), first.chgcnt(), first.state()), (1, 2, 2, 0xf));
        assert_eq!(page[48..56], [1, 0, 0, 0, 2, 0, 0, 0]);
        let second = AnaGroup::from_bytes(&page[56..]);
        assert_eq!((second.agid(), second.nnv(), second.chgcnt(), second.state()), (7, 1, 0, 1));
        let alone = ports.page(Some(4), &namespaces, true);
        assert_eq!((AnaGroup::from_bytes(&alone[48..]).agid(), alone[80]), (7, 0));
        // Other ports, and no port, are as if nothing had been said.
        for port in [Some(0), None] {
            let page = ports.page(port, &namespaces, false);
            assert_eq!((page[0], AnaGroup::from_bytes(&page[16..]).state()), (0, 1), "{port:?}");
        }
    }

    #[test]
    fn names_and_numbers() {
        let numbers = AnaState::ALL.map(AnaState::number);
        assert_eq!(numbers, [1, 2, 3, 4, 0xf]);
        for state in AnaState::ALL {
            assert_eq!(AnaState::of_name(state.name()), Some(state));
        }
        assert_eq!(AnaState::of_name("optimised"), None);
    }
}
