//! Every option in one table: its name, the values that it accepts, its default, and the field of [`Config`] that gets its value.
//!
//! Parsing, `bulrush config`, `config/typha.cfg`, the table in docs/operations.md and the [`Config`] are all made from this table.
//! Defaults stand here and nowhere else. Names, types and defaults are Typha's unless an option is marked as ours.

mod datastore;
mod datastore_section;
mod endpoints;
mod logging;
mod server;
mod syncer_section;
mod syncers;
mod tls;

use std::sync::LazyLock;

use super::options::Options;
use super::parse::Value;
use super::resolve::default_value;
use super::spec::{OptionSpec, Section};
use super::typed::{Config, DatastoreConfig, SyncerConfig};
use crate::datastore::kubernetes::KubernetesConfig;
use crate::model::SyncerName;

/// The path of the configuration file unless the command line names another.
pub const DEFAULT_FILE: &str = "/etc/calico/typha.cfg";

/// All options outside of named sections, grouped.
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

/// All options of named sections: those of a section together, in the order in which they are explained.
pub static IN_SECTIONS: LazyLock<Vec<OptionSpec>> = LazyLock::new(|| {
    let mut all = Vec::new();
    let list = &mut |spec: OptionSpec| {
        all.push(spec);
        default_value(&spec)
    };
    datastore("", list, &KubernetesConfig::default());
    syncer(SyncerName::new(""), list);
    all
});

/// The options of a named section.
pub fn of_section(section: Section) -> impl Iterator<Item = &'static OptionSpec> {
    IN_SECTIONS.iter().filter(move |spec| spec.section == section)
}

/// The configuration from checked values, without what named sections add to it. Cannot fail: values that do not go together were found as mistakes before.
pub(super) fn config(value_of: &mut dyn FnMut(OptionSpec) -> Value, kubernetes: &KubernetesConfig) -> Config {
    let options = &mut Options::new(Section::Global, value_of);
    let (tls, min_version, cipher_suites) = tls::read(options);
    let (cache, server, connections) = server::read(options, kubernetes);
    Config {
        global: datastore::read(options, kubernetes),
        calico_syncers: syncers::read(options),
        datastores: Vec::new(),
        syncers: Vec::new(),
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

/// The datastore of a section from its checked values.
pub(super) fn datastore(
    name: &str,
    value_of: &mut dyn FnMut(OptionSpec) -> Value,
    kubernetes: &KubernetesConfig,
) -> DatastoreConfig {
    datastore_section::read(&mut Options::new(Section::Datastore, value_of), name, kubernetes)
}

/// The syncer of a section from its checked values.
pub(super) fn syncer(name: SyncerName, value_of: &mut dyn FnMut(OptionSpec) -> Value) -> SyncerConfig {
    syncer_section::read(&mut Options::new(Section::Syncer, value_of), name)
}

/// The option with this name outside of named sections, in any case.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.name.eq_ignore_ascii_case(name))
}
