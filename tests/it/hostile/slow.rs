//! One client in twenty does not read at all, and one in twenty reads at 64 KB/s, while everything changes.

use anyhow::{Context as _, ensure};
use bulrush::status::Snapshot;

use super::readers::Reader;
use super::throttle::{Pace, Throttle};
use super::{MAX_LAG_BYTES, PER_CONNECTION, WIRES, World};
use crate::daemon::{Daemon, http_get};

const HONEST: usize = 90;
const SLOW: usize = 5;
const STUCK: usize = 5;
/// Bytes that a slow reader reads per second.
const SLOW_RATE: f64 = 64_000.0;
/// More than the server's hello, far less than a snapshot.
const HELLO_BYTES: usize = 4 << 10;
/// Memory that slow and stuck readers may cost beside their bounds: versions of the map that they pin, and the allocator's overhead.
/// If the server kept the missing data for each reader, it would be five times as much.
const MARGIN: u64 = 4 << 20;

/// Number of stuck clients in the status, which lists as many clients as there are slow and stuck ones: both are further behind
/// than honest clients, but until they are cut, stuck clients need not be further behind than slow ones.
fn listed(daemon: &Daemon) -> usize {
    let page = http_get(daemon.health, &format!("/status?clients={}", SLOW + STUCK)).unwrap_or_default().1;
    let status: Snapshot = serde_json::from_str(&page).unwrap_or_default();
    status.clients.iter().filter(|client| client.agent.starts_with("stuck-")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_readers_are_cut_slow_readers_catch_up_and_others_are_not_disturbed() -> anyhow::Result<()> {
    let options = [("ServerWriteTimeoutSecs", "5"), ("ServerSendBufferBytes", "16384")];
    let Some(mut world) = World::new(&options).await? else { return Ok(()) };
    let server = world.daemon.sync;
    let start = |name, count, pace| -> anyhow::Result<Vec<Reader>> {
        (0..count).map(|n| Reader::start_with(server, name, n, Throttle(pace))).collect()
    };
    let honest: Vec<Reader> = (0..HONEST).map(|n| Reader::start(server, "honest", n)).collect::<Result<_, _>>()?;
    // Memory with honest readers only, once the history is full.
    world
        .churn_until("the history is full", |daemon| {
            daemon.metric("bulrush_feed_bytes{syncer=\"felix\"}").is_ok_and(|held| held >= MAX_LAG_BYTES as f64)
        })
        .await?;
    let before = world.peak;

    let slow = start("slow", SLOW, Pace::Slow(SLOW_RATE))?;
    let _stuck = start("stuck", STUCK, Pace::StuckAfter(HELLO_BYTES))?;
    let (mut shown, mut cut, mut catch_ups) = (0, 0.0, 0.0);
    let done = world
        .churn_until("stuck clients are listed and cut, and slow ones have fallen behind the history", |daemon| {
            shown = listed(daemon).max(shown);
            cut = World::closed(daemon, "write-timeout");
            catch_ups = daemon.metric("bulrush_catch_ups_total{syncer=\"felix\"}").unwrap_or_default();
            shown == STUCK && cut >= STUCK as f64 && catch_ups >= SLOW as f64
        })
        .await;
    done.with_context(|| format!("{shown} stuck were listed, {cut} cut; {catch_ups} catch-ups"))?;
    world.all_end_right(&honest).await?;
    world.all_end_right(&slow).await?;

    world.memory_was_bounded((HONEST + SLOW + STUCK) as u64)?;
    let grown = world.peak.saturating_sub(before);
    let bound = (SLOW + STUCK) as u64 * PER_CONNECTION + WIRES * MAX_LAG_BYTES + MARGIN;
    ensure!(grown <= bound, "memory grew by {grown} bytes, more than {bound}");

    let lost: Vec<String> = honest.iter().chain(&slow).filter_map(Reader::lost).collect();
    ensure!(lost.is_empty(), "readers stay, however slowly they read: {lost:?}\n{}", world.daemon.log());
    let log = world.daemon.log();
    for n in 0..STUCK {
        let agent = format!("agent=\"stuck-{n}\"");
        let cut = |line: &str| line.contains(&agent) && line.contains("took not one byte within the write timeout");
        ensure!(log.lines().any(cut), "the log does not name stuck-{n}:\n{log}");
    }
    Ok(())
}
