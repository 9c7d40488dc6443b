//! NVMe qualified names (Base 2.0, 4.5): UTF-8, at most 223 bytes,
//! `nqn.YYYY-MM.REVERSED.DOMAIN:ANY` or the form with a UUID.

use alloc::format;
use alloc::string::String;

/// Longest name, in bytes without its terminator.
pub const MAX: usize = 223;
/// Bytes of a name's field in Connect data and log pages, NUL-terminated and zero-padded.
pub const FIELD: usize = 256;
/// The well-known name of every discovery subsystem.
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// What a name with a UUID begins with.
pub const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Why a name is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// Longer than [`MAX`], or without its terminator.
    TooLong,
    /// Not UTF-8, or with control characters.
    NotText,
    /// Does not begin with `nqn.YYYY-MM.` and a domain.
    NotQualified,
}

impl core::fmt::Display for NqnError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            NqnError::TooLong => "an NQN has at most 223 bytes",
            NqnError::NotText => "an NQN is UTF-8 without control characters",
            NqnError::NotQualified => "an NQN begins with nqn.YYYY-MM.REVERSED.DOMAIN",
        })
    }
}

impl core::error::Error for NqnError {}

/// Whether `name` is an NQN.
///
/// # Errors
/// [`NqnError`]: what is wrong with it.
pub fn check(name: &str) -> Result<(), NqnError> {
    if name.len() > MAX {
        return Err(NqnError::TooLong);
    }
    if name.chars().any(char::is_control) {
        return Err(NqnError::NotText);
    }
    let dated = |rest: &[u8]| {
        let (Some(date), Some(domain)) = (rest.get(..8), rest.get(8..)) else { return false };
        let shaped = date.iter().zip(b"0000-00.").all(|(have, want)| match want {
            b'0' => have.is_ascii_digit(),
            _ => have == want,
        });
        shaped && domain.first().is_some_and(u8::is_ascii_alphanumeric)
    };
    match name.strip_prefix("nqn.") {
        Some(rest) if dated(rest.as_bytes()) => Ok(()),
        _ => Err(NqnError::NotQualified),
    }
}

/// The name in a field, checked.
///
/// # Errors
/// [`NqnError`]: the field has no terminator or holds no NQN.
pub fn from_field(field: &[u8; FIELD]) -> Result<&str, NqnError> {
    let end = field.iter().position(|&b| b == 0).ok_or(NqnError::TooLong)?;
    let name = field.get(..end).unwrap_or(&[]);
    let name = core::str::from_utf8(name).map_err(|_| NqnError::NotText)?;
    check(name)?;
    Ok(name)
}

/// A field with the name, of which what exceeds [`MAX`] is left out.
pub fn to_field(name: &str) -> [u8; FIELD] {
    let mut field = [0; FIELD];
    for (to, from) in field.iter_mut().zip(name.bytes().take(MAX)) {
        *to = from;
    }
    field
}

/// The name made of a UUID (RFC 4122 byte order).
pub fn of_uuid(uuid: &[u8; 16]) -> String {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = uuid;
    format!(
        "{UUID_PREFIX}{a:02x}{b:02x}{c:02x}{d:02x}-{e:02x}{f:02x}-{g:02x}{h:02x}-{i:02x}{j:02x}-\
         {k:02x}{l:02x}{m:02x}{n:02x}{o:02x}{p:02x}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names() {
        let long = "nqn.2014-08.org.example:".to_string() + &"x".repeat(199);
        assert_eq!(long.len(), MAX);
        for good in [DISCOVERY, "nqn.2026-01.io.example:a", &of_uuid(&[7; 16]), &long] {
            assert_eq!(check(good), Ok(()), "{good}");
            assert_eq!(from_field(&to_field(good)), Ok(good));
        }
        for (bad, why) in [
            ("", NqnError::NotQualified),
            ("nqn.2014-08.", NqnError::NotQualified),
            ("nqn.201-08.org.example", NqnError::NotQualified),
            ("nqn.2014-08-org.example", NqnError::NotQualified),
            ("iqn.2014-08.org.example", NqnError::NotQualified),
            ("nqn.2014-08.é", NqnError::NotQualified),
            ("nqn.2014-08.org\n", NqnError::NotText),
            (&(long.clone() + "y"), NqnError::TooLong),
        ] {
            assert_eq!(check(bad), Err(why), "{bad:?}");
        }
        assert_eq!(from_field(&[b'n'; FIELD]), Err(NqnError::TooLong));
        let mut field = to_field(DISCOVERY);
        field[5] = 0xff;
        assert_eq!(from_field(&field), Err(NqnError::NotText));
        assert_eq!(
            of_uuid(&[
                0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0
            ]),
            "nqn.2014-08.org.nvmexpress:uuid:123e4567-e89b-12d3-a456-426614174000"
        );
    }
}
