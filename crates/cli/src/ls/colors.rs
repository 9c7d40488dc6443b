//! Colours of names, as GNU ls chooses them: by type and mode, by a link's target, by a name's ending.

use std::collections::HashMap;

use nearside_fsrlib::{FileEntry, Reading, fnmatch};

use crate::format;

/// GNU ls's own, where LS_COLORS says nothing.
const OWN: [(&str, &str); 12] = [
    ("di", "01;34"),
    ("ln", "01;36"),
    ("pi", "33"),
    ("so", "01;35"),
    ("bd", "01;33"),
    ("cd", "01;33"),
    ("ex", "01;32"),
    ("su", "37;41"),
    ("sg", "30;43"),
    ("st", "37;44"),
    ("ow", "34;42"),
    ("tw", "30;42"),
];

/// Terminals that have colours, by TERM (dircolors --print-database).
const TERMINALS: [&str; 25] = [
    "Eterm",
    "ansi",
    "*color*",
    "con[0-9]*x[0-9]*",
    "cons25",
    "console",
    "cygwin",
    "*direct*",
    "dtterm",
    "gnome",
    "hurd",
    "jfbterm",
    "konsole",
    "kterm",
    "linux",
    "linux-c",
    "mlterm",
    "putty",
    "rxvt*",
    "screen*",
    "st",
    "terminator",
    "tmux*",
    "vt100",
    "xterm*",
];

/// Colours by what a file is.
#[derive(Debug, Default)]
pub struct Colors {
    /// By dircolors' two letters.
    codes: HashMap<String, String>,
    /// By the endings of names, the last first.
    endings: Vec<(Vec<u8>, String)>,
    /// Links have the colours of what they lead to.
    as_target: bool,
    /// Whether there was colour before.
    pub begun: bool,
}

impl Colors {
    /// Those of LS_COLORS. Without it, GNU ls's own, and none (`None`) where the terminal is not known to
    /// have colours.
    pub fn of_environment() -> Option<Colors> {
        let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(colors) = said("LS_COLORS") {
            return Some(Colors::of(&colors));
        }
        let term = said("TERM").unwrap_or_default();
        let known = |pattern: &&str| fnmatch(pattern.as_bytes(), term.as_bytes(), Reading::default());
        (said("COLORTERM").is_some() || TERMINALS.iter().any(known)).then(|| Colors::of(""))
    }

    /// `di=01;34:*.gz=31:...` beside GNU ls's own. What is no number is left out, as are its words for the
    /// terminal itself (lc, rc, ec, no, rs, cl).
    fn of(text: &str) -> Colors {
        let own = OWN.map(|(key, code)| (key.to_owned(), code.to_owned()));
        let mut colors = Colors { codes: own.into(), ..Colors::default() };
        let number = |code: &str| code.bytes().all(|b| b.is_ascii_digit() || b == b';');
        let said = text.split(':').filter_map(|pair| pair.split_once('='));
        for (key, code) in said.filter(|pair| *pair == ("ln", "target") || number(pair.1)) {
            if code == "target" {
                colors.as_target = true;
            } else if let Some(ending) = key.strip_prefix('*') {
                colors.endings.insert(0, (ending.as_bytes().to_vec(), code.to_owned()));
            } else {
                colors.codes.insert(key.to_owned(), code.to_owned());
            }
        }
        colors
    }

    /// Whether a type has a colour that is none of a plain file's.
    fn has(&self, key: &str) -> bool {
        self.codes.get(key).is_some_and(|code| !matches!(&**code, "" | "0" | "00"))
    }

    /// Whether colours of links follow from what they lead to.
    pub fn follow_links(&self, long: bool) -> bool {
        self.has("or") || self.has("ex") && self.as_target || self.has("mi") && long
    }

    /// Of an entry; a link leads to a file of the mode `target`.
    pub fn of_entry(&self, entry: &FileEntry, target: Option<u16>) -> Option<&str> {
        let mode = target.filter(|_| self.as_target).unwrap_or(entry.mode);
        self.pick(&entry.path, mode, entry.links, target.is_some())
    }

    /// Of the path that a link leads to.
    pub fn of_target(&self, entry: &FileEntry, link: &[u8], target: Option<u16>) -> Option<&str> {
        match target {
            None if self.has("mi") => self.codes.get("mi").map(String::as_str),
            target => self.pick(link, target.unwrap_or(0), entry.links, target.is_some()),
        }
    }

    fn pick(&self, name: &[u8], mode: u16, links: u32, leads: bool) -> Option<&str> {
        let key = match format::letter(mode) {
            '-' if mode & 0o4000 != 0 && self.has("su") => "su",
            '-' if mode & 0o2000 != 0 && self.has("sg") => "sg",
            '-' if mode & 0o111 != 0 && self.has("ex") => "ex",
            '-' if links > 1 && self.has("mh") => "mh",
            '-' => "fi",
            'd' if mode & 0o1002 == 0o1002 && self.has("tw") => "tw",
            'd' if mode & 0o002 != 0 && self.has("ow") => "ow",
            'd' if mode & 0o1000 != 0 && self.has("st") => "st",
            'd' => "di",
            'l' if !leads && (self.as_target || self.has("or")) => "or",
            'l' => "ln",
            'p' => "pi",
            's' => "so",
            'b' => "bd",
            'c' => "cd",
            _ => "or",
        };
        let ends = |(ending, _): &&(Vec<u8>, String)| {
            let at = name.len().checked_sub(ending.len());
            at.is_some_and(|at| name[at..].eq_ignore_ascii_case(ending))
        };
        let by_ending = || self.endings.iter().find(ends).map(|(_, code)| code);
        let code = if key == "fi" { by_ending() } else { None };
        code.or_else(|| self.codes.get(key)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_reach_the_terminal() {
        let colors = Colors::of("di=01;31:ex=\x1b]0;x\x07:ln=target:*.GZ=4:*.gz=5:no=nonsense:=:x");
        let of = |path: &[u8], mode| colors.of_entry(&FileEntry::of_name(path.into(), mode), None);
        assert_eq!(of(b"d", 0o040_755), Some("01;31"));
        assert_eq!(of(b"x", 0o100_755), Some("01;32"));
        assert_eq!((of(b"a.gz", 0o100_644), of(b"gz", 0o100_644)), (Some("5"), None));
        assert!(colors.as_target && colors.follow_links(false));
    }
}
