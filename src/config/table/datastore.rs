//! Options of the datastore that is described outside of named sections.

use std::time::Duration;

use crate::config::options::Options;
use crate::config::spec::Group;
use crate::config::{DatastoreConfig, DatastoreType, EtcdConfig, FileConfig, GLOBAL};
use crate::datastore::kubernetes::KubernetesConfig;

/// How long a datastore may take until it is in sync, before that is worth a warning.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn read(options: &mut Options<'_>, kubernetes: &KubernetesConfig) -> DatastoreConfig {
    options.begin(Group::Datastore);
    let datastore_type = options
        .word(
            "DatastoreType",
            &["kubernetes", "etcdv3", "file"],
            "etcdv3",
            "Where the data comes from: the Kubernetes API, etcd v3, or (ours) a folder of YAML and JSON files.",
        )
        .refuses_zero()
        .read();
    DatastoreConfig {
        name: GLOBAL.to_owned(),
        datastore_type: match datastore_type.as_str() {
            "kubernetes" => DatastoreType::Kubernetes,
            "file" => DatastoreType::File,
            _ => DatastoreType::Etcdv3,
        },
        etcd: etcd(options),
        kubernetes: kubernetes.clone(),
        file: FileConfig {
            mass_delete_guard: true,
            path: options
                .existing_file("DatastorePath", "The folder that DatastoreType = file reads, with all folders below it.")
                .ours()
                .read(),
            quiet: options
                .seconds(
                    "FileQuietSecs",
                    "0.25",
                    "How long the folder must be quiet after a change before it is read again.",
                )
                .zero_means("0.25")
                .ours()
                .read(),
            serve_incomplete: options
                .boolean(
                    "FileServeIncomplete",
                    "false",
                    "Serve the folder at start although files of it cannot be read, or it has none: agents delete the objects that are missing.",
                )
                .ours()
                .read(),
        },
        read_only: options
            .boolean(
                "DatastoreReadOnly",
                "false",
                "Never write to the datastore: what Typha creates at start (ClusterInformation, tiers) must be there already.",
            )
            .ours()
            .read(),
        required: true,
        sync_timeout: SYNC_TIMEOUT,
    }
}

fn etcd(options: &mut Options<'_>) -> EtcdConfig {
    let mut endpoints = options
        .endpoints("EtcdEndpoints", "URLs of the etcd servers. When empty, EtcdScheme and EtcdAddr name the only one.")
        .read();
    let address = options
        .authority("EtcdAddr", "127.0.0.1:2379", "Address of the etcd server; used only while EtcdEndpoints is empty.")
        .read();
    let scheme = options
        .word("EtcdScheme", &["http", "https"], "http", "Scheme for EtcdAddr; used only while EtcdEndpoints is empty.")
        .read();
    if endpoints.is_empty() {
        endpoints.push(format!("{scheme}://{address}"));
    }
    EtcdConfig {
        documents: None,
        endpoints,
        key_file: options
            .existing_file(
                "EtcdKeyFile",
                "Private key of our client certificate for etcd, PEM. Goes with EtcdCertFile.",
            )
            .read(),
        cert_file: options.existing_file("EtcdCertFile", "Our client certificate for etcd, PEM.").read(),
        ca_file: options
            .existing_file(
                "EtcdCaFile",
                "Certificates of the authorities that may have signed etcd's certificate, PEM.",
            )
            .read(),
    }
}
