//! A directive of a format, as printf(3) has them and `find -printf` and `stat -c` use them.

/// `[-+ 0#]*[WIDTH][.PRECISION]LETTER`, as it stands behind a `%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directive {
    pub left: bool,
    pub plus: bool,
    pub space: bool,
    pub zero: bool,
    pub alternate: bool,
    pub width: usize,
    /// A point without digits is 0.
    pub precision: Option<usize>,
    /// There was a point without digits.
    pub open: bool,
    /// There was a flag that changes nothing.
    pub idle: bool,
    pub letter: u8,
}

/// Widths and precisions at most: a line of a volume's is no reason for gigabytes of blanks.
const MOST: usize = 1 << 16;

/// The first byte, which is taken off.
pub fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

/// Digits, which are taken off.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = rest.split_at(len);
    *rest = after;
    let add = |value: usize, digit: &u8| (value * 10 + usize::from(digit - b'0')).min(MOST);
    (len > 0).then(|| digits.iter().fold(0, add))
}

impl Directive {
    /// Takes what stands behind a `%`; `idle` are flags that change nothing here. `None`: the format ends in
    /// it.
    pub fn of(rest: &mut &[u8], idle: &[u8]) -> Option<Directive> {
        let mut directive = Directive::default();
        while let Some(&flag) = rest.first() {
            match flag {
                b'-' => directive.left = true,
                b'+' => directive.plus = true,
                b' ' => directive.space = true,
                b'0' => directive.zero = true,
                b'#' => directive.alternate = true,
                flag if idle.contains(&flag) => directive.idle = true,
                _ => break,
            }
            *rest = &rest[1..];
        }
        directive.width = number(rest).unwrap_or(0);
        if let Some(after) = rest.strip_prefix(b".") {
            *rest = after;
            let precision = number(rest);
            (directive.precision, directive.open) = (Some(precision.unwrap_or(0)), precision.is_none());
        }
        directive.letter = take(rest)?;
        Some(directive)
    }

    /// Whether it is a letter alone.
    pub fn is_plain(&self) -> bool {
        *self == Directive { letter: self.letter, ..Directive::default() }
    }

    /// As `%s`.
    pub fn text(&self, text: &[u8]) -> Vec<u8> {
        self.padded(&text[..self.precision.unwrap_or(usize::MAX).min(text.len())])
    }

    /// What stands before a signed number.
    pub fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    /// As `%d`, `%o` and `%x`: digits behind a sign, or what else marks the number.
    pub fn number(&self, sign: &str, digits: &str) -> Vec<u8> {
        let most = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        let none = self.precision == Some(0) && digits == "0";
        let digits = if none { "" } else { digits };
        self.padded(format!("{sign}{digits:0>most$}").as_bytes())
    }

    /// As `%o`, where flags ask for it with a zero before it.
    pub fn octal(&self, bits: u16) -> Vec<u8> {
        let mark = if self.alternate && bits != 0 { "0" } else { "" };
        let precision = self.precision.map(|digits| digits.max(usize::from(self.alternate)));
        Directive { precision, ..*self }.number("", &format!("{mark}{bits:o}"))
    }

    /// As wide as is asked for.
    pub fn padded(&self, text: &[u8]) -> Vec<u8> {
        let blanks = vec![b' '; self.width.saturating_sub(text.len())];
        if self.left { [text, &blanks[..]].concat() } else { [&blanks[..], text].concat() }
    }
}
