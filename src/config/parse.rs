//! Reads an option's text as a value, by the rules of its kind. Pure, except that it looks for files that must exist.
//!
//! Numbers are in Go's notation, as Typha's are. A value that Typha would accept and fail with later (an infinite
//! number of seconds, a port beyond 65535 in an authority) is a mistake here.

use std::fmt;
use std::path::{Component, Path};

use serde::Serialize;

use super::list;
use super::spec::{Kind, OptionSpec, Section};
use crate::datastore::address::without_user;
use crate::datastore::labels::Labels;
use crate::model::nearest::{did_you_mean, nearest};

/// Longest host address in characters.
const MAX_HOST_LEN: usize = 64;
/// Most seconds that an option may have: ten years, more than anyone needs and far less than timers can count.
const MAX_SECONDS: f64 = 315_360_000.0;

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Int`].
    Int(i32),
    /// Of [`Kind::Seconds`].
    Seconds(f64),
    /// Of all kinds that are one text.
    Text(String),
    /// Of [`Kind::EndpointList`] and [`Kind::ListOf`].
    List(Vec<String>),
}

impl Value {
    /// The value of `none` in an option of this kind.
    #[must_use]
    pub fn zero(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(false),
            Kind::Int { .. } => Self::Int(0),
            Kind::Seconds => Self::Seconds(0.0),
            Kind::EndpointList | Kind::ListOf(_) => Self::List(Vec::new()),
            Kind::OneOf(_)
            | Kind::HostAddress
            | Kind::Authority
            | Kind::Text
            | Kind::File { .. }
            | Kind::InnerPath
            | Kind::Prefix
            | Kind::Selector => Self::Text(String::new()),
        }
    }

    /// Whether this is the empty value, or a number below it.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Bool(_) => false,
            Self::Int(number) => *number <= 0,
            Self::Seconds(number) => *number <= 0.0,
            Self::Text(text) => text.is_empty(),
            Self::List(list) => list.is_empty(),
        }
    }
}

impl fmt::Display for Value {
    /// The value as it would be written in the file, in its canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Seconds(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
            Self::List(values) => f.write_str(&values.join(",")),
        }
    }
}

/// Reads the text of an option that is neither empty nor `none`.
///
/// # Errors
/// The reason why the text is not accepted, as a hint for people; empty where the list of accepted texts is enough.
pub fn value(spec: &OptionSpec, text: &str) -> Result<Value, String> {
    match spec.kind {
        Kind::Bool => boolean(text).map(Value::Bool).ok_or_else(String::new),
        Kind::Int { min, max } => integer(text, min, max).map(Value::Int),
        Kind::Seconds => seconds(text).map(Value::Seconds),
        Kind::OneOf(words) => words
            .iter()
            .find(|word| word.eq_ignore_ascii_case(text))
            .map(|word| Value::Text((*word).to_owned()))
            .ok_or_else(|| match spec.section {
                // Messages about Typha's options are as they always were.
                Section::Global => String::new(),
                Section::Datastore | Section::Syncer => did_you_mean(nearest(text, words.iter().copied())),
            }),
        Kind::HostAddress => host_address(text).map(|()| Value::Text(text.to_owned())),
        Kind::Authority => authority(text).map(|()| Value::Text(text.to_owned())),
        Kind::EndpointList => endpoint_list(text).map(Value::List),
        Kind::ListOf(item) => list::read(item, text).map(Value::List),
        Kind::Text | Kind::InnerPath | Kind::Prefix | Kind::Selector if text.contains('\n') => {
            Err("it has more than one line".to_owned())
        }
        Kind::InnerPath if !is_inner(Path::new(text)) => Err(String::new()),
        Kind::Prefix if !text.ends_with('/') => Err(format!("write {text}/: without it, {text}x would be meant too")),
        Kind::Selector => match Labels::parse(text) {
            Ok(_) => Ok(Value::Text(text.to_owned())),
            Err(error) => Err(error.reason),
        },
        Kind::File { must_exist: true } => list::existing(text).map(|()| Value::Text(text.to_owned())),
        Kind::Text | Kind::File { .. } | Kind::InnerPath | Kind::Prefix => Ok(Value::Text(text.to_owned())),
    }
}

/// Whether a path leads to a place below the folder from which it is followed.
fn is_inner(path: &Path) -> bool {
    path.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "y" | "t" => Some(true),
        "false" | "0" | "no" | "n" | "f" => Some(false),
        _ => None,
    }
}

fn integer(text: &str, min: i32, max: i32) -> Result<i32, String> {
    let number = go_integer(text).ok_or_else(|| match seconds(text) {
        Ok(_) => "it is not a whole number".to_owned(),
        Err(_) => String::new(),
    })?;
    match i32::try_from(number) {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err("it is out of range".to_owned()),
    }
}

/// Go's `ParseInt` with base 0: a sign, a prefix that names the base, underscores between digits.
fn go_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if !underscores_separate_digits(digits) {
        return None;
    }
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    // `from_str_radix` would accept a second sign; a prefix without digits is not a number.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let number = i64::from_str_radix(&digits, radix).ok()?;
    Some(if negative { -number } else { number })
}

/// Go's rule for `_` in numbers: only between digits, where a base prefix counts as a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has_prefix = matches!(bytes, [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', ..]);
    let hex = matches!(bytes, [b'0', b'x' | b'X', ..]);
    let is_digit = |byte: u8| byte.is_ascii_digit() || (hex && byte.is_ascii_hexdigit());
    bytes.iter().enumerate().all(|(at, byte)| {
        *byte != b'_'
            || (at > 0
                && (is_digit(bytes[at - 1]) || (at == 2 && has_prefix))
                && bytes.get(at + 1).is_some_and(|next| is_digit(*next)))
    })
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = go_float(text).ok_or_else(|| {
        let without_unit = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
        if without_unit.len() < text.len() && go_float(without_unit).is_some() {
            format!("leave the unit away and write seconds: {text:?} is not understood")
        } else {
            String::new()
        }
    })?;
    if !number.is_finite() {
        return Err("it is not finite".to_owned());
    }
    if number.abs() > MAX_SECONDS {
        return Err(format!("it is more than ten years ({MAX_SECONDS} s)"));
    }
    Ok(number)
}

/// Go's `ParseFloat`: decimal or hexadecimal, underscores between digits, `inf` and `nan` in any case.
fn go_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.starts_with(['-', '+']) || !underscores_separate_digits(unsigned) {
        return None;
    }
    let plain: String = unsigned.chars().filter(|c| *c != '_').collect();
    let number = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        Some(hex) => hex_float(hex)?,
        None => plain.parse().ok()?,
    };
    Some(if text.starts_with('-') { -number } else { number })
}

/// The part of a hexadecimal float after `0x`; the binary exponent is required, as in Go.
fn hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let mut exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?.checked_mul(4)?)?;
    Some(number * 2f64.powi(exponent))
}

fn host_address(text: &str) -> Result<(), String> {
    if text.contains(['[', ']']) {
        return Err("write an IPv6 address without brackets".to_owned());
    }
    if text.len() > MAX_HOST_LEN {
        return Err(format!("it has more than {MAX_HOST_LEN} characters"));
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || ":._+-".contains(*c))) {
        Some(odd) => Err(format!("{odd:?} cannot be part of it")),
        None => Ok(()),
    }
}

fn authority(text: &str) -> Result<(), String> {
    let Some((host, port)) = text.split_once(':') else {
        return Err("the port is missing".to_owned());
    };
    host_address(host)?;
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    port_number(port)
}

fn port_number(text: &str) -> Result<(), String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) || text.parse::<u16>().is_err() {
        return Err(format!("{text:?} is not a port"));
    }
    Ok(())
}

fn endpoint_list(text: &str) -> Result<Vec<String>, String> {
    let mut endpoints = Vec::new();
    let mut scheme = None;
    for url in text.split(',').map(str::trim).filter(|url| !url.is_empty()) {
        let shown = without_user(url);
        let Some((this_scheme, rest)) = url.split_once("://") else {
            return Err(format!("{shown:?} is not a URL"));
        };
        let this_scheme = this_scheme.to_ascii_lowercase();
        if this_scheme != "http" && this_scheme != "https" {
            return Err(format!("{shown:?} is neither http nor https"));
        }
        if *scheme.get_or_insert_with(|| this_scheme.clone()) != this_scheme {
            return Err("the URLs have different schemes".to_owned());
        }
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.contains('@') {
            return Err(format!("{shown:?} has a user in it"));
        }
        if host.contains(['/', '?', '#']) {
            return Err(format!("{shown:?} has a path, query or fragment"));
        }
        host_and_port(host).map_err(|reason| format!("{shown:?}: {reason}"))?;
        endpoints.push(format!("{this_scheme}://{host}/"));
    }
    Ok(endpoints)
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn host_and_port(text: &str) -> Result<(), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("a bracket is not closed")?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or("text after a bracket")?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    host_address(host)?;
    port.map_or(Ok(()), port_number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::table::{OPTIONS, find};

    fn read(name: &str, text: &str) -> Option<String> {
        value(find(name).unwrap(), text).ok().map(|value| value.to_string())
    }

    #[test]
    fn values_of_every_kind() {
        let table: &[(&str, &str, Option<&str>)] = &[
            ("HealthEnabled", "true", Some("true")),
            ("HealthEnabled", "YES", Some("true")),
            ("HealthEnabled", "1", Some("true")),
            ("HealthEnabled", "y", Some("true")),
            ("HealthEnabled", "T", Some("true")),
            ("HealthEnabled", "no", Some("false")),
            ("HealthEnabled", "F", Some("false")),
            ("HealthEnabled", "0", Some("false")),
            ("HealthEnabled", "on", None),
            ("HealthPort", "9098", Some("9098")),
            ("HealthPort", "0x1F", Some("31")),
            ("HealthPort", "0o17", Some("15")),
            ("HealthPort", "017", Some("15")),
            ("HealthPort", "018", None),
            ("HealthPort", "0b101", Some("5")),
            ("HealthPort", "1_000", Some("1000")),
            ("HealthPort", "0x_1f", Some("31")),
            ("HealthPort", "0_7", Some("7")),
            ("HealthPort", "_1", None),
            ("HealthPort", "1__0", None),
            ("HealthPort", "1_", None),
            ("HealthPort", "+12", Some("12")),
            ("HealthPort", "-1", None),
            ("HealthPort", "+-1", None),
            ("HealthPort", "0x", None),
            ("HealthPort", "0x-1", None),
            ("HealthPort", "65535", Some("65535")),
            ("HealthPort", "65536", None),
            ("HealthPort", "4294967297", None),
            ("HealthPort", "99999999999999999999", None),
            ("HealthPort", "12.0", None),
            ("HealthPort", "12 ", None),
            ("HealthPort", "é", None),
            ("MaxConnectionsUpperLimit", "0", None),
            ("MaxConnectionsUpperLimit", "2147483647", Some("2147483647")),
            ("MaxConnectionsUpperLimit", "2147483648", None),
            ("ServerPingIntervalSecs", "10", Some("10")),
            ("ServerPingIntervalSecs", "0.5", Some("0.5")),
            ("ServerPingIntervalSecs", ".5", Some("0.5")),
            ("ServerPingIntervalSecs", "5.", Some("5")),
            ("ServerPingIntervalSecs", "1e2", Some("100")),
            ("ServerPingIntervalSecs", "-3", Some("-3")),
            ("ServerPingIntervalSecs", "0x1p-2", Some("0.25")),
            ("ServerPingIntervalSecs", "0x1.8p1", Some("3")),
            ("ServerPingIntervalSecs", "0x1", None),
            ("ServerPingIntervalSecs", "1_000", Some("1000")),
            ("ServerPingIntervalSecs", "10s", None),
            ("ServerPingIntervalSecs", "inf", None),
            ("ServerPingIntervalSecs", "NaN", None),
            ("ServerPingIntervalSecs", "1e300", None),
            ("ServerPingIntervalSecs", "--1", None),
            ("LogSeverityScreen", "debug", Some("DEBUG")),
            ("LogSeverityScreen", "Warning", Some("WARNING")),
            ("LogSeverityScreen", "TRACE", None),
            ("LogSeverityScreen", "WARN", None),
            ("DatastoreType", "ETCDV3", Some("etcdv3")),
            ("DatastoreType", "etcd", None),
            ("HealthHost", "0.0.0.0", Some("0.0.0.0")),
            ("HealthHost", "::1", Some("::1")),
            ("HealthHost", "[::1]", None),
            ("HealthHost", "a host", None),
            ("HealthHost", "my_host+x-1.example", Some("my_host+x-1.example")),
            (
                "HealthHost",
                "0123456789012345678901234567890123456789012345678901234567890123",
                Some("0123456789012345678901234567890123456789012345678901234567890123"),
            ),
            ("HealthHost", "01234567890123456789012345678901234567890123456789012345678901234", None),
            ("EtcdAddr", "etcd:2379", Some("etcd:2379")),
            ("EtcdAddr", "etcd", None),
            ("EtcdAddr", ":2379", None),
            ("EtcdAddr", "::1:2379", None),
            ("EtcdAddr", "a/b:1", None),
            ("EtcdAddr", "etcd:99999", None),
            ("EtcdEndpoints", "http://a:1", Some("http://a:1/")),
            ("EtcdEndpoints", " https://a:1/ , ,https://[::1]:2 ", Some("https://a:1/,https://[::1]:2/")),
            ("EtcdEndpoints", ", ,", Some("")),
            ("EtcdEndpoints", "http://a,https://b", None),
            ("EtcdEndpoints", "http://u:p@a", None),
            ("EtcdEndpoints", "http://a/x", None),
            ("EtcdEndpoints", "http://a?x", None),
            ("EtcdEndpoints", "http://a#x", None),
            ("EtcdEndpoints", "http://", None),
            ("EtcdEndpoints", "a:1", None),
            ("EtcdEndpoints", "ftp://a", None),
            ("K8sNamespace", "a b=c", Some("a b=c")),
            ("K8sNamespace", "a\nb", None),
            ("LogFilePath", "/no/such/file", Some("/no/such/file")),
            ("CAFile", "/no/such/file", None),
            ("CAFile", "/", Some("/")),
        ];
        for (name, text, expected) in table {
            assert_eq!(read(name, text).as_deref(), *expected, "{name} = {text:?}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_repeated() {
        let reason = value(find("EtcdEndpoints").unwrap(), "http://root:secret@a:1").unwrap_err();
        assert_eq!(reason, "\"http://***@a:1\" has a user in it");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            for spec in OPTIONS.iter() {
                let _ = value(spec, &text);
            }
        }

        #[test]
        fn numbers_without_panic(text in "[-+0-9a-fxobpP._]{0,20}") {
            let _ = (go_integer(&text), go_float(&text));
        }

        #[test]
        fn plain_numbers_are_themselves(number: i32) {
            prop_assert_eq!(go_integer(&number.to_string()), Some(i64::from(number)));
        }

        #[test]
        fn printed_numbers_read_back(number in -1e6..1e6f64) {
            prop_assert_eq!(go_float(&Value::Seconds(number).to_string()), Some(number));
        }
    }
}
