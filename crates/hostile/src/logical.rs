//! Volume groups of LVM: edits of a physical volume's beginning are the input.
//!
//! ```text
//! 0 bit 0: leave checksums wrong
//! 1.. pieces: place u32 (within the first 128 KiB), length u8, bytes
//! ```

use nearside_fsview::lvm::groups;

use crate::patched::{Patched, now};
use crate::volumes::gunzip;

const PV: &[u8] = include_bytes!("../../../fuzz/images/lvm.img.gz");
/// Bytes before the first extent.
const BEGINNING: u64 = 128 << 10;
const LABEL: u64 = 512;
const AREA: u64 = 4096;
const AREA_HEADER: usize = 512;

/// Reads the groups, and checks that their volumes lie within the drive.
pub fn run(input: &[u8]) {
    thread_local! {
        static SEED: Vec<u8> = gunzip(PV);
    }
    let Some(([how], mut rest)) = input.split_first_chunk::<1>() else { return };
    SEED.with(|seed| {
        let mut drive = Patched::new(seed);
        while let Some(([a, b, c, d, len], after)) = rest.split_first_chunk::<5>() {
            let at = u64::from(u32::from_le_bytes([*a, *b, *c, *d])) % BEGINNING;
            let (bytes, after) = after.split_at(usize::from(*len).min(after.len()));
            drive.put(at, bytes);
            rest = after;
        }
        if how & 1 == 0 {
            mend(&mut drive);
        }
        let Ok(all) = now(groups(&drive, None)) else { return };
        for group in all.groups {
            for volume in group.volumes {
                let Ok(runs) = volume.runs else { continue };
                let fits = |offset: u64, len: u64| {
                    offset.checked_add(len).is_some_and(|end| end <= seed.len() as u64)
                };
                assert!(runs.iter().all(|run| fits(run.offset, run.len)), "{runs:?}");
                assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), volume.len, "{runs:?}");
            }
        }
    });
}

/// Makes the checksums of the label, of the metadata area's header and of its text right.
fn mend(drive: &mut Patched<'_>) {
    if let Some(label) = drive.get(LABEL, 512) {
        drive.put(LABEL + 16, &checksum(&label[20..]).to_le_bytes());
    }
    let Some(header) = drive.get(AREA, AREA_HEADER) else { return };
    let long = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().unwrap());
    let (len, begin, size) = (long(32), long(40), long(48));
    let ring = len.saturating_sub(AREA_HEADER as u64);
    if begin < len && size <= ring.min(BEGINNING) {
        let straight = size.min(len - begin);
        let first = drive.get(AREA.saturating_add(begin), straight as usize);
        let second = drive.get(AREA + AREA_HEADER as u64, (size - straight) as usize);
        if let (Some(first), Some(second)) = (first, second) {
            drive.put(AREA + 56, &checksum(&[&*first, &*second].concat()).to_le_bytes());
        }
    }
    if let Some(header) = drive.get(AREA, AREA_HEADER) {
        drive.put(AREA, &checksum(&header[4..]).to_le_bytes());
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(!0xf597_a6cf);
    crc.update(bytes);
    !crc.finalize()
}

/// The volume with nothing changed, with words of its label and header in the place of the same, and with
/// pieces of its text so.
pub fn seeds() -> Vec<Vec<u8>> {
    let drive = gunzip(PV);
    let text = (AREA as usize..BEGINNING as usize).rev().step_by(64);
    let text = text.filter(|at| drive[*at..].iter().take(64).any(|byte| *byte != 0)).take(100);
    let places = (512..640).step_by(16).chain((4096..4160).step_by(16)).chain(text);
    let piece =
        |at: usize, bytes: &[u8]| [&(at as u32).to_le_bytes()[..], &[bytes.len() as u8], bytes].concat();
    let mut seeds = vec![vec![0], vec![1]];
    seeds.extend(places.map(|at| [&[0][..], &piece(at, &drive[at..at + 32])].concat()));
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_fsview::lvm::{Group, Groups, LinearRun};

    /// The groups of the volume with changes, whose checksums are right but for those; and the warnings.
    fn found(mended: bool, changes: &[(u64, &[u8])]) -> (Vec<Group>, Vec<String>) {
        let seed = gunzip(PV);
        let mut drive = Patched::new(&seed);
        changes.iter().for_each(|(at, bytes)| drive.put(*at, bytes));
        if mended {
            mend(&mut drive);
        }
        let Groups { groups, warnings } = now(groups(&drive, None)).unwrap();
        (groups, warnings)
    }

    /// Volumes of which nothing is damaged, with what is said of them.
    fn read(mended: bool, changes: &[(u64, &[u8])]) -> Vec<(String, String)> {
        let (groups, damaged) = found(mended, changes);
        assert_eq!(damaged, [""; 0]);
        let volumes = groups.into_iter().flat_map(|group| group.volumes);
        let said = |runs: Vec<LinearRun>| format!("{} runs", runs.len());
        volumes.map(|volume| (volume.name, volume.runs.map_or_else(|why| why, said))).collect()
    }

    /// Its last text, with changes, behind all that it has.
    fn with_text(change: impl Fn(String) -> String) -> Vec<u8> {
        let mut drive = gunzip(PV);
        let long = |at: usize| u64::from_le_bytes(*drive[at..].first_chunk().unwrap()) as usize;
        let (begin, size) = (long(AREA as usize + 40), long(AREA as usize + 48));
        let text = &drive[AREA as usize + begin..][..size];
        let text = change(String::from_utf8(text.to_vec()).unwrap());
        const BEHIND: usize = 64 << 10;
        assert!(text.len() < BEHIND);
        drive[BEHIND..BEHIND + text.len()].copy_from_slice(text.as_bytes());
        let place = [BEHIND as u64 - AREA, text.len() as u64].map(u64::to_le_bytes).concat();
        drive[AREA as usize + 40..][..16].copy_from_slice(&place);
        let mut mended = Patched::new(&drive);
        mend(&mut mended);
        mended.get(0, drive.len()).unwrap().to_vec()
    }

    /// Where in the drive the last of its texts has these words.
    fn place(words: &str) -> u64 {
        let drive = gunzip(PV);
        let found =
            drive[..BEGINNING as usize].windows(words.len()).rposition(|part| part == words.as_bytes());
        found.unwrap() as u64
    }

    #[test]
    fn what_is_wrong_is_said_and_where() {
        assert_eq!(read(true, &[]), read(false, &[]));
        let text = place("vg0 {");
        let wrong = |what: &str, at: u64| vec![format!("corrupt volume: {what} at byte {at}")];
        let damaged = |mended, changes: &[(u64, &[u8])]| {
            let (groups, damaged) = found(mended, changes);
            assert_eq!(groups, []);
            damaged
        };
        let sum = "its checksum does not match";
        assert_eq!(damaged(false, &[(600, b"x")]), wrong(&format!("LVM label: {sum}"), 512));
        assert_eq!(damaged(true, &[(520, b"\x02")]), wrong("LVM label: it lies elsewhere than it says", 512));
        let area = "LVM metadata area of 126976 bytes";
        assert_eq!(
            damaged(false, &[(4200, b"x")]),
            wrong(&format!("{area}: its header's checksum does not match"), 4096)
        );
        assert_eq!(damaged(true, &[(4104, b"x")]), wrong(&format!("{area}: its header has no mark"), 4096));
        let far = (1u64 << 40).to_le_bytes();
        assert_eq!(
            damaged(true, &[(4144, &far)]),
            wrong(&format!("{area}: a text of {} bytes at 25088", 1u64 << 40), 4096)
        );
        assert_eq!(
            damaged(false, &[(text + 9, b"x")]),
            wrong(&format!("LVM metadata of 5374 bytes: {sum}"), text)
        );
        // With checksums that are right, the text itself is.
        let says = wrong("LVM metadata: neither a value nor a section (its byte 6)", text);
        assert_eq!(damaged(true, &[(text + 4, b" ")]), says);
        // A damaged label before a good one counts no more than to LVM.
        let label = gunzip(PV)[512..1024].to_vec();
        assert_eq!(read(false, &[(0, &label)]), read(false, &[]));
    }

    #[test]
    fn what_is_not_read_is_named() {
        let of = |name: &str, why: &str| (name.to_owned(), why.to_owned());
        let all = read(false, &[]);
        for known in [
            of("root", "3 runs"),
            of("home", "1 runs"),
            of("before", "it is a snapshot"),
            of("thin", "it is of type \"thin\""),
            of("pool", "it is of type \"thin-pool\""),
            of("twice", "it is of type \"mirror\""),
            of("wide", "it is striped over 2"),
        ] {
            assert!(all.contains(&known), "{known:?} in {all:?}");
        }
        for name in ["far", "half"] {
            let (_, why) = all.iter().find(|(known, _)| known == name).unwrap();
            assert!(why.starts_with("it lies in part on the physical volume pv1 (\"/dev/loop"), "{why}");
        }
        // More extents than there are, fewer than are said, and what a physical volume does not say: the
        // other volumes are read.
        let count = place("pv0 {") + place_behind("pv0 {", "pe_count = 31");
        let extents = place("extent_count = 5") + 15;
        for (at, bytes, says) in [
            (count, &b"pe_count = 13"[..], "2 extents from 12 on are not within the 13 of pv0"),
            (
                extents,
                b"4",
                "its metadata are damaged: a segment begins at extent 9, the one before ends at 8",
            ),
            (count, b"xe", "pv0 has no pe_count"),
        ] {
            let few = read(true, &[(at, bytes)]);
            assert!(few.contains(&of("root", says)), "{few:?}");
            assert!(few.contains(&of("thin", "it is of type \"thin\"")), "{few:?}");
        }
    }

    /// Bytes from the one to the other behind it.
    fn place_behind(first: &str, second: &str) -> u64 {
        let (drive, from) = (gunzip(PV), place(first) as usize);
        let at = drive[from..].windows(second.len()).position(|part| part == second.as_bytes());
        at.unwrap() as u64
    }

    /// As `lvs` and `lvs -a` of LVM2 2.03.16 list the same text.
    #[test]
    fn volumes_are_shown_that_lvs_shows() {
        const SHOWN: &str = "\"READ\",\"WRITE\",\"VISIBLE\"";
        const PART: &str = "\"READ\",\"WRITE\"";
        let one = |name: &str, status: &str, segment: &str| {
            format!(
                "{name} {{ id = \"{name}\" status = [{status}] segment_count = 1 segment1 {{ start_extent = 0 \
                 extent_count = 1 {segment} }} }}\n"
            )
        };
        let linear = |name: &str, status: &str, at: u32| {
            one(name, status, &format!("type = \"striped\" stripe_count = 1 stripes = [\"pv0\", {at}]"))
        };
        let pair = |name: &str, status: &str, origin: &str, how: &str, store: &str| {
            let segment =
                format!("type = \"snapshot\" chunk_size = 8 origin = \"{origin}\" {how} = \"{store}\"");
            one(name, status, &segment)
        };
        let added = [
            linear("cowhid", PART, 23),
            pair("snapshot5", SHOWN, "gap", "cow_store", "cowhid"),
            linear("mergecow", PART, 24),
            linear("morig", SHOWN, 25),
            pair("snapshot6", PART, "morig", "merging_store", "mergecow"),
            linear("vcow", PART, 26),
            linear("horig", PART, 27),
            pair("snapshot7", PART, "horig", "cow_store", "vcow"),
            linear("hmcow", SHOWN, 28),
            linear("hmorig", PART, 29),
            pair("snapshot8", PART, "hmorig", "merging_store", "hmcow"),
            linear("justhidden", PART, 30),
            "none { id = \"none\" status = [\"VISIBLE\"] segment_count = 0 }\n".to_owned(),
            linear(&"n".repeat(200), SHOWN, 22),
        ]
        .concat();
        let begin = "logical_volumes {\n";
        let drive = with_text(|text| text.replacen(begin, &format!("{begin}{added}"), 1));
        let Groups { groups, warnings } = now(groups(&Patched::new(&drive), None)).unwrap();
        assert_eq!(warnings, [""; 0]);
        let visible = groups[0].volumes.iter().filter(|volume| volume.visible);
        let mut names: Vec<&str> = visible.map(|volume| &*volume.name).collect();
        names.sort();
        let long = "n".repeat(127);
        assert_eq!(
            names,
            [
                "before", "cowhid", "far", "gap", "half", "hmcow", "home", "morig", &long, "none", "pool",
                "root", "thin", "twice", "vcow", "wide"
            ]
        );
        // LVM refuses the group of one without a segment, and of one with such a name.
        let why = |name: &str| {
            let volume = groups[0].volumes.iter().find(|volume| volume.name == name).unwrap();
            volume.runs.clone().unwrap_err()
        };
        assert_eq!(why("none"), "it has no extents");
        assert_eq!(why(&long), "its metadata are damaged: a name of 200 bytes");
    }

    #[test]
    fn a_text_is_kept_within_bounds() {
        let of = |change: &dyn Fn(String) -> String| {
            let drive = with_text(change);
            let Groups { groups, warnings } = now(groups(&Patched::new(&drive), None)).unwrap();
            (groups, warnings)
        };
        let (groups, warnings) = of(&|text| text.replacen("\"vmmtIv-", "\"vmmtI-", 1));
        let says = "LVM metadata: vg0 has an identifier of 31 characters, not 32 at byte 65536";
        assert_eq!((groups, warnings), (vec![], vec![format!("corrupt volume: {says}")]));
        let device = format!("\"/dev/{}\"", "x".repeat(300));
        let (groups, warnings) = of(&|text| text.replacen("\"/dev/loop1\"", &device, 1));
        assert_eq!(warnings, [""; 0]);
        let far = groups[0].volumes.iter().find(|volume| volume.name == "far").unwrap();
        let says = format!("(\"/dev/{}\"), which is not here", "x".repeat(123));
        assert!(far.runs.as_ref().is_err_and(|why| why.ends_with(&says)), "{far:?}");
        let begin = "logical_volumes {\n";
        let many: String = (0..4100).map(|nr| format!("l{nr:04}{{}}\n")).collect();
        let (groups, warnings) = of(&|text| text.replacen(begin, &format!("{begin}{many}"), 1));
        assert_eq!(groups[0].volumes.len(), 4096);
        let [one] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(one.starts_with("vg0 has 41") && one.ends_with("only the first 4096 are read"), "{one}");
    }

    #[test]
    fn of_clones_the_partition_says_which() {
        let volume = gunzip(PV);
        let mut disk = vec![0u8; 1 << 20];
        for entry in [446, 462] {
            let (from, sectors) = ((disk.len() / 512) as u32, (volume.len() / 512) as u32);
            disk[entry + 4] = 0x8e;
            disk[entry + 8..entry + 12].copy_from_slice(&from.to_le_bytes());
            disk[entry + 12..entry + 16].copy_from_slice(&sectors.to_le_bytes());
            disk.extend(&volume);
        }
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        let of = |partition| {
            let Groups { groups, warnings } = now(groups(&Patched::new(&disk), partition)).unwrap();
            assert_eq!(warnings, [""; 0]);
            let [group] = &groups[..] else { panic!("{groups:?}") };
            let root = group.volumes.iter().find(|volume| volume.name == "root").unwrap();
            (group.partitions.clone(), root.runs.clone().map(|runs| runs[0].offset))
        };
        let says =
            "it lies in part on pv0: several physical volumes here have its identifier: partitions 1, 2";
        for not_decided in [None, Some(3)] {
            assert_eq!(of(not_decided), (vec![1, 2], Err(says.to_owned())));
        }
        let first = (1 << 20) + BEGINNING;
        assert_eq!(of(Some(1)), (vec![1], Ok(first)));
        assert_eq!(of(Some(2)), (vec![2], Ok(first + volume.len() as u64)));
    }
}
