//! Configuration: Typha's options under Typha's names, and ours beside them, from `TYPHA_*` variables and `typha.cfg`.
//!
//! [`table`] says which options there are, [`spec`] of what form. `sources` collects what was given, [`parse`] reads each text by its kind,
//! [`load`] decides which source counts, `check` looks at options together, `build` makes the [`Config`] (`typed`) that the
//! composition root hands out in parts. [`render`] prints the table.
//!
//! Invariants:
//! - the environment counts more than the file, whatever the case of the names;
//! - a wrong value never becomes a default: every [`Mistake`] is reported, all at once, and the program does not start;
//! - an empty value is no value; `none` is the empty value of the option's kind;
//! - what takes effect in place of what was given (a substitution) is visible in `bulrush config`.

mod build;
mod check;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod ini;
mod kubernetes;
pub mod parse;
pub mod render;
mod sources;
pub mod spec;
pub mod table;
mod typed;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::datastore::address::without_user;
use crate::datastore::kubernetes::KubernetesConfig;
pub use parse::Value;
use sources::Setting;
pub use sources::Source;
use spec::{OptionSpec, Zero};
use table::OPTIONS;
pub use typed::{
    Config, ConnectionsConfig, DatastoreConfig, DatastoreType, DebugConfig, EarlyLevel, EtcdConfig, FileConfig,
    HealthConfig, LogFormat, LoggingConfig, MetricsClientAuth, MetricsConfig, MetricsTlsConfig, Rebalancing,
    ServerConfig, Severity, TlsConfig, TlsVersion, early_level,
};

/// Exit status of a program whose configuration or usage is wrong (`EX_USAGE`).
pub const EXIT_USAGE: u8 = 64;
/// The value, in any case, that stands for the empty value of an option's kind.
const NONE: &str = "none";

/// A value that is wrong, or values that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The option, or what else is wrong.
    pub option: String,
    /// What was given, with passwords taken out.
    pub value: String,
    /// Who gave it.
    pub source: Source,
    /// What would be accepted.
    pub accepted: String,
    /// Why this is not, or what to check; may be empty.
    pub hint: String,
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

/// All that is wrong with a configuration.
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

/// Something about a configuration that is worth a line in the log and stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is odd (a warning) or just good to know.
    pub warning: bool,
    /// What it is.
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
    /// Who gave it.
    pub source: Source,
    /// Why the value is not what was given, where it is not; empty otherwise.
    pub note: String,
}

/// What became of the sources.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Every option of the table, in its order. An option whose text was wrong has its default here, and a mistake below.
    pub options: Vec<Resolved>,
    /// For the log.
    pub notices: Vec<Notice>,
    /// The configuration, or all that is wrong with it.
    pub config: Result<Config, Mistakes>,
}

/// Reads the configuration from an environment (`std::env::vars_os()` in the program) and a file, which may be missing.
#[must_use]
pub fn load(file: &Path, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Loaded {
    interpret_all(environment, |mistakes, notices| sources::file(file, mistakes, notices))
}

/// Reads the configuration from an environment and the text of a file that is elsewhere; `file` is its name in messages.
#[must_use]
pub fn load_text(file: &Path, text: &str, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Loaded {
    interpret_all(environment, |mistakes, _| sources::settings(file, text, mistakes))
}

/// Reads where the Kubernetes API is from an environment, as the daemon does: for programs that only want to ask it.
///
/// # Errors
/// All that is wrong with those variables.
pub fn load_kubernetes(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<KubernetesConfig, Mistakes> {
    let variables: Vec<(OsString, OsString)> = environment.into_iter().collect();
    let (mut mistakes, mut notices) = (Vec::new(), Vec::new());
    let config = kubernetes::from_environment(&variables, &mut mistakes, &mut notices);
    if mistakes.is_empty() { Ok(config) } else { Err(Mistakes(mistakes)) }
}

/// Makes the configuration of an environment and what `in_file` reads.
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
    for spec in OPTIONS {
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
    let config = if mistakes.is_empty() { Ok(Config::new(&options, kubernetes)) } else { Err(Mistakes(mistakes)) };
    Loaded { options, notices, config }
}

/// The setting of an option within one source: the last that is not empty.
fn last_of<'a>(spec: &OptionSpec, settings: &'a [Setting], notices: &mut Vec<Notice>) -> Option<&'a Setting> {
    let mut chosen: Option<&Setting> = None;
    for setting in settings {
        if !setting.name.eq_ignore_ascii_case(spec.name) || setting.text.is_empty() {
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

/// The value of an option from what was given for it, the most important source first.
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
            // Typha does not care for a value that another one overrides, and nobody is misled by it.
            Err(mistake) => notices.push(Notice::warning(format!("{mistake}; it is overridden by the environment"))),
        }
    }
    resolved.unwrap_or_else(|| {
        let mut resolved = default(spec);
        if wrong {
            "what was given is not accepted".clone_into(&mut resolved.note);
        }
        resolved
    })
}

fn default(spec: &'static OptionSpec) -> Resolved {
    let value = if spec.default.is_empty() {
        Value::zero(spec.kind)
    } else {
        parse::value(spec, spec.default).expect("a test reads every default of the table")
    };
    substituted(spec, value, Source::Default, spec.default)
}

fn interpret(spec: &'static OptionSpec, setting: &Setting) -> Result<Resolved, Box<Mistake>> {
    let mistake = |hint: String| {
        Box::new(Mistake {
            option: spec.name.to_owned(),
            value: without_user(&setting.text),
            source: setting.source.clone(),
            accepted: spec.accepts(),
            hint,
        })
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

/// Puts what takes effect in the place of an empty value, and says so.
fn substituted(spec: &'static OptionSpec, value: Value, source: Source, given: &str) -> Resolved {
    match spec.zero {
        Zero::Becomes(replacement) if value.is_zero() => {
            let value = parse::value(spec, replacement).expect("a test reads every substitution of the table");
            let note = format!("{given} means {value}");
            Resolved { spec, value, source, note }
        }
        _ => Resolved { spec, value, source, note: String::new() },
    }
}

/// The notice about a name that no option has, with the option that may have been meant.
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

/// How many typing errors still let us guess what was meant.
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
