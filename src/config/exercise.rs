//! The fuzz target's check of one input; tests replay its corpus with it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::table::OPTIONS;
use super::{interpret_all, render, sources};

/// The byte of an input between the file and the environment, and between variables.
const SEPARATOR: u8 = 0;

/// Reads the input as a configuration: the text of a file, then variables (`NAME=value`), separated by zero bytes. Panics
/// when a mistake is lost or the result cannot be printed.
pub fn load(input: &[u8]) {
    let mut parts = input.split(|byte| *byte == SEPARATOR);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let environment: Vec<(OsString, OsString)> = parts
        .map(|variable| {
            let end = variable.iter().position(|byte| *byte == b'=').unwrap_or(variable.len());
            let value = variable.get(end + 1..).unwrap_or_default();
            (OsString::from_vec(variable[..end].to_vec()), OsString::from_vec(value.to_vec()))
        })
        .collect();
    let read = |environment, text: &str| {
        interpret_all(environment, |mistakes, notices| {
            sources::settings(Path::new("typha.cfg"), text, mistakes, notices)
        })
    };
    let loaded = read(environment, &text);
    assert_eq!(loaded.options.len(), OPTIONS.len(), "every option has a value");
    if let Err(mistakes) = &loaded.config {
        assert!(!mistakes.0.is_empty(), "a configuration that is refused has a mistake");
        assert!(mistakes.0.iter().all(|mistake| !mistake.accepted.is_empty()), "{mistakes}");
    }
    let _ = (render::table(&loaded), render::json(&loaded));
    if loaded.config.is_ok() {
        let again = read(Vec::new(), &(render::cfg(&loaded.options) + &render::cfg_sections(&loaded.sections)));
        // Options that only variables can set are not in the file.
        let expected = loaded.config.as_ref().ok();
        assert_eq!(again.config.as_ref().ok(), expected, "the printed file reads back as the same configuration");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_config_does_no_harm() {
        crate::fuzzing::replay("config", super::load);
    }
}
