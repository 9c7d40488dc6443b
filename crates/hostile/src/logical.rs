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
        let Ok(all) = now(groups(&drive)) else { return };
        for group in all {
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
    use nearside_fsview::Error;

    /// The volume with changes, whose checksums are right but for those.
    fn read(mended: bool, changes: &[(u64, &[u8])]) -> Result<Vec<(String, String)>, String> {
        let seed = gunzip(PV);
        let mut drive = Patched::new(&seed);
        changes.iter().for_each(|(at, bytes)| drive.put(*at, bytes));
        if mended {
            mend(&mut drive);
        }
        let groups = now(groups(&drive)).map_err(|error: Error| error.to_string())?;
        let volumes = groups.into_iter().flat_map(|group| group.volumes);
        Ok(volumes
            .map(|volume| {
                (volume.name, volume.runs.map_or_else(|why| why, |runs| format!("{} runs", runs.len())))
            })
            .collect())
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
        let wrong = |what: &str, at: u64| Err(format!("corrupt volume: {what} at byte {at}"));
        let sum = "its checksum does not match";
        assert_eq!(read(false, &[(600, b"x")]), wrong(&format!("LVM label: {sum}"), 512));
        assert_eq!(read(true, &[(520, b"\x02")]), wrong("LVM label: it lies elsewhere than it says", 512));
        let area = "LVM metadata area of 126976 bytes";
        assert_eq!(
            read(false, &[(4200, b"x")]),
            wrong(&format!("{area}: its header's checksum does not match"), 4096)
        );
        assert_eq!(read(true, &[(4104, b"x")]), wrong(&format!("{area}: its header has no mark"), 4096));
        let far = (1u64 << 40).to_le_bytes();
        assert_eq!(
            read(true, &[(4144, &far)]),
            wrong(&format!("{area}: a text of {} bytes at 25088", 1u64 << 40), 4096)
        );
        assert_eq!(
            read(false, &[(text + 9, b"x")]),
            wrong(&format!("LVM metadata of 5374 bytes: {sum}"), text)
        );
        // With checksums that are right, the text itself is.
        let says = wrong("LVM metadata: neither a value nor a section (its byte 6)", text);
        assert_eq!(read(true, &[(text + 4, b" ")]), says);
        let extents = place("extent_count = 5") + 15;
        let says = wrong("LVM metadata: root: a segment begins at extent 9, the one before ends at 8", text);
        assert_eq!(read(true, &[(extents, b"4")]), says);
    }

    #[test]
    fn what_is_not_read_is_named() {
        let of = |name: &str, why: &str| (name.to_owned(), why.to_owned());
        let all = read(false, &[]).unwrap();
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
        // More extents than there are.
        let (drive, from) = (gunzip(PV), place("pv0 {"));
        let count = drive[from as usize..].windows(13).position(|part| part == b"pe_count = 31").unwrap();
        let few = read(true, &[(from + count as u64, b"pe_count = 13")]).unwrap();
        let says = "2 extents from 12 on are not within the 13 of pv0";
        assert!(few.contains(&of("root", says)), "{few:?}");
    }
}
