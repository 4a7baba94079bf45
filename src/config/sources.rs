//! Collects settings from the environment and the file, each with its source. Interprets no value.
//!
//! The caller passes the environment in. A missing file counts as empty, as with Typha; any other error of reading the file
//! is a mistake.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::ini;
use super::mistake::{Mistake, Notice, Source};
use super::spec::Section;
use crate::datastore::address::without_user;
use crate::model::nearest::did_you_mean;

/// The prefix of our variables' names, in any case.
const PREFIX: &str = "TYPHA_";
/// Largest file that is read. Real files have a few KiB; a device or a wrong path must not fill the memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A text that was set for a name.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The option's name as written, without the prefix.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
    /// The place where it was set.
    pub(super) source: Source,
}

/// The settings of an environment.
#[derive(Debug, Default)]
pub(super) struct Environment {
    /// Variables with the prefix, in their order.
    pub(super) settings: Vec<Setting>,
    /// Variables with exact names, for options that are plain variables.
    pub(super) plain: Vec<Setting>,
}

/// The settings of a file.
#[derive(Debug, Default)]
pub(super) struct InFile {
    /// Settings outside of named sections, in their order.
    pub(super) settings: Vec<Setting>,
    /// The named sections, in their order.
    pub(super) sections: Vec<NamedSection>,
}

/// A section with a quoted name, and its settings. Neither the name nor the settings are checked.
#[derive(Debug)]
pub(super) struct NamedSection {
    /// Its kind.
    pub(super) section: Section,
    /// Its name.
    pub(super) name: String,
    /// Its heading.
    pub(super) source: Source,
    /// Its settings, in their order.
    pub(super) settings: Vec<Setting>,
}

/// Finds our variables in an environment.
pub(super) fn environment(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    plain_names: &[&str],
    mistakes: &mut Vec<Mistake>,
) -> Environment {
    let mut found = Environment::default();
    for (name, text) in variables {
        let Some(name) = name.to_str() else { continue };
        let is_plain = plain_names.contains(&name);
        let has_prefix = name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
        if !is_plain && !has_prefix {
            continue;
        }
        let Some(text) = text.to_str() else {
            mistakes.push(Mistake::in_variable(name, without_user(&text.to_string_lossy()), "text in UTF-8", ""));
            continue;
        };
        let own_name = if is_plain { name } else { &name[PREFIX.len()..] };
        let source = Source::Env(name.to_owned());
        let setting = Setting { name: own_name.to_owned(), text: text.to_owned(), source };
        if is_plain { found.plain.push(setting) } else { found.settings.push(setting) }
    }
    found
}

/// Reads a file.
pub(super) fn file(path: &Path, mistakes: &mut Vec<Mistake>, notices: &mut Vec<Notice>) -> InFile {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            notices.push(Notice::info(format!("there is no file {}: no option is read from a file", path.display())));
            return InFile::default();
        }
        Err(error) => {
            let accepted = format!("a readable text file of at most {MAX_FILE_BYTES} bytes");
            let (value, source) = (path.display().to_string(), Source::File { path: path.to_owned(), line: 0 });
            mistakes.push(Mistake::new("configuration file", value, source, accepted, error.to_string()));
            return InFile::default();
        }
    };
    settings(path, &text, mistakes, notices)
}

/// Reads the text of the file at `path`.
///
/// A heading without a quoted name, or with one after a word that is like no kind of section, means nothing, as in Typha. One that
/// looks like a slip is a mistake or a warning.
pub(super) fn settings(path: &Path, text: &str, mistakes: &mut Vec<Mistake>, notices: &mut Vec<Notice>) -> InFile {
    let at = |line| Source::File { path: path.to_owned(), line };
    let (sections, bad) = ini::parse(text);
    let accepted = "Name = value, [section], or a comment that begins with # or ;";
    mistakes.extend(bad.into_iter().map(|bad| Mistake::new("line", bad.text, at(bad.line), accepted, bad.reason)));
    let mut found = InFile::default();
    for ini::Section { heading, settings } in sections {
        let of_section =
            |setting: ini::Setting| Setting { name: setting.key, text: setting.value, source: at(setting.line) };
        let settings = settings.into_iter().map(of_section);
        let named = heading.as_ref().and_then(|heading| {
            let source = at(heading.line);
            let Some((kind, name)) = &heading.quoted else {
                notices.extend(unquoted(&heading.text, &source));
                return None;
            };
            if let Some(section) = Section::of_kind(kind) {
                return Some((section, name, source));
            }
            // The section is read as the one that was meant, so that all its mistakes are found.
            let section = Section::like(kind)?;
            let (value, accepted) =
                (format!("[{}]", heading.text), "a section [datastore \"name\"] or [syncer \"name\"]");
            let hint = did_you_mean(section.kind());
            mistakes.push(Mistake::new("section", value, source.clone(), accepted, hint));
            Some((section, name, source))
        });
        match named {
            Some((section, name, source)) => {
                let (name, settings) = (name.clone(), settings.collect());
                found.sections.push(NamedSection { section, name, source, settings });
            }
            None => found.settings.extend(settings),
        }
    }
    found
}

/// The warning about a heading that has a name, but not in quotes.
fn unquoted(heading: &str, source: &Source) -> Option<Notice> {
    let (kind, name) = heading.trim().split_once(char::is_whitespace)?;
    let kind = Section::like(kind)?.kind()?;
    let name = name.trim().trim_matches(['"', '\'']);
    Some(Notice::warning(format!(
        "the heading [{heading}] ({source}) means nothing, and its settings count as if it were not there: a section has its name in \
         double quotes and nothing after it; write [{kind} \"{name}\"]"
    )))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than allowed, to tell a file of the allowed size from a larger one.
    let length = File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
    }
    Ok(text)
}
