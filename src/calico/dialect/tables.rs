//! The tables of one syncer: one for each dialect in use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::View;
use crate::calico::release::Release;
use crate::model::SyncerName;
use crate::snapcache::{Mirror, Reader};
use crate::tasks::TaskRegistry;

/// Interval at which a table checks that it is still in use. Feeds outlive their last client by half a minute, so a
/// table need not.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Keys that are converted before other tasks get a turn: a few milliseconds.
const TURN: usize = 1000;

/// The tables of one syncer. The cache itself is the table for agents of Calico's development branch.
#[derive(Debug)]
pub struct Tables {
    syncer: SyncerName,
    cache: Reader,
    made: Mutex<BTreeMap<View, Arc<Mirror>>>,
    tasks: TaskRegistry,
    /// The runtime of the tables' tasks: the pipelines'.
    runtime: Handle,
    stop: CancellationToken,
}

impl Tables {
    /// No tables yet. Their tasks will run on `runtime`; a panic there is a failure of `tasks`.
    #[must_use]
    pub fn new(
        syncer: SyncerName,
        cache: Reader,
        tasks: TaskRegistry,
        runtime: Handle,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { syncer, cache, made: Mutex::default(), tasks, runtime, stop })
    }

    /// The content for agents of a line, from now on. Its table is made if there is none, and stays as long as the
    /// reader or a trail of it is held.
    ///
    /// # Cancel safety
    /// Cancel safe; an unused table is dropped.
    pub async fn content(self: &Arc<Self>, line: Release) -> Reader {
        let Some(view) = View::of(self.syncer, line) else { return self.cache.clone() };
        // Held while a table is made, so that further callers get the same one.
        let mut made = self.made.lock().await;
        if let Some(mirror) = made.get(&view) {
            return mirror.reader(&self.cache);
        }
        let (tell, told) = oneshot::channel();
        let table = self.clone().keep(view, tell);
        self.tasks.spawn_passing(&self.runtime, format!("{}-{line}-table", self.syncer), table);
        match told.await {
            Ok((mirror, reader)) => {
                made.insert(view, mirror);
                reader
            }
            // The server ends, and feeds end by themselves.
            Err(_) => self.cache.clone(),
        }
    }

    /// Makes a table, hands it over, and keeps it up to date while it is in use.
    async fn keep(self: Arc<Self>, view: View, tell: oneshot::Sender<(Arc<Mirror>, Reader)>) {
        let mut trail = self.cache.follow();
        let first = trail.position().clone();
        let mut map = first.map.clone();
        for (count, (key, update)) in view.differences(&first).enumerate() {
            match update {
                Some(update) => map.insert(key, update),
                None => map.remove(&key),
            };
            if count % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        let (mirror, reader) = Mirror::new(&self.cache, &first, map);
        let mirror = Arc::new(mirror);
        drop(first);
        if tell.send((mirror.clone(), reader)).is_err() {
            return;
        }
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                _ = housekeeping.tick() => {
                    let mut made = self.made.lock().await;
                    // Readers are given out under the same lock.
                    if !mirror.is_followed() {
                        made.remove(&view);
                        return;
                    }
                }
                crumb = trail.next() => {
                    let Some(crumb) = crumb else { break };
                    let mut map = mirror.map();
                    let changes = view.follow(&mut map, &crumb);
                    mirror.publish(&crumb, map, changes);
                }
            }
        }
        self.made.lock().await.remove(&view);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calico::syncers::FELIX;
    use crate::calico::{aside, keys};
    use crate::metrics::SyncerMetrics;
    use crate::model::{Key, SyncStatus, SyncerEvent, Update, UpdateType, Value, no_revision};
    use crate::snapcache::{Map, SnapCache};

    fn tables() -> (SnapCache, Arc<Tables>) {
        let (cache, reader) = SnapCache::new(3, SyncerMetrics::unregistered());
        let stop = CancellationToken::new();
        let tables = Tables::new(FELIX, reader, TaskRegistry::new(), Handle::current(), stop);
        (cache, tables)
    }

    fn update(key: impl Into<Key>, value: Option<&str>) -> Update {
        Update {
            key: key.into(),
            value: value.map(|value| Value::raw(value.to_owned())),
            revision: no_revision(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: if value.is_some() { UpdateType::New } else { UpdateType::Deleted },
            origin: None,
        }
    }

    fn put(cache: &mut SnapCache, key: &str, value: Option<&str>) {
        cache.apply(vec![SyncerEvent::Updates(vec![update(key, value)])]);
    }

    fn content(map: &Map) -> Vec<(String, String)> {
        let text = |update: &Update| String::from_utf8_lossy(&update.value.as_ref().unwrap().bytes).into_owned();
        map.iter().map(|(key, update)| (key.to_string(), text(update))).collect()
    }

    /// Waits until a table has followed its cache.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_is_made_for_the_first_and_gone_after_the_last() {
        let (mut cache, tables) = tables();
        let bird_ip = aside::key(aside::RELEASED, "/calico/v1/host/n/bird_ip");
        put(&mut cache, "/calico/v1/policy/NetworkPolicy/ns/sec.x", Some(r#"{"tier":"app","selector":"all()"}"#));
        put(&mut cache, &bird_ip, Some("10.0.0.1"));
        let reader = tables.content(Release::V3_31).await;
        let (bird, policy) = ("/calico/v1/host/n/bird_ip", "/calico/v1/policy/tier/sec/policy/ns%2fsec.x");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let expected = [pair(bird, "10.0.0.1"), pair(policy, r#"{"selector":"all()"}"#)];
        assert_eq!(content(&reader.newest().map), expected);
        let again = tables.content(Release::V3_31).await;
        assert!(Arc::ptr_eq(&reader.newest(), &again.newest()), "the same table");
        let mut trail = reader.follow();
        put(&mut cache, &bird_ip, Some("10.0.0.2"));
        cache.apply(vec![SyncerEvent::Status(SyncStatus::InSync)]);
        put(&mut cache, &bird_ip, None);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let crumb = trail.next().await.expect("the cache lives");
            let deltas = crumb.deltas.iter().map(|u| (u.key.to_string(), u.value.is_some(), u.update_type));
            seen.push((crumb.sequence, crumb.status, deltas.collect::<Vec<_>>()));
        }
        let change = |there: bool, update_type| vec![(bird.to_owned(), there, update_type)];
        let expected = [
            (3, SyncStatus::WaitForDatastore, change(true, UpdateType::Updated)),
            (4, SyncStatus::InSync, vec![]),
            (5, SyncStatus::InSync, change(false, UpdateType::Deleted)),
        ];
        assert_eq!(seen, expected);
        drop((reader, again, trail));
        tokio::time::sleep(2 * HOUSEKEEPING).await;
        assert!(tables.made.lock().await.is_empty());
        assert_eq!(tables.tasks.dump().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn agents_of_the_development_branch_follow_the_cache_itself() {
        let (mut cache, tables) = tables();
        put(&mut cache, "/k", Some("1"));
        let reader = tables.content(Release::Master).await;
        assert!(Arc::ptr_eq(&reader.newest(), &tables.cache.newest()));
        assert!(tables.made.lock().await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_policies_under_one_key_either_may_go() {
        let (mut cache, tables) = tables();
        let reader = tables.content(Release::V3_31).await;
        let own = ("/calico/v1/policy/KubernetesNetworkPolicy/ns/x", r#"{"tier":"default","selector":"own"}"#);
        let other = ("/calico/v1/policy/NetworkPolicy/ns/knp.default.x", r#"{"tier":"default","selector":"other"}"#);
        let selector = || content(&reader.newest().map).first().map(|(_, value)| value.clone());
        let (own_value, other_value) = (r#"{"selector":"own"}"#.to_owned(), r#"{"selector":"other"}"#.to_owned());
        for (change, expected) in [
            ((other.0, Some(other.1)), Some(&other_value)),
            ((own.0, Some(own.1)), Some(&own_value)),
            ((own.0, None), Some(&other_value)),
            ((own.0, Some(own.1)), Some(&own_value)),
            ((other.0, None), Some(&own_value)),
            ((own.0, None), None),
        ] {
            put(&mut cache, change.0, change.1);
            settle().await;
            assert_eq!(selector().as_ref(), expected, "after {change:?}");
        }
    }

    const NAMES: [&str; 4] = ["x", "sec.x", "knp.default.x", "kanp.adminnetworkpolicy.x"];

    /// Some key of a cache.
    fn key(of: usize, name: usize) -> Key {
        let name = NAMES[name];
        let wire = |prefix: &str| Key::from(format!("{prefix}{name}"));
        match of {
            0 => wire("/calico/v1/policy/GlobalNetworkPolicy//"),
            1 => wire("/calico/v1/policy/NetworkPolicy/ns/"),
            2 => wire("/calico/v1/policy/KubernetesNetworkPolicy/ns/"),
            3 => wire("/calico/v1/policy/StagedNetworkPolicy/ns/"),
            4 => wire("/calico/v1/policy/StagedKubernetesNetworkPolicy/ns/"),
            5 => aside::key(aside::ADMIN_POLICIES, &keys::old_admin_policy(name)),
            6 => wire("/calico/v1/ipam/v4/pool/"),
            7 => aside::key(aside::OLD, &format!("/calico/v1/ipam/v4/pool/{name}")),
            8 => aside::key(aside::RELEASED, &format!("/calico/v1/host/{name}/bird_ip")),
            9 => wire("/calico/resources/v3/projectcalico.org/profiles/"),
            _ => wire("/calico/v1/config/FlowLogs"),
        }
    }

    proptest! {
        /// A table that followed its cache through any history equals a table made from the cache's content, and so
        /// does the sum of its changes.
        #[test]
        fn a_table_is_a_function_of_the_content(
            history in proptest::collection::vec((0..11_usize, 0..NAMES.len(), proptest::option::of(0..3_u8)), 0..60),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let (mut cache, tables) = tables();
                let mut followed = Vec::new();
                for line in Release::ALL {
                    let reader = tables.content(line).await;
                    followed.push((line, reader.follow(), reader, Map::new()));
                }
                for batch in history.chunks(4) {
                    let updates = batch.iter().map(|&(of, name, value)| {
                        let value = value.map(|value| format!(r#"{{"tier":"app","order":{value}}}"#));
                        update(key(of, name), value.as_deref())
                    });
                    cache.apply(vec![SyncerEvent::Updates(updates.collect())]);
                }
                settle().await;
                for (line, trail, reader, told) in &mut followed {
                    let crumb = tables.cache.newest();
                    let made = View::content(FELIX, *line, &crumb);
                    prop_assert_eq!(content(&reader.newest().map), content(&made), "{}", line);
                    while let Some(crumb) = trail.try_next() {
                        for change in &crumb.deltas {
                            let _ = if change.value.is_some() {
                                told.insert(change.key.clone(), change.clone())
                            } else {
                                told.remove(&change.key)
                            };
                        }
                    }
                    prop_assert_eq!(content(told), content(&made), "{}", line);
                    prop_assert!(told.keys().all(|key| !key.is_aside()));
                }
                Ok(())
            })?;
        }
    }
}
