//! Extended attributes of what is copied, ACLs among them: taken from the drive's answers, and given to
//! copies by the habits of GNU cp. ACLs go with modes, and one that cannot be set is said; of all others,
//! which `-a` copies, nothing is said where the host or its file system does not take them.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};

use nearside_fsrlib::{Failure as Refusal, Record, describe};
use rustix::fs::{
    XattrFlags, fgetxattr, fremovexattr, fsetxattr, getxattr, lgetxattr, lremovexattr, lsetxattr,
    removexattr, setxattr,
};
use rustix::io::Errno;

/// Files that are asked about together.
pub const TOGETHER: usize = 16;
/// Bytes of attributes after which what has them is copied, before more are asked for.
pub const KEPT: usize = 8 << 20;
/// Most bytes of one file's.
const MOST: usize = 4 << 20;
/// The ACL of a file.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The ACL that what is made in a directory begins with.
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// What libattr, by which GNU cp copies, leaves out (its xattr.conf): it is of the machine or the file
/// system.
const LEFT_OUT: [&[u8]; 5] = [b"security.evm", b"trusted.SGI_", b"xfsroot.", b"user.Beagle.", b"afs."];

/// One of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// With its namespace.
    pub name: Vec<u8>,
    /// As the system calls have it.
    pub value: Vec<u8>,
}

impl Attribute {
    /// Whether it is an ACL.
    pub fn is_acl(&self) -> bool {
        self.name == ACL_ACCESS || self.name == ACL_DEFAULT
    }

    /// Whether it is the ACL of the file itself, of which the mode's bits for the group are the mask.
    pub fn is_access_acl(&self) -> bool {
        self.name == ACL_ACCESS
    }

    /// Whether it is the ACL that others begin with.
    pub fn is_default_acl(&self) -> bool {
        self.name == ACL_DEFAULT
    }
}

/// Which of them are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    None,
    /// As modes are.
    Acls,
    All,
}

impl Which {
    fn has(self, attribute: &Attribute) -> bool {
        match self {
            Which::None => false,
            Which::Acls => attribute.is_acl(),
            Which::All => !LEFT_OUT.iter().any(|prefix| attribute.name.starts_with(prefix)),
        }
    }
}

/// Those of one file, as they come.
#[derive(Default)]
pub struct Taking {
    all: Vec<Attribute>,
    /// Bytes that the last one's value has in all.
    len: u64,
    bytes: usize,
    failed: Option<String>,
}

impl Taking {
    /// Takes what a drive says of the file. Breaks where the rest of what it says is not wanted.
    pub fn take(&mut self, answer: Result<Record<'_>, Refusal>) -> ControlFlow<()> {
        let (taken, flow) = match answer {
            Ok(Record::Attribute { name, len, offset, value }) => {
                (self.part(&name, (len, offset), &value), ControlFlow::Break(()))
            }
            Ok(Record::Failed { failure, .. }) | Err(failure) => {
                (Err(describe(&failure).into_owned()), ControlFlow::Continue(()))
            }
            Ok(_) => (Ok(()), ControlFlow::Continue(())),
        };
        let Err(why) = taken else { return ControlFlow::Continue(()) };
        self.failed.get_or_insert(why);
        flow
    }

    fn part(&mut self, name: &[u8], (len, offset): (u64, u64), value: &[u8]) -> Result<(), String> {
        let changed = || describe(&Refusal::ChangedDuringScan).into_owned();
        if offset == 0 {
            self.whole().map_err(|()| changed())?;
            if name.is_empty() || name.contains(&0) {
                return Err("the drive gives one without a name".to_owned());
            }
            self.all.push(Attribute { name: name.to_vec(), value: Vec::new() });
            self.len = len;
        }
        self.bytes = self.bytes.saturating_add(name.len()).saturating_add(value.len());
        if self.bytes > MOST {
            return Err(format!("more than {} MiB of them", MOST >> 20));
        }
        match self.all.last_mut() {
            Some(last) if last.name == name && last.value.len() as u64 == offset && self.len == len => {
                last.value.extend_from_slice(value);
                Ok(())
            }
            _ => Err(changed()),
        }
    }

    fn whole(&self) -> Result<(), ()> {
        match self.all.last() {
            Some(last) if last.value.len() as u64 != self.len => Err(()),
            _ => Ok(()),
        }
    }

    /// Those that are copied, and how many bytes they have.
    ///
    /// # Errors
    /// Why they are not to be had.
    pub fn finish(mut self, which: Which) -> Result<(Vec<Attribute>, usize), String> {
        let changed = || describe(&Refusal::ChangedDuringScan).into_owned();
        let failed = self.failed.take().or_else(|| self.whole().is_err().then(changed));
        if let Some(why) = failed {
            return Err(format!("Extended attributes are not copied: {why}"));
        }
        let mut all = self.all;
        all.retain(|attribute| which.has(attribute));
        Ok((all, self.bytes))
    }
}

/// A copy on this host, as its attributes are reached.
pub enum Copied<'a> {
    Open(&'a File),
    /// A name in a folder; `.` is the folder itself. No link is followed.
    Named(&'a OwnedFd, &'a [u8]),
    /// What is open as a path alone, and is no link.
    Path(&'a OwnedFd),
}

impl Copied<'_> {
    /// What is open as a path alone, for calls that take no such descriptor.
    pub fn itself(file: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }

    /// There are no such calls for a name in an open folder, which may be open as a path alone.
    fn path(folder: &OwnedFd, name: &[u8]) -> Vec<u8> {
        [Self::itself(folder).as_bytes(), b"/", name].concat()
    }

    fn set(&self, attribute: &Attribute) -> rustix::io::Result<()> {
        let (name, value, flags) = (&attribute.name[..], &attribute.value, XattrFlags::empty());
        match self {
            Copied::Open(file) => fsetxattr(file, name, value, flags),
            Copied::Named(folder, file) => lsetxattr(Self::path(folder, file), name, value, flags),
            Copied::Path(file) => setxattr(Self::itself(file), name, value, flags),
        }
    }

    fn has(&self, name: &[u8]) -> rustix::io::Result<bool> {
        let mut none = [0; 0];
        let len = match self {
            Copied::Open(file) => fgetxattr(file, name, &mut none),
            Copied::Named(folder, file) => lgetxattr(Self::path(folder, file), name, &mut none),
            Copied::Path(file) => getxattr(Self::itself(file), name, &mut none),
        };
        match len {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
            len => len.map(|_| true),
        }
    }

    fn remove(&self, name: &[u8]) -> rustix::io::Result<()> {
        match self {
            Copied::Open(file) => fremovexattr(file, name),
            Copied::Named(folder, file) => lremovexattr(Self::path(folder, file), name),
            Copied::Path(file) => removexattr(Self::itself(file), name),
        }
    }

    /// Gives it what is no ACL, as far as the caller may and the file system keeps such.
    pub fn give(&self, attributes: &[Attribute]) {
        for attribute in attributes.iter().filter(|attribute| !attribute.is_acl()) {
            let _ = self.set(attribute);
        }
    }

    /// Takes away the ACLs that it has of the folder it was made in.
    ///
    /// # Errors
    /// One that cannot be taken away.
    pub fn remove_acls(&self) -> rustix::io::Result<()> {
        // Only directories have those of what is made in them.
        let names: &[&[u8]] = match self {
            Copied::Open(_) => &[ACL_ACCESS],
            _ => &[ACL_ACCESS, ACL_DEFAULT],
        };
        for name in names {
            if self.has(name)? {
                match self.remove(name) {
                    Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    /// Gives it the ACLs among those.
    ///
    /// # Errors
    /// One that cannot be given.
    pub fn give_acls(&self, attributes: &[Attribute]) -> rustix::io::Result<()> {
        attributes.iter().filter(|attribute| attribute.is_acl()).try_for_each(|acl| self.set(acl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part<'a>(name: &'a str, len: u64, offset: u64, value: &'a [u8]) -> Result<Record<'a>, Refusal> {
        Ok(Record::Attribute { name: name.as_bytes().into(), len, offset, value: value.into() })
    }

    #[test]
    fn parts_become_one_and_what_does_not_fit_is_said() {
        let taken = |parts: Vec<Result<Record<'_>, Refusal>>| {
            let mut taking = Taking::default();
            for part in parts {
                if taking.take(part).is_break() {
                    break;
                }
            }
            taking.finish(Which::All).map(|(all, _)| all)
        };
        let parts = vec![
            part("user.a", 5, 0, b"abc"),
            part("user.a", 5, 3, b"de"),
            part("security.evm", 1, 0, b"x"),
            part("user.b", 0, 0, b""),
        ];
        let one = |name: &str, value: &[u8]| Attribute { name: name.into(), value: value.into() };
        assert_eq!(taken(parts), Ok(vec![one("user.a", b"abcde"), one("user.b", b"")]));
        for damaged in [
            vec![part("user.a", 5, 0, b"abc")],
            vec![part("user.a", 5, 0, b"abc"), part("user.b", 1, 0, b"x")],
            vec![part("user.a", 5, 0, b"abc"), part("user.a", 5, 4, b"e")],
            vec![part("user.a", 5, 3, b"de")],
            vec![part("", 1, 0, b"x")],
        ] {
            assert!(taken(damaged.clone()).is_err(), "{damaged:?}");
        }
        let large = vec![0; 1 << 20];
        let many = (0..5).map(|_| part("user.a", 1 << 20, 0, &large)).collect();
        assert!(taken(many).unwrap_err().contains("4 MiB"));
    }
}
