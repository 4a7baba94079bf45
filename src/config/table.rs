//! Every option in one table: its name, the values that it accepts, its default, and the field of [`Config`] that gets its value.
//!
//! Parsing, `bulrush config`, `config/typha.cfg`, the table in docs/operations.md and the [`Config`] are all made from this table.
//! Defaults stand here and nowhere else. Names, types and defaults are Typha's unless an option is marked as ours.

mod datastore;
mod endpoints;
mod logging;
mod server;
mod tls;

use std::sync::LazyLock;

use super::options::Options;
use super::spec::OptionSpec;
use super::{Config, Value, default_value};
use crate::datastore::kubernetes::KubernetesConfig;

/// The path of the configuration file unless the command line names another.
pub const DEFAULT_FILE: &str = "/etc/calico/typha.cfg";

/// All options, grouped.
pub static OPTIONS: LazyLock<Vec<OptionSpec>> = LazyLock::new(|| {
    let mut all = Vec::new();
    let list = &mut |spec: OptionSpec| {
        all.push(spec);
        default_value(&spec)
    };
    config(list, &KubernetesConfig::default());
    all.sort_by_key(|spec| spec.group);
    all
});

/// The configuration from checked values. Cannot fail: values that do not go together were found as mistakes before.
pub(super) fn config(value_of: &mut dyn FnMut(OptionSpec) -> Value, kubernetes: &KubernetesConfig) -> Config {
    let options = &mut Options::new(value_of);
    let (tls, min_version, cipher_suites) = tls::read(options);
    let (cache, server, connections) = server::read(options, kubernetes);
    Config {
        datastores: vec![datastore::read(options, kubernetes)],
        logging: logging::read(options),
        health: endpoints::health(options),
        metrics: endpoints::metrics(options, min_version, &cipher_suites),
        cache,
        server,
        tls,
        connections,
        debug: endpoints::debug(options),
        worker_threads: server::worker_threads(options),
    }
}

/// The option with this name, in any case.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.name.eq_ignore_ascii_case(name))
}
