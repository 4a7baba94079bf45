//! The seam between caches and doors for agents, and the parts that every door needs whatever protocol it speaks: the changes
//! between two versions of a map, several crumbs as one list, key filters, the pace of rounds, the status of clients.
//!
//! A door is [`Listening`] first; while it serves, the daemon, rebalancing and status know it as an [`Outlet`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use self::peers::Peers;
use self::status::ClientStatus;
use crate::tasks::{TaskFailure, TaskRegistry};

pub mod difference;
pub mod filter;
pub mod join;
pub mod pace;
pub mod peers;
pub mod status;

/// A door for agents: steers it, and looks into it. All calls return at once.
pub trait Outlet: Send + Sync + fmt::Debug {
    /// Stops listening and ends all connections one after the other, spread over the shutdown time. [`Listening::run`] returns
    /// when the last one has ended. A second call changes nothing.
    fn drain(&self);

    /// Ends all connections at once.
    fn stop(&self);

    /// Connections now, in handshake or later, without those that are about to end.
    fn connections(&self) -> usize;

    /// The status of every connection, oldest first.
    fn clients(&self) -> Vec<ClientStatus>;

    /// Sets the number of connections that may stay. Those above it are closed one by one, the newest first.
    fn set_max_connections(&self, max: usize);

    /// Sets the servers that clients are sent to when they have to leave.
    fn set_peers(&self, peers: Peers);
}

/// A door that listens. Agents may connect, and are served as soon as it runs.
pub trait Listening: Send {
    /// Its name among the reporters of health.
    fn name(&self) -> &'static str;

    /// The address where it listens, with the port that the system chose.
    ///
    /// # Errors
    /// The system's own words.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The door, to steer it while it serves.
    fn outlet(&self) -> Arc<dyn Outlet>;

    /// Its tasks, for people to look at.
    fn tasks(&self) -> TaskRegistry;

    /// Serves until a drain is complete or the door is stopped. `alive` is called every few seconds while it gets on.
    ///
    /// The future ends with the failure of a task on which agents depend, after all connections were ended: the caller should end
    /// the process.
    fn run(self: Box<Self>, alive: Box<dyn Fn() + Send>) -> BoxFuture<'static, Result<(), TaskFailure>>;
}
