//! The metrics page as a whole: Typha's names, types and labels, all there from the start.

use crate::calico::syncers;
use prometheus::{Registry, TextEncoder};

use super::*;

/// The metrics of section 2.7 of Typha's behaviour: name, type, whether it has the label `syncer`.
const TYPHAS: &[(&str, &str, bool)] = &[
    ("typha_breadcrumb_block", "counter", true),
    ("typha_breadcrumb_non_block", "counter", true),
    ("typha_breadcrumb_seq_number", "gauge", true),
    ("typha_breadcrumb_size", "summary", true),
    ("typha_cache_size", "gauge", true),
    ("typha_client_latency_secs", "summary", true),
    ("typha_client_snapshot_send_secs", "summary", true),
    ("typha_client_write_latency_secs", "summary", true),
    ("typha_connections_accepted", "counter", false),
    ("typha_connections_active", "gauge", false),
    ("typha_connections_dropped", "counter", false),
    ("typha_connections_grace_used", "counter", true),
    ("typha_connections_streaming", "gauge", true),
    ("typha_kvs_per_msg", "summary", true),
    ("typha_log_errors", "counter", false),
    ("typha_logs_dropped", "counter", false),
    ("typha_next_breadcrumb_latency_secs", "summary", true),
    ("typha_ping_latency", "summary", true),
    ("typha_snapshot_compressed_bytes", "gauge", true),
    ("typha_snapshot_raw_bytes", "gauge", true),
    ("typha_snapshots_generated", "counter", true),
    ("typha_snapshots_reused", "counter", true),
    ("typha_updates_skipped", "counter", true),
    ("typha_updates_total", "counter", true),
];

#[test]
fn all_of_typhas_series_are_there_from_the_start() {
    let registry = Registry::new();
    let _server = ServerMetrics::new(&registry);
    let _log = LogMetrics::new(&registry);
    let _syncers = syncers::ALL.map(|syncer| SyncerMetrics::new(&registry, syncer.as_str()));
    let page = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let lines: Vec<&str> = page.lines().collect();
    let types: Vec<String> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("# TYPE typha_"))
        .map(|rest| format!("typha_{rest}"))
        .collect();
    let expected: Vec<String> = TYPHAS.iter().map(|(name, kind, _)| format!("{name} {kind}")).collect();
    assert_eq!(types, expected);
    for (name, kind, per_syncer) in TYPHAS {
        let suffix = if *kind == "summary" { "_count" } else { "" };
        let labels: Vec<String> = if *per_syncer {
            syncers::ALL.iter().map(|syncer| format!("{{syncer=\"{syncer}\"}}")).collect()
        } else {
            vec![String::new()]
        };
        for labels in labels {
            let series = format!("{name}{suffix}{labels} 0");
            assert!(lines.contains(&series.as_str()), "{series} is missing");
        }
        if *kind == "summary" {
            for quantile in ["0.5", "0.9", "0.99"] {
                let series = format!("{name}{{syncer=\"felix\",quantile=\"{quantile}\"}} NaN");
                assert!(lines.contains(&series.as_str()), "{series} is missing");
            }
        }
    }
}

/// An alert on a counter's increase needs the series before the first burst. The label `kind` names kinds of existing objects,
/// so its series cannot be there before them.
#[test]
fn ours_are_there_from_the_start_too() {
    let registry = Registry::new();
    let _syncers = syncers::ALL.map(|syncer| SyncerMetrics::new(&registry, syncer.as_str()));
    let page = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for syncer in syncers::ALL {
        for name in ["bulrush_in_sync", "bulrush_datastore_age_seconds", "bulrush_objects_unconvertible_total"] {
            let series = format!("{name}{{syncer=\"{syncer}\"}} 0");
            assert!(page.lines().any(|line| line == series), "{series} is missing");
        }
    }
    assert!(!page.contains("bulrush_problems"), "there are none");
}

#[test]
fn the_process_is_measured() {
    let registry = Registry::new();
    register_process_metrics(&registry).unwrap();
    let page = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        assert!(page.contains(&format!("\n{name} ")), "{name} is missing");
    }
}
