//! A literal's finder, fitted to the bytes that it searches.
//!
//! The finder looks for two of the literal's bytes at their distance and compares the rest only there; it
//! takes the two that are rare in text at large. In a log full of digits that may be a digit, and every
//! second place where the look stops is in vain. So a sample of a long file says which bytes are rare in it,
//! and the finder is made again.

use memchr::arch::all::packedpair::HeuristicFrequencyRank;
use memchr::memmem::{Finder, FinderBuilder};

/// A file is searched so far before the first sample: what is shorter does not earn the sample's cost.
const FIRST: usize = 256 << 10;
/// Between two samples: a file's bytes may change their kind.
const AGAIN: usize = 16 << 20;
/// Bytes of a sample; some 5 µs.
const SAMPLE: usize = 8 << 10;

/// One searcher's finder for a literal.
#[derive(Debug, Default)]
pub(crate) struct Tuned {
    /// Bytes searched since the last sample, or since the file's start.
    searched: usize,
    /// The file was sampled.
    sampled: bool,
    /// Kept from file to file: those of one command are often alike, and any pair of bytes is right.
    finder: Option<Box<Finder<'static>>>,
}

impl Tuned {
    /// At the start of a file.
    pub(crate) fn begin(&mut self) {
        (self.searched, self.sampled) = (0, false);
    }

    /// What `general.find` finds.
    #[inline]
    pub(crate) fn find(&mut self, general: &Finder<'static>, hay: &[u8]) -> Option<usize> {
        let found = self.finder.as_deref().unwrap_or(general).find(hay);
        self.searched = self.searched.saturating_add(found.unwrap_or(hay.len()));
        if self.searched >= if self.sampled { AGAIN } else { FIRST }
            && let Some(sample) = hay.get(..SAMPLE)
        {
            self.fit(general.needle(), sample);
        }
        found
    }

    #[cold]
    fn fit(&mut self, needle: &[u8], sample: &[u8]) {
        let finder = FinderBuilder::new().build_forward_with_ranker(Ranks::of(sample), needle);
        self.finder = Some(Box::new(finder.into_owned()));
        (self.searched, self.sampled) = (0, true);
    }
}

/// How frequent each byte is in a sample: 0 where it is not in it, 255 from one in 32 on.
struct Ranks([u8; 256]);

impl Ranks {
    fn of(sample: &[u8]) -> Self {
        let mut counts = [0usize; 256];
        for byte in sample {
            if let Some(count) = counts.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
        let most = (sample.len() / 32).max(255);
        Self(counts.map(|count| u8::try_from((count * 255).div_ceil(most)).unwrap_or(u8::MAX)))
    }
}

impl HeuristicFrequencyRank for Ranks {
    fn rank(&self, byte: u8) -> u8 {
        self.0.get(usize::from(byte)).copied().unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_decides_and_every_place_is_found() {
        let general = Finder::new(b"x7-e").into_owned();
        // Bytes of every kind in turn, so that each sample differs from the one before.
        let kinds: [&[u8]; 3] = [b"7e x7e ", b"---x-e-", b"abcdefg"];
        for kind in kinds {
            let mut tuned = Tuned::default();
            let mut hay: Vec<u8> = kind.iter().copied().cycle().take(64 << 10).collect();
            for at in [0, SAMPLE, (64 << 10) - 4] {
                hay.splice(at..at + 4, *b"x7-e");
            }
            for _ in 0..20 {
                let (mut from, mut places) = (0, Vec::new());
                while let Some(at) = tuned.find(&general, &hay[from..]) {
                    places.push(from + at);
                    from += at + 1;
                }
                assert_eq!(places, [0, SAMPLE, (64 << 10) - 4]);
            }
            assert!(tuned.finder.is_some() && tuned.sampled);
            tuned.begin();
            assert!(tuned.finder.is_some() && !tuned.sampled);
        }
    }

    #[test]
    fn ranks_follow_the_sample() {
        let ranks = Ranks::of(&[&[b'a'; 8000][..], &[b'b'; 100], b"c"].concat());
        assert_eq!(ranks.rank(b'a'), 255);
        assert!(ranks.rank(b'b') > ranks.rank(b'c') && ranks.rank(b'c') > ranks.rank(b'd'));
        assert_eq!((ranks.rank(b'd'), Ranks::of(&[]).rank(b'a')), (0, 0));
    }

    #[test]
    fn a_short_file_is_not_sampled() {
        let general = Finder::new(b"xy").into_owned();
        let mut tuned = Tuned::default();
        assert_eq!(tuned.find(&general, &[b'x'; FIRST - 1]), None);
        assert!(tuned.finder.is_none());
        // Enough is searched, but this is too little to sample.
        assert_eq!(tuned.find(&general, b"xxy"), Some(1));
        assert!(tuned.finder.is_none());
        assert_eq!(tuned.find(&general, &[b'x'; SAMPLE]), None);
        assert!(tuned.finder.is_some());
    }
}
