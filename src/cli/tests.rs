//! The commands against servers played by hand over TCP.

use std::io;

use clap::CommandFactory;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::screen::Screen;
use super::*;
use crate::model::{Key, SyncStatus, Update, UpdateType, Value, no_revision};
use crate::syncproto::format::{SeqRange, WireFormat};
use crate::syncproto::native::{Limits, NativeZstd, ServerHello, encode_server_hello};

fn parse(arguments: &[&str]) -> Result<Cli, String> {
    Cli::try_parse_from(std::iter::once(&"bulrush").chain(arguments)).map_err(|error| error.to_string())
}

fn dump_args(arguments: &[&str]) -> dump::DumpArgs {
    match parse(&[&["dump"], arguments].concat()).unwrap().command {
        Some(Command::Dump(args)) => args,
        other => panic!("{other:?}"),
    }
}

fn watch_args(arguments: &[&str]) -> watch::WatchArgs {
    match parse(&[&["watch"], arguments].concat()).unwrap().command {
        Some(Command::Watch(args)) => args,
        other => panic!("{other:?}"),
    }
}

pub(super) fn update(key: &str, value: &str) -> std::sync::Arc<Update> {
    std::sync::Arc::new(Update {
        key: Key::from(key),
        value: (!value.is_empty()).then(|| Value::raw(value.to_owned())),
        revision: no_revision(),
        v3_resource_version: no_revision(),
        ttl: std::time::Duration::ZERO,
        update_type: if value.is_empty() { UpdateType::Deleted } else { UpdateType::New },
        origin: None,
    })
}

/// Greets and sends `/b` and `/a`, and the status.
async fn serve(listener: &TcpListener, status: SyncStatus) -> TcpStream {
    greet(listener, "felix", &[update("/a", "{\"x\":1}"), update("/b", "text")], status).await
}

/// Greets and sends a snapshot and the status.
pub(super) async fn greet(
    listener: &TcpListener,
    syncer: &str,
    snapshot: &[std::sync::Arc<Update>],
    status: SyncStatus,
) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let hello = ServerHello {
        version: 1,
        server: "s".to_owned(),
        server_version: "2".to_owned(),
        syncer: syncer.to_owned(),
        compression: "zstd".to_owned(),
        epoch: 5,
        conn_id: 6,
        resumed: false,
        limits: Limits { max_frame_bytes: 1 << 18, ping_interval_ms: 10_000, pong_timeout_ms: 60_000 },
    };
    let format = NativeZstd::default();
    let bytes = [
        encode_server_hello(&hello),
        format.snapshot_begin(1, snapshot.len()),
        format.snapshot_chunk(snapshot).0,
        format.snapshot_end(1, None),
        format.status(1, status),
    ];
    stream.write_all(&bytes.concat()).await.unwrap();
    stream
}

pub(super) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[test]
fn a_server_and_a_configuration_file_are_named_in_the_same_words_everywhere() {
    let named = |arguments: &[&str]| match parse(arguments).unwrap().command {
        Some(Command::Status(args)) => (args.server, args.config_file),
        Some(Command::Watch(args)) => (args.connect.server.first().cloned(), args.connect.config_file),
        Some(Command::Dump(args)) => (args.connect.server.first().cloned(), args.connect.config_file),
        other => panic!("{other:?}"),
    };
    for command in ["status", "watch", "dump"] {
        for (server, file) in [("--server", "--config-file"), ("-s", "-c")] {
            let wanted = (Some("a:1".to_owned()), PathBuf::from("x"));
            assert_eq!(named(&[command, server, "a:1", file, "x"]), wanted, "{command} {server} {file}");
        }
    }
    // As it was called before.
    for server in ["--address", "-a"] {
        assert_eq!(named(&["status", server, "a:1"]).0.as_deref(), Some("a:1"), "{server}");
    }
}

#[test]
fn the_words_of_calicos_image_mean_the_daemon() {
    let words = |given: &[&str]| arguments(given.iter().map(std::ffi::OsString::from));
    assert_eq!(words(&["bulrush", "component", "typha", "-c", "x"]), ["bulrush", "-c", "x"]);
    assert_eq!(words(&["bulrush", "component", "typha"]), ["bulrush"]);
    for kept in [&["bulrush", "component"][..], &["bulrush", "component", "felix"], &["bulrush", "status"], &[]] {
        assert_eq!(words(kept), kept);
    }
}

#[test]
fn the_arguments_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn without_a_command_the_daemon_runs() {
    assert!(parse(&[]).unwrap().command.is_none());
    assert_eq!(parse(&["-c", "x.cfg"]).unwrap().config_file, PathBuf::from("x.cfg"));
    assert_eq!(parse(&["--config-file", "x.cfg"]).unwrap().config_file, PathBuf::from("x.cfg"));
    assert!(matches!(parse(&["version"]).unwrap().command, Some(Command::Version)));
    // The file would be ignored, so it is refused.
    assert!(parse(&["-c", "x.cfg", "watch"]).is_err());
}

#[test]
fn arguments_that_make_no_sense_are_refused_in_words() {
    assert!(parse(&["watch", "--syncer", "Felix"]).unwrap_err().contains("cannot name a syncer"));
    assert!(parse(&["dump", "--timeout", "soon"]).unwrap_err().contains("a number of seconds is expected"));
    assert!(parse(&["dump", "--timeout", "-1"]).is_err());
    for (arguments, expected) in [
        (&["--ca-file", "x"][..], "TLS needs --cert-file, --key-file, --server-cn or --server-uri-san as well"),
        (&["--server-cn", "x"], "TLS needs --ca-file, --cert-file, --key-file as well"),
        (&["--ca-file", "/x", "--cert-file", "/x", "--key-file", "/x", "--server-cn", "x"], "read key file /x"),
        (&["--protocol", "calico", "--compression", "zstd"], "--compression goes with --protocol native only"),
    ] {
        let error = dump_args(arguments).connect.builder().map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
}

#[tokio::test]
async fn dump_prints_the_snapshot_in_key_order() {
    let (listener, address) = listen().await;
    let args = dump_args(&["--server", &address, "--output", "json", "--compression", "zstd"]);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (_server, status) =
        tokio::join!(serve(&listener, SyncStatus::InSync), dump::run(&args, Screen::default(), &mut out, &mut err));
    assert_eq!(status.unwrap(), 0);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"type\":\"update\",\"change\":\"new\",\"key\":\"/a\",\"value\":{\"x\":1},\"revision\":\"\"}\n\
         {\"type\":\"update\",\"change\":\"new\",\"key\":\"/b\",\"value\":\"text\",\"revision\":\"\"}\n"
    );
    assert!(err.is_empty());
}

#[tokio::test]
async fn dump_fails_in_words_when_the_server_is_not_in_sync_in_time() {
    let (listener, address) = listen().await;
    let args = dump_args(&["--server", &address, "--timeout", "0.2"]);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (_server, status) = tokio::join!(
        serve(&listener, SyncStatus::WaitForDatastore),
        dump::run(&args, Screen::default(), &mut out, &mut err)
    );
    assert_eq!(status.unwrap(), EXIT_FAILURE);
    assert_eq!(
        String::from_utf8(err).unwrap(),
        "dump: not in sync after 0.2 s: status is wait-for-ready, 2 keys so far\n"
    );
    assert!(out.is_empty());

    drop(listener);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    assert_eq!(dump::run(&args, Screen::default(), &mut out, &mut err).await.unwrap(), EXIT_FAILURE);
    let err = String::from_utf8(err).unwrap();
    assert!(err.contains(&format!("no connection to {address}: connect: Connection refused")), "{err}");
}

/// Collects the output, and stops the command after a certain line.
struct Printed {
    text: Vec<u8>,
    last: &'static str,
    stop: CancellationToken,
}

impl io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if String::from_utf8_lossy(&self.text).contains(self.last) {
            self.stop.cancel();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn watch_shows_the_snapshot_every_change_and_the_next_server() {
    let (listener, address) = listen().await;
    let args = watch_args(&["--server", &address]);
    let cancel = CancellationToken::new();
    let mut out = Printed { text: Vec::new(), last: "2 keys\n- /b", stop: cancel.clone() };
    let server = async {
        let mut first = serve(&listener, SyncStatus::InSync).await;
        let format = NativeZstd::default();
        let changes = [update("/a", ""), update("/c", "1")];
        first.write_all(&format.updates(SeqRange { after: 1, upto: 2 }, &changes)).await.unwrap();
        drop(first);
        let mut second = serve(&listener, SyncStatus::InSync).await;
        second.write_all(&format.updates(SeqRange { after: 1, upto: 2 }, &[update("/b", "")])).await.unwrap();
        second
    };
    let mut err = Vec::new();
    let (_second, status) =
        tokio::join!(server, watch::run(&args, Screen { width: Some(80), colours: false }, cancel, &mut out, &mut err));
    assert_eq!(status.unwrap(), 0);
    let text = String::from_utf8(out.text).unwrap().replace(&address, "ADDRESS");
    let lines: Vec<&str> = text.lines().map(|line| line.split("; next try").next().unwrap_or(line)).collect();
    assert_eq!(
        lines,
        [
            "== connected to ADDRESS: s 2, native protocol, compression zstd",
            "== resync, 0 keys",
            "+ /a  {\"x\":1}",
            "+ /b  text",
            "== in-sync, 2 keys",
            "- /a",
            "+ /c  1",
            "== no connection to ADDRESS: server closed the connection",
            "== resync, 2 keys",
            "== connected to ADDRESS: s 2, native protocol, compression zstd",
            "+ /a  {\"x\":1}",
            "- /c",
            "== in-sync, 2 keys",
            "- /b",
        ]
    );
    assert!(err.is_empty());
}

#[tokio::test]
async fn watch_can_leave_the_snapshot_out_and_give_up() {
    let (listener, address) = listen().await;
    let args = watch_args(&["--server", &address, "--changes-only", "--timeout", "0.2", "--output", "json"]);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let cancel = CancellationToken::new();
    let (_server, status) = tokio::join!(
        serve(&listener, SyncStatus::ResyncInProgress),
        watch::run(&args, Screen::default(), cancel, &mut out, &mut err)
    );
    assert_eq!(status.unwrap(), EXIT_FAILURE);
    assert_eq!(String::from_utf8(err).unwrap(), "watch: no in-sync for 0.2 s, 2 keys are held\n");
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("\"type\":\"connected\"") && !out.contains("\"type\":\"update\""), "{out}");
}

/// As `| head` does.
struct Closed;

impl io::Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_failure() {
    let (listener, address) = listen().await;
    let (mut closed, mut err) = (Closed, Vec::new());
    let args = dump_args(&["--server", &address]);
    let (_server, status) =
        tokio::join!(serve(&listener, SyncStatus::InSync), dump::run(&args, Screen::default(), &mut closed, &mut err));
    assert_eq!(status.unwrap(), 0);
    let args = watch_args(&["--server", &address]);
    let watching = watch::run(&args, Screen::default(), CancellationToken::new(), &mut closed, &mut err);
    let (_server, status) = tokio::join!(serve(&listener, SyncStatus::InSync), watching);
    assert_eq!(status.unwrap(), 0);
}
