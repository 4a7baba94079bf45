//! Every option in one table: what it is called, what it accepts, what it means when nobody sets it.
//!
//! Parsing, `bulrush config`, `config/typha.cfg` and the table in docs/operations.md are all made from this. A default
//! stands here and nowhere else. Names, types and defaults are Typha's unless an option is marked as ours.

/// How an option's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `1`, `yes`, `y`, `t` or `false`, `0`, `no`, `n`, `f`, in any case.
    Bool,
    /// A whole number in Go's notation (`0x`, `0o`, `0b`, `_`), within bounds.
    Int {
        /// Least accepted value.
        min: i32,
        /// Greatest accepted value.
        max: i32,
    },
    /// A number of seconds in Go's notation for floats, without a unit.
    Seconds,
    /// One of these words, in any case; kept in the spelling given here.
    OneOf(&'static [&'static str]),
    /// A host name or address without brackets: 1 to 64 of letters, digits and `: . _ + -`.
    HostAddress,
    /// `host:port`, without IPv6 addresses.
    Authority,
    /// URLs separated by commas, all of one scheme, without user, query, fragment and path.
    EndpointList,
    /// One line of text.
    Text,
    /// A path.
    File {
        /// Whether it must exist when the configuration is read.
        must_exist: bool,
    },
}

/// What `none` means, and for numbers zero and less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// The empty value itself: off, nothing, 0.
    Plain,
    /// This value takes its place. `bulrush config` shows both.
    Becomes(&'static str),
    /// It is a mistake.
    Refused,
}

/// The part of the program that an option belongs to. Gives the headings of the generated texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Where truth lives.
    Datastore,
    /// Log destinations and levels.
    Logging,
    /// Health endpoints and status.
    Health,
    /// Prometheus metrics.
    Metrics,
    /// The cache and the server that agents connect to.
    Server,
    /// TLS of the server.
    Tls,
    /// Numbers of connections, rebalancing, shutdown.
    Connections,
    /// For whoever looks into a running process.
    Debug,
}

impl Group {
    /// All groups, in the order of the generated texts.
    pub const ALL: [Self; 8] = [
        Self::Datastore,
        Self::Logging,
        Self::Health,
        Self::Metrics,
        Self::Server,
        Self::Tls,
        Self::Connections,
        Self::Debug,
    ];

    /// Its heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Datastore => "Datastore",
            Self::Logging => "Logging",
            Self::Health => "Health and status",
            Self::Metrics => "Metrics",
            Self::Server => "Cache and server",
            Self::Tls => "TLS",
            Self::Connections => "Connections and shutdown",
            Self::Debug => "Debugging",
        }
    }
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name in the file. The variable is `TYPHA_` and the name, in any case.
    pub name: &'static str,
    /// What it belongs to.
    pub group: Group,
    /// How its text is read.
    pub kind: Kind,
    /// Its default, written as in the file.
    pub default: &'static str,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
    /// What a number counts; empty for other kinds.
    pub unit: &'static str,
    /// What `none` (and zero or less) means.
    pub zero: Zero,
    /// Whether Typha does not have it.
    pub ours: bool,
    /// Read only from the environment, from a variable of exactly this name, without the prefix.
    pub plain_variable: bool,
}

impl OptionSpec {
    const fn new(group: Group, name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Self {
        let unit = if matches!(kind, Kind::Seconds) { "seconds" } else { "" };
        Self { name, group, kind, default, doc, unit, zero: Zero::Plain, ours: false, plain_variable: false }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn zero(self, zero: Zero) -> Self {
        Self { zero, ..self }
    }

    const fn ours(self) -> Self {
        Self { ours: true, ..self }
    }

    const fn plain_variable(self) -> Self {
        Self { plain_variable: true, ..self }
    }

    /// The environment variable that sets it, in the spelling that documentation uses.
    #[must_use]
    pub fn variable(&self) -> String {
        if self.plain_variable { self.name.to_owned() } else { format!("TYPHA_{}", self.name.to_uppercase()) }
    }

    /// What it accepts, for people.
    #[must_use]
    pub fn accepts(&self) -> String {
        match self.kind {
            Kind::Bool => "true or false".to_owned(),
            Kind::Int { min, max: i32::MAX } => format!("a whole number, {min} or more"),
            Kind::Int { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Seconds => "a number of seconds without a unit, for example 10 or 0.5".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::HostAddress => "a host name or IP address without brackets, at most 64 characters".to_owned(),
            Kind::Authority => "host:port".to_owned(),
            Kind::EndpointList => {
                "http:// or https:// URLs separated by commas, all of one scheme, without user, path or query"
                    .to_owned()
            }
            Kind::Text => "one line of text".to_owned(),
            Kind::File { must_exist: true } => "an existing path".to_owned(),
            Kind::File { must_exist: false } => "a path".to_owned(),
        }
    }
}

/// Words of the log severity options.
pub const SEVERITIES: &[&str] = &["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
/// Words that the level of the early log accepts.
const EARLY_LEVELS: &[&str] = &["trace", "debug", "info", "warning", "warn", "error", "fatal", "panic"];

const BOOL: Kind = Kind::Bool;
const PORT: Kind = Kind::Int { min: 0, max: 65535 };
const COUNT: Kind = Kind::Int { min: 1, max: i32::MAX };
const ANY_COUNT: Kind = Kind::Int { min: 0, max: i32::MAX };
const FILE: Kind = Kind::File { must_exist: false };
const EXISTING_FILE: Kind = Kind::File { must_exist: true };

/// The path of the configuration file when none is given.
pub const DEFAULT_FILE: &str = "/etc/calico/typha.cfg";

/// All options, grouped.
pub const OPTIONS: &[OptionSpec] = &[
    // Datastore
    OptionSpec::new(
        Group::Datastore,
        "DatastoreType",
        Kind::OneOf(&["kubernetes", "etcdv3", "file"]),
        "etcdv3",
        "Where the data comes from: the Kubernetes API, etcd v3, or (ours) a folder of YAML and JSON files.",
    )
    .zero(Zero::Refused),
    OptionSpec::new(
        Group::Datastore,
        "EtcdEndpoints",
        Kind::EndpointList,
        "",
        "URLs of the etcd servers. When empty, EtcdScheme and EtcdAddr name the only one.",
    ),
    OptionSpec::new(
        Group::Datastore,
        "EtcdAddr",
        Kind::Authority,
        "127.0.0.1:2379",
        "Address of the etcd server; used only while EtcdEndpoints is empty.",
    ),
    OptionSpec::new(
        Group::Datastore,
        "EtcdScheme",
        Kind::OneOf(&["http", "https"]),
        "http",
        "Scheme for EtcdAddr; used only while EtcdEndpoints is empty.",
    ),
    OptionSpec::new(
        Group::Datastore,
        "EtcdKeyFile",
        EXISTING_FILE,
        "",
        "Private key of our client certificate for etcd, PEM. Goes with EtcdCertFile.",
    ),
    OptionSpec::new(Group::Datastore, "EtcdCertFile", EXISTING_FILE, "", "Our client certificate for etcd, PEM."),
    OptionSpec::new(
        Group::Datastore,
        "EtcdCaFile",
        EXISTING_FILE,
        "",
        "Certificates of the authorities that may have signed etcd's certificate, PEM.",
    ),
    OptionSpec::new(
        Group::Datastore,
        "DatastorePath",
        EXISTING_FILE,
        "",
        "The folder that DatastoreType = file reads, with all folders below it.",
    )
    .ours(),
    OptionSpec::new(
        Group::Datastore,
        "FileQuietSecs",
        Kind::Seconds,
        "0.25",
        "How long the folder must be quiet after a change before it is read again.",
    )
    .zero(Zero::Becomes("0.25"))
    .ours(),
    OptionSpec::new(
        Group::Datastore,
        "FileServeIncomplete",
        BOOL,
        "false",
        "Serve the folder at start although files of it cannot be read, or it has none: agents delete what is missing.",
    )
    .ours(),
    OptionSpec::new(
        Group::Datastore,
        "DatastoreReadOnly",
        BOOL,
        "false",
        "Never write to the datastore: what Typha creates at start (ClusterInformation, tiers) must be there already.",
    )
    .ours(),
    // Logging
    OptionSpec::new(
        Group::Logging,
        "LogSeverityScreen",
        Kind::OneOf(SEVERITIES),
        "INFO",
        "Least severe lines that go to standard output; none switches it off.",
    ),
    OptionSpec::new(
        Group::Logging,
        "LogSeverityFile",
        Kind::OneOf(SEVERITIES),
        "INFO",
        "Least severe lines that go to the log file; none switches it off.",
    ),
    OptionSpec::new(
        Group::Logging,
        "LogSeveritySys",
        Kind::OneOf(SEVERITIES),
        "INFO",
        "Least severe lines that go to the local syslog; none switches it off.",
    ),
    OptionSpec::new(
        Group::Logging,
        "LogFilePath",
        FILE,
        "/var/log/calico/typha.log",
        "The log file. Its folder is created; a rotated file is noticed; none switches it off.",
    ),
    OptionSpec::new(
        Group::Logging,
        "LogFormat",
        Kind::OneOf(&["text", "json"]),
        "text",
        "Form of log lines: readable text, or one JSON object a line.",
    )
    .zero(Zero::Refused)
    .ours(),
    OptionSpec::new(
        Group::Logging,
        "DebugDisableLogDropping",
        BOOL,
        "false",
        "Wait for a slow log destination instead of dropping lines. A stuck destination then stops the program.",
    ),
    OptionSpec::new(
        Group::Logging,
        "TYPHA_EARLYLOGSEVERITYSCREEN",
        Kind::OneOf(EARLY_LEVELS),
        "error",
        "Level of the log before the configuration is read. When unset, TYPHA_LOGSEVERITYSCREEN counts.",
    )
    .plain_variable(),
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

/// The option with this name, in any case.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.name.eq_ignore_ascii_case(name))
}
