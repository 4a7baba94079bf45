//! From an event to the line that a destination gets.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use prometheus::Registry;
use tracing_subscriber::layer::SubscriberExt;

use super::format::Line;
use super::*;

/// A destination that a test reads.
struct Tape(Sender<String>);

impl Sink for Tape {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        self.0.send(line.text.to_string()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn log(severity: Severity, test: impl FnOnce(&Logging)) -> Vec<String> {
    let (tape, lines): (_, Receiver<String>) = channel();
    let (logging, layer) = Logging::new(severity, LogMetrics::new(&Registry::new()), Tape(tape)).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || test(&logging));
    logging.flush(Duration::from_secs(10));
    lines.try_iter().collect()
}

/// A text line without what differs from run to run.
fn tail(line: &str) -> String {
    let (_, rest) = line.split_once(" [").unwrap();
    let (severity, rest) = rest.split_once("][").unwrap();
    let (_, rest) = rest.split_once(": ").unwrap();
    format!("{severity} {rest}")
}

#[test]
fn text_lines_have_fields_and_escape_what_peers_send() {
    let lines = log(Severity::Info, |_| {
        let span = tracing::info_span!("conn", id = 7, peer = "10.0.0.1:5", state = tracing::field::Empty);
        span.record("state", "streaming");
        let _entered = span.enter();
        tracing::info!(agent = "felix\n[FAKE] \"x\"", ratio = 0.5, up = true, "client connected\r\nevil");
        tracing::debug!("not wanted");
        tracing::error!(id = 8, "own field first");
    });
    let lines: Vec<String> = lines.iter().map(|line| tail(line)).collect();
    assert_eq!(
        lines,
        [
            r#"INFO client connected\r\nevil agent="felix\n[FAKE] \"x\"" ratio=0.5 up=true id=7 peer="10.0.0.1:5" state="streaming""#,
            r#"ERROR own field first id=8 peer="10.0.0.1:5" state="streaming""#,
        ]
    );
}

#[test]
fn json_lines_are_json() {
    let lines = log(Severity::Info, |logging| {
        logging.shared.json.store(true, Relaxed);
        tracing::warn!(count = 3, level = "mine", nan = f64::NAN, long = "é".repeat(100_000), "odd \"thing\"");
    });
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["level"], "WARNING");
    assert_eq!(line["message"], "odd \"thing\"");
    assert_eq!(line["count"], 3);
    assert_eq!(line["field_level"], "mine");
    assert_eq!(line["nan"], "NaN");
    assert!(lines[0].len() < 20_000);
}

#[test]
fn severities_change_at_run_time() {
    let lines = log(Severity::Critical, |logging| {
        let handle = logging.handle();
        let step = |name: &str| {
            tracing::error!(target: FATAL_TARGET, "{name} fatal");
            tracing::error!("{name} error");
            tracing::debug!("{name} debug");
            tracing::debug!(target: "h2::codec", "{name} library");
        };
        step("critical");
        handle.set_all(Severity::Debug);
        step("debug");
        assert!(handle.set_one("screen", Some(Severity::Trace)));
        step("trace");
        assert!(handle.set_one("screen", None));
        step("off");
        assert!(!handle.set_one("file", None));
        assert_eq!(handle.severities(), [("screen", None)]);
    });
    let lines: Vec<String> = lines.iter().map(|line| tail(line)).collect();
    assert_eq!(
        lines,
        [
            "CRITICAL critical fatal",
            "CRITICAL debug fatal",
            "ERROR debug error",
            "DEBUG debug debug",
            "CRITICAL trace fatal",
            "ERROR trace error",
            "DEBUG trace debug",
            "DEBUG trace library",
        ]
    );
}

#[test]
fn dropped_lines_are_announced() {
    let lines = [
        format::dropped(5, false).text.split_once(": ").unwrap().1.to_owned(),
        format::dropped(5, true).text.split_once("\"level\"").unwrap().1.to_owned(),
    ];
    assert_eq!(lines[0], "dropped log lines because the destination was too slow count=5");
    assert!(lines[1].ends_with("\"count\":5}"));
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_in_words() {
    let (tape, _lines) = channel();
    let (logging, _) = Logging::new(Severity::Info, LogMetrics::new(&Registry::new()), Tape(tape)).unwrap();
    let config = LoggingConfig {
        screen: None,
        file: Some(Severity::Info),
        file_path: Some("/dev/null/typha.log".into()),
        sys: None,
        format: LogFormat::Text,
        disable_dropping: false,
    };
    let error = logging.configure(&config).unwrap_err().to_string();
    assert!(error.starts_with("open log file /dev/null/typha.log: "), "{error}");
    assert!(error.ends_with("check LogFilePath, or set it to none"), "{error}");
}
