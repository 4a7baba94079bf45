//! One client in twenty does not read at all, and one in twenty reads at 64 KB/s, while everything changes.

use anyhow::ensure;

use super::World;
use super::readers::Reader;
use super::throttle::{Pace, Throttle};

const HONEST: usize = 90;
const SLOW: usize = 5;
const STUCK: usize = 5;
/// What a slow reader takes a second. Each of its messages leaves later than the one before came.
const SLOW_RATE: f64 = 64_000.0;
/// More than the server's hello, far less than a snapshot.
const HELLO_BYTES: usize = 4 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_cut_who_reads_slowly_catches_up_and_nobody_else_notices() -> anyhow::Result<()> {
    let mut world = World::new(&[("ServerWriteTimeoutSecs", "3"), ("ServerSendBufferBytes", "16384")]).await?;
    let server = world.daemon.sync;
    let start = |name, count, pace| -> anyhow::Result<Vec<Reader>> {
        (0..count).map(|n| Reader::start_with(server, name, n, Throttle(pace))).collect()
    };
    let honest: Vec<Reader> = (0..HONEST).map(|n| Reader::start(server, "honest", n)).collect::<Result<_, _>>()?;
    let slow = start("slow", SLOW, Pace::Slow(SLOW_RATE))?;
    let _stuck = start("stuck", STUCK, Pace::StuckAfter(HELLO_BYTES))?;

    world
        .churn_until("the stuck are cut and the slow have fallen off the history", |daemon| {
            let catch_ups = daemon.metric("bulrush_catch_ups_total{syncer=\"felix\"}").unwrap_or_default();
            World::closed(daemon, "write-timeout") >= STUCK as f64 && catch_ups >= SLOW as f64
        })
        .await?;
    world.all_end_right(&honest).await?;
    world.all_end_right(&slow).await?;

    let lost: Vec<String> = honest.iter().chain(&slow).filter_map(Reader::lost).collect();
    ensure!(lost.is_empty(), "whoever takes anything stays: {lost:?}\n{}", world.daemon.log());
    let log = world.daemon.log();
    for n in 0..STUCK {
        let agent = format!("agent=\"stuck-{n}\"");
        let cut = |line: &str| line.contains(&agent) && line.contains("took not one byte within the write timeout");
        ensure!(log.lines().any(cut), "nothing is said of stuck-{n}:\n{log}");
    }
    world.memory_was_bounded((HONEST + SLOW + STUCK) as u64)
}
