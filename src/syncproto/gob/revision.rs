//! Reads the revision of an update: any basic Go type, or a slice of one, as the text that Go's `%v` prints.
//!
//! Typha sends strings. Older versions sent other types, and Go clients accept them all.

use std::fmt::Write as _;

use super::super::messages::GoRevision;
use super::decode::Walk;
use super::error::{Error, Halt};
use super::schema::id;
use super::types::Shape;

const PLACE: &str = "SerializedUpdate.Revision";

/// A basic Go type, with its size in bits where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basic {
    Bool,
    Int(u32),
    Uint(u32),
    Float(u32),
    Complex(u32),
    String,
}

/// A Go type that is registered in every Go program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BasicType {
    elem: Basic,
    is_slice: bool,
}

impl BasicType {
    fn from_registered_name(name: &[u8]) -> Option<Self> {
        let slice_of = name.strip_prefix(b"[]");
        let elem = match slice_of.unwrap_or(name) {
            b"bool" => Basic::Bool,
            b"int" | b"int64" => Basic::Int(64),
            b"int8" => Basic::Int(8),
            b"int16" => Basic::Int(16),
            b"int32" => Basic::Int(32),
            b"uint" | b"uint64" | b"uintptr" => Basic::Uint(64),
            b"uint8" => Basic::Uint(8),
            b"uint16" => Basic::Uint(16),
            b"uint32" => Basic::Uint(32),
            b"float32" => Basic::Float(32),
            b"float64" => Basic::Float(64),
            b"complex64" => Basic::Complex(32),
            b"complex128" => Basic::Complex(64),
            b"string" => Basic::String,
            _ => return None,
        };
        Some(Self { elem, is_slice: slice_of.is_some() })
    }

    /// Whether it is a slice of bytes, which Go sends as one byte string.
    fn is_bytes(self) -> bool {
        self.is_slice && self.elem == Basic::Uint(8)
    }
}

impl Basic {
    const fn id(self) -> i32 {
        match self {
            Self::Bool => id::BOOL,
            Self::Int(_) => id::INT,
            Self::Uint(_) => id::UINT,
            Self::Float(_) => id::FLOAT,
            Self::Complex(_) => id::COMPLEX,
            Self::String => id::STRING,
        }
    }
}

impl Walk<'_> {
    /// Reads the interface that holds a revision. `None` is nil.
    pub(super) fn revision(&mut self) -> Result<Option<GoRevision>, Halt> {
        let name = self.interface_name()?;
        if name.is_empty() {
            return Ok(None);
        }
        let Some(basic) = BasicType::from_registered_name(name) else {
            return Err(Error::UnregisteredName { place: PLACE, name: Error::readable(name) }.into());
        };
        let go_type = String::from_utf8_lossy(name).into_owned();
        let type_id = self.interface_type()?;
        let fits = match (basic.is_slice, basic.is_bytes()) {
            (_, true) => type_id == id::BYTES,
            (true, _) => self.types.shape(type_id) == Some(Shape::Slice { elem: basic.elem.id() }),
            (false, _) => type_id == basic.elem.id(),
        };
        if !fits {
            return Err(
                Error::TypeMismatch { place: PLACE.to_owned(), wanted: "what its name says", id: type_id }.into()
            );
        }
        // The value's size, which may be wrong.
        self.reader.uint()?;
        self.singleton_marker(PLACE)?;
        let mut text = String::new();
        if basic.is_bytes() {
            let bytes = self.reader.str_bytes(PLACE)?;
            print_slice(&mut text, bytes, |text, byte| {
                write!(text, "{byte}").expect("a String takes everything");
                Ok(())
            })?;
        } else if basic.is_slice {
            let count = self.kept_count("the list in a revision")?;
            print_slice(&mut text, 0..count, |text, _| self.print(text, basic.elem))?;
        } else {
            self.print(&mut text, basic.elem)?;
        }
        Ok(Some(GoRevision { go_type, text }))
    }

    /// Reads one basic value, and appends the text that Go prints for it.
    fn print(&mut self, text: &mut String, basic: Basic) -> Result<(), Error> {
        match basic {
            Basic::Bool => text.push_str(if self.reader.uint()? != 0 { "true" } else { "false" }),
            Basic::String => text.push_str(&self.reader.text(PLACE)?),
            Basic::Int(bits) => {
                let value = self.reader.int()?;
                let spare = 64 - bits;
                if value << spare >> spare != value {
                    return Err(Error::Overflow { place: PLACE, value: value.to_string() });
                }
                text.push_str(&value.to_string());
            }
            Basic::Uint(bits) => {
                let value = self.reader.uint()?;
                if bits < 64 && value >> bits != 0 {
                    return Err(Error::Overflow { place: PLACE, value: value.to_string() });
                }
                text.push_str(&value.to_string());
            }
            Basic::Float(bits) => text.push_str(&self.print_float(bits)?),
            Basic::Complex(bits) => {
                let real = self.print_float(bits)?;
                let imaginary = self.print_float(bits)?;
                let sign = if imaginary.starts_with(['+', '-']) { "" } else { "+" };
                write!(text, "({real}{sign}{imaginary}i)").expect("a String takes everything");
            }
        }
        Ok(())
    }

    fn print_float(&mut self, bits: u32) -> Result<String, Error> {
        let value = self.reader.float()?;
        if bits == 64 {
            return Ok(go_float(value, &format!("{value:e}")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "a float32 arrives as a float64 of the same value")]
        let narrow = value as f32;
        if narrow.is_infinite() && value.is_finite() {
            return Err(Error::Overflow { place: PLACE, value: value.to_string() });
        }
        Ok(go_float(value, &format!("{narrow:e}")))
    }
}

fn print_slice<T>(
    text: &mut String,
    items: impl IntoIterator<Item = T>,
    mut print: impl FnMut(&mut String, T) -> Result<(), Error>,
) -> Result<(), Error> {
    text.push('[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        print(text, item)?;
    }
    text.push(']');
    Ok(())
}

/// Prints a float as Go's `%v` does: plain for exponents from -4 to 5, scientific otherwise. `shortest` is the value
/// with its shortest exact digits, as Rust's `{:e}` prints it.
fn go_float(value: f64, shortest: &str) -> String {
    /// Go switches to scientific notation at this exponent when it prints with the shortest digits.
    const SCIENTIFIC_FROM: i32 = 6;
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |mantissa| ("-", mantissa));
    if !(-4..SCIENTIFIC_FROM).contains(&exponent) {
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{exponent_sign}{:02}", exponent.unsigned_abs());
    }
    let digits = mantissa.replace('.', "");
    let places = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(places - 1));
    }
    if digits.len() <= places + 1 {
        return format!("{sign}{digits}{}", "0".repeat(places + 1 - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..=places], &digits[places + 1..])
}

#[cfg(test)]
mod tests {
    use super::go_float;

    #[test]
    fn floats_are_printed_as_go_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (17.0, "17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1_000_000.0, "1e+06"),
            (100_000.0, "100000"),
            (12_345_678.0, "1.2345678e+07"),
            (1e20, "1e+20"),
            (1e21, "1e+21"),
            (-2.5e-7, "-2.5e-07"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(go_float(value, &format!("{value:e}")), text);
        }
    }
}
