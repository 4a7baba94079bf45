//! Writes numbered changes to the datastore at a steady rate.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::probe::{Table, Written};
use crate::progress::Step;
use crate::store::Store;

const UNPOISONED: &str = "no panic while the table of writes is locked";

/// Result of the writes.
pub(crate) struct Outcome {
    /// Time until each write was answered, in milliseconds, in order.
    pub(crate) took_ms: Vec<f64>,
}

/// Prepares the table for `changes` new changes.
pub(crate) fn prepare(store: &Store, written: &Written, changes: usize) {
    let first = store.take_numbers(changes);
    *written.lock().expect(UNPOISONED) = Table { first, at: vec![None; changes] };
}

/// Writes the changes of the table. The clock of a change starts with its write.
pub(crate) async fn write(store: &Store, written: &Written, rate: u32) -> anyhow::Result<Outcome> {
    let (first, changes) = {
        let table = written.lock().expect(UNPOISONED);
        (table.first, table.at.len())
    };
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
    // Missed ticks are made up for, so that the rate holds.
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut writes = JoinSet::new();
    let mut took_ms = Vec::with_capacity(changes);
    let mut step = Step::begin(format!("writing {changes} changes, {rate} a second"));
    for i in 0..changes {
        tick.tick().await;
        let change = store.change(first + i)?;
        let began = Instant::now();
        written.lock().expect(UNPOISONED).at[i] = Some(began);
        writes.spawn(async move { change.await.map(|()| began.elapsed().as_secs_f64() * 1e3) });
        while let Some(write) = writes.try_join_next() {
            took_ms.push(write??);
        }
        step.at(i + 1, changes);
    }
    while let Some(write) = writes.join_next().await {
        took_ms.push(write??);
    }
    step.done();
    took_ms.sort_by(f64::total_cmp);
    Ok(Outcome { took_ms })
}
