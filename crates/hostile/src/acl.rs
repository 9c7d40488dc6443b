//! POSIX access ACLs: the form itself, and the attributes of both file systems that hold it.

use nearside_fsview::acl::{Acl, AclEntry};

use crate::structure;

/// First byte even: the rest is an ACL as it lies on a volume. Odd:
/// an input over attributes, see [`structure`].
pub fn run(input: &[u8]) {
    let Some((which, rest)) = input.split_first() else { return };
    if which % 2 == 1 {
        return structure::attributes(rest);
    }
    let Some(acl) = Acl::parse(rest) else { return };
    // What was read says all that was there.
    let mut bytes = 1u32.to_le_bytes().to_vec();
    for entry in acl.entries {
        let (tag, perm, id) = match entry {
            AclEntry::UserObj(perm) => (1u16, perm, None),
            AclEntry::User(id, perm) => (2, perm, Some(id)),
            AclEntry::GroupObj(perm) => (4, perm, None),
            AclEntry::Group(id, perm) => (8, perm, Some(id)),
            AclEntry::Mask(perm) => (0x10, perm, None),
            AclEntry::Other(perm) => (0x20, perm, None),
        };
        bytes.extend(tag.to_le_bytes());
        bytes.extend(u16::from(perm).to_le_bytes());
        bytes.extend(id.into_iter().flat_map(u32::to_le_bytes));
    }
    assert_eq!(bytes, rest);
}

/// An ACL as the kernel wrote one, and the attributes of all volumes.
pub fn seeds() -> Vec<Vec<u8>> {
    let words: &[u16] = &[1, 0, 1, 6, 2, 4, 1001, 0, 4, 4, 8, 5, 27, 0, 16, 7, 32, 0];
    let mut all = vec![[vec![0], words.iter().flat_map(|w| w.to_le_bytes()).collect()].concat()];
    all.extend(structure::attribute_seeds().into_iter().map(|seed| [vec![1], seed].concat()));
    all
}
