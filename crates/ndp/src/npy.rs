//! The header of a `.npy` file (NumPy enhancement proposal 1), as strict as what a table needs: little-endian
//! numbers of one kind, two axes, rows one after the other.

use nearside_near_data::{Element, MAX_COLUMNS};

use crate::table::{Shape, TableError};

/// Longest header that is read, in bytes: a table of plain numbers needs a tenth of it.
pub const MAX_HEADER: u64 = 4096;

const MAGIC: &[u8] = b"\x93NUMPY";

fn wrong<T>(what: impl Into<String>) -> Result<T, TableError> {
    Err(TableError::Header(what.into()))
}

/// What a file of `size` bytes says of itself, that begins with `head`: all of it, or [`MAX_HEADER`] bytes.
///
/// # Errors
/// [`TableError::Header`]: it is no `.npy` file, one of another shape, or ends before its last row.
pub fn shape(head: &[u8], size: u64) -> Result<Shape, TableError> {
    let Some(rest) = head.strip_prefix(MAGIC) else {
        return wrong("the file does not begin as .npy files do");
    };
    let (len, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [version, ..] => return wrong(format!("version {version} of the .npy format is not known")),
        [] => return wrong("the .npy header is cut off"),
    };
    let from = head.len() - rest.len() + len;
    let Some(text) = rest.get(..len) else {
        return wrong(match from as u64 > MAX_HEADER {
            true => "the .npy header is longer than 4 KiB",
            false => "the .npy header is cut off",
        });
    };
    let Ok(text) = std::str::from_utf8(text) else { return wrong("the .npy header is not text") };
    let Said { element, rows, columns } = Said::parse(text)?;
    let shape = Shape { element, columns, rows, from: from as u64 };
    match shape.end() {
        Some(end) if end <= size => Ok(shape),
        _ => wrong(format!("{rows} rows of {columns} numbers do not fit in the file's {size} bytes")),
    }
}

/// What the header's dictionary says.
struct Said {
    element: Element,
    rows: u64,
    columns: u32,
}

/// What is left of the dictionary.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn takes(&mut self, what: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(what);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// A word between quotes.
    fn quoted(&mut self) -> Option<&'a str> {
        let quote = if self.takes("'") { '\'' } else { self.takes("\"").then_some('"')? };
        let (word, rest) = self.0.split_once(quote)?;
        self.0 = rest;
        Some(word)
    }

    fn number(&mut self) -> Option<u64> {
        let text = self.0.trim_start();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = text.split_at(digits);
        self.0 = rest;
        number.parse().ok()
    }

    /// Two numbers in parentheses.
    fn pair(&mut self) -> Option<(u64, u64)> {
        let pair = (self.takes("(").then(|| self.number())??, self.takes(",").then(|| self.number())??);
        // A comma may end a tuple.
        let _ = self.takes(",");
        self.takes(")").then_some(pair)
    }
}

impl Said {
    fn parse(text: &str) -> Result<Said, TableError> {
        let malformed = || TableError::Header("the .npy header is malformed".into());
        let (mut element, mut ordered, mut shape) = (None, None, None);
        let mut text = Text(text);
        if !text.takes("{") {
            return Err(malformed());
        }
        while !text.takes("}") {
            let key = text.quoted().ok_or_else(malformed)?;
            if !text.takes(":") {
                return Err(malformed());
            }
            let again = match key {
                "descr" => element.replace(descr(&mut text)?).is_some(),
                "fortran_order" if text.takes("False") => ordered.replace(()).is_some(),
                "fortran_order" if text.takes("True") => {
                    return wrong("its columns lie one after the other (fortran_order)");
                }
                "shape" => match text.pair() {
                    Some(pair) => shape.replace(pair).is_some(),
                    None => return wrong("its array has not two axes"),
                },
                _ => return Err(malformed()),
            };
            if again || !text.takes(",") && !text.0.trim_start().starts_with('}') {
                return Err(malformed());
            }
        }
        let (Some(element), Some(()), Some((rows, columns)), "") = (element, ordered, shape, text.0.trim())
        else {
            return Err(malformed());
        };
        match u32::try_from(columns) {
            Ok(columns @ 1..=MAX_COLUMNS) => Ok(Said { element, rows, columns }),
            _ => wrong(format!("rows of {columns} numbers: there may be 1 to {MAX_COLUMNS}")),
        }
    }
}

fn descr(text: &mut Text<'_>) -> Result<Element, TableError> {
    Ok(match text.quoted() {
        Some("<f4") => Element::F32,
        Some("<f2") => Element::F16,
        Some("<V2" | "|V2") => Element::Bf16,
        Some("|i1" | "<i1") => Element::I8,
        Some(other) => {
            return wrong(format!("numbers of type {other:?}; known are <f4, <f2, <V2 (bfloat16) and |i1"));
        }
        None => return wrong("its type has fields"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(version: u8, text: &str) -> Vec<u8> {
        let mut head = [MAGIC, &[version, 0]].concat();
        match version {
            1 => head.extend_from_slice(&(text.len() as u16).to_le_bytes()),
            _ => head.extend_from_slice(&(text.len() as u32).to_le_bytes()),
        }
        head.extend_from_slice(text.as_bytes());
        head
    }

    #[test]
    fn headers() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }            \n";
        let from = head(1, good).len() as u64;
        let shape = |text: &str| super::shape(&head(1, text), 4096).map_err(|e| e.to_string());
        assert_eq!(shape(good), Ok(Shape { element: Element::F32, columns: 2, rows: 3, from }));
        assert_eq!(super::shape(&head(3, good), from + 26).unwrap().from, from + 2);
        assert!(super::shape(&head(1, good), from + 23).is_err(), "a row is missing");
        assert!(shape("{\"shape\":(3,2),\"descr\":\"|i1\",\"fortran_order\":False}").is_ok());
        for (from, to, says) in [
            ("<f4", ">f4", "type \">f4\""),
            ("'<f4'", "[('a', '<f4')]", "fields"),
            ("False", "True", "fortran_order"),
            ("False", "None", "malformed"),
            ("(3, 2)", "(3,)", "two axes"),
            ("(3, 2)", "(3, 2, 1)", "two axes"),
            ("(3, 2)", "(3, -2)", "two axes"),
            ("(3, 2)", "(3, 0)", "rows of 0"),
            ("(3, 2)", "(3, 4294967298)", "rows of"),
            ("(3, 2)", "(18446744073709551615, 2)", "do not fit"),
            ("(3, 2)", "(99999999999999999999, 2)", "two axes"),
            ("'shape'", "'descr'", "fields"),
            ("'shape': (3, 2)", "'descr': '<f4'", "malformed"),
            ("'shape'", "'form'", "malformed"),
            ("}", "", "malformed"),
            ("}", "} x", "malformed"),
            ("{", "", "malformed"),
        ] {
            let error = shape(&good.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(says), "{from} as {to}: {error}");
        }
        // Every shorter one says that it is cut off, or is none; none panics.
        let whole = head(2, good);
        (0..whole.len()).for_each(|len| assert!(super::shape(&whole[..len], 4096).is_err(), "{len}"));
        assert!(super::shape(&head(4, good), 4096).is_err());
        let long = head(1, &good.replace("}", &format!("}}{}", " ".repeat(5000))));
        let error = super::shape(&long[..4096], 9999).unwrap_err().to_string();
        assert!(error.contains("longer than 4 KiB"), "{error}");
    }
}
