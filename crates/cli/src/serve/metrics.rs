//! OpenMetrics of a server, over HTTP.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nearside_firmware::{Held, Slices, TaskPlace, ViewCost};
use nearside_store::{Backing, Store};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::drive::{AnyTarget, Function, Seen};
use super::listener::{self, PATIENCE, Peer};

/// Answers at `address`, on threads of its own.
pub fn start(address: std::net::SocketAddr, seen: Arc<Seen>) -> Result<(), String> {
    let listener = TcpListener::bind(address).map_err(|e| format!("{address}: {e}"))?;
    listener::open("metrics", listener, PATIENCE, move |peer| answer(peer, &seen))
        .map_err(|e| format!("{address}: {e}"))
}

/// Bytes of a request's head.
const HEAD: u64 = 64 << 10;

fn answer(peer: &mut dyn Peer, seen: &Seen) -> std::io::Result<()> {
    // A request's head; a peer that sends no end of it is not answered.
    let mut head = BufReader::new(&mut *peer).take(HEAD);
    let mut line = String::new();
    while head.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
        line.clear();
    }
    if head.limit() == 0 {
        return Err(std::io::Error::other("a request without an end"));
    }
    let body = text(seen).map_err(std::io::Error::other)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    peer.write_all((head + &body).as_bytes())
}

/// The exposition.
pub fn text(seen: &Seen) -> Result<String, std::fmt::Error> {
    let Seen { target, functions } = seen;
    let mut registry = Registry::with_prefix("nearside");
    let c = &target.counters;
    for (name, help, counter) in [
        ("connections_accepted", "Connections accepted", &c.connections),
        ("connections_refused", "Connections ended because of what the peer sent", &c.refused),
        ("connections_turned_away", "Connections closed at once, as there were too many", &c.turned_away),
        (
            "connections_over_quota",
            "Connects refused to hosts that had all the connections they may have",
            &c.over_quota,
        ),
        ("connections_slow", "Connections ended because the peer was too slow", &c.slow),
        ("queues_authenticated", "Queues whose hosts have proved who they are", &c.authenticated),
        ("authentications_failed", "Tries to prove it that failed or were given up", &c.not_authenticated),
        ("connections_not_accepted", "Failures to accept, mostly for lack of descriptors", &c.not_accepted),
        ("controllers_made", "Controllers made for hosts", &c.controllers),
        ("controllers_silent", "Controllers ended because their hosts fell silent", &c.silent),
        ("commands", "Commands answered", &c.commands),
        ("commands_failed", "Commands answered with another status than success", &c.errors),
    ] {
        registry.register(name, help, counted(counter.load(Ordering::Relaxed)));
    }
    for (name, help, counter) in
        [("received", "Bytes received from hosts", &c.received), ("sent", "Bytes sent to hosts", &c.sent)]
    {
        registry.register_with_unit(name, help, Unit::Bytes, counted(counter.load(Ordering::Relaxed)));
    }
    let connections: Gauge = Gauge::default();
    connections.set(c.open.load(Ordering::Relaxed) as i64);
    registry.register("connections", "Connections that are open", connections);
    type Labels = Vec<(String, String)>;
    let (hosts, queues) = (Family::<Labels, Gauge>::default(), Family::<Labels, Gauge>::default());
    for host in target.connected() {
        let labels = vec![("subsystem".into(), host.nqn), ("host".into(), host.host_nqn)];
        hosts.get_or_create(&labels).inc();
        queues.get_or_create(&labels).inc_by(host.queues.into());
    }
    registry.register("controllers", "Controllers of connected hosts", hosts);
    registry.register("io_queues", "I/O queues of connected hosts", queues);
    let sizes = Family::<Labels, Gauge>::default();
    for offer in target.offers() {
        for (nsid, namespace) in offer.subsystem.namespaces() {
            let labels = vec![
                ("subsystem".into(), offer.nqn.clone()),
                ("nsid".into(), nsid.to_string()),
                ("medium".into(), namespace.store().backing().map_or("", Backing::name).into()),
            ];
            sizes.get_or_create(&labels).set(namespace.bytes() as i64);
        }
    }
    registry.register_with_unit("namespace_size", "Size of a namespace", Unit::Bytes, sizes);
    pci_functions(functions, &mut registry);
    near_data(target, &mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// PCIe functions, and who has them.
fn pci_functions(all: &[Function], registry: &mut Registry) {
    type Labels = Vec<(String, String)>;
    let [clients, enabled, regions, mapped] = [(); 4].map(|()| Family::<Labels, Gauge>::default());
    let accepted = Family::<Labels, Counter>::default();
    for function in all {
        let labels = vec![
            ("subsystem".into(), function.nqn.clone()),
            ("socket".into(), function.socket.display().to_string()),
            ("doorbells".into(), function.doorbells.to_string()),
        ];
        let state = function.state();
        clients.get_or_create(&labels).set(state.connected.into());
        enabled.get_or_create(&labels).set(state.enabled.into());
        regions.get_or_create(&labels).set(i64::try_from(state.regions).unwrap_or(i64::MAX));
        mapped.get_or_create(&labels).set(i64::try_from(state.mapped_bytes).unwrap_or(i64::MAX));
        accepted.get_or_create(&labels).inc_by(state.clients);
    }
    registry.register("function_clients", "Clients that have a PCIe function", clients);
    registry.register("function_clients_accepted", "Clients that have had a PCIe function", accepted);
    registry.register("function_enabled", "Controllers that clients of PCIe functions have enabled", enabled);
    registry.register("function_regions", "Ranges of memory that clients have mapped for DMA", regions);
    registry.register_with_unit("function_mapped", "Memory that clients have mapped", Unit::Bytes, mapped);
}

/// Near-data work, by where it runs, for all namespaces together.
fn near_data(target: &AnyTarget, registry: &mut Registry) {
    let mut places = BTreeMap::<TaskPlace, Slices>::new();
    let (mut held, mut tags, mut cost) = (Held::default(), 0, ViewCost::default());
    for offer in target.offers() {
        for (_, namespace) in offer.subsystem.namespaces() {
            let fsr = namespace.observer();
            fsr.slices()
                .into_iter()
                .for_each(|(place, slices)| places.entry(place).or_default().merge(slices));
            held.merge(fsr.held());
            tags += fsr.tags_kept();
            cost.merge(fsr.view_cost());
        }
    }
    type Labels = Vec<(String, String)>;
    let [slices, over] = [(); 2].map(|()| Family::<Labels, Counter>::default());
    let seconds = Family::<Labels, Counter<f64, AtomicU64>>::default();
    let worst = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (place, of) in places {
        let labels = vec![("on".into(), place.to_string())];
        slices.get_or_create(&labels).inc_by(of.count);
        over.get_or_create(&labels).inc_by(of.over);
        seconds.get_or_create(&labels).inc_by(of.total_ns as f64 / 1e9);
        worst.get_or_create(&labels).set(of.worst_ns as f64 / 1e9);
    }
    registry.register("near_data_slices", "Slices of near-data work", slices);
    registry.register("near_data_slices_over", "Slices of more than 20 microseconds", over);
    let unit = || Unit::Seconds;
    registry.register_with_unit("near_data_slice", "Time of all slices", unit(), seconds);
    registry.register_with_unit("near_data_slice_worst", "The longest slice", unit(), worst);
    for (name, help, value) in [
        ("near_data_tasks", "Near-data commands that run", held.tasks),
        ("near_data_reads", "Reads of theirs that the store has not ended", held.reads),
        ("near_data_buffers", "Buffers that they hold", held.buffers),
        ("near_data_tags", "Tags that something is kept under", tags),
    ] {
        registry.register(name, help, gauge(value as u64));
    }
    view(cost, registry);
}

/// What the views of hosts' volumes cost.
fn view(ViewCost { seen, overlay_bytes, passed, watched }: ViewCost, registry: &mut Registry) {
    for (name, help, value) in [
        ("monitor_suspected", "Looks at writes that the monitor's filter let through", seen.suspected),
        ("monitor_invalidated", "Watched blocks that changed", seen.invalidated),
        ("monitor_published", "Commits that an open volume followed", seen.published),
        ("monitor_scans_touched", "Scans that a change touched", seen.scans_touched),
        ("monitor_looked_again", "Files looked at again when they had been read", seen.looked_again),
        ("monitor_repeated", "Files read again because they had changed", seen.repeated),
    ] {
        registry.register(name, help, counted(value));
    }
    registry.register("monitor_watched", "Blocks that the monitor watches", gauge(seen.watched));
    let help = "Memory that holds what logs have committed and home locations have not";
    registry.register_with_unit("overlay", help, Unit::Bytes, gauge(overlay_bytes));
    type Labels = Vec<(String, String)>;
    let timed = Family::<Labels, Counter>::default();
    let seconds = Family::<Labels, Counter<f64, AtomicU64>>::default();
    let worst = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (of, looks) in [("passed", passed), ("watched", watched)] {
        let labels = vec![("of".to_owned(), of.to_owned())];
        timed.get_or_create(&labels).inc_by(looks.timed);
        seconds.get_or_create(&labels).inc_by(looks.total_ns as f64 / 1e9);
        worst.get_or_create(&labels).set(looks.worst_ns as f64 / 1e9);
    }
    registry.register("monitor_looks_timed", "Looks at writes that were timed, one of 61", timed);
    let unit = || Unit::Seconds;
    registry.register_with_unit("monitor_look", "Time of the looks that were timed", unit(), seconds);
    registry.register_with_unit("monitor_look_worst", "The longest of them", unit(), worst);
}

fn gauge(value: u64) -> Gauge {
    let gauge: Gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

fn counted(value: u64) -> Counter {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    counter
}
