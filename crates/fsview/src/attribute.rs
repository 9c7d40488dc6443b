//! Extended attributes as the kernel shows them, of either file system: their names' first parts are numbers
//! on the volume, and the same ones (S: fs/ext4/xattr.h, fs/f2fs/xattr.h).

use crate::acl::Acl;

/// Number of `system.posix_acl_access`, whose name is no longer than that.
pub(crate) const ACL_ACCESS: u8 = 2;
/// Number of `system.posix_acl_default`.
pub(crate) const ACL_DEFAULT: u8 = 3;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// With its namespace: `user.comment`.
    pub name: Vec<u8>,
    /// Bytes of its value.
    pub len: u32,
    pub(crate) value: Value,
}

/// Where its value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Here.
    Here(Vec<u8>),
    /// In an inode of that number (ext's feature ea_inode).
    Inode(u32),
}

impl Attribute {
    /// One whose value is at hand; of an ACL, as the system calls have it. `None`: the kernel shows none of
    /// that kind. The error: an ACL that is none.
    pub(crate) fn of(index: u8, name: &[u8], value: &[u8]) -> Result<Option<Attribute>, &'static str> {
        let Some(full) = full_name(index, name) else { return Ok(None) };
        let value = match index {
            ACL_ACCESS | ACL_DEFAULT => Acl::parse(value).ok_or("a malformed ACL")?.to_attribute(),
            _ => value.to_vec(),
        };
        Ok(Some(Attribute {
            name: full,
            len: u32::try_from(value.len()).unwrap_or(u32::MAX),
            value: Value::Here(value),
        }))
    }
}

/// The name that the kernel shows for a number and the rest of a name; `None` where it shows none.
pub(crate) fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let prefix: &[u8] = match (index, name) {
        (1, _) => b"user.",
        (ACL_ACCESS, b"") => b"system.posix_acl_access",
        (ACL_DEFAULT, b"") => b"system.posix_acl_default",
        (4, _) => b"trusted.",
        (6, _) => b"security.",
        _ => return None,
    };
    Some([prefix, name].concat())
}
