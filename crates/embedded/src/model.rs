//! Modelled devices by name: the media of `nearside-media` and the NAND drives, with their translation layer.
//!
//! ```text
//! WORD  = [INTERFACE "/"] MODEL
//! MODEL = NAME ["," OPTION]...        nand-p3700,seed=7,policy=cost-benefit
//! ```
//!
//! The names and options of a plain medium are [`AnyMedium`]'s; a NAND drive has `seed=N`, `physical=N`
//! (physical over logical bytes, in thousandths), `policy=greedy|cost-benefit`, `wear=N` (how far erase
//! counts may lie apart), `suspend=TIME` (programs and erases let reads through, which costs this much).

use nearside_ftl::{Config, Flash, Policy};
use nearside_media::nand::{self, NandDrive};
use nearside_media::platform::Interface;
use nearside_media::words::time_ns;
use nearside_media::{AnyMedium, Medium, PRESETS, Platform, Request};

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
    /// None where the word names no NAND drive; the error names the option.
    ///
    /// # Errors
    /// Which option of the word is wrong.
    pub fn parse(word: &str) -> Result<Option<Nand>, String> {
        let mut words = word.split(',');
        let Some(drive) = nand::preset(words.next().unwrap_or_default()) else { return Ok(None) };
        let mut nand = Nand { drive, config: Config::default() };
        for option in words {
            nand.set(option).ok_or_else(|| {
                format!("{option:?} is no option of {} ({OPTIONS}), or has no such value", drive.name)
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

impl Model {
    /// The device of so many bytes that a word names;
    /// the error names the part of the word that is wrong, and the models there are.
    ///
    /// # Errors
    /// Which part of the word is wrong, and the models there are.
    pub fn parse(word: &str, capacity: u64) -> Result<Model, String> {
        let (interface, model) = match word.split_once('/') {
            Some((interface, model)) => (Some(interface), model),
            None => (None, word),
        };
        let Some(nand) = Nand::parse(model)? else {
            let name = model.split(',').next().unwrap_or_default();
            if !PRESETS.iter().any(|preset| preset.name == name) {
                let names: Vec<&str> = models().map(|m| m.name).collect();
                let names = names.join(", ");
                return Err(format!("{name:?} is no model: there are {names}; own,50us takes a fixed time"));
            }
            return AnyMedium::parse(word).map(Model::Medium).map_err(|e| e.to_string());
        };
        let flash = nand.flash(capacity)?;
        let Some(interface) = interface else { return Ok(Model::Flash(Box::new(flash))) };
        let (interface, drives) = Interface::parse(interface).map_err(|e| e.to_string())?;
        Ok(Model::Behind(Box::new(Platform::new(interface, vec![flash; drives as usize]))))
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

/// Every model that a word can name.
pub fn models() -> impl Iterator<Item = ModelHelp> {
    let media = PRESETS.iter().map(|p| ModelHelp { name: p.name, about: p.about, options: p.options });
    let drives = nand::presets();
    media.chain(drives.into_iter().map(|d| ModelHelp { name: d.name, about: d.about, options: OPTIONS }))
}

/// The listing, for `--help`.
pub fn models_help() -> String {
    let mut text = String::from(
        "Models (--store model:NAME[,OPTION=VALUE...]:SIZE, [INTERFACE/]NAME with pcie, ahci or sas):\n",
    );
    for model in models() {
        text.push_str(&format!(
            "  {:<17} {}\n  {:<17} options: {}\n",
            model.name, model.about, "", model.options
        ));
    }
    text
}
