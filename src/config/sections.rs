//! Named sections: `[datastore "name"]` and `[syncer "name"]`, each with options of its own.
//!
//! Fed with the sections of a file by `sources`. Each is read by the rows of [`table`] for its kind, and checked by itself here; `references`
//! compares sections with each other. [`complete`] adds them to the configuration.

use std::collections::HashMap;

use super::mistake::{Mistake, Notice, Source};
use super::parse::Value;
use super::resolve::{Resolved, default_value, last_of, resolve};
use super::sources::{NamedSection, Setting};
use super::spec::{OptionSpec, Section};
use super::table;
use super::typed::{Config, GLOBAL};
use crate::datastore::address::without_user;
use crate::datastore::kubernetes::KubernetesConfig;
use crate::model::nearest::{did_you_mean, nearest};
use crate::model::{MAX_SYNCER_NAME, SyncerName};

/// Most sections of one kind. Each is a pipeline or a connection, and a label of metrics.
pub const MAX_SECTIONS: usize = 64;

/// A named section with the values that take effect.
#[derive(Clone, Debug)]
pub struct SectionOptions {
    /// Its kind.
    pub section: Section,
    /// Its name.
    pub name: String,
    /// Its heading's place.
    pub source: Source,
    /// Its options, in the table's order: of a datastore those of its type.
    pub options: Vec<Resolved>,
}

impl SectionOptions {
    /// Its heading.
    #[must_use]
    pub fn heading(&self) -> String {
        self.section.heading(&self.name)
    }

    /// The text of an option that is one text; empty if the section does not have the option.
    pub(super) fn text(&self, name: &str) -> &str {
        match self.get(name).map(|option| &option.value) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// The items of an option that is a list; none if the section does not have the option.
    pub(super) fn list(&self, name: &str) -> &[String] {
        match self.get(name).map(|option| &option.value) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    /// An option of the section, if its datastore's type has it.
    pub(super) fn get(&self, name: &str) -> Option<&Resolved> {
        self.options.iter().find(|option| option.spec.name == name)
    }

    /// The name of an option of the section in messages.
    pub(super) fn label(&self, name: &str) -> String {
        label(&self.heading(), name)
    }

    /// A mistake in the value of an option.
    pub(super) fn mistake(&self, name: &str, accepted: impl Into<String>, hint: impl Into<String>) -> Mistake {
        let (value, source) = match self.get(name) {
            Some(option) if option.source != Source::Default => (option.value.to_string(), &option.source),
            Some(option) => (option.value.to_string(), &self.source),
            None => (String::new(), &self.source),
        };
        Mistake::new(&self.label(name), value, source.clone(), accepted, hint)
    }

    fn value(&self, spec: &OptionSpec) -> Value {
        self.get(spec.name).map_or_else(|| default_value(spec), |option| option.value.clone())
    }
}

/// Whether an option's own text was wrong: then its value is not the one that was meant. `label` is the option's name in messages.
pub(super) fn is_wrong(mistakes: &[Mistake], label: &str) -> bool {
    mistakes.iter().any(|mistake| mistake.option == label)
}

fn label(heading: &str, name: &str) -> String {
    format!("{heading} {name}")
}

/// Reads all named sections. Finds the mistakes that each has by itself.
pub(super) fn resolve_all(
    sections: &[NamedSection],
    mistakes: &mut Vec<Mistake>,
    notices: &mut Vec<Notice>,
) -> Vec<SectionOptions> {
    let mut first: HashMap<(Section, &str), &Source> = HashMap::new();
    let mut found = Vec::new();
    for named in sections {
        let heading = named.section.heading(&named.name);
        let mut mistake = |accepted: String, hint: String| {
            mistakes.push(Mistake::new("section", heading.clone(), named.source.clone(), accepted, hint));
        };
        if let Err((accepted, hint)) = check_name(named.section, &named.name) {
            mistake(accepted, hint);
        }
        if let Some(earlier) = first.get(&(named.section, &*named.name)) {
            let accepted = "a section that is there once".to_owned();
            mistake(accepted, format!("the first one is at {earlier}: put all settings there, or choose another name"));
        } else {
            first.insert((named.section, &named.name), &named.source);
        }
        if first.keys().filter(|(section, _)| *section == named.section).count() > MAX_SECTIONS {
            let kind = named.section.kind().unwrap_or_default();
            mistake(format!("at most {MAX_SECTIONS} sections [{kind} \"...\"]"), String::new());
            break;
        }
        found.push(resolve_one(named, mistakes, notices));
    }
    found
}

/// Checks a section's name; fails with the accepted names and a hint.
fn check_name(section: Section, name: &str) -> Result<(), (String, String)> {
    if !SyncerName::has_form(name) {
        let accepted = format!("a name of 1 to {MAX_SYNCER_NAME} lower-case letters, digits and - inside");
        let lower = name.to_lowercase().replace([' ', '_', '.', '/'], "-");
        let suggestion = SyncerName::has_form(&lower).then(|| section.heading(&lower));
        return Err((accepted, suggestion.map(|heading| format!("did you mean {heading}?")).unwrap_or_default()));
    }
    if section == Section::Datastore && name == GLOBAL {
        let hint = format!("{GLOBAL} is the name of the datastore that options outside of named sections describe");
        return Err(("another name".to_owned(), hint));
    }
    Ok(())
}

fn resolve_one(named: &NamedSection, mistakes: &mut Vec<Mistake>, notices: &mut Vec<Notice>) -> SectionOptions {
    let heading = named.section.heading(&named.name);
    let mut section = SectionOptions {
        section: named.section,
        name: named.name.clone(),
        source: named.source.clone(),
        options: Vec::new(),
    };
    let mut only_for = String::new();
    for spec in table::of_section(named.section) {
        // The type comes first in the table. While it is not known, every option may be meant.
        if !only_for.is_empty() && !spec.only_for.is_empty() && spec.only_for != only_for {
            continue;
        }
        let label = label(&heading, spec.name);
        let given = last_of(spec, &label, &named.settings, notices);
        section.options.push(resolve(spec, &label, given.into_iter(), mistakes, notices));
        if spec.name == "Type" {
            section.text("Type").clone_into(&mut only_for);
        }
    }
    for setting in &named.settings {
        if !section.options.iter().any(|option| option.spec.name.eq_ignore_ascii_case(&setting.name)) {
            mistakes.push(unknown(&section, setting));
        }
    }
    for option in &section.options {
        let spec = option.spec;
        let due = spec.required && (spec.only_for.is_empty() || !only_for.is_empty());
        if due && option.value.is_zero() && !is_wrong(mistakes, &section.label(spec.name)) {
            mistakes.push(section.mistake(spec.name, spec.accepts(), "the section needs it"));
        }
    }
    both_or_none(&section, ["KeyFile", "CertFile"], mistakes);
    delays(&section, mistakes);
    section
}

/// The mistake of a setting that is none of the section's options.
fn unknown(section: &SectionOptions, setting: &Setting) -> Mistake {
    let names = || section.options.iter().map(|option| option.spec.name);
    let all = names().collect::<Vec<_>>().join(", ");
    let other = table::of_section(section.section).find(|spec| spec.name.eq_ignore_ascii_case(&setting.name));
    let (accepted, hint) = match (other, table::find(&setting.name)) {
        (Some(other), _) => {
            let accepted = format!("one of {all}, because Type is {}", section.text("Type"));
            (accepted, format!("{} is for Type = {}", other.name, other.only_for))
        }
        (None, Some(global)) => {
            let hint = format!("{} stands outside of named sections, for example at the top of the file", global.name);
            (format!("one of {all}"), hint)
        }
        (None, None) => {
            let wanted = setting.name.replace(['_', '-'], "");
            (format!("one of {all}"), did_you_mean(nearest(&wanted, names())))
        }
    };
    let (value, source) = (without_user(&setting.text), setting.source.clone());
    Mistake::new(&section.label(&setting.name), value, source, accepted, hint)
}

fn both_or_none(section: &SectionOptions, names: [&str; 2], mistakes: &mut Vec<Mistake>) {
    for (name, other) in [(names[0], names[1]), (names[1], names[0])] {
        let given = |name: &str| !section.text(name).is_empty() || is_wrong(mistakes, &section.label(name));
        if !given(name) && given(other) {
            mistakes.push(section.mistake(name, format!("a value, because {other} is set"), ""));
        }
    }
}

fn delays(section: &SectionOptions, mistakes: &mut Vec<Mistake>) {
    let seconds = |name| match section.get(name).map(|option| &option.value) {
        Some(Value::Seconds(seconds)) => Some(*seconds),
        _ => None,
    };
    let (Some(quiet), Some(longest)) = (seconds("QuietSecs"), seconds("MaxDelaySecs")) else { return };
    if quiet > longest && !is_wrong(mistakes, &section.label("MaxDelaySecs")) {
        let accepted = format!("at most MaxDelaySecs, which is {longest}");
        mistakes.push(section.mistake("QuietSecs", accepted, "after MaxDelaySecs changes are published without quiet"));
    }
}

/// Adds what sections describe to a configuration. The sections must be free of mistakes.
pub(super) fn complete(mut config: Config, sections: &[SectionOptions], kubernetes: &KubernetesConfig) -> Config {
    let of = |kind| sections.iter().filter(move |section| section.section == kind);
    config.syncers = of(Section::Syncer)
        .filter_map(|section| {
            let name = SyncerName::intern(&section.name).ok()?;
            Some(table::syncer(name, &mut |spec| section.value(&spec)))
        })
        .collect();
    let is_source = |name: &str| config.syncers.iter().any(|syncer| syncer.sources.iter().any(|source| source == name));
    if config.calico_syncers || is_source(GLOBAL) {
        config.datastores.push(config.global.clone());
    }
    let used = of(Section::Datastore).filter(|section| is_source(&section.name));
    let datastores = used.map(|section| table::datastore(&section.name, &mut |spec| section.value(&spec), kubernetes));
    config.datastores.extend(datastores);
    config
}

#[cfg(test)]
mod tests;
