//! Draws saved results: latency and CPU time per client against the varied setting, for one or several servers in one picture.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use plotters::coord::combinators::BindKeyPoints as _;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde_json::Value;

/// Size of one chart, in pixels. A row has two.
const CHART: (u32, u32) = (560, 380);
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 96, 160),
    RGBColor(208, 80, 0),
    RGBColor(0, 130, 80),
    RGBColor(150, 40, 130),
    RGBColor(90, 90, 90),
    RGBColor(180, 140, 0),
];
/// Settings that can vary, and their names at an axis.
const AXES: &[(&str, &str)] = &[("clients", "agents"), ("rate", "changes a second"), ("endpoints", "endpoints")];

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Point {
    x: f64,
    p50: f64,
    p99: f64,
    /// Milliseconds of CPU per client and second.
    cpu: Option<f64>,
}

/// Measurements by the server's name, in the order of the varied setting.
type Series = BTreeMap<String, Vec<Point>>;

/// Draws `file` from results, with a row of charts for each varied setting.
pub(crate) fn draw(file: &Path, results: &[PathBuf]) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for path in results {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let value: Value = serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
        match value {
            Value::Array(values) => all.extend(values),
            value => all.push(value),
        }
    }
    let rows: Vec<(&str, Series)> = AXES
        .iter()
        .map(|(axis, title)| (*title, series(&all, axis)))
        .filter(|(_, series)| series.values().any(|points| points.len() > 1))
        .collect();
    ensure!(!rows.is_empty(), "nothing varies in these results: save those of --sweep");
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let height = CHART.1 * u32::try_from(rows.len()).context("few rows")?;
    let root = SVGBackend::new(file, (CHART.0 * 2, height)).into_drawing_area();
    root.fill(&WHITE).map_err(words)?;
    for (area, (title, series)) in root.split_evenly((rows.len(), 1)).iter().zip(&rows) {
        let halves = area.split_evenly((1, 2));
        latency(&halves[0], title, series)?;
        cpu(&halves[1], title, series)?;
    }
    root.present().map_err(words).with_context(|| format!("write {}", file.display()))
}

/// Converts an error of the drawing library, which borrows from the drawing.
fn words(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

/// The churns of `all` in which `axis` varied, by server.
fn series(all: &[Value], axis: &str) -> Series {
    let mut series = Series::new();
    for result in all.iter().filter(|result| result["scenario"] == "churn" && result["sweep"] == axis) {
        let number = |name: &str| result[name].as_f64();
        let (Some(x), Some(p50), Some(p99)) = (number(axis), number("p50_ms"), number("p99_ms")) else { continue };
        let (clients, seconds) = (number("clients").unwrap_or(1.0), number("seconds").unwrap_or(1.0));
        let cpu = number("server_cpu_secs").map(|cpu| cpu * 1e3 / clients / seconds);
        let tls = if result["tls"] == true { ", TLS" } else { "" };
        let name = format!("{}{tls}", result["server"].as_str().unwrap_or("server"));
        series.entry(name).or_default().push(Point { x, p50, p99, cpu });
    }
    for points in series.values_mut() {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    series
}

/// Range of some numbers, with room around them, for a logarithmic axis.
fn range(numbers: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let least = numbers.clone().filter(|n| *n > 0.0).fold(f64::MAX, f64::min);
    let greatest = numbers.fold(f64::MIN, f64::max);
    if least > greatest { 0.1..1.0 } else { least / 1.3..greatest * 1.3 }
}

/// Labels of a logarithmic axis within a range: 1, 2, 5, 10, 20, …
fn rounded_within(range: &std::ops::Range<f64>) -> Vec<f64> {
    let decades = (-3..7).map(|power| 10_f64.powi(power));
    decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * decade)).filter(|n| range.contains(n)).collect()
}

/// A drawn line: a name, a colour, whether it is the main one, and its points.
struct Line {
    name: String,
    colour: RGBColor,
    bold: bool,
    points: Vec<(f64, f64)>,
}

fn latency<DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    title: &str,
    series: &Series,
) -> anyhow::Result<()> {
    let lines = series.iter().zip(COLOURS.iter().cycle()).flat_map(|((name, points), colour)| {
        let line = |what: &str, bold: bool, of: fn(&Point) -> f64| Line {
            name: format!("{name}, {what}"),
            colour: *colour,
            bold,
            points: points.iter().map(|point| (point.x, of(point))).collect(),
        };
        [line("p99", true, |point| point.p99), line("p50", false, |point| point.p50)]
    });
    let lines: Vec<Line> = lines.collect();
    let y = range(lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)));
    let ticks = rounded_within(&y);
    let y = y.log_scale().with_key_points(ticks);
    chart(area, "from write to agent", title, "milliseconds", y, SeriesLabelPosition::LowerRight, &lines)
}

fn cpu<DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    title: &str,
    series: &Series,
) -> anyhow::Result<()> {
    let lines: Vec<Line> = series
        .iter()
        .zip(COLOURS.iter().cycle())
        .map(|((name, points), colour)| Line {
            name: name.clone(),
            colour: *colour,
            bold: true,
            points: points.iter().filter_map(|point| Some((point.x, point.cpu?))).collect(),
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let top = lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).fold(0.0, f64::max);
    let y = 0.0..if top > 0.0 { top * 1.2 } else { 1.0 };
    chart(
        area,
        "CPU time of the server",
        title,
        "milliseconds per agent and second",
        y,
        SeriesLabelPosition::UpperRight,
        &lines,
    )
}

fn chart<DB, Y>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    caption: &str,
    x_title: &str,
    y_title: &str,
    y: Y,
    legend: SeriesLabelPosition,
    lines: &[Line],
) -> anyhow::Result<()>
where
    DB: DrawingBackend,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut measured_at: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    measured_at.sort_by(f64::total_cmp);
    measured_at.dedup();
    let x = range(measured_at.iter().copied()).log_scale().with_key_points(measured_at);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(words)?;
    chart
        .configure_mesh()
        .x_desc(x_title)
        .y_desc(y_title)
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{}", (y * 1e3).round() / 1e3))
        .label_style(("sans-serif", 13))
        .max_light_lines(1)
        .bold_line_style(RGBColor(228, 228, 228))
        .light_line_style(RGBColor(244, 244, 244))
        .draw()
        .map_err(words)?;
    for Line { name, colour, bold, points } in lines {
        let style = ShapeStyle { color: colour.to_rgba(), filled: *bold, stroke_width: if *bold { 2 } else { 1 } };
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))
            .map_err(words)?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, style))).map_err(words)?;
    }
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 13))
        .draw()
        .map_err(words)
}
