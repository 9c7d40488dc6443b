//! Media by name: the presets, and how a word changes their numbers.
//!
//! ```text
//! WORD  = [INTERFACE "/"] MODEL
//! MODEL = NAME ["," OPTION]...        optane-p4800x,seed=7     own,10us,units=8,stall=5ms,every=1000
//! INTERFACE: see [`Interface::parse`]        sas,drives=4/optane-p4800x
//! ```

use crate::dram::{DramPrototype, Prototype};
use crate::platform::{Interface, Platform};
use crate::words::WordError;
use crate::xpoint::{self, XPoint};
use crate::{Delay, Medium, Parametric, Request};

/// A named medium.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// How words name it.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// The names of its options.
    pub options: &'static str,
    numbers: Numbers,
}

#[derive(Clone, Copy, Debug)]
enum Numbers {
    Delay(Delay),
    Prototype(Prototype),
    XPoint(xpoint::Device),
}

const XPOINT: &str = "channels, spread, read, write, partial, byte-ps, path, vary, retry-every, retry, seed";
const PROTOTYPE: &str = "path, command, byte-ps";

/// All presets of this crate.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "own",
        about: "a device of one's own: a fixed time for each operation (own,50us), and what options add",
        options: "a time, units, stripe, perkib, stall, every, seed",
        numbers: Numbers::Delay(Delay {
            fixed_ns: 0,
            per_kib_ns: 0,
            units: 0,
            stripe: 4096,
            stall_every: 0,
            stall_ns: 0,
            seed: 1,
        }),
    },
    Preset {
        name: "dram-gen2",
        about: "FAST'12's DRAM prototype on PCIe Gen2 x8",
        options: PROTOTYPE,
        numbers: Numbers::Prototype(Prototype::GEN2),
    },
    Preset {
        name: "dram-8gbps",
        about: "FAST'12's projection to a saturated Gen3 bus",
        options: PROTOTYPE,
        numbers: Numbers::Prototype(Prototype::PROJECTION),
    },
    Preset {
        name: "optane-p4800x",
        about: "Intel Optane SSD DC P4800X, 375 GB (PIEEE'17)",
        options: XPOINT,
        numbers: Numbers::XPoint(xpoint::Device::P4800X),
    },
    Preset {
        name: "optane-prototype",
        about: "its precursor as PIEEE'17's ACT figures need it: requests that are not whole blocks of 4 KiB cost 3 us more",
        options: XPOINT,
        numbers: Numbers::XPoint(xpoint::Device::PROTOTYPE),
    },
];

impl Preset {
    /// The preset of that name.
    pub fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|p| p.name == name)
    }

    /// Its medium.
    pub fn medium(&self) -> AnyMedium {
        self.numbers.medium()
    }
}

impl Numbers {
    fn set(&mut self, option: &str) -> Result<(), WordError> {
        match (self, option.split_once('=')) {
            (Numbers::Delay(delay), Some((name, value))) => delay.set(name, value),
            (Numbers::Delay(delay), None) => delay.set("fixed", option),
            (Numbers::Prototype(prototype), Some((name, value))) => prototype.set(name, value),
            (Numbers::XPoint(device), Some((name, value))) => device.set(name, value),
            (_, None) => Err(WordError::option("this model", option)),
        }
    }

    fn medium(self) -> AnyMedium {
        match self {
            Numbers::Delay(delay) => AnyMedium::Parametric(delay.medium()),
            Numbers::Prototype(prototype) => AnyMedium::Dram(prototype.medium()),
            Numbers::XPoint(device) => AnyMedium::XPoint(device.medium()),
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
        let Some((interface, model)) = word.split_once('/') else {
            return AnyMedium::model(word);
        };
        let (interface, drives) = Interface::parse(interface)?;
        let drive = AnyMedium::model(model)?;
        Ok(AnyMedium::Platform(Box::new(Platform::new(interface, vec![drive; drives as usize]))))
    }

    fn model(word: &str) -> Result<AnyMedium, WordError> {
        let mut words = word.split(',');
        let name = words.next().unwrap_or_default();
        let Some(preset) = Preset::named(name) else {
            let names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
            return Err(WordError::new(format!("{name:?} is no model: {}", names.join(", "))));
        };
        let mut numbers = preset.numbers;
        words.try_for_each(|option| numbers.set(option))?;
        Ok(numbers.medium())
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

    #[test]
    fn words_name_media() {
        for preset in PRESETS {
            AnyMedium::parse(preset.name).unwrap().finish(Request::read(0, 4096), 5);
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
        ] {
            let error = AnyMedium::parse(word).unwrap_err().to_string();
            assert!(error.contains(says), "{word}: {error}");
        }
        assert_eq!(Delay::parse("10us,units=8").unwrap(), Delay::units(8, 10_000));
    }
}
