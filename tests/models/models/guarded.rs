//! A feed publishes changes and serves a client as a pump, while the client's own task is at work on it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use loom::sync::Mutex;

use crate::calls::{Call, Calls};
use crate::guarded::{Guarded, Rests, Visit};
use crate::{Deed, model, settle_beside};

/// Number of changes in the ring.
type Ring = Arc<Mutex<usize>>;

/// A streaming client.
struct Client {
    ring: Ring,
    /// Number of changes it has.
    has: usize,
    /// Whether something is queued for a full socket.
    queued: bool,
    rests: bool,
}

impl Rests for Client {
    fn look_again(&mut self) {
        self.rests = false;
    }
}

impl Client {
    fn lacks(&self) -> usize {
        *self.ring.lock().unwrap() - self.has
    }

    /// The work of the client's task. Returns whether something is queued.
    fn refill(&mut self, fills_socket: bool) -> bool {
        // The socket has room again.
        self.queued = false;
        if !self.rests {
            let lacks = self.lacks();
            self.has += lacks;
            self.queued = lacks > 0 && fills_socket;
            self.rests = true;
        }
        self.queued
    }

    /// The work of the pump.
    fn visit(&mut self, pump: Pump) -> Visit {
        if self.queued {
            return Visit::Busy;
        }
        let lacks = self.lacks();
        let given = lacks.min(pump.most);
        self.has += given;
        if given > 0 && pump.fills_socket {
            self.queued = true;
            return Visit::Left;
        }
        if given < lacks && !pump.leaves_the_rest { Visit::Left } else { Visit::Done }
    }
}

#[derive(Clone, Copy)]
struct Pump {
    /// Most changes that fit into a pass.
    most: usize,
    /// The socket has no room for all bytes.
    fills_socket: bool,
    /// The old code: a client after a full pass counted as up to date.
    leaves_the_rest: bool,
}

const GIVES_ALL: Pump = Pump { most: usize::MAX, fills_socket: false, leaves_the_rest: false };

/// Changes come in rounds of these sizes, and the pump visits the client in each round. In the end it has all changes.
fn rounds_reach_the_client(rounds: &'static [usize], pump: Pump) {
    model(move || {
        let (ring, calls) = (Ring::default(), Arc::new(Calls::new()));
        calls.establish();
        let client = Client { ring: ring.clone(), has: 0, queued: false, rests: false };
        let guarded = Arc::new(Guarded::new(client));
        let feed: Deed = {
            let (calls, guarded) = (calls.clone(), guarded.clone());
            Box::new(move || {
                for changes in rounds {
                    *ring.lock().unwrap() += changes;
                    guarded.visit(&calls, |client| client.visit(pump));
                }
            })
        };
        let task = poll_fn(|cx| {
            loop {
                let queued = guarded.with(|client| client.refill(pump.fills_socket));
                let polled = guarded.with(|client| {
                    let polled = calls.poll_call(cx);
                    if polled == Poll::Ready(Call::Look) {
                        client.look_again();
                    }
                    polled
                });
                if polled != Ok(Some(Poll::Ready(Call::Look))) && queued == Ok(Some(false)) {
                    return Poll::<()>::Pending;
                }
            }
        });
        assert!(settle_beside([feed], task).is_none());
        let left = guarded.try_with(|client| (client.lacks(), client.queued));
        assert_eq!(left, Ok(Some((0, false))), "the client was left behind");
        assert!(!calls.is_nudged());
        assert!(guarded.take().is_some() && guarded.take().is_none());
    });
}

#[test]
fn a_client_gets_every_round() {
    rounds_reach_the_client(&[1, 1], GIVES_ALL);
}

#[test]
fn a_client_gets_bytes_that_did_not_fit_and_changes_that_came_meanwhile() {
    rounds_reach_the_client(&[1, 1], Pump { fills_socket: true, ..GIVES_ALL });
}

#[test]
fn a_client_gets_the_end_of_a_burst_larger_than_a_pass() {
    rounds_reach_the_client(&[2], Pump { most: 1, ..GIVES_ALL });
}

#[test]
#[should_panic(expected = "the client was left behind")]
fn the_old_pass_left_a_client_behind_in_a_burst() {
    rounds_reach_the_client(&[2], Pump { most: 1, leaves_the_rest: true, ..GIVES_ALL });
}
