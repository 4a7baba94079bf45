//! Collects settings from the environment and the file, each with its source. Interprets no value.
//!
//! The caller passes the environment in. A missing file counts as empty, as with Typha; any other error of reading the file
//! is a mistake.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::ini;
use super::spec::Section;
use super::{Mistake, Notice};
use crate::datastore::address::without_user;

/// The prefix of our variables' names, in any case.
const PREFIX: &str = "TYPHA_";
/// Largest file that is read. Real files have a few KiB; a device or a wrong path must not fill the memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The place where a value was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: it is the default of the option table.
    #[default]
    Default,
    /// An environment variable, with its name as found.
    Env(String),
    /// A line of the file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that was set for a name.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The option's name as written, without the prefix.
    pub(super) name: String,
    /// The section that it stands in.
    pub(super) section: Section,
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
        let setting = Setting { name: own_name.to_owned(), section: Section::Global, text: text.to_owned(), source };
        if is_plain { found.plain.push(setting) } else { found.settings.push(setting) }
    }
    found
}

/// Reads a file.
pub(super) fn file(path: &Path, mistakes: &mut Vec<Mistake>, notices: &mut Vec<Notice>) -> Vec<Setting> {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            notices.push(Notice::info(format!("there is no file {}: no option is read from a file", path.display())));
            return Vec::new();
        }
        Err(error) => {
            let accepted = format!("a readable text file of at most {MAX_FILE_BYTES} bytes");
            let (value, source) = (path.display().to_string(), Source::File { path: path.to_owned(), line: 0 });
            mistakes.push(Mistake::new("configuration file", value, source, accepted, error.to_string()));
            return Vec::new();
        }
    };
    settings(path, &text, mistakes)
}

/// Reads the text of the file at `path`.
pub(super) fn settings(path: &Path, text: &str, mistakes: &mut Vec<Mistake>) -> Vec<Setting> {
    let at = |line| Source::File { path: path.to_owned(), line };
    let (sections, bad) = ini::parse(text);
    let accepted = "Name = value, [section], or a comment that begins with # or ;";
    mistakes.extend(bad.into_iter().map(|bad| Mistake::new("line", bad.text, at(bad.line), accepted, bad.reason)));
    let mut found = Vec::new();
    for ini::Section { heading, settings } in sections {
        let section = Section::of_kind(heading.as_ref().and_then(ini::Heading::kind));
        let of_section = |setting: ini::Setting| Setting {
            name: setting.key,
            section,
            text: setting.value,
            source: at(setting.line),
        };
        found.extend(settings.into_iter().map(of_section));
    }
    found
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
