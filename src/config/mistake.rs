//! The words of a configuration's reader to people: mistakes, notices, and the places that both speak of.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

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
    pub(super) fn new(
        option: &str,
        value: impl Into<String>,
        source: Source,
        accepted: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { option: option.to_owned(), value: value.into(), source, accepted: accepted.into(), hint: hint.into() }
    }

    /// A mistake in an environment variable.
    pub(super) fn in_variable(name: &str, value: impl Into<String>, accepted: &str, hint: impl Into<String>) -> Self {
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
    pub(super) fn info(text: String) -> Self {
        Self { warning: false, text }
    }

    pub(super) fn warning(text: String) -> Self {
        Self { warning: true, text }
    }
}
