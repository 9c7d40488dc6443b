//! `nearside stat`: metadata, as coreutils' stat shows it, or in a format of the user's ([`form`]).

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Args;
use nearside_fsrlib::{Ask, FileEntry, Operation, Record};
use rustix::fs::{major, minor};

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain_about, complain_of};
use crate::format::{self, Times};
use crate::out::Out;
use crate::users::{NamesArgs, Users};

mod form;

use form::{Form, With};

const EXAMPLES: &str = "\
Examples:
  nearside stat -d disk.img /etc/passwd
  nearside stat -d disk.img -L /bin/sh              # the file that a symbolic link leads to
  nearside stat -d disk.img --glob '/var/log/*.log' --json
  nearside stat -d disk.img --names /etc/passwd     # users and groups by the volume's own names
  nearside stat -d disk.img -c '%a %U:%G %s %n' /etc/passwd /bin/sh
  nearside stat -d disk.img --printf '%n\\0%Y\\0' --glob '/var/log/*.log'

Users and groups are numbers unless names are asked for; %U and %G are names by the volume's own /etc/passwd and /etc/group,
unless --names=host or --mounted says that they are this host's.
Directives, with the flags, widths and precisions of GNU stat:
  %n name, %N name in quotes with a link's target, %F type, %f mode in hexadecimal, %a permissions in octal, %A in letters
  %s bytes, %b blocks of %B bytes (512), %o bytes of the volume's own blocks, %h links, %i inode
  %u %U %g %G owner and group; %t %T a device's numbers in hexadecimal, %Hr %Lr in decimal, %r %R together
  %x %X access, %y %Y modification, %z %Z change, %w %W birth: for people, and in seconds since 1970 (%.3Y, %.Y with parts)
  %m where the volume begins: its root, / (refused with --mounted)
  %C SELinux context; with --mounted: %d %D the mounted device's number, in hexadecimal, %Hd %Ld its parts
Without --mounted %d and %D are refused: a volume has no number of a device by itself. Other letters print ?.";

/// Show what is known about files
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct StatArgs {
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print this of each, and a line end
    #[arg(short = 'c', long, value_name = "FORMAT", overrides_with = "printf", conflicts_with = "json")]
    format: Option<OsString>,
    /// Print this of each, with escapes (\n, \0, \x41) and no line end
    #[arg(long, value_name = "FORMAT", overrides_with = "format", conflicts_with = "json")]
    printf: Option<OsString>,
    #[command(flatten)]
    names: NamesArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

pub fn run(mut args: StatArgs) -> Outcome {
    let form = match (&args.printf, &args.format) {
        (Some(text), _) => Some(Form::of(text.as_bytes(), true)?),
        (_, Some(text)) => Some(Form::of(text.as_bytes(), false)?),
        _ => None,
    };
    let asks = |letters: &[u8]| form.as_ref().is_some_and(|form| form.asks(letters));
    if asks(b"m") && args.drive.mounted {
        return Err(Failure::Message("stat: %m with --mounted: ask stat, which knows the mount".into()));
    }
    let device = match asks(b"dD") {
        false => (0, 0),
        true if args.drive.mounted => device(&args.paths)?,
        true => {
            let why = "stat: %d and %D are a mounted volume's (--mounted): a drive knows no such number";
            return Err(Failure::Message(why.into()));
        }
    };
    let mut out = Out::new();
    let times = Times::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    let users = match asks(b"UG") {
        true => Users::needed(&args.names, args.drive.mounted, &mut drive)?,
        false => Users::of(&args.names, &mut drive)?,
    };
    let block_size = if asks(b"o") { drive.volume()?.map_or(0, |volume| volume.block_size) } else { 0 };
    let mut code = 0;
    let follow = args.dereference;
    let about = |operation: Operation| -> Vec<Ask> {
        let ask = |path| Ask { target: drive::target(path), operation: operation.clone(), follow };
        args.paths.iter().map(|path| ask(path)).collect()
    };
    let contexts = match asks(b"C") {
        true => contexts(&mut drive, &about(Operation::Attributes))?,
        false => vec![None; args.paths.len()],
    };
    let without = asks(b"C");
    drive.ask_each(&about(Operation::Stat), |nth, answer| {
        let entry = match answer {
            Ok(Record::Entry(entry)) => entry,
            Ok(Record::Name { path, kind }) => FileEntry::of_name(path, kind),
            Ok(Record::Failed { path, failure }) => {
                code = 1;
                complain_of(&path, &failure);
                return Ok(());
            }
            Ok(_) => return Ok(()),
            Err(refusal) => {
                code = 1;
                complain_of(args.paths[nth].as_bytes(), &refusal);
                return Ok(());
            }
        };
        if args.drive.json {
            return Ok(out.json(&format::entry_json(&entry.path, &entry))?);
        }
        match &form {
            Some(form) => {
                let context = contexts[nth].as_deref();
                if without && context.is_none() {
                    code = 1;
                    complain_about(&entry.path, "It has no security context");
                }
                let with = With { users: &users, times: &times, block_size, device, context };
                form.print(&entry, &with, &mut out)
            }
            None => print(&entry, &users, &times, &mut out),
        }
    })?;
    drive.finish(&mut out)?;
    Ok(code)
}

/// The numbers of the device that the paths of this host lie on.
fn device(paths: &[OsString]) -> Result<(u32, u32), Failure> {
    let known = |path: &OsString| {
        let path = Path::new(path);
        let folder =
            || fs::metadata(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")));
        fs::symlink_metadata(path).or_else(|_| folder()).ok().map(|known| known.dev())
    };
    let number = paths.iter().find_map(known).ok_or("stat: no path is there".to_owned())?;
    Ok((major(number), minor(number)))
}

/// The SELinux contexts of files; what else is wrong with a path is said by who asks for its metadata.
fn contexts(drive: &mut Drive, asks: &[Ask]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
    let mut contexts: Vec<Option<Vec<u8>>> = vec![None; asks.len()];
    drive.ask_each(asks, |nth, answer| {
        if let Ok(Record::Attribute { name, value, .. }) = answer
            && *name == *b"security.selinux"
        {
            let context = contexts[nth].get_or_insert_default();
            context.extend_from_slice(&value);
            // It ends as a string of C does.
            context.truncate(context.iter().position(|byte| *byte == 0).unwrap_or(context.len()));
        }
        Ok(())
    })?;
    Ok(contexts)
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
