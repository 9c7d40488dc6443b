//! POSIX access control lists as both file systems keep them (xattrs `system.posix_acl_access` and
//! `system.posix_acl_default`; S: fs/ext4/acl.c, fs/f2fs/acl.c: version 1, entries of 4 bytes, or 8 with an
//! id), and as system calls have them (S: include/uapi/linux/posix_acl_xattr.h).

/// An ACL, as checked by [`Acl::parse`].
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

/// Version of the form that system calls have (`POSIX_ACL_XATTR_VERSION`).
const CALLS: u32 = 2;
/// The id of an entry without one (`ACL_UNDEFINED_ID`).
const NO_ID: u32 = u32::MAX;

impl AclEntry {
    /// By its number. `None`: there is none of it.
    fn of(tag: u16, perm: u16, id: impl FnOnce() -> Option<u32>) -> Option<AclEntry> {
        let perm = u8::try_from(perm).ok().filter(|p| *p <= 7)?;
        Some(match tag {
            0x01 => AclEntry::UserObj(perm),
            0x02 => AclEntry::User(id()?, perm),
            0x04 => AclEntry::GroupObj(perm),
            0x08 => AclEntry::Group(id()?, perm),
            0x10 => AclEntry::Mask(perm),
            0x20 => AclEntry::Other(perm),
            _ => return None,
        })
    }

    /// Its number, permissions and, where it has one, its id.
    fn parts(self) -> (u16, u8, Option<u32>) {
        match self {
            AclEntry::UserObj(perm) => (0x01, perm, None),
            AclEntry::User(id, perm) => (0x02, perm, Some(id)),
            AclEntry::GroupObj(perm) => (0x04, perm, None),
            AclEntry::Group(id, perm) => (0x08, perm, Some(id)),
            AclEntry::Mask(perm) => (0x10, perm, None),
            AclEntry::Other(perm) => (0x20, perm, None),
        }
    }
}

impl Acl {
    /// Parses the form that system calls have (`getxattr`: version 2, entries of 8 bytes). `None` where it is
    /// not well-formed.
    pub fn of_attribute(bytes: &[u8]) -> Option<Acl> {
        let (version, rest) = bytes.split_first_chunk::<4>()?;
        let (entries, left) = rest.as_chunks::<8>();
        if u32::from_le_bytes(*version) != CALLS || !left.is_empty() {
            return None;
        }
        let entry = |[a, b, c, d, id @ ..]: &[u8; 8]| {
            AclEntry::of(u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]), || {
                Some(u32::from_le_bytes(*id))
            })
        };
        Some(Acl { entries: entries.iter().map(entry).collect::<Option<_>>()? })
    }

    /// As system calls have it.
    pub fn to_attribute(&self) -> Vec<u8> {
        let mut bytes = CALLS.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, perm, id) = entry.parts();
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&u16::from(perm).to_le_bytes());
            bytes.extend_from_slice(&id.unwrap_or(NO_ID).to_le_bytes());
        }
        bytes
    }

    /// As acl(5) has it in one line, with numbers for users and groups: `user::rw-,user:7:r--,...`.
    pub fn text(&self) -> String {
        let entry = |entry: &AclEntry| {
            let (tag, perm, id) = entry.parts();
            let who = match tag {
                0x01 | 0x02 => "user",
                0x04 | 0x08 => "group",
                0x10 => "mask",
                _ => "other",
            };
            let id = id.map(|id| id.to_string()).unwrap_or_default();
            let bit = |bit: u8, letter| if perm & bit == 0 { '-' } else { letter };
            format!("{who}:{id}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))
        };
        self.entries.iter().map(entry).collect::<Vec<_>>().join(",")
    }

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
            let id = || {
                let (id, after) = rest.split_first_chunk::<4>()?;
                rest = after;
                Some(u32::from_le_bytes(*id))
            };
            entries.push(AclEntry::of(u16::from_le_bytes([tag_low, tag_high]), perm, id)?);
        }
        Some(Acl { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let stored: Vec<u8> = [1u16, 0, 1, 6, 2, 4, 1001, 0, 4, 4, 8, 5, 27, 0, 16, 7, 32, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let acl = Acl::parse(&stored).unwrap();
        assert_eq!(acl.text(), "user::rw-,user:1001:r--,group::r--,group:27:r-x,mask::rwx,other::---");
        let bytes = acl.to_attribute();
        assert_eq!(bytes.len(), 4 + 6 * 8);
        assert_eq!(Acl::of_attribute(&bytes), Some(acl));
        for damaged in [&bytes[..bytes.len() - 1], &bytes[..3], &stored] {
            assert_eq!(Acl::of_attribute(damaged), None);
        }
    }
}
