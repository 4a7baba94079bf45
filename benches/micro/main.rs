//! Cost of single steps of the program, without sockets and datastore: `cargo bench --bench micro`.
//!
//! | group | step | expectation |
//! |---|---|---|
//! | encode | a group of updates as one message, once for all agents | bytes per second |
//! | publish | one change through `SnapCache::apply` | the same for 10^4 and 10^5 keys |
//! | difference | the difference between two versions of a map | grows with the changes, and little with the map |
//! | snapshot | a snapshot from nothing, and after changes | the second grows with the changed part |
//! | decode | gob as an agent reads it | bytes per second |
//! | validate | one object by its schema, compiled before | 50 µs at most for the sample's VirtualService |
//!
//! `cargo bench --profile dev --bench micro -- --test` runs each once.

#[path = "../common/mod.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulrush::metrics::SyncerMetrics;
use bulrush::model::{SyncerEvent, Update};
use bulrush::snapcache::{Map, SnapCache};
use bulrush::syncproto::format::{SeqRange, WireFormat};
use bulrush::syncproto::gob::{Decoder, Limits};
use bulrush::syncproto::gob_format::{GobPlain, GobSnappy};
use bulrush::syncproto::native::Compression;
use bulrush::syncproto::native::format::wire_format;
use bulrush::syncserver::Wire;
use bulrush::syncserver::benching::{Cut, difference};
use bulrush::validate::schema::{Library, text};
use common::{Converter, PER_NODE};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Seed of the random choice of changed keys.
const SEED: u64 = 0x0b01_2005;

/// Numbers of keys of a small and of a large cluster; fewer for a run that only shows that everything works.
fn sizes() -> [usize; 2] {
    let only_tried = std::env::args().any(|arg| arg == "--test");
    if only_tried { [1000, 2000] } else { [10_000, 100_000] }
}

fn updates(count: usize) -> Vec<Arc<Update>> {
    let mut converter = Converter::new();
    (0..count).map(|i| Arc::new(converter.update(i, count, 0))).collect()
}

fn map(size: usize) -> Map {
    updates(size).into_iter().map(|update| (update.key.clone(), update)).collect()
}

/// Choice of changed endpoints.
#[derive(Clone, Copy)]
enum Where {
    /// Random endpoints.
    AtRandom,
    /// The endpoints of one node after the other, which are neighbours in the map.
    ByNode,
}

/// The map after `count` changes.
fn changed(map: &Map, size: usize, count: usize, at: Where) -> Map {
    let (mut converter, mut random) = (Converter::new(), StdRng::seed_from_u64(SEED));
    let mut changed = map.clone();
    for n in 0..count {
        let i = match at {
            Where::AtRandom => random.random_range(0..size),
            Where::ByNode => n / PER_NODE + n % PER_NODE * (size / PER_NODE),
        };
        let update = Arc::new(converter.update(i, size, 1 + n));
        changed.insert(update.key.clone(), update);
    }
    changed
}

fn formats() -> Vec<Arc<dyn WireFormat>> {
    let mut formats: Vec<Arc<dyn WireFormat>> = vec![Arc::new(GobPlain), Arc::new(GobSnappy)];
    formats.extend([Compression::None, Compression::Snappy, Compression::Zstd].map(wire_format));
    formats
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    let range = SeqRange { after: 0, upto: 1 };
    for count in [1, 20, 1000] {
        let updates = updates(count);
        for format in formats() {
            let raw = GobPlain.updates(range, &updates).len();
            group.throughput(Throughput::Bytes(raw as u64));
            group.bench_function(BenchmarkId::new(format.name(), count), |bencher| {
                bencher.iter(|| format.updates(range, &updates));
            });
        }
    }
    group.finish();
}

fn publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish");
    for size in sizes() {
        let mut converter = Converter::new();
        let (mut cache, _reader) = SnapCache::new(100, SyncerMetrics::unregistered());
        for i in 0..size {
            cache.apply(vec![SyncerEvent::Updates(vec![converter.update(i, size, 0)])]);
        }
        let (mut random, mut seq) = (StdRng::seed_from_u64(SEED), 0);
        group.bench_function(BenchmarkId::new("one change", size), |bencher| {
            let change = || {
                seq += 1;
                vec![SyncerEvent::Updates(vec![converter.update(random.random_range(0..size), size, seq)])]
            };
            bencher.iter_batched(change, |events| cache.apply(events), BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn map_difference(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("difference");
    for size in sizes() {
        let old = map(size);
        for count in [10, 1000] {
            let new = changed(&old, size, count, Where::AtRandom);
            group.bench_function(BenchmarkId::new(format!("{count} changes"), size), |bencher| {
                bencher.iter(|| difference(&old, &new));
            });
        }
    }
    group.finish();
}

fn snapshot(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    let [size, _] = sizes();
    let old = map(size);
    for wire in [Wire::GobSnappy, Wire::NativeZstd] {
        let name = |what: &str| format!("{} {what}", wire.name());
        group.bench_function(name("from nothing"), |bencher| bencher.iter(|| Cut::fresh(wire, &old)));
        let cut = Cut::fresh(wire, &old);
        let news = [
            ("after no change", old.clone()),
            ("after one change", changed(&old, size, 1, Where::AtRandom)),
            ("after 1 % at random", changed(&old, size, size / 100, Where::AtRandom)),
            ("after 1 %, two nodes", changed(&old, size, size / 100, Where::ByNode)),
            ("after all", changed(&old, size, size, Where::ByNode)),
        ];
        for (what, new) in news {
            let next = cut.next(&new);
            let name = format!("{}, {} of {} pieces", name(what), next.encoded, next.pieces());
            group.bench_function(name, |bencher| bencher.iter(|| cut.next(&new)));
        }
    }
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for count in [1, 1000] {
        let mut bytes = GobPlain.prefix().to_vec();
        bytes.extend_from_slice(&GobPlain.updates(SeqRange { after: 0, upto: 1 }, &updates(count)));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("gob", count), |bencher| {
            bencher.iter(|| {
                let mut decoder = Decoder::new(Limits::client());
                decoder.push(&bytes);
                let mut messages = 0;
                while decoder.next().expect("good gob").is_some() {
                    messages += 1;
                }
                messages
            });
        });
    }
    group.finish();
}

fn validate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("validate");
    let folder = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    let library = Library::load(&[folder("mesh/schemas")]).expect("the sample's schemas compile");
    let text = std::fs::read(folder("mesh").join("reviews.yaml")).expect("the sample");
    for document in text::read(&text, false).expect("the sample is YAML") {
        let name = document.value["kind"].as_str().unwrap_or_default().to_owned();
        group.bench_function(name, |bencher| bencher.iter(|| library.check(&document.value, None)));
    }
    group.finish();
}

criterion_group!(benches, encode, publish, map_difference, snapshot, decode, validate);
criterion_main!(benches);
