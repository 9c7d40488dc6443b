//! Buffers of pages that are done with, for the next: fresh memory costs as much as what is made in it.

/// Largest buffer that is kept, and bytes of all of them.
const LARGEST: usize = 1 << 20;
const KEPT: usize = 4 << 20;
/// How many are kept.
const MOST: usize = 16;

/// Buffers that nobody has, those that came first before the others.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Vec<u8>>);

impl Spares {
    /// A buffer for so many bytes. What lies in it is of no page.
    pub(super) fn take(&mut self, size: usize) -> Vec<u8> {
        if size > LARGEST {
            return Vec::with_capacity(size);
        }
        // Pages of a column differ by little.
        let fits = |spare: &Vec<u8>| (size..=size + size / 4).contains(&spare.capacity());
        match self.0.iter().position(fits) {
            Some(nth) => self.0.swap_remove(nth),
            None => Vec::with_capacity(size + size / 8),
        }
    }

    /// Keeps a buffer.
    pub(super) fn give(&mut self, buffer: Vec<u8>) {
        if !(1..=LARGEST + LARGEST / 8).contains(&buffer.capacity()) {
            return;
        }
        self.0.push(buffer);
        let held = |all: &[Vec<u8>]| all.iter().map(Vec::capacity).sum::<usize>();
        while self.0.len() > MOST || held(&self.0) > KEPT {
            self.0.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_to_who_needs_as_much_and_few_are_kept() {
        let mut spares = Spares::default();
        let mut first = spares.take(1000);
        first.push(1);
        let at = first.as_ptr();
        spares.give(first);
        let [small, next] = [10, 990].map(|size| spares.take(size));
        assert!(small.as_ptr() != at, "a small page holds no large buffer");
        assert_eq!(next.as_ptr(), at);
        for size in (0..1000).map(|nth| nth * 4096) {
            spares.give(Vec::with_capacity(size));
            let held: usize = spares.0.iter().map(Vec::capacity).sum();
            assert!(spares.0.len() <= MOST && held <= KEPT, "{} buffers of {held}", spares.0.len());
        }
        assert_eq!(spares.take(2 * LARGEST).capacity(), 2 * LARGEST, "a large page has what it needs");
    }
}
