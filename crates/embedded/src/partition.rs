//! Which partition is meant: a number, or what else one is known by, in the words of mount(8) and fstab(5);
//! and which logical volume, in those of LVM. The command's `--partition` and `--volume`, and Python's.

use std::str::FromStr;

use nearside_fsrlib::Part;
use nearside_media::words::human;

/// Partitions that a message lists.
const LISTED: usize = 16;

/// A logical volume, as LVM's programs take it: `VG/LV`, with `/dev/` before it or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logical {
    /// Its group's name.
    pub group: String,
    /// Its own.
    pub name: String,
}

impl FromStr for Logical {
    type Err = String;

    fn from_str(text: &str) -> Result<Logical, String> {
        let names = match text.strip_prefix("/dev/mapper/") {
            Some(mapped) => of_device_mapper(mapped),
            None => {
                text.strip_prefix("/dev/").unwrap_or(text).split_once('/').map(|(a, b)| (a.into(), b.into()))
            }
        };
        match names {
            Some((group, name)) if !group.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Logical { group, name })
            }
            _ => Err("expected VG/LV, a volume group and a logical volume in it".into()),
        }
    }
}

/// The two names in a name of device-mapper's, where one hyphen is between them and two are one of their own
/// (LVM2, `dm_build_dm_name`). With a second one it is a part of a volume, as `vg-lv-real`.
fn of_device_mapper(text: &str) -> Option<(String, String)> {
    let lone = |at: &usize| !text[..*at].ends_with('-') && !text[at + 1..].starts_with('-');
    let mut between = text.match_indices('-').map(|(at, _)| at).filter(lone);
    let at = between.next()?;
    if between.next().is_some() {
        return None;
    }
    Some((text[..at].replace("--", "-"), text[at + 1..].replace("--", "-")))
}

/// Which partition is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The one of that number.
    Number(u32),
    /// The one that has this for any of these.
    Known(Vec<Mark>, String),
}

/// What a partition is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Its name in a GPT.
    PartLabel,
    /// Its own UUID.
    PartUuid,
    /// The label of its file system.
    Label,
    /// The UUID of its file system.
    Uuid,
}

const MARKS: [(&str, Mark); 4] = [
    ("PARTLABEL=", Mark::PartLabel),
    ("PARTUUID=", Mark::PartUuid),
    ("LABEL=", Mark::Label),
    ("UUID=", Mark::Uuid),
];

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        if let Ok(number) = text.parse() {
            return Ok(Wanted::Number(number));
        }
        let tagged = MARKS.iter().find_map(|(tag, mark)| Some((*mark, text.strip_prefix(tag)?)));
        let (marks, value) = match tagged {
            Some((mark, value)) => (vec![mark], value),
            None => (MARKS.map(|(_, mark)| mark).to_vec(), text),
        };
        match value.is_empty() {
            true => Err("an empty name is nobody's".into()),
            false => Ok(Wanted::Known(marks, value.to_owned())),
        }
    }
}

impl Wanted {
    /// The number of the one among all that is meant.
    ///
    /// # Errors
    /// There is none, or more than one; which there are.
    pub fn among(&self, all: &[Part]) -> Result<u32, String> {
        let (marks, value) = match self {
            Wanted::Number(number) => return Ok(*number),
            Wanted::Known(marks, value) => (marks, value),
        };
        let meant: Vec<&Part> =
            all.iter().filter(|part| marks.iter().any(|mark| mark.is(part, value))).collect();
        let list = |parts: &[&Part]| {
            let (first, rest) = parts.split_at(parts.len().min(LISTED));
            let first = first.iter().map(|part| brief(part)).collect::<Vec<_>>().join(", ");
            if rest.is_empty() { first } else { format!("{first} and {} more", rest.len()) }
        };
        match &meant[..] {
            [one] => Ok(one.partition.number),
            [] if all.is_empty() => Err(format!("no partition {value:?}: there is no table of partitions")),
            [] => {
                let all: Vec<&Part> = all.iter().collect();
                Err(format!("no partition {value:?}; there are {}", list(&all)))
            }
            several => Err(format!("{value:?} is more than one partition: {}", list(several))),
        }
    }
}

impl Mark {
    fn is(self, part: &Part, value: &str) -> bool {
        let volume = part.content.as_ref();
        match self {
            Mark::PartLabel => part.partition.name == value,
            Mark::PartUuid => part.partition.uuid.eq_ignore_ascii_case(value),
            Mark::Label => volume.is_ok_and(|volume| volume.label == value),
            Mark::Uuid => volume.is_ok_and(|volume| uuid(&volume.uuid).eq_ignore_ascii_case(value)),
        }
    }
}

/// A partition among others, in a message.
fn brief(part: &Part) -> String {
    let mut text = format!("{}: {}", part.partition.number, content(part));
    for (what, value) in [("name", part.partition.name.as_str()), ("label", label(part))] {
        if !value.is_empty() {
            text.push_str(&format!(", {what} {value:?}"));
        }
    }
    format!("{text} ({})", human(part.partition.len))
}

/// What lies in a partition: a file system's name, or what there is in its place.
pub fn content(part: &Part) -> &str {
    match &part.content {
        Ok(volume) => volume.file_system,
        Err(other) => other,
    }
}

/// The label of its file system; empty where it has none.
pub fn label(part: &Part) -> &str {
    part.content.as_ref().map_or("", |volume| volume.label.as_str())
}

/// A UUID as it is written.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let all: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    [&all[0..8], &all[8..12], &all[12..16], &all[16..20], &all[20..32]].join("-")
}
