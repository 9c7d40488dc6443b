//! Searches one file in a volume by its path:
//! one command to the drive, and only the lines that match come back.
//!
//!     cargo run -p nearside-fsrlib --example search -- disk.img /var/log/syslog ERROR

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_fsrlib::{Ask, Error, Operation, Record, SearchOptions, Session, Transport};

fn search(drive: &str, path: &str, pattern: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let drive = nearside_embedded::image(Path::new(drive), &nearside_embedded::Options::default())?;
    let mut session = Session::new(drive, Arc::new(TscClock::new()));

    let search = SearchOptions { patterns: vec![pattern.into()], numbers: true, ..SearchOptions::default() };
    let mut found = false;
    let mut out = std::io::stdout().lock();
    let summary = session.stream(&Ask::path(path, Operation::Search(search)), |record| {
        if let Record::Line { number, bytes, .. } = record {
            found = true;
            let line = [format!("{path}:{number}:").as_bytes(), &bytes, b"\n"].concat();
            if out.write_all(&line).is_err() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;

    let taken = session.transport_mut().taken()?;
    eprintln!(
        "commands: {} (the drive counted {}), reads: {}, to the drive: {} B, from the drive: {} B",
        summary.moved.near_data_commands,
        taken.map_or("none".into(), |n| n.to_string()),
        summary.moved.read_commands,
        summary.moved.bytes_out,
        summary.moved.bytes_in,
    );
    Ok(found)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [drive, path, pattern] = &args[..] else {
        eprintln!("usage: search DRIVE PATH PATTERN");
        return ExitCode::from(2);
    };
    match search(drive, path, pattern) {
        Ok(found) => ExitCode::from(u8::from(!found)),
        Err(error) => {
            let what = match error.downcast_ref::<Error>() {
                Some(Error::Refused(_)) => path,
                _ => drive,
            };
            eprintln!("{what}: {error}");
            ExitCode::from(2)
        }
    }
}
