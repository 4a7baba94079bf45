//! Configuration: Typha's options under Typha's names, and ours beside them, from `TYPHA_*` variables and `typha.cfg`.
//!
//! [`table`] lists the options, [`spec`] describes the form of one. `ini` splits the file into sections, `sources` collects the
//! settings, [`parse`] reads each text by its kind, `resolve` decides which setting counts, `check` compares options with each
//! other, [`sections`] does all this for named sections, `references` compares these with each other. [`table`] makes the
//! [`Config`] (`typed`) that the composition root hands out in parts. [`render`] prints the options.
//!
//! Invariants:
//! - the environment counts more than the file, whatever the case of the names;
//! - a wrong value never becomes a default: every [`Mistake`] is reported, all at once, and the program does not start;
//! - an empty value is no value; `none` is the empty value of the option's kind;
//! - where another value takes effect than the one that was set, `bulrush config` shows both.

mod check;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod ini;
mod kubernetes;
mod list;
mod mistake;
mod options;
pub mod parse;
mod references;
pub mod render;
mod resolve;
pub mod sections;
mod server;
mod sources;
pub mod spec;
pub mod table;
mod typed;

use std::ffi::OsString;
use std::path::Path;

use crate::datastore::kubernetes::KubernetesConfig;
use crate::model::nearest::nearest;
pub use mistake::{Mistake, Mistakes, Notice, Source};
pub use parse::Value;
pub use resolve::Resolved;
use resolve::{default_value, last_of, resolve};
use sections::SectionOptions;
pub use server::{Pumps, RANDOM_SEED, ServerConfig};
use sources::{InFile, Setting};
use spec::OptionSpec;
use table::OPTIONS;
pub use typed::{
    CacheConfig, Config, ConnectionsConfig, DatastoreConfig, DatastoreType, DebugConfig, Documents, EtcdConfig,
    FileConfig, GLOBAL, HealthConfig, LogFormat, LoggingConfig, MetricsClientAuth, MetricsConfig, MetricsTlsConfig,
    Rebalancing, Severity, SyncerConfig, TlsConfig, TlsVersion, early_level,
};

/// Exit status of a program whose configuration or usage is wrong (`EX_USAGE`).
pub const EXIT_USAGE: u8 = 64;

/// The result of reading all sources.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Every option of the table, in its order. An option whose text was wrong has its default here, and a mistake in `config`.
    pub options: Vec<Resolved>,
    /// The named sections with their options, in the file's order. The same holds for wrong texts in them.
    pub sections: Vec<SectionOptions>,
    /// Remarks for the log.
    pub notices: Vec<Notice>,
    /// The configuration, or all its mistakes.
    pub config: Result<Config, Mistakes>,
}

/// Reads the configuration from an environment (`std::env::vars_os()` in the program) and a file, which may be missing.
#[must_use]
pub fn load(file: &Path, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Loaded {
    interpret_all(environment, |mistakes, notices| sources::file(file, mistakes, notices))
}

/// Reads the configuration from an environment and the text of a file that is not on this host; `file` is its name in messages.
#[must_use]
pub fn load_text(file: &Path, text: &str, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Loaded {
    interpret_all(environment, |mistakes, notices| sources::settings(file, text, mistakes, notices))
}

/// Reads the settings of the Kubernetes API from an environment, as the daemon does: for programs that only query it.
///
/// # Errors
/// All mistakes in those variables.
pub fn load_kubernetes(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<KubernetesConfig, Mistakes> {
    let variables: Vec<(OsString, OsString)> = environment.into_iter().collect();
    let (mut mistakes, mut notices) = (Vec::new(), Vec::new());
    let config = kubernetes::from_environment(&variables, &mut mistakes, &mut notices);
    if mistakes.is_empty() { Ok(config) } else { Err(Mistakes(mistakes)) }
}

/// Makes the configuration from an environment and from the settings that `in_file` reads.
fn interpret_all(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    in_file: impl FnOnce(&mut Vec<Mistake>, &mut Vec<Notice>) -> InFile,
) -> Loaded {
    let mut mistakes = Vec::new();
    let mut notices = Vec::new();
    let plain_names: Vec<&str> = OPTIONS.iter().filter(|spec| spec.plain_variable).map(|spec| spec.name).collect();
    let variables: Vec<(OsString, OsString)> = environment.into_iter().collect();
    let environment = sources::environment(variables.iter().cloned(), &plain_names, &mut mistakes);
    let in_file = in_file(&mut mistakes, &mut notices);
    for setting in environment.settings.iter().chain(&in_file.settings) {
        if table::find(&setting.name).is_none_or(|spec| spec.plain_variable) {
            notices.push(unknown(setting));
        }
    }
    let mut options = Vec::with_capacity(OPTIONS.len());
    for spec in OPTIONS.iter() {
        let given = if spec.plain_variable {
            vec![last_of(spec, spec.name, &environment.plain, &mut notices)]
        } else {
            vec![
                last_of(spec, spec.name, &environment.settings, &mut notices),
                last_of(spec, spec.name, &in_file.settings, &mut notices),
            ]
        };
        options.push(resolve(spec, spec.name, given.into_iter().flatten(), &mut mistakes, &mut notices));
    }
    check::together(&mut options, &mut mistakes);
    let sections = sections::resolve_all(&in_file.sections, &mut mistakes, &mut notices);
    references::check(&options, &sections, &mut mistakes, &mut notices);
    let kubernetes = if references::use_kubernetes(&options, &sections) {
        kubernetes::from_environment(&variables, &mut mistakes, &mut notices)
    } else {
        KubernetesConfig::default()
    };
    let checked = &mut |spec: OptionSpec| {
        let found = options.iter().find(|option| option.spec.name == spec.name);
        found.expect("all options that are read are in the table").value.clone()
    };
    let config = if mistakes.is_empty() {
        Ok(sections::complete(table::config(checked, &kubernetes), &sections, &kubernetes))
    } else {
        Err(Mistakes(mistakes))
    };
    Loaded { options, sections, notices, config }
}

impl Default for Config {
    /// The configuration when nothing is set.
    fn default() -> Self {
        let kubernetes = KubernetesConfig::default();
        sections::complete(table::config(&mut |spec| default_value(&spec), &kubernetes), &[], &kubernetes)
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Config::default().server
    }
}

/// The notice about a name that no option has, with the option that was probably meant.
fn unknown(setting: &Setting) -> Notice {
    let wanted = setting.name.replace(['_', '-'], "");
    let close = nearest(&wanted, OPTIONS.iter().filter(|spec| !spec.plain_variable).map(|spec| spec.name));
    let hint = close.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    Notice::warning(format!("ignoring {} from {}: no option has this name{hint}", setting.name, setting.source))
}

#[cfg(test)]
mod tests;
