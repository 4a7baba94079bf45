//! Cuts a selector into tokens. The last token has to be remembered, because `in` is a label or, after a label, an
//! operator.

use super::Operator;

/// A text departs from the grammar of selectors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("selector: expected {expected} at offset {at}")]
pub struct ParseError {
    /// Offset in bytes.
    pub at: usize,
    /// The tokens that the grammar accepts there.
    pub expected: &'static str,
}

/// Longest label key.
const MAX_LABEL: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Label(&'a str),
    Text(&'a str),
    Has(&'a str),
    All,
    Global,
    Compare(Operator),
    In,
    NotIn,
    Not,
    And,
    Or,
    Open,
    Close,
    OpenSet,
    CloseSet,
    Comma,
}

fn is_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-')
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// The label at the start of the text, and the rest.
fn label(text: &str) -> Option<(&str, &str)> {
    let length = text.bytes().take(MAX_LABEL).take_while(|byte| is_label(*byte)).count();
    (length > 0).then(|| text.split_at(length))
}

/// The value in `word ( value )`, read by `inner`, and the rest.
fn call<'a, T>(text: &'a str, word: &str, inner: impl Fn(&'a str) -> Option<(T, &'a str)>) -> Option<(T, &'a str)> {
    let (value, rest) = inner(skip_blanks(text.strip_prefix(word)?.strip_prefix('(')?))?;
    Some((value, skip_blanks(rest).strip_prefix(')')?))
}

/// The rest after two words, with blanks or nothing between them.
fn two_words<'a>(text: &'a str, first: &str, second: &str) -> Option<&'a str> {
    skip_blanks(text.strip_prefix(first)?).strip_prefix(second)
}

/// Whether the rest does not continue a word.
fn at_word_end(rest: &str) -> bool {
    !rest.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn operator(text: &str) -> Option<(Token<'_>, &str)> {
    if let Some(rest) = text.strip_prefix("contains") {
        Some((Token::Compare(Operator::Contains), rest))
    } else if let Some(rest) = two_words(text, "starts", "with") {
        Some((Token::Compare(Operator::StartsWith), rest))
    } else if let Some(rest) = two_words(text, "ends", "with") {
        Some((Token::Compare(Operator::EndsWith), rest))
    } else if let Some(rest) = two_words(text, "not", "in").filter(|rest| at_word_end(rest)) {
        Some((Token::NotIn, rest))
    } else {
        text.strip_prefix("in").filter(|rest| at_word_end(rest)).map(|rest| (Token::In, rest))
    }
}

fn operand(text: &str) -> Option<(Token<'_>, &str)> {
    let nothing = |text| Some(((), text));
    if let Some((label, rest)) = call(text, "has", label) {
        Some((Token::Has(label), rest))
    } else if let Some(((), rest)) = call(text, "all", nothing) {
        Some((Token::All, rest))
    } else if let Some(((), rest)) = call(text, "global", nothing) {
        Some((Token::Global, rest))
    } else {
        label(text).map(|(label, rest)| (Token::Label(label), rest))
    }
}

/// All tokens of the text, each with its offset.
pub(super) fn tokenize(text: &str) -> Result<Vec<(usize, Token<'_>)>, ParseError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = skip_blanks(rest);
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let at = text.len() - rest.len();
        let (token, after) = match first {
            '(' => (Token::Open, &rest[1..]),
            ')' => (Token::Close, &rest[1..]),
            '{' => (Token::OpenSet, &rest[1..]),
            '}' => (Token::CloseSet, &rest[1..]),
            ',' => (Token::Comma, &rest[1..]),
            '"' | '\'' => match rest[1..].split_once(first) {
                Some((literal, after)) => (Token::Text(literal), after),
                None => return Err(ParseError { at, expected: "a closing quote" }),
            },
            '=' if rest.starts_with("==") => (Token::Compare(Operator::Equal), &rest[2..]),
            '!' if rest.starts_with("!=") => (Token::Compare(Operator::NotEqual), &rest[2..]),
            '!' => (Token::Not, &rest[1..]),
            '&' if rest.starts_with("&&") => (Token::And, &rest[2..]),
            '|' if rest.starts_with("||") => (Token::Or, &rest[2..]),
            _ if matches!(tokens.last(), Some((_, Token::Label(_)))) => operator(rest).ok_or(ParseError {
                at,
                expected: "an operator (==, !=, in, not in, contains, starts with, ends with)",
            })?,
            _ => operand(rest).ok_or(ParseError {
                at,
                expected: "a label, has(label), all(), global(), a literal or a parenthesis",
            })?,
        };
        tokens.push((at, token));
        rest = after;
    }
}
