//! Patterns of schemas. They are written for Go's `regexp` (RE2), and run on the `regex` crate: both take linear time.

use regex::{Regex, RegexBuilder};

/// Most bytes of a compiled pattern; the crate's own limit of 10 MiB is too much for thousands of fields.
const MAX_COMPILED: usize = 1 << 20;

/// Compiles a pattern. It may match anywhere in a text, as in Go.
///
/// # Errors
/// The pattern is none, or too large; the text says why.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(&translated(pattern)).size_limit(MAX_COMPILED).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => format!("the compiled pattern is larger than {limit} bytes"),
        error => error.to_string().replace('\n', " "),
    })
}

/// The pattern with the same meaning for the crate. In RE2 `\d`, `\w`, `\s` and `\b` are about ASCII, and within brackets `[`, `&` and `~` are
/// letters as others.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut letters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('d') => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                Some('w') => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('s') => out.push_str(if in_class { "\\t\\n\\x0c\\r " } else { "[\\t\\n\\x0c\\r ]" }),
                Some('D') => out.push_str("[^0-9]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('S') => out.push_str("[^\\t\\n\\x0c\\r ]"),
                Some('b') if !in_class => out.push_str("(?-u:\\b)"),
                Some('B') if !in_class => out.push_str("(?-u:\\B)"),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if letters.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket in the first place is a letter.
                if letters.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            '[' if letters.peek() == Some(&':') => {
                out.push('[');
                // The name of a class ends with its own bracket.
                for inner in letters.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' if in_class => out.extend(['\\', letter]),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, text, expected) in [
            ("^\\d+$", "123", true),
            ("^\\d+$", "१२३", false),
            ("^[\\d.]+$", "1.2", true),
            ("^\\w$", "é", false),
            ("^[^\\W_]$", "a", true),
            ("^[^\\W_]$", "_", false),
            ("b", "abc", true),
            ("^[[:alpha:]]+$", "ab", true),
            ("^[a[]+$", "a[", true),
            ("^[]a]+$", "]a", true),
            ("^[a&&b]+$", "a&b", true),
            ("^\\p{Lu}$", "Ä", true),
            ("\\bab\\b", "x ab y", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_that_is_none_or_too_large_is_refused() {
        assert!(compile("(").unwrap_err().contains("unclosed"));
        assert!(compile("(?=a)").is_err());
        assert!(compile("((\\pL{100}){100}){100}").unwrap_err().contains("larger than"));
    }
}
