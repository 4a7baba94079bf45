//! The agents of a simulation: the protocol of each, its slowness, and whether it stays.

use std::time::Duration;

use bulrush::calico::release::Release;
use bulrush::calico::syncers::{BGP, FELIX};
use bulrush::model::SyncerName;
use bulrush::syncclient::Protocol;
use bulrush::syncproto::native::Compression;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::ledger::{Name, OLD_LINES};
use super::lines::SERVERS;
use super::raw::Raw;

/// An agent's part in the simulation.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) name: Name,
    pub(super) syncer: SyncerName,
    pub(super) prefixes: Vec<String>,
    /// Pause after each event or read.
    pub(super) pause: Duration,
    /// It leaves and comes back knowing nothing, as long as there is trouble.
    pub(super) comes_and_goes: bool,
    /// The servers that it tries, in this order.
    pub(super) servers: Vec<Name>,
    pub(super) speaks: Speaks,
    /// Release that it claims to be of.
    pub(super) line: Release,
}

impl Role {
    /// An agent that is on time and stays, for scripts.
    pub(super) fn of(name: Name, syncer: SyncerName) -> Self {
        Self {
            name,
            syncer,
            prefixes: Vec::new(),
            pause: Duration::ZERO,
            comes_and_goes: false,
            servers: SERVERS[..1].to_vec(),
            speaks: Speaks::Raw(Raw::Gob(false)),
            line: Release::Master,
        }
    }
}

/// Kind of an agent.
#[derive(Clone, Debug)]
pub(super) enum Speaks {
    Library(Protocol),
    Raw(Raw),
    /// Reads nothing.
    Ignores(Raw),
}

/// The agents of a run, drawn per seed.
pub(super) fn roles(rng: &mut SmallRng, servers: &[Name]) -> Vec<Role> {
    let native =
        |compressions: &[Compression]| Speaks::Library(Protocol::Native { compressions: compressions.to_vec() });
    let calico = |compression| Speaks::Library(Protocol::Calico { compression });
    let sets = ["/calico/v1/netset/"];
    // Prefixes of some objects of one kind, and of all objects of another.
    let some = [format!("/calico/v1/netset/o-{}", rng.random_range(0..10)), "/calico/resources/".to_owned()];
    let some = some.each_ref().map(String::as_str);
    let others: [bool; 3] = [rng.random(), rng.random(), rng.random()];
    let raws = [Raw::Native(Compression::Snappy), Raw::Gob(true), Raw::Gob(false)];
    let deaf = raws[rng.random_range(0..raws.len())];
    let mut role = |name, syncer, prefixes: &[&str], max_pause_ms: u64, speaks| {
        let mut servers = servers.to_vec();
        servers.shuffle(rng);
        Role {
            name,
            syncer,
            prefixes: prefixes.iter().map(|&prefix| prefix.to_owned()).collect(),
            pause: Duration::from_millis(if rng.random() { rng.random_range(0..=max_pause_ms) } else { 0 }),
            comes_and_goes: rng.random_ratio(1, 5),
            servers,
            speaks,
            line: Release::Master,
        }
    };
    let mut roles = vec![
        role("lib-zstd", FELIX, &[], 20, native(&[Compression::Zstd])),
        role("lib-snappy-sets", FELIX, &sets, 20, native(&[Compression::Snappy])),
        role("lib-plain-bgp", BGP, &[], 50, native(&[])),
        role("lib-calico-snappy", FELIX, &[], 50, calico(true)),
        role("lib-calico-bgp", BGP, &[], 50, calico(false)),
        role("raw-native", FELIX, &[], 100, Speaks::Raw(Raw::Native(Compression::Zstd))),
        role("raw-native-sets", FELIX, &sets, 100, Speaks::Raw(Raw::Native(Compression::None))),
        role("raw-gob-snappy", FELIX, &[], 150, Speaks::Raw(Raw::Gob(true))),
        role("raw-gob", FELIX, &[], 150, Speaks::Raw(Raw::Gob(false))),
    ];
    let old = ["lib-calico-3.28", "lib-calico-3.31"].into_iter().zip(OLD_LINES);
    roles.extend(old.map(|(name, line)| Role { line, ..role(name, FELIX, &[], 50, calico(true)) }));
    // Only in some runs, so that most runs stay small.
    let more = [
        role("lib-zstd-some", FELIX, &some, 20, native(&[Compression::Zstd])),
        role("lib-calico-some", FELIX, &some, 20, calico(true)),
        role("raw-deaf", FELIX, &[], 0, Speaks::Ignores(deaf)),
    ];
    roles.extend(more.into_iter().zip(others).filter_map(|(role, there)| there.then_some(role)));
    roles
}
