//! Extended attributes of a file, one after the other, by the kernel's rules of who may have which
//! (`xattr_permission`, `trusted_list`).

use nearside_fsview::{Attribute, FileKind};
use nearside_near_data::{Cursor, Failure, Record};

use super::Run;
use crate::crawler::{Crawler, Found};
use crate::media::Media;
use crate::model::{Sink, of_view};
use crate::operation::Ended;
use crate::view::View;

impl<M: Media> Run<'_, M> {
    pub(super) async fn attributes<S: Sink>(
        &self,
        sink: &mut S,
        crawler: &Crawler<'_, M>,
        (path, above): (&[u8], usize),
        found: &Found,
        at: &Cursor,
    ) -> Result<Ended, Failure> {
        if found.inode.may_have_attributes {
            crawler.may_have_content()?;
        }
        let mark = sink.mark();
        let view = crawler.view();
        let file = Record::File { path: path.into(), size: found.inode.size };
        if sink.push(file, path.len() + above).is_err() {
            return Ok(full(at.found, at.offset));
        }
        let ended = match self.allowed(crawler, &view, found).await {
            Ok(all) => self.values(sink, crawler, &view, (path.len() + above, &all), found, at).await,
            Err(failure) => Err(failure),
        };
        let monitor = &self.retriever.monitor;
        let mut holds = crawler.volume.holds(monitor, self.media).await;
        for deps in [&view.deps(), &*found.deps] {
            holds = holds && monitor.still_holds(deps, self.media).await;
        }
        // Where nothing but the file's name had room, it is said again with what had none.
        let any = sink.mark().1 > mark.1 + 1;
        if !holds || !any && !matches!(ended, Ok(Ended::Done)) {
            sink.rollback(mark);
        }
        if holds { ended } else { Err(Failure::ChangedDuringScan) }
    }

    /// What the user may have of them.
    async fn allowed(
        &self,
        crawler: &Crawler<'_, M>,
        view: &View<'_, M>,
        found: &Found,
    ) -> Result<Vec<Attribute>, Failure> {
        let inode = &found.inode;
        let mut all = crawler.volume.volume.attributes(view, inode).await.map_err(of_view)?;
        let of_users = |attribute: &Attribute| attribute.name.starts_with(b"user.");
        if all.iter().any(of_users) {
            let may = match inode.kind {
                FileKind::Regular | FileKind::Directory => crawler.may_read(found).await,
                _ => Err(Failure::PermissionDenied),
            };
            match may {
                Ok(()) => {}
                Err(Failure::PermissionDenied) => all.retain(|attribute| !of_users(attribute)),
                Err(failure) => return Err(failure),
            }
        }
        if crawler.who.uid != 0 {
            all.retain(|attribute| !attribute.name.starts_with(b"trusted."));
        }
        Ok(all)
    }

    async fn values<S: Sink>(
        &self,
        sink: &mut S,
        crawler: &Crawler<'_, M>,
        view: &View<'_, M>,
        (reserve, all): (usize, &[Attribute]),
        found: &Found,
        at: &Cursor,
    ) -> Result<Ended, Failure> {
        let mut offset = at.offset;
        for (nth, attribute) in (0u64..).zip(all).skip_while(|(nth, _)| *nth < at.found) {
            let volume = &crawler.volume.volume;
            let value = volume.attribute_value(view, &found.inode, attribute).await.map_err(of_view)?;
            let rest = usize::try_from(offset).ok().and_then(|from| value.get(from..)).unwrap_or_default();
            // Its name and three numbers stand before the value.
            let room = sink.room(reserve).saturating_sub(attribute.name.len() + 16);
            let part = &rest[..rest.len().min(room)];
            let record = Record::Attribute {
                name: attribute.name.as_slice().into(),
                len: attribute.len.into(),
                offset,
                value: part.into(),
            };
            if part.is_empty() && !rest.is_empty() || sink.push(record, reserve).is_err() {
                return Ok(full(nth, offset));
            }
            if part.len() < rest.len() {
                return Ok(full(nth, offset + part.len() as u64));
            }
            offset = 0;
            self.media.yield_now().await;
        }
        Ok(Ended::Done)
    }
}

/// Goes on at that byte of that attribute.
fn full(found: u64, offset: u64) -> Ended {
    Ended::Full(Cursor { found, offset, ..Cursor::default() })
}
