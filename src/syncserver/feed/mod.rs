//! Encodes each change once for all clients with the same feed: history, snapshots, and the pumps that write to clients
//! at rest.
//!
//! ```text
//!  cache ─crumbs─► follow ─► history (ring of segments) ─► pump: writes to all clients that rest at a mark
//!                    │              ├─ other clients: their tasks take the segments after their mark
//!                    │              └─ mark forgotten: difference of two maps, encoded once per mark
//!                    ├─ large publication: skipped in the ring, shared message by message
//!                    └─ snapshot, shared by clients that arrive together
//! ```

pub(crate) mod catch_up;
pub(crate) mod follow;
pub(crate) mod history;
pub(crate) mod inspection;
pub(crate) mod large;
pub(crate) mod made;
pub(crate) mod newest;
pub(crate) mod pieces;
pub(crate) mod pinned;
pub(crate) mod pump;
pub(crate) mod pump_calls;
pub(crate) mod registry;
pub(crate) mod ring;
pub(crate) mod room;
pub(crate) mod rounds;
pub(crate) mod shared;
pub(crate) mod snapshot;
