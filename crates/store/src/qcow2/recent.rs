//! A few things that were used last.

/// Things by key, the last used first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    all: Vec<(K, V)>,
    most: usize,
}

impl<K: PartialEq, V> Recent<K, V> {
    /// At most so many, which is at least one.
    pub(super) fn new(most: usize) -> Recent<K, V> {
        Recent { all: Vec::new(), most: most.max(1) }
    }

    /// What that key has, made where it is not kept.
    pub(super) fn get_or<E>(&mut self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<&V, E> {
        match self.all.iter().position(|(kept, _)| *kept == key) {
            Some(at) => self.all[..=at].rotate_right(1),
            None => {
                let made = make()?;
                self.all.truncate(self.most - 1);
                self.all.insert(0, (key, made));
            }
        }
        Ok(&self.all[0].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_kept() {
        let mut recent = Recent::new(2);
        let mut made = Vec::new();
        for key in [1, 2, 1, 3, 1, 2] {
            let make = || -> Result<u32, ()> {
                made.push(key);
                Ok(key * 10)
            };
            assert_eq!(recent.get_or(key, make), Ok(&(key * 10)));
        }
        assert_eq!(made, [1, 2, 3, 2]);
        assert_eq!(recent.get_or(4, || Err("none")), Err("none"));
        assert_eq!(recent.get_or(2, || Err("gone")), Ok(&20));
    }
}
