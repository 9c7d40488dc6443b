//! `nearside control` and `nearside namespace`: what a server serves, changed while it serves.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use nearside_auth::in_keyring;
use nearside_embedded::AnyStore;
use nearside_instrument::words;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::in_use::InUse;
use crate::out::Out;
use crate::serve::changes::Change;
use crate::serve::control::{Now, Request};
use crate::serve::plan::{
    AnaName, Bandwidth, HostPlan, Level, NamespacePlan, SubsystemPlan, Word, ana_group,
};
use crate::serve::save;
use crate::server::WhichServer;

const EXAMPLES: &str = "\
Examples:
  nearside control host add nqn.2026-11.example:web --restrict   # from now on only those that are named may connect
  nearside control host add nqn.2026-11.example:db --identity trust
  nearside control host remove nqn.2026-11.example:db --disconnect
  nearside control subsystem add nqn.2026-11.example:more --allow-host nqn.2026-11.example:web
  nearside control namespace add 1 dram:16MiB --subsystem nqn.2026-11.example:more
  nearside control subsystem remove nqn.2026-11.example:more     # its hosts are disconnected
  nearside control listener add 127.0.0.1:0                      # prints the address
  nearside control limit namespace 1 --iops 5000 --bandwidth 200MiB --subsystem nqn.2026-11.example:more
  nearside control limit host nqn.2026-11.example:web --near-data-cpu 50
  nearside control ana 127.0.0.1:4421 inaccessible               # hosts go to another path
  nearside control log-level info
  nearside control show                                          # what is served now, as a file
  nearside control save --to now.toml                            # without --to: into the file it was started with

A change is checked and applied as the file is when it is read again (SIGHUP): one that cannot be applied changes nothing. What is
changed and not saved is forgotten when the file is read again, or the server ends.";

const NAMESPACE_EXAMPLES: &str = "\
Examples:
  nearside namespace add 7 dram:16MiB
  nearside namespace add 8 file:disk.img --read-only
  nearside namespace add 9 dram:16MiB --log-writes disk9.log
  nearside namespace mark 9 before-the-upgrade         # in its write log
  nearside namespace add 10 file:disk.img
  nearside namespace resize 10 96MiB                   # its file is made longer, or cut off; hosts are told
  nearside namespace resize 10                         # its file, or device, has another length: look now
  nearside namespace remove 7";

/// Change what a server serves, while hosts use it
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct ControlArgs {
    #[command(flatten)]
    to: To,
    #[command(subcommand)]
    what: What,
}

/// Add namespaces to a server, or take them away, while hosts use it
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(NAMESPACE_EXAMPLES))]
pub struct NamespaceArgs {
    #[command(flatten)]
    to: To,
    #[command(subcommand)]
    what: OfNamespace,
}

/// Whom a change is for.
#[derive(Args)]
struct To {
    #[command(flatten)]
    server: WhichServer,
    /// Which subsystem, where there are several
    #[arg(long, value_name = "NQN", global = true)]
    subsystem: Option<String>,
    /// Print what the server answers, as one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Who may connect to a subsystem
    #[command(subcommand)]
    Host(OfHost),
    /// Subsystems
    #[command(subcommand)]
    Subsystem(OfSubsystem),
    /// Addresses at which hosts are awaited
    #[command(subcommand)]
    Listener(OfListener),
    /// Namespaces of a subsystem, as `nearside namespace`
    #[command(subcommand)]
    Namespace(OfNamespace),
    /// What a namespace or a host may have in a second; what is not said is unlimited
    #[command(subcommand)]
    Limit(OfLimit),
    /// By an address, in what state hosts find namespaces (Asymmetric Namespace Access): hosts that have
    /// several paths use another, and are told at once
    Ana {
        /// One of those at which hosts are awaited, as it stands in the file, or as it was printed
        address: String,
        /// optimized, non-optimized, inaccessible, persistent-loss or change
        state: AnaName,
        /// Those of some ANA groups, as 1,2; without it, all
        #[arg(long, value_name = "N", value_delimiter = ',')]
        group: Vec<u32>,
    },
    /// How much the server says on standard error
    LogLevel {
        /// error, warn, info, debug, trace or off
        #[arg(value_parser = level)]
        level: Level,
    },
    /// Print what is served now, as a file for `nearside serve --config`
    Show,
    /// Write what is served now into the server's file, whose comments stay; this command's user has to be
    /// allowed to
    Save {
        /// Another file, which is replaced where it is there; or the server's own, also where it is another
        /// user's server
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum OfLimit {
    /// All hosts together, on a namespace
    Namespace {
        /// Its number
        nsid: u32,
        #[command(flatten)]
        quota: QuotaArgs,
    },
    /// All controllers of a host together, on all namespaces
    Host {
        /// Its name
        nqn: String,
        #[command(flatten)]
        quota: QuotaArgs,
    },
}

/// What may be had in a second.
#[derive(Args)]
struct QuotaArgs {
    /// Commands a second, but for flushes and near-data commands
    #[arg(long, value_name = "N")]
    iops: Option<u64>,
    /// Bytes a second that reads, writes and compares move, as 100MiB
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<Bandwidth>,
    /// Of a processor, for near-data work: 100 is one
    #[arg(long, value_name = "PERCENT")]
    near_data_cpu: Option<u64>,
}

#[derive(Subcommand)]
enum OfHost {
    /// Lets a host in
    Add {
        /// Its name
        nqn: String,
        /// What its word on who asks for near-data work is worth: squash-root, trust, refuse, squash UID:GID
        #[arg(long, value_name = "WORD", value_parser = identity)]
        identity: Option<Word>,
        /// A file with its key, or `keyring:NAME`, one of the server's user: it has to prove who it is
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// A file with the subsystem's key for it, or `keyring:NAME`
        #[arg(long, value_name = "FILE", requires = "key_file")]
        controller_key_file: Option<PathBuf>,
        /// A file with its TLS key, or `keyring:NAME`: its connections are encrypted, and it proves by it
        /// who it is
        #[arg(long, value_name = "FILE")]
        tls_key_file: Option<PathBuf>,
        /// Where every host may connect, only those that are named may from now on
        #[arg(long)]
        restrict: bool,
    },
    /// Lets a host in no more; who is connected stays
    Remove {
        /// Its name
        nqn: String,
        /// Ends its connections, too
        #[arg(long)]
        disconnect: bool,
    },
}

#[derive(Subcommand)]
enum OfSubsystem {
    /// Adds one, without namespaces
    Add {
        /// Its name
        nqn: String,
        /// Its serial number [default: made from this machine and the name]
        #[arg(long, value_name = "TEXT")]
        serial: Option<String>,
        /// A host that may connect; without any, all may
        #[arg(long, value_name = "NQN")]
        allow_host: Vec<String>,
        /// What hosts' word on who asks for near-data work is worth
        #[arg(long, value_name = "WORD", value_parser = identity, default_value = "squash-root")]
        identity: Word,
    },
    /// Takes one away; its hosts are disconnected, and its stores flushed
    Remove {
        /// Its name
        nqn: String,
    },
}

#[derive(Subcommand)]
enum OfListener {
    /// Awaits hosts at an address, and prints it
    Add {
        /// HOST[:PORT]; port 4420 unless given, with --discovery 8009
        address: String,
        /// For discovery
        #[arg(long)]
        discovery: bool,
    },
    /// Awaits none there any more; who is connected stays
    Remove {
        /// As it stands in the file, or as it was printed
        address: String,
    },
}

#[derive(Subcommand)]
enum OfNamespace {
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
        /// Its ANA group (`nearside control ana`)
        #[arg(long, value_name = "N", default_value_t = ana_group())]
        ana_group: u32,
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
    /// Makes one longer or shorter; connected hosts are told
    Resize {
        /// Its number
        nsid: u32,
        /// Its bytes from now on, as 1GiB: its file is made so long. Without it: as long as its file or
        /// device has become, which is noticed within a second anyway
        #[arg(value_name = "SIZE", value_parser = words::bytes)]
        size: Option<u64>,
        /// Also where what has been written, a partition or a volume reaches beyond the new end: what is
        /// there is lost
        #[arg(long, requires = "size")]
        force: bool,
    },
}

fn level(word: &str) -> Result<Level, String> {
    Level::try_from(word.to_owned())
}

fn identity(word: &str) -> Result<Word, String> {
    Word::try_from(word.to_owned())
}

fn absolute(path: Option<PathBuf>) -> std::io::Result<Option<PathBuf>> {
    path.map(std::path::absolute).transpose()
}

/// Where a key is, for the server.
fn place(key: Option<PathBuf>) -> std::io::Result<Option<PathBuf>> {
    if key.as_deref().is_some_and(|key| in_keyring(key).is_some()) { Ok(key) } else { absolute(key) }
}

impl To {
    /// Asks for a change.
    fn change(&self, change: Change) -> Outcome {
        self.request(&Request::Change(change))
    }

    fn request(&self, request: &Request) -> Outcome {
        let answer = self.server.ask(request)?;
        self.say(&answer)
    }

    /// Says what a server answered.
    fn say(&self, answer: &Value) -> Outcome {
        let mut out = Out::new();
        if self.json {
            let answer = if answer.is_null() { &json!({}) } else { answer };
            out.json(answer)?;
        } else {
            let notes = answer["notes"].as_array().into_iter().flatten();
            for line in notes.chain([&answer["address"]]).filter_map(Value::as_str) {
                out.lines(line)?;
            }
        }
        out.flush()?;
        Ok(0)
    }
}

fn host(to: &To, what: OfHost) -> Outcome {
    let subsystem = to.subsystem.clone();
    match what {
        OfHost::Add { nqn, identity, key_file, controller_key_file, tls_key_file, restrict } => {
            let (key_file, controller_key_file) = (place(key_file)?, place(controller_key_file)?);
            let tls_key_file = place(tls_key_file)?;
            let named = HostPlan::named(nqn);
            let host = HostPlan { identity, key_file, controller_key_file, tls_key_file, ..named };
            to.change(Change::AddHost { subsystem, host, restrict })
        }
        OfHost::Remove { nqn, disconnect } => {
            let ends = Request::Disconnect { subsystem: subsystem.clone(), nqn: nqn.clone() };
            let answer = to.server.ask(&Request::Change(Change::RemoveHost { subsystem, nqn }))?;
            if disconnect {
                to.server.ask(&ends)?;
            }
            to.say(&answer)
        }
    }
}

fn namespace_of(to: &To, what: OfNamespace) -> Outcome {
    let subsystem = to.subsystem.clone();
    match what {
        OfNamespace::Add {
            nsid,
            store,
            block_size,
            read_only,
            in_use,
            allow_unrecovered,
            log_writes,
            ana_group,
        } => {
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
                log_writes: absolute(log_writes)?,
                reservations: None,
                ana_group,
                iops: None,
                bandwidth: None,
                near_data_cpu: None,
            };
            to.change(Change::AddNamespace { subsystem, namespace })
        }
        OfNamespace::Mark { nsid, text } => to.request(&Request::Mark { subsystem, nsid, text }),
        OfNamespace::Resize { nsid, size: bytes, force } => {
            to.request(&Request::Resize { subsystem, nsid, bytes, force })
        }
        OfNamespace::Remove { nsid } => to.change(Change::RemoveNamespace { subsystem, nsid }),
    }
}

fn limit(to: &To, of: OfLimit) -> Outcome {
    let (nsid, host, quota) = match of {
        OfLimit::Namespace { nsid, quota } => (Some(nsid), None, quota),
        OfLimit::Host { nqn, quota } => (None, Some(nqn), quota),
    };
    let (subsystem, QuotaArgs { iops, bandwidth, near_data_cpu }) = (to.subsystem.clone(), quota);
    to.change(Change::Limit { subsystem, nsid, host, iops, bandwidth, near_data_cpu })
}

/// What is served now, as a server says it.
fn now(answer: Value) -> Result<Now, Failure> {
    serde_json::from_value(answer).map_err(|e| Failure::Message(format!("the server's answer: {e}")))
}

fn save(to: &To, other: Option<&Path>) -> Outcome {
    let Now { file, plan } = now(match other {
        Some(_) => to.server.ask(&Request::Running)?,
        None => to.server.ask_own(&Request::Running)?,
    })?;
    let path = match (other, &file) {
        (Some(path), _) => path,
        (None, Some(path)) => path,
        (None, None) => {
            return Err(Failure::Message("the server has no file: --to says which is written".into()));
        }
    };
    let whole = |path: &Path| path.canonicalize().ok();
    let its_own = |path: &Path| file.as_deref().and_then(whole).is_some_and(|file| whole(path) == Some(file));
    let changed = match other {
        Some(path) if its_own(path) => save::into(path, &plan),
        Some(path) => save::write(path, &save::new(&plan)?).map(|()| true),
        None => save::into(path, &plan),
    };
    let changed = changed.map_err(Failure::Message)?;
    let path = path.display().to_string();
    match to.json {
        true => to.say(&json!({ "file": path, "changed": changed })),
        false => to
            .say(&json!({ "notes": [if changed { path } else { format!("{path}: it says that already") }] })),
    }
}

pub fn run(args: ControlArgs) -> Outcome {
    let ControlArgs { to, what } = args;
    match what {
        What::Host(what) => host(&to, what),
        What::Subsystem(OfSubsystem::Add { nqn, serial, allow_host, identity }) => {
            let subsystem = SubsystemPlan::empty(nqn, serial, allow_host, identity);
            to.change(Change::AddSubsystem { subsystem: Box::new(subsystem) })
        }
        What::Subsystem(OfSubsystem::Remove { nqn }) => to.change(Change::RemoveSubsystem { nqn }),
        What::Listener(OfListener::Add { address, discovery }) => {
            to.change(Change::AddListener { address, discovery })
        }
        What::Listener(OfListener::Remove { address }) => to.change(Change::RemoveListener { address }),
        What::Namespace(what) => namespace_of(&to, what),
        What::Limit(of) => limit(&to, of),
        What::Ana { address, state, group } => {
            let groups = (!group.is_empty()).then(|| group.into_iter().collect());
            to.change(Change::SetAna { subsystem: to.subsystem.clone(), listen: address, state, groups })
        }
        What::LogLevel { level } => to.change(Change::LogLevel { level }),
        What::Show => {
            let Now { file, plan } = now(to.server.ask(&Request::Running)?)?;
            if to.json {
                let file = file.map(|file| file.display().to_string());
                return to.say(&json!({ "file": file, "plan": plan }));
            }
            to.say(&json!({ "notes": [save::new(&plan)?] }))
        }
        What::Save { to: other } => save(&to, other.as_deref()),
    }
}

pub fn namespace(args: NamespaceArgs) -> Outcome {
    namespace_of(&args.to, args.what)
}
