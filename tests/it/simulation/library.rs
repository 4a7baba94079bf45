//! Agents that use the client library, in all its protocols.

use std::time::Duration;

use bulrush::syncclient::{Client, Error, Protocol, SyncEvent, Timeouts};

use super::follower::Follower;
use super::lines::Plug;
use super::run::Role;

/// Short, so that a dead connection does not fill a whole run; well above the server's interval of pings.
pub(super) const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_millis(800), read: Duration::from_millis(1500), write: Duration::from_secs(1) };

/// Follows until the simulation ends.
pub(super) async fn follow(
    follower: Follower,
    role: Role,
    protocol: Protocol,
    plug: Plug,
    seed: u64,
) -> turmoil::Result {
    let mut client = Client::builder(["server:5473"])
        .agent(role.name)
        .syncer(role.syncer)
        .prefixes(role.prefixes)
        .protocol(protocol)
        .timeouts(TIMEOUTS)
        .seed(seed)
        .start_with(plug.clone())?;
    while let Some(event) = client.next().await {
        match event {
            SyncEvent::Connected { .. } => follower.on_connected(plug.asked_at(), false),
            SyncEvent::Status(status) => follower.on_status(status),
            SyncEvent::Updates(updates) => follower.on_updates(&updates),
            SyncEvent::Progress(_) => {}
            SyncEvent::Disconnected { reason, .. } => {
                follower.on_lost(&reason.to_string());
                if matches!(reason, Error::Protocol { .. } | Error::Refused { .. }) {
                    follower.judge(Err(format!("the library leaves an honest server: {reason}")));
                }
            }
        }
        if !role.pause.is_zero() {
            tokio::time::sleep(role.pause).await;
        }
    }
    Err("the library gave up".into())
}
