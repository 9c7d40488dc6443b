//! POSIX access control lists as both file systems keep them (xattr `system.posix_acl_access`; S:
//! fs/ext4/acl.c, fs/f2fs/acl.c: version 1, entries of 4 bytes, or 8 with an id).

/// An access ACL, as checked by [`Acl::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// In the volume's order.
    pub entries: Vec<AclEntry>,
}

/// One entry. Permissions are the low three bits: 4 read, 2 write, 1 execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclEntry {
    /// The owner.
    UserObj(u8),
    /// A named user.
    User(u32, u8),
    /// The owning group.
    GroupObj(u8),
    /// A named group.
    Group(u32, u8),
    /// The most that named users and all groups get.
    Mask(u8),
    /// Everybody else.
    Other(u8),
}

impl Acl {
    /// Parses the on-disk form. `None` where it is not well-formed.
    pub fn parse(bytes: &[u8]) -> Option<Acl> {
        let (version, mut rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != 1 {
            return None;
        }
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (head, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            let [tag_low, tag_high, perm_low, perm_high] = *head;
            let perm = u16::from_le_bytes([perm_low, perm_high]);
            let perm = u8::try_from(perm).ok().filter(|p| *p <= 7)?;
            let mut id = || {
                let (id, after) = rest.split_first_chunk::<4>()?;
                rest = after;
                Some(u32::from_le_bytes(*id))
            };
            entries.push(match u16::from_le_bytes([tag_low, tag_high]) {
                0x01 => AclEntry::UserObj(perm),
                0x02 => AclEntry::User(id()?, perm),
                0x04 => AclEntry::GroupObj(perm),
                0x08 => AclEntry::Group(id()?, perm),
                0x10 => AclEntry::Mask(perm),
                0x20 => AclEntry::Other(perm),
                _ => return None,
            });
        }
        Some(Acl { entries })
    }
}
