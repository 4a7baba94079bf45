//! Kubernetes' quantities: numbers with a unit, such as `10M`, `1.5Gi` or `1e3`.

/// Digits of the whole part; a longer quantity counts as infinite.
const MAX_WHOLE_DIGITS: usize = 25;
/// Digits of the fraction that are distinguished; further digits only round up.
const MAX_FRACTION_DIGITS: usize = 12;
/// Largest power of ten in 128 bits.
const MAX_POWER: u32 = 38;

/// The quantity, rounded away from zero to a whole number, and limited to 64 bits.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_length = unsigned.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = unsigned.split_at(number_length);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (factor, power) = scale(unit)?;
    let magnitude = magnitude(whole.trim_start_matches('0'), fraction, factor, power);
    let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
    Some(if negative { -magnitude } else { magnitude })
}

/// A quantity of memory, in bytes. `None`: no quantity, or a negative one.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    u64::try_from(parse(text)?).ok()
}

/// The multiplier of a unit: a factor and a power of ten.
fn scale(unit: &str) -> Option<(u128, i32)> {
    Some(match unit {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent = unit.strip_prefix(['e', 'E'])?;
            (1, exponent.parse().ok()?)
        }
    })
}

fn magnitude(whole: &str, fraction: &str, factor: u128, power: i32) -> u128 {
    if whole.len() > MAX_WHOLE_DIGITS {
        return u128::MAX;
    }
    let (told, rest) = fraction.split_at(fraction.len().min(MAX_FRACTION_DIGITS));
    let digits = whole.bytes().chain(told.bytes()).fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let digits = digits.saturating_mul(factor);
    let power = power.saturating_sub(i32::try_from(told.len()).unwrap_or(i32::MAX));
    let ten_to = |power: u32| if power > MAX_POWER { u128::MAX } else { 10_u128.pow(power) };
    let inexact = rest.bytes().any(|digit| digit != b'0');
    if power >= 0 {
        digits.saturating_mul(ten_to(power.unsigned_abs()))
    } else {
        let divisor = ten_to(power.unsigned_abs());
        digits.div_ceil(divisor).saturating_add(u128::from(inexact && digits.is_multiple_of(divisor)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("1", Some(1)),
            ("1k", Some(1000)),
            ("1.5k", Some(1500)),
            ("10M", Some(10_000_000)),
            ("1Gi", Some(1 << 30)),
            ("0.5Ki", Some(512)),
            ("1e3", Some(1000)),
            ("1E3", Some(1000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("100m", Some(1)),
            ("1.1", Some(2)),
            ("1.0000000000000000001", Some(2)),
            ("-5", Some(-5)),
            ("+5", Some(5)),
            (".5", Some(1)),
            ("5.", Some(5)),
            ("99999999999999999999999999999", Some(i64::MAX)),
            ("1e9999", Some(i64::MAX)),
            ("1e-9999", Some(1)),
            ("0", Some(0)),
            ("junk", None),
            ("", None),
            ("-", None),
            (".", None),
            ("1.2.3", None),
            ("1K", None),
            ("1 k", None),
            ("1ee3", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.a-zA-Z]{0,50}") {
            let _ = parse(&text);
        }

        #[test]
        fn whole_numbers_are_themselves(number in 0..i64::MAX) {
            prop_assert_eq!(parse(&number.to_string()), Some(number));
        }
    }
}
