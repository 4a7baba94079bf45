//! Every metric in one table. Metrics that Typha has too keep their names and meanings; ours begin with `bulrush_`.
//!
//! Constructors hand each part of the program the metrics it needs. Nothing is global, so tests have registries of their own.

mod process;
mod summary;
#[cfg(test)]
mod tests;

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

pub use process::register_process_metrics;
pub use summary::Summary;

/// Window of most of Typha's summaries: values older than this no longer count.
const WINDOW: Duration = Duration::from_secs(600);
/// Number of steps in which the window moves.
const WINDOW_BUCKETS: usize = 5;

/// Creates a metric in a registry.
///
/// # Panics
/// When the options are not valid, or a name is registered twice: a mistake in this table, found by the first test that builds it.
fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect("metric options in this table are valid");
    registry.register(Box::new(collector.clone())).expect("metric names in this table are unique within a registry");
    collector
}

fn counter(registry: &Registry, opts: Opts) -> IntCounter {
    register(registry, IntCounter::with_opts(opts))
}

fn counters(registry: &Registry, opts: Opts, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(opts, labels))
}

fn gauge(registry: &Registry, opts: Opts) -> IntGauge {
    register(registry, IntGauge::with_opts(opts))
}

fn gauges(registry: &Registry, opts: Opts, labels: &[&str]) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(opts, labels))
}

/// A summary over [`WINDOW`].
fn summary(registry: &Registry, opts: Opts) -> Summary {
    register(registry, Summary::new(opts, WINDOW, WINDOW_BUCKETS))
}

/// A summary over one minute.
fn short_summary(registry: &Registry, opts: Opts) -> Summary {
    register(registry, Summary::new(opts, Duration::from_secs(60), 2))
}

/// Declares a struct of metrics, with the label that all of them have, if any. Each field is written once, with its type, the
/// function above that makes it, its name and its help text, which is the field's documentation as well.
macro_rules! metrics {
    ($(#[$attribute:meta])* $struct:ident($($label:ident)?) {
        $($field:ident: $type:ty = $make:ident($name:literal, $help:literal $(, $labels:expr)?);)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        pub struct $struct {
            $(#[doc = $help] pub $field: $type,)+
        }

        impl $struct {
            /// Creates and registers the metrics.
            #[must_use]
            pub fn new(registry: &Registry $(, $label: &str)?) -> Self {
                let opts = |name: &str, help: &str| Opts::new(name, help)$(.const_label(stringify!($label), $label))?;
                Self { $($field: $make(registry, opts($name, $help) $(, $labels)?),)+ }
            }
        }
    };
}

metrics! {
    /// Metrics of one syncer's pipeline and of the connections it feeds.
    SyncerMetrics(syncer) {
        connections_streaming: IntGauge = gauge(
            "typha_connections_streaming", "Number of client connections that completed the handshake.");
        connections_grace_used: IntCounter = counter(
            "typha_connections_grace_used",
            "Number of times a client was too far behind but within its grace period; counted once until it has caught up.");
        client_snapshot_send_secs: Summary = summary(
            "typha_client_snapshot_send_secs", "How long it took to send the snapshot to a client, in seconds.");
        client_latency_secs: Summary = short_summary(
            "typha_client_latency_secs", "Age of the first change that a client is sent, in seconds.");
        client_write_latency_secs: Summary = summary(
            "typha_client_write_latency_secs", "How long a write to a client took, in seconds.");
        next_breadcrumb_latency_secs: Summary = summary(
            "typha_next_breadcrumb_latency_secs",
            "Time spent waiting for the next breadcrumb while joining deltas, in seconds.");
        ping_latency: Summary = summary("typha_ping_latency", "Time from a ping to its pong, in seconds.");
        kvs_per_msg: Summary = summary("typha_kvs_per_msg", "Number of key-value pairs per delta message.");
        breadcrumb_seq_number: IntGauge = gauge(
            "typha_breadcrumb_seq_number", "Sequence number of the newest breadcrumb.");
        breadcrumb_block: IntCounter = counter(
            "typha_breadcrumb_block", "Number of times a follower had to wait for the next breadcrumb.");
        breadcrumb_non_block: IntCounter = counter(
            "typha_breadcrumb_non_block", "Number of times a follower found the next breadcrumb ready.");
        breadcrumb_size: Summary = summary("typha_breadcrumb_size", "Number of deltas per breadcrumb.");
        updates_total: IntCounter = counter("typha_updates_total", "Number of updates received by the cache.");
        updates_skipped: IntCounter = counter(
            "typha_updates_skipped", "Number of updates dropped by the cache because nothing changed.");
        cache_size: IntGauge = gauge("typha_cache_size", "Number of keys in the cache.");
        snapshots_generated: IntCounter = counter("typha_snapshots_generated", "Number of snapshots encoded.");
        snapshots_reused: IntCounter = counter(
            "typha_snapshots_reused", "Number of times a client was served an already encoded snapshot.");
        snapshot_raw_bytes: IntGauge = gauge(
            "typha_snapshot_raw_bytes", "Size of the last snapshot before compression, in bytes.");
        snapshot_compressed_bytes: IntGauge = gauge(
            "typha_snapshot_compressed_bytes", "Size of the last snapshot after compression, in bytes.");
        connections_by_dialect: IntGaugeVec = gauges(
            "bulrush_dialect_connections",
            "Number of client connections that completed the handshake, by the dialect in which they are served.",
            &["dialect"]);
        snapshot_pieces_encoded: IntCounter = counter(
            "bulrush_snapshot_pieces_encoded_total", "Number of pieces of snapshots that were encoded.");
        snapshot_pieces_reused: IntCounter = counter(
            "bulrush_snapshot_pieces_reused_total",
            "Number of pieces of snapshots that were taken over unchanged from the snapshot before.");
        values_invalid: IntCounter = counter(
            "bulrush_values_invalid_total", "Number of values that validation blanked.");
        objects_unconvertible: IntCounter = counter(
            "bulrush_objects_unconvertible_total", "Number of objects that could not be converted.");
        updates_coalesced: IntCounter = counter(
            "bulrush_updates_coalesced_total",
            "Number of updates that a lagging client was spared because a newer value of the key replaced them.");
        catch_ups: IntCounter = counter(
            "bulrush_catch_ups_total",
            "Number of times a lagging client was given the difference of two maps instead of the history.");
        feed_bytes: IntGauge = gauge("bulrush_feed_bytes", "Bytes of encoded deltas held for clients that lag.");
        rounds: IntCounter = counter(
            "bulrush_feed_rounds_total", "Number of rounds in which changes were published to clients.");
        oldest_client_updates: IntGauge = gauge(
            "bulrush_oldest_client_updates",
            "Updates that the client farthest behind lacks; only clients that have their snapshot count.");
        lost_wakeups: IntCounter = counter(
            "bulrush_lost_wakeups_total",
            "Number of times a client lagged though nothing kept it from being served, and was woken by housekeeping.");
        bytes_sent: IntCounter = counter("bulrush_bytes_sent_total", "Number of bytes written to clients.");
        datastore_age_secs: IntGauge = gauge(
            "bulrush_datastore_age_seconds",
            "Seconds since the datastore last vouched that nothing is missing, or since the start if it never has.");
        in_sync: IntGauge = gauge("bulrush_in_sync", "1 while the syncer is in sync, else 0.");
        conflicts: IntGauge = gauge(
            "bulrush_conflicts",
            "Number of keys that several datastores of the syncer have now; the one that counts most is shown to clients.");
        problems: IntGaugeVec = gauges(
            "bulrush_problems",
            "Number of objects and values that are wrong now, so that clients do not get them; by finder and kind.",
            &["found_by", "kind"]);
    }
}

impl SyncerMetrics {
    /// Metrics in a registry of their own, for tests and tools that do not export them.
    #[must_use]
    pub fn unregistered() -> Self {
        Self::new(&Registry::new(), "")
    }
}

metrics! {
    /// Metrics of the server as a whole. The server begins the series of every reason when it is made.
    ServerMetrics() {
        connections_accepted: IntCounter = counter(
            "typha_connections_accepted", "Number of client connections accepted.");
        connections_active: IntGauge = gauge(
            "typha_connections_active", "Number of client connections open, in handshake or later.");
        connections_dropped: IntCounter = counter(
            "typha_connections_dropped", "Number of client connections dropped to rebalance load.");
        connections_limit: IntGauge = gauge(
            "bulrush_connections_limit", "Number of client connections above which they are rebalanced.");
        connections_closed: IntCounterVec = counters(
            "bulrush_connections_closed_total", "Number of client connections closed, by reason.", &["reason"]);
        accept_errors: IntCounter = counter(
            "bulrush_accept_errors_total", "Number of times accepting a connection failed.");
    }
}

metrics! {
    /// Expiry of certificates.
    CertificateMetrics() {
        expiry: IntGaugeVec = gauges(
            "bulrush_certificate_expiry_timestamp_seconds",
            "When the first certificate of the file that an option names expires, in seconds since the epoch.",
            &["option"]);
    }
}

impl CertificateMetrics {
    /// Sets the expiry, in seconds since the epoch, of the first certificate of the file that `option` names. `None` sets nothing.
    pub fn set(&self, option: &str, expiry: Option<i64>) {
        if let Some(expiry) = expiry {
            self.expiry.with_label_values(&[option]).set(expiry);
        }
    }
}

metrics! {
    /// Metrics of the folders that are datastores, summed up. Without one they do not exist.
    FolderMetrics() {
        errors: IntGauge = gauge("bulrush_folder_errors", "Number of errors in files of folders now.");
        held: IntGauge = gauge(
            "bulrush_folder_held",
            "Number of folders whose content is not served as it is: a broken first load, a deletion to confirm, no folder.");
    }
}

metrics! {
    /// Metrics of the log.
    LogMetrics() {
        logs_dropped: IntCounter = counter(
            "typha_logs_dropped", "Number of log lines dropped because a destination was too slow.");
        log_errors: IntCounter = counter("typha_log_errors", "Number of log lines that could not be written.");
    }
}
