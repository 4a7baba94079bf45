//! Configuration: Typha's options under Typha's names, and ours beside them, from `TYPHA_*` variables and `typha.cfg`.
//!
//! [`table`] lists the options, [`spec`] describes the form of one. `ini` splits the file into sections, `sources` collects the
//! settings, [`parse`] reads each text by its kind, [`load`] decides which source counts, `check` compares options with each
//! other, [`table`] makes the [`Config`] (`typed`) that the composition root hands out in parts. [`render`] prints the options.
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
mod options;
pub mod parse;
pub mod render;
mod server;
mod sources;
pub mod spec;
pub mod table;
mod typed;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::datastore::address::without_user;
use crate::datastore::kubernetes::KubernetesConfig;
pub use parse::Value;
pub use server::{Pumps, RANDOM_SEED, ServerConfig};
use sources::Setting;
pub use sources::Source;
use spec::{OptionSpec, Zero};
use table::OPTIONS;
pub use typed::{
    CacheConfig, Config, ConnectionsConfig, DatastoreConfig, DatastoreType, DebugConfig, EtcdConfig, FileConfig,
    GLOBAL, HealthConfig, LogFormat, LoggingConfig, MetricsClientAuth, MetricsConfig, MetricsTlsConfig, Rebalancing,
    Severity, TlsConfig, TlsVersion, early_level,
};

/// Exit status of a program whose configuration or usage is wrong (`EX_USAGE`).
pub const EXIT_USAGE: u8 = 64;
/// The word, in any case, that stands for the empty value of an option's kind.
const NONE: &str = "none";

/// A value that is wrong, or values that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The option, or the part of the configuration that is wrong.
    pub option: String,
    /// The text that was set, with passwords taken out.
    pub value: String,
    /// The place where it was set.
    pub source: Source,
    /// The texts that would be accepted, in words.
    pub accepted: String,
    /// The reason why this text is not accepted, or advice; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Mistake {
    fn new(
        option: &str,
        value: impl Into<String>,
        source: Source,
        accepted: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { option: option.to_owned(), value: value.into(), source, accepted: accepted.into(), hint: hint.into() }
    }

    /// A mistake in an environment variable.
    fn in_variable(name: &str, value: impl Into<String>, accepted: &str, hint: impl Into<String>) -> Self {
        Self::new(name, value, Source::Env(name.to_owned()), accepted, hint)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?} ({}): expected {}", self.option, self.value, self.source, self.accepted)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

/// All mistakes of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "the configuration has {count} mistake{}:", if count == 1 { "" } else { "s" })?;
        for mistake in &self.0 {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// A remark about a configuration for the log. It stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// True for a warning, false for information.
    pub warning: bool,
    /// The remark.
    pub text: String,
}

impl Notice {
    fn info(text: String) -> Self {
        Self { warning: false, text }
    }

    fn warning(text: String) -> Self {
        Self { warning: true, text }
    }
}

/// An option with the value that takes effect.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The option.
    pub spec: &'static OptionSpec,
    /// The value that takes effect.
    pub value: Value,
    /// The place where it was set.
    pub source: Source,
    /// The reason why another value takes effect than the one that was set; empty if none does.
    pub note: String,
}

/// The result of reading all sources.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Every option of the table, in its order. An option whose text was wrong has its default here, and a mistake in `config`.
    pub options: Vec<Resolved>,
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
    interpret_all(environment, |mistakes, _| sources::settings(file, text, mistakes))
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
    in_file: impl FnOnce(&mut Vec<Mistake>, &mut Vec<Notice>) -> Vec<Setting>,
) -> Loaded {
    let mut mistakes = Vec::new();
    let mut notices = Vec::new();
    let plain_names: Vec<&str> = OPTIONS.iter().filter(|spec| spec.plain_variable).map(|spec| spec.name).collect();
    let variables: Vec<(OsString, OsString)> = environment.into_iter().collect();
    let environment = sources::environment(variables.iter().cloned(), &plain_names, &mut mistakes);
    let in_file = in_file(&mut mistakes, &mut notices);
    for setting in environment.settings.iter().chain(&in_file) {
        if table::find(&setting.name).is_none_or(|spec| spec.plain_variable) {
            notices.push(unknown(setting));
        }
    }
    let mut options = Vec::with_capacity(OPTIONS.len());
    for spec in OPTIONS.iter() {
        let given = if spec.plain_variable {
            vec![last_of(spec, &environment.plain, &mut notices)]
        } else {
            vec![last_of(spec, &environment.settings, &mut notices), last_of(spec, &in_file, &mut notices)]
        };
        options.push(resolve(spec, given.into_iter().flatten(), &mut mistakes, &mut notices));
    }
    check::together(&mut options, &mut mistakes);
    let kubernetes = if check::uses_kubernetes(&options) {
        kubernetes::from_environment(&variables, &mut mistakes, &mut notices)
    } else {
        KubernetesConfig::default()
    };
    let checked = &mut |spec: OptionSpec| {
        let found = options.iter().find(|option| option.spec.name == spec.name);
        found.expect("all options that are read are in the table").value.clone()
    };
    let config = if mistakes.is_empty() { Ok(table::config(checked, &kubernetes)) } else { Err(Mistakes(mistakes)) };
    Loaded { options, notices, config }
}

/// The setting of an option within one source: the last one that is not empty.
fn last_of<'a>(spec: &OptionSpec, settings: &'a [Setting], notices: &mut Vec<Notice>) -> Option<&'a Setting> {
    let mut chosen: Option<&Setting> = None;
    for setting in settings {
        if setting.section != spec.section || !setting.name.eq_ignore_ascii_case(spec.name) || setting.text.is_empty() {
            continue;
        }
        if let Some(earlier) = chosen.replace(setting) {
            notices.push(Notice::warning(format!(
                "{} is given twice: {} counts, {} does not",
                spec.name, setting.source, earlier.source
            )));
        }
    }
    chosen
}

/// The value of an option from its settings, of which the most important comes first.
fn resolve<'a>(
    spec: &'static OptionSpec,
    given: impl Iterator<Item = &'a Setting>,
    mistakes: &mut Vec<Mistake>,
    notices: &mut Vec<Notice>,
) -> Resolved {
    let mut resolved: Option<Resolved> = None;
    let mut wrong = false;
    for setting in given {
        let effective = resolved.is_none() && !wrong;
        match interpret(spec, setting) {
            Ok(found) if effective => resolved = Some(found),
            Ok(_) => {}
            Err(mistake) if effective => {
                wrong = true;
                mistakes.push(*mistake);
            }
            // Typha ignores a wrong value that another one overrides, and it misleads nobody.
            Err(mistake) => notices.push(Notice::warning(format!("{mistake}; it is overridden by the environment"))),
        }
    }
    resolved.unwrap_or_else(|| {
        let mut resolved = default(spec);
        if wrong {
            "the value that was set is not accepted".clone_into(&mut resolved.note);
        }
        resolved
    })
}

fn default(spec: &'static OptionSpec) -> Resolved {
    substituted(spec, written_default(spec), Source::Default, spec.default)
}

fn written_default(spec: &OptionSpec) -> Value {
    if spec.default.is_empty() {
        Value::zero(spec.kind)
    } else {
        parse::value(spec, spec.default).expect("a test reads every default of the table")
    }
}

/// The value of an option that is not set.
fn default_value(spec: &OptionSpec) -> Value {
    let value = written_default(spec);
    replacement(spec, &value).unwrap_or(value)
}

impl Default for Config {
    /// The configuration when nothing is set.
    fn default() -> Self {
        table::config(&mut |spec| default_value(&spec), &KubernetesConfig::default())
    }
}

fn interpret(spec: &'static OptionSpec, setting: &Setting) -> Result<Resolved, Box<Mistake>> {
    let mistake = |hint: String| {
        let (value, source) = (without_user(&setting.text), setting.source.clone());
        Box::new(Mistake::new(spec.name, value, source, spec.accepts(), hint))
    };
    let is_word = matches!(spec.kind, spec::Kind::OneOf(words) if words.contains(&NONE));
    let value = if setting.text.eq_ignore_ascii_case(NONE) && !is_word {
        if spec.zero == Zero::Refused {
            return Err(mistake("it cannot be none".to_owned()));
        }
        Value::zero(spec.kind)
    } else {
        parse::value(spec, &setting.text).map_err(mistake)?
    };
    Ok(substituted(spec, value, setting.source.clone(), &setting.text))
}

/// The value that takes effect in place of an empty one.
fn replacement(spec: &OptionSpec, value: &Value) -> Option<Value> {
    match spec.zero {
        Zero::Becomes(replacement) if value.is_zero() => {
            Some(parse::value(spec, replacement).expect("a test reads every substitution of the table"))
        }
        _ => None,
    }
}

/// Resolves an option: replaces an empty value where the option has a replacement, and notes that.
fn substituted(spec: &'static OptionSpec, value: Value, source: Source, given: &str) -> Resolved {
    match replacement(spec, &value) {
        Some(value) => Resolved { spec, note: format!("{given} means {value}"), value, source },
        None => Resolved { spec, value, source, note: String::new() },
    }
}

/// The notice about a name that no option has, with the option that was probably meant.
fn unknown(setting: &Setting) -> Notice {
    let wanted = setting.name.replace(['_', '-'], "").to_ascii_lowercase();
    let close = OPTIONS
        .iter()
        .filter(|spec| !spec.plain_variable && wanted.len().abs_diff(spec.name.len()) <= MAX_DISTANCE)
        .map(|spec| (distance(&wanted, &spec.name.to_ascii_lowercase()), spec.name))
        .min()
        .filter(|(distance, _)| *distance <= MAX_DISTANCE);
    let hint = close.map(|(_, name)| format!("; did you mean {name}?")).unwrap_or_default();
    Notice::warning(format!("ignoring {} from {}: no option has this name{hint}", setting.name, setting.source))
}

/// Most typing errors in a name for which an option is suggested.
const MAX_DISTANCE: usize = 2;

/// Levenshtein's distance of two short texts, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
