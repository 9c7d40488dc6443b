//! A listing's lines: columns as wide as what stands in them, names with colours and marks.

use std::io::Write;

use nearside_fsrlib::FileEntry;

use super::{Listing, json};
use crate::failure::Failure;
use crate::format;

/// What stands in a column.
struct Cell {
    text: String,
    /// Names stand to the left, numbers to the right.
    left: bool,
}

impl Cell {
    fn right(text: impl ToString) -> Cell {
        Cell { text: text.to_string(), left: false }
    }

    fn left(text: impl ToString) -> Cell {
        Cell { text: text.to_string(), left: true }
    }
}

/// What is known beside the entries themselves.
pub enum Beside<'a> {
    /// They are all of a directory, so that a total stands above them.
    Total,
    /// The command line names them and these directories, which come later and have a say in how wide columns
    /// are.
    Directories(&'a [FileEntry<'static>]),
}

impl Listing {
    /// Entries, with the modes of what links among them lead to.
    pub(super) fn entries(
        &mut self,
        entries: &[FileEntry<'static>],
        targets: &[Option<u16>],
        beside: Beside<'_>,
    ) -> Result<(), Failure> {
        if self.args.drive.json {
            for entry in entries {
                self.out.json(&json(&entry.path, entry))?;
            }
            return Ok(());
        }
        self.printed |= !entries.is_empty();
        let (total, directories) = match beside {
            Beside::Total => (true, &[][..]),
            Beside::Directories(directories) => (false, directories),
        };
        if (self.args.long || self.args.size) && total {
            let sectors = entries.iter().fold(0u64, |sum, e| sum.saturating_add(e.sectors));
            writeln!(self.out, "total {}", self.blocks(sectors))?;
        }
        let minor = |e: &FileEntry| match format::is_device(e.mode) {
            true => e.rdev.1.to_string().len(),
            false => 0,
        };
        let minor_wide = entries.iter().map(minor).max().unwrap_or(0);
        let measured = entries.iter().chain(directories);
        let rows: Vec<Vec<Cell>> = measured.map(|e| self.row(e, minor_wide)).collect();
        let mut wide = vec![0; rows.first().map_or(0, Vec::len)];
        for row in &rows {
            for (wide, cell) in wide.iter_mut().zip(row) {
                *wide = cell.text.chars().count().max(*wide);
            }
        }
        // As ls aligns long lines on a terminal: a name without quotes begins where those within quotes do.
        let quotes = |e: &FileEntry| *self.out.shown(&e.path) != e.path[..];
        let some_quoted = self.args.long && entries.iter().any(quotes);
        for ((entry, target), row) in entries.iter().zip(targets).zip(&rows) {
            for (Cell { text, left }, &wide) in row.iter().zip(&wide) {
                match left {
                    true => self.out.text(&format!("{text:<wide$} "))?,
                    false => write!(self.out, "{text:>wide$} ")?,
                }
            }
            if self.args.long {
                let time = self.time(entry);
                write!(self.out, "{time} ")?;
            }
            if some_quoted && *self.out.shown(&entry.path) == entry.path[..] {
                self.out.write_all(b" ")?;
            }
            self.name(entry, *target)?;
        }
        Ok(())
    }

    /// Inode number, blocks, mode, links, user, group and size, as far as they are asked for. Minor numbers
    /// of devices stand in a column of their own.
    fn row(&self, e: &FileEntry, minor_wide: usize) -> Vec<Cell> {
        let unknown = e.is_name_alone();
        let known = |text: String| Cell::right(if unknown { "?".to_owned() } else { text });
        let mut row = Vec::new();
        if self.args.inode {
            row.push(known(e.ino.to_string()));
        }
        if self.args.size {
            row.push(known(self.blocks(e.sectors)));
        }
        if !self.args.long {
            return row;
        }
        if unknown {
            row.push(Cell::left(format!("{}?????????", format::letter(e.mode))));
            row.extend([Cell::right('?'), Cell::left('?'), Cell::left('?'), Cell::right('?')]);
            return row;
        }
        let size = match format::is_device(e.mode) {
            true => format!("{}, {:>minor_wide$}", e.rdev.0, e.rdev.1),
            false if self.args.human_readable => format::human(e.size),
            false => e.size.to_string(),
        };
        let user = Cell { text: self.users.user(e.uid), left: self.users.has_user(e.uid) };
        let group = Cell { text: self.users.group(e.gid), left: self.users.has_group(e.gid) };
        let mode = Cell::left(format::mode(e.mode));
        row.extend([mode, Cell::right(e.links), user, group, Cell::right(size)]);
        row
    }

    fn blocks(&self, sectors: u64) -> String {
        match self.args.human_readable {
            true => format::human(sectors.saturating_mul(512)),
            false => sectors.div_ceil(2).to_string(),
        }
    }

    /// Not as wide as others: where a form gives times of several widths, what follows is not aligned.
    fn time(&self, entry: &FileEntry) -> String {
        if entry.is_name_alone() {
            let wide = self.style.show(&self.times, (0, 0), self.now).chars().count();
            return format!("{:>wide$}", "?");
        }
        self.style.show(&self.times, entry.times[1], self.now)
    }

    /// The name, where a link leads, and the line's end.
    fn name(&mut self, entry: &FileEntry, target: Option<u16>) -> Result<(), Failure> {
        let color = self.colors.as_ref().and_then(|colors| colors.of_entry(entry, target));
        let color = color.map(str::to_owned);
        self.painted(&entry.path, color)?;
        let link = entry.link.as_deref().filter(|_| self.args.long);
        if let Some(link) = link {
            self.out.write_all(b" -> ")?;
            let color = self.colors.as_ref().and_then(|colors| colors.of_target(entry, link, target));
            let color = color.map(str::to_owned);
            self.painted(link, color)?;
        }
        let mark = match link {
            Some(_) => target.and_then(|mode| self.mark(mode)),
            None => self.mark(entry.mode),
        };
        self.out.line(mark.map_or(&b""[..], |mark| mark.as_bytes()))?;
        Ok(())
    }

    fn painted(&mut self, name: &[u8], color: Option<String>) -> Result<(), Failure> {
        let Some(color) = color else { return Ok(self.out.name(name)?) };
        if let Some(colors) = &mut self.colors
            && !std::mem::replace(&mut colors.begun, true)
        {
            self.out.write_all(b"\x1b[0m")?;
        }
        write!(self.out, "\x1b[{color}m")?;
        self.out.name(name)?;
        Ok(self.out.write_all(b"\x1b[0m")?)
    }

    /// What says behind a name what it is of.
    fn mark(&self, mode: u16) -> Option<&'static str> {
        let all = self.args.classify;
        match format::letter(mode) {
            'd' if all || self.args.slash => Some("/"),
            '-' if all && mode & 0o111 != 0 => Some("*"),
            'l' if all => Some("@"),
            'p' if all => Some("|"),
            's' if all => Some("="),
            _ => None,
        }
    }
}
