//! The dialect of `typha.cfg`: what Go's `ini.v1` makes of a file with its default options.
//!
//! Written here because that dialect is Typha's contract and general ini crates differ from it where it hurts: a comment
//! may begin anywhere in a value, quotes, backticks and `"""` are stripped, a backslash continues a line, and a line
//! without a delimiter is an error. Sections mean nothing to Typha, so they are checked and forgotten.
//!
//! Pure: text in, settings and mistakes with their line numbers out. All mistakes are found, not just the first.

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
    /// What is wrong with it.
    pub(super) reason: &'static str,
}

/// What stands between key and value.
const DELIMITERS: [char; 2] = ['=', ':'];
/// What begins a comment.
const COMMENTS: [char; 2] = ['#', ';'];
/// A quote for values of several lines.
const TRIPLE: &str = "\"\"\"";

/// Reads a file's text: all settings in order, and all lines that are wrong.
pub(super) fn parse(text: &str) -> (Vec<Setting>, Vec<BadLine>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Lines { rest: text, number: 0 };
    let mut settings = Vec::new();
    let mut bad = Vec::new();
    while let Some(line) = lines.next() {
        let number = lines.number;
        let line = line.trim_start();
        if line.trim_end().is_empty() || line.starts_with(COMMENTS) {
            continue;
        }
        let result = if line.starts_with('[') {
            section(line)
        } else {
            setting(line, number, &mut lines).map(|setting| settings.push(setting))
        };
        if let Err(reason) = result {
            bad.push(BadLine { line: number, text: line.trim_end().to_owned(), reason });
        }
    }
    (settings, bad)
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

fn section(line: &str) -> Result<(), &'static str> {
    match line.rfind(']') {
        None => Err("the section's name has no closing bracket"),
        Some(end) if line[1..end].trim().is_empty() => Err("the section has no name"),
        Some(_) => Ok(()),
    }
}

fn setting(line: &str, number: usize, lines: &mut Lines<'_>) -> Result<Setting, &'static str> {
    let (key, rest) = key(line)?;
    let value = value(rest, lines)?;
    Ok(Setting { key: key.to_owned(), value, line: number })
}

/// The key of a line, and what stands after the delimiter.
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
    // Looked for first, so that a quote which is never closed costs one line, not the rest of the file.
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

    fn pairs(text: &str) -> Vec<(String, String)> {
        let (settings, bad) = parse(text);
        assert_eq!(bad, [], "{text:?}");
        settings.into_iter().map(|setting| (setting.key, setting.value)).collect()
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
    fn sections_and_comments_are_passed_over() {
        let text = "# one\n; two\nb = 1\n[global]\na = 2\n\n  [ x ] \na = 3\n";
        let (settings, bad) = parse(text);
        assert_eq!(bad, []);
        let seen: Vec<_> = settings.iter().map(|s| (s.key.as_str(), s.value.as_str(), s.line)).collect();
        assert_eq!(seen, [("b", "1", 3), ("a", "2", 5), ("a", "3", 8)]);
    }

    #[test]
    fn every_bad_line_is_named_and_the_others_still_count() {
        let (settings, bad) = parse("[open\njust words\na = 1\n= 2\n[]\n\"k = 3\nb = `x\nc = 4\n");
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
        let keys: Vec<_> = settings.iter().map(|setting| setting.key.as_str()).collect();
        assert_eq!(keys, ["a", "c"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z=:#;'\"`\\\\\\[\\] \n\r\u{feff}é]{0,80}") {
            let _ = parse(&text);
        }
    }
}
