//! Where settings come from: the environment and the file. Collects them with their origin; interprets no value.
//!
//! The environment is passed in, never read here. A missing file is an empty one, as with Typha; anything else that keeps
//! the file from being read is a mistake.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ini;
use super::{Mistake, Notice};
use crate::datastore::address::without_user;

/// What the names of our variables begin with, in any case.
const PREFIX: &str = "TYPHA_";
/// Largest file that is read. The longest sensible one has a few KiB; a device or a wrong path must not fill the memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The option table.
    #[default]
    Default,
    /// An environment variable, by its name as found.
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

/// A text that somebody gave for a name.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The option's name as given, without the prefix.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
    /// Who gave it.
    pub(super) source: Source,
}

/// What the environment says.
#[derive(Debug, Default)]
pub(super) struct Environment {
    /// Variables with the prefix, in their order.
    pub(super) settings: Vec<Setting>,
    /// Variables by their exact names, for options that are plain variables.
    pub(super) plain: Vec<Setting>,
}

/// Picks our variables out of an environment.
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
        let source = Source::Env(name.to_owned());
        let Some(text) = text.to_str() else {
            mistakes.push(Mistake {
                option: name.to_owned(),
                value: without_user(&text.to_string_lossy()),
                source,
                accepted: "text in UTF-8".to_owned(),
                hint: String::new(),
            });
            continue;
        };
        let own_name = if is_plain { name } else { &name[PREFIX.len()..] };
        let setting = Setting { name: own_name.to_owned(), text: text.to_owned(), source };
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
            mistakes.push(Mistake {
                option: "configuration file".to_owned(),
                value: path.display().to_string(),
                source: Source::File { path: path.to_owned(), line: 0 },
                accepted: format!("a readable text file of at most {MAX_FILE_BYTES} bytes"),
                hint: error.to_string(),
            });
            return Vec::new();
        }
    };
    settings(path, &text, mistakes)
}

/// Reads the text of the file at `path`.
pub(super) fn settings(path: &Path, text: &str, mistakes: &mut Vec<Mistake>) -> Vec<Setting> {
    let at = |line| Source::File { path: path.to_owned(), line };
    let (settings, bad) = ini::parse(text);
    mistakes.extend(bad.into_iter().map(|bad| Mistake {
        option: "line".to_owned(),
        value: bad.text,
        source: at(bad.line),
        accepted: "Name = value, [section], or a comment that begins with # or ;".to_owned(),
        hint: bad.reason.to_owned(),
    }));
    settings
        .into_iter()
        .map(|setting| Setting { name: setting.key, text: setting.value, source: at(setting.line) })
        .collect()
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
