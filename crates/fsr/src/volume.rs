//! Volumes of the namespace: which there are, and the open ones, opened again when what opening read has
//! changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nearside_fsview::magic::what_is;
use nearside_fsview::partition::partitions;
use nearside_fsview::{Error, Volume};
use nearside_near_data::Failure;

use crate::Retriever;
use crate::crawler::{OpenVolume, open};
use crate::media::Media;
use crate::model::of_view;
use crate::monitor::Deps;
use crate::view::{Tally, Upto, View};

/// Open volumes kept.
const MOST_OPEN: usize = 32;
/// A host that has not flushed what it wrote to its log after so long does not flush for that (`nobarrier`).
const HELD_AT_MOST_NS: u64 = 1_000_000_000;

/// An open volume, by the number that a request gave.
pub(crate) struct CachedVolume {
    asked: u32,
    volume: Arc<OpenVolume>,
}

impl CachedVolume {
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
            overtaken: AtomicBool::new(false),
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
                if kept.volume.is_overtaken() || kept.volume.is_held_too_long(now) {
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
        let volume = match again {
            Some(volume) => volume,
            None => self.find_volume(media, tally, asked, upto).await?,
        };
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
        let held_since = opened.held_back.then(|| held_before.unwrap_or_else(|| media.now_ns()));
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
        Ok(Some(OpenVolume { id, state, newest, ..volume }))
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
                    let held_since = opened.held_back.then(|| media.now_ns());
                    return Ok(OpenVolume::new(0, whole, volume, (Deps::default(), opened.deps), held_since));
                }
                Err(Error::NoFileSystem) => deps = opened.deps,
                Err(error) => return Err(of_view(error)),
            }
        }
        let view = View::new(self, media, tally, 0, media.len());
        let table = partitions(&view).await.map_err(of_view)?;
        if table.is_empty() {
            const NONE: &str = "no file system that is known (ext2, ext3, ext4, F2FS) and no partitions";
            return Err(Failure::NoVolume(match what_is(&view).await.map_err(of_view)? {
                Some(other) => format!("{NONE}, but {other}"),
                None => NONE.to_owned(),
            }));
        }
        deps.extend(&view.into_deps());
        let mut candidates = Vec::new();
        let mut list = Vec::new();
        for part in table.iter().filter(|p| asked == 0 || p.number == asked) {
            let opened = open(self, media, tally, (part.offset, part.len), None, upto).await?;
            match opened.volume {
                Ok(volume) => {
                    let size = part.len >> 20;
                    list.push(format!("{}: {} ({size} MiB)", part.number, volume.info().file_system));
                    let held_since = opened.held_back.then(|| media.now_ns());
                    candidates.push((part, volume, opened.deps, held_since));
                }
                Err(Error::NoFileSystem) => {
                    let view = View::new(self, media, tally, part.offset, part.len);
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
            Some((part, volume, opened, held_since)) if candidates.is_empty() => {
                let place = deps.clone();
                deps.extend(&opened);
                let at = (part.offset, part.len);
                Ok(OpenVolume::new(part.number, at, volume, (place, deps), held_since))
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
