//! Connects `watch`, `dump` and `get` to a server: their common arguments, and the client that they give.
//!
//! A named server counts most, then a Kubernetes service, then the server on this host or in this pod ([`Local`]).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::local::Local;
use crate::calico::release::Release;
use crate::config::load_kubernetes;
use crate::config::table::DEFAULT_FILE;
use crate::model::SyncerName;
use crate::replicas::Service;
use crate::syncclient::discovery::Discovery;
use crate::syncclient::{Client, ClientBuilder, Protocol};
use crate::syncproto::native::Compression;
use crate::tls::{ClientTls, ClientTlsConfig, PeerIdentity, Policy};

/// Arguments of every command that is a client.
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    /// Server to connect to, as host:port of its port for agents; may be given several times, then they are tried in turn [default:
    /// from the configuration here, or localhost:5473]
    #[arg(short, long, value_name = "HOST:PORT")]
    pub server: Vec<String>,
    /// Find servers by their Kubernetes service, unless --server is given; asks the API server of KUBECONFIG or of the pod's
    /// service account
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    pub service: Option<(String, String)>,
    /// Name of the service's port
    #[arg(long, default_value = "calico-typha", value_name = "NAME")]
    pub service_port: String,
    /// The Kubernetes node that this command runs on: its servers are tried first
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// The zone that this command runs in: its servers are tried before servers of other zones
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
    /// The daemon's configuration file, for its address when no --server is given; a missing one counts as empty
    #[arg(short, long, default_value = DEFAULT_FILE, value_name = "PATH")]
    pub config_file: PathBuf,
    /// The environment, for the daemon's options and the way to the API server.
    #[arg(skip)]
    pub environment: Vec<(OsString, OsString)>,
    /// Syncer to follow: felix, bgp, tunnel-ip-allocation, node-status, or one of your own
    #[arg(long, default_value = "felix", value_parser = SyncerName::intern)]
    pub syncer: SyncerName,
    /// Protocol to speak: Bulrush's own, or Calico's compressed or plain (for a Typha)
    #[arg(long, value_enum, default_value_t = ProtocolArg::Native)]
    pub protocol: ProtocolArg,
    /// Speak as an agent of this release of Calico, to see the data that its agents get: v3.26 to v3.32, or master [default: master].
    /// Implies --protocol calico
    #[arg(long, value_name = "RELEASE")]
    pub dialect: Option<Release>,
    /// Compression to offer with the native protocol, best first: zstd (smallest), snappy (fastest) or none; may be given several times
    /// [default: zstd, snappy, none]
    #[arg(long, value_parser = compression)]
    pub compression: Vec<Compression>,
    /// TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Arguments for TLS of every command that is a client.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsArgs {
    /// TLS: certificates of the authorities that may sign the server's certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// TLS: the client's certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// TLS: the client's private key, PEM
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// TLS: common name that the server's certificate must have (or else the URI)
    #[arg(long, value_name = "NAME")]
    pub server_cn: Option<String>,
    /// TLS: URI alternative name that the server's certificate must have (or else the common name)
    #[arg(long, value_name = "URI")]
    pub server_uri_san: Option<String>,
}

/// Protocols by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolArg {
    /// Bulrush's own.
    Native,
    /// Calico's, with snappy.
    Calico,
    /// Calico's, uncompressed.
    CalicoPlain,
}

fn compression(text: &str) -> Result<Compression, String> {
    Compression::from_name(text)
        .ok_or_else(|| format!("one of {} is expected", Compression::ALL.map(Compression::as_str).join(", ")))
}

pub(super) fn namespaced(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("NAMESPACE/NAME is expected, for example kube-system/calico-typha".to_owned()),
    }
}

/// A number of seconds, whole or with a fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl ConnectArgs {
    /// The client's settings.
    ///
    /// # Errors
    /// Arguments that do not go together, or TLS files that cannot be used, in words.
    pub fn builder(&self) -> Result<ClientBuilder, String> {
        let protocol = match self.protocol {
            ProtocolArg::Native if self.dialect.is_some() && self.compression.is_empty() => {
                Protocol::Calico { compression: true }
            }
            ProtocolArg::Native if self.dialect.is_some() => {
                return Err("--compression goes with the native protocol only, which knows no --dialect".to_owned());
            }
            ProtocolArg::Native if self.compression.is_empty() => {
                Protocol::Native { compressions: Compression::ALL.to_vec() }
            }
            ProtocolArg::Native => Protocol::Native { compressions: self.compression.clone() },
            ProtocolArg::Calico | ProtocolArg::CalicoPlain if !self.compression.is_empty() => {
                return Err("--compression goes with --protocol native only; calico is snappy, calico-plain is not \
                            compressed"
                    .to_owned());
            }
            ProtocolArg::Calico => Protocol::Calico { compression: true },
            ProtocolArg::CalicoPlain => Protocol::Calico { compression: false },
        };
        let tls = self.tls.load()?;
        let builder = match (&self.server[..], &self.service) {
            ([], Some(service)) => Client::builder([""; 0]).discovery(self.discovery(service)?),
            ([], None) => {
                let local = Local::read(&self.config_file, self.environment.iter().cloned());
                if local.tls && tls.is_none() {
                    return Err(format!(
                        "the server here ({}) wants TLS: give --ca-file, --cert-file, --key-file and --server-cn or \
                         --server-uri-san, with a certificate that it takes from agents",
                        local.sync
                    ));
                }
                Client::builder([local.sync])
            }
            (servers, _) => Client::builder(servers.iter().cloned()),
        };
        let builder = builder
            .agent("bulrush-cli")
            .syncer(self.syncer)
            .protocol(protocol)
            .dialect(self.dialect.unwrap_or(Release::Master));
        Ok(match tls {
            Some(tls) => builder.tls(tls),
            None => builder,
        })
    }

    /// Starts the client, for all keys that begin with one of the prefixes, or for all if there are none.
    ///
    /// # Errors
    /// As [`Self::builder`].
    pub(super) fn start(&self, prefixes: &[String]) -> Result<Client, String> {
        self.builder()?.prefixes(prefixes.iter().cloned()).start().map_err(|error| error.to_string())
    }

    fn discovery(&self, (namespace, name): &(String, String)) -> Result<Discovery, String> {
        let service =
            Service { namespace: namespace.clone(), name: name.clone(), port_name: self.service_port.clone() };
        let kubernetes = load_kubernetes(self.environment.iter().cloned()).map_err(|mistakes| mistakes.to_string())?;
        let mut discovery = Discovery::connect(kubernetes, service).map_err(|error| error.to_string())?;
        if let Some(node) = &self.node {
            discovery = discovery.node(node);
        }
        if let Some(zone) = &self.zone {
            discovery = discovery.zone(zone);
        }
        Ok(discovery)
    }
}

impl TlsArgs {
    /// TLS, if any of its arguments is given. Then all of them are needed.
    ///
    /// # Errors
    /// Arguments that are missing, or files that cannot be used, in words.
    pub fn load(&self) -> Result<Option<ClientTls>, String> {
        let identity = PeerIdentity::new(self.server_cn.clone(), self.server_uri_san.clone());
        match (&self.ca_file, &self.cert_file, &self.key_file, identity) {
            (None, None, None, None) => Ok(None),
            (Some(ca_file), Some(cert_file), Some(key_file), Some(identity)) => {
                let config = ClientTlsConfig {
                    key_file: key_file.clone(),
                    cert_file: cert_file.clone(),
                    ca_file: ca_file.clone(),
                    identity,
                    policy: Policy::default(),
                };
                ClientTls::load(config).map(Some).map_err(|error| error.to_string())
            }
            (ca_file, cert_file, key_file, identity) => {
                let missing: Vec<&str> = [
                    (ca_file.is_none(), "--ca-file"),
                    (cert_file.is_none(), "--cert-file"),
                    (key_file.is_none(), "--key-file"),
                    (identity.is_none(), "--server-cn or --server-uri-san"),
                ]
                .into_iter()
                .filter_map(|(missing, name)| missing.then_some(name))
                .collect();
                Err(format!("TLS needs {} as well", missing.join(", ")))
            }
        }
    }
}
