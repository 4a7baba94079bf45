//! Agents that use the client library, in all its protocols.

use std::convert::Infallible;
use std::time::Duration;

use bulrush::syncclient::{Client, Error, Protocol, SyncEvent, Timeouts};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::timeout;

use super::follower::Follower;
use super::later;
use super::lines::{PORT, Plug};
use super::roles::Role;
use super::run::TROUBLE;

/// Time-outs: short, so that a dead connection does not last a whole run, but well above the server's ping interval.
pub(super) const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_millis(800), read: Duration::from_millis(1500), write: Duration::from_secs(1) };

/// Longest absence of an agent that comes and goes.
pub(super) const MAX_ABSENCE: Duration = Duration::from_secs(1);

/// Time until an agent that comes and goes leaves next. `None`: it stays, or trouble is over.
pub(super) fn stay(role: &Role, rng: &mut SmallRng) -> Option<Duration> {
    let stay = Duration::from_millis(rng.random_range(200..4000));
    let now = turmoil::sim_elapsed().unwrap_or_default();
    (role.comes_and_goes && now + stay < TROUBLE).then_some(stay)
}

/// Follows until the simulation ends.
pub(super) async fn follow(
    follower: Follower,
    role: Role,
    protocol: Protocol,
    plug: Plug,
    seed: u64,
) -> turmoil::Result {
    let mut rng = SmallRng::seed_from_u64(seed);
    loop {
        let plug = plug.afresh();
        let mut client = Client::builder(role.servers.iter().map(|server| format!("{server}:{PORT}")))
            .agent(role.name)
            .syncer(role.syncer)
            .prefixes(role.prefixes.iter().cloned())
            .protocol(protocol.clone())
            .dialect(role.line)
            .timeouts(TIMEOUTS)
            .seed(rng.random())
            .start_with(plug.clone())?;
        let listening = listen(&follower, &role, &mut client, &plug);
        match stay(&role, &mut rng) {
            None => listening.await.map(|never| match never {})?,
            Some(stay) => {
                if let Ok(gave_up) = timeout(stay, listening).await {
                    gave_up.map(|never| match never {})?;
                }
            }
        }
        follower.on_left();
        // Closed in order, or just dropped.
        if rng.random() {
            client.close().await;
        } else {
            drop(client);
        }
        later(rng.random_range(Duration::ZERO..MAX_ABSENCE)).await;
    }
}

async fn listen(
    follower: &Follower,
    role: &Role,
    client: &mut Client,
    plug: &Plug,
) -> Result<Infallible, &'static str> {
    // The library reports the end of every try before it reports the next try.
    let mut ended = 0;
    while let Some(event) = client.next().await {
        match event {
            SyncEvent::Connected { .. } => {
                let dial = plug.dial_number(ended).ok_or("the library is connected without having connected")?;
                follower.on_connected(dial, false);
            }
            SyncEvent::Status(status) => follower.on_status(status),
            SyncEvent::Updates(updates) => follower.on_updates(&updates),
            SyncEvent::Progress(_) => {}
            SyncEvent::Disconnected { reason, .. } => {
                ended += 1;
                follower.on_lost(&reason.to_string());
                match reason {
                    Error::Goodbye { .. } => follower.on_goodbye(),
                    Error::Protocol { .. } | Error::Refused { .. } => {
                        follower.judge(Err(format!("the library leaves an honest server: {reason}")));
                    }
                    _ => {}
                }
            }
        }
        if !role.pause.is_zero() {
            later(role.pause).await;
        }
    }
    Err("the library gave up")
}
