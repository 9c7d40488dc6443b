//! A drive, as the package's Python asks it: arguments come checked for their kinds, paths as bytes.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nearside_channel::Tls;
use nearside_embedded::partition::uuid;
use nearside_embedded::{drives_of, images_in};
use nearside_fsrlib::driver::tcp::Recovery;
use nearside_fsrlib::driver::{Policy, tcp};
use nearside_fsrlib::{
    Ask, Code, Credentials, Digest, Error, Language, Operation, ProgramOptions, Record, RuleParameters,
    SearchOptions, Target, Variable, VolumeRecord, own_credentials,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyString};

use crate::answer::Answer;
use crate::failure;
use crate::files::{Emissions, Entries, Matches, Values};
use crate::lanes::{Lanes, heard};
use crate::open::{Found, How};
use crate::rows::{GatherArgs, NearestArgs, SelectArgs, Streams};

/// An open drive.
#[pyclass(frozen, module = "nearside")]
pub(crate) struct Drive {
    lanes: Arc<Lanes>,
}

/// What `nearside.open` is called with.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct OpenArgs {
    name: Vec<u8>,
    partition: Option<String>,
    volume: Option<String>,
    as_user: Option<(u32, u32, Vec<u32>)>,
    home: bool,
    allow_unrecovered: bool,
    /// "polled", "interrupt" or "hybrid".
    completion: String,
    host_nqn: Option<String>,
    dhchap_key_file: Option<PathBuf>,
    dhchap_ctrl_key_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    concat: bool,
    header_digest: bool,
    data_digest: bool,
    /// Seconds.
    reconnect_delay: f64,
    ctrl_loss_tmo: Option<f64>,
}

/// TLS by OpenSSL.
#[cfg(feature = "tls")]
fn encrypts() -> Result<Tls, String> {
    Ok(Tls::new(nearside_tls::OpenSsl::default()))
}

/// None.
#[cfg(not(feature = "tls"))]
fn encrypts() -> Result<Tls, String> {
    Err("this build has no TLS (its feature `tls`)".to_owned())
}

/// Seconds that an option says.
fn seconds(option: &str, seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{option}: {seconds} is no number of seconds"))
}

/// How a drive is opened, from what `nearside._drive.arguments` gives.
///
/// # Errors
/// An argument is none.
pub fn how(arguments: &Bound<'_, PyAny>) -> PyResult<How> {
    arguments.extract::<OpenArgs>()?.how(arguments.py())
}

/// The drives that names stand for, as `nearside.open` takes them; with its options, as
/// `nearside._drive.arguments` has them.
#[pyfunction]
pub(crate) fn drives<'py>(
    py: Python<'py>,
    names: Vec<Vec<u8>>,
    arguments: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let arguments = arguments.extract::<OpenArgs>()?;
    let names: Vec<OsString> = names.into_iter().map(OsString::from_vec).collect();
    // On a thread of its own, since it may wait for a service: one that nobody waits for ends by itself.
    let found = py.detach(move || {
        let (tell, told) = channel();
        let work = move || {
            let _heard = tell.send(drives_of(names, || arguments.network()));
        };
        let _thread = thread::Builder::new().name("nearside".into()).spawn(work)?;
        heard(&told)
    })?;
    match found {
        Some(Ok(found)) => Ok(in_bytes(py, &found)),
        Some(Err(why)) => Err(failure::of_drive(py, ErrorKind::Other, &why)),
        None => Err(failure::of_drive(py, ErrorKind::Other, "the thread that looks for drives has ended")),
    }
}

/// The images in a folder, in the order of their names.
#[pyfunction]
pub(crate) fn images(py: Python<'_>, folder: Vec<u8>) -> PyResult<Vec<Bound<'_, PyBytes>>> {
    let folder = PathBuf::from(OsString::from_vec(folder));
    match py.detach(|| images_in(&folder)) {
        Ok(found) => Ok(in_bytes(py, &found)),
        Err(error) => Err(failure::of_drive(py, error.kind(), &format!("{}: {error}", folder.display()))),
    }
}

/// The value of an external variable of rules.
fn variable(given: &Bound<'_, PyAny>) -> PyResult<Variable> {
    // A truth is an integer as well; and an integer, however large, and a list of them are nothing else.
    if let Ok(value) = given.extract() {
        Ok(Variable::Boolean(value))
    } else if let Ok(value) = given.cast::<PyFloat>() {
        Ok(Variable::Float(value.value()))
    } else if let Ok(text) = given.cast::<PyString>() {
        Ok(Variable::Text(text.to_cow()?.as_bytes().into()))
    } else if let Ok(bytes) = given.cast::<PyBytes>() {
        Ok(Variable::Text(bytes.as_bytes().into()))
    } else {
        given.extract().map(Variable::Integer)
    }
}

/// What rules of YARA are told, as a program's parameters.
#[pyfunction]
pub(crate) fn rule_parameters<'py>(
    py: Python<'py>,
    strings: bool,
    variables: Vec<(String, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let variables = variables.into_iter().map(|(name, given)| Ok((name, variable(&given)?)));
    let variables = variables.collect::<PyResult<_>>()?;
    let put = RuleParameters { strings, variables }.put();
    put.map(|bytes| PyBytes::new(py, &bytes)).map_err(|why| failure::of_word(py, &why))
}

fn in_bytes<'py>(py: Python<'py>, names: &[OsString]) -> Vec<Bound<'py, PyBytes>> {
    names.iter().map(|name| PyBytes::new(py, name.as_bytes())).collect()
}

impl OpenArgs {
    fn how(self, py: Python<'_>) -> PyResult<How> {
        let word = |option: &str, why: String| failure::of_word(py, &format!("{option}: {why}"));
        let credentials = match &self.as_user {
            Some((uid, gid, groups)) => Credentials { uid: *uid, gid: *gid, groups: groups.clone() },
            None => own_credentials()?,
        };
        let parsed = |text: &str| text.parse().map_err(|why| word("partition", why));
        let partition = self.partition.as_deref().map(parsed).transpose()?;
        let parsed = |text: &str| text.parse().map_err(|why| word("volume", why));
        let volume = self.volume.as_deref().map(parsed).transpose()?;
        let policy = match self.completion.as_str() {
            "polled" => Policy::Polled,
            "interrupt" => Policy::Interrupt,
            "hybrid" => Policy::Hybrid,
            other => {
                let why = format!("completion {other:?} is none of polled, interrupt, hybrid");
                return Err(PyValueError::new_err(why));
            }
        };
        let network = self.network().map_err(|why| failure::of_word(py, &why))?;
        let (home, allow_unrecovered) = (self.home, self.allow_unrecovered);
        let (name, found) = (OsString::from_vec(self.name), Found::default());
        Ok(How { name, partition, volume, credentials, allow_unrecovered, home, policy, network, found })
    }

    /// What this host says of itself to a target over the network.
    fn network(&self) -> Result<tcp::Options, String> {
        let options = match &self.host_nqn {
            Some(name) => tcp::Options::for_host(name).map_err(|why| format!("host_nqn: {why}"))?,
            None => tcp::Options::default(),
        };
        let options = match (&self.dhchap_key_file, &self.dhchap_ctrl_key_file) {
            (Some(own), other) => options.with_keys_of(own, other.as_deref())?,
            (None, Some(_)) => return Err("dhchap_ctrl_key_file needs dhchap_key_file".to_owned()),
            (None, None) => options,
        };
        let options = match &self.tls_key_file {
            Some(_) if self.concat => return Err("concat: tls_key_file encrypts already".to_owned()),
            Some(key) => options.with_tls_key_of(key, encrypts()?)?,
            None => options,
        };
        let concatenates = match self.concat {
            true if options.keys.is_none() => return Err("concat needs dhchap_key_file".to_owned()),
            true => Some(encrypts()?),
            false => None,
        };
        let recovery = Recovery {
            reconnect_delay: seconds("reconnect_delay", self.reconnect_delay)?,
            ctrl_loss_tmo: self.ctrl_loss_tmo.map(|s| seconds("ctrl_loss_tmo", s)).transpose()?,
        };
        if recovery.reconnect_delay.is_zero() {
            return Err("reconnect_delay: 0 is no time to wait".to_owned());
        }
        let options = tcp::Options { recovery, concatenates, ..options };
        Ok(tcp::Options { header_digest: self.header_digest, data_digest: self.data_digest, ..options })
    }
}

/// Which files of a tree.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct TreeArgs {
    root: Vec<u8>,
    include: Vec<Vec<u8>>,
    exclude: Vec<Vec<u8>>,
    max_depth: Option<u32>,
    onerror: Option<Py<PyAny>>,
}

impl TreeArgs {
    fn answer(self, drive: &Drive, operation: Operation, follow: bool) -> Answer {
        let TreeArgs { root, include, exclude, max_depth, onerror } = self;
        let max_depth = max_depth.unwrap_or(u32::MAX);
        let target = Target::Tree { root: root.clone(), include, exclude, max_depth };
        Answer::new(&drive.lanes, &root, Ask { target, operation, follow }, onerror)
    }
}

/// What `Drive.run` is called with.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct RunArgs {
    /// The program, or its path.
    program: Vec<u8>,
    /// It is in the volume.
    stored: bool,
    /// It is rules of YARA.
    rules: bool,
    parameters: Vec<u8>,
    fuel: u64,
}

impl RunArgs {
    fn operation(self) -> Operation {
        let RunArgs { program, stored, rules, parameters, fuel } = self;
        let language = if rules { Language::Yara } else { Language::WebAssembly };
        let code = if stored { Code::Stored(program) } else { Code::Given(program) };
        Operation::Program(Box::new(ProgramOptions { language, code, parameters, fuel }))
    }
}

/// What `Drive.search` is called with.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SearchArgs {
    patterns: Vec<Vec<u8>>,
    fixed: bool,
    bytes: bool,
    ignore_case: bool,
    invert: bool,
    word: bool,
    line: bool,
    max_count: Option<u64>,
    /// "text": files with NULs are searched as others; "skip": they have no lines.
    binary: String,
    null_data: bool,
    decompress: bool,
    before: u32,
    after: u32,
    /// Matched parts in the place of lines.
    only_matching: bool,
}

impl SearchArgs {
    fn operation(self) -> PyResult<Operation> {
        let without_binary = match self.binary.as_str() {
            "text" => false,
            "skip" => true,
            other => return Err(PyValueError::new_err(format!("binary={other:?} is none of text, skip"))),
        };
        Ok(Operation::Search(SearchOptions {
            patterns: self.patterns,
            fixed: self.fixed,
            bytes: self.bytes,
            ignore_case: self.ignore_case,
            invert: self.invert,
            word: self.word,
            line: self.line,
            answer: match self.only_matching {
                true => nearside_fsrlib::Answer::Matches,
                false => nearside_fsrlib::Answer::Lines,
            },
            max_count: self.max_count,
            text: !without_binary,
            without_binary,
            null_data: self.null_data,
            decompress: self.decompress,
            before: self.before,
            after: self.after,
            only_matching_files: true,
            numbers: true,
        }))
    }
}

fn digest(algorithm: &str) -> PyResult<Digest> {
    match algorithm {
        "crc32c" => Ok(Digest::Crc32c),
        "xxh3" => Ok(Digest::Xxh3),
        "sha256" => Ok(Digest::Sha256),
        other => Err(PyValueError::new_err(format!("{other:?} is none of crc32c, xxh3, sha256"))),
    }
}

/// What a list of values is of.
fn operation(algorithm: Option<&str>) -> PyResult<Operation> {
    Ok(algorithm.map(digest).transpose()?.map_or(Operation::Count, Operation::Checksum))
}

impl Drive {
    fn about(&self, path: &[u8], operation: Operation, follow: bool) -> Answer {
        let ask = Ask { target: Target::Path(path.to_vec()), operation, follow };
        Answer::new(&self.lanes, path, ask, None)
    }
}

#[pymethods]
impl Drive {
    #[new]
    fn new(py: Python<'_>, args: OpenArgs) -> PyResult<Drive> {
        let lanes = Lanes::open(py, args.how(py)?)?;
        Ok(Drive { lanes: Arc::new(lanes) })
    }

    fn close(&self, py: Python<'_>) {
        self.lanes.close(py);
    }

    #[getter]
    fn closed(&self) -> bool {
        self.lanes.is_closed()
    }

    fn search(&self, tree: TreeArgs, args: SearchArgs) -> PyResult<Matches> {
        Ok(Matches::of(tree.answer(self, args.operation()?, true)))
    }

    /// What a program emits of a file, or of every file of a tree.
    fn run(&self, tree: TreeArgs, args: RunArgs, recursive: bool) -> Emissions {
        let operation = args.operation();
        Emissions::of(match recursive {
            true => tree.answer(self, operation, true),
            false => self.about(&tree.root, operation, true),
        })
    }

    /// A directory's entries.
    fn list(&self, path: &[u8]) -> Entries {
        Entries::of(self.about(path, Operation::List, true), Some(path.to_vec()))
    }

    /// What is known of a path.
    fn stat(&self, path: &[u8], follow: bool) -> Entries {
        Entries::of(self.about(path, Operation::Stat, follow), None)
    }

    /// A directory and everything below it.
    fn find(&self, tree: TreeArgs) -> Entries {
        Entries::of(tree.answer(self, Operation::List, false), None)
    }

    /// Bytes of a file, as many as there are.
    fn read<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        offset: u64,
        len: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut answer = self.about(path, Operation::Read { offset, len }, true);
        let (mut pieces, mut at) = (Vec::new(), offset);
        while let Some(record) = answer.next(py)? {
            if let Record::Data { offset, bytes } = record {
                if offset != at {
                    let reason = format!("byte {offset} of the file where byte {at} is due");
                    return Err(failure::of_error(py, path, &Error::Form { what: "reply", reason }));
                }
                at = at.saturating_add(bytes.len() as u64);
                pieces.push(bytes);
            }
        }
        // Most often it is one.
        if let [piece] = &pieces[..] {
            return Ok(PyBytes::new(py, piece));
        }
        PyBytes::new_with(py, pieces.iter().map(|piece| piece.len()).sum(), |mut all| {
            for piece in std::mem::take(&mut pieces) {
                let (part, rest) = all.split_at_mut(piece.len());
                part.copy_from_slice(&piece);
                all = rest;
            }
            Ok(())
        })
    }

    /// A checksum of one file, or lines, words and bytes.
    fn value(&self, path: &[u8], algorithm: Option<&str>) -> PyResult<Values> {
        Ok(Values::of(self.about(path, operation(algorithm)?, true)))
    }

    /// The same of every file of a tree.
    fn values(&self, tree: TreeArgs, algorithm: Option<&str>) -> PyResult<Values> {
        Ok(Values::of(tree.answer(self, operation(algorithm)?, true)))
    }

    fn select(&self, py: Python<'_>, args: SelectArgs) -> PyResult<Streams> {
        Streams::of(py, &self.lanes, args)
    }

    fn gather<'py>(&self, py: Python<'py>, args: GatherArgs) -> PyResult<(u64, Bound<'py, PyBytes>)> {
        args.run(py, &self.lanes)
    }

    fn nearest(&self, py: Python<'_>, args: NearestArgs) -> PyResult<Vec<(u64, f32)>> {
        args.run(py, &self.lanes)
    }

    /// What the volume is; of several, what each is.
    fn volumes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let ask = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
        let mut answer = Answer::new(&self.lanes, b"/", ask, None);
        let mut all = Vec::new();
        while let Some(record) = answer.next(py)? {
            if let Record::Volume(volume) = record {
                all.push(dictionary(py, &volume)?);
            }
        }
        Ok(all)
    }
}

fn dictionary<'py>(py: Python<'py>, volume: &VolumeRecord<'_>) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("partition", volume.partition)?;
    all.set_item("offset", volume.offset)?;
    all.set_item("len", volume.len)?;
    all.set_item("file_system", &*volume.file_system)?;
    all.set_item("label", &*volume.label)?;
    all.set_item("uuid", uuid(&volume.uuid))?;
    all.set_item("block_size", volume.block_size)?;
    all.set_item("blocks", volume.blocks)?;
    all.set_item("inodes", volume.inodes.map(|inodes| inodes.all))?;
    all.set_item("inodes_used", volume.inodes.map(|inodes| inodes.used))?;
    all.set_item("features", volume.features.iter().map(|name| &**name).collect::<Vec<_>>())?;
    all.set_item("needs_recovery", volume.needs_recovery)?;
    all.set_item("unstable", volume.unstable)?;
    all.set_item("warnings", volume.warnings.iter().map(|text| &**text).collect::<Vec<_>>())?;
    Ok(all)
}
