//! Which slots a drive's read buffer holds: sets of eight, the least recently used goes first. Only time
//! depends on it.

use nearside_random::draw;

const WAYS: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// (logical number and one, when last used); 0: none.
    sets: Vec<[(u32, u32); WAYS]>,
    clock: u32,
}

impl Cache {
    /// Room for so many slots; for none, nothing is ever there.
    pub fn new(slots: u64) -> Cache {
        Cache { sets: vec![[(0, 0); WAYS]; (slots as usize).div_ceil(WAYS)], clock: 0 }
    }

    fn set(&mut self, logical: u32) -> Option<&mut [(u32, u32); WAYS]> {
        let count = self.sets.len();
        let mut hash = u64::from(logical);
        (count > 0).then(|| &mut self.sets[draw(&mut hash) as usize % count])
    }

    /// Whether it is there; it then counts as used.
    pub fn hit(&mut self, logical: u32) -> bool {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let Some(set) = self.set(logical) else { return false };
        let Some(way) = set.iter_mut().find(|(it, _)| *it == logical + 1) else { return false };
        way.1 = clock;
        true
    }

    /// Puts it there.
    pub fn insert(&mut self, logical: u32) {
        if self.hit(logical) {
            return;
        }
        let clock = self.clock;
        if let Some(set) = self.set(logical)
            && let Some(oldest) = set.iter_mut().min_by_key(|(it, used)| (*it != 0, used.wrapping_sub(clock)))
        {
            *oldest = (logical + 1, clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_stays_and_what_was_not_goes() {
        let mut cache = Cache::new(0);
        cache.insert(1);
        assert!(!cache.hit(1));
        let mut cache = Cache::new(800);
        for logical in 0..10_000 {
            cache.insert(logical);
            cache.insert(7);
        }
        assert!(cache.hit(7) && cache.hit(9_999) && !cache.hit(100));
        assert_eq!((0..10_000).filter(|&l| cache.sets.iter().flatten().any(|w| w.0 == l + 1)).count(), 800);
    }
}
