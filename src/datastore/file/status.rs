//! The state of a folder, for people and programs.

use std::fmt;

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileError {
    /// Path below the folder; empty for the folder itself.
    pub file: String,
    /// Line, from 1, where one can be named.
    pub line: Option<u64>,
    /// The faults, and the remedy for each.
    pub reason: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file.is_empty() { "the folder" } else { &self.file };
        match self.line {
            Some(line) => write!(f, "{file}:{line}: {}", self.reason),
            None => write!(f, "{file}: {}", self.reason),
        }
    }
}

/// The state of the folder, for logs, metrics and the status endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FileStatus {
    /// Files that count.
    pub files: usize,
    /// Objects that they hold.
    pub objects: usize,
    /// Objects of a family's group whose kind is not known: a typing error, or a newer kind.
    pub unknown: usize,
    /// Errors in all.
    pub error_count: usize,
    /// The first hundred of them, in the order of their files.
    pub errors: Vec<FileError>,
    /// Reloads that changed something; 0: nothing has been loaded yet.
    pub version: u64,
    /// The reason why the present content of the folder is not served, and the way out.
    pub held: Option<String>,
}
