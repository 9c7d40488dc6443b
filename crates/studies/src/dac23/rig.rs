//! What DAC'23's studies share: its dataset, its drive as a model and on this machine, and one operation by each way.
//!
//! The model is Cosmos+ in simulated time: `nearside-sim`'s near-data drive over `nearside-ftl`'s flash. Its numbers are data ([`COSMOS`]), each
//! with the row of the paper that it was taken from; every other row is a prediction.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use nearside_bench::dataset::{self, Chains, NEEDLE};
use nearside_bench::near_data::{Drive, count_of, search};
use nearside_bench::volume::{self, Kind};
use nearside_clock::{Clock, Nanos, SimClock, TscClock};
use nearside_device::near_data::{Breakdown, Fsr, Trace};
use nearside_embedded::{Embedded, Options};

use nearside_fsrlib::{Ask, Operation, Route, Session, Transport};
use nearside_ftl::FlashStore;
use nearside_media::nand;
use nearside_sim::near_data::{Core, NearData, NearDataConfig, load};

use nearside_store::FileOptions;
use nearside_stores::AnyStore;

use crate::{Failure, Run};

/// The firmware's processor and the host, as numbers. The paper's depth d means d directories above the file: d + 1 names, d + 2 inodes.
pub struct Cosmos {
    /// A 1 GHz Cortex-A9.
    pub core: Core,
    /// A command of the host's, all but the firmware's own near-data work and the medium.
    pub host_ns: u64,
    /// A block that is read from the flash, firmware and all.
    pub flash_ns: u64,
    /// A block out of the drive's buffer.
    pub hit_ns: u64,
}

/// Cosmos+ OpenSSD behind the paper's host.
///
/// - Finding a name: Table I, depth 5 and 20: 39 us for 6, 125 us for 21. The node address table: 9 us for 7, 39 us for 22. An inode: what
///   Table I's total has beyond its three parts, 75 us for 7 and 232 us for 22. Each is the geometric mean of the two.
/// - A block from the buffer: Table I, directory data: 7 us for 12 blocks (an inode and a block of entries for each of 6), 23 us for 42.
/// - A block from the flash: Table II's "Read NAT" less Table I's, which is one block at each depth: 246, 247 and 248 us. Nothing of Table
///   II's directory data was used.
/// - The host: Fig. 5(a), the lower end of its range: FSR is 78.1 % faster, taken as that of depth 5.
/// - Computing: Fig. 2's 700 us once for each search, and 4 cycles for each byte, assumed of a loop over bytes on an in-order core.
pub const COSMOS: Cosmos = Cosmos {
    core: Core {
        locate_ns: 0,
        table_ns: 1_510,
        entry_ns: 6_220,
        inode_ns: 10_630,
        compute_ns: 700_000,
        compute_ns_per_kib: 4_096,
    },
    host_ns: 25_500,
    flash_ns: 247_000,
    hit_ns: 565,
};

impl Cosmos {
    /// As the simulated drive takes them.
    pub fn config(&self) -> NearDataConfig {
        NearDataConfig { core: self.core, host_ns: self.host_ns, ..NearDataConfig::default() }
    }

    fn drive(&self) -> nand::Drive {
        let mut drive = nand::presets()
            .into_iter()
            .find(|d| d.name == "nand-cosmos-plus")
            .unwrap_or_else(|| nand::presets()[0]);
        let sensing = (drive.timings.read_ns[0] + drive.timings.read_ns[1]) / 2;
        let channel = drive.timings.channel_ns_per_kib * u64::from(drive.geometry.page_bytes) / 1024;
        drive.controller.link_ns_per_kib = self.hit_ns.saturating_sub(drive.controller.hit_ns) / 4;
        drive.controller.read_ns =
            self.flash_ns.saturating_sub(sensing + channel + drive.controller.link_ns_per_kib * 4);
        drive.sized(DRIVE_BYTES)
    }
}

/// Bytes of the modelled drive: enough for all of its 64 dies.
const DRIVE_BYTES: u64 = 1 << 30;
/// Bytes of unrelated data behind the volume, three times the drive's buffer.
const UNRELATED: u64 = 48 << 20;

/// A volume with the paper's kind of tree.
pub struct Dataset {
    _folder: tempfile::TempDir,
    /// The volume, with unrelated data behind it.
    pub image: PathBuf,
    /// Where that begins.
    pub volume_bytes: u64,
    /// What it holds.
    pub chains: Chains,
}

/// Makes one by the file system's own tools.
pub fn dataset(run: &Run<'_>, kind: Kind, chains: Chains) -> Result<Dataset, Failure> {
    run.say(&format!("{} tree of {} levels ...", kind.name(), chains.depth));
    let folder = tempfile::tempdir()?;
    let tree = folder.path().join("tree");
    dataset::write_chains(&tree, &chains, 5)?;
    let image = folder.path().join("volume.img");
    let bytes: usize = chains.files.iter().map(|(_, bytes)| bytes * chains.chains).sum();
    let volume_bytes = (bytes as u64 * 5 / 4 + (256 << 20)).next_multiple_of(64 << 20);
    volume::make(kind, &image, &tree, volume_bytes)?;
    std::fs::remove_dir_all(&tree)?;
    let mut end = std::fs::OpenOptions::new().append(true).open(&image)?;
    end.write_all(&vec![0x5a; UNRELATED as usize])?;
    Ok(Dataset { _folder: folder, image, volume_bytes, chains })
}

/// Whether what an operation reads is in the drive's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// It is.
    Hit,
    /// It comes from the flash.
    Miss,
}

impl Buffer {
    /// Both.
    pub const BOTH: [Buffer; 2] = [Buffer::Hit, Buffer::Miss];

    /// As the paper has it.
    pub fn name(self) -> &'static str {
        match self {
            Buffer::Hit => "buffer hit",
            Buffer::Miss => "buffer miss",
        }
    }
}

/// What an operation took, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// From asking to having the answer.
    pub total: u64,
    /// Of that, locating: by the firmware, or by the host.
    pub locating: u64,
    /// Where the firmware's time went.
    pub parts: Breakdown,
    /// Commands.
    pub commands: u64,
}

/// A drive that near-data commands can be measured on.
pub trait Bed {
    /// The way to it.
    type Way: Transport;
    /// The session.
    fn session(&mut self) -> &mut Session<Self::Way>;
    /// The firmware forgets what it knows of files.
    fn forget(&mut self);
    /// The drive's buffer is filled with unrelated data.
    fn flush(&mut self) -> Result<(), Failure>;
    /// Where the firmware's time went.
    fn parts(&self) -> Breakdown;

    /// One operation on a path. What the firmware knows of files is forgotten before, so that it crawls as the paper's does.
    fn once(&mut self, path: &str, operation: &Operation, buffer: Buffer) -> Result<Took, Failure> {
        let ask = Ask::path(path, operation.clone());
        self.session().mount()?;
        match buffer {
            Buffer::Miss => self.flush()?,
            Buffer::Hit => {
                self.forget();
                search(self.session(), &ask)?;
            }
        }
        self.forget();
        self.parts();
        let (_, summary, total) = search(self.session(), &ask)?;
        let (counters, moved) = (summary.counters, summary.moved);
        Ok(Took { total, locating: counters.locate_ns, parts: self.parts(), commands: moved.commands() })
    }

    /// Locating a path as the host sees it, by each way: FSR's one command that does nothing more, and what the existing path spends
    /// before it can send its block list.
    fn locate(&mut self, path: &str, buffer: Buffer) -> Result<[Took; 2], Failure> {
        self.session().set_route(Route::Drive);
        let fsr = self.once(path, &Operation::Nop, buffer)?;
        self.session().set_route(Route::Blocks);
        let host = self.once(path, &needle(), buffer)?;
        Ok([Took { locating: fsr.total, ..fsr }, host])
    }

    /// A search in a path's file, by each way.
    fn search(&mut self, path: &str, buffer: Buffer) -> Result<[Took; 2], Failure> {
        self.session().set_route(Route::Drive);
        let fsr = self.once(path, &needle(), buffer)?;
        self.session().set_route(Route::Blocks);
        Ok([fsr, self.once(path, &needle(), buffer)?])
    }
}

/// The model.
pub struct Model {
    drive: NearData<FlashStore>,
    unrelated: u64,
}

impl Model {
    /// Over a dataset; the image is on the flash before the drive starts.
    pub fn new(dataset: &Dataset) -> Result<Model, Failure> {
        Model::with(dataset, &COSMOS.config())
    }

    /// The same with other numbers.
    pub fn with(dataset: &Dataset, config: &NearDataConfig) -> Result<Model, Failure> {
        let store = FlashStore::new(COSMOS.drive(), nearside_ftl::Config::default(), 512)?;
        let clock = SimClock::new();
        let mut image = std::io::BufReader::with_capacity(1 << 20, File::open(&dataset.image)?);
        let loaded = load(&store, &mut image, Nanos(0))?;
        // Programs that are still under way end.
        clock.advance_to(loaded + 1_000_000_000);
        let mut model =
            Model { drive: NearData::new(store, config, clock)?, unrelated: dataset.volume_bytes };
        // The volume is opened once for all, as the paper's monitor does at launch.
        search(model.session(), &Ask::path("/", Operation::Nop))?;
        Ok(model)
    }
}

impl Bed for Model {
    type Way = nearside_sim::near_data::Way<FlashStore>;

    fn session(&mut self) -> &mut Session<Self::Way> {
        self.drive.session()
    }

    fn forget(&mut self) {
        self.drive.forget();
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.drive.fill_buffer(self.unrelated, UNRELATED)?)
    }

    fn parts(&self) -> Breakdown {
        self.drive.parts()
    }
}

/// This machine: the drive in memory on one thread with its driver, in real time. There is no slow medium: what it reads is always at
/// hand, as in a buffer that was hit.
pub struct Machine {
    session: Session<Drive>,
    trace: Arc<Trace>,
}

impl Machine {
    /// Over a dataset.
    pub fn new(dataset: &Dataset) -> Result<Machine, Failure> {
        let clock = TscClock::new();
        let trace = Arc::new(Trace::new(move || clock.now().0, |_, _| ()));
        let firmware = Fsr::traced(Arc::new(clock), nearside_fsr::Config::default(), trace.clone());
        let store = AnyStore::open(&format!("dram:{}", dataset.image.display()), FileOptions::read())?;
        let drive = Embedded::start(store, firmware, &Options::default())?;
        Ok(Machine { session: Session::new(drive, Arc::new(clock)), trace })
    }
}

impl Machine {
    /// The drive's monitor, as the drive tells it of writes.
    pub fn monitor(&self) -> &nearside_fsr::Monitor {
        self.session.transport().namespace().observer().retriever().monitor()
    }
}

impl Bed for Machine {
    type Way = Drive;

    fn session(&mut self) -> &mut Session<Drive> {
        &mut self.session
    }

    fn forget(&mut self) {
        self.session.transport().namespace().observer().retriever().forget_files();
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Err("a drive in memory has no buffer to miss".into())
    }

    fn parts(&self) -> Breakdown {
        self.trace.take()
    }
}

/// Several runs' values of one quantity, in microseconds.
pub fn us<T>(runs: &[T], of: impl Fn(&T) -> u64) -> Vec<f64> {
    runs.iter().map(|run| of(run) as f64 / 1e3).collect()
}

/// The mean, in microseconds.
pub fn mean_us<T>(runs: &[T], of: impl Fn(&T) -> u64) -> f64 {
    us(runs, of).iter().sum::<f64>() / runs.len().max(1) as f64
}

/// What is saved where `less` is spent instead of `more`, in percent.
pub fn saved(less: f64, more: f64) -> f64 {
    if more > 0.0 { 100.0 * (1.0 - less / more) } else { 0.0 }
}

/// What a page says of the model once.
pub const ABOUT: &str = "The model is Cosmos+ in simulated time with the real drive, firmware, driver and FSRLib. Its numbers come from Table I \
                         (depth 5 and 20), Table II's NAT column, the lower end of Fig. 5(a) and Fig. 2's computing; 4 cycles a byte of a search \
                         are assumed. All else is predicted. What the firmware's own caches hold is forgotten before each command, so that it \
                         crawls as the paper's does; a hit is a hit in the flash's buffer. This machine's drive is in memory: it has no miss.";

/// The search for the dataset's needle.
pub fn needle() -> Operation {
    count_of(NEEDLE)
}
