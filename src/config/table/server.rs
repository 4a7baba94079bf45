//! Options of the cache and the server, of TLS, of connections and of debugging.

use super::{ANY_COUNT, COUNT, EXISTING_FILE, FILE, PORT};
use crate::config::spec::{Group, Kind, OptionSpec, Zero};

pub(super) const OPTIONS: &[OptionSpec] = &[
    // Cache and server
    OptionSpec::new(
        Group::Server,
        "ServerHost",
        Kind::HostAddress,
        "",
        "Address that agents connect to; empty means all, IPv4 and IPv6.",
    ),
    OptionSpec::new(Group::Server, "ServerPort", PORT, "0", "Port that agents connect to; 0 means 5473.")
        .zero(Zero::Becomes("5473")),
    OptionSpec::new(
        Group::Server,
        "SnapshotCacheMaxBatchSize",
        COUNT,
        "100",
        "Most updates in one step of the cache's history.",
    )
    .unit("updates")
    .zero(Zero::Becomes("100")),
    OptionSpec::new(
        Group::Server,
        "ServerMaxMessageSize",
        COUNT,
        "100",
        "How many updates a message to an agent holds before the next one is begun.",
    )
    .unit("updates")
    .zero(Zero::Becomes("100")),
    OptionSpec::new(
        Group::Server,
        "ServerMinBatchingAgeThresholdSecs",
        Kind::Seconds,
        "0.01",
        "Without a pace (ServerPaceMaxSecs = 0): how far behind an agent must be before steps are joined into larger messages for it. With one, all steps of a round are.",
    )
    .zero(Zero::Becomes("0.1")),
    OptionSpec::new(
        Group::Server,
        "ServerMaxFallBehindSecs",
        Kind::Seconds,
        "300",
        "How far an agent may fall behind before it is disconnected.",
    )
    .zero(Zero::Becomes("300")),
    OptionSpec::new(
        Group::Server,
        "ServerNewClientFallBehindGracePeriod",
        Kind::Seconds,
        "300",
        "For how long after its snapshot an agent may be further behind than that.",
    )
    .zero(Zero::Becomes("300")),
    OptionSpec::new(
        Group::Server,
        "ServerPingIntervalSecs",
        Kind::Seconds,
        "10",
        "How often an agent is asked for a sign of life.",
    )
    .zero(Zero::Becomes("10")),
    OptionSpec::new(
        Group::Server,
        "ServerPongTimeoutSecs",
        Kind::Seconds,
        "60",
        "How long an agent may go without one. At most twice the ping interval counts as six times the ping interval.",
    ),
    OptionSpec::new(
        Group::Server,
        "ServerHandshakeTimeoutSecs",
        Kind::Seconds,
        "10",
        "How long an agent may take to introduce itself.",
    )
    .zero(Zero::Becomes("10")),
    OptionSpec::new(
        Group::Server,
        "ServerWriteTimeoutSecs",
        Kind::Seconds,
        "120",
        "How long a write to an agent may make no progress.",
    )
    .zero(Zero::Becomes("120")),
    OptionSpec::new(
        Group::Server,
        "ServerMaxLagBytes",
        COUNT,
        "16777216",
        "Most bytes of encoded history kept for agents that lag. Whoever lags further gets only the newest values.",
    )
    .unit("bytes")
    .zero(Zero::Becomes("16777216"))
    .ours(),
    OptionSpec::new(
        Group::Server,
        "ServerMaxLagUpdates",
        COUNT,
        "100000",
        "Most updates of history kept for agents that lag. Whoever lags further gets only the newest values.",
    )
    .unit("updates")
    .zero(Zero::Becomes("100000"))
    .ours(),
    OptionSpec::new(
        Group::Server,
        "SnapshotMaxAgeSecs",
        Kind::Seconds,
        "5",
        "For how long an encoded snapshot that is outdated is still given to further agents, which then catch up.",
    )
    .zero(Zero::Becomes("5"))
    .ours(),
    OptionSpec::new(
        Group::Server,
        "ServerPaceMaxSecs",
        Kind::Seconds,
        "0.25",
        "How long changes may wait under load to be sent together; with few agents it is far less (16 to 24 ms with 500). A change after silence never waits; 0: none does.",
    )
    .ours(),
    OptionSpec::new(
        Group::Server,
        "ServerUnknownVersionDialect",
        Kind::OneOf(&["auto", "refuse", "v3.26", "v3.27", "v3.28", "v3.29", "v3.30", "v3.31"]),
        "auto",
        "The release of Calico as whose agents those are served that do not know the policy keys of 3.32 and whose version has no number (private builds): auto is that of the cluster's ClusterInformation if it is older than 3.32, else v3.31.",
    )
    .ours(),
    OptionSpec::new(
        Group::Server,
        "ServerSendBufferBytes",
        ANY_COUNT,
        "262144",
        "Size of the system's send buffer of each connection; 0 leaves it to the system.",
    )
    .unit("bytes")
    .ours(),
    OptionSpec::new(
        Group::Server,
        "ServerMaxHandshakes",
        COUNT,
        "1024",
        "Most connections that may be introducing themselves at once; further ones wait to be accepted.",
    )
    .unit("connections")
    .zero(Zero::Becomes("1024"))
    .ours(),
    OptionSpec::new(
        Group::Server,
        "WorkerThreads",
        Kind::Int { min: 0, max: 1024 },
        "0",
        "Threads that take changes from the datastore to agents, and as many again for what agents ask for (handshakes, snapshots); 0 means as many as the process may use processors.",
    )
    .unit("threads")
    .ours(),
    // TLS
    OptionSpec::new(
        Group::Tls,
        "ServerKeyFile",
        EXISTING_FILE,
        "",
        "Private key of the server, PEM. TLS needs key, certificate, CA and at least one of ClientCN and ClientURISAN.",
    ),
    OptionSpec::new(Group::Tls, "ServerCertFile", EXISTING_FILE, "", "Certificate of the server, PEM."),
    OptionSpec::new(
        Group::Tls,
        "CAFile",
        EXISTING_FILE,
        "",
        "Authorities that must have signed the agents' certificates, PEM.",
    ),
    OptionSpec::new(
        Group::Tls,
        "ClientCN",
        Kind::Text,
        "",
        "Common name that an agent's certificate must have. With ClientURISAN set too, either will do.",
    ),
    OptionSpec::new(
        Group::Tls,
        "ClientURISAN",
        Kind::Text,
        "",
        "URI alternative name that an agent's certificate must have. With ClientCN set too, either will do.",
    ),
    OptionSpec::new(
        Group::Tls,
        "TLS_MIN_VERSION",
        Kind::OneOf(&["1.2", "1.3"]),
        "1.2",
        "Oldest accepted version of TLS.",
    )
    .zero(Zero::Becomes("1.2"))
    .plain_variable(),
    OptionSpec::new(
        Group::Tls,
        "TLS_CIPHER_SUITES",
        Kind::Text,
        "",
        "Cipher suites by their IANA names, separated by commas; empty means a safe choice.",
    )
    .plain_variable(),
    // Connections
    OptionSpec::new(
        Group::Connections,
        "MaxConnectionsUpperLimit",
        COUNT,
        "10000",
        "Most connections that are kept; none means no limit.",
    )
    .unit("connections")
    .zero(Zero::Becomes("2147483647")),
    OptionSpec::new(
        Group::Connections,
        "MaxConnectionsLowerLimit",
        COUNT,
        "400",
        "Rebalancing never goes below this many connections.",
    )
    .unit("connections"),
    OptionSpec::new(
        Group::Connections,
        "ConnectionRebalancingMode",
        Kind::OneOf(&["none", "kubernetes"]),
        "none",
        "Whether connections are shared out among the instances that the Kubernetes API lists.",
    ),
    OptionSpec::new(
        Group::Connections,
        "ConnectionDropIntervalSecs",
        Kind::Seconds,
        "1",
        "Pause between two connections that are dropped because there are too many.",
    )
    .zero(Zero::Becomes("1")),
    OptionSpec::new(
        Group::Connections,
        "ShutdownTimeoutSecs",
        Kind::Seconds,
        "300",
        "Over which time connections are closed after SIGTERM.",
    )
    .zero(Zero::Becomes("300")),
    OptionSpec::new(
        Group::Connections,
        "ShutdownConnectionDropIntervalMaxSecs",
        Kind::Seconds,
        "1",
        "Longest pause between two connections that are closed after SIGTERM.",
    )
    .zero(Zero::Becomes("1")),
    OptionSpec::new(
        Group::Connections,
        "K8sServicePollIntervalSecs",
        Kind::Seconds,
        "30",
        "How often the instances are counted for rebalancing.",
    ),
    OptionSpec::new(
        Group::Connections,
        "K8sNamespace",
        Kind::Text,
        "kube-system",
        "Namespace of the service whose endpoints are the instances.",
    ),
    OptionSpec::new(Group::Connections, "K8sServiceName", Kind::Text, "calico-typha", "Name of that service."),
    OptionSpec::new(Group::Connections, "K8sPortName", Kind::Text, "calico-typha", "Name of that service's port."),
    // Debugging
    OptionSpec::new(
        Group::Debug,
        "DebugHost",
        Kind::HostAddress,
        "localhost",
        "Address of the debug port. It asks for no password: anything but localhost is a risk.",
    ),
    OptionSpec::new(
        Group::Debug,
        "DebugPort",
        PORT,
        "0",
        "Port for profiles, the list of tasks, the log level and the status; 0 means off.",
    ),
    OptionSpec::new(
        Group::Debug,
        "DebugMemoryProfilePath",
        FILE,
        "",
        "Where SIGUSR1 writes a heap profile; <timestamp> in it becomes the time.",
    ),
];
