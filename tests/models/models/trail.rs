//! Crumbs are published while followers walk, wait and leave.

use std::sync::Arc;

use crate::chain::{Follower, Link, Linked, append};
use crate::sync::watch;
use crate::{Deed, model, run_beside};

struct Crumb {
    number: usize,
    link: Link<Crumb>,
}

impl Crumb {
    fn new(number: usize) -> Arc<Self> {
        Arc::new(Self { number, link: Link::new() })
    }
}

impl Linked for Crumb {
    fn link(&self) -> &Link<Self> {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.link
    }
}

/// Publishes two crumbs.
fn publish_two(newest: Arc<watch::Sender<Arc<Crumb>>>) -> Deed {
    Box::new(move || {
        append(&newest, Crumb::new(1));
        append(&newest, Crumb::new(2));
    })
}

#[test]
fn a_follower_sees_every_crumb_once_in_order() {
    model(|| {
        let (newest, receiver) = watch::channel(Crumb::new(0));
        let (newest, mut trail) = (Arc::new(newest), Follower::new(receiver));
        // The writer stays, because its end would wake a sleeping follower.
        run_beside([publish_two(newest.clone())], async {
            assert_eq!(trail.next().await.map(|crumb| crumb.number), Some(1));
            assert_eq!(trail.next().await.map(|crumb| crumb.number), Some(2));
        });
    });
}

#[test]
fn a_follower_that_skips_misses_nothing_after_that() {
    model(|| {
        let (newest, receiver) = watch::channel(Crumb::new(0));
        let mut trail = Follower::new(receiver);
        // The writer ends with its last crumb.
        run_beside([publish_two(Arc::new(newest))], async {
            let newest = trail.newest().number;
            let from = trail.skip_to_newest().number;
            assert!(from >= newest && trail.position().number == from);
            for number in from + 1..=2 {
                assert_eq!(trail.next().await.map(|crumb| crumb.number), Some(number));
            }
            assert!(trail.next().await.is_none());
        });
    });
}
