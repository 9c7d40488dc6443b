//! `nearside stat`: metadata, as coreutils' stat shows it.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside_fsrlib::{Ask, FileEntry, Operation, Record, describe};

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain_about};
use crate::format::{self, Times};
use crate::out::Out;
use crate::users::{NamesArgs, Users};

const EXAMPLES: &str = "\
Examples:
  nearside stat -d disk.img /etc/passwd
  nearside stat -d disk.img -L /bin/sh              # the file that a symbolic link leads to
  nearside stat -d disk.img --glob '/var/log/*.log' --json
  nearside stat -d disk.img --names /etc/passwd     # users and groups by the volume's own names

Users and groups are numbers unless names are asked for.";

/// Show what is known about files
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatArgs {
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    #[command(flatten)]
    names: NamesArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

pub fn run(mut args: StatArgs) -> Outcome {
    let mut out = Out::new();
    let times = Times::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    let users = Users::of(&args.names, &mut drive)?;
    let mut code = 0;
    let follow = args.dereference;
    let ask = |path: &OsString| Ask { target: drive::target(path), operation: Operation::Stat, follow };
    let asks: Vec<Ask> = args.paths.iter().map(ask).collect();
    drive.ask_each(&asks, |nth, answer| {
        let entry = match answer {
            Ok(Record::Entry(entry)) => entry,
            Ok(Record::Name { path, kind }) => FileEntry::of_name(path, kind),
            Ok(Record::Failed { path, failure }) => {
                code = 1;
                complain_about(&path, &describe(&failure));
                return Ok(());
            }
            Ok(_) => return Ok(()),
            Err(refusal) => {
                code = 1;
                complain_about(args.paths[nth].as_bytes(), &describe(&refusal));
                return Ok(());
            }
        };
        if args.drive.json {
            return Ok(out.json(&format::entry_json(&entry.path, &entry))?);
        }
        print(&entry, &users, &times, &mut out)
    })?;
    drive.finish(&mut out)?;
    Ok(code)
}

fn print(entry: &FileEntry, users: &Users, times: &Times, out: &mut Out) -> Result<(), Failure> {
    out.write_all(b"  File: ")?;
    out.name(&entry.path)?;
    if let Some(link) = &entry.link {
        out.write_all(b" -> ")?;
        out.name(link)?;
    }
    let FileEntry { size, sectors, ino, links, mode, uid, gid, .. } = *entry;
    writeln!(out, "\n  Size: {size:<10}\tBlocks: {sectors:<10} {}", format::kind_name(entry))?;
    write!(out, "Inode: {ino:<11} Links: {links}")?;
    if format::is_device(mode) {
        write!(out, "     Device type: {},{}", entry.rdev.0, entry.rdev.1)?;
    }
    let [user, group] = users.numbers_and_names(uid, gid);
    write!(out, "\nAccess: ({:04o}/{})  ", mode & 0o7777, format::mode(mode))?;
    out.text(&format!("Uid: {user}   Gid: {group}"))?;
    out.line(b"")?;
    for (name, time) in ["Access", "Modify", "Change"].iter().zip(entry.times) {
        writeln!(out, "{name}: {}", times.full(time))?;
    }
    writeln!(out, " Birth: {}", entry.birth.map_or("-".into(), |b| times.full(b)))?;
    Ok(())
}
