//! The control socket of a server: one JSON object per line, asked and answered. `nearside status`,
//! `nearside control` and `nearside namespace` speak it; only the server's own user may, and root.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nearside_device::CommandSet;
use nearside_device::throttle::Whom;
use nearside_dma::local::{self, Access};
use nearside_firmware::{Fsr, Looks, ViewCost};
use nearside_store::{Backing, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::changes::Change;
use super::drive::{AnySubsystem, AnyTarget, Function, Seen};
use super::listener::{self, PATIENCE, Peer};
use super::plan::{PERCENT_NS, Plan};
use super::running::Running;
use super::sizes;

/// What a server is asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", tag = "command", deny_unknown_fields)]
pub enum Request {
    /// What is served, to whom.
    Status,
    /// A change; what it said of itself is answered.
    Change(Change),
    /// Ends the connections of a host.
    Disconnect { subsystem: Option<String>, nqn: String },
    /// The plan as it runs, and the file that it is from.
    Running,
    /// Makes a namespace so many bytes long; without a number, as long as what its store lies in has become.
    Resize { subsystem: Option<String>, nsid: u32, bytes: Option<u64>, force: bool },
    /// Puts a mark into the write log of one.
    Mark { subsystem: Option<String>, nsid: u32, text: String },
}

/// What [`Request::Running`] is answered.
#[derive(Debug, Deserialize, Serialize)]
pub struct Now {
    pub file: Option<PathBuf>,
    pub plan: Plan,
}

/// Bytes of a question.
const LONGEST: u64 = 64 << 10;

/// A socket that is removed with this.
pub struct Control {
    name: local::Name,
}

impl Control {
    /// Listens at `path` and answers for the target, on threads of its own.
    pub fn start(path: &Path, running: Arc<Running>) -> Result<Control, String> {
        let (listener, name) = local::bind(path, Access::Owner).map_err(|e| format!("control socket {e}"))?;
        listener::open("control", listener, PATIENCE, move |peer| answer(peer, &running))
            .map_err(|e| format!("control socket {}: {e}", path.display()))?;
        Ok(Control { name })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.name.path()
    }
}

fn answer(peer: &mut dyn Peer, running: &Running) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(&mut *peer).take(LONGEST).read_line(&mut line)?;
    let done = serde_json::from_str(&line).map_err(|e| e.to_string()).and_then(|r| execute(r, running));
    let reply = match done {
        Ok(value) => json!({ "ok": value }),
        Err(why) => json!({ "error": why }),
    };
    peer.write_all(format!("{reply}\n").as_bytes())
}

/// How long a server may take to answer: what it does for a change may wait for its stores.
const ANSWERED_WITHIN: Duration = Duration::from_secs(300);
/// Bytes of an answer at most.
const LONGEST_ANSWER: u64 = 64 << 20;

/// Asks a server at a socket that is connected to it.
pub fn ask(mut stream: UnixStream, at: &Path, request: &Request) -> Result<Value, String> {
    let turned_away = || {
        let at = at.display();
        format!("{at}: the connection was ended: only the server's own user and root may ask it")
    };
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => turned_away(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let (at, seconds) = (at.display(), ANSWERED_WITHIN.as_secs());
            format!("{at}: no answer within {seconds} seconds; a change may still be made")
        }
        _ => format!("no server answers at {}: {e}", at.display()),
    };
    let text = serde_json::to_string(request).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(ANSWERED_WITHIN)).map_err(failed)?;
    writeln!(stream, "{text}").map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut line).map_err(failed)?;
    if line.is_empty() {
        return Err(turned_away());
    }
    let mut reply: Value = serde_json::from_str(&line).map_err(|e| format!("{}: {e}", at.display()))?;
    match reply["error"].as_str() {
        Some(why) => Err(why.to_owned()),
        None => Ok(reply["ok"].take()),
    }
}

fn execute(request: Request, running: &Running) -> Result<Value, String> {
    match request {
        Request::Status => Ok(status(running.seen())),
        Request::Change(change) => {
            let (notes, address) = running.change(change)?;
            Ok(json!({ "notes": notes, "address": address }))
        }
        Request::Disconnect { subsystem, nqn } => {
            let subsystem = running.plan().the_mut(subsystem.as_deref())?.nqn.clone();
            let controllers = running.with(|drive| Ok(drive.disconnect(&subsystem, &nqn)))?;
            Ok(json!({ "controllers": controllers }))
        }
        Request::Running => {
            let file = running.args().config.as_ref().map(std::path::absolute).transpose();
            let now = Now { file: file.map_err(|e| e.to_string())?, plan: running.plan() };
            serde_json::to_value(now).map_err(|e| e.to_string())
        }
        Request::Resize { subsystem, nsid, bytes, force } => {
            let mut plan = running.plan();
            let subsystem = plan.the_mut(subsystem.as_deref())?;
            let namespace = subsystem.namespace.iter().find(|namespace| namespace.nsid == nsid);
            let store = &namespace.ok_or(format!("there is no namespace {nsid}"))?.store;
            let bytes = sizes::resize(&running.seen().target, &subsystem.nqn, (nsid, store), bytes, force)?;
            Ok(json!({ "bytes": bytes }))
        }
        Request::Mark { subsystem, nsid, text } => {
            let subsystem = running.plan().the_mut(subsystem.as_deref())?.nqn.clone();
            let offer = running.seen().target.offers().into_iter().find(|offer| offer.nqn == subsystem);
            let namespace = offer.and_then(|offer| offer.subsystem.namespace(nsid));
            let namespace = namespace.ok_or(format!("there is no namespace {nsid}"))?;
            let log = namespace.store().write_log();
            let log = log.ok_or(format!("namespace {nsid} has no write log (--log-writes)"))?;
            if text.len() > log.longest_mark() {
                return Err(format!("a mark of {} bytes: it can have {}", text.len(), log.longest_mark()));
            }
            log.mark(text.as_bytes());
            log.trouble().map_or(Ok(json!({ "entries": log.entries() })), Err)
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What near-data work holds at this moment, and how long its slices were.
fn near_data(fsr: &Fsr) -> Value {
    let held = fsr.held();
    let slices = fsr.slices().into_iter().map(|(place, slices)| {
        json!({
            "on": place.to_string(), "slices": slices.count, "slices_over_20us": slices.over,
            "worst_slice_ns": slices.worst_ns, "slices_ns": slices.total_ns,
        })
    });
    let commands = fsr.uses().filter(|(_, of)| of.running + of.ended > 0).map(|(operation, of)| {
        json!({ "operation": operation, "running": of.running, "ended": of.ended, "total_ns": of.total_ns })
    });
    let ViewCost { seen, overlay_bytes, passed, watched } = fsr.view_cost();
    let looks = |of: Looks| json!({ "timed": of.timed, "mean_ns": of.mean_ns(), "worst_ns": of.worst_ns });
    json!({
        "monitor": {
            "suspected": seen.suspected, "invalidated": seen.invalidated, "published": seen.published,
            "watched": seen.watched, "scans_touched": seen.scans_touched,
            "looked_again": seen.looked_again, "repeated": seen.repeated,
            "overlay_bytes": overlay_bytes, "looks_passed": looks(passed), "looks_watched": looks(watched),
        },
        "tasks": held.tasks, "reads": held.reads, "buffers": held.buffers, "tags": fsr.tags_kept(),
        "slices": slices.collect::<Vec<_>>(), "commands": commands.collect::<Vec<_>>(),
    })
}

/// Commands under way, by subsystem and controller.
type UnderWay = BTreeMap<(String, u16), u64>;

fn under_way(target: &AnyTarget) -> UnderWay {
    let all = target.offers().into_iter().flat_map(|offer| {
        let named = |(cntlid, count)| ((offer.nqn.clone(), cntlid), count);
        offer.subsystem.in_flight().into_iter().map(named).collect::<Vec<_>>()
    });
    all.collect()
}

/// Who may have how much in a second, and what has waited, as the metrics count it; where nothing of it is
/// counted by itself, null.
fn limits(subsystem: &AnySubsystem) -> Vec<Value> {
    let traffic = subsystem.traffic();
    let limits = subsystem.limits();
    let limit = limits.iter().map(|(whom, quota)| {
        let (nsid, host, waited) = match whom {
            Whom::Namespace(nsid) => (Some(*nsid), None, traffic.namespaces.get(nsid)),
            Whom::Host(host) => (None, Some(host.as_str()), traffic.hosts.get(host)),
        };
        json!({
            "nsid": nsid, "host": host, "iops": quota.commands, "bandwidth": quota.bytes,
            "near_data_cpu": quota.near_data_ns.map(|ns| ns / PERCENT_NS),
            "throttled": waited.map(|tally| tally.throttled),
            "throttled_ns": waited.map(|tally| tally.throttled_ns),
        })
    });
    limit.collect()
}

/// A PCIe function, and who has it.
fn function(function: &Function, way: &UnderWay) -> Value {
    let state = function.state();
    json!({
        "under_way": way.get(&(function.nqn.clone(), function.cntlid)).copied().unwrap_or(0),
        "subsystem": function.nqn, "socket": function.socket.display().to_string(), "cntlid": function.cntlid,
        "doorbells": function.doorbells.to_string(), "namespaces": function.namespaces,
        "connected": state.connected, "enabled": state.enabled, "clients": state.clients,
        "regions": state.regions, "mapped_bytes": state.mapped_bytes,
    })
}

/// What commands of a namespace are about.
fn commands(set: CommandSet) -> &'static str {
    match set {
        CommandSet::Nvm => "blocks",
        CommandSet::Memory => "memory",
        CommandSet::Compute => "programs",
    }
}

/// What is served, to whom, and what has happened.
pub fn status(seen: &Seen) -> Value {
    let target = &seen.target;
    let c = &target.counters;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let listening = target.listening();
    let subsystems = target.offers().into_iter().map(|offer| {
        let namespaces = offer.subsystem.namespaces().into_iter().map(|(nsid, n)| {
            let (failures, last) = n.failures();
            let log = n.store().write_log().map(|log| {
                json!({ "path": log.path().display().to_string(), "entries": log.entries(), "trouble": log.trouble() })
            });
            json!({
                "nsid": nsid, "commands": commands(n.command_set()), "ana_group": n.ana_group(), "bytes": n.bytes(), "block_size": 1u64 << n.lba_shift(), "read_only": n.read_only(),
                "medium": n.store().backing().map(Backing::name), "uuid": hex(n.uuid()), "nguid": hex(n.nguid()),
                "near_data": near_data(n.observer()),
                "store_failures": failures, "last_store_failure": last.map(|error| error.to_string()),
                "store_warnings": n.store().standing().all().collect::<Vec<_>>(), "write_log": log,
            })
        });
        let namespaces = namespaces.collect::<Vec<_>>();
        let ports = listening.iter().map(|(number, address)| {
            let states = offer.subsystem.ana_by(u16::try_from(*number).unwrap_or(u16::MAX));
            let groups = states.groups.iter().map(|(group, state)| (group.to_string(), state.name().into()));
            let groups: Map<String, Value> = groups.collect();
            json!({ "listen": address.to_string(), "ana_state": states.all.name(), "ana_groups": groups })
        });
        json!({ "nqn": offer.nqn, "serial": offer.serial, "hosts": offer.hosts, "namespaces": namespaces,
            "ports": ports.collect::<Vec<_>>(), "limits": limits(&offer.subsystem) })
    });
    let way = under_way(target);
    let hosts = target.connected().into_iter().map(|host| {
        let under_way = way.get(&(host.nqn.clone(), host.cntlid)).copied().unwrap_or(0);
        json!({
            "under_way": under_way,
            "cntlid": host.cntlid, "subsystem": host.nqn, "host_nqn": host.host_nqn, "host_id": hex(&host.host_id),
            "address": host.peer.to_string(), "came_to": listening.get(&host.port.into()).map(ToString::to_string),
            "authenticated": host.authenticated, "encrypted": host.encrypted, "io_queues": host.queues, "enabled": host.enabled,
        })
    });
    json!({
        "subsystems": subsystems.collect::<Vec<_>>(),
        "hosts": hosts.collect::<Vec<_>>(),
        "functions": seen.functions().iter().map(|f| function(f, &way)).collect::<Vec<_>>(),
        "connections": count(&c.open), "connections_accepted": count(&c.connections),
        "connections_refused": count(&c.refused), "connections_turned_away": count(&c.turned_away),
        "queues_authenticated": count(&c.authenticated), "authentications_failed": count(&c.not_authenticated),
        "connections_encrypted": count(&c.encrypted), "connections_not_encrypted": count(&c.not_encrypted),
        "connections_over_quota": count(&c.over_quota), "connections_slow": count(&c.slow),
        "connections_not_accepted": count(&c.not_accepted), "controllers_made": count(&c.controllers),
        "controllers_silent": count(&c.silent), "commands": count(&c.commands),
        "commands_failed": count(&c.errors), "commands_lost": nearside_device::lost_commands(),
        "bytes_received": count(&c.received), "bytes_sent": count(&c.sent),
    })
}
