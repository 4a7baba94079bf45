//! Options of the health and metrics endpoints.

use super::{BOOL, PORT};
use crate::config::spec::{Group, Kind, OptionSpec, Zero};

pub(super) const OPTIONS: &[OptionSpec] = &[
    // Health
    OptionSpec::new(
        Group::Health,
        "HealthEnabled",
        BOOL,
        "false",
        "Serve /liveness and /readiness (and /status, ours) over HTTP.",
    ),
    OptionSpec::new(
        Group::Health,
        "HealthHost",
        Kind::HostAddress,
        "localhost",
        "Address of the health endpoint; none means all.",
    ),
    OptionSpec::new(Group::Health, "HealthPort", PORT, "9098", "Port of the health endpoint; 0 takes a free one."),
    OptionSpec::new(
        Group::Health,
        "StatusEnabled",
        BOOL,
        "true",
        "Serve /status, which names connected clients, on the health endpoint, to those who ask from the same host or pod. The debug port always has it.",
    )
    .ours(),
    OptionSpec::new(
        Group::Health,
        "StatusRemoteEnabled",
        BOOL,
        "false",
        "Serve /status on the health endpoint to other hosts and pods, too.",
    )
    .ours(),
    // Metrics
    OptionSpec::new(Group::Metrics, "PrometheusMetricsEnabled", BOOL, "false", "Serve /metrics."),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusMetricsHost",
        Kind::HostAddress,
        "",
        "Address of the metrics endpoint; empty means all.",
    ),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusMetricsPort",
        PORT,
        "9093",
        "Port of the metrics endpoint; 0 takes a free one.",
    ),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusGoMetricsEnabled",
        BOOL,
        "true",
        "Accepted for Typha's sake and without effect: there is no Go runtime to measure.",
    ),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusProcessMetricsEnabled",
        BOOL,
        "true",
        "Include process_* (CPU, memory, file descriptors).",
    ),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusMetricsCertFile",
        Kind::Text,
        "",
        "Certificate of the metrics endpoint, PEM. With it, the endpoint is HTTPS, and key and CA are required too.",
    ),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusMetricsKeyFile",
        Kind::Text,
        "",
        "Private key of the metrics endpoint, PEM.",
    ),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusMetricsCAFile",
        Kind::Text,
        "",
        "Authorities for client certificates at the metrics endpoint, PEM.",
    ),
    OptionSpec::new(
        Group::Metrics,
        "PrometheusMetricsClientAuth",
        Kind::OneOf(&["RequireAndVerifyClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "NoClientCert"]),
        "NoClientCert",
        "Whether scrapers must show a certificate.",
    )
    .zero(Zero::Becomes("NoClientCert")),
];
