//! Pings, pongs and write progress.

use std::time::Duration;

use tokio::time::Instant;

use super::harness::*;
use crate::model::SyncStatus;
use crate::outlet::Outlet as _;
use crate::syncserver::Config;

#[tokio::test(start_paused = true)]
async fn pings_come_at_their_interval_and_answers_keep_the_connection() {
    for speech in Speech::all() {
        let mut world = World::new(config());
        world.status(SyncStatus::InSync);
        let mut client = world.connect(speech).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        let mut last = Instant::now();
        for _ in 0..20 {
            assert!(matches!(client.next().await, Some(Heard::Ping(_))));
            let waited = last.elapsed();
            assert!(waited >= Duration::from_secs(9) && waited <= Duration::from_secs(11), "{waited:?}");
            last = Instant::now();
        }
        assert_eq!(world.handle.connections(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_is_cut_after_the_pong_timeout() {
    let short =
        Config { ping_interval: Duration::from_millis(100), pong_timeout: Duration::from_millis(500), ..config() };
    for speech in Speech::all() {
        let mut world = World::new(short.clone());
        world.status(SyncStatus::InSync);
        let mut client = world.connect(speech).await;
        client.pongs = false;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        let began = Instant::now();
        let mut pings = 0;
        while let Some(heard) = client.next().await {
            pings += usize::from(matches!(heard, Heard::Ping(_)));
        }
        let took = began.elapsed();
        assert!(pings >= 3, "{pings} pings");
        assert!(took >= Duration::from_millis(495) && took < Duration::from_secs(1), "{took:?}");
        eventually("counted", || world.closed("pong-timeout") == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_stays_even_with_short_times() {
    let short =
        Config { ping_interval: Duration::from_millis(100), pong_timeout: Duration::from_millis(500), ..config() };
    let mut world = World::new(short);
    let mut client = world.connect(Speech::GobSnappy).await;
    let began = Instant::now();
    client.until("some seconds", |_| began.elapsed() > Duration::from_secs(5)).await;
    world.put(&[("/a", "1")]);
    client.until("the key", |client| client.map.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn garbage_that_looks_like_the_start_of_a_message_runs_into_the_pong_timeout() {
    let short =
        Config { ping_interval: Duration::from_millis(100), pong_timeout: Duration::from_millis(500), ..config() };
    let world = World::new(short);
    let mut client = world.connect(Speech::GobPlain).await;
    client.pongs = false;
    client.send(b"GET / HTTP/1.1\r\n\r\n").await;
    let began = Instant::now();
    client.until_closed().await;
    assert!(began.elapsed() < Duration::from_secs(1));
    eventually("counted", || world.closed("pong-timeout") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_after_the_write_timeout() {
    let short = Config { write_timeout: Duration::from_millis(250), ..config() };
    let big = "x".repeat(10_000);
    for speech in Speech::all() {
        let mut world = World::new(short.clone());
        // Incompressible enough: each value differs in length and the pipe is small.
        let values: Vec<(String, String)> =
            (0..1000).map(|n| (format!("/k/{n}"), format!("{n}{}", &big[n..]))).collect();
        world.put(&values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
        let mut client = Client::new(world.dial(2048).await, speech.clone());
        client.hello("felix").await;
        client
            .until("the first part of the snapshot", |client| {
                speech == Speech::GobPlain || client.status != SyncStatus::WaitForDatastore || client.updates == 0
            })
            .await;
        if speech == Speech::GobSnappy {
            client.until("the restart", |client| client.streaming).await;
        }
        let began = Instant::now();
        eventually("it is cut", || world.closed("write-timeout") == 1).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{speech:?}: {:?}", began.elapsed());
        assert_eq!(world.server_metrics.connections_active.get(), 0, "{speech:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_not_cut_while_it_takes_something() {
    use tokio::io::AsyncReadExt;
    let short = Config {
        write_timeout: Duration::from_secs(2),
        pong_timeout: Duration::from_secs(3),
        ping_interval: Duration::from_secs(1),
        ..config()
    };
    let mut world = World::new(short);
    let value = "x".repeat(1000);
    let keys: Vec<String> = (0..200).map(|n| format!("/k/{n}")).collect();
    world.put(&keys.iter().map(|key| (key.as_str(), value.as_str())).collect::<Vec<_>>());
    let mut client = Client::new(world.dial(1024).await, Speech::GobPlain);
    client.hello("felix").await;
    let mut total = 0;
    let mut buffer = [0; 1024];
    // 200 kB at 6 kB/s, far longer than the pong time-out: nothing is owed while the snapshot is on its way.
    while total < 190_000 {
        tokio::time::sleep(Duration::from_secs(1) / 6).await;
        total += client.io.read(&mut buffer).await.expect("still connected");
        assert_eq!(world.handle.connections(), 1, "cut after {total} bytes");
    }
}
