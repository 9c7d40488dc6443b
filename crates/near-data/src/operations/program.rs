//! A program that the user brings.

use alloc::vec::Vec;

use crate::wire::{Fault, Reader, WireError, small};

/// Most bytes of [`ProgramOptions::parameters`].
pub const MAX_PARAMETERS: usize = 64 << 10;

/// A program to be run over files, once over each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOptions {
    /// In what it is written.
    pub language: Language,
    /// What to run.
    pub code: Code,
    /// What the program is told, at most [`MAX_PARAMETERS`]; rules, [what they know](super::RuleParameters).
    pub parameters: Vec<u8>,
    /// Instructions, about, that it may take for a file, or nanoseconds where nobody counts instructions; 0:
    /// 10^9, and a thousand for each byte of the file.
    pub fuel: u64,
}

/// In what a program is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Language {
    /// A WebAssembly module.
    #[default]
    WebAssembly,
    /// Rules of YARA, as text or as a gzip of it.
    Yara,
}

impl Language {
    /// All of them, by their numbers.
    pub const ALL: [Language; 2] = [Language::WebAssembly, Language::Yara];
}

/// Where a program's code is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// Here.
    Given(Vec<u8>),
    /// In a file of the volume, by its path, which the user may read.
    Stored(Vec<u8>),
}

impl Default for ProgramOptions {
    fn default() -> Self {
        Self { language: Language::default(), code: Code::Given(Vec::new()), parameters: Vec::new(), fuel: 0 }
    }
}

impl ProgramOptions {
    /// The part of the parameters without which the code cannot be compiled.
    #[must_use]
    pub fn compiled_in(&self) -> &[u8] {
        match self.language {
            Language::WebAssembly => &[],
            Language::Yara => super::RuleParameters::compiled(&self.parameters),
        }
    }

    /// Where its language begins: in the word that says its place, and in the bits of its options.
    pub const LANGUAGE: u32 = 8;
    /// Bit 0: code that comes with the request; bit 1: code in the volume; from bit 8 on: the
    /// [languages](Language::ALL), a bit each.
    pub(crate) const BITS: u32 = 0b11 | 0b11 << Self::LANGUAGE;

    /// Fuel, where the code is and its language, length of the parameters, parameters; the code, or its path.
    pub(crate) fn put(&self) -> Vec<u8> {
        let (place, code) = match &self.code {
            Code::Given(code) => (0u32, code),
            Code::Stored(path) => (1, path),
        };
        let mut out = Vec::new();
        out.extend_from_slice(&self.fuel.to_le_bytes());
        out.extend_from_slice(&(place | (self.language as u32) << Self::LANGUAGE).to_le_bytes());
        out.extend_from_slice(&small(self.parameters.len()).to_le_bytes());
        out.extend_from_slice(&self.parameters);
        out.extend_from_slice(code);
        out
    }

    pub(crate) fn take(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let fuel = r.u64()?;
        let at = r.at;
        let (place, len) = (r.u32()?, r.len()?);
        if len > MAX_PARAMETERS {
            return Err(WireError { at, what: Fault::Invalid("parameters: too long") });
        }
        let parameters = r.bytes(len)?.to_vec();
        let code = r.tail().to_vec();
        let code = match place & ((1 << Self::LANGUAGE) - 1) {
            0 => Code::Given(code),
            1 => Code::Stored(code),
            n => return Err(WireError { at, what: Fault::Unknown("place of a program", n) }),
        };
        let number = place >> Self::LANGUAGE;
        let Some(&language) = Language::ALL.get(number as usize) else {
            return Err(WireError { at, what: Fault::Unknown("language of a program", number) });
        };
        Ok(ProgramOptions { language, code, parameters, fuel })
    }
}
