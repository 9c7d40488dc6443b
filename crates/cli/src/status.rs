//! `nearside status` and `nearside namespace`:
//! what a server does, and namespaces added to it and taken from it while it runs.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use nearside_embedded::AnyStore;

use crate::failure::Outcome;
use crate::in_use::InUse;
use crate::out::Out;
use crate::serve::control::{Request, ask};
use crate::serve::plan::NamespacePlan;

const STATUS_EXAMPLES: &str = "\
Examples:
  nearside status
  nearside status --control /run/nearside-4420.sock --json";

const NAMESPACE_EXAMPLES: &str = "\
Examples:
  nearside namespace add 7 dram:16MiB
  nearside namespace add 8 file:disk.img --read-only
  nearside namespace add 9 dram:16MiB --log-writes disk9.log
  nearside namespace mark 9 before-the-upgrade         # in its write log
  nearside namespace remove 7";

/// Say what a server serves, and to whom
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(STATUS_EXAMPLES))]
pub struct StatusArgs {
    /// The server's control socket [default: that of the server at port 4420]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Add namespaces to a server, or take them away, while hosts use it
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(NAMESPACE_EXAMPLES))]
pub struct NamespaceArgs {
    /// The server's control socket [default: that of the server at port 4420]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,
    /// Which subsystem, where there are several
    #[arg(long, value_name = "NQN", global = true)]
    subsystem: Option<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Adds one; connected hosts are told
    Add {
        /// Its number
        nsid: u32,
        /// What holds its bytes, as for serve
        store: String,
        /// Bytes of a logical block
        #[arg(long, value_name = "512|4096", default_value_t = 512)]
        block_size: u32,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        in_use: InUse,
        /// As for serve
        #[arg(long)]
        allow_unrecovered: bool,
        /// As for serve
        #[arg(long, value_name = "FILE")]
        log_writes: Option<PathBuf>,
    },
    /// Puts a mark into the write log of one, for `nearside writes --at-mark`
    Mark {
        /// Its number
        nsid: u32,
        /// The mark
        text: String,
    },
    /// Takes one away; commands that run on it end first
    Remove {
        /// Its number
        nsid: u32,
    },
}

pub fn run(args: StatusArgs) -> Outcome {
    let status = ask(args.control.as_deref(), &Request::Status)?;
    let mut out = Out::new();
    if args.json {
        out.json(&status)?;
        out.flush()?;
        return Ok(0);
    }
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
    for subsystem in list(&status["subsystems"]) {
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
    }
    for host in list(&status["hosts"]) {
        let (nqn, address) = (word(&host["host_nqn"]), word(&host["address"]));
        let (cntlid, queues) = (&host["cntlid"], &host["io_queues"]);
        let proved = if host["authenticated"] == true { ", authenticated" } else { "" };
        out.text(&format!("host {nqn} from {address}: controller {cntlid}, {queues} I/O queues{proved}"))?;
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

/// What is said of a PCIe function.
fn function_line(function: &serde_json::Value) -> String {
    let word = |name: &str| function[name].as_str().unwrap_or("").to_owned();
    let numbers =
        |list: &[serde_json::Value]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
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

pub fn namespace(args: NamespaceArgs) -> Outcome {
    let NamespaceArgs { control, subsystem, what } = args;
    let request = match what {
        What::Add { nsid, store, block_size, read_only, in_use, allow_unrecovered, log_writes } => {
            // The server may have been started elsewhere.
            let store = AnyStore::word_from(&std::env::current_dir()?, &store);
            let namespace = NamespacePlan {
                nsid,
                store,
                block_size,
                read_only,
                shared_image: in_use.shared_image,
                risk_corruption: in_use.risk_corruption,
                allow_unrecovered,
                log_writes: log_writes.map(std::path::absolute).transpose()?,
                reservations: None,
            };
            Request::AddNamespace { subsystem, namespace }
        }
        What::Mark { nsid, text } => Request::Mark { subsystem, nsid, text },
        What::Remove { nsid } => Request::RemoveNamespace { subsystem, nsid },
    };
    ask(control.as_deref(), &request)?;
    Ok(0)
}
