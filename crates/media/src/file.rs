//! Models in files: a drive as data, in TOML. The presets are such files (`models/`), and a user's own drive
//! is one more.
//!
//! ```toml
//! kind = "xpoint"            # or nand, dram, delay: what the table `device` has (see their structs)
//! about = "what it is, in a line"
//!
//! [device]                   # every parameter, with its unit in its name
//! channels = 7
//! # ...
//!
//! [[figures]]                # what its data sheet says it shows: any number of them
//! what = "random reads, 4 KiB"
//! # ...
//! ```
//!
//! What is missing, unknown or out of range is an error that names the line and what is allowed. A file is 64
//! KiB at most, and no number in it makes a model panic or grow beyond its capacity's due.

pub(crate) mod bounds;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::dram::Prototype;
use crate::nand::NandDrive;
use crate::{AnyMedium, Delay, xpoint};

/// Bytes of a file at most.
const MOST_BYTES: u64 = 64 << 10;

/// A model as a file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// What it is, in a line.
    pub about: String,
    /// Its numbers.
    pub parameters: Parameters,
    /// What its data sheet says it shows.
    pub figures: Vec<Figure>,
}

/// A model's numbers, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// `kind = "delay"`: a device of a few numbers.
    Delay(Delay),
    /// `kind = "dram"`: FAST'12's prototype.
    Dram(Prototype),
    /// `kind = "xpoint"`: 3D XPoint behind a hardware-only path.
    XPoint(xpoint::Device),
    /// `kind = "nand"`: NAND flash under a translation layer, without blocks until it is
    /// [`sized`](NandDrive::sized).
    Nand(NandDrive),
}

/// A figure of a data sheet, and the run that shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it is, in a few words.
    pub what: String,
    /// The operations, by fio's names.
    pub rw: Load,
    /// Of 100 operations of [`Load::RandRw`], the reads.
    #[serde(default = "half", deserialize_with = "bounds::between::<_, u8, 0, 100>")]
    pub read_percent: u8,
    /// Bytes of an operation.
    #[serde(deserialize_with = "bounds::between::<_, u32, 512, { 1 << 20 }>")]
    pub block_bytes: u32,
    /// Operations in flight.
    #[serde(deserialize_with = "bounds::between::<_, u32, 1, 512>")]
    pub depth: u32,
    /// What the host's software adds to each operation, which nobody waits for, in nanoseconds.
    #[serde(default, deserialize_with = "bounds::time")]
    pub software_ns: u64,
    /// What is measured.
    pub measure: Measure,
    /// What the sheet says, in the unit of what is measured.
    pub value: f64,
    /// How far from it the model may be, in percent of it.
    #[serde(default)]
    pub within_percent: Option<f64>,
    /// The sheet gives a limit: the model may show less.
    #[serde(default)]
    pub at_most: bool,
    /// Where it is from.
    pub source: String,
    /// Why the model does not show it, where it is known not to.
    #[serde(default)]
    pub missed: Option<String>,
}

fn half() -> u8 {
    50
}

/// Operations of a [`Figure`], by fio's names. A drive of flash is in its steady state for random ones and
/// filled in order for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Reads at random places.
    RandRead,
    /// Writes at random places.
    RandWrite,
    /// Both.
    RandRw,
    /// Reads in order.
    Read,
    /// Writes in order.
    Write,
}

/// What a [`Figure`] measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Measure {
    /// Operations in a second.
    #[serde(rename = "iops")]
    Iops,
    /// Millions of bytes in a second.
    #[serde(rename = "mb_per_s")]
    MbPerS,
    /// The mean response time, in microseconds.
    #[serde(rename = "mean_us")]
    MeanUs,
    /// The response time within which 99.9 % end, in microseconds.
    #[serde(rename = "p99.9_us")]
    P999Us,
    /// The response time within which 99.999 % end, in microseconds.
    #[serde(rename = "p99.999_us")]
    P99999Us,
}

impl Figure {
    /// Whether the model shows it, by what it measured.
    #[must_use]
    pub fn shown_by(&self, measured: f64) -> bool {
        match self.within_percent {
            Some(percent) => (measured / self.value - 1.0).abs() <= percent / 100.0,
            None => measured <= self.value,
        }
    }
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// From 1; none where it is not a place.
    line: Option<usize>,
    reason: String,
}

impl FileError {
    fn of(text: &str, error: &toml::de::Error) -> FileError {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map(|before| before.matches('\n').count() + 1);
        FileError { line, reason: error.message().to_owned() }
    }

    fn nowhere(reason: impl Into<String>) -> FileError {
        FileError { line: None, reason: reason.into() }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for FileError {}

#[derive(Deserialize)]
struct Head {
    kind: Kind,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Delay,
    Dram,
    XPoint,
    Nand,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<T> {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    about: String,
    device: T,
    #[serde(default)]
    figures: Vec<Figure>,
}

impl ModelFile {
    /// The model that a file's text describes.
    ///
    /// # Errors
    /// What is wrong with it, in which line, and what is allowed.
    pub fn parse(text: &str) -> Result<ModelFile, FileError> {
        fn body<T: DeserializeOwned>(text: &str, of: fn(T) -> Parameters) -> Result<ModelFile, FileError> {
            let body: Body<T> = toml::from_str(text).map_err(|e| FileError::of(text, &e))?;
            Ok(ModelFile { about: body.about, parameters: of(body.device), figures: body.figures })
        }
        let head: Head = toml::from_str(text).map_err(|e| FileError::of(text, &e))?;
        let file = match head.kind {
            Kind::Delay => body(text, Parameters::Delay),
            Kind::Dram => body(text, Parameters::Dram),
            Kind::XPoint => body(text, Parameters::XPoint),
            Kind::Nand => body(text, Parameters::Nand),
        }?;
        for Figure { what, value, within_percent, at_most, .. } in &file.figures {
            let wrong = |reason| Err(FileError::nowhere(format!("the figure {what:?}: {reason}")));
            if !(value.is_finite() && *value > 0.0) {
                return wrong("its value is no number above 0");
            }
            if within_percent.is_some() == *at_most
                || within_percent.is_some_and(|p| !(0.0..=100.0).contains(&p))
            {
                return wrong("it has either within_percent, from 0 to 100, or at_most = true");
            }
        }
        Ok(file)
    }

    /// A file's text, and the model that it describes.
    ///
    /// # Errors
    /// That it cannot be read, or what is wrong with it, in which line, and what is allowed.
    pub fn read(path: &Path) -> Result<(String, ModelFile), FileError> {
        let mut text = String::new();
        let file = File::open(path).map_err(|e| FileError::nowhere(e.to_string()))?;
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|e| FileError::nowhere(e.to_string()))?;
        if text.len() as u64 > MOST_BYTES {
            return Err(FileError::nowhere(format!("it has more than {MOST_BYTES} bytes")));
        }
        let file = ModelFile::parse(&text)?;
        Ok((text, file))
    }
}

impl Parameters {
    /// The medium with these numbers; none for a NAND drive, which is one under its translation layer only.
    pub fn medium(self) -> Option<AnyMedium> {
        match self {
            Parameters::Delay(delay) => Some(AnyMedium::Parametric(delay.medium())),
            Parameters::Dram(prototype) => Some(AnyMedium::Dram(prototype.medium())),
            Parameters::XPoint(device) => Some(AnyMedium::XPoint(device.medium())),
            Parameters::Nand(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PRESETS;

    fn toml_of(name: &str) -> &'static str {
        PRESETS.iter().find(|preset| preset.name == name).unwrap().toml
    }

    /// What it says of a preset's text of which one line is another, and the number of that line.
    fn error_of(name: &str, line: &str, other: &str) -> (String, usize) {
        let text = toml_of(name);
        let at = text.lines().position(|l| l.starts_with(line)).unwrap_or_else(|| panic!("{name}: {line}"));
        let lines: Vec<&str> =
            text.lines().enumerate().map(|(nth, l)| if nth == at { other } else { l }).collect();
        (ModelFile::parse(&lines.join("\n")).expect_err(other).to_string(), at + 1)
    }

    #[test]
    fn every_error_names_its_line_and_what_is_allowed() {
        for (name, line, other, says) in [
            ("optane-p4800x", "channels =", "channels = 0", &["0 is not from 1 to 4096"][..]),
            ("optane-p4800x", "channels =", "channels = -1", &["-1 is below 0"]),
            ("optane-p4800x", "channels =", "channels = 99999999999999999999", &["integer"]),
            ("optane-p4800x", "channels =", "channels = \"seven\"", &["string \"seven\""]),
            ("optane-p4800x", "channels =", "chanels = 7", &["chanels", "`channels`", "`turn_ns`"]),
            ("optane-p4800x", "turn_ns =", "turn_ns = 1e3", &["floating point"]),
            ("optane-p4800x", "turn_ns =", "turn_ns = 3_600_000_000_001", &["from 0 to 3600000000000"]),
            ("optane-p4800x", "kind =", "kind = \"tape\"", &["tape", "`nand`"]),
            ("optane-p4800x", "about =", "about = 7", &["string"]),
            ("optane-p4800x", "[device]", "[device", &["unclosed"]),
            ("optane-p4800x", "rw =", "rw = \"trim\"", &["trim", "`randread`"]),
            ("optane-p4800x", "depth =", "depth = 100000", &["100000 is not from 1 to 512"]),
            ("nand-p3700", "pages =", "pages = 1", &["1 is not from 16 to 8192"]),
            ("nand-p3700", "program_ns =", "program_ns = [1]", &["2"]),
            ("nand-p3700", "program_ns =", "program_ns = [-1, 5]", &["-1 is below 0"]),
            ("nand-p3700", "program_ns =", "program_ns = [5, 1_000_000_001]", &["not from 0 to 1000000000"]),
            ("nand-p3700", "capacity_bytes", "capacity_bytes = 9_223_372_036_854_775_807", &["not from 1"]),
            ("own", "stripe_bytes =", "stripe_bytes = 0", &["0 is not from 512"]),
        ] {
            let (error, at) = error_of(name, line, other);
            assert!(error.starts_with(&format!("line {at}: ")), "{name}, {other:?}: {error}");
            assert!(says.iter().all(|part| error.contains(part)), "{name}, {other:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        // What is wrong with more than one line, or with a line that is not there.
        for (name, line, other, says) in [
            ("optane-p4800x", "channels =", "", &["line 6: ", "`channels`"][..]),
            ("optane-p4800x", "kind =", "", &["`kind`"]),
            ("optane-p4800x", "value =", "value = nan", &["random reads, 4 KiB", "no number above 0"]),
            ("optane-p4800x", "within_percent =", "", &["random reads, 4 KiB", "within_percent", "at_most"]),
            ("nand-p3700", "page_bytes =", "page_bytes = 5000", &["line 13: ", "multiple of 4096"]),
            ("nand-p3700", "planes =", "planes = 16", &["line 13: ", "at most 65536"]),
        ] {
            let (error, _) = error_of(name, line, other);
            assert!(says.iter().all(|part| error.contains(part)), "{name}, {other:?}: {error}");
        }
    }

    #[test]
    fn a_file_is_bounded() {
        let path = std::env::temp_dir().join(format!("nearside-model-{}.toml", std::process::id()));
        let read = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let read = ModelFile::read(&path);
            std::fs::remove_file(&path).unwrap();
            read.map(|(_, file)| file)
        };
        assert_eq!(read(toml_of("own").as_bytes()), ModelFile::parse(toml_of("own")));
        let long = format!("{}\n#{}", toml_of("own"), "-".repeat(MOST_BYTES as usize));
        assert!(read(long.as_bytes()).unwrap_err().to_string().contains("more than 65536 bytes"));
        assert!(read(b"\xff\xfe").unwrap_err().to_string().contains("UTF-8"));
        let deep = format!("a = {}{}", "[".repeat(30_000), "]".repeat(30_000));
        assert!(read(deep.as_bytes()).is_err());
        assert!(ModelFile::read(Path::new("/nonexistent")).unwrap_err().to_string().contains("No such file"));
    }

    /// Every bound at both its ends: no sum leaves its type, whatever the numbers are together.
    #[test]
    fn the_largest_numbers_are_a_model() {
        let most = |name: &str, hour: bool| {
            let text = toml_of(name);
            let device = text.find("[device]").unwrap();
            let end = text.find("[[figures]]").unwrap_or(text.len());
            let lines = text[device..end].lines().map(|line| {
                let Some((key, _)) = line.split_once(" = ") else { return line.to_owned() };
                let value = match key {
                    _ if key.starts_with('#') => return line.to_owned(),
                    "channels" | "spread" | "units" if name != "nand-p3700" => 4096,
                    "patience_ns" => 3_600_000_000_000u64,
                    _ if key.ends_with("_ns") && hour => 3_600_000_000_000,
                    "byte_ps" => 1_000_000_000,
                    "stripe_bytes" | "seed" | "capacity_bytes" => return line.to_owned(),
                    "read_ns" | "program_ns" if line.contains('[') => {
                        return format!("{key} = [1_000_000_000, 1_000_000_000]");
                    }
                    _ if key.ends_with("_ns") => 1_000_000_000,
                    _ if key.ends_with("_per_kib") => 1_000_000,
                    _ => return line.to_owned(),
                };
                format!("{key} = {value}")
            });
            format!("{}{}", &text[..device], lines.collect::<Vec<_>>().join("\n"))
        };
        for (name, hour) in
            [("own", true), ("dram-gen2", true), ("optane-p4800x", true), ("nand-p3700", false)]
        {
            let file = ModelFile::parse(&most(name, hour)).unwrap();
            assert_ne!(file, ModelFile::parse(toml_of(name)).unwrap(), "{name}");
            let Some(mut medium) = file.parameters.medium() else { continue };
            for nth in 0..2_000 {
                let request = match nth % 2 {
                    0 => crate::Request::write(nth << 30, 1 << 40),
                    _ => crate::Request::read(nth << 30, u64::MAX >> (nth % 60)),
                };
                crate::Medium::finish(&mut medium, request, nth << 50);
            }
        }
    }
}
