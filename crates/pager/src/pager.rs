//! The loop that serves faults.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use nearside_clock::Clock;
use nearside_dma::persistent::punch;
use nearside_dma::userfault::{PageFault, UserFault};
use nearside_dma::{PAGE_SIZE, Region};
use nearside_driver::{Command, DmaBuffer, Handle, Initiator, Peer, RejectReason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Error;
use crate::awake::Awake;

/// Turns with work to do between two looks at whether to stop.
const LOOK_EVERY: u32 = 64;

/// How a pager works.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Pages in memory at most.
    pub budget: usize,
    /// Pages that are kept free, by taking others away while the drive reads; half as many while it does not.
    pub batch: usize,
    /// How long it looks for faults after the last before it sleeps, in nanoseconds. Waking it takes longer
    /// than a fast drive's read.
    pub spin_ns: u64,
    /// Whether the machine's CPUs are kept from sleeping: waking one takes longer than all else of a miss.
    /// For root; it costs power.
    pub awake: bool,
    /// The drive's namespace, which is overwritten from its first block on.
    pub nsid: u32,
    /// Bytes of its blocks.
    pub block_size: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { budget: 1024, batch: 32, spin_ns: 50_000, awake: false, nsid: 1, block_size: 512 }
    }
}

/// What a pager has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages that were zeros.
    pub zeros: u64,
    /// Pages that were read.
    pub read: u64,
    /// Pages that were written back.
    pub written: u64,
    /// Pages that were taken away, since the drive had them, or they were zeros.
    pub dropped: u64,
    /// Pages that could not be read, and are poisoned.
    pub poisoned: u64,
    /// Pages that could not be written, and stay.
    pub stuck: u64,
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// Nowhere: zeros.
    Zeros,
    /// On the drive.
    Stored,
    /// Wanted, and not begun; whether to be written, and whether on the drive.
    Wanted { writes: bool, stored: bool },
    /// Being read.
    Loading { writes: bool },
    /// In memory as on the drive, or, where not stored, zeros; the user is shown it write-protected.
    Clean { stored: bool },
    /// In memory alone.
    Dirty,
    /// Being written, with writes to it held.
    Leaving,
    /// Being written, and written to meanwhile.
    Kept,
    /// In memory for good: it could not be written.
    Stuck,
    /// It could not be read.
    Poisoned,
}

/// Serves the faults of one memory from a drive. When it is dropped the memory is given up
/// ([`UserFault::give_up`]).
pub struct Pager<P: Peer, C: Clock> {
    io: Initiator<P, C>,
    faults: UserFault,
    /// The memory, mapped apart from its user's mapping.
    memory: Region,
    file: File,
    config: Config,
    pages: Vec<Page>,
    /// Those in memory that may be taken away, the first to come first.
    order: VecDeque<usize>,
    wanted: VecDeque<usize>,
    /// Those in memory or on their way there.
    resident: usize,
    /// Those on their way.
    loading: usize,
    /// Those on their way out ([`Page::Leaving`]).
    leaving: usize,
    /// By handle's index: the page of the command.
    out: Vec<Option<usize>>,
    buffers: Vec<DmaBuffer>,
    staging: Box<[u8; PAGE_SIZE]>,
    counts: Counts,
    _awake: Option<Awake>,
}

impl<P: Peer, C: Clock> Pager<P, C> {
    /// For a memory that was handed over ([`nearside_dma::userfault::Served::hand_over`]).
    ///
    /// # Errors
    /// Memory that is none, a budget of no pages, a drive without room for all pages, or CPUs that this user
    /// may not keep awake.
    pub fn new(
        io: Initiator<P, C>,
        faults: UserFault,
        memory: OwnedFd,
        room: u64,
        config: Config,
    ) -> Result<Pager<P, C>, Error> {
        let (_, len) = faults.place();
        let file = File::from(memory.try_clone().map_err(Error::system("memory"))?);
        let memory = Region::foreign(memory, 0, len).map_err(Error::system("memory"))?;
        if config.budget == 0 || config.batch == 0 {
            return Err(Error::Invalid("a budget and a batch are at least a page".into()));
        }
        if (len as u64) > room {
            return Err(Error::Invalid(format!("a drive of {room} bytes has no room for {len}")));
        }
        if config.block_size == 0 || !PAGE_SIZE.is_multiple_of(config.block_size as usize) {
            return Err(Error::Invalid(format!("blocks of {} bytes", config.block_size)));
        }
        let awake = config.awake.then(Awake::new).transpose();
        let depth = io.depth();
        let buffers = (0..depth).map(|_| io.buffer(PAGE_SIZE)).collect::<Result<_, _>>();
        Ok(Pager {
            buffers: buffers.map_err(|e| Error::Drive(e.to_string()))?,
            io,
            faults,
            memory,
            file,
            config,
            pages: vec![Page::Zeros; len / PAGE_SIZE],
            order: VecDeque::new(),
            wanted: VecDeque::new(),
            resident: 0,
            loading: 0,
            leaving: 0,
            out: vec![None; depth],
            staging: Box::new([0; PAGE_SIZE]),
            counts: Counts::default(),
            _awake: awake.map_err(Error::system("/dev/cpu_dma_latency"))?,
        })
    }

    /// Serves until `stop` can be read, or its other side has ended; what was done.
    ///
    /// # Errors
    /// The drive's end, or the system's: the memory's user is gone.
    pub fn run(&mut self, stop: &impl AsFd) -> Result<Counts, Error> {
        let (mut turns, mut last) = (0u32, self.io.clock().now());
        loop {
            let worked = self.turn()?;
            let now = self.io.clock().now();
            if worked {
                last = now;
            }
            let idle = !worked && self.io.outstanding() == 0 && self.wanted.is_empty();
            turns = turns.wrapping_add(1);
            let sleeps = idle && now.since(last) > self.config.spin_ns;
            if (sleeps || turns.is_multiple_of(LOOK_EVERY)) && self.told_to_stop(stop, sleeps)? {
                return Ok(self.counts);
            }
            if idle && !sleeps {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether to stop; where it may sleep, after a fault or the word has come.
    fn told_to_stop(&self, stop: &impl AsFd, sleeps: bool) -> Result<bool, Error> {
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.faults, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, if sleeps { None } else { Some(&none) }) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[0].revents().is_empty()),
            Err(e) => Err(Error::system("poll")(e.into())),
        }
    }

    /// Takes what has come, begins what can be; whether there was anything.
    fn turn(&mut self) -> Result<bool, Error> {
        const NONE: PageFault = PageFault { page: 0, protected: false, hidden: false, writes: false };
        let mut faults = [NONE; 32];
        let count = self.faults.take(&mut faults).map_err(Error::system("userfaultfd"))?;
        for fault in &faults[..count] {
            self.fault(*fault)?;
        }
        let mut ended = 0;
        if self.io.outstanding() > 0 {
            self.io.look();
            while let Some((handle, finished)) = self.io.take_any() {
                ended += 1;
                self.ended(handle, finished.outcome.is_ok(), finished.buffer)?;
            }
            if let Some(error) = self.io.failure() {
                return Err(Error::Drive(error.to_string()));
            }
        }
        self.begin()?;
        // While the drive reads: who waits has no CPU that must hear of it. Else fewer, of which the user's
        // CPU hears by an interrupt; in both cases so few that who comes next waits for no more.
        let free = if self.loading > 0 { self.config.batch } else { self.config.batch / 2 };
        let most = self.budget();
        let gone = most > free && self.wanted.is_empty() && self.make_room(most - free)?;
        Ok(count + ended > 0 || gone)
    }

    /// Pages that may be in memory: those that nothing can be done about come on top.
    fn budget(&self) -> usize {
        self.config.budget + self.counts.stuck as usize
    }

    fn fault(&mut self, fault: PageFault) -> Result<(), Error> {
        let PageFault { page, protected, hidden, writes } = fault;
        match &mut self.pages[page] {
            state @ (Page::Zeros | Page::Stored) => {
                *state = Page::Wanted { writes, stored: *state == Page::Stored };
                self.wanted.push_back(page);
                Ok(())
            }
            // A fault is told for each thread that waits; one answer wakes all.
            Page::Wanted { writes: any, .. } | Page::Loading { writes: any } => {
                *any |= writes;
                Ok(())
            }
            state @ Page::Clean { .. } if protected => {
                *state = Page::Dirty;
                self.pass(page)
            }
            state @ Page::Leaving if protected => {
                *state = Page::Kept;
                self.leaving -= 1;
                self.pass(page)
            }
            Page::Dirty | Page::Kept | Page::Stuck if protected => self.pass(page),
            // The kernel, or its user, has taken it out of the user's mapping.
            Page::Clean { .. } | Page::Leaving if hidden => self.show(page, true),
            Page::Dirty | Page::Kept | Page::Stuck if hidden => self.show(page, false),
            // It came or went since: who waits looks again.
            _ => self.wake(page),
        }
    }

    fn wake(&self, page: usize) -> Result<(), Error> {
        self.faults.wake(page).map_err(Error::system("wake"))
    }

    /// Shows a page that is there to its user.
    fn show(&self, page: usize, told: bool) -> Result<(), Error> {
        match self.faults.show(page, told) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => self.wake(page),
            done => done.map_err(Error::system("a page")),
        }
    }

    /// Lets writes to a page pass.
    fn pass(&self, page: usize) -> Result<(), Error> {
        self.faults.protect(page, 1, false).map_err(Error::system("write protection"))
    }

    /// Begins what is wanted, as far as there is room.
    fn begin(&mut self) -> Result<(), Error> {
        while let Some(&page) = self.wanted.front() {
            let most = self.budget();
            while self.resident >= most && self.make_room(most - 1)? {}
            if self.resident >= self.budget() {
                break;
            }
            let Page::Wanted { writes, stored } = self.pages[page] else {
                self.wanted.pop_front();
                continue;
            };
            if stored {
                if !self.send(page, Command::read)? {
                    break;
                }
                // The drive begins; meanwhile the kernel finds memory for the page.
                self.io.look();
                self.allocate(page);
                self.pages[page] = Page::Loading { writes };
                self.loading += 1;
            } else {
                self.counts.zeros += 1;
                self.allocate(page);
                self.came(page, writes, false)?;
            }
            self.resident += 1;
            self.wanted.pop_front();
        }
        Ok(())
    }

    /// Has the kernel put zeros there, which the user is not shown.
    fn allocate(&self, page: usize) {
        self.memory.write(page * PAGE_SIZE, &[0]);
    }

    /// Shows a page that has come. Of writes to one that is to be written it is not told: it is dirty.
    fn came(&mut self, page: usize, writes: bool, stored: bool) -> Result<(), Error> {
        self.show(page, !writes)?;
        self.pages[page] = if writes { Page::Dirty } else { Page::Clean { stored } };
        self.order.push_back(page);
        Ok(())
    }

    /// Sends a command for a page's blocks; false where none can be sent now.
    fn send(&mut self, page: usize, command: impl Fn(u32, u64, u32) -> Command) -> Result<bool, Error> {
        let Some(buffer) = self.buffers.pop() else { return Ok(false) };
        let blocks = PAGE_SIZE as u32 / self.config.block_size;
        let command = command(self.config.nsid, page as u64 * u64::from(blocks), blocks);
        match self.io.submit(&command, Some(buffer)) {
            Ok(handle) => {
                self.out[handle.index()] = Some(page);
                Ok(true)
            }
            Err(rejected) => {
                self.buffers.extend(rejected.buffer);
                match rejected.reason {
                    RejectReason::Full => Ok(false),
                    reason => Err(Error::Drive(reason.to_string())),
                }
            }
        }
    }

    fn ended(&mut self, handle: Handle, well: bool, buffer: Option<DmaBuffer>) -> Result<(), Error> {
        let page = self.out[handle.index()].take();
        let (Some(page), Some(buffer)) = (page, buffer) else {
            return Err(Error::Drive("a command came back that was not sent, or without its buffer".into()));
        };
        let state = self.pages[page];
        if matches!(state, Page::Loading { .. }) {
            self.loading -= 1;
            buffer.read(0, &mut self.staging[..]);
        }
        self.leaving -= usize::from(state == Page::Leaving);
        self.buffers.push(buffer);
        match (state, well) {
            (Page::Loading { writes }, true) => {
                self.counts.read += 1;
                self.memory.write(page * PAGE_SIZE, &self.staging[..]);
                self.came(page, writes, true)
            }
            (Page::Loading { .. }, false) => {
                self.counts.poisoned += 1;
                self.take_away(page, Page::Poisoned)?;
                // What is left of its write protection would be in the way.
                self.pass(page)?;
                self.faults.poison(page).map_err(Error::system("poison"))
            }
            (Page::Leaving, true) => {
                self.counts.written += 1;
                self.pages[page] = Page::Clean { stored: true };
                self.order.push_front(page);
                Ok(())
            }
            (Page::Kept, true) => {
                self.counts.written += 1;
                self.pages[page] = Page::Dirty;
                self.order.push_back(page);
                Ok(())
            }
            (Page::Leaving | Page::Kept, false) => {
                self.counts.stuck += 1;
                self.pages[page] = Page::Stuck;
                self.pass(page)
            }
            (state, _) => Err(Error::Drive(format!("page {page} had a command out, and was {state:?}"))),
        }
    }

    fn take_away(&mut self, page: usize, to: Page) -> Result<(), Error> {
        punch(&self.file, (page * PAGE_SIZE) as u64, PAGE_SIZE as u64).map_err(Error::system("a hole"))?;
        self.pages[page] = to;
        self.resident -= 1;
        Ok(())
    }

    /// Where there are more than `most`: takes one page away, or begins to write one back, which then comes
    /// before all others; whether there was one.
    fn make_room(&mut self, most: usize) -> Result<bool, Error> {
        let over = self.resident.saturating_sub(most);
        let Some(&page) = self.order.front().filter(|_| over > 0) else { return Ok(false) };
        let state = self.pages[page];
        match state {
            Page::Clean { stored } => {
                self.counts.dropped += 1;
                self.take_away(page, if stored { Page::Stored } else { Page::Zeros })?;
            }
            Page::Dirty if self.leaving < over && self.write_back(page)? => {}
            _ => return Ok(false),
        }
        self.order.pop_front();
        Ok(true)
    }

    /// Holds writes to a page and sends its bytes; false where nothing can be sent now.
    fn write_back(&mut self, page: usize) -> Result<bool, Error> {
        let Some(mut buffer) = self.buffers.pop() else { return Ok(false) };
        self.faults.protect(page, 1, true).map_err(Error::system("write protection"))?;
        self.memory.read(page * PAGE_SIZE, &mut self.staging[..]);
        buffer.write(0, &self.staging[..]);
        self.buffers.push(buffer);
        if !self.send(page, Command::write)? {
            self.pass(page)?;
            return Ok(false);
        }
        self.pages[page] = Page::Leaving;
        self.leaving += 1;
        Ok(true)
    }
}

impl<P: Peer, C: Clock> Drop for Pager<P, C> {
    fn drop(&mut self) {
        self.faults.give_up();
    }
}
