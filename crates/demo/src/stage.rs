//! What the acts share: where they work, progress, tables on the terminal.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
pub use nearside_instrument::Failure;

/// What an act comes to: a number, and the sentence that says of what.
pub type Headline = (String, String);

/// Where the demo works and what it may do.
pub struct Stage {
    /// The folder for the page and the volumes.
    pub out: PathBuf,
    /// A small dataset and few rounds: for tests.
    pub small: bool,
}

impl Stage {
    /// A file in the folder for volumes.
    pub fn file(&self, name: &str) -> PathBuf {
        self.out.join("volumes").join(name)
    }

    /// Progress on a terminal; on anything else one line that says what is being done.
    pub fn progress(&self, what: &str, steps: u64) -> ProgressBar {
        if !std::io::stderr().is_terminal() {
            eprintln!("{what} ...");
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(steps);
        if let Ok(style) = ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} {elapsed:>4}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// A table on standard output; columns that hold numbers are set right.
pub fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) {
    let width = |i: usize| {
        rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).chain([head[i].chars().count()]).max()
    };
    let widths: Vec<usize> = (0..head.len()).map(|i| width(i).unwrap_or(0)).collect();
    println!("\n{caption}");
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::from(" ");
        for (cell, width) in cells.zip(&widths) {
            let pad = " ".repeat(width - cell.chars().count().min(*width));
            let number = cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains(' ');
            text += &if number { format!(" {pad}{cell} ") } else { format!(" {cell}{pad} ") };
        }
        println!("{}", text.trim_end());
    };
    line(&mut head.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

/// Bytes in words.
pub fn bytes(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n if n >= 1e4 => format!("{:.1} kB", n / 1e3),
        n => format!("{n:.0} B"),
    }
}

/// Whether a file is there and has something in it.
pub fn present(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.len() > 0)
}
