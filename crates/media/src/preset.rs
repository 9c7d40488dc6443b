//! Media by name or by file, and how a word changes their numbers.
//!
//! ```text
//! WORD  = [INTERFACE "/"] MODEL
//! MODEL = (NAME | FILE) ["," OPTION]...   optane-p4800x,seed=7   own,10us,units=8   ./mine.toml,seed=7
//! FILE  = a path that ends in .toml: see [`ModelFile`]. What begins as an interface is one: ./sas/mine.toml
//! INTERFACE: see [`Interface::parse`]        sas,drives=4/optane-p4800x
//! ```

use std::path::Path;
use std::sync::LazyLock;

use crate::dram::DramPrototype;
use crate::file::{ModelFile, Parameters};
use crate::platform::{Interface, Platform};
use crate::words::WordError;
use crate::xpoint::XPoint;
use crate::{Medium, Parametric, Request};

/// A model with a name.
#[derive(Clone, Debug)]
pub struct Preset {
    /// How words name it.
    pub name: &'static str,
    /// Its file's text: each number with where it comes from.
    pub toml: &'static str,
    /// What the text says.
    pub file: ModelFile,
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        [$(Preset::of($name, include_str!(concat!("../models/", $name, ".toml")))),*]
    };
}

/// All models that have a name: the files of `models/`, which are all there is to them.
pub static PRESETS: LazyLock<[Preset; 9]> = LazyLock::new(|| {
    presets![
        "own",
        "dram-gen2",
        "dram-8gbps",
        "optane-p4800x",
        "optane-prototype",
        "nand-p3700",
        "nand-p3600",
        "nand-s3700",
        "nand-cosmos-plus",
    ]
});

impl Preset {
    fn of(name: &'static str, toml: &'static str) -> Preset {
        match ModelFile::parse(toml) {
            Ok(file) => Preset { name, toml, file },
            Err(e) => panic!("models/{name}.toml: {e}"),
        }
    }

    /// The preset of that name.
    pub fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|p| p.name == name)
    }
}

/// What the model part of a word chooses: a model's numbers, and the options that change them.
#[derive(Clone, Debug)]
pub struct Chosen<'a> {
    /// The preset's name or the file's path.
    pub name: &'a str,
    /// Its numbers, without the options.
    pub parameters: Parameters,
    /// The options.
    pub options: Vec<&'a str>,
}

/// Where the path of a model's file ends in a word that begins with one.
pub fn path_len(word: &str) -> Option<usize> {
    const ENDS: &str = ".toml";
    let ends = word.match_indices(ENDS).map(|(at, _)| at + ENDS.len());
    ends.into_iter().find(|&end| word[end..].is_empty() || word[end..].starts_with(','))
}

/// The interface that a word begins with, and the model behind it.
pub fn behind(word: &str) -> (Option<&str>, &str) {
    match word.split_once('/') {
        None => (None, word),
        Some((interface, model)) => {
            let name = interface.split(',').next().unwrap_or_default();
            match path_len(word).is_some() && Interface::named(name).is_none() {
                true => (None, word),
                false => (Some(interface), model),
            }
        }
    }
}

impl Chosen<'_> {
    /// What a word without interface chooses.
    ///
    /// # Errors
    /// [`WordError`]: the models there are, or what is wrong with the file, and where.
    pub fn parse(model: &str) -> Result<Chosen<'_>, WordError> {
        let split = |end: usize| (&model[..end], model[end..].split(',').skip(1).collect());
        if let Some(end) = path_len(model) {
            let (name, options) = split(end);
            let (_, file) =
                ModelFile::read(Path::new(name)).map_err(|e| WordError::new(format!("{name}: {e}")))?;
            return Ok(Chosen { name, parameters: file.parameters, options });
        }
        let (name, options) = split(model.find(',').unwrap_or(model.len()));
        let Some(preset) = Preset::named(name) else {
            let names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
            let names = names.join(", ");
            return Err(WordError::new(format!(
                "{name:?} is no model: there are {names}, and files (FILE.toml); own,50us takes a fixed time"
            )));
        };
        Ok(Chosen { name, parameters: preset.file.parameters, options })
    }

    /// The medium, its options taken; a NAND drive is none without its translation layer.
    ///
    /// # Errors
    /// [`WordError`] names the option that is wrong.
    pub fn medium(mut self) -> Result<AnyMedium, WordError> {
        for option in &self.options {
            self.parameters.set(option)?;
        }
        let why = || WordError::new(format!("{} is a NAND drive: it wants a translation layer", self.name));
        self.parameters.medium().ok_or_else(why)
    }
}

impl Parameters {
    fn set(&mut self, option: &str) -> Result<(), WordError> {
        match (self, option.split_once('=')) {
            (Parameters::Delay(delay), Some((name, value))) => delay.set(name, value),
            (Parameters::Delay(delay), None) => delay.set("fixed", option),
            (Parameters::Dram(prototype), Some((name, value))) => prototype.set(name, value),
            (Parameters::XPoint(device), Some((name, value))) => device.set(name, value),
            (Parameters::Nand(_), _) | (Parameters::Dram(_) | Parameters::XPoint(_), None) => {
                Err(WordError::option("this model", option))
            }
        }
    }

    /// The names of the options that a word may give it; those of a NAND drive are its translation layer's.
    pub fn options(&self) -> &'static str {
        match self {
            Parameters::Delay(_) => "a time, units, stripe, perkib, stall, every, seed",
            Parameters::Dram(_) => "path, command, byte-ps",
            Parameters::XPoint(_) => {
                "channels, spread, command, read, write, turn, partial, byte-ps, path, vary, retry-every, retry, seed"
            }
            Parameters::Nand(_) => "",
        }
    }
}

/// Any medium that a word can name.
#[derive(Clone, Debug)]
pub enum AnyMedium {
    /// One's own.
    Parametric(Parametric),
    /// FAST'12's.
    Dram(DramPrototype),
    /// 3D XPoint.
    XPoint(XPoint),
    /// Several behind an interface.
    Platform(Box<Platform<AnyMedium>>),
}

impl AnyMedium {
    /// The medium that a word names.
    ///
    /// # Errors
    /// [`WordError`] names the part of the word that is wrong.
    pub fn parse(word: &str) -> Result<AnyMedium, WordError> {
        let (interface, model) = behind(word);
        let drive = Chosen::parse(model)?.medium()?;
        let Some(interface) = interface else { return Ok(drive) };
        let (interface, drives) = Interface::parse(interface)?;
        Ok(AnyMedium::Platform(Box::new(Platform::new(interface, vec![drive; drives as usize]))))
    }
}

impl Medium for AnyMedium {
    #[inline]
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        match self {
            AnyMedium::Parametric(medium) => medium.finish(request, now_ns),
            AnyMedium::Dram(medium) => medium.finish(request, now_ns),
            AnyMedium::XPoint(medium) => medium.finish(request, now_ns),
            AnyMedium::Platform(medium) => medium.finish(request, now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delay;
    use crate::dram::Prototype;

    #[test]
    fn words_name_media() {
        for preset in PRESETS.iter() {
            if let Some(mut medium) = preset.file.parameters.medium() {
                medium.finish(Request::read(0, 4096), 5);
                AnyMedium::parse(preset.name).unwrap().finish(Request::read(0, 4096), 5);
            }
        }
        let mut own = AnyMedium::parse("own,10us,perkib=1us,seed=4").unwrap();
        assert_eq!(own.finish(Request::read(0, 4096), 5), 14_005);
        let mut behind = AnyMedium::parse("sas,drives=2,added=30us/own,fixed=1ms").unwrap();
        // Adapter, drive, what is added; the longer of port and host link.
        let expected = 1_430 + 1_000_000 + 30_000 + 4096 * 1_667 / 1000 + 4096 * 305 / 1000;
        assert_eq!(behind.finish(Request::read(0, 4096), 0), expected);
        for (word, says) in [
            ("optane", "optane-p4800x"),
            ("optane-p4800x,cells=4", "cells=4"),
            ("optane-p4800x,channels=0", "channels=0"),
            ("optane-p4800x,7", "7"),
            ("own,ten", "ten"),
            ("usb/own", "usb"),
            ("sas,drives=9999/own", "drives=9999"),
            ("dram-gen2,path=1", "path=1"),
            ("nand-p3700", "translation layer"),
            ("/nonexistent/mine.toml", "/nonexistent/mine.toml: No such file"),
            ("sas/mine.toml", "mine.toml: No such file"),
        ] {
            let error = AnyMedium::parse(word).unwrap_err().to_string();
            assert!(error.contains(says), "{word}: {error}");
        }
        assert_eq!(Delay::parse("10us,units=8").unwrap(), Delay::units(8, 10_000));
    }

    /// The one model whose numbers stand in code as well, for constants: see [`Prototype`].
    #[test]
    fn the_prototypes_constants_are_their_files() {
        for (name, constant) in [("dram-gen2", Prototype::GEN2), ("dram-8gbps", Prototype::PROJECTION)] {
            assert_eq!(Preset::named(name).unwrap().file.parameters, Parameters::Dram(constant));
        }
    }

    #[test]
    fn paths_and_interfaces_are_told_apart() {
        for (word, expected) in [
            ("own,50us", (None, "own,50us")),
            ("sas,drives=4/own", (Some("sas,drives=4"), "own")),
            ("/tmp/a,b.toml,seed=7", (None, "/tmp/a,b.toml,seed=7")),
            ("drives/mine.toml", (None, "drives/mine.toml")),
            ("sas//tmp/mine.toml", (Some("sas"), "/tmp/mine.toml")),
            ("./sas/mine.toml", (None, "./sas/mine.toml")),
            ("usb/own", (Some("usb"), "own")),
        ] {
            assert_eq!(behind(word), expected, "{word}");
        }
        assert_eq!(path_len("/tmp/a,b.toml,seed=7"), Some("/tmp/a,b.toml".len()));
        assert_eq!((path_len("a.toml.old"), path_len("own,50us")), (None, None));
    }
}
