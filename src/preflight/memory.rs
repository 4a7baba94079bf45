//! An estimate of the memory that one replica needs when it serves the whole cluster.

use super::json::text;
use super::kinds::Counts;
use super::options::Settings;
use super::report::Report;
use super::typha::Installed;
use crate::model::quantity::bytes;
use crate::sizing;

pub(super) fn check(installed: Option<&Installed>, settings: &Settings, counts: &Counts, report: &mut Report) {
    let keys: u64 = counts.values().map(|count| *count as u64).sum();
    let Some(nodes) = counts.get("nodes").map(|nodes| *nodes as u64) else {
        report.note("memory", "no estimate: the nodes were not counted");
        return;
    };
    let estimate = sizing::memory(keys, nodes, settings.uses_tls());
    report.fact("memory_estimate_bytes", estimate);
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let text_of = format!(
        "some {} MiB at the peak of a start, if one replica serves all {nodes} nodes ({keys} objects)",
        mib(estimate)
    );
    let limit = installed.map(|installed| text(installed.container(), "/resources/limits/memory")).unwrap_or_default();
    match bytes(limit) {
        Some(limit) if limit < estimate => report
            .obstacle("memory", format!("{text_of}; the container's limit is {} MiB", mib(limit)))
            .remedy(installed.map_or_else(String::new, |installed| {
                let (namespace, name) = (&installed.namespace, &installed.name);
                format!(
                    "kubectl -n {namespace} set resources deployment {name} --limits=memory={}Mi",
                    2 * mib(estimate)
                )
            })),
        Some(limit) => report.ok("memory", format!("{text_of}; the container's limit is {} MiB", mib(limit))),
        None => report.ok("memory", format!("{text_of}; the container has no limit")),
    };
}
