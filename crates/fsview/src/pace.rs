//! Work that reads nothing, in slices.

use crate::Source;

/// Lets other work go first, every so many steps of a walk that reads nothing.
pub(crate) struct Pace<'a, S> {
    source: &'a S,
    left: u64,
}

/// Steps between two looks at whether other work waits: of 100 ns to 1 µs each.
pub(crate) const SLICE: u64 = 32;

impl<'a, S: Source> Pace<'a, S> {
    pub(crate) fn new(source: &'a S) -> Self {
        Pace { source, left: SLICE }
    }

    pub(crate) async fn step(&mut self) {
        self.steps(1).await;
    }

    /// A piece of work of so many steps.
    pub(crate) async fn steps(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
        if self.left == 0 {
            self.left = SLICE;
            self.source.pause().await;
        }
    }
}

/// What tests of work in slices need.
#[cfg(test)]
pub(crate) mod still {
    use crate::{Error, Source};

    /// A source that has nothing, and counts.
    #[derive(Default)]
    pub(crate) struct Still {
        pub(crate) pauses: std::cell::Cell<u64>,
    }

    impl Source for Still {
        type Block = Vec<u8>;

        fn len(&self) -> u64 {
            0
        }

        async fn pause(&self) {
            self.pauses.set(self.pauses.get().saturating_add(1));
        }

        async fn metadata(&self, at: u64, len: u32) -> Result<Vec<u8>, Error> {
            Err(Error::Read { at, len, reason: "there is nothing".into() })
        }
    }

    /// Nothing here waits.
    pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => panic!("it waits"),
        }
    }
}
