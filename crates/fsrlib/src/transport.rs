//! The way to a drive.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_spec::log::NearDataLog;

use crate::Error;

/// Requests in wire form, each with the bytes of buffer that its reply may fill.
pub type Requests<'r> = &'r mut dyn Iterator<Item = (Vec<u8>, usize)>;
/// Takes one reply's bytes after the other, or why there are none; whether it wants the next.
pub type Replies<'r> = &'r mut dyn FnMut(Result<&[u8], Error>) -> ControlFlow<()>;

/// Carries near-data requests to a drive and replies back, one command each,
/// and ordinary reads for what the host does by itself.
pub trait Transport {
    /// Sends one near-data command: `request` in wire form.
    /// The reply's bytes, at most `capacity`, replace those in `reply`.
    ///
    /// # Errors
    /// [`Error`]: the command did not reach the drive, or failed there.
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error>;

    /// Sends near-data commands and hands their replies on in the order of the requests, one by one, until
    /// `replies` breaks; what is under way then ends unheard. As many are under way together as the way to
    /// the drive allows: as it stands, one.
    fn near_data_each(&mut self, requests: Requests<'_>, replies: Replies<'_>) {
        let mut reply = Vec::new();
        for (request, capacity) in requests {
            let answer = self.near_data(&request, capacity, &mut reply);
            if replies(answer.map(|()| &reply[..])).is_break() {
                return;
            }
        }
    }

    /// How many commands [`Transport::near_data_each`] has under way together; as it stands, one.
    fn at_once(&self) -> usize {
        1
    }

    /// An ordinary NVMe Read: fills `into` from byte `offset` of the namespace, both multiples of
    /// [`Transport::block_size`]. Returns how many commands it took.
    ///
    /// # Errors
    /// [`Error`]: the drive refused or failed it.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error>;

    /// Bytes in the namespace; 0 where this way to the drive cannot read.
    fn capacity(&self) -> u64;

    /// The namespace's block size.
    fn block_size(&self) -> u32;

    /// Largest buffer of a near-data command that it carries.
    fn max_buffer(&self) -> usize {
        nearside_near_data::MAX_BUFFER
    }

    /// Gives up (with an error) a near-data command that is under way once the flag is set, some tens of
    /// milliseconds later: the drive is told to end it. As it stands, none is given up.
    fn set_stop(&mut self, _stop: Arc<AtomicBool>) {}

    /// The drive's log page D5h: what near-data work it can do, and what it has counted; `None` where this
    /// way to it does not carry that.
    ///
    /// # Errors
    /// [`Error`]: the drive failed the command.
    fn statistics(&mut self) -> Result<Option<NearDataLog>, Error> {
        Ok(None)
    }

    /// The drive's own count of the near-data commands that it has taken, so.
    ///
    /// # Errors
    /// As [`Transport::statistics`].
    fn taken(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.statistics()?.map(|page| page.taken()))
    }

    /// Which completion model holds, and what it expects (FAST'12 4: an application can ask).
    fn completion(&self) -> Completion;
}

/// The completion model of a transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// "polled", "interrupt", "hybrid"; "socket" where another process drives the queue pair.
    pub model: String,
    /// What a 4 KiB read is expected to take, where something has been learned.
    pub read_4k_ns: Option<u64>,
    /// What the model does and costs, in words.
    pub detail: String,
    /// Nanoseconds that the driver has spent spinning.
    pub spinning_ns: u64,
}

/// What a session has moved. Near-data commands and ordinary reads are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Near-data commands sent.
    pub near_data_commands: u64,
    /// Ordinary Read commands sent.
    pub read_commands: u64,
    /// Bytes sent to the drive: requests (64 for the command itself not counted).
    pub bytes_out: u64,
    /// Bytes received from the drive: replies and blocks.
    pub bytes_in: u64,
    /// Nanoseconds between sending commands and having their answers, both kinds.
    pub round_trip_ns: u64,
}

impl Totals {
    /// Commands of both kinds.
    pub fn commands(&self) -> u64 {
        self.near_data_commands + self.read_commands
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Totals) -> Totals {
        Totals {
            near_data_commands: self.near_data_commands - earlier.near_data_commands,
            read_commands: self.read_commands - earlier.read_commands,
            bytes_out: self.bytes_out - earlier.bytes_out,
            bytes_in: self.bytes_in - earlier.bytes_in,
            round_trip_ns: self.round_trip_ns - earlier.round_trip_ns,
        }
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        (**self).near_data(request, capacity, reply)
    }

    fn near_data_each(&mut self, requests: Requests<'_>, replies: Replies<'_>) {
        (**self).near_data_each(requests, replies);
    }

    fn at_once(&self) -> usize {
        (**self).at_once()
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        (**self).read(offset, into)
    }

    fn capacity(&self) -> u64 {
        (**self).capacity()
    }

    fn block_size(&self) -> u32 {
        (**self).block_size()
    }

    fn max_buffer(&self) -> usize {
        (**self).max_buffer()
    }

    fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        (**self).set_stop(stop);
    }

    fn statistics(&mut self) -> Result<Option<NearDataLog>, Error> {
        (**self).statistics()
    }

    fn completion(&self) -> Completion {
        (**self).completion()
    }
}
