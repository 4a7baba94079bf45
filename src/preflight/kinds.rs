//! The kinds that the API server serves, and the number of objects of each.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;

use super::json::text;
use super::options::Settings;
use super::report::Report;
use super::serving::count;
use crate::calico::kinds::read_by;
use crate::calico::pipelines::{Flavour, calico};
use crate::calico::processors::Context;
use crate::calico::release::Release;
use crate::datastore::Kind;
use crate::datastore::kubernetes::lookup::{Answer, Lookup, Place};

const TOPIC: &str = "kinds";
/// Questions that are put at the same time.
const AT_ONCE: usize = 8;

/// A kind and where it is.
pub(super) type Watched = (Kind, Place);

/// Objects by the name of their kind.
pub(super) type Counts = BTreeMap<String, usize>;

/// The kinds of Calico's syncers, each once.
fn all_kinds() -> Vec<Kind> {
    let sources = calico(Flavour::Kubernetes, &Context::default()).into_iter().flat_map(|spec| spec.sources);
    let mut seen = BTreeSet::new();
    sources.flat_map(|source| source.kinds).filter(|kind| seen.insert(kind.clone())).collect()
}

/// The kinds that Bulrush watches, and their places in this server's API.
pub(super) async fn watched(lookup: &Lookup) -> Result<Vec<Watched>, String> {
    let kinds = all_kinds();
    let places = lookup.places(&kinds).await?;
    Ok(kinds.into_iter().zip(places).collect())
}

/// Looks which kinds are served, and counts their objects.
pub(super) async fn check(
    lookup: &Lookup,
    watched: &[Watched],
    line: Option<Release>,
    settings: &Settings,
    report: &mut Report,
) -> Counts {
    let versions: BTreeSet<(&str, &str)> = watched.iter().map(|(_, place)| (&*place.group, &*place.version)).collect();
    let mut served: BTreeSet<(String, String)> = BTreeSet::new();
    for (group, version) in versions {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match lookup.get(&path).await {
            Answer::Found(list) => {
                let names = list["resources"].as_array().into_iter().flatten().map(|resource| text(resource, "/name"));
                served.extend(names.map(|name| (group.to_owned(), name.to_owned())));
            }
            Answer::Missing(_) => {}
            other => {
                report.unknown(TOPIC, format!("{path} cannot be listed: {}", other.reason()));
                return Counts::new();
            }
        }
    }
    let (there, absent): (Vec<&Watched>, Vec<&Watched>) =
        watched.iter().partition(|(_, place)| served.contains(&(place.group.clone(), place.plural.clone())));
    let calico = there.iter().filter(|(kind, _)| kind.group == "projectcalico.org").count();
    report.fact("kinds_absent", absent.iter().map(|(_, place)| place.name()).collect::<Vec<_>>());
    if calico == 0 && !settings.uses_etcd() {
        report
            .obstacle(TOPIC, "the API server serves none of Calico's kinds")
            .remedy("install Calico's definitions, or set TYPHA_DATASTORETYPE=etcdv3 if its data are in etcd");
    }
    let named = |kinds: &[&Watched]| kinds.iter().map(|(_, place)| place.name()).collect::<Vec<_>>().join(", ");
    let native: Vec<&Watched> = absent.iter().copied().filter(|(_, place)| place.native).collect();
    if !native.is_empty() {
        let text = format!(
            "every API server serves {}, and this one does not: is there a gateway in between?",
            named(&native)
        );
        report.obstacle(TOPIC, text);
    }
    let read = |kind: &Kind| line.is_none_or(|line| read_by(kind).contain(line));
    let missed: Vec<&Watched> = absent.iter().copied().filter(|(kind, place)| !place.native && read(kind)).collect();
    report.ok(TOPIC, format!("{} of {} kinds are served", there.len(), watched.len()));
    if calico > 0 && !missed.is_empty() {
        report.note(TOPIC, format!("not defined here, and so empty for agents: {}", named(&missed)));
    }
    let counted: Vec<(String, Result<usize, Answer>)> = stream::iter(there)
        .map(|(_, place)| async move { (place.name(), count(lookup, &place.path).await) })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut counts = Counts::new();
    for (name, count) in counted {
        match count {
            Ok(count) => {
                counts.insert(name, count);
            }
            Err(other) => {
                report.note(TOPIC, format!("objects of {name} were not counted: {}", other.reason()));
            }
        }
    }
    report.fact(
        "objects",
        counts.iter().map(|(name, count)| (name.clone(), (*count).into())).collect::<serde_json::Map<String, Value>>(),
    );
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_syncers_is_looked_for_once() {
        let kinds = all_kinds();
        assert!(kinds.contains(&crate::calico::kinds::POD) && kinds.contains(&crate::calico::kinds::TIER));
        let mut names: Vec<String> = kinds.iter().map(|kind| format!("{}/{}", kind.group, kind.name)).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
