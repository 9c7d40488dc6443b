//! What a host is told of reservations (Base 2.0, 5.16.1.24), and which of it it does not want to hear.

use std::collections::{BTreeMap, VecDeque};

use nearside_spec::reservation::{Notice, ReservationNotification};

/// Notifications that are kept while nobody reads them: as many as the log page can count.
const MOST: usize = 256;

/// Notifications that the host has not read, oldest first.
#[derive(Default)]
pub(super) struct Notifications {
    unread: VecDeque<(u64, u32, Notice)>,
    /// So far.
    count: u64,
    /// By namespace those that are not given: bits of [`Notice::to_field`].
    masks: BTreeMap<u32, u32>,
}

impl Notifications {
    /// Whether the host wants to hear of it.
    pub(super) fn add(&mut self, nsid: u32, notice: Notice) -> bool {
        if self.mask(nsid) & 1 << notice.to_field() != 0 {
            return false;
        }
        // The number of one that is lost is missing.
        self.count = self.count.wrapping_add(1).max(1);
        if self.unread.len() >= MOST {
            self.unread.pop_front();
        }
        self.unread.push_back((self.count, nsid, notice));
        true
    }

    /// The log page.
    pub(super) fn page(&self) -> ReservationNotification {
        let mut page = ReservationNotification::default();
        if let Some((count, nsid, notice)) = self.unread.front() {
            page.set_count(*count)
                .set_kind(notice.to_field())
                .set_more(u8::try_from(self.unread.len() - 1).unwrap_or(u8::MAX))
                .set_nsid(*nsid);
        }
        page
    }

    /// It has been read; whether there are more.
    pub(super) fn read(&mut self) -> bool {
        self.unread.pop_front();
        !self.unread.is_empty()
    }

    pub(super) fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(&nsid).copied().unwrap_or(0)
    }

    pub(super) fn set_mask(&mut self, nsid: u32, mask: u32) {
        self.masks.insert(nsid, mask);
    }
}
