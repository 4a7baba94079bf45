//! Results: one JSON object for programs, a table for people, and several runs made into one result.

use serde_json::{Map, Value, json};

/// Four digits behind the point are kept; more is noise.
const DIGITS: f64 = 1e4;

/// The value at a quantile of sorted numbers; not a number if there are none.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position in the list")]
    let at = ((sorted.len() - 1) as f64 * q).round() as usize;
    sorted[at]
}

/// A result that grows. Unknown figures are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report(Map<String, Value>);

impl Report {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        let value = match value.into() {
            Value::Null => return,
            Value::Number(number) if number.is_f64() => {
                let value = number.as_f64().unwrap_or_default();
                json!((value * DIGITS).round() / DIGITS)
            }
            value => value,
        };
        self.0.insert(name.to_owned(), value);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// One result from several runs: medians, the least of each number in `min`, and all runs in `runs`.
pub(crate) fn combined(mut runs: Vec<Report>) -> Report {
    if runs.len() < 2 {
        return runs.pop().unwrap_or_default();
    }
    let values: Vec<Value> = runs.into_iter().map(Report::into_value).collect();
    let Value::Object(mut result) = fold(&values, |sorted| quantile(sorted, 0.5)) else { return Report::default() };
    result.insert("repeat".to_owned(), values.len().into());
    result.insert("min".to_owned(), fold(&values, |sorted| sorted.first().copied().unwrap_or(f64::NAN)));
    result.insert("runs".to_owned(), values.into());
    Report(result)
}

/// Combines objects of the same shape into one, number by number. Other fields are taken from the first.
fn fold(values: &[Value], pick: impl Fn(&[f64]) -> f64 + Copy) -> Value {
    match values.first() {
        Some(Value::Object(first)) => first
            .keys()
            .map(|name| {
                let each: Vec<Value> = values.iter().filter_map(|value| value.get(name)).cloned().collect();
                (name.clone(), fold(&each, pick))
            })
            .collect::<Map<_, _>>()
            .into(),
        Some(Value::Number(first)) => {
            let mut numbers: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
            numbers.sort_by(f64::total_cmp);
            if first.is_f64() { json!(pick(&numbers)) } else { whole(pick(&numbers)) }
        }
        other => other.cloned().unwrap_or_default(),
    }
}

fn whole(number: f64) -> Value {
    #[allow(clippy::cast_possible_truncation, reason = "it was a whole number, or between two of them")]
    let number = number.round() as i64;
    number.into()
}

/// First lines of a table; the rest follows by name.
const FIRST: &[&str] = &[
    "scenario",
    "server",
    "datastore",
    "endpoints",
    "keys",
    "clients",
    "clients_live",
    "rate",
    "seconds",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
    "server_cpu_secs",
    "server_rss_mib",
    "server_peak_mib",
    "cpu_by_process",
];

/// Prints a result for people.
pub(crate) fn print_table(result: &Value) {
    let Some(fields) = result.as_object() else { return };
    eprintln!();
    let first = FIRST.iter().filter_map(|name| fields.get_key_value(*name));
    let rest = fields.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
    for (name, value) in first.chain(rest) {
        match value {
            Value::Array(_) => {}
            Value::Object(_) if name == "min" => {}
            Value::Object(parts) => {
                let parts: Vec<String> = parts.iter().map(|(name, value)| format!("{name} {value}")).collect();
                eprintln!("{name:>34}  {}", parts.join(", "));
            }
            value => match (value.as_f64(), fields.get("min").and_then(|min| min.get(name)).and_then(Value::as_f64)) {
                (Some(median), Some(min)) if min < median => eprintln!("{name:>34}  {median:.3} (min {min:.3})"),
                (Some(number), _) if number.fract() != 0.0 => eprintln!("{name:>34}  {number:.3}"),
                _ => eprintln!("{name:>34}  {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
            },
        }
    }
}

/// Columns of the table over several results.
const COLUMNS: &[(&str, usize)] = &[
    ("scenario", 9),
    ("clients", 8),
    ("rate", 6),
    ("endpoints", 10),
    ("p50_ms", 9),
    ("p99_ms", 9),
    ("seconds", 8),
    ("server_cpu_secs", 16),
    ("server_rss_mib", 15),
    ("ratio_to_floor", 15),
];

/// Prints several results for people, one a line.
pub(crate) fn print_lines(results: &[Value]) {
    let line = |cell: &dyn Fn(&str) -> String| {
        COLUMNS.iter().map(|(name, width)| format!("{:>width$}", cell(name))).collect::<String>()
    };
    eprintln!("\n{}", line(&|name| name.to_owned()));
    for result in results {
        let cell = |name: &str| match &result[name] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
            other => other.to_string(),
        };
        eprintln!("{}", line(&cell));
    }
}
