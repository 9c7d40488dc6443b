//! Which user a drive takes the caller for. The uid and the gids in a request are the host's word; the
//! controller's configuration says what it is worth.

use nearside_device::Identity;
use nearside_near_data::Credentials;

/// Changes the credentials as the policy says. Returns what an error that comes of it has to say: who they
/// are now, and why. `Err`: such requests are refused.
pub(crate) fn apply(policy: Identity, who: &mut Credentials) -> Result<Option<String>, String> {
    let uid_asked = who.uid;
    // Said of few commands.
    let asked = || format!("user {uid_asked} of this host");
    match policy {
        Identity::Trust => Ok(None),
        Identity::Refuse => Err(format!("the drive answers no near-data requests of {}", asked())),
        Identity::SquashAll { uid, gid } => {
            *who = Credentials { uid, gid, groups: Vec::new() };
            Ok(Some(format!("the drive takes {} for {uid}:{gid}", asked())))
        }
        Identity::SquashRoot { uid, gid } => {
            if who.uid == 0 {
                *who = Credentials { uid, gid, groups: Vec::new() };
                return Ok(Some(format!(
                    "the drive takes root of this host for {uid}:{gid} (it does not squash whom it is told to trust)"
                )));
            }
            if who.gid != 0 && !who.groups.contains(&0) {
                return Ok(None);
            }
            if who.gid == 0 {
                who.gid = gid;
            }
            who.groups.retain(|&group| group != 0);
            Ok(Some(format!("the drive does not count {} to group 0", asked())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squash(policy: Identity, uid: u32, gid: u32, groups: &[u32]) -> (u32, u32, Vec<u32>, bool) {
        let mut who = Credentials { uid, gid, groups: groups.to_vec() };
        let note = apply(policy, &mut who).unwrap();
        (who.uid, who.gid, who.groups, note.is_some())
    }

    #[test]
    fn root_alone_is_squashed_unless_all_are() {
        let root = Identity::SquashRoot { uid: 65534, gid: 65533 };
        assert_eq!(squash(root, 0, 0, &[0, 27]), (65534, 65533, vec![], true));
        assert_eq!(squash(root, 1000, 1000, &[27]), (1000, 1000, vec![27], false));
        assert_eq!(squash(root, 1000, 0, &[27]), (1000, 65533, vec![27], true));
        assert_eq!(squash(root, 1000, 1000, &[0, 27]), (1000, 1000, vec![27], true));
        assert_eq!(squash(Identity::SquashAll { uid: 7, gid: 8 }, 1000, 1000, &[27]), (7, 8, vec![], true));
        assert_eq!(squash(Identity::Trust, 0, 0, &[0]), (0, 0, vec![0], false));
        let mut who = Credentials { uid: 5, gid: 5, groups: vec![] };
        assert!(apply(Identity::Refuse, &mut who).unwrap_err().contains("user 5"));
    }
}
