//! What came out, for people and for programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use nearside_instrument::{Curve, Point, page};
use serde_json::Value;

use crate::failure::Failure;
use crate::out::Out;

/// Where results go.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print one JSON object per run and line, with the environment
    #[arg(long)]
    pub json: bool,
    /// Where the page with the pictures goes
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

/// A run as a JSON line.
pub fn json(point: &Point, out: &mut Out) -> Result<(), Failure> {
    let mut value =
        serde_json::to_value(&point.summary).map_err(|e| Failure::Message(format!("--json: {e}")))?;
    if let Value::Object(fields) = &mut value {
        fields.insert("type".to_owned(), "run".into());
    }
    out.json(&value)?;
    Ok(out.flush()?)
}

/// Writes the page into a folder that is made where it is not there; its path.
pub fn write_page(folder: &Path, name: &str, title: &str, curves: &[Curve]) -> Result<PathBuf, Failure> {
    let path = folder.join(name);
    let failed = |e: std::io::Error| Failure::Message(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::write(&path, page(title, curves)).map_err(failed)?;
    Ok(path)
}
