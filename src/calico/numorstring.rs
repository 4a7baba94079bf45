//! Values that are a number or a text in JSON: ports, protocols, AS numbers.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Protocol names that Calico knows, in their canonical spelling.
const PROTOCOL_NAMES: [&str; 6] = ["UDP", "TCP", "ICMP", "ICMPv6", "SCTP", "UDPLite"];
/// Longest name of a named port.
const MAX_PORT_NAME: usize = 128;

/// A port of a rule: one, a range, or the name of a port that endpoints define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// First and last, both included; equal for a single port.
    Numeric(u16, u16),
    /// A named port.
    Named(String),
}

impl Port {
    /// A single port.
    #[must_use]
    pub fn single(port: u16) -> Self {
        Self::Numeric(port, port)
    }
}

/// Whether the text can name a port.
#[must_use]
pub fn is_port_name(text: &str) -> bool {
    (1..=MAX_PORT_NAME).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// A text or number is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {expected}")]
pub struct NotValid {
    /// The value.
    pub value: String,
    /// The accepted values.
    pub expected: &'static str,
}

const A_PORT: &str = "a port (1 to 65535), a range (first:last) or a port's name (letters, digits, _ . -)";

impl FromStr for Port {
    type Err = NotValid;

    fn from_str(text: &str) -> Result<Self, NotValid> {
        let invalid = || NotValid { value: text.to_owned(), expected: A_PORT };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if digits(text) {
            return text.parse().map(Self::single).map_err(|_| invalid());
        }
        if let Some((first, last)) = text.split_once(':')
            && digits(first)
            && digits(last)
        {
            let (first, last) = (first.parse().map_err(|_| invalid())?, last.parse().map_err(|_| invalid())?);
            return if first <= last { Ok(Self::Numeric(first, last)) } else { Err(invalid()) };
        }
        if is_port_name(text) { Ok(Self::Named(text.to_owned())) } else { Err(invalid()) }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numeric(first, last) if first == last => write!(f, "{first}"),
            Self::Numeric(first, last) => write!(f, "{first}:{last}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl Serialize for Port {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Numeric(first, last) if first == last => serializer.serialize_u16(*first),
            other => serializer.collect_str(other),
        }
    }
}

/// Reads a number or a text of JSON. A value for which the function returns `None` is refused, with `expected` in the
/// error.
pub(crate) fn scalar<'de, D: Deserializer<'de>, V>(
    json: D,
    expected: impl fmt::Display,
    number: impl FnOnce(i128) -> Option<V>,
    text: impl FnOnce(&str) -> Option<V>,
) -> Result<V, D::Error> {
    json.deserialize_any(Scalar { expected, number, text })
}

/// The visitor of [`scalar`].
struct Scalar<X, N, T> {
    expected: X,
    number: N,
    text: T,
}

impl<X: fmt::Display, N, T> Scalar<X, N, T> {
    fn accepted<V, E: de::Error>(value: Option<V>, found: &dyn fmt::Debug, expected: &X) -> Result<V, E> {
        value.ok_or_else(|| E::custom(format_args!("{found:?} is not {expected}")))
    }
}

impl<X, N, T, V> Visitor<'_> for Scalar<X, N, T>
where
    X: fmt::Display,
    N: FnOnce(i128) -> Option<V>,
    T: FnOnce(&str) -> Option<V>,
{
    type Value = V;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expected.fmt(f)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<V, E> {
        Self::accepted((self.number)(number.into()), &number, &self.expected)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<V, E> {
        Self::accepted((self.number)(number.into()), &number, &self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<V, E> {
        Self::accepted((self.text)(text), &text, &self.expected)
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer, A_PORT, |number| u16::try_from(number).ok().map(Self::single), |text| text.parse().ok())
    }
}

/// An 8-bit number or a name: protocols and DSCP values. Text of digits that fits is read as a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uint8OrString {
    /// A number.
    Number(u8),
    /// A name.
    Name(String),
}

/// A protocol number or name.
pub type Protocol = Uint8OrString;

impl Uint8OrString {
    /// The form in Calico's v1 values: names in lower case, numbers in text as numbers.
    #[must_use]
    pub fn to_v1(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(*number),
            Self::Name(name) => Self::from_text(name.to_lowercase()),
        }
    }

    /// A number if the text is one from 0 to 255, else a name.
    #[must_use]
    pub fn from_text(text: String) -> Self {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Self::Number(number),
            _ => Self::Name(text),
        }
    }

    /// A protocol from text: known names in their canonical spelling, others as they are.
    #[must_use]
    pub fn protocol_from_text(text: &str) -> Self {
        match PROTOCOL_NAMES.into_iter().find(|name| name.eq_ignore_ascii_case(text)) {
            Some(name) => Self::Name(name.to_owned()),
            None => Self::from_text(text.to_owned()),
        }
    }
}

impl fmt::Display for Uint8OrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Serialize for Uint8OrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_u8(*number),
            Self::Name(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Uint8OrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(
            deserializer,
            "a number from 0 to 255 or a name",
            |number| u8::try_from(number).ok().map(Self::Number),
            |text| Some(Self::from_text(text.to_owned())),
        )
    }
}

/// A BGP autonomous system number; in JSON also text, plain or as `high.low`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsNumber(pub u32);

const AN_AS_NUMBER: &str = "an AS number (0 to 4294967295, or two 16-bit numbers as high.low)";

impl FromStr for AsNumber {
    type Err = NotValid;

    fn from_str(text: &str) -> Result<Self, NotValid> {
        let unsigned = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let number = match text.split_once('.') {
            None if unsigned(text) => text.parse().ok(),
            Some((high, low)) if unsigned(high) && unsigned(low) => high
                .parse::<u16>()
                .ok()
                .zip(low.parse::<u16>().ok())
                .map(|(high, low)| (u32::from(high) << 16) | u32::from(low)),
            _ => None,
        };
        number.map(Self).ok_or_else(|| NotValid { value: text.to_owned(), expected: AN_AS_NUMBER })
    }
}

impl Serialize for AsNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for AsNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer, AN_AS_NUMBER, |number| u32::try_from(number).ok().map(Self), |text| text.parse().ok())
    }
}

/// A number or a text, as Kubernetes has them for target ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A text.
    Text(String),
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(
            deserializer,
            "a 32-bit number or text",
            |number| i32::try_from(number).ok().map(Self::Int),
            |text| Some(Self::Text(text.to_owned())),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gojson;

    #[test]
    fn ports_read_and_print() {
        for (json, expected) in [
            ("80", Some("80")),
            ("\"80\"", Some("80")),
            ("\"80:90\"", Some("\"80:90\"")),
            ("\"80:80\"", Some("80")),
            ("\"http\"", Some("\"http\"")),
            ("\"-1\"", Some("\"-1\"")),
            ("\"90:80\"", None),
            ("\"70000\"", None),
            ("70000", None),
            ("-1", None),
            ("1.5", None),
            ("\"not valid!\"", None),
            ("\"\"", None),
            ("true", None),
        ] {
            let port: Option<Port> = gojson::parse(json.as_bytes()).ok();
            assert_eq!(port.map(|port| gojson::to_string(&port)).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn protocols_become_v1() {
        for (json, expected) in
            [("\"TCP\"", "\"tcp\""), ("\"6\"", "6"), ("132", "132"), ("\"300\"", "\"300\""), ("\"Foo\"", "\"foo\"")]
        {
            let protocol: Protocol = gojson::parse(json.as_bytes()).unwrap();
            assert_eq!(gojson::to_string(&protocol.to_v1()), expected);
        }
        assert!(gojson::parse::<Protocol>(b"256").is_err());
    }

    #[test]
    fn texts_of_digits_are_numbers() {
        for (json, expected) in [
            ("\"17\"", "17"),
            ("17", "17"),
            ("\"017\"", "17"),
            ("\"+5\"", "\"+5\""),
            ("\"256\"", "\"256\""),
            ("\"TCP\"", "\"TCP\""),
            ("\"\"", "\"\""),
        ] {
            let value: Uint8OrString = gojson::parse(json.as_bytes()).unwrap();
            assert_eq!(gojson::to_string(&value), expected, "{json}");
        }
    }

    #[test]
    fn as_numbers_may_be_dotted() {
        for (json, expected) in [("64512", Some(64512)), ("\"64512\"", Some(64512)), ("\"1.10\"", Some(65546))] {
            assert_eq!(gojson::parse::<AsNumber>(json.as_bytes()).ok().map(|number| number.0), expected);
        }
        for json in ["4294967296", "\"1.70000\"", "\"x\"", "\"1.2.3\"", "-1"] {
            assert!(gojson::parse::<AsNumber>(json.as_bytes()).is_err(), "{json}");
        }
    }
}
