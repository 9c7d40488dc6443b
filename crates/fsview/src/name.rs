//! What may stand as a name and as a link's target on a volume: one rule for both file systems.
//!
//! The kernel's own calls take no other names, so that a volume that holds one was made by hand. Whoever
//! joined it to a path would name, and follow, another file.

/// Longest name in a directory, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes: a path with its NUL has 4096.
const TARGET_MAX: usize = 4095;

/// Whether a directory may list this; "." and ".." are no names. The error says what is wrong.
pub(crate) fn check(name: &[u8]) -> Result<(), &'static str> {
    match name {
        [] => Err("a name of no bytes"),
        b"." | b".." => Err("\".\" or \"..\" out of its place"),
        _ if name.len() > NAME_MAX => Err("a name of more than 255 bytes"),
        _ if !name.iter().any(|byte| matches!(byte, 0 | b'/')) => Ok(()),
        _ if name.contains(&b'/') => Err("a name with a slash in it"),
        _ => Err("a name with a NUL in it"),
    }
}

/// Whether a link of `size` bytes may lead there.
pub(crate) fn check_target(target: &[u8], size: u64) -> Result<(), String> {
    let len = u64::try_from(target.len()).unwrap_or(u64::MAX);
    if len != size || target.is_empty() || target.len() > TARGET_MAX {
        return Err(format!("a target of {size} bytes"));
    }
    match target.contains(&0) {
        true => Err(format!("a NUL in its target of {size} bytes")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in [&b"a"[..], b"...", b".a", b"a\\b", b"\xFF\n", &[b'x'; 255]] {
            assert_eq!(check(good), Ok(()));
        }
        for bad in [&b""[..], b".", b"..", b"/", b"a/b", b"../../etc", b"a\0", &[b'x'; 256]] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn targets() {
        assert_eq!(check_target(b"../a/b", 6), Ok(()));
        assert_eq!(check_target(&[b'x'; 4095], 4095), Ok(()));
        for (bad, size) in [(&b""[..], 0), (b"a\0b", 3), (b"short", 9), (&[b'x'; 4096], 4096)] {
            assert!(check_target(bad, size).is_err(), "{bad:?}");
        }
    }
}
