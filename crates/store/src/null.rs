//! A store without bytes, for measuring and for simulation without payload.

use std::io;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::Memory;

use crate::check::check;
use crate::{Channel, Completion, Data, Operation, Store, Submitted, Token};

/// A store that keeps nothing: a write is forgotten, a read leaves the buffer as it was. It answers at once,
/// refuses what any store refuses, and so owes the contract's points 1 and 2 but not 3 to 5.
#[derive(Clone, Debug)]
pub struct Null {
    capacity: u64,
    block_size: u32,
}

impl Null {
    /// A store of `capacity` bytes that are nowhere: a multiple of `block_size`, which is 512 or 4096.
    ///
    /// # Errors
    /// `InvalidInput` where the sizes are others.
    pub fn new(capacity: u64, block_size: u32) -> io::Result<Null> {
        if ![512, 4096].contains(&block_size)
            || capacity == 0
            || !capacity.is_multiple_of(u64::from(block_size))
        {
            let reason = format!("{capacity} bytes are not whole blocks of {block_size} (512 or 4096)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Ok(Null { capacity, block_size })
    }
}

impl Store for Null {
    type Channel = Null;

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn channel(&self, _memory: Arc<Memory>) -> io::Result<Null> {
        Ok(self.clone())
    }
}

impl Channel for Null {
    #[inline]
    fn submit(&mut self, operation: Operation, data: Data<'_>, _token: Token, _now: Nanos) -> Submitted {
        let result = check(&operation, &data, self.capacity, self.block_size, false);
        Submitted::done(result, data)
    }

    #[inline]
    fn poll(&mut self, _now: Nanos, _sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        None
    }

    #[inline]
    fn in_flight(&self) -> usize {
        0
    }
}
