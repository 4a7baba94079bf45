//! Results: a JSON array for programs, a table for people.

use serde_json::{Map, Value, json};

/// Four digits behind the point are kept; more is noise.
const DIGITS: f64 = 1e4;

/// A line of the results.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    name: String,
    figures: Vec<(&'static str, f64)>,
}

impl Row {
    /// A line without figures.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new() }
    }

    /// The line with one more figure; its name ends with its unit.
    pub(crate) fn with(mut self, name: &'static str, value: f64) -> Self {
        self.figures.push((name, (value * DIGITS).round() / DIGITS));
        self
    }
}

/// The middle one of some numbers; the mean of the middle two if their number is even. Not a number if there are none.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let n = numbers.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => numbers[n / 2],
        _ => f64::midpoint(numbers[n / 2 - 1], numbers[n / 2]),
    }
}

/// Prints the table to standard error and the array to standard output.
pub(crate) fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    eprintln!();
    for row in rows {
        let figures: Vec<String> = row.figures.iter().map(|(name, value)| format!("{name} {value:.2}")).collect();
        eprintln!("{:<width$}  {}", row.name, figures.join("  "));
    }
    let lines = rows.iter().map(|row| {
        let mut line = Map::from_iter([("measured".to_owned(), json!(row.name))]);
        line.extend(row.figures.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        Value::Object(line)
    });
    println!("{}", Value::Array(lines.collect()));
}
