//! Points in time as Kubernetes objects carry them: RFC 3339 in, UTC with whole seconds out.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: i64 = 86_400;

/// Whole seconds since 1970-01-01T00:00:00Z. Displays as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Go's zero time, which means "not set".
    pub const ZERO: Self = Self(-62_135_596_800);

    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self::at(SystemTime::now())
    }

    /// The last whole second before this moment.
    #[must_use]
    pub fn at(moment: SystemTime) -> Self {
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }

    /// Reads RFC 3339; fractions of seconds are dropped.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = bytes.get(from..to)?;
            digits
                .iter()
                .all(u8::is_ascii_digit)
                .then(|| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
        };
        let mark = |at: usize, mark: u8| bytes.get(at) == Some(&mark);
        if !(mark(4, b'-') && mark(7, b'-') && mark(10, b'T') && mark(13, b':') && mark(16, b':')) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let in_range = (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !in_range {
            return None;
        }
        let mut at = 19;
        if mark(at, b'.') || mark(at, b',') {
            let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            at += 1 + digits;
        }
        let offset = match bytes.get(at)? {
            b'Z' if bytes.len() == at + 1 => 0,
            sign @ (b'+' | b'-') if bytes.len() == at + 6 && mark(at + 3, b':') => {
                let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
                if hours > 24 || minutes > 60 {
                    return None;
                }
                (hours * 3600 + minutes * 60) * if *sign == b'+' { 1 } else { -1 }
            }
            _ => return None,
        };
        let days = days_from_civil(year, month, day);
        Some(Self(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0.div_euclid(SECONDS_PER_DAY), self.0.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01, in the Gregorian calendar extended to earlier dates. Years start in March, so that leap days
/// come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp(seconds).to_string(), text);
        }
    }

    #[test]
    fn reads_offsets_and_fractions() {
        for (text, expected) in [
            ("2024-03-01T10:00:00Z", Some("2024-03-01T10:00:00Z")),
            ("2024-03-01T00:30:00+02:00", Some("2024-02-29T22:30:00Z")),
            ("2023-12-31T23:59:59.999-00:01", Some("2024-01-01T00:00:59Z")),
            ("0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00Z")),
            ("2023-02-29T00:00:00Z", None),
            ("2024-01-01T24:00:00Z", None),
            ("2024-01-01 00:00:00Z", None),
            ("2024-01-01T00:00:00", None),
            ("2024-01-01T00:00:00.Z", None),
            ("2024-1-01T00:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(Timestamp::parse(text).map(|time| time.to_string()).as_deref(), expected, "{text}");
        }
        assert_eq!(Timestamp::parse("0001-01-01T00:00:00Z"), Some(Timestamp::ZERO));
    }

    proptest! {
        #[test]
        fn printed_values_read_as_the_same(seconds in -62_135_596_800_i64..253_402_300_800) {
            prop_assert_eq!(Timestamp::parse(&Timestamp(seconds).to_string()), Some(Timestamp(seconds)));
        }

        #[test]
        fn no_text_panics(text in "[0-9TZ:.+-]{0,30}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
