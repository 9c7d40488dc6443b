//! What a reply status says to a person: the words of the C library where it has some.

use std::borrow::Cow;

use nearside_spec::near_data::ReplyStatus;

/// A status in words, without the path.
pub fn describe(status: &ReplyStatus) -> Cow<'_, str> {
    match status {
        ReplyStatus::Success => "Success".into(),
        ReplyStatus::NotFound => "No such file or directory".into(),
        ReplyStatus::PermissionDenied => "Permission denied".into(),
        ReplyStatus::NotADirectory => "Not a directory".into(),
        ReplyStatus::IsADirectory => "Is a directory".into(),
        ReplyStatus::NotARegularFile => "Not a regular file".into(),
        ReplyStatus::SymlinkLoop => "Too many levels of symbolic links".into(),
        ReplyStatus::NameTooLong => "File name too long".into(),
        ReplyStatus::NotAbsolute => {
            "Not an absolute path (paths begin at the root of the volume, with '/')".into()
        }
        ReplyStatus::ChangedDuringScan => "Changed while it was read".into(),
        ReplyStatus::UnsupportedFeature(name) => said("Unsupported feature", name),
        ReplyStatus::CorruptVolume(what) => said("Corrupt volume", what),
        ReplyStatus::MediumError(what) => format!("Medium error: {what}").into(),
        ReplyStatus::InvalidPattern(why) => format!("Invalid pattern: {why}").into(),
        ReplyStatus::InvalidRequest(why) => format!("Invalid request: {why}").into(),
        ReplyStatus::NoVolume(what) => format!("No volume: {what}").into(),
        ReplyStatus::LineTooLong(at) => format!("Line longer than 64 MiB: {at}").into(),
        ReplyStatus::Cancelled => "Cancelled".into(),
        ReplyStatus::DeniedAs(why) | ReplyStatus::NeedsRecovery(why) => {
            format!("Permission denied: {why}").into()
        }
    }
}

/// The words and the particulars, which may begin with the words.
fn said(words: &str, particulars: &str) -> Cow<'static, str> {
    let lower = words.to_ascii_lowercase();
    let rest =
        particulars.strip_prefix(&lower).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(particulars);
    format!("{words}: {rest}").into()
}

/// A short fixed name for a status, for programs: `errno`'s where there is one.
pub fn errno_name(status: &ReplyStatus) -> &'static str {
    match status {
        ReplyStatus::Success => "OK",
        ReplyStatus::NotFound => "ENOENT",
        ReplyStatus::PermissionDenied | ReplyStatus::DeniedAs(_) | ReplyStatus::NeedsRecovery(_) => "EACCES",
        ReplyStatus::NotADirectory => "ENOTDIR",
        ReplyStatus::IsADirectory => "EISDIR",
        ReplyStatus::NotARegularFile | ReplyStatus::NotAbsolute | ReplyStatus::InvalidRequest(_) => "EINVAL",
        ReplyStatus::SymlinkLoop => "ELOOP",
        ReplyStatus::NameTooLong => "ENAMETOOLONG",
        ReplyStatus::ChangedDuringScan => "EAGAIN",
        ReplyStatus::UnsupportedFeature(_) => "EOPNOTSUPP",
        ReplyStatus::CorruptVolume(_) => "EUCLEAN",
        ReplyStatus::MediumError(_) => "EIO",
        ReplyStatus::InvalidPattern(_) => "EPATTERN",
        ReplyStatus::NoVolume(_) => "ENODEV",
        ReplyStatus::LineTooLong(_) => "EMSGSIZE",
        ReplyStatus::Cancelled => "ECANCELED",
    }
}

/// The `errno` of a status, as Linux numbers it.
pub fn errno(status: &ReplyStatus) -> i32 {
    match status {
        ReplyStatus::Success => 0,
        ReplyStatus::NotFound => 2,
        ReplyStatus::PermissionDenied | ReplyStatus::DeniedAs(_) | ReplyStatus::NeedsRecovery(_) => 13,
        ReplyStatus::NotADirectory => 20,
        ReplyStatus::IsADirectory => 21,
        ReplyStatus::NotARegularFile | ReplyStatus::NotAbsolute => 22,
        ReplyStatus::InvalidRequest(_) | ReplyStatus::InvalidPattern(_) => 22,
        ReplyStatus::SymlinkLoop => 40,
        ReplyStatus::NameTooLong => 36,
        ReplyStatus::ChangedDuringScan => 11,
        ReplyStatus::UnsupportedFeature(_) => 95,
        ReplyStatus::CorruptVolume(_) => 117,
        ReplyStatus::MediumError(_) => 5,
        ReplyStatus::NoVolume(_) => 19,
        ReplyStatus::LineTooLong(_) => 90,
        ReplyStatus::Cancelled => 125,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_twice() {
        let status = ReplyStatus::CorruptVolume("corrupt volume: a loop at byte 5".into());
        assert_eq!(describe(&status), "Corrupt volume: a loop at byte 5");
        assert_eq!(
            describe(&ReplyStatus::UnsupportedFeature("encrypt".into())),
            "Unsupported feature: encrypt"
        );
    }
}
