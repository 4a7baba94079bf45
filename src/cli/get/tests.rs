//! The command against a server that is played by hand over TCP.

use clap::Parser as _;

use super::*;
use crate::cli::tests::{greet, listen, update};
use crate::cli::{Cli, Command};
use crate::model::SyncStatus;
use crate::syncproto::format::{SeqRange, WireFormat as _};
use crate::syncproto::native::NativeZstd;

fn args(arguments: &[&str], address: &str) -> GetArgs {
    let all = [&["bulrush", "get"], arguments, &["--server", address, "--syncer", "mesh"]].concat();
    match Cli::try_parse_from(all).unwrap().command {
        Some(Command::Get(args)) => args,
        other => panic!("{other:?}"),
    }
}

const CREATED: &str = "2026-01-02T03:04:05Z";

fn objects() -> Vec<std::sync::Arc<Update>> {
    let object = |name: &str, app: &str| {
        format!(
            r#"{{"apiVersion":"a/v1","metadata":{{"creationTimestamp":"{CREATED}","labels":{{"app":"{app}"}},"name":"{name}"}}}}"#
        )
    };
    vec![
        update("/bulrush/v1/core/Namespace/-/prod", &object("prod", "none")),
        update("/bulrush/v1/networking.istio.io/VirtualService/default/ratings", &object("ratings", "web")),
        update("/bulrush/v1/networking.istio.io/VirtualService/default/reviews", &object("reviews", "api")),
        update("/bulrush/v1/networking.istio.io/VirtualService/prod/reviews", &object("reviews", "web")),
        update("/other/key", "text"),
    ]
}

/// The output of a command, its problems, and its exit status.
async fn printed(arguments: &[&str]) -> (String, String, u8) {
    let (listener, address) = listen().await;
    let args = args(arguments, &address);
    let (mut out, mut err, objects) = (Vec::new(), Vec::new(), objects());
    let run = run(&args, Screen::default(), CancellationToken::new(), &mut out, &mut err);
    let (_server, status) = tokio::join!(greet(&listener, "mesh", &objects, SyncStatus::InSync), run);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(out), text(err), status.unwrap())
}

#[tokio::test]
async fn objects_are_printed_in_every_form() {
    for (arguments, expected) in [
        (
            &["VirtualService"][..],
            "NAME     CREATED               REVISION\nratings  2026-01-02T03:04:05Z  -\nreviews  2026-01-02T03:04:05Z  -\n",
        ),
        (
            &["virtualservices", "-A", "-l", "app=web"],
            "NAMESPACE  NAME     CREATED               REVISION\n\
             default    ratings  2026-01-02T03:04:05Z  -\n\
             prod       reviews  2026-01-02T03:04:05Z  -\n",
        ),
        (&["virtualservice/reviews", "-n", "prod", "-o", "name"], "virtualservice.networking.istio.io/reviews\n"),
        (&["namespace", "prod", "-o", "name"], "namespace/prod\n"),
        (
            &["namespace/prod", "-o", "yaml"],
            "apiVersion: a/v1\nmetadata:\n  creationTimestamp: \"2026-01-02T03:04:05Z\"\n  labels:\n    app: none\n  name: prod\n",
        ),
    ] {
        let (out, err, status) = printed(arguments).await;
        if expected.contains("creationTimestamp") {
            let read = |text: &str| serde_saphyr::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(read(&out), read(expected), "{out}");
        } else {
            assert_eq!(out, expected, "{arguments:?}");
        }
        assert_eq!((err.as_str(), status), ("", 0), "{arguments:?}");
    }
    let (out, _, status) = printed(&["virtualservices", "-o", "json"]).await;
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len), status), (Some("List"), Some(2), 0));
}

#[tokio::test]
async fn the_reason_is_said_when_there_is_nothing() {
    for (arguments, expected) in [
        (&["virtualservce"][..], "no object has this kind; did you mean VirtualService.networking.istio.io?"),
        (&["gateway"], "no object has this kind; there are Namespace, VirtualService.networking.istio.io"),
        (
            &["virtualservice/reviwes"],
            "no VirtualService.networking.istio.io with the name \"reviwes\" is in namespace default; did you mean \"reviews\"?",
        ),
        (
            &["virtualservice/ratings", "-n", "prod"],
            "no VirtualService.networking.istio.io with the name \"ratings\" is in namespace prod; there is one in namespace default",
        ),
        (
            &["virtualservice", "-n", "test"],
            "no VirtualService.networking.istio.io is in namespace test; there are some in default, prod",
        ),
    ] {
        let (out, err, status) = printed(arguments).await;
        assert_eq!((out.as_str(), err, status), ("", format!("get: syncer mesh: {expected}\n"), 1), "{arguments:?}");
    }
    let (_, err, status) = {
        let args = args(&["a/b", "c"], "127.0.0.1:1");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = run(&args, Screen::default(), CancellationToken::new(), &mut out, &mut err).await.unwrap();
        (out, String::from_utf8(err).unwrap(), status)
    };
    assert_eq!((err.as_str(), status), ("get: a name is given twice: as KIND/NAME and as NAME\n", EXIT_USAGE));
}

#[tokio::test]
async fn changes_follow_until_it_is_stopped() {
    let (listener, address) = listen().await;
    let args = args(&["virtualservice", "-l", "app=web", "--watch"], &address);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (cancel, objects) = (CancellationToken::new(), objects());
    let server = async {
        use tokio::io::AsyncWriteExt as _;
        let mut stream = greet(&listener, "mesh", &objects, SyncStatus::InSync).await;
        let of = |name: &str, app: &str| {
            let body = format!(r#"{{"metadata":{{"labels":{{"app":"{app}"}}}}}}"#);
            update(&format!("/bulrush/v1/networking.istio.io/VirtualService/{name}"), &body)
        };
        let changes = [
            of("default/ratings", "web"),
            of("default/ratings", "api"),
            of("default/details", "web"),
            of("prod/details", "web"),
            update("/bulrush/v1/networking.istio.io/VirtualService/default/details", ""),
        ];
        let bytes = NativeZstd::default().updates(SeqRange { after: 1, upto: 2 }, &changes);
        stream.write_all(&bytes).await.unwrap();
        drop(stream);
        // Comes back when all of this has been heard.
        let again = greet(&listener, "mesh", &objects, SyncStatus::ResyncInProgress).await;
        cancel.cancel();
        again
    };
    let run = run(&args, Screen::default(), cancel.clone(), &mut out, &mut err);
    let (_again, status) = tokio::join!(server, run);
    assert_eq!(status.unwrap(), 0);
    let out = String::from_utf8(out).unwrap();
    let rows: Vec<&str> = out.lines().map(|row| row.split("  ").next().map_or("", |_| row)).collect();
    let starts: Vec<String> =
        rows.iter().map(|row| row.chars().take(9).collect::<String>().trim_end().to_owned()).collect();
    assert_eq!(starts, ["  NAME", "  ratings", "~ ratings", "- ratings", "+ details", "- details"], "{out}");
    assert!(String::from_utf8(err).unwrap().contains("server closed the connection; changes may be missing"));
}

#[tokio::test]
async fn a_server_without_the_syncer_is_not_waited_for() {
    use tokio::io::AsyncWriteExt as _;
    let (listener, address) = listen().await;
    let args = args(&["virtualservice"], &address);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let goodbye =
            crate::syncproto::native::encode_goodbye("no such syncer: \"mesh\"; this server has bgp, felix", &[]);
        stream.write_all(&goodbye).await.unwrap();
        stream
    };
    let run = run(&args, Screen::default(), CancellationToken::new(), &mut out, &mut err);
    let (_server, status) = tokio::join!(server, run);
    assert_eq!(status.unwrap(), EXIT_FAILURE);
    let err = String::from_utf8(err).unwrap();
    assert!(err.contains("server refused: no such syncer: \"mesh\"; this server has bgp, felix"), "{err}");
}
