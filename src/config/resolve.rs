//! Decides which setting of an option counts, and the value that it gives.
//!
//! Fed with the settings of [`super::sources`] and an option of [`super::table`]; texts are read by [`super::parse`]. The same for options
//! outside of sections and in them: those in a section carry its heading in their messages.

use super::mistake::{Mistake, Notice, Source};
use super::parse::{self, Value};
use super::sources::Setting;
use super::spec::{Kind, OptionSpec, Zero};
use crate::datastore::address::without_user;

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

/// The word, in any case, that stands for the empty value of an option's kind.
const NONE: &str = "none";

/// The setting of an option among those of one source or section: the last one that is not empty. `name` is the option's in messages.
pub(super) fn last_of<'a>(
    spec: &OptionSpec,
    name: &str,
    settings: &'a [Setting],
    notices: &mut Vec<Notice>,
) -> Option<&'a Setting> {
    let mut chosen: Option<&Setting> = None;
    for setting in settings {
        if !setting.name.eq_ignore_ascii_case(spec.name) || setting.text.is_empty() {
            continue;
        }
        if let Some(earlier) = chosen.replace(setting) {
            notices.push(Notice::warning(format!(
                "{name} is given twice: {} counts, {} does not",
                setting.source, earlier.source
            )));
        }
    }
    chosen
}

/// The value of an option from its settings, of which the most important comes first. `name` is the option's in messages.
pub(super) fn resolve<'a>(
    spec: &'static OptionSpec,
    name: &str,
    given: impl Iterator<Item = &'a Setting>,
    mistakes: &mut Vec<Mistake>,
    notices: &mut Vec<Notice>,
) -> Resolved {
    let mut resolved: Option<Resolved> = None;
    let mut wrong = false;
    for setting in given {
        let effective = resolved.is_none() && !wrong;
        match interpret(spec, name, setting) {
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
pub(super) fn default_value(spec: &OptionSpec) -> Value {
    let value = written_default(spec);
    replacement(spec, &value).unwrap_or(value)
}

fn interpret(spec: &'static OptionSpec, name: &str, setting: &Setting) -> Result<Resolved, Box<Mistake>> {
    let mistake = |hint: String| {
        let (value, source) = (without_user(&setting.text), setting.source.clone());
        Box::new(Mistake::new(name, value, source, spec.accepts(), hint))
    };
    let is_word = matches!(spec.kind, Kind::OneOf(words) if words.contains(&NONE));
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
