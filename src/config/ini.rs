//! The dialect of `typha.cfg`: Go's `ini.v1` with its default options.
//!
//! Typha's files are written in that dialect, and general ini crates differ from it: a comment
//! may begin anywhere in a value, quotes, backticks and `"""` are stripped, a backslash continues a line, and a line
//! without a delimiter is an error. Sections mean nothing to Typha. Our own sections have a heading with a quoted name,
//! `[kind "name"]`; this module does not know the kinds.
//!
//! Pure: it takes text and returns sections with their settings, and mistakes, all with line numbers. It finds all mistakes, not
//! just the first.

use std::mem;

/// A heading, and the settings below it up to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// `None` for the settings before the first heading.
    pub(super) heading: Option<Heading>,
    /// Its settings, in order.
    pub(super) settings: Vec<Setting>,
}

/// The line that begins a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heading {
    /// The text between the first bracket of the line and the last, as in Typha's parser.
    pub(super) text: String,
    /// Kind and name, if the heading has the form `[kind "name"]`.
    pub(super) quoted: Option<(String, String)>,
    /// Its line, from 1.
    pub(super) line: usize,
}

/// One `key = value` of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The key as written.
    pub(super) key: String,
    /// The value, unquoted and without comment.
    pub(super) value: String,
    /// Line of the key, from 1.
    pub(super) line: usize,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    /// Its number, from 1.
    pub(super) line: usize,
    /// The line itself.
    pub(super) text: String,
    /// The reason.
    pub(super) reason: &'static str,
}

/// Characters between key and value.
const DELIMITERS: [char; 2] = ['=', ':'];
/// Characters that begin a comment.
const COMMENTS: [char; 2] = ['#', ';'];
/// A quote for values of several lines.
const TRIPLE: &str = "\"\"\"";

/// Reads a file's text. Returns all sections in order and all bad lines. The first section has no heading; a heading that is there
/// twice begins two sections. Settings below a bad heading belong to the section before it.
pub(super) fn parse(text: &str) -> (Vec<Section>, Vec<BadLine>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Lines { rest: text, number: 0 };
    let mut sections = Vec::new();
    let mut section = Section::default();
    let mut bad = Vec::new();
    while let Some(line) = lines.next() {
        let number = lines.number;
        let line = line.trim_start();
        if line.trim_end().is_empty() || line.starts_with(COMMENTS) {
            continue;
        }
        let result = if line.starts_with('[') {
            heading(line, number).map(|heading| {
                let begun = Section { heading: Some(heading), settings: Vec::new() };
                sections.push(mem::replace(&mut section, begun));
            })
        } else {
            setting(line, number, &mut lines).map(|setting| section.settings.push(setting))
        };
        if let Err(reason) = result {
            bad.push(BadLine { line: number, text: line.trim_end().to_owned(), reason });
        }
    }
    sections.push(section);
    (sections, bad)
}

/// The lines of a text, with the end of line kept on each.
struct Lines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.find('\n').map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.number += 1;
        Some(line)
    }
}

fn heading(line: &str, number: usize) -> Result<Heading, &'static str> {
    let end = line.rfind(']').ok_or("the section's name has no closing bracket")?;
    let text = line[1..end].trim();
    if text.is_empty() {
        return Err("the section has no name");
    }
    Ok(Heading { text: text.to_owned(), quoted: kind_and_name(&line[1..]), line: number })
}

/// Kind and name of a heading, from the text after its first bracket. The name ends at the next quote; after the closing bracket
/// only a comment may follow.
fn kind_and_name(text: &str) -> Option<(String, String)> {
    let (kind, rest) = text.split_once('"')?;
    let (name, rest) = rest.split_once('"')?;
    let rest = rest.trim_start().strip_prefix(']')?.trim();
    let kind = kind.strip_suffix(char::is_whitespace)?.trim();
    let is_word = !kind.is_empty() && kind.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let ends = rest.is_empty() || rest.starts_with(COMMENTS);
    (is_word && ends).then(|| (kind.to_owned(), name.to_owned()))
}

fn setting(line: &str, number: usize, lines: &mut Lines<'_>) -> Result<Setting, &'static str> {
    let (key, rest) = key(line)?;
    let value = value(rest, lines)?;
    Ok(Setting { key: key.to_owned(), value, line: number })
}

/// The key of a line, and the text after the delimiter.
fn key(line: &str) -> Result<(&str, &str), &'static str> {
    const NO_DELIMITER: &str = "there is no = or : in it";
    let quote = if line.starts_with(TRIPLE) && line.len() > 6 {
        TRIPLE
    } else if line.starts_with('"') {
        "\""
    } else if line.starts_with('`') {
        "`"
    } else {
        let (key, value) = line.split_once(DELIMITERS).ok_or(NO_DELIMITER)?;
        let key = key.trim();
        return if key.is_empty() { Err("there is nothing before the = or :") } else { Ok((key, value)) };
    };
    let (key, rest) = line[quote.len()..].split_once(quote).ok_or("the key's quote is not closed")?;
    let (_, value) = rest.split_once(DELIMITERS).ok_or(NO_DELIMITER)?;
    Ok((key.trim(), value))
}

fn value(text: &str, lines: &mut Lines<'_>) -> Result<String, &'static str> {
    let text = text.trim_start();
    for quote in [TRIPLE, "`"] {
        if let Some(rest) = text.strip_prefix(quote).filter(|rest| quote == "`" || !rest.is_empty()) {
            return match rest.rfind(quote) {
                Some(end) => Ok(rest[..end].to_owned()),
                None => quoted_lines(rest, quote, lines),
            };
        }
    }
    let text = text.trim_end();
    if let Some(first) = text.strip_suffix('\\') {
        return Ok(continued_lines(first, lines));
    }
    let text = text.split(COMMENTS).next().unwrap_or_default().trim_end();
    Ok(unquoted(text).to_owned())
}

/// The rest of a value whose closing quote is on a later line.
fn quoted_lines(first: &str, quote: &str, lines: &mut Lines<'_>) -> Result<String, &'static str> {
    // Checked first, so that a quote that is never closed makes one line bad, not the rest of the file.
    if !lines.rest.contains(quote) {
        return Err("the value's quote is not closed");
    }
    let mut value = first.to_owned();
    while let Some(line) = lines.next() {
        if let Some(end) = line.rfind(quote) {
            value.push_str(&line[..end]);
            break;
        }
        value.push_str(line);
    }
    Ok(value)
}

/// The rest of a value that a backslash continues. Neither quotes nor comments count in it.
fn continued_lines(first: &str, lines: &mut Lines<'_>) -> String {
    let mut value = first.to_owned();
    while let Some(line) = lines.next() {
        let line = line.trim();
        let Some(more) = line.strip_suffix('\\') else {
            value.push_str(line);
            break;
        };
        value.push_str(more);
    }
    value
}

/// A value without the one pair of quotes around it, if there is one.
fn unquoted(text: &str) -> &str {
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
            && !inner.contains(quote)
        {
            return inner;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(sections: Vec<Section>) -> impl Iterator<Item = Setting> {
        sections.into_iter().flat_map(|section| section.settings)
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        let (sections, bad) = parse(text);
        assert_eq!(bad, [], "{text:?}");
        settings(sections).map(|setting| (setting.key, setting.value)).collect()
    }

    #[test]
    fn values_as_typhas_parser_reads_them() {
        let table: &[(&str, &str)] = &[
            ("a=b", "b"),
            ("a = b", "b"),
            ("  a\t:\tb  ", "b"),
            ("a = b = c", "b = c"),
            ("a : b = c", "b = c"),
            ("a = http://x:1/", "http://x:1/"),
            ("a =", ""),
            ("a = b # c", "b"),
            ("a = b#c", "b"),
            ("a = b;c", "b"),
            ("a = # c", ""),
            ("a = 'b c'", "b c"),
            ("a = \"b c\"", "b c"),
            ("a = 'b\"", "'b\""),
            ("a = 'b' 'c'", "'b' 'c'"),
            ("a = \"b # c\"", "\"b"),
            ("a = `b # c`", "b # c"),
            ("a = `b` # c", "b"),
            ("a = \"\"\"b # c\"\"\"", "b # c"),
            ("a = `b\nc`", "b\nc"),
            ("a = \"\"\"b\nc\"\"\"", "b\nc"),
            ("a = b\\\n c", "bc"),
            ("a = b \\\n c \\\n d", "b c d"),
            ("a = b\\\n\n", "b"),
            ("\"a\" = b", "b"),
            ("`a` = b", "b"),
            ("\u{feff}a = b", "b"),
            ("a = b\r\n", "b"),
            ("a = %(x)s", "%(x)s"),
        ];
        for (text, expected) in table {
            assert_eq!(pairs(text), [("a".to_owned(), (*expected).to_owned())], "{text:?}");
        }
    }

    #[test]
    fn every_setting_is_in_the_section_where_it_stands() {
        let text = "# one\n; two\nb = 1\n[global]\na: 2 # x\n\n  [ datastore  \"git\" ] ; y [z]\na = `3;4`\n\
                    [syncer \"x y\"]\n[datastore \"git\"]\na = 5\nb = 6\n";
        let (sections, bad) = parse(text);
        assert_eq!(bad, []);
        let seen: Vec<_> = sections
            .iter()
            .map(|Section { heading, settings }| {
                let heading = heading.as_ref().map(|Heading { text, quoted, line }| {
                    (text.as_str(), quoted.as_ref().map(|(kind, name)| (kind.as_str(), name.as_str())), *line)
                });
                let settings: Vec<_> = settings.iter().map(|s| (s.key.as_str(), s.value.as_str(), s.line)).collect();
                (heading, settings)
            })
            .collect();
        let git = Some(("datastore", "git"));
        assert_eq!(
            seen,
            [
                (None, vec![("b", "1", 3)]),
                (Some(("global", None, 4)), vec![("a", "2", 5)]),
                (Some(("datastore  \"git\" ] ; y [z", git, 7)), vec![("a", "3;4", 8)]),
                (Some(("syncer \"x y\"", Some(("syncer", "x y")), 9)), vec![]),
                (Some(("datastore \"git\"", git, 10)), vec![("a", "5", 11), ("b", "6", 12)]),
            ]
        );
    }

    #[test]
    fn only_a_word_and_one_quoted_name_make_a_named_section() {
        let quoted = |line: &str| heading(line, 1).unwrap().quoted.map(|(kind, name)| format!("{kind}|{name}"));
        for (line, expected) in [
            ("[x \"y\"]", Some("x|y")),
            ("[ x\t\"y]#;'`\" ]\r\n", Some("x|y]#;'`")),
            ("[x \"\"]# y", Some("x|")),
            ("[x]", None),
            ("[x y]", None),
            ("[x\"y\"]", None),
            ("[x 'y']", None),
            ("[\"y\"]", None),
            ("[x y \"z\"]", None),
            ("[x \"y\" z]", None),
            ("[x \"y]", None),
            ("[x \"y\"] z", None),
        ] {
            assert_eq!(quoted(line).as_deref(), expected, "{line:?}");
        }
    }

    #[test]
    fn every_bad_line_is_named_and_the_others_still_count() {
        let (sections, bad) = parse("[open\njust words\na = 1\n= 2\n[]\n\"k = 3\nb = `x\nc = 4\n");
        let seen: Vec<_> = bad.iter().map(|bad| (bad.line, bad.reason)).collect();
        assert_eq!(
            seen,
            [
                (1, "the section's name has no closing bracket"),
                (2, "there is no = or : in it"),
                (4, "there is nothing before the = or :"),
                (5, "the section has no name"),
                (6, "the key's quote is not closed"),
                (7, "the value's quote is not closed"),
            ]
        );
        let keys: Vec<_> = settings(sections).map(|setting| setting.key).collect();
        assert_eq!(keys, ["a", "c"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z=:#;'\"`\\\\\\[\\] \n\r\u{feff}é]{0,80}") {
            let _ = parse(&text);
        }
    }
}
