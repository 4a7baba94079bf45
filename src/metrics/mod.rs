//! Every metric in one table. Names and meanings are Typha's where Typha has the metric; ours begin with `bulrush_`.
//!
//! A part of the program gets the handles it needs by constructor; nothing is global, so tests have registries of their own.

mod process;
mod summary;
#[cfg(test)]
mod tests;

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

pub use process::register_process_metrics;
pub use summary::Summary;

use crate::model::SyncerType;

/// Window of most of Typha's summaries: values older than this no longer count.
const WINDOW: Duration = Duration::from_secs(600);
/// How many parts the window moves in.
const WINDOW_BUCKETS: usize = 5;

/// Creates metrics in a registry.
///
/// # Panics
/// When a name is registered twice: a mistake in this table, found by the first test that builds it.
fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    registry.register(Box::new(collector.clone())).expect("metric names in this table are unique within a registry");
    collector
}

fn per_syncer(name: &str, help: &str, syncer: SyncerType) -> Opts {
    Opts::new(name, help).const_label("syncer", syncer.as_str())
}

fn counter(registry: &Registry, opts: Opts) -> IntCounter {
    register(registry, IntCounter::with_opts(opts).expect("metric options in this table are valid"))
}

fn gauge(registry: &Registry, opts: Opts) -> IntGauge {
    register(registry, IntGauge::with_opts(opts).expect("metric options in this table are valid"))
}

fn summary(registry: &Registry, opts: Opts, window: Duration, buckets: usize) -> Summary {
    register(registry, Summary::new(opts, window, buckets).expect("metric options in this table are valid"))
}

/// Metrics of one syncer's pipeline and of the connections it feeds.
#[derive(Clone, Debug)]
pub struct SyncerMetrics {
    /// Connections whose handshake is complete.
    pub connections_streaming: IntGauge,
    /// Connections found too far behind while in their grace period, once per episode.
    pub connections_grace_used: IntCounter,
    /// Seconds that sending a snapshot took.
    pub client_snapshot_send_secs: Summary,
    /// Age in seconds of the first change that a client is sent.
    pub client_latency_secs: Summary,
    /// Seconds that writing a message took.
    pub client_write_latency_secs: Summary,
    /// Seconds spent waiting for the next crumb while joining deltas.
    pub next_breadcrumb_latency_secs: Summary,
    /// Seconds between a ping and its pong.
    pub ping_latency: Summary,
    /// Updates per delta message.
    pub kvs_per_msg: Summary,
    /// Sequence number of the newest crumb.
    pub breadcrumb_seq_number: IntGauge,
    /// Times a follower had to wait for the next crumb.
    pub breadcrumb_block: IntCounter,
    /// Times a follower found the next crumb ready.
    pub breadcrumb_non_block: IntCounter,
    /// Deltas per publish attempt.
    pub breadcrumb_size: Summary,
    /// Updates that the cache received.
    pub updates_total: IntCounter,
    /// Updates that the cache dropped because nothing changed.
    pub updates_skipped: IntCounter,
    /// Keys in the cache.
    pub cache_size: IntGauge,
    /// Snapshots encoded.
    pub snapshots_generated: IntCounter,
    /// Times a client was served an already encoded snapshot.
    pub snapshots_reused: IntCounter,
    /// Bytes of the last snapshot before compression.
    pub snapshot_raw_bytes: IntGauge,
    /// Bytes of the last snapshot after compression.
    pub snapshot_compressed_bytes: IntGauge,
    /// Ours: connections whose handshake is complete, by the dialect in which they are served.
    pub connections_by_dialect: IntGaugeVec,
    /// Ours: pieces of snapshots that were encoded.
    pub snapshot_pieces_encoded: IntCounter,
    /// Ours: pieces of snapshots that were taken over from the snapshot before, for nothing in them had changed.
    pub snapshot_pieces_reused: IntCounter,
    /// Ours: values that validation blanked.
    pub values_invalid: IntCounter,
    /// Ours: objects that could not be converted.
    pub objects_unconvertible: IntCounter,
    /// Ours: updates that a lagging client did not get because a newer value of the key replaced them.
    pub updates_coalesced: IntCounter,
    /// Ours: times a lagging client was given the difference of two maps instead of the history.
    pub catch_ups: IntCounter,
    /// Ours: bytes of encoded deltas held for clients that lag.
    pub feed_bytes: IntGauge,
    /// Ours: rounds of changes that were published to clients.
    pub rounds: IntCounter,
    /// Ours: updates that the client that is farthest behind lacks, of those that have their snapshot.
    pub oldest_client_updates: IntGauge,
    /// Ours: clients that lagged without a reason, and were woken by housekeeping.
    pub lost_wakeups: IntCounter,
    /// Ours: bytes written to clients.
    pub bytes_sent: IntCounter,
    /// Ours: seconds since the datastore last vouched that nothing is missing, or, before it has, since the start.
    pub datastore_age_secs: IntGauge,
    /// Ours: 1 while the cache is in sync, else 0.
    pub in_sync: IntGauge,
    /// Ours: what is wrong now, by who found it and kind.
    pub problems: IntGaugeVec,
}

impl SyncerMetrics {
    /// Creates and registers the metrics of one syncer.
    #[must_use]
    pub fn new(registry: &Registry, syncer: SyncerType) -> Self {
        let opts = |name: &str, help: &str| per_syncer(name, help, syncer);
        let long = |name: &str, help: &str| summary(registry, opts(name, help), WINDOW, WINDOW_BUCKETS);
        let counter = |name: &str, help: &str| counter(registry, opts(name, help));
        let gauge = |name: &str, help: &str| gauge(registry, opts(name, help));
        Self {
            connections_streaming: gauge(
                "typha_connections_streaming",
                "Number of client connections that completed the handshake.",
            ),
            connections_grace_used: counter(
                "typha_connections_grace_used",
                "Number of times a client was behind but within its grace period.",
            ),
            client_snapshot_send_secs: long(
                "typha_client_snapshot_send_secs",
                "How long it took to send the snapshot to a client, in seconds.",
            ),
            client_latency_secs: summary(
                registry,
                opts("typha_client_latency_secs", "Age of the first change that a client is sent, in seconds."),
                Duration::from_secs(60),
                2,
            ),
            client_write_latency_secs: long(
                "typha_client_write_latency_secs",
                "How long a write to a client took, in seconds.",
            ),
            next_breadcrumb_latency_secs: long(
                "typha_next_breadcrumb_latency_secs",
                "Time spent getting the next breadcrumb while joining deltas, in seconds.",
            ),
            ping_latency: long("typha_ping_latency", "Round-trip time of pings, in seconds."),
            kvs_per_msg: long("typha_kvs_per_msg", "Number of key-value pairs per delta message."),
            breadcrumb_seq_number: gauge("typha_breadcrumb_seq_number", "Sequence number of the newest breadcrumb."),
            breadcrumb_block: counter(
                "typha_breadcrumb_block",
                "Number of times a follower had to wait for the next breadcrumb.",
            ),
            breadcrumb_non_block: counter(
                "typha_breadcrumb_non_block",
                "Number of times a follower found the next breadcrumb ready.",
            ),
            breadcrumb_size: long("typha_breadcrumb_size", "Number of deltas per breadcrumb."),
            updates_total: counter("typha_updates_total", "Number of updates received by the cache."),
            updates_skipped: counter("typha_updates_skipped", "Number of updates dropped because nothing changed."),
            cache_size: gauge("typha_cache_size", "Number of keys in the cache."),
            snapshots_generated: counter("typha_snapshots_generated", "Number of snapshots encoded."),
            snapshots_reused: counter("typha_snapshots_reused", "Number of times an encoded snapshot was shared."),
            snapshot_raw_bytes: gauge(
                "typha_snapshot_raw_bytes",
                "Size of the last snapshot before compression, in bytes.",
            ),
            snapshot_compressed_bytes: gauge(
                "typha_snapshot_compressed_bytes",
                "Size of the last snapshot after compression, in bytes.",
            ),
            snapshot_pieces_encoded: counter(
                "bulrush_snapshot_pieces_encoded_total",
                "Number of pieces of snapshots that were encoded.",
            ),
            snapshot_pieces_reused: counter(
                "bulrush_snapshot_pieces_reused_total",
                "Number of pieces of snapshots that were taken over unchanged from the snapshot before.",
            ),
            values_invalid: counter("bulrush_values_invalid_total", "Number of values that validation blanked."),
            objects_unconvertible: counter(
                "bulrush_objects_unconvertible_total",
                "Number of objects that could not be converted.",
            ),
            updates_coalesced: counter(
                "bulrush_updates_coalesced_total",
                "Updates that a lagging client did not need, because the key changed again.",
            ),
            catch_ups: counter(
                "bulrush_catch_ups_total",
                "Times a lagging client was given the difference of two maps.",
            ),
            feed_bytes: gauge("bulrush_feed_bytes", "Bytes of encoded deltas held for clients."),
            rounds: counter("bulrush_feed_rounds_total", "Rounds in which changes were published to clients."),
            oldest_client_updates: gauge(
                "bulrush_oldest_client_updates",
                "Updates that the client that is farthest behind does not have yet.",
            ),
            lost_wakeups: counter(
                "bulrush_lost_wakeups_total",
                "Times a client lagged though nothing kept it from being served, and was woken by housekeeping.",
            ),
            bytes_sent: counter("bulrush_bytes_sent_total", "Bytes written to clients."),
            datastore_age_secs: gauge(
                "bulrush_datastore_age_seconds",
                "Seconds since the datastore last vouched that nothing is missing, or since the start if it never has.",
            ),
            in_sync: gauge("bulrush_in_sync", "1 while the syncer is in sync, else 0."),
            connections_by_dialect: register(
                registry,
                IntGaugeVec::new(
                    opts("bulrush_dialect_connections", "Connections that have completed the handshake, by dialect."),
                    &["dialect"],
                )
                .expect("metric options in this table are valid"),
            ),
            problems: register(
                registry,
                IntGaugeVec::new(
                    opts("bulrush_problems", "Objects and values that are wrong now, so that clients do not get them."),
                    &["found_by", "kind"],
                )
                .expect("metric options in this table are valid"),
            ),
        }
    }

    /// Metrics in a registry of their own, for tests and tools that do not export them.
    #[must_use]
    pub fn unregistered(syncer: SyncerType) -> Self {
        Self::new(&Registry::new(), syncer)
    }
}

/// Metrics of the server as a whole.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// TCP connections accepted.
    pub connections_accepted: IntCounter,
    /// Connections alive, in handshake or later.
    pub connections_active: IntGauge,
    /// Connections that the governor dropped to rebalance.
    pub connections_dropped: IntCounter,
    /// Ours: connections that the governor allows at the moment.
    pub connections_limit: IntGauge,
    /// Ours: connections closed, by reason. The server begins the series of every reason when it is made.
    pub connections_closed: IntCounterVec,
    /// Ours: errors of `accept`.
    pub accept_errors: IntCounter,
}

impl ServerMetrics {
    /// Creates and registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let closed = Opts::new("bulrush_connections_closed_total", "Number of client connections closed, by reason.");
        let closed = IntCounterVec::new(closed, &["reason"]).expect("metric options in this table are valid");
        Self {
            connections_accepted: counter(
                registry,
                Opts::new("typha_connections_accepted", "Number of client connections accepted."),
            ),
            connections_active: gauge(
                registry,
                Opts::new("typha_connections_active", "Number of client connections open."),
            ),
            connections_dropped: counter(
                registry,
                Opts::new("typha_connections_dropped", "Number of client connections dropped to rebalance load."),
            ),
            connections_limit: gauge(
                registry,
                Opts::new("bulrush_connections_limit", "Number of client connections above which they are rebalanced."),
            ),
            connections_closed: register(registry, closed),
            accept_errors: counter(
                registry,
                Opts::new("bulrush_accept_errors_total", "Number of times accepting a connection failed."),
            ),
        }
    }
}

/// When certificates expire.
#[derive(Clone, Debug)]
pub struct CertificateMetrics {
    expiry: IntGaugeVec,
}

impl CertificateMetrics {
    /// Creates and registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let opts = Opts::new(
            "bulrush_certificate_expiry_timestamp_seconds",
            "When the first certificate of the file that an option names expires, in seconds since the epoch.",
        );
        let expiry = IntGaugeVec::new(opts, &["option"]).expect("metric options in this table are valid");
        Self { expiry: register(registry, expiry) }
    }

    /// Says when the first certificate of the file that `option` names expires, in seconds since the epoch. `None` says nothing.
    pub fn set(&self, option: &str, expiry: Option<i64>) {
        if let Some(expiry) = expiry {
            self.expiry.with_label_values(&[option]).set(expiry);
        }
    }
}

/// Metrics of the folder that is the datastore. Only then are they there.
#[derive(Clone, Debug)]
pub struct FolderMetrics {
    /// Errors in files now.
    pub errors: IntGauge,
    /// 1 while the content of the folder is not served, else 0.
    pub held: IntGauge,
}

impl FolderMetrics {
    /// Creates and registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let errors = "Number of things that are wrong with files of the folder now.";
        let held = "1 while the folder's content is not served as it is: a broken first load, a deletion to confirm, no folder.";
        Self {
            errors: gauge(registry, Opts::new("bulrush_folder_errors", errors)),
            held: gauge(registry, Opts::new("bulrush_folder_held", held)),
        }
    }
}

/// Metrics of the log.
#[derive(Clone, Debug)]
pub struct LogMetrics {
    /// Log lines dropped because a destination was too slow.
    pub logs_dropped: IntCounter,
    /// Log lines that could not be written.
    pub log_errors: IntCounter,
}

impl LogMetrics {
    /// Creates and registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self {
            logs_dropped: counter(registry, Opts::new("typha_logs_dropped", "Number of log lines dropped.")),
            log_errors: counter(registry, Opts::new("typha_log_errors", "Number of errors writing log lines.")),
        }
    }
}
