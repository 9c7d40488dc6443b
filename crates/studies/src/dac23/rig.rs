//! What DAC'23's studies share: its dataset, its drive as a model and on this machine,
//! and one operation by each way.
//!
//! The model is Cosmos+ in simulated time: `nearside-sim`'s near-data drive over `nearside-ftl`'s flash.
//! Its numbers are data ([`super::parameters`]), each with the cells of the paper that it was taken from.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearside_clock::{Clock, Nanos, SimClock, TscClock};
use nearside_embedded::{Embedded, Options};
use nearside_firmware::{Breakdown, Fsr, Trace};
use nearside_instrument::dataset::{self, Chain, NEEDLE};
use nearside_instrument::near_data::{Drive, count_of, search};
use nearside_instrument::volume::{self, Kind};

use nearside_fsrlib::{Ask, Operation, Route, Session};
use nearside_ftl::FlashStore;
use nearside_media::nand::cosmos_plus;
use nearside_sim::near_data::{NearData, NearDataConfig, load};

use nearside_embedded::AnyStore;
use nearside_store::FileOptions;

use super::parameters::cosmos;
use crate::{Failure, Run};

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
}

/// Makes one by the file system's own tools.
///
/// # Errors
/// The file system's, or the tools'.
pub fn dataset(run: &Run<'_>, kind: Kind, chain: Chain) -> Result<Dataset, Failure> {
    dataset_with(run, kind, chain, &|_| Ok(()))
}

/// The same, with more files that `more` writes below the tree's root. The volume has 256 MiB for them.
///
/// # Errors
/// The file system's, or the tools'.
pub fn dataset_with(
    run: &Run<'_>,
    kind: Kind,
    chain: Chain,
    more: &dyn Fn(&Path) -> io::Result<()>,
) -> Result<Dataset, Failure> {
    run.say(&format!("{} tree of {} levels ...", kind.name(), chain.depth));
    let folder = tempfile::tempdir()?;
    let tree = folder.path().join("tree");
    dataset::write_chain(&tree, &chain, 5)?;
    more(&tree)?;
    let image = folder.path().join("volume.img");
    let bytes: usize = chain.files.iter().map(|(_, bytes)| bytes).sum();
    let volume_bytes = (bytes as u64 * 5 / 4 + (256 << 20)).next_multiple_of(64 << 20);
    volume::make(kind, &image, &tree, volume_bytes)?;
    std::fs::remove_dir_all(&tree)?;
    let mut end = std::fs::OpenOptions::new().append(true).open(&image)?;
    end.write_all(&vec![0x5a; UNRELATED as usize])?;
    Ok(Dataset { _folder: folder, image, volume_bytes })
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

    /// The paper's name for it.
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
    /// Bytes that they moved, both ways together.
    pub bytes: u64,
}

/// A drive that near-data commands can be measured on.
pub trait Bed {
    /// The way to it.
    type Transport: nearside_fsrlib::Transport;
    /// The session.
    fn session(&mut self) -> &mut Session<Self::Transport>;
    /// The firmware forgets what it knows of files.
    fn forget(&mut self);
    /// The drive's buffer is filled with unrelated data.
    ///
    /// # Errors
    /// The drive's, of a read.
    fn flush(&mut self) -> Result<(), Failure>;
    /// Where the firmware's time went.
    fn parts(&self) -> Breakdown;

    /// One operation on a path. What the firmware knows of files is forgotten before,
    /// so that it crawls as the paper's does.
    ///
    /// # Errors
    /// The drive's, or the command's.
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
        let (commands, bytes) = (moved.commands(), moved.bytes_in + moved.bytes_out);
        Ok(Took { total, locating: counters.locate_ns, parts: self.parts(), commands, bytes })
    }

    /// Locating a path as the host sees it, by each way: FSR's one command that does nothing more, and what
    /// the existing path spends before it can send its block list.
    ///
    /// # Errors
    /// The drive's, or the command's.
    fn locate(&mut self, path: &str, buffer: Buffer) -> Result<[Took; 2], Failure> {
        self.session().set_route(Route::Drive);
        let fsr = self.once(path, &Operation::Nop, buffer)?;
        self.session().set_route(Route::Blocks);
        let host = self.once(path, &needle(), buffer)?;
        Ok([Took { locating: fsr.total, ..fsr }, host])
    }

    /// A search in a path's file, by each way.
    ///
    /// # Errors
    /// The drive's, or the command's.
    fn search(&mut self, path: &str, buffer: Buffer) -> Result<[Took; 2], Failure> {
        self.session().set_route(Route::Drive);
        let fsr = self.once(path, &needle(), buffer)?;
        self.session().set_route(Route::Blocks);
        Ok([fsr, self.once(path, &needle(), buffer)?])
    }
}

/// The model.
pub struct Model {
    drive: NearData<AnyStore>,
    unrelated: u64,
}

impl Model {
    /// Over a dataset; the image is on the flash before the drive starts.
    ///
    /// # Errors
    /// That the image cannot be read, or the drive cannot be.
    pub fn new(dataset: &Dataset) -> Result<Model, Failure> {
        Model::with(dataset, &cosmos())
    }

    /// The model with other numbers of the drive.
    ///
    /// # Errors
    /// That the image cannot be read, or the drive cannot be.
    pub fn with(dataset: &Dataset, config: &NearDataConfig) -> Result<Model, Failure> {
        let store = FlashStore::new(cosmos_plus().sized(DRIVE_BYTES), nearside_ftl::Config::default(), 512)?;
        let store = AnyStore::Flash(store);
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
    type Transport = nearside_sim::near_data::SimTransport<AnyStore>;

    fn session(&mut self) -> &mut Session<Self::Transport> {
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

/// This machine: the drive in memory on one thread with its driver, in real time. There is no slow medium:
/// what it reads is always at hand, as in a buffer that was hit.
pub struct Machine {
    session: Session<Drive>,
    trace: Arc<Trace>,
}

impl Machine {
    /// Over a dataset.
    ///
    /// # Errors
    /// That the image cannot be read, or the drive cannot be.
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
    type Transport = Drive;

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

/// What is saved where `less` is spent instead of `more`, in percent.
pub fn saved(less: f64, more: f64) -> f64 {
    if more > 0.0 { 100.0 * (1.0 - less / more) } else { 0.0 }
}

/// What a page says of the model once.
pub const ABOUT: &str = "The model is Cosmos+ in simulated time with the real drive, firmware, driver and FSRLib. What the firmware's own caches hold is \
                         forgotten before each command, so that it crawls as the paper's does; a hit is a hit in the flash's buffer. This machine's \
                         drive is in memory: it has no miss.";

/// The search for the dataset's needle.
pub fn needle() -> Operation {
    count_of(NEEDLE)
}
