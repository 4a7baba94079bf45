//! Options of a `[datastore "name"]` section: a datastore of any kinds.

use crate::config::kubernetes::with_kubeconfig;
use crate::config::options::Options;
use crate::config::spec::Group;
use crate::config::typed::{DatastoreConfig, DatastoreType, Documents, EtcdConfig, FileConfig};
use crate::datastore::kubernetes::KubernetesConfig;

/// The word for the Kubernetes API.
const KUBERNETES: &str = "kubernetes";
/// The word for etcd.
const ETCD: &str = "etcdv3";
/// The word for a folder.
const FILE: &str = "file";

/// The datastore with this name. `kubernetes` holds the settings of the environment.
pub(super) fn read(options: &mut Options<'_>, name: &str, kubernetes: &KubernetesConfig) -> DatastoreConfig {
    options.begin(Group::Datastore);
    let datastore_type = options
        .word(
            "Type",
            &[FILE, ETCD, KUBERNETES],
            "",
            "Where the data comes from: a folder of YAML and JSON files, etcd v3, or the Kubernetes API.",
        )
        .refuses_zero()
        .required()
        .read();
    let file = file(options);
    let etcd = etcd(options);
    let kubeconfig = options
        .existing_file(
            "Kubeconfig",
            "The kubeconfig that names the API server. Without it: the variables KUBECONFIG and K8S_..., or the cluster of the pod.",
        )
        .only_for(KUBERNETES)
        .read();
    DatastoreConfig {
        name: name.to_owned(),
        datastore_type: match datastore_type.as_str() {
            KUBERNETES => DatastoreType::Kubernetes,
            ETCD => DatastoreType::Etcdv3,
            _ => DatastoreType::File,
        },
        etcd,
        kubernetes: match kubeconfig {
            Some(path) => with_kubeconfig(kubernetes, path),
            None => kubernetes.clone(),
        },
        file,
        read_only: true,
        required: options
            .boolean(
                "Required",
                "true",
                "Whether its syncers wait for it. Without it they are in sync after SyncTimeoutSecs, with a warning; when it is lost later, nothing is deleted.",
            )
            .read(),
        sync_timeout: options
            .seconds(
                "SyncTimeoutSecs",
                "60",
                "How long its syncers wait for it at start with Required = false.",
            )
            .zero_means("60")
            .read(),
    }
}

fn file(options: &mut Options<'_>) -> FileConfig {
    FileConfig {
        path: options
            .existing_file("Path", "The folder that is read, with all folders below it.")
            .only_for(FILE)
            .required()
            .read(),
        quiet: options
            .seconds("QuietSecs", "0.25", "How long the folder must be quiet after a change before it is read again.")
            .zero_means("0.25")
            .only_for(FILE)
            .read(),
        serve_incomplete: options
            .boolean(
                "ServeIncomplete",
                "false",
                "Serve the folder at start although files of it cannot be read, or it has none: agents delete the objects that are missing.",
            )
            .only_for(FILE)
            .read(),
        mass_delete_guard: options
            .word(
                "MassDeleteGuard",
                &["on", "off"],
                "on",
                "Hold the folder when most of its objects go at once, until someone confirms that.",
            )
            .refuses_zero()
            .only_for(FILE)
            .read()
            == "on",
    }
}

fn etcd(options: &mut Options<'_>) -> EtcdConfig {
    EtcdConfig {
        endpoints: options.endpoints("Endpoints", "URLs of the etcd servers.").only_for(ETCD).required().read(),
        key_file: options
            .existing_file("KeyFile", "Private key of our client certificate for etcd, PEM. Goes with CertFile.")
            .only_for(ETCD)
            .read(),
        cert_file: options
            .existing_file("CertFile", "Our client certificate for etcd, PEM.")
            .only_for(ETCD)
            .read(),
        ca_file: options
            .existing_file("CaFile", "Certificates of the authorities that may have signed etcd's certificate, PEM.")
            .only_for(ETCD)
            .read(),
        documents: Some(Documents {
            prefix: options
                .prefix("Prefix", "/", "Where documents are: the values of all keys that begin with it.")
                .zero_means("/")
                .only_for(ETCD)
                .read(),
            raw: options
                .word(
                    "Format",
                    &["auto", "raw"],
                    "auto",
                    "Form of values: auto for JSON or YAML with apiVersion, kind and metadata; raw for bytes, which are objects of the kind bulrush.io/v1/Bytes.",
                )
                .refuses_zero()
                .only_for(ETCD)
                .read()
                == "raw",
        }),
    }
}
