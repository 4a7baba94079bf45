//! Options of the log.

use crate::config::options::Options;
use crate::config::spec::Group;
use crate::config::{LogFormat, LoggingConfig, Severity};

/// Words of the log severity options.
const SEVERITIES: &[&str] = &["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
/// Words of the option for the early log's level.
const EARLY_LEVELS: &[&str] = &["trace", "debug", "info", "warning", "warn", "error", "fatal", "panic"];

pub(super) fn read(options: &mut Options<'_>) -> LoggingConfig {
    options.begin(Group::Logging);
    let mut severity = |name, doc| Severity::from_name(&options.word(name, SEVERITIES, "INFO", doc).read());
    let screen = severity("LogSeverityScreen", "Least severe lines that go to standard output; none switches it off.");
    let file = severity("LogSeverityFile", "Least severe lines that go to the log file; none switches it off.");
    let sys = severity("LogSeveritySys", "Least severe lines that go to the local syslog; none switches it off.");
    let file_path = options
        .file(
            "LogFilePath",
            "/var/log/calico/typha.log",
            "The log file. Its folder is created; a rotated file is noticed; none switches it off.",
        )
        .read();
    let format = options
        .word("LogFormat", &["text", "json"], "text", "Form of log lines: readable text, or one JSON object a line.")
        .refuses_zero()
        .ours()
        .read();
    let disable_dropping = options
        .boolean(
            "DebugDisableLogDropping",
            "false",
            "Wait for a slow log destination instead of dropping lines. A stuck destination then stops the program.",
        )
        .read();
    // The level is needed before there is a configuration: `early_level` reads it.
    let _ = options
        .word(
            "TYPHA_EARLYLOGSEVERITYSCREEN",
            EARLY_LEVELS,
            "error",
            "Level of the log before the configuration is read. When unset, TYPHA_LOGSEVERITYSCREEN counts.",
        )
        .plain_variable()
        .read();
    LoggingConfig {
        screen,
        file,
        file_path,
        sys,
        format: if format == "json" { LogFormat::Json } else { LogFormat::Text },
        disable_dropping,
    }
}
