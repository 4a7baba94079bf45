//! `bulrush status`: asks a running Bulrush for its state and prints it, the slowest clients first.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Output;
use super::local::Local;
use crate::config::render::columns;
use crate::config::table::DEFAULT_FILE;
use crate::status::{DEFAULT_CLIENTS, Datastore, Listed, Snapshot, Syncer};

/// Longest status that is read: enough for all clients that a server can have, at some hundred bytes each.
const MAX_BODY: usize = 64 << 20;

/// Most bad objects of one syncer in the table: more would push the clients off the screen.
const SHOWN_PROBLEMS: usize = 10;

/// Arguments of `bulrush status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Server to ask, as host:port of its health endpoint or debug port [default: from the
    /// configuration here, or localhost:9098]
    #[arg(short, long, alias = "address", short_alias = 'a', value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// The daemon's configuration file, which has the address when no --server is given; a missing one counts as empty
    #[arg(short, long, default_value = DEFAULT_FILE, value_name = "PATH")]
    pub config_file: PathBuf,
    /// The environment, for the daemon's options.
    #[arg(skip)]
    pub environment: Vec<(OsString, OsString)>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Number of clients to list, the slowest first; or all
    #[arg(long, default_value_t, value_name = "N")]
    pub clients: Listed,
    /// Seconds to wait for the answer
    #[arg(long, default_value_t = 5)]
    pub timeout: u64,
}

/// The reason why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no answer.
    #[error("ask {address} for its status: {reason}; is HealthEnabled or DebugPort set there?")]
    Away {
        /// The address that was asked.
        address: String,
        /// The error.
        reason: String,
    },
    /// The answer was cut off.
    #[error(
        "ask {address} for its status: the connection was cut before the answer was complete: {reason}; if it is forwarded, \
         look at the forwarder (kubectl port-forward) and at the pod behind it"
    )]
    Cut {
        /// The address that was asked.
        address: String,
        /// The error.
        reason: String,
    },
    /// Something else answers.
    #[error(
        "ask {address} for its status: it answers {status}; is this its health or debug port, is StatusEnabled set there, and \
         StatusRemoteEnabled if you do not ask from its own host or pod?"
    )]
    Refused {
        /// The address that was asked.
        address: String,
        /// The answer.
        status: StatusCode,
    },
    /// The answer is not a status.
    #[error("read the status of {address}: {source}")]
    Unreadable {
        /// The address that was asked.
        address: String,
        /// The mistake.
        source: serde_json::Error,
    },
    /// The output is gone.
    #[error("print the status: {0}")]
    Print(#[from] io::Error),
}

/// Asks a server for its status and prints it.
///
/// # Errors
/// There is no answer, or not from a Bulrush, or `out` cannot be written to.
///
/// # Cancel safety
/// May be dropped at any time.
pub async fn run(args: &StatusArgs, out: &mut impl Write) -> Result<(), Error> {
    let address = match &args.server {
        Some(server) => server.clone(),
        None => Local::read(&args.config_file, args.environment.iter().cloned()).status,
    };
    let away = |reason: String| Error::Away { address: address.clone(), reason };
    let timeout = Duration::from_secs(args.timeout);
    let (status, body) = match tokio::time::timeout(timeout, ask(&address, args.clients)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(AskError::NoConnection(error))) => return Err(away(error.to_string())),
        Ok(Err(AskError::Cut(error))) => return Err(Error::Cut { address, reason: with_causes(&*error) }),
        Err(_) => return Err(away(format!("no answer within {} s", args.timeout))),
    };
    if status != StatusCode::OK {
        return Err(Error::Refused { address, status });
    }
    let unreadable = |source| Error::Unreadable { address, source };
    match args.output {
        Output::Json => {
            let value: serde_json::Value = serde_json::from_slice(&body).map_err(unreadable)?;
            writeln!(out, "{value:#}")?;
        }
        Output::Table => {
            let snapshot: Snapshot = serde_json::from_slice(&body).map_err(unreadable)?;
            write!(out, "{}", table(&snapshot))?;
        }
    }
    Ok(())
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why there is no answer.
enum AskError {
    NoConnection(io::Error),
    /// The connection was cut.
    Cut(AnyError),
}

/// An error with its causes, in one line.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

async fn ask(address: &str, clients: Listed) -> Result<(StatusCode, Bytes), AskError> {
    let stream = TcpStream::connect(address).await.map_err(AskError::NoConnection)?;
    exchange(stream, address, clients).await.map_err(AskError::Cut)
}

async fn exchange(stream: TcpStream, address: &str, clients: Listed) -> Result<(StatusCode, Bytes), AnyError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request =
        Request::get(format!("/status?clients={clients}")).header(HOST, address).body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await?;
        Ok((status, body.to_bytes()))
    };
    // The connection must be driven while the request runs, and no longer.
    tokio::select! {
        answer = exchange => answer,
        Err(error) = connection => Err(error.into()),
    }
}

/// The status for people.
#[must_use]
pub fn table(snapshot: &Snapshot) -> String {
    let mut out = format!(
        "bulrush {}, {}, up {}, listening on {}\n",
        snapshot.version,
        snapshot.phase,
        duration(snapshot.uptime_secs),
        snapshot.listening,
    );
    // One needs no name, and an older server tells of none.
    match &snapshot.datastores[..] {
        [] | [_] => out += &datastore("datastore", &snapshot.datastore),
        several => {
            for one in several {
                out += &datastore(&format!("datastore {}:", plain(&one.name)), one);
            }
        }
    }
    out.push('\n');
    let head = ["SYNCER", "STATUS", "KEYS", "SEQUENCE", "DATA AGE", "INVALID", "UNCONVERTIBLE"];
    let rows = snapshot.syncers.iter().map(|syncer| {
        [
            syncer.name.clone(),
            syncer.status.clone(),
            syncer.keys.to_string(),
            syncer.sequence.to_string(),
            syncer.as_of_age_secs.map_or_else(|| "-".to_owned(), duration),
            syncer.invalid.to_string(),
            syncer.unconvertible.to_string(),
        ]
    });
    out += &columns(&head, rows);
    out += &sources(&snapshot.syncers);
    out += &problems(&snapshot.syncers);
    out += &clients(snapshot);
    out
}

/// A datastore and its troubles; `title` comes before its type.
fn datastore(title: &str, datastore: &Datastore) -> String {
    let mut out = format!("{title} {} at {}: {}\n", datastore.datastore_type, datastore.location, datastore.state);
    if !datastore.last_error.is_empty() {
        let _ = writeln!(out, "  last error: {}", plain(&datastore.last_error));
    }
    for spared in &datastore.spared {
        let _ = writeln!(out, "  {}", plain(spared));
    }
    if !datastore.held.is_empty() {
        let _ = writeln!(out, "  held: {}", plain(&datastore.held));
    }
    for error in &datastore.file_errors {
        let line = error.line.map(|line| format!(":{line}")).unwrap_or_default();
        let _ = writeln!(out, "  bad file: {}{line}: {}", plain(&error.file), plain(&error.reason));
    }
    out
}

/// For syncers of any kind: trouble with their datastores, and the keys that several datastores have.
fn sources(syncers: &[Syncer]) -> String {
    let mut out = String::new();
    for syncer in syncers {
        for source in &syncer.sources {
            let (name, from) = (&syncer.name, plain(&source.datastore));
            if source.missed {
                let _ = writeln!(out, "\n{name}: in sync without {from}, which is not in sync and not required");
            }
            if !source.error.is_empty() {
                let _ = writeln!(out, "\n{name}: the kinds of {from} cannot be looked up: {}", plain(&source.error));
            }
            for unknown in &source.unknown {
                let _ = writeln!(out, "\n{name}: {from} has no {}", plain(unknown));
            }
        }
        if syncer.conflicts.is_empty() {
            continue;
        }
        let objects = if syncer.conflict_count == 1 { "object" } else { "objects" };
        let _ = writeln!(out, "\n{}: {} {objects} in several datastores", syncer.name, syncer.conflict_count);
        for conflict in syncer.conflicts.iter().take(SHOWN_PROBLEMS) {
            let (object, shown) = (plain(&conflict.object), plain(&conflict.shown));
            let _ = writeln!(out, "  {object}: {shown} hides {}", plain(&conflict.hidden.join(", ")));
        }
        let left = syncer.conflict_count.saturating_sub(syncer.conflicts.len().min(SHOWN_PROBLEMS) as u64);
        if left > 0 {
            let _ = writeln!(out, "  and {left} more; --output json shows more of them");
        }
    }
    out
}

/// The present problems, per syncer. An object that several syncers read is in the list of each.
fn problems(syncers: &[Syncer]) -> String {
    let mut out = String::new();
    for syncer in syncers.iter().filter(|syncer| !syncer.problems.is_empty()) {
        // Syncers of any kind may keep the last good value.
        let fate = if syncer.sources.is_empty() { "absent for agents" } else { "kept from agents" };
        let _ = writeln!(out, "\n{}: {} bad, {fate}", syncer.name, syncer.problem_count);
        for problem in syncer.problems.iter().take(SHOWN_PROBLEMS) {
            let _ = writeln!(out, "  {}: {}", plain(&problem.name), plain(&problem.reason));
        }
        let left = syncer.problem_count.saturating_sub(syncer.problems.len().min(SHOWN_PROBLEMS) as u64);
        if left > 0 {
            let _ = writeln!(out, "  and {left} more; --output json shows more of them");
        }
    }
    out
}

/// The clients that the server has listed, in its order: slowest first.
fn clients(snapshot: &Snapshot) -> String {
    let present: u64 = snapshot.client_states.values().sum();
    let listed = &snapshot.clients;
    if present == 0 && listed.is_empty() {
        return "\nno clients\n".to_owned();
    }
    let states: Vec<String> = snapshot.client_states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let mut out = format!("\n{present} client{}: {}", if present == 1 { "" } else { "s" }, states.join(", "));
    if listed.is_empty() {
        let _ = writeln!(out, "; --clients {DEFAULT_CLIENTS} lists the slowest, --clients all everyone");
        return out;
    }
    if (listed.len() as u64) < present {
        let _ = write!(out, "; the {} slowest (--clients all lists everyone):", listed.len());
    }
    out.push('\n');
    let head = [
        "CLIENT",
        "PEER",
        "AGENT",
        "SYNCER",
        "FORMAT",
        "DIALECT",
        "STATE",
        "SEQUENCE",
        "LAG",
        "BEHIND",
        "FAILED",
        "SENT",
        "CONNECTED",
    ];
    let rows = listed.iter().map(|client| {
        [
            client.id.to_string(),
            client.peer.clone(),
            plain(&client.agent),
            client.syncer.clone(),
            client.format.clone(),
            client.dialect.clone(),
            client.state.clone(),
            client.sequence.to_string(),
            duration(client.lag_secs),
            client.lag_updates.to_string(),
            client.failed_keys.to_string(),
            bytes(client.bytes_sent),
            duration(client.connected_secs),
        ]
    });
    out += &columns(&head, rows);
    out
}

/// A text without control characters: agents choose their names, and a terminal obeys control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Seconds as people say them.
fn duration(secs: f64) -> String {
    match secs {
        secs if secs < 1.0 => format!("{:.0}ms", secs * 1000.0),
        secs if secs < 60.0 => format!("{secs:.1}s"),
        secs if secs < 3600.0 => format!("{:.0}m{:02.0}s", (secs / 60.0).floor(), (secs % 60.0).floor()),
        secs if secs < 86_400.0 => {
            format!("{:.0}h{:02.0}m", (secs / 3600.0).floor(), (secs % 3600.0 / 60.0).floor())
        }
        secs => format!("{:.0}d{:02.0}h", (secs / 86_400.0).floor(), (secs % 86_400.0 / 3600.0).floor()),
    }
}

/// Bytes in the largest unit that gives at least 1.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Client, FileError, Problem};

    fn client(id: u64, lag_secs: f64) -> Client {
        Client {
            id,
            peer: format!("10.0.0.{id}:4000"),
            agent: "felix\u{1b}[2J".to_owned(),
            syncer: "felix".to_owned(),
            format: "gob-snappy".to_owned(),
            dialect: "v3.31".to_owned(),
            version: "v3.31.7".to_owned(),
            state: "following".to_owned(),
            sequence: 40 + id,
            lag_secs,
            lag_updates: 2,
            applied: None,
            failed_keys: 0,
            bytes_sent: 3 << 20,
            connected_secs: 90_000.0,
        }
    }

    #[test]
    fn the_table_shows_everything_in_order() {
        let snapshot = Snapshot {
            version: "0.1.0".to_owned(),
            uptime_secs: 3725.0,
            phase: "running".to_owned(),
            listening: "[::]:5473".to_owned(),
            datastore: Datastore {
                datastore_type: "file".to_owned(),
                location: "config/quickstart".to_owned(),
                state: "connected".to_owned(),
                file_errors: vec![FileError {
                    file: "a.yaml".to_owned(),
                    line: Some(3),
                    reason: "not YAML".to_owned(),
                }],
                ..Datastore::default()
            },
            datastores: Vec::new(),
            syncers: vec![Syncer {
                name: "felix".to_owned(),
                status: "in-sync".to_owned(),
                keys: 103,
                sequence: 42,
                as_of_age_secs: Some(0.25),
                invalid: 1,
                unconvertible: 0,
                problems: vec![Problem {
                    found_by: "Pod".to_owned(),
                    name: "v1/Pod a/b\u{7}".to_owned(),
                    reason: "spec.nodeName: invalid type: integer `7`, expected text".to_owned(),
                }],
                problem_count: 3,
                kinds: [].into(),
                sources: Vec::new(),
                conflicts: Vec::new(),
                conflict_count: 0,
            }],
            client_states: [("following".to_owned(), 502), ("snapshot".to_owned(), 1)].into(),
            clients: vec![client(2, 61.0), client(1, 0.001)],
        };
        insta::assert_snapshot!(table(&snapshot), @r"
        bulrush 0.1.0, running, up 1h02m, listening on [::]:5473
        datastore file at config/quickstart: connected
          bad file: a.yaml:3: not YAML

        SYNCER  STATUS   KEYS  SEQUENCE  DATA AGE  INVALID  UNCONVERTIBLE
        felix   in-sync  103   42        250ms     1        0

        felix: 3 bad, absent for agents
          v1/Pod a/b�: spec.nodeName: invalid type: integer `7`, expected text
          and 2 more; --output json shows more of them

        503 clients: 502 following, 1 snapshot; the 2 slowest (--clients all lists everyone):
        CLIENT  PEER           AGENT      SYNCER  FORMAT      DIALECT  STATE      SEQUENCE  LAG    BEHIND  FAILED  SENT     CONNECTED
        2       10.0.0.2:4000  felix�[2J  felix   gob-snappy  v3.31    following  42        1m01s  2       0       3.0 MiB  1d01h
        1       10.0.0.1:4000  felix�[2J  felix   gob-snappy  v3.31    following  41        1ms    2       0       3.0 MiB  1d01h
        ");
        let few = Snapshot { client_states: [("following".to_owned(), 2)].into(), ..snapshot };
        assert!(table(&few).contains("\n2 clients: 2 following\nCLIENT"), "{}", table(&few));
        let none = Snapshot { clients: Vec::new(), ..few };
        assert!(
            table(&none)
                .ends_with("\n2 clients: 2 following; --clients 10 lists the slowest, --clients all everyone\n")
        );
        assert!(table(&Snapshot::default()).ends_with("\nno clients\n"));
    }

    #[test]
    fn several_datastores_are_shown_by_name() {
        let one = |name: &str, datastore_type: &str, location: &str| Datastore {
            name: name.to_owned(),
            datastore_type: datastore_type.to_owned(),
            location: location.to_owned(),
            state: "connected".to_owned(),
            ..Datastore::default()
        };
        let held = "21 of 41 objects would be deleted".to_owned();
        let file_errors = vec![FileError { file: "a.yaml".to_owned(), line: None, reason: "not YAML".to_owned() }];
        let snapshot = Snapshot {
            datastores: vec![
                Datastore { file_errors, held, ..one("git", "file", "/etc/mesh") },
                Datastore { last_error: "no answer".to_owned(), ..one("cluster", "kubernetes", "https://api") },
            ],
            ..Snapshot::default()
        };
        let shown = table(&snapshot);
        let lines: Vec<&str> = shown.lines().skip(1).take(5).collect();
        assert_eq!(
            lines,
            [
                "datastore git: file at /etc/mesh: connected",
                "  held: 21 of 41 objects would be deleted",
                "  bad file: a.yaml: not YAML",
                "datastore cluster: kubernetes at https://api: connected",
                "  last error: no answer",
            ]
        );
    }

    #[tokio::test]
    async fn nobody_there_is_said_with_a_hint() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = run(&args(Some(address)), &mut Vec::new()).await.unwrap_err().to_string();
        assert!(error.contains("refused") && error.ends_with("is HealthEnabled or DebugPort set there?"), "{error}");
    }

    fn args(server: Option<String>) -> StatusArgs {
        let (config_file, environment) = (PathBuf::from("no-such-file.cfg"), Vec::new());
        StatusArgs { server, config_file, environment, output: Output::Table, clients: Listed::default(), timeout: 5 }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_points_at_the_forwarder() {
        for begun in ["", "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"version\""] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let cut = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _asked = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await.unwrap();
                tokio::io::AsyncWriteExt::write_all(&mut stream, begun.as_bytes()).await.unwrap();
            };
            let (mut out, args) = (Vec::new(), args(Some(address)));
            let ((), answer) = tokio::join!(cut, run(&args, &mut out));
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("cut before the answer was complete") && error.contains("port-forward"), "{error}");
            assert!(out.is_empty());
        }
    }

    #[tokio::test]
    async fn without_an_address_the_daemons_options_say_whom_to_ask() {
        let mut args = args(None);
        args.environment = [("TYPHA_HEALTHENABLED", "true"), ("TYPHA_HEALTHPORT", "1")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec();
        let error = run(&args, &mut Vec::new()).await.unwrap_err().to_string();
        assert!(error.starts_with("ask localhost:1 for its status"), "{error}");
    }
}
