//! What rules of YARA are told: the parameters of a program in that language.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::MAX_PARAMETERS;

/// Most external variables of rules.
const MAX_VARIABLES: usize = 256;
/// Longest name of one, in bytes, as YARA's.
const LONGEST_NAME: usize = 128;
/// Says that what matched is shown as well.
const STRINGS: &[u8] = b"strings";

/// The value of an external variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Variable {
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A truth: to rules the integer 1 or 0, as yara's are.
    Boolean(bool),
    /// Bytes without a NUL.
    Text(Vec<u8>),
}

impl Variable {
    /// The value of what a user writes without a type, as yara's `-d` takes it: digits are an integer, with a
    /// point behind the first a float, `true` and `false` truths, and all else is a text.
    ///
    /// # Errors
    /// A whole number that no 64 bits hold.
    pub fn of(text: &[u8]) -> Result<Variable, String> {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        let points = digits.iter().filter(|byte| **byte == b'.').count();
        let numeric = digits.len() > points && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
        match core::str::from_utf8(text) {
            Ok("true") => Ok(Variable::Boolean(true)),
            Ok("false") => Ok(Variable::Boolean(false)),
            Ok(number) if numeric && points == 0 => {
                let value = number.parse().map_err(|_| format!("{number}: no integer of 64 bits"))?;
                Ok(Variable::Integer(value))
            }
            Ok(number) if numeric && points == 1 && !digits.starts_with(b".") => {
                let value = number.parse().map_err(|_| format!("{number}: no number"))?;
                Ok(Variable::Float(value))
            }
            _ => Ok(Variable::Text(text.to_vec())),
        }
    }
}

/// What rules are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleParameters {
    /// Where their strings matched is said as well.
    pub strings: bool,
    /// External variables: names and values.
    pub variables: Vec<(String, Variable)>,
}

impl RuleParameters {
    /// As a program's [parameters](super::ProgramOptions::parameters): `strings`, or nothing; then for each
    /// variable a NUL, the type's letter (`i`, `f`, `b`, `t`), its name, `=` and its value.
    ///
    /// # Errors
    /// A name that is none, or that two have; a text with a NUL; too many, or too long.
    pub fn put(&self) -> Result<Vec<u8>, String> {
        let mut out = if self.strings { STRINGS.to_vec() } else { Vec::new() };
        for (name, value) in &self.variables {
            let (letter, text) = match value {
                Variable::Integer(value) => (b'i', value.to_string().into_bytes()),
                Variable::Float(value) => (b'f', value.to_string().into_bytes()),
                Variable::Boolean(value) => (b'b', value.to_string().into_bytes()),
                Variable::Text(bytes) if bytes.contains(&0) => {
                    return Err(format!("{name}: a text with a NUL"));
                }
                Variable::Text(bytes) => (b't', bytes.clone()),
            };
            out.extend([0, letter]);
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            out.extend_from_slice(&text);
        }
        if out.len() > MAX_PARAMETERS {
            let n = out.len();
            return Err(format!("external variables of {n} bytes: at most {MAX_PARAMETERS}"));
        }
        // Names are held to one rule.
        RuleParameters::take(&out).map(|_| out)
    }

    /// What parameters say.
    ///
    /// # Errors
    /// Which of them says nothing, in a sentence.
    pub fn take(parameters: &[u8]) -> Result<RuleParameters, String> {
        let mut parts = parameters.split(|byte| *byte == 0);
        let strings = match parts.next().unwrap_or_default() {
            [] => false,
            STRINGS => true,
            other => return Err(format!("rules are told nothing like {:?}", String::from_utf8_lossy(other))),
        };
        let mut variables: Vec<(String, Variable)> = Vec::new();
        for part in parts {
            let (name, value) = variable(part)?;
            if variables.iter().any(|(other, _)| *other == name) {
                return Err(format!("external variable {name}: defined twice"));
            }
            if variables.len() >= MAX_VARIABLES {
                return Err(format!("more than {MAX_VARIABLES} external variables"));
            }
            variables.push((name, value));
        }
        Ok(RuleParameters { strings, variables })
    }

    /// The part of parameters that is compiled into rules: their variables.
    #[must_use]
    pub fn compiled(parameters: &[u8]) -> &[u8] {
        let at = parameters.iter().position(|byte| *byte == 0).unwrap_or(parameters.len());
        parameters.get(at..).unwrap_or_default()
    }
}

/// A variable behind its NUL.
fn variable(part: &[u8]) -> Result<(String, Variable), String> {
    let none = || format!("an external variable is NAME=VALUE, and not {:?}", String::from_utf8_lossy(part));
    let (letter, rest) = part.split_first().ok_or_else(none)?;
    let at = rest.iter().position(|byte| *byte == b'=').ok_or_else(none)?;
    let (name, value) = (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default());
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = name.iter().all(plain) && !name.first().is_none_or(u8::is_ascii_digit);
    if !is_name || name.len() > LONGEST_NAME {
        let name = String::from_utf8_lossy(name);
        return Err(format!("external variable {name:?}: a name has letters, digits and _, 128 at most"));
    }
    let name = String::from_utf8_lossy(name).into_owned();
    let text = core::str::from_utf8(value).unwrap_or_default();
    let value = match letter {
        b'i' => text.parse().ok().map(Variable::Integer),
        b'f' => text.parse().ok().map(Variable::Float),
        b'b' => text.parse().ok().map(Variable::Boolean),
        b't' => Some(Variable::Text(value.to_vec())),
        _ => None,
    };
    let value = value.ok_or_else(|| format!("external variable {name}: a value that is none of its type"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_value_has_the_type_that_it_looks_like() {
        for (text, value) in [
            (&b"7"[..], Variable::Integer(7)),
            (b"-7", Variable::Integer(-7)),
            (b"-7.5", Variable::Float(-7.5)),
            (b"7.", Variable::Float(7.0)),
            (b"true", Variable::Boolean(true)),
            (b"false", Variable::Boolean(false)),
            (b"", Variable::Text(vec![])),
            (b"-", Variable::Text(b"-".into())),
            (b".", Variable::Text(b".".into())),
            (b".5", Variable::Text(b".5".into())),
            (b"-.5", Variable::Text(b"-.5".into())),
            (b"+5", Variable::Text(b"+5".into())),
            (b"007", Variable::Integer(7)),
            (b"1.2.3", Variable::Text(b"1.2.3".into())),
            (b"1e5", Variable::Text(b"1e5".into())),
            (b"True", Variable::Text(b"True".into())),
            (b"\xff=", Variable::Text(b"\xff=".into())),
        ] {
            assert_eq!(Variable::of(text).unwrap(), value);
        }
        assert!(Variable::of(b"9223372036854775808").is_err());
    }

    #[test]
    fn what_is_put_is_taken() {
        let variables = vec![
            ("a".into(), Variable::Integer(i64::MIN)),
            ("_b1".into(), Variable::Float(0.1)),
            ("c".into(), Variable::Boolean(false)),
            ("d".into(), Variable::Text(b"x=\xff\n".into())),
        ];
        for strings in [false, true] {
            let told = RuleParameters { strings, variables: variables.clone() };
            let put = told.put().unwrap();
            assert_eq!(RuleParameters::take(&put).unwrap(), told);
            let compiled = RuleParameters::compiled(&put);
            assert_eq!(RuleParameters::take(compiled).unwrap(), RuleParameters { strings: false, ..told });
        }
        assert_eq!(RuleParameters::compiled(b"strings"), b"");
        let long = |len| vec![("a".into(), Variable::Text(vec![b'x'; len]))];
        let put = |len| RuleParameters { strings: false, variables: long(len) }.put();
        assert_eq!(put(MAX_PARAMETERS - 4).unwrap().len(), MAX_PARAMETERS);
        assert!(put(MAX_PARAMETERS - 3).unwrap_err().contains("at most 65536"));
        let many = (0..=MAX_VARIABLES).map(|n| (format!("v{n}"), Variable::Integer(0)));
        let many = RuleParameters { strings: false, variables: many.collect() };
        assert_eq!(many.put().unwrap_err(), "more than 256 external variables");
    }

    #[test]
    fn what_says_nothing_is_refused() {
        for (parameters, why) in [
            (&b"nonsense"[..], "nothing like \"nonsense\""),
            (b"\0", "NAME=VALUE"),
            (b"\0ia", "NAME=VALUE"),
            (b"\0i=1", "a name has letters"),
            (b"\0i1a=1", "a name has letters"),
            (b"\0ia-b=1", "a name has letters"),
            (b"\0ia=x", "none of its type"),
            (b"\0ba=1", "none of its type"),
            (b"\0xa=1", "none of its type"),
            (b"\0ia=1\0ta=1", "a: defined twice"),
        ] {
            let said = RuleParameters::take(parameters).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
