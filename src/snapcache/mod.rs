//! History as a chain: the newest content of a pipeline, and for each follower every step since its own position.
//!
//! A cache has one writer ([`SnapCache`]) and any number of readers ([`Reader`], [`Trail`]). The writer keeps a
//! persistent ordered map. For each batch of updates it makes a new version of the map and publishes a [`Breadcrumb`]:
//! the version, the changes, the status. Crumbs are linked oldest to newest, so a follower that knows one crumb can
//! walk to the newest at its own pace, and a new follower starts from the newest crumb's map.
//!
//! Why not a broadcast channel: agents may never lose a change, so a bounded channel would have to block the writer for
//! the slowest of them, and an unbounded one would keep a queue per agent. Here a slow follower costs only the memory
//! that it pins.
//!
//! Invariants:
//! - a status is published with the last update of the batches before it, never earlier;
//! - a crumb is published only if something changed: a value, a key's presence, the status;
//! - an update whose value and time to live equal the present ones is dropped, whatever its type: nothing changed for
//!   an agent;
//! - readers never lock out the writer: publishing swaps one pointer.

mod breadcrumb;
mod cache;
mod chain;
mod mirror;
mod stage;

pub use breadcrumb::{Aside, Breadcrumb, KindSequences, Map, Trail};
pub use cache::{Reader, SnapCache};
pub use mirror::Mirror;
pub use stage::{CacheHealth, HEARTBEAT, run};

#[cfg(test)]
mod tests;
