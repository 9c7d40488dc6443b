//! A way into an IOVA table for one thread that reaches the same regions again and again.
//!
//! A pin ([`Memory::locate`]) is an atomic change of a shared word, twice for each access. What is worse,
//! the second one comes between the data of a command and its completion, and makes the processor see the
//! first to its end before it begins the second: some hundred nanoseconds where the host reads both on
//! another core. So whoever moves data all the time keeps the regions that it has reached, as long as the
//! table stands as it stood, and pays one load to know that it does.

use std::sync::Arc;

use crate::{Memory, Region, Span};

/// Regions kept: a host's buffers seldom lie in more.
const KEPT: usize = 4;

/// What was found at a place of the table: the place, its generation, the region.
type Kept = (u16, u16, Arc<Region>);

/// Regions of a table as one thread has reached them.
///
/// A mapping that was taken away stays mapped until this has looked at the table again: whoever takes one
/// away sees to it that all who reach it come by ([`Reach::let_go`]).
pub struct Reach {
    memory: Arc<Memory>,
    version: u32,
    kept: [Option<Kept>; KEPT],
}

impl Reach {
    /// Into a table.
    pub fn new(memory: Arc<Memory>) -> Reach {
        Reach { memory, version: 0, kept: [const { None }; KEPT] }
    }

    /// The region that a span lies in, and where. `None`: it is not mapped any more.
    #[inline]
    pub fn locate(&mut self, span: Span) -> Option<(&Region, usize)> {
        let version = self.memory.version();
        if version != self.version {
            self.let_go();
            self.version = version;
        }
        let (place, generation) = span.place();
        let kept = &mut self.kept[usize::from(place) % KEPT];
        if !matches!(kept, Some((p, g, _)) if (*p, *g) == (place, generation)) {
            *kept = None;
            let (pinned, _) = self.memory.locate(span)?;
            *kept = Some((place, generation, Arc::clone(&pinned)));
        }
        let (.., region) = kept.as_ref()?;
        let offset = span.offset_in(region)?;
        Some((region, offset))
    }

    /// Lets go of all regions.
    pub fn let_go(&mut self) {
        self.kept = [const { None }; KEPT];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_away_is_let_go_at_the_next_look() {
        let memory = Arc::new(Memory::new());
        let region = |n: u8| {
            let region = Region::anonymous(4096).unwrap();
            region.fill(0, 4096, n);
            Arc::new(region)
        };
        for n in 0..8 {
            memory.map(u64::from(n) * 8192, region(n)).unwrap();
        }
        let mut reach = Reach::new(memory.clone());
        let span = |iova| memory.resolve(iova, 4).unwrap();
        let spans: Vec<Span> = (0..8).map(|n| span(n * 8192 + 100)).collect();
        let read = |reach: &mut Reach, span| {
            let mut bytes = [0; 4];
            reach.locate(span).map(|(region, at)| {
                region.read(at, &mut bytes);
                bytes
            })
        };
        for _ in 0..2 {
            for (n, span) in (0u8..).zip(&spans) {
                assert_eq!(read(&mut reach, *span), Some([n; 4]));
            }
        }
        // It is unmapped once it was looked for again, whatever is looked for.
        let gone = memory.unmap(7 * 8192).unwrap();
        assert!(gone.upgrade().is_some());
        assert_eq!(read(&mut reach, spans[6]), Some([6; 4]));
        assert!(gone.upgrade().is_none() && read(&mut reach, spans[7]).is_none());
        // Another's memory at the same address and place is not the old span's.
        memory.map(7 * 8192, region(9)).unwrap();
        assert!(read(&mut reach, spans[7]).is_none());
        assert_eq!(read(&mut reach, span(7 * 8192)), Some([9; 4]));
        // Without another access, by a word.
        let gone = memory.unmap(7 * 8192).unwrap();
        reach.let_go();
        assert!(gone.upgrade().is_none());
    }
}
