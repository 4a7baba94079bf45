//! Destinations of lines: standard output, a file that another program may rotate, the local syslog.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use prometheus::IntCounter;

use super::format::{self, Line};
use super::queue::Queue;
use crate::config::Severity;

/// The tag of our lines in the syslog: Typha's name, which filters look for.
const SYSLOG_TAG: &str = "calico-typha";
/// The facility `user`, as it stands in a priority.
const SYSLOG_USER: u8 = 1 << 3;
/// Paths of the syslog's socket on different systems.
pub(super) const SYSLOG_SOCKETS: &[&str] = &["/dev/log", "/var/run/syslog", "/var/run/log"];

/// Takes lines.
pub(super) trait Sink: Send + 'static {
    /// Writes a line. May block.
    fn write(&mut self, line: &Line) -> io::Result<()>;
}

/// Writes the lines of a queue, until the process ends. An error loses the line and is counted.
pub(super) fn run(queue: &Queue, mut sink: impl Sink, errors: &IntCounter) {
    loop {
        let (line, dropped) = queue.take();
        if dropped > 0 && sink.write(&format::dropped(dropped, line.text.starts_with('{'))).is_err() {
            errors.inc();
        }
        if sink.write(&line).is_err() {
            errors.inc();
        }
    }
}

/// Standard output.
#[derive(Debug)]
pub(super) struct Screen;

impl Sink for Screen {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", line.text)?;
        out.flush()
    }
}

/// A file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Opens a file for appending. Creates it and its folder if they are missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(Self { path: path.to_owned(), file: Self::append(path)? })
    }

    fn append(path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o644).open(path)
    }

    /// Whether the path leads to the file that we have open.
    fn is_current(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        match (fs::metadata(&self.path), self.file.metadata()) {
            (Ok(there), Ok(open)) => identity(there) == identity(open),
            _ => false,
        }
    }
}

impl Sink for LogFile {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        if !self.is_current() {
            // The file was rotated. If no new file can be made, lines still go to the old one.
            if let Ok(file) = Self::append(&self.path) {
                self.file = file;
            }
        }
        // One write, so that lines of two processes do not mix.
        self.file.write_all(format!("{}\n", line.text).as_bytes())
    }
}

/// The local syslog.
#[derive(Debug)]
pub(super) struct Syslog {
    sockets: &'static [&'static str],
    socket: UnixDatagram,
}

impl Syslog {
    /// Connects to the first of these sockets that answers.
    pub(super) fn connect(sockets: &'static [&'static str]) -> io::Result<Self> {
        let mut result = Err(io::Error::from(io::ErrorKind::NotFound));
        for path in sockets {
            let socket = UnixDatagram::unbound()?;
            match socket.connect(path) {
                Ok(()) => return Ok(Self { sockets, socket }),
                Err(error) => result = Err(io::Error::new(error.kind(), format!("connect to {path}: {error}"))),
            }
        }
        result
    }
}

impl Sink for Syslog {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        let level = match line.severity {
            Severity::Critical => 2,
            Severity::Error => 3,
            Severity::Warning => 4,
            Severity::Info => 6,
            Severity::Debug | Severity::Trace => 7,
        };
        let message = format!("<{}>{SYSLOG_TAG}[{}]: {}", SYSLOG_USER + level, std::process::id(), line.text);
        if self.socket.send(message.as_bytes()).is_ok() {
            return Ok(());
        }
        // The syslog may have been restarted.
        *self = Self::connect(self.sockets)?;
        self.socket.send(message.as_bytes()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line { severity: Severity::Warning, text: text.into() }
    }

    #[test]
    fn a_rotated_file_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/typha.log");
        let mut file = LogFile::open(&path).unwrap();
        file.write(&line("one")).unwrap();
        fs::rename(&path, path.with_extension("1")).unwrap();
        file.write(&line("two")).unwrap();
        file.write(&line("three")).unwrap();
        assert_eq!(fs::read_to_string(path.with_extension("1")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\nthree\n");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        file.write(&line("four")).unwrap();
    }

    #[test]
    fn the_syslog_gets_priority_and_tag_and_may_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let sockets: &'static [&'static str] = Box::leak(Box::new([&*path.to_str().unwrap().to_owned().leak()]));
        assert!(Syslog::connect(sockets).is_err());
        let server = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::connect(sockets).unwrap();
        syslog.write(&line("one")).unwrap();
        let mut buffer = [0; 200];
        let length = server.recv(&mut buffer).unwrap();
        let expected = format!("<12>calico-typha[{}]: one", std::process::id());
        assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), expected);
        drop(server);
        fs::remove_file(&path).unwrap();
        assert!(syslog.write(&line("lost")).is_err());
        let server = UnixDatagram::bind(&path).unwrap();
        syslog.write(&line("two")).unwrap();
        assert!(server.recv(&mut buffer).unwrap() > 0);
    }
}
