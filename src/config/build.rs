//! Makes the [`Config`] from options that have been checked.
//!
//! Fed by [`super::load`], which has resolved every option of the table. Cannot fail: what does not go together was a mistake
//! before.

use std::path::PathBuf;
use std::time::Duration;

use super::parse::Value;
use super::{
    Config, ConnectionsConfig, DatastoreConfig, DatastoreType, DebugConfig, EtcdConfig, FileConfig, HealthConfig,
    LogFormat, LoggingConfig, MetricsClientAuth, MetricsConfig, MetricsTlsConfig, Rebalancing, Resolved, ServerConfig,
    Severity, TlsConfig, TlsVersion,
};
use crate::datastore::kubernetes::KubernetesConfig;

impl Config {
    /// Makes the configuration from checked options.
    pub(super) fn new(options: &[Resolved], kubernetes: KubernetesConfig) -> Self {
        let get = Lookup { options };
        let min_version = if get.text("TLS_MIN_VERSION") == "1.3" { TlsVersion::V1_3 } else { TlsVersion::V1_2 };
        let cipher_suites = get.text("TLS_CIPHER_SUITES");
        Self {
            datastore: datastore(get, kubernetes),
            logging: logging(get),
            health: HealthConfig {
                enabled: get.bool("HealthEnabled"),
                host: get.text("HealthHost"),
                port: get.port("HealthPort"),
                status: get.bool("StatusEnabled"),
                status_remote: get.bool("StatusRemoteEnabled"),
            },
            metrics: MetricsConfig {
                enabled: get.bool("PrometheusMetricsEnabled"),
                host: get.text("PrometheusMetricsHost"),
                port: get.port("PrometheusMetricsPort"),
                process: get.bool("PrometheusProcessMetricsEnabled"),
                tls: metrics_tls(get, min_version, &cipher_suites),
            },
            server: server(get),
            tls: tls(get, min_version, &cipher_suites),
            connections: connections(get),
            debug: DebugConfig {
                host: get.text("DebugHost"),
                port: Some(get.port("DebugPort")).filter(|port| *port != 0),
                memory_profile_path: get.path("DebugMemoryProfilePath"),
            },
            worker_threads: Some(get.count("WorkerThreads")).filter(|threads| *threads != 0),
        }
    }
}

fn datastore(get: Lookup<'_>, kubernetes: KubernetesConfig) -> DatastoreConfig {
    let mut endpoints = get.list("EtcdEndpoints");
    if endpoints.is_empty() {
        endpoints.push(format!("{}://{}", get.text("EtcdScheme"), get.text("EtcdAddr")));
    }
    DatastoreConfig {
        datastore_type: match get.text("DatastoreType").as_str() {
            "kubernetes" => DatastoreType::Kubernetes,
            "file" => DatastoreType::File,
            _ => DatastoreType::Etcdv3,
        },
        etcd: EtcdConfig {
            endpoints,
            key_file: get.path("EtcdKeyFile"),
            cert_file: get.path("EtcdCertFile"),
            ca_file: get.path("EtcdCaFile"),
        },
        kubernetes,
        file: FileConfig {
            path: get.path("DatastorePath"),
            quiet: get.duration("FileQuietSecs"),
            serve_incomplete: get.bool("FileServeIncomplete"),
        },
        read_only: get.bool("DatastoreReadOnly"),
    }
}

fn logging(get: Lookup<'_>) -> LoggingConfig {
    let severity = |name| Severity::from_name(&get.text(name));
    LoggingConfig {
        screen: severity("LogSeverityScreen"),
        file: severity("LogSeverityFile"),
        file_path: get.path("LogFilePath"),
        sys: severity("LogSeveritySys"),
        format: if get.text("LogFormat") == "json" { LogFormat::Json } else { LogFormat::Text },
        disable_dropping: get.bool("DebugDisableLogDropping"),
    }
}

fn metrics_tls(get: Lookup<'_>, min_version: TlsVersion, cipher_suites: &str) -> Option<MetricsTlsConfig> {
    Some(MetricsTlsConfig {
        cert_file: get.path("PrometheusMetricsCertFile")?,
        key_file: get.path("PrometheusMetricsKeyFile")?,
        ca_file: get.path("PrometheusMetricsCAFile")?,
        client_auth: MetricsClientAuth::ALL
            .into_iter()
            .find(|mode| mode.as_str() == get.text("PrometheusMetricsClientAuth"))
            .unwrap_or(MetricsClientAuth::NoClientCert),
        min_version,
        cipher_suites: cipher_suites.to_owned(),
    })
}

fn server(get: Lookup<'_>) -> ServerConfig {
    ServerConfig {
        host: get.text("ServerHost"),
        port: get.port("ServerPort"),
        max_batch_size: get.count("SnapshotCacheMaxBatchSize"),
        max_message_size: get.count("ServerMaxMessageSize"),
        min_batching_age: get.duration("ServerMinBatchingAgeThresholdSecs"),
        max_fall_behind: get.duration("ServerMaxFallBehindSecs"),
        new_client_grace: get.duration("ServerNewClientFallBehindGracePeriod"),
        ping_interval: get.duration("ServerPingIntervalSecs"),
        pong_timeout: get.duration("ServerPongTimeoutSecs"),
        handshake_timeout: get.duration("ServerHandshakeTimeoutSecs"),
        write_timeout: get.duration("ServerWriteTimeoutSecs"),
        max_lag_bytes: get.count("ServerMaxLagBytes"),
        max_lag_updates: get.count("ServerMaxLagUpdates"),
        snapshot_max_age: get.duration("SnapshotMaxAgeSecs"),
        send_buffer: Some(get.count("ServerSendBufferBytes")).filter(|bytes| *bytes != 0),
        max_handshakes: get.count("ServerMaxHandshakes"),
        pace_max: get.duration("ServerPaceMaxSecs"),
        of_unknown_versions: get.text("ServerUnknownVersionDialect").parse().unwrap_or_default(),
    }
}

fn tls(get: Lookup<'_>, min_version: TlsVersion, cipher_suites: &str) -> Option<TlsConfig> {
    Some(TlsConfig {
        key_file: get.path("ServerKeyFile")?,
        cert_file: get.path("ServerCertFile")?,
        ca_file: get.path("CAFile")?,
        client_cn: get.some_text("ClientCN"),
        client_uri_san: get.some_text("ClientURISAN"),
        min_version,
        cipher_suites: cipher_suites.to_owned(),
    })
}

fn connections(get: Lookup<'_>) -> ConnectionsConfig {
    let rebalancing = (get.text("ConnectionRebalancingMode") == "kubernetes").then(|| Rebalancing {
        poll_interval: get.duration("K8sServicePollIntervalSecs"),
        namespace: get.text("K8sNamespace"),
        service: get.text("K8sServiceName"),
        port_name: get.text("K8sPortName"),
    });
    ConnectionsConfig {
        upper_limit: get.count("MaxConnectionsUpperLimit"),
        lower_limit: get.count("MaxConnectionsLowerLimit"),
        drop_interval: get.duration("ConnectionDropIntervalSecs"),
        shutdown_timeout: get.duration("ShutdownTimeoutSecs"),
        shutdown_drop_interval_max: get.duration("ShutdownConnectionDropIntervalMaxSecs"),
        rebalancing,
    }
}

/// Finds options by name. Every use is with a name and kind of the table, which a test runs through.
#[derive(Clone, Copy)]
struct Lookup<'a> {
    options: &'a [Resolved],
}

impl Lookup<'_> {
    fn value(&self, name: &str) -> &Value {
        let found = self.options.iter().find(|option| option.spec.name == name);
        &found.expect("names in this file are in the option table").value
    }

    fn bool(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Bool(true))
    }

    fn count(&self, name: &str) -> usize {
        match self.value(name) {
            Value::Int(number) => usize::try_from(*number).unwrap_or(0),
            _ => unreachable!("{name} is a whole number in the option table"),
        }
    }

    fn port(&self, name: &str) -> u16 {
        u16::try_from(self.count(name)).expect("the table bounds ports")
    }

    fn duration(&self, name: &str) -> Duration {
        match self.value(name) {
            Value::Seconds(seconds) => Duration::from_secs_f64(seconds.max(0.0)),
            _ => unreachable!("{name} is a number of seconds in the option table"),
        }
    }

    fn text(&self, name: &str) -> String {
        match self.value(name) {
            Value::Text(text) => text.clone(),
            _ => unreachable!("{name} is a text in the option table"),
        }
    }

    fn some_text(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.some_text(name).map(PathBuf::from)
    }

    fn list(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Value::List(list) => list.clone(),
            _ => unreachable!("{name} is a list in the option table"),
        }
    }
}
