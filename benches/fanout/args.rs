//! The options of the command line.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use bulrush::calico::release::Release;
use clap::{Parser, ValueEnum};

use crate::data;
use crate::load::manner::Share;
use crate::probe::Wire;
use crate::proc;
use crate::reflector::Reading;
use crate::sweep::{Axis, Sweep};
use crate::tls::{Files, Tls};

/// Descriptors that this process needs besides connections: etcd's client, files, standard streams, epoll.
const OTHER_DESCRIPTORS: usize = 200;

/// Scenario to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Changes at a steady rate while agents are connected, beside the floor.
    Churn,
    /// Snapshots to all agents at once; with --rate while changes go on.
    Snapshot,
    /// From exec to the first agent in sync.
    Start,
    /// Memory per idle connection.
    Idle,
    /// Only the floor: bare send() of --message-bytes at --rate to --clients.
    Floor,
}

/// Well-known amounts of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Data {
    /// 10,000 endpoints, 200 nodes, 200 policies.
    D10,
    /// 100,000 endpoints, 1,000 nodes, 1,000 policies.
    D100,
}

/// Way of changes to a Kubernetes API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Writes {
    /// Written straight into the API server's etcd, as by another replica: this API server only watches.
    Etcd,
    /// A merge patch of the pod through the API server.
    Patch,
    /// The whole pod through the API server.
    Replace,
}

/// Size of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pods {
    /// As a Deployment's pod looks once it runs: 7 KB of JSON, managedFields included.
    Full,
    /// Only the fields that agents need, without managedFields: 1 KB.
    Lean,
}

#[derive(Clone, Debug, Parser)]
#[command(about = "Measures a sync server from its datastore to its agents")]
pub(crate) struct Args {
    /// Scenario to measure; churn by default; --quick runs all.
    #[arg(long, value_enum)]
    pub(crate) scenario: Option<Scenario>,
    /// All agents, including probes, and slow and stuck agents.
    #[arg(long, default_value_t = 502)]
    pub(crate) clients: usize,
    /// Agents that decode and time; the others count bytes.
    #[arg(long, default_value_t = 2)]
    pub(crate) probes: usize,
    /// A well-known amount of data instead of --endpoints.
    #[arg(long, value_enum, conflicts_with = "endpoints")]
    pub(crate) data: Option<Data>,
    /// Endpoints in etcd, or pods in Kubernetes; nodes and policies follow in proportion.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) endpoints: usize,
    /// Nodes in etcd, if not in proportion.
    #[arg(long)]
    pub(crate) nodes: Option<usize>,
    /// Policies in etcd, if not in proportion.
    #[arg(long)]
    pub(crate) policies: Option<usize>,
    /// Changes written per second. 200 where the scenario needs changes, none otherwise.
    #[arg(long)]
    pub(crate) rate: Option<u32>,
    /// Seconds of changes.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u32,
    /// Runs; the result has medians and minima.
    #[arg(long, default_value_t = 1)]
    pub(crate) repeat: usize,
    /// Run once for each value: clients=22,102,502 or rate=… or endpoints=…; prints an array.
    #[arg(long)]
    pub(crate) sweep: Option<Sweep>,
    /// Compression that agents ask for.
    #[arg(long, value_enum, default_value = "snappy")]
    pub(crate) wire: Wire,
    /// Releases of Calico that agents claim to be of, in turn: v3.31,master [default: a version without a release, with modern keys]
    #[arg(long, value_delimiter = ',', value_name = "RELEASE")]
    pub(crate) dialects: Vec<Release>,
    /// Do not run the floor beside a churn.
    #[arg(long)]
    pub(crate) no_floor: bool,
    /// Bytes of a message, in the scenario floor.
    #[arg(long, default_value_t = 550)]
    pub(crate) message_bytes: u32,
    /// Threads for the counting agents; 2 by default with TLS.
    #[arg(long)]
    pub(crate) load_threads: Option<usize>,

    /// The server reads a Kubernetes API server, which is started for it, instead of etcd.
    #[arg(long, conflicts_with_all = ["etcd", "server"])]
    pub(crate) kubernetes: bool,
    /// Way of changes to the API server.
    #[arg(long, value_enum, default_value = "etcd", requires = "kubernetes")]
    pub(crate) writes: Writes,
    /// Size of a pod.
    #[arg(long, value_enum, default_value = "full", requires = "kubernetes")]
    pub(crate) pods: Pods,
    /// A further flag of kube-apiserver; may be repeated.
    #[arg(long, requires = "kubernetes", allow_hyphen_values = true)]
    pub(crate) apiserver_flag: Vec<String>,
    /// With --kubernetes --scenario start: run a plain kube-rs reflector over Kubernetes' own kinds beside it.
    #[arg(long, requires = "kubernetes")]
    pub(crate) reflector: bool,

    /// Drive this server (HOST:PORT) instead of starting the one just built. Without --etcd nothing is written anywhere.
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// Process id of the server given with --server, for CPU and memory; without it they are left out.
    #[arg(long, requires = "server")]
    pub(crate) server_pid: Option<u32>,
    /// Start this program instead of the one just built. It is given Typha's variables.
    #[arg(long, conflicts_with = "server")]
    pub(crate) program: Option<PathBuf>,
    /// File for the log of the started server (warnings and errors).
    #[arg(long, conflicts_with = "server")]
    pub(crate) server_log: Option<PathBuf>,
    /// Use the etcd at this URL instead of starting one. It is filled with the bench's data: never a cluster's own.
    #[arg(long)]
    pub(crate) etcd: Option<String>,
    /// Name of the server in results and plots.
    #[arg(long)]
    pub(crate) label: Option<String>,

    /// Mutual TLS. Certificates are made for a server that is started here; for --server give the files.
    #[arg(long)]
    pub(crate) tls: bool,
    /// With --server --tls: the authority of the server's certificate.
    #[arg(long, requires_all = ["server", "tls"])]
    pub(crate) ca_file: Option<PathBuf>,
    /// With --server --tls: an agent's certificate.
    #[arg(long, requires_all = ["server", "tls"])]
    pub(crate) cert_file: Option<PathBuf>,
    /// With --server --tls: its key.
    #[arg(long, requires_all = ["server", "tls"])]
    pub(crate) key_file: Option<PathBuf>,
    /// With --server --tls: the common name in the server's certificate.
    #[arg(long, default_value = "typha-server")]
    pub(crate) server_cn: String,

    /// Agents that read slowly: a number or a share, such as 10%.
    #[arg(long, default_value = "0")]
    pub(crate) slow: Share,
    /// Bytes a second that a slow agent reads.
    #[arg(long, default_value_t = 64 * 1024)]
    pub(crate) slow_rate: usize,
    /// Agents that never read: a number or a share.
    #[arg(long, default_value = "0")]
    pub(crate) stuck: Share,
    /// Connections that send nothing, opened during the first half of the churn.
    #[arg(long, default_value_t = 0)]
    pub(crate) half_open: usize,
    /// Agents per second that connect, take a snapshot and leave, during the churn.
    #[arg(long, default_value_t = 0)]
    pub(crate) storm: u32,

    /// Small runs of all scenarios (or of --scenario), within two minutes, to show that they work.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Draw this SVG file from results saved before, instead of measuring.
    #[arg(long, requires = "results")]
    pub(crate) plot: Option<PathBuf>,
    /// With --plot: files with results, of one or several servers.
    #[arg(requires = "plot")]
    pub(crate) results: Vec<PathBuf>,

    /// Internal: run as the floor server.
    #[arg(long, hide = true, num_args = 4, value_names = ["CLIENTS", "BYTES", "RATE", "MESSAGES"])]
    pub(crate) be_floor: Option<Vec<u32>>,
    /// Internal: run as the reflector, with this kubeconfig.
    #[arg(long, hide = true)]
    pub(crate) be_reflector: Option<PathBuf>,
    /// Internal: the reflector's way of reading.
    #[arg(long, hide = true, value_enum, default_value = "pages")]
    pub(crate) reading: Reading,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

impl Args {
    /// The arguments of each run of a sweep.
    pub(crate) fn runs(&self, sweep: &Sweep) -> Vec<Self> {
        let with = |value: u32| {
            let (mut args, size) = (self.clone(), value as usize);
            match sweep.axis {
                Axis::Clients => args.clients = size.max(args.probes),
                Axis::Rate => args.rate = Some(value),
                Axis::Endpoints => args.endpoints = size,
            }
            args
        };
        sweep.values.iter().copied().map(with).collect()
    }

    /// Fills in presets, and makes the checks that clap cannot make.
    pub(crate) fn complete(mut self) -> anyhow::Result<Self> {
        match self.data {
            Some(Data::D10) => self.endpoints = 10_000,
            Some(Data::D100) => self.endpoints = 100_000,
            None => {}
        }
        if self.quick {
            (self.clients, self.endpoints, self.seconds) = (22, 500, 2);
            self.rate.get_or_insert(50);
        }
        self.probes = self.probes.max(1);
        ensure!(self.clients >= self.probes, "--clients {} is less than --probes {}", self.clients, self.probes);
        ensure!(self.repeat > 0, "--repeat must be at least 1");
        ensure!(self.endpoints > 0 && self.seconds > 0, "--endpoints and --seconds must be at least 1");
        ensure!(self.slow_rate >= 100, "--slow-rate must be at least 100 bytes a second");
        if self.server.is_none() && self.tls {
            ensure!(self.ca_file.is_none(), "certificate files are for --server; ours are made here");
        }
        self.check_descriptors()?;
        Ok(self)
    }

    /// Fails if the run needs more descriptors than the process may have.
    pub(crate) fn check_descriptors(&self) -> anyhow::Result<()> {
        let (needed, limit) = (self.clients + self.half_open + OTHER_DESCRIPTORS, proc::descriptor_limit());
        ensure!(
            needed <= limit,
            "{} agents and {} half-open connections need {needed} descriptors, and this process may have {limit}: `ulimit -n` raises it",
            self.clients,
            self.half_open
        );
        Ok(())
    }

    /// The scenario of a single measurement.
    pub(crate) fn scenario(&self) -> Scenario {
        self.scenario.unwrap_or(Scenario::Churn)
    }

    /// Numbers of objects in etcd.
    pub(crate) fn size(&self) -> data::Size {
        let size = data::Size::of(self.endpoints);
        data::Size {
            endpoints: size.endpoints,
            nodes: self.nodes.unwrap_or(size.nodes).max(1),
            policies: self.policies.unwrap_or(size.policies),
        }
    }

    /// Changes per second, for a scenario that needs changes.
    pub(crate) fn churn_rate(&self) -> anyhow::Result<u32> {
        match self.rate.unwrap_or(200) {
            0 => bail!("--rate must be at least 1"),
            rate => Ok(rate),
        }
    }

    /// Number of counting agents.
    pub(crate) fn counting(&self) -> usize {
        self.clients - self.probes
    }

    /// Number of threads for the counting agents.
    pub(crate) fn load_threads(&self) -> usize {
        self.load_threads.unwrap_or(if self.tls { 2 } else { 1 })
    }

    /// Release that agent number `i` claims to be of; `None`: its version names no release.
    pub(crate) fn dialect(&self, i: usize) -> Option<Release> {
        self.dialects.get(i % self.dialects.len().max(1)).copied()
    }

    /// The server's name.
    pub(crate) fn label(&self) -> String {
        let name = || self.program.as_ref().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        self.label.clone().or_else(|| self.server.clone()).or_else(name).unwrap_or_else(|| "Bulrush".to_owned())
    }

    /// The agents' TLS for a server that runs already.
    pub(crate) fn own_tls(&self) -> anyhow::Result<Option<Tls>> {
        if !self.tls {
            return Ok(None);
        }
        let file = |name: &str, path: &Option<PathBuf>| {
            path.clone().with_context(|| format!("--server with --tls needs --{name}"))
        };
        Tls::load(Files {
            ca: file("ca-file", &self.ca_file)?,
            cert: file("cert-file", &self.cert_file)?,
            key: file("key-file", &self.key_file)?,
            server_cn: self.server_cn.clone(),
        })
        .map(Some)
    }
}
