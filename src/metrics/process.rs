//! `process_*`: CPU time, memory, file descriptors, threads and start time, as the `prometheus` crate reads them from the
//! system. There is no Go runtime, hence no `go_*`.

use prometheus::Registry;
use prometheus::process_collector::ProcessCollector;

/// Adds the metrics of this process to a registry.
///
/// # Errors
/// When the registry has them already.
pub fn register_process_metrics(registry: &Registry) -> prometheus::Result<()> {
    registry.register(Box::new(ProcessCollector::for_self()))
}
