//! Modelled devices by name: the media of `nearside-media` and the NAND drives, with their translation layer.
//!
//! ```text
//! WORD  = [INTERFACE "/"] MODEL
//! MODEL = (NAME | FILE) ["," OPTION]...        nand-p3700,seed=7,policy=cost-benefit      ./mine.toml
//! ```
//!
//! Names, files and the options of a plain medium are [`nearside_media`]'s; a NAND drive has `seed=N`,
//! `physical=N` (physical over logical bytes, in thousandths), `policy=greedy|cost-benefit`, `wear=N` (how
//! far erase counts may lie apart), `suspend=TIME` (programs and erases let reads through, which costs this
//! much).

use std::path::Path;

use nearside_ftl::{Config, Flash, Policy};
use nearside_media::file::{ModelFile, Parameters};
use nearside_media::nand::NandDrive;
use nearside_media::platform::Interface;
use nearside_media::words::time_ns;
use nearside_media::{AnyMedium, Chosen, Medium, PRESETS, Platform, Preset, Request, behind};

/// A device that a word names, without bytes.
#[derive(Clone, Debug)]
pub enum Model {
    /// One without a translation layer.
    Medium(AnyMedium),
    /// A NAND drive.
    Flash(Box<Flash<()>>),
    /// NAND drives behind an interface.
    Behind(Box<Platform<Flash<()>>>),
}

/// A NAND drive as a word has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nand {
    pub drive: NandDrive,
    pub config: Config,
}

impl Nand {
    /// None where what was chosen is no NAND drive; the error names the option.
    ///
    /// # Errors
    /// Which option of the word is wrong.
    fn of(chosen: &Chosen<'_>) -> Result<Option<Nand>, String> {
        let Parameters::Nand(drive) = chosen.parameters else { return Ok(None) };
        let mut nand = Nand { drive, config: Config::default() };
        for option in &chosen.options {
            nand.set(option).ok_or_else(|| {
                format!("{option:?} is no option of {} ({OPTIONS}), or has no such value", chosen.name)
            })?;
        }
        Ok(Some(nand))
    }

    fn set(&mut self, option: &str) -> Option<()> {
        let (name, value) = option.split_once('=')?;
        match name {
            "seed" => self.drive.seed = value.parse().ok()?,
            "physical" => {
                self.drive.physical_permille = value.parse().ok().filter(|n| (1010..=4000).contains(n))?;
            }
            "policy" => {
                self.config.policy = match value {
                    "greedy" => Policy::Greedy,
                    "cost-benefit" => Policy::CostBenefit,
                    _ => return None,
                };
            }
            "wear" => self.config.wear_spread = value.parse().ok().filter(|&n| n >= 2)?,
            "suspend" => self.drive.timings.suspend_ns = Some(time_ns(value)?),
            _ => return None,
        }
        Some(())
    }

    fn flash(self, capacity: u64) -> Result<Flash<()>, String> {
        Flash::new(self.drive.sized(capacity), self.config).map_err(|e| e.to_string())
    }
}

/// What a word names, before it has a size.
pub(crate) enum Named {
    /// A NAND drive by itself.
    Nand(Nand),
    /// NAND drives behind an interface.
    Behind(Interface, u32, Nand),
    /// A medium, alone or behind one.
    Medium(AnyMedium),
}

impl Named {
    /// # Errors
    /// Which part of the word is wrong, and the models there are.
    pub fn parse(word: &str) -> Result<Named, String> {
        let (interface, model) = behind(word);
        let chosen = Chosen::parse(model).map_err(|e| e.to_string())?;
        let nand = Nand::of(&chosen)?;
        let Some(interface) = interface else {
            return match nand {
                Some(nand) => Ok(Named::Nand(nand)),
                None => chosen.medium().map(Named::Medium).map_err(|e| e.to_string()),
            };
        };
        let (interface, drives) = Interface::parse(interface).map_err(|e| e.to_string())?;
        match nand {
            Some(nand) => Ok(Named::Behind(interface, drives, nand)),
            None => {
                let drive = chosen.medium().map_err(|e| e.to_string())?;
                let platform = Platform::new(interface, vec![drive; drives as usize]);
                Ok(Named::Medium(AnyMedium::Platform(Box::new(platform))))
            }
        }
    }

    /// The device of so many bytes.
    ///
    /// # Errors
    /// That there can be no flash drive of this size.
    pub fn sized(self, capacity: u64) -> Result<Model, String> {
        match self {
            Named::Nand(nand) => Ok(Model::Flash(Box::new(nand.flash(capacity)?))),
            Named::Behind(interface, drives, nand) => {
                let flash = nand.flash(capacity)?;
                Ok(Model::Behind(Box::new(Platform::new(interface, vec![flash; drives as usize]))))
            }
            Named::Medium(medium) => Ok(Model::Medium(medium)),
        }
    }
}

impl Model {
    /// The device of so many bytes that a word names;
    /// the error names the part of the word that is wrong, and the models there are.
    ///
    /// # Errors
    /// Which part of the word is wrong, and the models there are.
    pub fn parse(word: &str, capacity: u64) -> Result<Model, String> {
        Named::parse(word)?.sized(capacity)
    }
}

impl Medium for Model {
    #[inline]
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        match self {
            Model::Medium(medium) => medium.finish(request, now_ns),
            Model::Flash(flash) => flash.finish(request, now_ns),
            Model::Behind(platform) => platform.finish(request, now_ns),
        }
    }
}

/// A model, for a listing.
#[derive(Clone, Copy, Debug)]
pub struct ModelHelp {
    /// How words name it.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its options.
    pub options: &'static str,
}

const OPTIONS: &str = "seed, physical, policy, wear, suspend";

/// Every model that a word can name without a file.
pub fn models() -> impl Iterator<Item = ModelHelp> {
    PRESETS.iter().map(|preset| ModelHelp {
        name: preset.name,
        about: &preset.file.about,
        options: match &preset.file.parameters {
            Parameters::Nand(_) => OPTIONS,
            other => other.options(),
        },
    })
}

/// The text of a preset's file, and what it says.
pub fn model_file(name: &str) -> Option<(&'static str, &'static ModelFile)> {
    Preset::named(name).map(|preset| (preset.toml, &preset.file))
}

/// The text of a file, and what it says.
///
/// # Errors
/// That it cannot be read, or what is wrong with it, in which line.
pub fn read_model(path: &Path) -> Result<(String, ModelFile), String> {
    ModelFile::read(path).map_err(|e| e.to_string())
}

/// The listing, for `--help`.
pub fn models_help() -> String {
    let mut text = String::from(
        "Models (--store model:NAME[,OPTION=VALUE...]:SIZE, [INTERFACE/]NAME with pcie, ahci or sas), or one's own \
         in a file (model:FILE.toml:SIZE; nearside models NAME prints one to begin with):\n",
    );
    for model in models() {
        text.push_str(&format!(
            "  {:<17} {}\n  {:<17} options: {}\n",
            model.name, model.about, "", model.options
        ));
    }
    text
}
