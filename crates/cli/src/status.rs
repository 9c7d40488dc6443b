//! `nearside status`: what servers do.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::out::Out;
use crate::serve::beacon::{self, Found};
use crate::serve::control::Request;
use crate::server;
use crate::timing::time;

const STATUS_EXAMPLES: &str = "\
Examples:
  nearside status
  nearside status --control /run/nearside-4420.sock --json

Without a name or a socket: of the only server of this machine. Where there are several, a line for each; of other users' servers
only root is told more than that they are there.";

/// Say what a server serves, and to whom
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(STATUS_EXAMPLES))]
pub struct StatusArgs {
    /// The server: its name, or its control socket [default: the only one of this machine, or a list of all]
    #[arg(value_name = "NAME|PATH", conflicts_with = "control")]
    server: Option<PathBuf>,
    /// The same
    #[arg(long, visible_alias = "socket", value_name = "NAME|PATH")]
    control: Option<PathBuf>,
    /// Print one JSON object; of several servers, one for each
    #[arg(long)]
    json: bool,
}

/// What is said of each of several servers.
fn each(all: &[Found], json: bool, out: &mut Out) -> Outcome {
    for found in all {
        let status = server::ask_found(found, &Request::Status);
        let nqns = |status: &Value| {
            let all = status["subsystems"].as_array().into_iter().flatten();
            all.filter_map(|subsystem| subsystem["nqn"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        if json {
            let told = found.told.as_ref();
            out.json(&json!({
                "type": "server", "process": found.pid, "user": found.uid, "name": told.map(|(name, _)| name),
                "control": told.map(|(_, control)| control.display().to_string()),
                "subsystems": status.as_ref().ok().map(nqns), "error": status.as_ref().err(),
            }))?;
            continue;
        }
        out.text(&server::line(found))?;
        out.line(b"")?;
        match (&status, &found.told) {
            (Ok(status), _) => {
                for nqn in nqns(status) {
                    out.text(&format!("  subsystem {nqn}"))?;
                    out.line(b"")?;
                }
                let hosts = status["hosts"].as_array().map_or(0, Vec::len);
                writeln!(out, "  {hosts} hosts; {} commands", status["commands"])?;
            }
            (Err(why), Some(_)) => {
                out.text(&format!("  {why}"))?;
                out.line(b"")?;
            }
            (Err(_), None) => {}
        }
    }
    out.flush()?;
    Ok(0)
}

pub fn run(args: StatusArgs) -> Outcome {
    let mut out = Out::new();
    let which = args.server.or(args.control);
    if which.is_none() {
        let all = beacon::find().unwrap_or_default();
        if all.len() > 1 {
            return each(&all, args.json, &mut out);
        }
    }
    let status = server::ask(which.as_deref(), &Request::Status)?;
    if args.json {
        out.json(&status)?;
        out.flush()?;
        return Ok(0);
    }
    for subsystem in list(&status["subsystems"]) {
        print_subsystem(&subsystem, &mut out)?;
    }
    for host in list(&status["hosts"]) {
        let (nqn, address) = (word(&host["host_nqn"]), word(&host["address"]));
        let (cntlid, queues) = (&host["cntlid"], &host["io_queues"]);
        let proved = if host["authenticated"] == true { ", authenticated" } else { "" };
        let encrypted = if host["encrypted"] == true { ", over TLS" } else { "" };
        let line =
            format!("host {nqn} from {address}: controller {cntlid}, {queues} I/O queues{proved}{encrypted}");
        out.text(&line)?;
        out.line(b"")?;
    }
    for function in list(&status["functions"]) {
        out.text(&function_line(&function))?;
        out.line(b"")?;
    }
    writeln!(
        out,
        "{} connections; {} commands, {} of them failed; {} bytes received, {} sent",
        status["connections"],
        status["commands"],
        status["commands_failed"],
        status["bytes_received"],
        status["bytes_sent"]
    )?;
    if let lost @ 1.. = status["commands_lost"].as_u64().unwrap_or(0) {
        writeln!(out, "{lost} commands were lost by a fault of this server: their hosts have to time out")?;
    }
    out.flush()?;
    Ok(0)
}

/// The elements of a list; none of what is none.
fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn print_subsystem(subsystem: &Value, out: &mut Out) -> Result<(), Failure> {
    out.text(&format!("subsystem {}", word(&subsystem["nqn"])))?;
    out.line(b"")?;
    for n in list(&subsystem["namespaces"]) {
        let kept = if n["read_only"] == true { ", read-only" } else { "" };
        writeln!(
            out,
            "  namespace {}: {} bytes in blocks of {}{kept}; medium: {}",
            n["nsid"],
            n["bytes"],
            n["block_size"],
            n["medium"].as_str().unwrap_or("not said")
        )?;
        for warning in list(&n["store_warnings"]) {
            out.text(&format!("    {}", word(&warning)))?;
            out.line(b"")?;
        }
        if let Some(path) = n["write_log"]["path"].as_str() {
            let trouble = n["write_log"]["trouble"].as_str();
            let all = format!("write log {path}: {} entries", n["write_log"]["entries"]);
            out.text(&format!("    {}", trouble.unwrap_or(&all)))?;
            out.line(b"")?;
        }
        if let failures @ 1.. = n["store_failures"].as_u64().unwrap_or(0) {
            let last = word(&n["last_store_failure"]);
            out.text(&format!("    {failures} operations of its store failed, the last so: {last}"))?;
            out.line(b"")?;
        }
    }
    let limits = list(&subsystem["limits"]);
    let ports = list(&subsystem["ports"]);
    for line in limits.iter().map(limit_line).chain(ports.iter().filter_map(port_line)) {
        out.text(&line)?;
        out.line(b"")?;
    }
    Ok(())
}

/// What is said of what a namespace or a host may have in a second.
fn limit_line(limit: &Value) -> String {
    let whose = match limit["host"].as_str() {
        Some(host) => format!("host {host}"),
        None => format!("namespace {}", limit["nsid"]),
    };
    let rates = [
        ("iops", "commands a second"),
        ("bandwidth", "bytes a second"),
        ("near_data_cpu", "percent of a processor for near-data work"),
    ];
    let rates = rates.iter().filter_map(|(key, of)| Some(format!("{} {of}", limit[*key].as_u64()?)));
    let rates = rates.collect::<Vec<_>>().join(", ");
    let waited = match (limit["throttled"].as_u64(), limit["throttled_ns"].as_u64()) {
        (Some(commands), Some(ns)) => format!("{commands} commands have waited, {} in all", time(ns)),
        _ => "nothing is counted of it".to_owned(),
    };
    format!("  limit of {whose}: {rates}; {waited}")
}

/// What is said of an address by which not all namespaces are optimized.
fn port_line(port: &Value) -> Option<String> {
    let all = port["ana_state"].as_str()?;
    let groups = port["ana_groups"].as_object()?;
    if all == "optimized" && groups.is_empty() {
        return None;
    }
    let group =
        |(number, state): (&String, &Value)| format!(", group {number} {}", state.as_str().unwrap_or(""));
    let groups: String = groups.iter().map(group).collect();
    Some(format!("  by {}: {all}{groups}", port["listen"].as_str()?))
}

/// What is said of a PCIe function.
fn function_line(function: &Value) -> String {
    let word = |name: &str| function[name].as_str().unwrap_or("").to_owned();
    let numbers = |list: &[Value]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let namespaces = match function["namespaces"].as_array() {
        Some(these) => format!("namespaces {}", numbers(these)),
        None => "all namespaces".to_owned(),
    };
    let client = match (function["connected"] == true, function["enabled"] == true) {
        (false, _) => "no client".to_owned(),
        (true, enabled) => format!(
            "a client{}, {} regions of {} bytes mapped",
            if enabled { " that has enabled it" } else { "" },
            function["regions"],
            function["mapped_bytes"]
        ),
    };
    let (socket, cntlid, doorbells) = (word("socket"), &function["cntlid"], word("doorbells"));
    format!("function {socket}: controller {cntlid}, {namespaces}, {doorbells} doorbells; {client}")
}
