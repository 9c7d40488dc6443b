//! OpenMetrics of a server: the text, which `http` answers with.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nearside_device::traffic::{BUCKETS, Kind, Tally, Timed, bound_ns};
use nearside_firmware::{Held, Slices, TaskPlace, Use, ViewCost};
use nearside_store::{Backing, Store};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::drive::{AnyTarget, Function, Seen};

/// What the text is.
pub const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(String, String)>;

/// Labels as they are written: the values are the hosts' own, or paths, and the encoder takes them as they
/// are (OpenMetrics 1.0, "escaped-string").
fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    pairs.map(|(name, value)| (name.to_owned(), escaped(value))).to_vec()
}

/// The exposition.
pub fn text(seen: &Seen) -> Result<String, fmt::Error> {
    let target = &seen.target;
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
        ("connections_encrypted", "Connections over TLS", &c.encrypted),
        (
            "connections_not_encrypted",
            "TLS handshakes that failed, and connections without TLS where it is required",
            &c.not_encrypted,
        ),
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
    let (hosts, queues) = (Family::<Labels, Gauge>::default(), Family::<Labels, Gauge>::default());
    for host in target.connected() {
        let labels = labels([("subsystem", &host.nqn), ("host", &host.host_nqn)]);
        hosts.get_or_create(&labels).inc();
        queues.get_or_create(&labels).inc_by(host.queues.into());
    }
    registry.register("controllers", "Controllers of connected hosts", hosts);
    registry.register("io_queues", "I/O queues of connected hosts", queues);
    let sizes = Family::<Labels, Gauge>::default();
    for offer in target.offers() {
        for (nsid, namespace) in offer.subsystem.namespaces() {
            let medium = namespace.store().backing().map_or("", Backing::name);
            let labels = labels([("subsystem", &offer.nqn), ("nsid", &nsid.to_string()), ("medium", medium)]);
            sizes.get_or_create(&labels).set(namespace.bytes() as i64);
        }
    }
    registry.register_with_unit("namespace_size", "Size of a namespace", Unit::Bytes, sizes);
    traffic(target, &mut registry);
    pci_functions(&seen.functions(), &mut registry);
    near_data(target, &mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Response times by labels: as many as are there, already added up.
#[derive(Debug, Default)]
struct Histograms(Vec<(Labels, Timed)>);

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        for (labels, timed) in &self.0 {
            // Each doubling is one here; what is beyond the last but one has no bound.
            let bounds = (3..BUCKETS - 4).step_by(4).map(|last| bound_ns(last) as f64 / 1e9);
            let counts = timed.buckets.chunks(4).map(|four| four.iter().sum::<u64>());
            let buckets: Vec<(f64, u64)> = bounds.chain([f64::MAX]).zip(counts).collect();
            let sum = timed.total_ns as f64 / 1e9;
            encoder.encode_family(labels)?.encode_histogram::<NoLabelSet>(
                sum,
                timed.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Commands of namespaces, or of hosts.
#[derive(Default)]
struct Commands {
    response: Histograms,
    bytes: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    throttled: Family<Labels, Counter>,
    throttled_s: Family<Labels, Counter<f64, AtomicU64>>,
}

impl Commands {
    fn add(&mut self, of: &Labels, tally: &Tally) {
        for (kind, timed) in Kind::ALL.into_iter().zip(&tally.kinds).filter(|(_, timed)| timed.count() > 0) {
            let operation = labels([("operation", kind.name())]);
            let labels = [of.clone(), operation].concat();
            self.bytes.get_or_create(&labels).inc_by(timed.bytes);
            self.response.0.push((labels, timed.clone()));
        }
        self.failed.get_or_create(of).inc_by(tally.failed);
        self.throttled.get_or_create(of).inc_by(tally.throttled);
        self.throttled_s.get_or_create(of).inc_by(tally.throttled_ns as f64 / 1e9);
    }

    fn register(self, whose: &str, registry: &mut Registry) {
        let of = |what: &str| format!("{whose}_{what}");
        let help = format!(
            "Time from when a command of a {whose} was taken to when it was answered, of those that succeeded"
        );
        registry.register_with_unit(of("response"), help, Unit::Seconds, self.response);
        let help = format!("Bytes of data that commands of a {whose} moved, of those that succeeded");
        registry.register_with_unit(of("moved"), help, Unit::Bytes, self.bytes);
        let help = format!("Commands of a {whose} that were answered with another status than success");
        registry.register(of("commands_failed"), help, self.failed);
        let help = format!("Commands of a {whose} that waited for a quota, its own or another's");
        registry.register(of("commands_throttled"), help, self.throttled);
        let help = format!("Time that commands of a {whose} waited for a quota");
        registry.register_with_unit(of("throttled"), help, Unit::Seconds, self.throttled_s);
    }
}

/// What hosts ask, by namespace and by host.
fn traffic(target: &AnyTarget, registry: &mut Registry) {
    let (mut namespaces, mut hosts) = (Commands::default(), Commands::default());
    let under_way = Family::<Labels, Gauge>::default();
    for offer in target.offers() {
        let traffic = offer.subsystem.traffic();
        for (nsid, tally) in &traffic.namespaces {
            namespaces.add(&labels([("subsystem", &offer.nqn), ("nsid", &nsid.to_string())]), tally);
        }
        for (host, tally) in &traffic.hosts {
            hosts.add(&labels([("subsystem", &offer.nqn), ("host", host)]), tally);
        }
        let in_flight = offer.subsystem.in_flight().values().sum::<u64>();
        let labels = labels([("subsystem", &offer.nqn)]);
        under_way.get_or_create(&labels).set(i64::try_from(in_flight).unwrap_or(i64::MAX));
    }
    namespaces.register("namespace", registry);
    hosts.register("host", registry);
    registry.register("commands_under_way", "Commands that were taken and are not answered", under_way);
}

/// PCIe functions, and who has them.
fn pci_functions(all: &[Arc<Function>], registry: &mut Registry) {
    let [clients, enabled, regions, mapped] = [(); 4].map(|()| Family::<Labels, Gauge>::default());
    let accepted = Family::<Labels, Counter>::default();
    for function in all {
        let labels = labels([
            ("subsystem", &function.nqn),
            ("socket", &function.socket.display().to_string()),
            ("doorbells", &function.doorbells.to_string()),
        ]);
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
    let mut uses = BTreeMap::<&str, Use>::new();
    for offer in target.offers() {
        for (_, namespace) in offer.subsystem.namespaces() {
            let fsr = namespace.observer();
            fsr.slices()
                .into_iter()
                .for_each(|(place, slices)| places.entry(place).or_default().merge(slices));
            held.merge(fsr.held());
            tags += fsr.tags_kept();
            fsr.uses().for_each(|(operation, of)| uses.entry(operation).or_default().merge(of));
            cost.merge(fsr.view_cost());
        }
    }
    let [slices, over] = [(); 2].map(|()| Family::<Labels, Counter>::default());
    let seconds = Family::<Labels, Counter<f64, AtomicU64>>::default();
    let worst = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (place, of) in places {
        let labels = labels([("on", &place.to_string())]);
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
    operations(&uses, registry);
    view(cost, registry);
}

/// Near-data commands by what they do.
fn operations(uses: &BTreeMap<&str, Use>, registry: &mut Registry) {
    let running = Family::<Labels, Gauge>::default();
    let ended = Family::<Labels, Counter>::default();
    let seconds = Family::<Labels, Counter<f64, AtomicU64>>::default();
    for (operation, of) in uses {
        let labels = labels([("operation", operation)]);
        running.get_or_create(&labels).set(of.running as i64);
        ended.get_or_create(&labels).inc_by(of.ended);
        seconds.get_or_create(&labels).inc_by(of.total_ns as f64 / 1e9);
    }
    registry.register("near_data_commands_running", "Near-data commands that run", running);
    registry.register("near_data_commands_ended", "Near-data commands that have ended", ended);
    let help = "Time from the beginning to the end of the near-data commands that have ended";
    registry.register_with_unit("near_data_command", help, Unit::Seconds, seconds);
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
    let timed = Family::<Labels, Counter>::default();
    let seconds = Family::<Labels, Counter<f64, AtomicU64>>::default();
    let worst = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (of, looks) in [("passed", passed), ("watched", watched)] {
        let labels = labels([("of", of)]);
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
