//! Volumes of the namespace: which there are, and the open ones, opened again when what opening read has
//! changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nearside_fsview::magic::what_is;
use nearside_fsview::partition::{Partition, partitions};
use nearside_fsview::raid::{Standing, behind, member};
use nearside_fsview::{Error, Volume};
use nearside_near_data::Failure;

use crate::Retriever;
use crate::crawler::{OpenVolume, Opened, open};
use crate::media::Media;
use crate::model::of_view;
use crate::monitor::Deps;
use crate::view::{Tally, Upto, View};

/// Open volumes kept.
const MOST_OPEN: usize = 32;
/// A host that has not flushed what it wrote to its log after so long does not flush for that (`nobarrier`).
const HELD_AT_MOST_NS: u64 = 1_000_000_000;

/// What was found where a volume may be.
pub(crate) struct Found {
    /// The volume's own bytes: first, and how many.
    pub(crate) place: (u64, u64),
    pub(crate) volume: Result<Volume, Error>,
    /// On what it depends that it is there.
    located: Deps,
    /// On what it depends what it is.
    deps: Deps,
    /// As of [`Opened`].
    held_since: Option<u64>,
    /// Of a member of an array.
    standing: Option<Standing>,
}

/// An open volume, by the number that a request gave.
pub(crate) struct CachedVolume {
    asked: u32,
    volume: Arc<OpenVolume>,
}

impl CachedVolume {
    /// The volume, where that number means it, and it is known to be at its state at so many changes, at that
    /// time (nanoseconds).
    pub(crate) fn known_at(&self, asked: u32, changes: u64, now: u64) -> Option<&OpenVolume> {
        let volume = &*self.volume;
        let known = volume.checked.load(Ordering::Acquire) == changes;
        let is_it = self.asked == asked && known && volume.is_newest() && !volume.is_held_too_long(now);
        is_it.then_some(volume)
    }

    /// Of what its log adds.
    pub(crate) fn overlay_bytes(&self) -> u64 {
        self.volume.volume.overlay_bytes()
    }
}

impl OpenVolume {
    /// One that was not open before, at its offset and length; what said that it is meant, and what it was
    /// made of.
    fn new(
        partition: u32,
        (offset, len): (u64, u64),
        volume: Volume,
        (place, deps): (Deps, Deps),
        held_since: Option<u64>,
    ) -> OpenVolume {
        OpenVolume {
            id: next_id(),
            state: 0,
            newest: Arc::default(),
            partition,
            offset,
            len,
            volume,
            place,
            deps,
            checked: AtomicU64::new(0),
            held_since,
            written: None,
            overtaken: AtomicBool::new(false),
            standing: None,
        }
    }

    /// Whether what was written and not flushed has been kept behind for longer than a flush takes.
    fn is_held_too_long(&self, now: u64) -> bool {
        self.held_since.is_some_and(|since| now.saturating_sub(since) >= HELD_AT_MOST_NS)
    }
}

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

fn next_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl Retriever {
    /// The volume that a request's partition number means.
    pub(crate) async fn volume<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        asked: u32,
    ) -> Result<Arc<OpenVolume>, Failure> {
        let changes = self.monitor.changes();
        let now = media.now_ns();
        let mut upto = Upto::Durable;
        let next_flush = self.monitor.next_flush();
        let known = {
            let mut caches = self.caches();
            let kept = caches.volumes.iter_mut().find(|k| k.asked == asked);
            if let Some(kept) = kept {
                let checked = &kept.volume.checked;
                // Of commands that open it at once, one with an earlier state may be the last to end.
                if kept.volume.is_newest()
                    && !kept.volume.is_held_too_long(now)
                    && (checked.load(Ordering::Acquire) == changes || self.monitor.holds(&kept.volume.deps))
                {
                    checked.store(changes, Ordering::Release);
                    return Ok(kept.volume.clone());
                }
                // Without a flush since, it would only be held back again.
                let flushless = kept.volume.written.is_some_and(|flush| !self.monitor.has_flushed(flush));
                if flushless || kept.volume.is_overtaken() || kept.volume.is_held_too_long(now) {
                    upto = Upto::Written;
                }
                Some(kept.volume.clone())
            } else {
                None
            }
        };
        let again = match &known {
            Some(known) => self.open_again(media, tally, known, upto).await?,
            None => None,
        };
        let mut volume = match again {
            Some(volume) => volume,
            None => self.find_volume(media, tally, asked, upto).await?,
        };
        volume.written = (upto == Upto::Written).then_some(next_flush);
        let volume = Arc::new(volume);
        let mut left = self.keep_volume(asked, volume.clone());
        left.extend(known);
        // Whoever still works with one of them gives it back.
        for gone in left.into_iter().filter_map(Arc::into_inner) {
            let view = View::new(self, media, tally, gone.offset, gone.len);
            gone.volume.give_back(&view).await;
        }
        Ok(volume)
    }

    /// Keeps an open volume; those that are not kept any more.
    fn keep_volume(&self, asked: u32, volume: Arc<OpenVolume>) -> Vec<Arc<OpenVolume>> {
        let mut caches = self.caches();
        let mut left: Vec<_> = caches.volumes.extract_if(.., |kept| kept.asked == asked).collect();
        if caches.volumes.len() >= MOST_OPEN {
            left.push(caches.volumes.remove(0));
        }
        caches.volumes.push(CachedVolume { asked, volume });
        self.count_overlays(&caches);
        left.into_iter().map(|kept| kept.volume).collect()
    }

    /// A volume whose metadata the host has changed, as it is now; `None` where it may be another's place.
    async fn open_again<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        known: &OpenVolume,
        upto: Upto,
    ) -> Result<Option<OpenVolume>, Failure> {
        if !self.monitor.holds(&known.place) {
            return Ok(None);
        }
        let OpenVolume { partition, offset, len, ref place, ref volume, .. } = *known;
        let opened = open(self, media, tally, (offset, len), Some(volume), upto).await?;
        let mut deps = place.clone();
        deps.extend(&opened.deps);
        let Ok(volume) = opened.volume else { return Ok(None) };
        let goes_on = volume.goes_on_from(&known.volume);
        if let Some(renewed) = &goes_on {
            // Where anything else has changed, also of what was read again, it is no log that went on.
            let at = |byte: u64| offset.saturating_add(byte);
            let renewed = renewed.clone().map(|range| at(range.start)..at(range.end));
            let before = self.monitor.outside(&known.deps, &renewed);
            if !self.monitor.still_holds(&before, media).await {
                return Ok(None);
            }
            deps.extend(&before.but(&deps));
        }
        let view = View::new(self, media, tally, offset, len);
        let changed = volume.changed_since(&known.volume, &view).await;
        let (id, newest) = match changed {
            Some(_) => (known.id, known.newest.clone()),
            None => (next_id(), Arc::default()),
        };
        let went_on = changed.as_ref().is_none_or(|changed| !changed.is_empty());
        let held_before = known.held_since.filter(|_| !went_on);
        let held_since = opened.held_since.map(|now| held_before.unwrap_or(now));
        let state = match &changed {
            Some(changed) if changed.is_empty() && known.is_newest() => known.state,
            // First no read of an earlier state counts any more, then what it was made of is out of date.
            _ => newest.fetch_add(1, Ordering::AcqRel).wrapping_add(1),
        };
        if let Some(mut changed) = changed.filter(|changed| !changed.is_empty()) {
            changed.iter_mut().for_each(|at| *at = at.saturating_add(offset));
            self.monitor.publish(&changed, media).await;
        }
        // Not known to be good at any count of changes: the next use looks.
        let volume = OpenVolume::new(partition, (offset, len), volume, (place.clone(), deps), held_since);
        Ok(Some(OpenVolume { id, state, newest, standing: known.standing.clone(), ..volume }))
    }

    /// What lies at a place, or in the array of which that is a member.
    pub(crate) async fn look_at<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        place: (u64, u64),
        upto: Upto,
    ) -> Result<Found, Failure> {
        let Opened { volume, deps, held_since } = open(self, media, tally, place, None, upto).await?;
        match volume {
            Err(Error::NoFileSystem) => self.look_into(media, tally, place, deps, upto).await,
            volume => {
                let standing = match &volume {
                    Ok(volume) => self.standing(media, tally, place, used(volume)).await,
                    Err(_) => None,
                };
                Ok(Found { place, volume, located: Deps::default(), deps, held_since, standing })
            }
        }
    }

    /// What an array's superblock says of the first `used` bytes of a place, behind which it lies. Where
    /// that cannot be read, it is no matter of theirs.
    async fn standing<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        (offset, len): (u64, u64),
        used: u64,
    ) -> Option<Standing> {
        behind(&View::new(self, media, tally, offset, len), 0, len, used).await.ok().flatten()
    }

    /// What lies in the array of which a place is a member, where no volume begins there as `located` has it.
    async fn look_into<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        (offset, len): (u64, u64),
        mut located: Deps,
        upto: Upto,
    ) -> Result<Found, Failure> {
        let view = View::new(self, media, tally, offset, len);
        let member = member(&view, 0, len).await;
        located.extend(&view.into_deps());
        let (place, volume) = match member {
            Ok(Some(member)) => {
                let place = (offset.saturating_add(member.offset), member.len);
                let Opened { volume, deps, held_since } = open(self, media, tally, place, None, upto).await?;
                let standing = Some(member.standing);
                return Ok(Found { place, volume, located, deps, held_since, standing });
            }
            Ok(None) => ((offset, len), Err(Error::NoFileSystem)),
            Err(error) => ((offset, len), Err(error)),
        };
        let (deps, located) = (located, Deps::default());
        Ok(Found { place, volume, located, deps, held_since: None, standing: None })
    }

    async fn find_volume<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        asked: u32,
        upto: Upto,
    ) -> Result<OpenVolume, Failure> {
        let mut deps = Deps::default();
        if asked == 0 {
            let whole = (0, media.len());
            let opened = open(self, media, tally, whole, None, upto).await?;
            match opened.volume {
                Ok(volume) => {
                    let of = (Deps::default(), opened.deps);
                    let standing = self.standing(media, tally, whole, used(&volume)).await;
                    let volume = OpenVolume::new(0, whole, volume, of, opened.held_since);
                    return Ok(OpenVolume { standing, ..volume });
                }
                Err(Error::NoFileSystem) => deps = opened.deps,
                Err(error) => return Err(of_view(error)),
            }
        }
        let view = View::new(self, media, tally, 0, media.len());
        let table = partitions(&view).await.map_err(of_view)?;
        deps.extend(&view.into_deps());
        if table.is_empty() {
            let found = self.look_into(media, tally, (0, media.len()), deps, upto).await?;
            return match found.volume {
                Ok(volume) if asked == 0 => {
                    let mut deps = found.located.clone();
                    deps.extend(&found.deps);
                    let of = (found.located, deps);
                    let volume = OpenVolume::new(0, found.place, volume, of, found.held_since);
                    Ok(OpenVolume { standing: found.standing, ..volume })
                }
                Err(Error::Unsupported(what)) => Err(Failure::NoVolume(what)),
                Ok(_) | Err(Error::NoFileSystem) => Err(self.no_volume(media, tally, found.place).await?),
                Err(error) => Err(of_view(error)),
            };
        }
        self.of_partition(media, tally, (&table, deps), asked, upto).await
    }

    /// The volume in the partition that is asked for, or in the only one that has a volume (0), of a table
    /// that was made of so much.
    async fn of_partition<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        (table, mut deps): (&[Partition], Deps),
        asked: u32,
        upto: Upto,
    ) -> Result<OpenVolume, Failure> {
        let mut candidates = Vec::new();
        let mut list = Vec::new();
        for part in table.iter().filter(|p| asked == 0 || p.number == asked) {
            let found = self.look_at(media, tally, (part.offset, part.len), upto).await?;
            match found.volume {
                Ok(volume) => {
                    let size = part.len >> 20;
                    list.push(format!("{}: {} ({size} MiB)", part.number, volume.info().file_system));
                    let of = (found.located, found.deps);
                    let volume = OpenVolume::new(part.number, found.place, volume, of, found.held_since);
                    candidates.push(OpenVolume { standing: found.standing, ..volume });
                }
                Err(Error::NoFileSystem) => {
                    let view = View::new(self, media, tally, found.place.0, found.place.1);
                    list.push(match what_is(&view).await.map_err(of_view)? {
                        Some(other) if asked != 0 => format!("{}: {other}", part.number),
                        Some(other) => format!("{}: {}", part.number, other.name),
                        None => format!("{}: not known ({})", part.number, part.kind),
                    });
                }
                // What cannot be read may be the volume that was meant.
                Err(error @ Error::Read { .. }) => return Err(of_view(error)),
                Err(error) if asked != 0 => return Err(of_view(error)),
                Err(error) => list.push(format!("{}: {error}", part.number)),
            }
        }
        match candidates.pop() {
            Some(volume) if candidates.is_empty() => {
                deps.extend(&volume.place);
                let place = deps.clone();
                deps.extend(&volume.deps);
                // The whole drive may be the member.
                let standing = match &volume.standing {
                    Some(standing) => Some(standing.clone()),
                    None => {
                        let ends = table.iter().map(|part| part.offset.saturating_add(part.len));
                        self.standing(media, tally, (0, media.len()), ends.max().unwrap_or(0)).await
                    }
                };
                Ok(OpenVolume { place, deps, standing, ..volume })
            }
            Some(_) => Err(Failure::NoVolume(format!("several partitions: name one of {}", list.join(", ")))),
            None if asked == 0 => {
                Err(Failure::NoVolume(format!("no partition with a known file system: {}", list.join(", "))))
            }
            None if list.is_empty() => {
                let all: Vec<_> = table.iter().map(|p| p.number.to_string()).collect();
                Err(Failure::NoVolume(format!("no partition {asked}; there are {}", all.join(", "))))
            }
            None => Err(Failure::NoVolume(format!("partition {}", list.join(", ")))),
        }
    }
}

/// Bytes of a volume.
fn used(volume: &Volume) -> u64 {
    u64::from(volume.info().block_size).saturating_mul(volume.info().blocks)
}

impl Retriever {
    /// That there is neither a volume nor a table, and what there is.
    async fn no_volume<M: Media>(
        &self,
        media: &M,
        tally: &Tally,
        place: (u64, u64),
    ) -> Result<Failure, Failure> {
        const NONE: &str = "no file system that is known (ext2, ext3, ext4, F2FS) and no partitions";
        let view = View::new(self, media, tally, place.0, place.1);
        Ok(Failure::NoVolume(match what_is(&view).await.map_err(of_view)? {
            Some(other) => format!("{NONE}, but {other}"),
            None => NONE.to_owned(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use nearside_conformance::needs;
    use nearside_conformance::volume::tool;

    use super::*;
    use crate::{Config, MemoryMedia};

    fn volume(retriever: &Retriever, media: &MemoryMedia) -> Arc<OpenVolume> {
        let tally = Tally::default();
        let mut asked = std::pin::pin!(retriever.volume(media, &tally, 0));
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(volume) => volume.unwrap(),
            Poll::Pending => panic!("it waits"),
        }
    }

    /// Two commands that open it at once may end in either order.
    #[test]
    fn a_state_that_another_command_has_followed_is_not_used() {
        let test = "a_state_that_another_command_has_followed_is_not_used";
        let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
        let image = dir.path().join("image");
        let made =
            tool("mke2fs").args(["-q", "-t", "ext4"]).args([image.as_os_str(), "16M".as_ref()]).status();
        assert!(made.unwrap().success());
        let media = MemoryMedia::new(std::fs::read(&image).unwrap());
        let retriever = Retriever::new(Config::default());
        let before = volume(&retriever, &media);
        assert!(before.is_newest() && Arc::ptr_eq(&before, &volume(&retriever, &media)));
        before.newest.fetch_add(1, Ordering::AcqRel);
        let after = volume(&retriever, &media);
        assert!(after.is_newest());
        assert_eq!(after.id, before.id);
    }
}
