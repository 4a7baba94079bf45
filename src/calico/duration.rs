//! Durations as Go reads and prints them: `1h15m30.918s`. In nanoseconds, signed, 64 bits.

use std::fmt;

/// Units with their length in nanoseconds, in matching order.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A span of time in nanoseconds, of either sign. Displays as Go prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub i64);

impl GoDuration {
    /// Reads numbers with units, as `time.ParseDuration` does: `300ms`, `-1.5h`, `2h45m`; a bare `0` too.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
            let (whole, after) = rest.split_at(digits(rest));
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => after.split_at(digits(after)),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return None;
            }
            let unit_length = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(unit_length);
            let nanos = UNITS.iter().find(|(name, _)| *name == unit)?.1;
            let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            total = total.checked_add(whole.checked_mul(nanos)?)?.checked_add(fraction_of(fraction, nanos))?;
            rest = after;
        }
        let limit = if negative { i64::MIN.unsigned_abs() } else { i64::MAX.unsigned_abs() };
        (total <= limit).then(|| Self(if negative { 0_i64.wrapping_sub_unsigned(total) } else { total.cast_signed() }))
    }

    /// The duration in seconds, as a float.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        seconds as f64 + nanos as f64 / 1e9
    }
}

/// Decimal digits of a unit, in nanoseconds; digits beyond 64 bits do not count.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1.0_f64;
    for digit in digits.bytes() {
        let Some(next) = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0'))) else {
            break;
        };
        if next > i64::MAX.unsigned_abs() {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below one unit, not negative")]
    let nanos = (value as f64 * (unit as f64 / scale)) as u64;
    nanos
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        for (limit, unit, name) in [(1_000, 1, "ns"), (1_000_000, 1_000, "\u{b5}s"), (1_000_000_000, 1_000_000, "ms")] {
            if nanos < limit {
                decimal(f, nanos, unit)?;
                return f.write_str(name);
            }
        }
        let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
        if minutes >= 60 {
            write!(f, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(f, "{}m", minutes % 60)?;
        }
        decimal(f, rest, 1_000_000_000)?;
        f.write_str("s")
    }
}

/// `value / unit` with all its decimals and no trailing zeros. `unit` is a power of ten.
fn decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: u64) -> fmt::Result {
    write!(f, "{}", value / unit)?;
    let fraction = value % unit;
    if fraction == 0 {
        return Ok(());
    }
    let width = unit.ilog10() as usize;
    write!(f, ".{}", format!("{fraction:0width$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_prints_as_go() {
        for (text, expected) in [
            ("90s", Some("1m30s")),
            ("2m", Some("2m0s")),
            ("1h", Some("1h0m0s")),
            ("1.5s", Some("1.5s")),
            ("1500ms", Some("1.5s")),
            ("100us", Some("100\u{b5}s")),
            ("1.5\u{b5}s", Some("1.5\u{b5}s")),
            ("0", Some("0s")),
            ("0s", Some("0s")),
            ("-1h15m30.918s", Some("-1h15m30.918s")),
            (".5s", Some("500ms")),
            ("1.s", Some("1s")),
            ("+5m", Some("5m0s")),
            ("9223372036854775807ns", Some("2562047h47m16.854775807s")),
            ("-9223372036854775808ns", Some("-2562047h47m16.854775808s")),
            ("9223372036854775808ns", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("1d", None),
            ("1 s", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(GoDuration::parse(text).map(|duration| duration.to_string()).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_values_read_as_the_same(nanos in any::<i64>()) {
            let text = GoDuration(nanos).to_string();
            prop_assert_eq!(GoDuration::parse(&text), Some(GoDuration(nanos)), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "[0-9.hmsnu\u{b5}+-]{0,24}") {
            let _ = GoDuration::parse(&text);
        }
    }
}
