//! Options of the health, metrics and debug endpoints.

use std::path::PathBuf;

use crate::config::options::Options;
use crate::config::spec::Group;
use crate::config::{DebugConfig, HealthConfig, MetricsClientAuth, MetricsConfig, MetricsTlsConfig, TlsVersion};

pub(super) fn health(options: &mut Options<'_>) -> HealthConfig {
    options.begin(Group::Health);
    HealthConfig {
        enabled: options
            .boolean("HealthEnabled", "false", "Serve /liveness and /readiness (and /status, ours) over HTTP.")
            .read(),
        host: options.host("HealthHost", "localhost", "Address of the health endpoint; none means all.").read(),
        port: options.port("HealthPort", "9098", "Port of the health endpoint; 0 takes a free one.").read(),
        status: options
            .boolean(
                "StatusEnabled",
                "true",
                "Serve /status, which names connected clients, on the health endpoint, to those who ask from the same host or pod. The debug port always has it.",
            )
            .ours()
            .read(),
        status_remote: options
            .boolean(
                "StatusRemoteEnabled",
                "false",
                "Serve /status on the health endpoint to other hosts and pods, too.",
            )
            .ours()
            .read(),
    }
}

/// The metrics endpoint. Its TLS has the versions and suites of the server's TLS.
pub(super) fn metrics(options: &mut Options<'_>, min_version: TlsVersion, cipher_suites: &str) -> MetricsConfig {
    options.begin(Group::Metrics);
    let enabled = options.boolean("PrometheusMetricsEnabled", "false", "Serve /metrics.").read();
    let host = options.host("PrometheusMetricsHost", "", "Address of the metrics endpoint; empty means all.").read();
    let port =
        options.port("PrometheusMetricsPort", "9093", "Port of the metrics endpoint; 0 takes a free one.").read();
    let _ = options
        .boolean(
            "PrometheusGoMetricsEnabled",
            "true",
            "Accepted for Typha's sake and without effect: there is no Go runtime to measure.",
        )
        .read();
    let process = options
        .boolean("PrometheusProcessMetricsEnabled", "true", "Include process_* (CPU, memory, file descriptors).")
        .read();
    let cert_file = options
        .optional_text(
            "PrometheusMetricsCertFile",
            "Certificate of the metrics endpoint, PEM. With it, the endpoint is HTTPS, and key and CA are required too.",
        )
        .read();
    let key_file =
        options.optional_text("PrometheusMetricsKeyFile", "Private key of the metrics endpoint, PEM.").read();
    let ca_file = options
        .optional_text("PrometheusMetricsCAFile", "Authorities for client certificates at the metrics endpoint, PEM.")
        .read();
    let client_auth = options
        .word(
            "PrometheusMetricsClientAuth",
            &["RequireAndVerifyClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "NoClientCert"],
            "NoClientCert",
            "Whether scrapers must show a certificate.",
        )
        .zero_means("NoClientCert")
        .read();
    let tls = cert_file.zip(key_file).zip(ca_file).map(|((cert_file, key_file), ca_file)| MetricsTlsConfig {
        cert_file: PathBuf::from(cert_file),
        key_file: PathBuf::from(key_file),
        ca_file: PathBuf::from(ca_file),
        client_auth: match client_auth.as_str() {
            "RequireAndVerifyClientCert" => MetricsClientAuth::RequireAndVerifyClientCert,
            "RequireAnyClientCert" => MetricsClientAuth::RequireAnyClientCert,
            "VerifyClientCertIfGiven" => MetricsClientAuth::VerifyClientCertIfGiven,
            _ => MetricsClientAuth::NoClientCert,
        },
        min_version,
        cipher_suites: cipher_suites.to_owned(),
    });
    MetricsConfig { enabled, host, port, process, tls }
}

pub(super) fn debug(options: &mut Options<'_>) -> DebugConfig {
    options.begin(Group::Debug);
    DebugConfig {
        host: options
            .host(
                "DebugHost",
                "localhost",
                "Address of the debug port. It asks for no password: anything but localhost is a risk.",
            )
            .read(),
        port: Some(
            options
                .port(
                    "DebugPort",
                    "0",
                    "Port for profiles, the list of tasks, the log level and the status; 0 means off.",
                )
                .read(),
        )
        .filter(|port| *port != 0),
        memory_profile_path: options
            .file(
                "DebugMemoryProfilePath",
                "",
                "Where SIGUSR1 writes a heap profile; <timestamp> in it becomes the time.",
            )
            .read(),
    }
}
