//! Forms of texts and numbers that the API server enforces. It ignores others, and so does this file.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use serde_json::Value;

use super::metadata::is_subdomain;
use crate::model::timestamp::Timestamp;

/// A form that is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits.
    Int64,
    /// Base64.
    Byte,
    /// RFC 3339's date and time.
    DateTime,
    /// RFC 3339's date.
    Date,
    /// A duration such as `1h30m`.
    Duration,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A prefix such as `10.0.0.0/8`.
    Cidr,
    /// A MAC address.
    Mac,
    /// A host's name.
    Hostname,
    /// An e-mail address.
    Email,
    /// A URI with a scheme.
    Uri,
    /// A UUID.
    Uuid,
}

impl Format {
    /// The form of this name, if it is enforced.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "byte" => Self::Byte,
            "date-time" => Self::DateTime,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "hostname" => Self::Hostname,
            "email" => Self::Email,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            _ => return None,
        })
    }

    /// The form in words, for messages.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Int32 => "a number of 32 bits",
            Self::Int64 => "a number of 64 bits",
            Self::Byte => "Base64",
            Self::DateTime => "a date and time such as 2026-01-31T12:00:00Z",
            Self::Date => "a date such as 2026-01-31",
            Self::Duration => "a duration such as 1h30m",
            Self::Ipv4 => "an IPv4 address",
            Self::Ipv6 => "an IPv6 address",
            Self::Cidr => "a prefix such as 10.0.0.0/8",
            Self::Mac => "a MAC address",
            Self::Hostname => "the name of a host",
            Self::Email => "an e-mail address",
            Self::Uri => "a URI with a scheme",
            Self::Uuid => "a UUID",
        }
    }

    /// Whether the value has the form. A value of another type has.
    pub(super) fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Int32, Value::Number(number)) => {
                number.as_f64().is_none_or(|number| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number))
            }
            (Self::Int64, Value::Number(number)) => number.is_i64() || number.is_f64(),
            (_, Value::String(text)) => self.fits_text(text),
            _ => true,
        }
    }

    fn fits_text(self, text: &str) -> bool {
        match self {
            Self::Int32 | Self::Int64 => true,
            Self::Byte => STANDARD.decode(text).is_ok(),
            Self::DateTime => Timestamp::parse(text).is_some(),
            Self::Date => text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some(),
            Self::Duration => is_duration(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => text.parse::<IpNet>().is_ok(),
            Self::Mac => is_mac(text),
            Self::Hostname => is_subdomain(&text.to_ascii_lowercase()),
            Self::Email => {
                text.rsplit_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
                    && !text.contains(char::is_whitespace)
            }
            Self::Uri => text.split_once(':').is_some_and(|(scheme, _)| {
                scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                    && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                    && !text.contains(char::is_whitespace)
            }),
            Self::Uuid => is_uuid(text),
        }
    }
}

/// Go's durations: numbers with units, one after the other.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - digits.len()];
        let units = digits.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '.');
        let unit = &digits[..digits.len() - units.len()];
        if !number.contains(|c: char| c.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        if !["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&unit) {
            return false;
        }
        rest = units;
    }
    true
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    [6, 8, 20].contains(&parts.len())
        && parts.iter().all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()))
}

fn is_uuid(text: &str) -> bool {
    let plain: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32 && plain.iter().all(char::is_ascii_hexdigit) && [32, 36].contains(&text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_are_checked() {
        for (format, good, bad) in [
            ("int32", json!(2_147_483_647), json!(2_147_483_648_i64)),
            ("int64", json!(i64::MIN), json!(u64::MAX)),
            ("byte", json!("aGk="), json!("a")),
            ("date-time", json!("2026-01-31T12:00:00.5+02:00"), json!("2026-01-31 12:00")),
            ("date", json!("2026-01-31"), json!("2026-02-31")),
            ("duration", json!("1h1.5m"), json!("1 h")),
            ("ipv4", json!("10.0.0.1"), json!("10.0.0.256")),
            ("ipv6", json!("::1"), json!("1.2.3.4")),
            ("cidr", json!("10.0.0.0/8"), json!("10.0.0.0/33")),
            ("mac", json!("00:00:5e:00:53:01"), json!("00:00:5e")),
            ("hostname", json!("a.Example"), json!("a_b")),
            ("email", json!("a@b"), json!("a")),
            ("uri", json!("https://a/b"), json!("a b")),
            ("uuid", json!("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), json!("6ba7")),
        ] {
            let format = Format::named(format).expect("it is enforced");
            assert!(format.fits(&good), "{format:?} {good}");
            assert!(!format.fits(&bad), "{format:?} {bad}");
            assert!(format.fits(&json!(true)), "{format:?}");
        }
        assert_eq!(Format::named("double"), None);
    }
}
