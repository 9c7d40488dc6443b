//! What a failure says to a person: the words of the C library where it has some.

use std::borrow::Cow;

use nearside_near_data::Failure;

/// A failure in words, without the path.
pub fn describe(failure: &Failure) -> Cow<'_, str> {
    match failure {
        Failure::NotFound => "No such file or directory".into(),
        Failure::PermissionDenied => "Permission denied".into(),
        Failure::NotADirectory => "Not a directory".into(),
        Failure::IsADirectory => "Is a directory".into(),
        Failure::NotARegularFile => "Not a regular file".into(),
        Failure::SymlinkLoop => "Too many levels of symbolic links".into(),
        Failure::NameTooLong => "File name too long".into(),
        Failure::NotAbsolute => {
            "Not an absolute path (paths begin at the root of the volume, with '/')".into()
        }
        Failure::ChangedDuringScan => "Changed while it was read".into(),
        Failure::UnsupportedFeature(name) => said("Unsupported feature", name),
        Failure::CorruptVolume(what) => said("Corrupt volume", what),
        Failure::MediumError(what) => format!("Medium error: {what}").into(),
        Failure::InvalidPattern(why) => format!("Invalid pattern: {why}").into(),
        Failure::InvalidRequest(why) => format!("Invalid request: {why}").into(),
        Failure::NoVolume(what) => format!("No volume: {what}").into(),
        Failure::LineTooLong(at) => format!("Line longer than 64 MiB: {at}").into(),
        Failure::NotATable(why) => why.into(),
        Failure::Cancelled => "Cancelled".into(),
        Failure::ProgramFailed(why) => format!("The program failed: {why}").into(),
        Failure::CorruptFile(what) => format!("Corrupt file: {what}").into(),
        Failure::DeniedAs(why) | Failure::NeedsRecovery(why) => format!("Permission denied: {why}").into(),
    }
}

/// The words and the particulars, which may begin with the words.
fn said(words: &str, particulars: &str) -> Cow<'static, str> {
    let lower = words.to_ascii_lowercase();
    let rest =
        particulars.strip_prefix(&lower).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(particulars);
    format!("{words}: {rest}").into()
}

/// A short fixed name for a failure, for programs: `errno`'s where there is one.
pub fn errno_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::NotFound => "ENOENT",
        Failure::PermissionDenied | Failure::DeniedAs(_) | Failure::NeedsRecovery(_) => "EACCES",
        Failure::NotADirectory => "ENOTDIR",
        Failure::IsADirectory => "EISDIR",
        Failure::NotARegularFile | Failure::NotAbsolute | Failure::InvalidRequest(_) => "EINVAL",
        Failure::SymlinkLoop => "ELOOP",
        Failure::NameTooLong => "ENAMETOOLONG",
        Failure::ChangedDuringScan => "EAGAIN",
        Failure::UnsupportedFeature(_) => "EOPNOTSUPP",
        Failure::CorruptVolume(_) => "EUCLEAN",
        Failure::MediumError(_) => "EIO",
        Failure::InvalidPattern(_) => "EPATTERN",
        Failure::NoVolume(_) => "ENODEV",
        Failure::LineTooLong(_) => "EMSGSIZE",
        Failure::NotATable(_) => "EBADMSG",
        Failure::Cancelled => "ECANCELED",
        Failure::ProgramFailed(_) => "ENOEXEC",
        Failure::CorruptFile(_) => "EBADMSG",
    }
}

/// The `errno` of a failure, as Linux numbers it.
pub fn errno(failure: &Failure) -> i32 {
    match failure {
        Failure::NotFound => 2,
        Failure::PermissionDenied | Failure::DeniedAs(_) | Failure::NeedsRecovery(_) => 13,
        Failure::NotADirectory => 20,
        Failure::IsADirectory => 21,
        Failure::NotARegularFile | Failure::NotAbsolute => 22,
        Failure::InvalidRequest(_) | Failure::InvalidPattern(_) => 22,
        Failure::SymlinkLoop => 40,
        Failure::NameTooLong => 36,
        Failure::ChangedDuringScan => 11,
        Failure::UnsupportedFeature(_) => 95,
        Failure::CorruptVolume(_) => 117,
        Failure::MediumError(_) => 5,
        Failure::NoVolume(_) => 19,
        Failure::LineTooLong(_) => 90,
        Failure::NotATable(_) => 74,
        Failure::Cancelled => 125,
        Failure::ProgramFailed(_) => 8,
        Failure::CorruptFile(_) => 74,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_twice() {
        let failure = Failure::CorruptVolume("corrupt volume: a loop at byte 5".into());
        assert_eq!(describe(&failure), "Corrupt volume: a loop at byte 5");
        assert_eq!(describe(&Failure::UnsupportedFeature("encrypt".into())), "Unsupported feature: encrypt");
    }
}
