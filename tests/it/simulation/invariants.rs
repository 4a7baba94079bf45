//! Invariants at every event of every agent, as functions over the [`Book`]. Each returns in words how it is broken.

use std::time::Duration;

use bulrush::datastore::memory::MemoryStore;
use bulrush::model::{Key, SyncStatus, Update, UpdateType};
use bulrush::snapcache::Map;

use super::ledger::{Agent, Book, Note, State};
use super::script;
use super::server::PACE_MAX;

/// Longest lag of a feed behind its cache: the server's pace, and two ticks of the simulation.
const FEED_LAG: Duration = PACE_MAX.saturating_add(Duration::from_millis(20));

/// Most differences that a failure names; the log has the rest.
const MAX_DIFFERENCES: usize = 5;

fn wanted<'a>(map: &'a Map, prefixes: &'a [String]) -> impl Iterator<Item = (&'a Key, &'a [u8])> {
    map.iter()
        .filter(|(key, _)| prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(prefix.as_str())))
        .map(|(key, update)| (key, update.value.as_ref().map_or(&[][..], |value| &value.bytes[..])))
}

fn equal(state: &State, map: &Map, prefixes: &[String]) -> bool {
    if prefixes.is_empty() && state.len() != map.len() {
        return false;
    }
    state.iter().map(|(key, value)| (key, &value[..])).eq(wanted(map, prefixes))
}

/// The keys in which a state and a map differ, for people.
fn differences(state: &State, map: &Map, prefixes: &[String]) -> String {
    let text = |bytes: &[u8]| {
        script::version(bytes)
            .map_or_else(|| String::from_utf8_lossy(bytes).into_owned(), |version| format!("v{version}"))
    };
    let mut words = Vec::new();
    for (key, value) in wanted(map, prefixes) {
        match state.get(key) {
            None => words.push(format!("{key} is missing")),
            Some(held) if held[..] != *value => {
                words.push(format!("{key} is {} instead of {}", text(held), text(value)))
            }
            Some(_) => {}
        }
    }
    let there: std::collections::BTreeSet<&Key> = wanted(map, prefixes).map(|(key, _)| key).collect();
    words.extend(state.keys().filter(|key| !there.contains(key)).map(|key| format!("{key} should not be there")));
    let more = words.len().saturating_sub(MAX_DIFFERENCES);
    words.truncate(MAX_DIFFERENCES);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join("; ")
}

/// (1) In the end an agent's state equals the newest map, and that equals the datastore's content.
pub(super) fn invariant_final_state(book: &Book, agent: &Agent, store: &MemoryStore) -> Result<(), String> {
    if agent.status != SyncStatus::InSync {
        return Err(format!("the status in the end is {}", agent.status));
    }
    let note = book.present(agent.server, agent.syncer).last().ok_or("the server has no cache in the end")?;
    if note.crumb.status != SyncStatus::InSync {
        return Err(format!("the cache's status in the end is {}", note.crumb.status));
    }
    if !equal(&agent.state, note.map(agent), &agent.prefixes) {
        return Err(format!("differs from the cache: {}", differences(&agent.state, note.map(agent), &agent.prefixes)));
    }
    let admits = |key: &str| agent.prefixes.is_empty() || agent.prefixes.iter().any(|prefix| key.starts_with(prefix));
    let expected: Vec<(Key, u64)> =
        script::content(store, agent.syncer, agent.line).into_iter().filter(|(key, _)| admits(key)).collect();
    let mut held: Vec<(Key, u64)> =
        agent.state.iter().filter_map(|(key, value)| Some((script::modern(key), script::version(value)?))).collect();
    held.sort();
    if held != expected {
        return Err(format!("holds {held:?}, the datastore has {expected:?}"));
    }
    Ok(())
}

/// The lives of a server, the newest first.
fn lives(notes: &[Note]) -> impl Iterator<Item = &[Note]> {
    notes.chunk_by(|one, next| one.generation == next.generation).rev()
}

/// Earliest time at which a crumb that is still good for an agent may have been replaced.
fn horizon(agent: &Agent) -> Duration {
    agent.since.saturating_sub(FEED_LAG)
}

/// The crumbs of one life that had not been replaced at the horizon, the newest first.
fn recent(life: &[Note], horizon: Duration) -> impl Iterator<Item = &Note> {
    // A crumb is replaced by the one after it. The next life of a server replaces nothing: its first crumbs are empty.
    let first = life.get(1..).map_or(0, |later| later.partition_point(|next| next.at < horizon));
    life[first..].iter().rev()
}

/// (2) In-sync is honest: an agent with that status holds a map that a cache of its server had while in sync, and that had not
/// been replaced when the agent asked for its connection.
pub(super) fn invariant_in_sync_is_honest(book: &Book, agent: &Agent) -> Result<(), String> {
    let notes = book.notes(agent.server, agent.syncer);
    let fits =
        |note: &Note| note.crumb.status == SyncStatus::InSync && equal(&agent.state, note.map(agent), &agent.prefixes);
    if lives(notes).any(|life| recent(life, horizon(agent)).any(fits)) {
        return Ok(());
    }
    let newest = notes.last().map_or_else(String::new, |note| {
        format!(
            "; against crumb {} of life {} of {} ({}): {}",
            note.crumb.sequence,
            note.generation,
            agent.server,
            note.crumb.status,
            differences(&agent.state, note.map(agent), &agent.prefixes)
        )
    });
    let too_old = notes.iter().any(fits);
    let how = if too_old { "is older than the connection" } else { "is that of no cache in sync" };
    Err(format!("is told in-sync, but its content {how}{newest}"))
}

/// (2) A native agent at a crumb holds that crumb's map, at every crumb.
pub(super) fn invariant_state_is_the_map_at(book: &Book, agent: &Agent, sequence: u64) -> Result<(), String> {
    let mut nearest = None;
    for life in lives(book.notes(agent.server, agent.syncer)) {
        let Ok(index) = life.binary_search_by_key(&sequence, |note| note.crumb.sequence) else { continue };
        if equal(&agent.state, life[index].map(agent), &agent.prefixes) {
            return Ok(());
        }
        nearest.get_or_insert(&life[index]);
    }
    Err(nearest.map_or_else(
        || format!("is at crumb {sequence}, which {} has never published", agent.server),
        |note| format!("at crumb {sequence}: {}", differences(&agent.state, note.map(agent), &agent.prefixes)),
    ))
}

/// (2) A native agent that receives a status is at that status's crumb.
pub(super) fn invariant_status_follows_its_data(
    position: Option<u64>,
    status: SyncStatus,
    seq: u64,
) -> Result<(), String> {
    match position {
        Some(position) if position >= seq => Ok(()),
        // Before and during a snapshot only in-sync would be wrong.
        _ if status != SyncStatus::InSync => Ok(()),
        _ => Err(format!("is told {status} as of crumb {seq}, but stands at {position:?}")),
    }
}

/// (3) Ranges of crumbs follow each other without a gap.
pub(super) fn invariant_no_gap(position: u64, after: u64, upto: u64) -> Result<(), String> {
    if after == position && upto >= after {
        Ok(())
    } else {
        Err(format!("stands at crumb {position} and is given {after}..{upto}"))
    }
}

/// Cause of a deletion at an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// The datastore deleted the key after the agent's version.
    Real,
    /// The agent has the key from another server, and this server does not know it yet: its cache is in sync with an older state of
    /// the datastore. The key comes back once this server has caught up.
    StepBack,
    /// No cause: the datastore has had the key since this version.
    Spurious(u64),
}

/// The cause of a key's deletion at an agent.
pub(super) fn deletion(book: &Book, agent: &Agent, key: &Key) -> Deletion {
    let Some(held) = agent.state.get(key).and_then(|value| script::version(value)) else { return Deletion::Real };
    let changes = book.truth.get(&script::modern(key)).map_or(&[][..], Vec::as_slice);
    if changes.iter().rev().any(|change| !change.present && change.version > held) {
        return Deletion::Real;
    }
    let lacks = |note: &Note| note.crumb.status == SyncStatus::InSync && !note.map(agent).contains_key(key);
    let of_another = book.alive.len() > 1 && !agent.seen.contains_key(key);
    if of_another && recent(book.present(agent.server, agent.syncer), horizon(agent)).any(lacks) {
        Deletion::StepBack
    } else {
        Deletion::Spurious(held)
    }
}

/// (4) A key is deleted at an agent only if the datastore deleted it after the agent's version, or if the agent has
/// moved to a server that is behind the server that sent the key.
pub(super) fn invariant_delete_is_real(deletion: Deletion, key: &Key) -> Result<(), String> {
    match deletion {
        Deletion::Real | Deletion::StepBack => Ok(()),
        Deletion::Spurious(held) => {
            Err(format!("loses {key}, which the datastore has had all the time since version {held}"))
        }
    }
}

/// (5) Within a connection, versions of a key never go back, and a deleted key comes back only with a newer version. And every
/// sent version was in the datastore.
pub(super) fn invariant_no_step_back(
    book: &Book,
    agent: &Agent,
    key: &Key,
    version: Option<u64>,
) -> Result<(), String> {
    let Some(version) = version else { return Ok(()) };
    let changes = book.truth.get(&script::modern(key)).map_or(&[][..], Vec::as_slice);
    let put = changes.binary_search_by_key(&version, |change| change.version).is_ok_and(|index| changes[index].present);
    if !put {
        return Err(format!("is given version {version} of {key}, which never was"));
    }
    let Some(&seen) = agent.seen.get(key) else { return Ok(()) };
    if version < seen {
        return Err(format!("is given version {version} of {key} after {seen}"));
    }
    if version == seen && !agent.state.contains_key(key) {
        return Err(format!("is given version {version} of {key} again after its deletion"));
    }
    Ok(())
}

/// The library's update types are right for its consumer.
pub(super) fn invariant_update_type_fits(agent: &Agent, update: &Update) -> Result<(), String> {
    let held = agent.state.get(&update.key);
    let fits = match (&update.value, update.update_type) {
        (Some(_), UpdateType::New) => held.is_none(),
        (Some(value), UpdateType::Updated) => held.is_some_and(|held| *held != value.bytes),
        (None, UpdateType::Deleted | UpdateType::Updated) => held.is_some(),
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("is given {update:?} while it holds {held:?}")) }
}

#[cfg(test)]
mod tests;
