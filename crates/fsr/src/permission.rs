//! Who may do what: the kernel's order of checks (owner; access control list; group; others; root's
//! capabilities).

use nearside_fsview::FileKind;
use nearside_fsview::acl::{Acl, AclEntry};
use nearside_near_data::Credentials;

pub(crate) const READ: u8 = 4;
pub(crate) const EXECUTE: u8 = 1;

/// What an inode says about permission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub kind: FileKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
}

/// What is known of an inode's access control list.
#[derive(Clone, Debug)]
pub(crate) enum AclState {
    /// Not looked at yet.
    Unknown,
    /// It has none.
    None,
    /// It has this one.
    Some(std::sync::Arc<Acl>),
}

impl AclState {
    /// What an inode with it weighs in the cache: 1, and the more the longer the list is. Many inodes may say
    /// that theirs is in one inode of attributes, of 64 KiB.
    pub(crate) fn weight(&self) -> usize {
        const ONE: usize = 512;
        match self {
            AclState::Unknown | AclState::None => 1,
            AclState::Some(acl) => 1 + acl.entries.capacity() * size_of::<AclEntry>() / ONE,
        }
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Yes,
    No,
    /// It depends on the access control list, which is not known yet.
    AskAcl,
}

fn in_group(who: &Credentials, gid: u32) -> bool {
    who.gid == gid || who.groups.contains(&gid)
}

/// Whether `who` may do `want` (bits as in a mode).
#[inline]
pub(crate) fn may(who: &Credentials, owner: Owner, acl: &AclState, want: u8) -> Verdict {
    let bits = |shift: u32| (owner.mode >> shift) as u8 & 7;
    if who.uid == 0 {
        // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: all but executing what nobody may execute.
        let executes_file = want & EXECUTE != 0 && owner.kind != FileKind::Directory;
        return if executes_file && owner.mode & 0o111 == 0 { Verdict::No } else { Verdict::Yes };
    }
    let granted = if who.uid == owner.uid {
        bits(6)
    } else {
        // Without any bit in the group class the list's mask is empty, and the kernel does not look at it.
        if bits(3) != 0 {
            match acl {
                AclState::Unknown => return Verdict::AskAcl,
                AclState::None => {}
                AclState::Some(acl) => {
                    return if by_acl(who, owner, acl, want) { Verdict::Yes } else { Verdict::No };
                }
            }
        }
        if in_group(who, owner.gid) { bits(3) } else { bits(0) }
    };
    if want & !granted == 0 { Verdict::Yes } else { Verdict::No }
}

fn by_acl(who: &Credentials, owner: Owner, acl: &Acl, want: u8) -> bool {
    let has = |perm: u8| perm & want == want;
    let mask = acl.entries.iter().find_map(|e| match e {
        AclEntry::Mask(perm) => Some(*perm),
        _ => None,
    });
    let masked = |perm: u8| has(perm & mask.unwrap_or(7));
    let mut group_found = false;
    for entry in &acl.entries {
        match *entry {
            AclEntry::UserObj(perm) if owner.uid == who.uid => return has(perm),
            AclEntry::User(uid, perm) if uid == who.uid => return masked(perm),
            AclEntry::GroupObj(perm) if in_group(who, owner.gid) => {
                group_found = true;
                if has(perm) {
                    return masked(perm);
                }
            }
            AclEntry::Group(gid, perm) if in_group(who, gid) => {
                group_found = true;
                if has(perm) {
                    return masked(perm);
                }
            }
            AclEntry::Other(perm) => return !group_found && has(perm),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_weighs_more_than_its_inode() {
        let of = |entries| AclState::Some(Acl { entries: vec![AclEntry::User(7, 4); entries] }.into());
        assert_eq!((AclState::None.weight(), of(6).weight()), (1, 1));
        assert!((128..=130).contains(&of(8191).weight()), "{}", of(8191).weight());
    }
}
