//! Options of the cache, the server and its connections.

use crate::config::options::Options;
use crate::config::server::{PACE_PER_CLIENT, RANDOM_SEED};
use crate::config::spec::Group;
use crate::config::{CacheConfig, ConnectionsConfig, Rebalancing, ServerConfig};
use crate::datastore::kubernetes::KubernetesConfig;
use crate::replicas::Service;

/// The cache, the server, and the sharing of connections among instances.
pub(super) fn read(
    options: &mut Options<'_>,
    kubernetes: &KubernetesConfig,
) -> (CacheConfig, ServerConfig, ConnectionsConfig) {
    options.begin(Group::Connections);
    let max_connections = options
        .count("MaxConnectionsUpperLimit", "10000", "Most connections that are kept; none means no limit.")
        .unit("connections")
        .zero_means("2147483647")
        .read();
    let lower_limit = options
        .count("MaxConnectionsLowerLimit", "400", "Rebalancing never goes below this many connections.")
        .unit("connections")
        .read();
    let mode = options
        .word(
            "ConnectionRebalancingMode",
            &["none", "kubernetes"],
            "none",
            "Whether connections are shared out among the instances that the Kubernetes API lists.",
        )
        .read();
    let drop_interval = options
        .seconds(
            "ConnectionDropIntervalSecs",
            "1",
            "Pause between two connections that are dropped because there are too many.",
        )
        .zero_means("1")
        .read();
    let shutdown_timeout = options
        .seconds("ShutdownTimeoutSecs", "300", "Time in which all connections are closed after SIGTERM.")
        .zero_means("300")
        .read();
    let shutdown_drop_interval_max = options
        .seconds(
            "ShutdownConnectionDropIntervalMaxSecs",
            "1",
            "Longest pause between two connections that are closed after SIGTERM.",
        )
        .zero_means("1")
        .read();
    let rebalancing = Rebalancing {
        poll_interval: options
            .seconds("K8sServicePollIntervalSecs", "30", "How often the instances are counted for rebalancing.")
            .read(),
        service: Service {
            namespace: options
                .text("K8sNamespace", "kube-system", "Namespace of the service whose endpoints are the instances.")
                .read(),
            name: options.text("K8sServiceName", "calico-typha", "Name of that service.").read(),
            port_name: options.text("K8sPortName", "calico-typha", "Name of that service's port.").read(),
        },
        kubernetes: kubernetes.clone(),
    };
    let connections =
        ConnectionsConfig { lower_limit, rebalancing: Some(rebalancing).filter(|_| mode == "kubernetes") };

    options.begin(Group::Server);
    let host = options.host("ServerHost", "", "Address that agents connect to; empty means all, IPv4 and IPv6.").read();
    let port = options.port("ServerPort", "0", "Port that agents connect to; 0 means 5473.").zero_means("5473").read();
    let cache = CacheConfig {
        max_batch_size: options
            .count("SnapshotCacheMaxBatchSize", "100", "Most updates in one step of the cache's history.")
            .unit("updates")
            .zero_means("100")
            .read(),
    };
    let server = ServerConfig {
        host,
        port,
        max_message_size: options
            .count(
                "ServerMaxMessageSize",
                "100",
                "How many updates a message to an agent holds before the next one is begun.",
            )
            .unit("updates")
            .zero_means("100")
            .read(),
        min_batching_age: options
            .seconds(
                "ServerMinBatchingAgeThresholdSecs",
                "0.01",
                "Without a pace (ServerPaceMaxSecs = 0): how far behind an agent must be before steps are joined into larger messages for it. With a pace, all steps of a round are joined.",
            )
            .zero_means("0.1")
            .read(),
        max_fall_behind: options
            .seconds(
                "ServerMaxFallBehindSecs",
                "300",
                "How far an agent may fall behind before it is disconnected.",
            )
            .zero_means("300")
            .read(),
        new_client_grace: options
            .seconds(
                "ServerNewClientFallBehindGracePeriod",
                "300",
                "For how long after its snapshot an agent may be further behind than that.",
            )
            .zero_means("300")
            .read(),
        ping_interval: options
            .seconds("ServerPingIntervalSecs", "10", "How often an agent is asked for a sign of life.")
            .zero_means("10")
            .read(),
        pong_timeout: options
            .seconds(
                "ServerPongTimeoutSecs",
                "60",
                "How long an agent may give no sign of life. A value of at most twice the ping interval counts as six times the ping interval.",
            )
            .read(),
        handshake_timeout: options
            .seconds("ServerHandshakeTimeoutSecs", "10", "How long an agent may take to introduce itself.")
            .zero_means("10")
            .read(),
        write_timeout: options
            .seconds("ServerWriteTimeoutSecs", "120", "How long a write to an agent may make no progress.")
            .zero_means("120")
            .read(),
        max_lag_bytes: options
            .count(
                "ServerMaxLagBytes",
                "16777216",
                "Most bytes of encoded history kept for agents that lag. An agent that lags further gets only the newest values.",
            )
            .unit("bytes")
            .zero_means("16777216")
            .ours()
            .read(),
        max_lag_updates: options
            .count(
                "ServerMaxLagUpdates",
                "100000",
                "Most updates of history kept for agents that lag. An agent that lags further gets only the newest values.",
            )
            .unit("updates")
            .zero_means("100000")
            .ours()
            .read(),
        snapshot_max_age: options
            .seconds(
                "SnapshotMaxAgeSecs",
                "5",
                "For how long an encoded snapshot that is outdated is still given to further agents, which then catch up.",
            )
            .zero_means("5")
            .ours()
            .read(),
        pace_max: options
            .seconds(
                "ServerPaceMaxSecs",
                "0.25",
                "How long changes may wait under load to be sent together; with few agents it is far less (16 to 24 ms with 500). A change after silence never waits; with 0, no change waits.",
            )
            .ours()
            .read(),
        of_unknown_versions: options
            .word(
                "ServerUnknownVersionDialect",
                &["auto", "refuse", "v3.26", "v3.27", "v3.28", "v3.29", "v3.30", "v3.31"],
                "auto",
                "Release of Calico assumed for agents that do not know the policy keys of 3.32 and whose version has no number (private builds): auto is the release in the cluster's ClusterInformation if it is older than 3.32, else v3.31.",
            )
            .ours()
            .read()
            .parse()
            .unwrap_or_default(),
        send_buffer: Some(
            options
                .count(
                    "ServerSendBufferBytes",
                    "262144",
                    "Size of the system's send buffer of each connection; 0 leaves it to the system.",
                )
                .bounds(0, i32::MAX)
                .unit("bytes")
                .ours()
                .read(),
        )
        .filter(|bytes| *bytes != 0),
        max_handshakes: options
            .count(
                "ServerMaxHandshakes",
                "1024",
                "Most connections that may be introducing themselves at once; further ones wait to be accepted.",
            )
            .unit("connections")
            .zero_means("1024")
            .ours()
            .read(),
        max_connections,
        drop_interval,
        shutdown_timeout,
        shutdown_drop_interval_max,
        pace_per_client: PACE_PER_CLIENT,
        pumps: None,
        seed: RANDOM_SEED,
    };
    (cache, server, connections)
}

/// Number of worker threads; `None`: one for each processor that the process may use.
pub(super) fn worker_threads(options: &mut Options<'_>) -> Option<usize> {
    options.begin(Group::Server);
    let threads = options
        .count(
            "WorkerThreads",
            "0",
            "Threads that take changes from the datastore to agents, and the same number again for requests of agents (handshakes, snapshots); 0 means one for each processor that the process may use.",
        )
        .bounds(0, 1024)
        .unit("threads")
        .ours()
        .read();
    Some(threads).filter(|threads| *threads != 0)
}
