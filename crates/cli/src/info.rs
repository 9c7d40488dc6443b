//! `nearside info`: what the volume is, and which completion model holds.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;

use clap::Args;
use nearside_embedded::LogicalVolume;
use nearside_embedded::partition::{content, label, uuid};
use nearside_fsrlib::{
    Ask, Completion, Inodes, NearDataLog, Operation, Part, Record, Recovered, Target, VolumeRecord, describe,
};
use nearside_store::Backing;
use serde_json::{Value, json};

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Failure, Outcome};
use crate::format::human;
use crate::out::Out;
use crate::timing::time;

const EXAMPLES: &str = "\
Examples:
  nearside info -d disk.img
  nearside info -d /dev/sdb --partition 2 --json
  nearside info -d /dev/sdb --partition LABEL=fixture    # by what else a partition is known by; see --partition
  nearside info -d disk.qcow2                            # a qcow2 image, with its backing files
  nearside info -d lvm.img --volume vg0/root             # a logical volume of LVM; without a name they are listed
  nearside info -d 'lvm:lvm.img?volume=vg0/root'         # the same in one word
  nearside info -d vfio-user:/run/nearside/vm1.sock      # a drive in another process, by its vfio-user socket
  nearside info -d disk.img --home                       # what has reached home locations, without the journal
  nearside info -d disk.img --completion hybrid          # what the driver would do, and what it expects

Of a volume that was not unmounted, an image shows what a mount would recover: what its journal holds is laid over
home locations, and nothing is written. The state is then \"recovered from ...\", and recovered in --json says of how
much. With --home and --mounted, home locations alone are shown: the state is then
\"needs recovery\", and needs_recovery is true.

Of a drive with partitions it lists them all (partitions in --json): what lies in each, its place and type, with
fdisk's name for a usual one (type_name), its name in a GPT, its file system's label, its UUIDs. It does so, too, where
the volume is in none of them, or in several.
Of an image or a block device it also lists LVM's logical volumes (logical_volumes in --json): --volume is for those
that are made of runs of its bytes (readable in --json), and of the others it says why they are not read.

How many inodes are in use is what the volume notes: ext's superblock when it is unmounted and seldom before, F2FS with each
checkpoint, where all there can be are nodes of any kind.

Where the blocks of a file may have become another's since the volume was mounted (no journal, data=writeback, or
home locations alone), unstable is true: every command warns, with --json in a line of type \"warning\", and what lies
in blocks is given to root only.";

/// Say what the volume is, and which completion model holds
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct InfoArgs {
    #[command(flatten)]
    drive: DriveArgs,
}

pub fn run(args: InfoArgs) -> Outcome {
    let mut out = Out::new();
    let mut drive = Drive::open(&args.drive)?;
    let mut volumes = Vec::new();
    let ask = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
    let answer = drive.ask(&ask, |record| {
        if let Record::Volume(volume) = record {
            volumes.push(volume.into_owned());
        }
        Ok(ControlFlow::Continue(()))
    });
    let name = drive.name();
    let said = |refusal| Failure::Message(format!("{name}: {}", describe(&refusal)));
    // Where there is no one volume, what else there is, is said first.
    let mut failure = match answer.and_then(|answer| answer.map_err(said)) {
        Err(failure @ Failure::Message(_)) => Some(failure),
        answer => answer.map(|()| None)?,
    };
    let table = match volumes.first() {
        Some(volume) if volume.partition == 0 => Vec::new(),
        _ => drive.partitions(),
    };
    let logical = match failure.is_none() && table.is_empty() {
        true => Vec::new(),
        false => drive.logical_volumes()?,
    };
    if let Some(failure) = failure.take_if(|_| !args.drive.json) {
        print_table(&table, &mut out)?;
        print_logical(&logical, &mut out)?;
        out.flush()?;
        return Err(failure);
    }
    let (capacity, block_size) = drive.size();
    let completion = drive.completion();
    // Of a drive without near-data commands, all zeros.
    let page = drive.statistics()?;
    let medium = page.as_ref().and_then(|page| Backing::of(page.backing())).map(Backing::name);
    let view = page.filter(|page| page.statistics() >= NearDataLog::STATISTICS);
    if args.drive.json {
        out.json(&json!({
            "type": "info",
            "drive": drive.name(),
            "capacity": capacity,
            "block_size": block_size,
            "medium": medium,
            "volumes": volumes.iter().map(volume_json).collect::<Vec<_>>(),
            "partitions": table.iter().map(part_json).collect::<Vec<_>>(),
            "logical_volumes": logical.iter().map(logical_json).collect::<Vec<_>>(),
            "view": view.as_ref().map(view_json),
            "completion": completion_json(&completion),
        }))?;
    } else {
        writeln!(out, "drive            {}", drive.name())?;
        writeln!(out, "capacity         {capacity} bytes ({}), blocks of {block_size}", human(capacity))?;
        if let Some(medium) = medium {
            writeln!(out, "medium           {medium}")?;
        }
        print_table(&table, &mut out)?;
        print_logical(&logical, &mut out)?;
        for volume in &volumes {
            print(volume, &mut out)?;
        }
        if let Some(view) = view.filter(is_written) {
            print_view(&view, &mut out)?;
        }
        write!(out, "completion       ")?;
        out.text(&format!("{}: {}", completion.model, completion.detail))?;
        out.line(b"")?;
        if let Some(ns) = completion.read_4k_ns {
            writeln!(out, "                 a 4 KiB read is expected to take {}", time(ns))?;
        }
    }
    drive.finish(&mut out)?;
    failure.map_or(Ok(0), Err)
}

fn print_table(table: &[Part], out: &mut Out) -> Result<(), Failure> {
    for part in table {
        let partition = &part.partition;
        write!(out, "partition {:<6} ", partition.number)?;
        out.text(&format!("{}, {} from byte {}", content(part), human(partition.len), partition.offset))?;
        write!(out, ", type {}", partition.kind)?;
        if let Some(name) = partition.kind.name() {
            write!(out, " ({name})")?;
        }
        for (what, value) in [("name", &*partition.name), ("label", label(part))] {
            if !value.is_empty() {
                write!(out, ", {what} ")?;
                out.name(value.as_bytes())?;
            }
        }
        out.line(b"")?;
    }
    Ok(())
}

fn print_logical(volumes: &[LogicalVolume], out: &mut Out) -> Result<(), Failure> {
    let uuids: BTreeSet<_> = volumes.iter().map(|volume| (&volume.group, &volume.group_uuid)).collect();
    // As --volume takes it.
    let name = |volume: &LogicalVolume| {
        let group = match uuids.iter().filter(|(group, _)| *group == &volume.group).count() {
            1 => &volume.group,
            _ => &volume.group_uuid,
        };
        format!("{group}/{}", volume.name)
    };
    for volume in volumes {
        write!(out, "logical volume   ")?;
        out.name(name(volume).as_bytes())?;
        let unread = if volume.readable { "" } else { "not read: " };
        let (content, label) = match &volume.content {
            Ok(volume) => (volume.file_system, &*volume.label),
            Err(other) => (&**other, ""),
        };
        out.text(&format!(", {unread}{content}, {}", human(volume.len)))?;
        if !label.is_empty() {
            write!(out, ", label ")?;
            out.name(label.as_bytes())?;
        }
        out.line(b"")?;
    }
    let with_files = volumes.iter().find(|volume| volume.content.is_ok());
    if let Some(volume) = with_files.or_else(|| volumes.iter().find(|volume| volume.readable)) {
        write!(out, "                 --volume opens one, as --volume ")?;
        out.name(name(volume).as_bytes())?;
        out.line(b"")?;
    }
    Ok(())
}

fn logical_json(logical: &LogicalVolume) -> Value {
    let volume = logical.content.as_ref().ok();
    json!({
        "group": logical.group,
        "group_uuid": logical.group_uuid,
        "name": logical.name,
        "len": logical.len,
        "readable": logical.readable,
        "content": logical.content.as_ref().map_or_else(|other| &**other, |volume| volume.file_system),
        "label": volume.map(|volume| &volume.label),
        "volume_uuid": volume.map(|volume| uuid(&volume.uuid)),
    })
}

fn part_json(part: &Part) -> Value {
    let partition = &part.partition;
    let volume = part.content.as_ref().ok();
    json!({
        "number": partition.number,
        "offset": partition.offset,
        "len": partition.len,
        "kind": partition.kind.to_string(),
        "type_name": partition.kind.name(),
        "name": partition.name,
        "uuid": partition.uuid,
        "content": content(part),
        "label": volume.map(|volume| &volume.label),
        "volume_uuid": volume.map(|volume| uuid(&volume.uuid)),
    })
}

fn print(volume: &VolumeRecord, out: &mut Out) -> Result<(), Failure> {
    let place = match volume.partition {
        0 => "the whole drive".to_owned(),
        n => format!("partition {n}, {} bytes from byte {}", volume.len, volume.offset),
    };
    write!(out, "volume           ")?;
    out.text(known(&volume.file_system))?;
    writeln!(out, " ({place})")?;
    if !volume.label.is_empty() {
        write!(out, "label            ")?;
        out.name(volume.label.as_bytes())?;
        out.line(b"")?;
    }
    writeln!(out, "UUID             {}", uuid(&volume.uuid))?;
    let size = u64::from(volume.block_size).saturating_mul(volume.blocks);
    writeln!(out, "size             {} blocks of {} ({})", volume.blocks, volume.block_size, human(size))?;
    if let Some(Inodes { all, used }) = volume.inodes {
        writeln!(out, "inodes           {used} in use of {all}")?;
    }
    write!(out, "features         ")?;
    out.text(&volume.features.join(" "))?;
    out.line(b"")?;
    writeln!(out, "state            {}", state(volume))?;
    for warning in &volume.warnings {
        write!(out, "warning          ")?;
        out.text(warning)?;
        out.line(b"")?;
    }
    Ok(())
}

/// Whether hosts have written to the drive while it ran, so that there is something to tell.
fn is_written(view: &NearDataLog) -> bool {
    view.passed_looks() > 0 || view.watched_looks() > 0 || view.published() > 0
}

fn print_view(view: &NearDataLog, out: &mut Out) -> Result<(), Failure> {
    let looks = |count: u64, total: u64, worst: u64| match total.checked_div(count) {
        Some(mean) => format!("{} (worst {})", time(mean), time(worst)),
        None => "not timed yet".to_owned(),
    };
    let passed = looks(view.passed_looks(), view.passed_ns(), view.passed_worst_ns());
    let watched = looks(view.watched_looks(), view.watched_ns(), view.watched_worst_ns());
    writeln!(
        out,
        "live view        the monitor looks twice at each write: {passed}; where blocks are watched, {watched}"
    )?;
    writeln!(
        out,
        "                 {} blocks watched; the log's overlay takes {}; {} later states followed; {} files read again",
        view.watched(),
        human(view.overlay_bytes()),
        view.published(),
        view.repeated()
    )?;
    Ok(())
}

fn view_json(view: &NearDataLog) -> Value {
    let looks = |timed: u64, total: u64, worst: u64| json!({ "timed": timed, "mean_ns": total.checked_div(timed), "worst_ns": worst });
    json!({
        "suspected": view.suspected(),
        "invalidated": view.invalidated(),
        "published": view.published(),
        "scans_touched": view.scans_touched(),
        "looked_again": view.looked_again(),
        "repeated": view.repeated(),
        "watched": view.watched(),
        "overlay_bytes": view.overlay_bytes(),
        "looks_passed": looks(view.passed_looks(), view.passed_ns(), view.passed_worst_ns()),
        "looks_watched": looks(view.watched_looks(), view.watched_ns(), view.watched_worst_ns()),
    })
}

fn state(volume: &VolumeRecord) -> String {
    let Some(Recovered { transactions, fast_commits, nodes, up_to }) = volume.recovered else {
        return match (volume.needs_recovery, volume.unstable) {
            (true, _) => "needs recovery",
            (false, true) => "not unmounted cleanly",
            (false, false) => "clean",
        }
        .to_owned();
    };
    let count = |n: u64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    match (nodes, fast_commits) {
        (0, 0) => format!("recovered from {} (up to {up_to})", count(transactions, "transaction")),
        (0, _) => {
            let (full, fast) = (count(transactions, "transaction"), count(fast_commits, "fast commit"));
            format!("recovered from {full} (up to {up_to}) and {fast}")
        }
        _ => format!("recovered from {} behind checkpoint {up_to}", count(nodes, "node")),
    }
}

fn known(file_system: &str) -> &str {
    if file_system.is_empty() { "unknown" } else { file_system }
}

fn volume_json(volume: &VolumeRecord) -> Value {
    json!({
        "partition": volume.partition,
        "offset": volume.offset,
        "len": volume.len,
        "file_system": volume.file_system,
        "label": volume.label,
        "uuid": uuid(&volume.uuid),
        "block_size": volume.block_size,
        "blocks": volume.blocks,
        "inodes": volume.inodes.map(|inodes| inodes.all),
        "inodes_used": volume.inodes.map(|inodes| inodes.used),
        "features": volume.features,
        "needs_recovery": volume.needs_recovery,
        "unstable": volume.unstable,
        "recovered": volume.recovered.map(|recovered| json!({
            "transactions": recovered.transactions,
            "fast_commits": recovered.fast_commits,
            "nodes": recovered.nodes,
            "up_to": recovered.up_to,
        })),
        "warnings": volume.warnings,
    })
}

fn completion_json(completion: &Completion) -> Value {
    json!({
        "model": completion.model,
        "expects_read_4k_ns": completion.read_4k_ns,
        "detail": completion.detail,
        "spinning_ns": completion.spinning_ns,
    })
}
