//! Closed connections, counted by their reason.

use std::collections::BTreeSet;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;

use super::harness::*;
use crate::syncserver::CloseReason;

/// An alert takes the increase of a series, so the series has to exist before the first burst.
#[tokio::test(start_paused = true)]
async fn every_reason_has_its_series_before_any_connection_came() {
    let world = World::new(config());
    // Asked of the metric as a whole: asking for a series by its label would begin it.
    let families = world.server_metrics.connections_closed.collect();
    let series = families.iter().flat_map(MetricFamily::get_metric);
    let begun: BTreeSet<&str> = series.map(|one| one.get_label()[0].value()).collect();
    assert_eq!(begun, BTreeSet::from(CloseReason::LABELS));
    assert!(CloseReason::LABELS.iter().all(|label| world.closed(label) == 0), "no connection came");
}
