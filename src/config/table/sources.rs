//! Options of the datastore and of the log.

use super::{BOOL, EARLY_LEVELS, EXISTING_FILE, FILE, SEVERITIES};
use crate::config::spec::{Group, Kind, OptionSpec, Zero};

pub(super) const OPTIONS: &[OptionSpec] = &[
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
];
