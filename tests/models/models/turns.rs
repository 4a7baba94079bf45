//! A feed brings changes and goes around as a pump, while the client's own task looks after it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use loom::sync::Mutex;

use crate::calls::{Call, Calls};
use crate::turns::{Rests, Turns, Visit};
use crate::{Deed, model, settle_beside};

/// How many changes there are in the ring.
type Ring = Arc<Mutex<usize>>;

/// A client that streams.
struct Client {
    ring: Ring,
    /// How many changes it was given.
    has: usize,
    /// Something is queued for a socket that was full.
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

    /// The work of its task. Returns whether something is queued.
    fn turn(&mut self, fills_socket: bool) -> bool {
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
    /// The socket has no room for all that it is given.
    fills_socket: bool,
    /// As it once was: a client that was given all that fits into a pass was taken for one that has all there is.
    leaves_the_rest: bool,
}

const GIVES_ALL: Pump = Pump { most: usize::MAX, fills_socket: false, leaves_the_rest: false };

/// Changes come in rounds of this number, each of which is taken to the client. In the end it has them all.
fn rounds_reach_the_client(rounds: &'static [usize], pump: Pump) {
    model(move || {
        let (ring, calls) = (Ring::default(), Arc::new(Calls::new()));
        calls.through();
        let client = Client { ring: ring.clone(), has: 0, queued: false, rests: false };
        let turns = Arc::new(Turns::new(client));
        let feed: Deed = {
            let (calls, turns) = (calls.clone(), turns.clone());
            Box::new(move || {
                for changes in rounds {
                    *ring.lock().unwrap() += changes;
                    turns.visit(&calls, |client| client.visit(pump));
                }
            })
        };
        let task = poll_fn(|cx| {
            loop {
                let queued = turns.with(|client| client.turn(pump.fills_socket));
                let polled = turns.with(|client| {
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
        let left = turns.try_with(|client| (client.lacks(), client.queued));
        assert_eq!(left, Ok(Some((0, false))), "the client was left behind");
        assert!(!calls.is_nudged());
        assert!(turns.take().is_some() && turns.take().is_none());
    });
}

#[test]
fn a_client_gets_every_round() {
    rounds_reach_the_client(&[1, 1], GIVES_ALL);
}

#[test]
fn a_client_gets_what_its_socket_had_no_room_for_and_what_came_meanwhile() {
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
