//! Follows a client until it is in sync: for the commands that print data once.
//!
//! A server that is not there yet is waited for. When a connection is lost, it is tried only a few times to connect again: a
//! port-forward that has died does not come back, and its user has to know. A server that does not run the syncer is not asked
//! again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::model::{Key, SyncStatus, Update};
use crate::syncclient::{Client, Error, SyncEvent, apply};
use crate::syncproto::native::NO_SUCH_SYNCER;

/// Number of tries to connect again after a connection was lost; with their pauses they take some two seconds.
const TRIES_AFTER_LOSS: u32 = 5;

/// A connection that was lost, and the tries to come back.
struct Loss {
    how: String,
    tries: u32,
}

/// All keys once in sync, or else the reason why there is nothing to print. `servers` is the number of addresses that were given: each
/// of them may lack the syncer.
pub(super) async fn collect(
    client: &mut Client,
    servers: usize,
    timeout: Duration,
) -> Result<BTreeMap<Key, Update>, String> {
    let deadline = Instant::now() + timeout;
    let mut content = BTreeMap::new();
    let mut progress = "no server has answered yet".to_owned();
    let mut connected = false;
    let mut loss: Option<Loss> = None;
    let mut lacking = 0;
    while let Ok(Some(event)) = timeout_at(deadline, client.next()).await {
        match event {
            SyncEvent::Updates(updates) => apply(&mut content, updates),
            SyncEvent::Status(SyncStatus::InSync) => return Ok(content),
            SyncEvent::Status(status) => {
                progress = format!("status is {status}");
            }
            SyncEvent::Connected { address, .. } => {
                progress = format!("connected to {address}");
                (connected, loss) = (true, None);
            }
            SyncEvent::Disconnected { address, reason, .. } => {
                progress = format!("no connection to {address}: {reason}");
                if lacks_syncer(&reason) {
                    lacking += 1;
                    if lacking >= servers.max(1) {
                        return Err(progress);
                    }
                }
                if std::mem::take(&mut connected) {
                    let how = format!("lost the connection to {address} with {} keys so far: {reason}", content.len());
                    loss.get_or_insert(Loss { how, tries: 0 });
                }
                if let Some(Loss { how, tries }) = &mut loss {
                    *tries += 1;
                    if *tries > TRIES_AFTER_LOSS {
                        return Err(format!(
                            "{how}; {TRIES_AFTER_LOSS} tries to come back failed, the last: {progress}; if it is forwarded, \
                             look at the forwarder (kubectl port-forward) and at the pod behind it"
                        ));
                    }
                }
            }
            SyncEvent::Progress(_) => {}
        }
    }
    if !content.is_empty() {
        progress = format!("{progress}, {} keys so far", content.len());
    }
    Err(format!("not in sync after {} s: {progress}", timeout.as_secs_f64()))
}

/// Whether a server has said that it does not run the syncer.
fn lacks_syncer(reason: &Error) -> bool {
    let (Error::Refused { reason, .. } | Error::Goodbye { reason, .. }) = reason else { return false };
    reason.starts_with(NO_SUCH_SYNCER)
}
