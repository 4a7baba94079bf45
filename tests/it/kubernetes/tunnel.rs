//! A proxy in front of the API server that only passes bytes: HTTP's CONNECT, or SOCKS 5.

use std::fs;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::population::{SMALL, namespace};
use super::{USER, allow, logged, populated, start_all};
use crate::apiserver::crds::CrdGroup;
use crate::apiserver::{Auth, token};

const GROUP: CrdGroup = CrdGroup::V1;
/// The server's address in the kubeconfig. Nothing listens there; the proxy connects to the real one.
const NOWHERE: &str = "127.0.0.1:1";

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_reached_through_the_proxy_that_the_kubeconfig_names() -> anyhow::Result<()> {
    let Some(server) = populated(GROUP, SMALL).await? else { return Ok(()) };
    let rest = server.rest();
    allow(&server).await?;
    for (i, scheme) in ["http", "socks5"].into_iter().enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = format!("{scheme}://user:p%40ss@{}", listener.local_addr()?);
        let seen = Arc::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server.url().replace("https://", ""), Arc::clone(&seen)));

        let kubeconfig = server.kubeconfig_at(USER, &format!("https://{NOWHERE}"), &Auth::Token(token(USER)));
        let text = fs::read_to_string(&kubeconfig)?;
        let line = format!("    server: https://{NOWHERE}\n");
        ensure!(text.contains(&line), "{text}");
        fs::write(&kubeconfig, text.replace(&line, &format!("{line}    proxy-url: {proxy}\n")))?;
        let folder = TempDir::new()?;
        let (daemon, agents) = start_all(&folder, kubeconfig).await?;
        agents.until_equal(&rest, GROUP).await?;
        let pod = GROUP.path(&bulrush::calico::kinds::POD, &namespace(i), &format!("pod-{i}"));
        rest.delete_all(vec![pod]).await?;
        agents.until_equal(&rest, GROUP).await?;
        let line = logged(&daemon, &["through a proxy"]).await?;
        ensure!(line.contains(scheme) && !daemon.log().contains("p%40ss"), "{line}");
        let seen: Vec<String> = seen.lock().unwrap().clone();
        ensure!(
            !seen.is_empty() && seen.iter().all(|seen| seen == &format!("{scheme} {NOWHERE} user p@ss")),
            "{seen:?}"
        );
    }
    Ok(())
}

async fn accept(listener: TcpListener, server: String, seen: Arc<Mutex<Vec<String>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (server, seen) = (server.clone(), Arc::clone(&seen));
        connections.spawn(async move {
            let mut stream = stream;
            let greeting = match greet(&mut stream).await {
                Ok(greeting) => greeting,
                Err(error) => format!("{error:#}"),
            };
            seen.lock().unwrap().push(greeting);
            let mut onwards = TcpStream::connect(server).await.unwrap();
            // Ends when either side ends.
            let _ = copy_bidirectional(&mut stream, &mut onwards).await;
        });
    }
}

/// Reads the request of a connection; returns the protocol, the target and the user in words.
async fn greet(stream: &mut TcpStream) -> anyhow::Result<String> {
    let first = stream.read_u8().await?;
    if first == 5 { socks(stream).await } else { connect(first, stream).await }
}

async fn connect(first: u8, stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).context(head.clone())?;
    let header = head.lines().find(|line| line.to_lowercase().starts_with("proxy-authorization: basic "));
    let encoded = header.and_then(|line| line.split(' ').nth(2)).context(head.clone())?;
    let user = String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded)?)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    Ok(format!("http {target} {}", user.replacen(':', " ", 1)))
}

async fn socks(stream: &mut TcpStream) -> anyhow::Result<String> {
    let methods = text(stream).await?;
    ensure!(methods.contains('\u{2}'), "no user and password: {methods:?}");
    stream.write_all(&[5, 2]).await?;
    ensure!(stream.read_u8().await? == 1, "a version of user and password");
    let (user, password) = (text(stream).await?, text(stream).await?);
    stream.write_all(&[1, 0]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    ensure!(request == [5, 1, 0, 1], "connect to an IPv4 address: {request:?}");
    let mut ip = [0; 4];
    stream.read_exact(&mut ip).await?;
    let port = stream.read_u16().await?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(format!("socks5 {}:{port} {user} {password}", std::net::Ipv4Addr::from(ip)))
}

/// Reads a text after its length.
async fn text(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut bytes = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut bytes).await?;
    Ok(String::from_utf8(bytes)?)
}
