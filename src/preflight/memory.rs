//! An estimate of the memory that one replica needs when it serves the whole cluster.

use super::kinds::Counts;
use super::options::Settings;
use super::report::{Report, Verdict};
use super::text;
use super::typha::Installed;
use crate::model::quantity::bytes;

/// The formula of docs/operations.md under "Sizing", whose figures are measured there: the process itself,
const BASE: u64 = 20 << 20;
/// each key at the peak of a start,
const PER_KEY: u64 = 3 << 9;
/// each connection without TLS
const PER_CONNECTION: u64 = 3 << 10;
/// and with it.
const PER_TLS_CONNECTION: u64 = 11 << 10;
/// Connections of one node: a syncer for Felix, one each for confd, the tunnel addresses and the node's status.
const PER_NODE: u64 = 4;

pub(super) fn check(installed: Option<&Installed>, settings: &Settings, counts: &Counts, report: &mut Report) {
    let keys: u64 = counts.values().map(|count| *count as u64).sum();
    let Some(nodes) = counts.get("nodes").map(|nodes| *nodes as u64) else {
        report.add("memory", Verdict::Note, "no estimate: the nodes were not counted");
        return;
    };
    let estimate = estimate(keys, nodes * PER_NODE, settings.uses_tls());
    report.fact("memory_estimate_bytes", estimate);
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let text_of = format!(
        "some {} MiB at the peak of a start, if one replica serves all {nodes} nodes ({keys} objects)",
        mib(estimate)
    );
    let limit = installed.map(|installed| text(installed.container(), "/resources/limits/memory")).unwrap_or_default();
    match bytes(limit) {
        Some(limit) if limit < estimate => report.advise(
            "memory",
            Verdict::Obstacle,
            format!("{text_of}; the container's limit is {} MiB", mib(limit)),
            installed.map_or_else(String::new, |installed| {
                let (namespace, name) = (&installed.namespace, &installed.name);
                format!(
                    "kubectl -n {namespace} set resources deployment {name} --limits=memory={}Mi",
                    2 * mib(estimate)
                )
            }),
        ),
        Some(limit) => {
            report.add("memory", Verdict::Ok, format!("{text_of}; the container's limit is {} MiB", mib(limit)))
        }
        None => report.add("memory", Verdict::Ok, format!("{text_of}; the container has no limit")),
    }
}

fn estimate(keys: u64, connections: u64, tls: bool) -> u64 {
    BASE + keys * PER_KEY + connections * if tls { PER_TLS_CONNECTION } else { PER_CONNECTION }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of docs/operations.md.
    #[test]
    fn the_estimate_is_that_of_the_sizing_text() {
        assert_eq!(estimate(33_000, 4_000, false) >> 20, 80);
        assert_eq!(estimate(0, 1, true) - estimate(0, 0, true), 11 << 10);
    }
}
