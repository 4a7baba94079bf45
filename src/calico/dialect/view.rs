//! The content of a cache in a line's dialect, and its changes with the cache: pure functions.

use std::sync::Arc;

use super::keys::{self, Spelling};
use super::values;
use crate::calico::aside;
use crate::calico::release::Release;
use crate::calico::syncers::{BGP, FELIX, TUNNEL_IP_ALLOCATION};
use crate::model::SyncerName;
use crate::model::{Key, Update, UpdateType};
use crate::snapcache::{Breadcrumb, Map};

/// The cache of one syncer as agents of one line see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct View {
    syncer: SyncerName,
    line: Release,
}

impl View {
    /// The view of a line. `None`: its agents receive the cache's content.
    #[must_use]
    pub fn of(syncer: SyncerName, line: Release) -> Option<Self> {
        let own = match syncer {
            FELIX => line < Release::Master,
            // Only pools differ.
            BGP | TUNNEL_IP_ALLOCATION => line < Release::V3_32,
            _ => false,
        };
        own.then_some(Self { syncer, line })
    }

    /// The changes that turn the cache's whole content at a crumb into this view: each key that is sent otherwise or
    /// not at all, and each key that is sent in addition.
    pub fn differences(self, crumb: &Breadcrumb) -> impl Iterator<Item = (Key, Option<Arc<Update>>)> {
        let own = crumb.map.iter().filter_map(move |(key, update)| match keys::spelling(self.syncer, self.line, key) {
            Spelling::Same => {
                let adapted = values::adapted(self.line, update);
                (!Arc::ptr_eq(&adapted, update)).then(|| vec![(key.clone(), Some(adapted))])
            }
            Spelling::None => Some(vec![(key.clone(), None)]),
            Spelling::Other(old) => Some(vec![(key.clone(), None), (old.clone(), self.resolve(crumb, &old))]),
        });
        let beside = crumb.aside.map.iter().filter_map(move |(key, _)| {
            let key: Key = self.stands_for(key)?.into();
            Some(vec![(key.clone(), self.resolve(crumb, &key))])
        });
        own.chain(beside).flatten()
    }

    /// The cache's whole content at a crumb, for agents of a line. Takes time in proportion to the content.
    #[must_use]
    pub fn content(syncer: SyncerName, line: Release, crumb: &Breadcrumb) -> Map {
        let mut map = crumb.map.clone();
        for (key, update) in Self::of(syncer, line).into_iter().flat_map(|view| view.differences(crumb)) {
            match update {
                Some(update) => map.insert(key, update),
                None => map.remove(&key),
            };
        }
        map
    }

    /// Applies a crumb to the view's `map`, and returns the changes in order.
    pub fn follow(self, map: &mut Map, crumb: &Breadcrumb) -> Vec<Arc<Update>> {
        let mut changes = Vec::with_capacity(crumb.deltas.len() + crumb.aside.deltas.len());
        for update in &crumb.deltas {
            match keys::spelling(self.syncer, self.line, &update.key) {
                Spelling::Same if !aside::may_shadow(&update.key) => {
                    let update = values::adapted(self.line, update);
                    if update.value.is_some() {
                        map.insert(update.key.clone(), update.clone());
                    } else {
                        map.remove(&update.key);
                    }
                    changes.push(update);
                }
                Spelling::Same => changes.extend(self.put_in_place(map, crumb, &update.key)),
                Spelling::Other(key) => changes.extend(self.put_in_place(map, crumb, &key)),
                Spelling::None => {}
            }
        }
        for update in &crumb.aside.deltas {
            if let Some(key) = self.stands_for(&update.key) {
                changes.extend(self.put_in_place(map, crumb, &key.into()));
            }
        }
        changes
    }

    /// The wire key of a key aside, in this view.
    fn stands_for(self, aside: &str) -> Option<&str> {
        let (lines, key) = aside::split(aside)?;
        (lines.contain(self.line) && keys::spelling(self.syncer, self.line, key) == Spelling::Same).then_some(key)
    }

    /// Sets a key in `map` to its state at the crumb. Returns the change, if there is one.
    fn put_in_place(self, map: &mut Map, crumb: &Breadcrumb, key: &Key) -> Option<Arc<Update>> {
        let Some(now) = self.resolve(crumb, key) else {
            let before = map.remove(key)?;
            return Some(Arc::new(Update::deletion(before.key.clone())));
        };
        let before = map.get(key);
        if before.is_some_and(|before| before.value == now.value && before.ttl == now.ttl) {
            return None;
        }
        let update_type = if before.is_some() { UpdateType::Updated } else { UpdateType::New };
        let now = now.with_type(update_type);
        map.insert(key.clone(), now.clone());
        Some(now)
    }

    /// A key's datum in this view, if there is one: from aside, else from the cache.
    fn resolve(self, crumb: &Breadcrumb, key: &Key) -> Option<Arc<Update>> {
        let stretches = aside::ALL.into_iter().filter(|lines| lines.contain(self.line));
        let aside = stretches.into_iter().find_map(|lines| crumb.aside.map.get(&aside::key(lines, key)));
        if let Some(aside) = aside {
            let named = Arc::new(Update { key: key.clone(), ..Update::clone(aside) });
            return Some(values::adapted(self.line, &named));
        }
        if keys::spelling(self.syncer, self.line, key) == Spelling::Same
            && let Some(update) = crumb.map.get(key)
        {
            return Some(values::adapted(self.line, update));
        }
        let source = keys::sources(self.line, key).into_iter().find_map(|source| crumb.map.get(&source))?;
        let value = values::old_policy(self.line, keys::is_namespaced_policy(&source.key), source)?;
        Some(Arc::new(Update { key: key.clone(), value: Some(value), ..Update::clone(source) }))
    }
}
