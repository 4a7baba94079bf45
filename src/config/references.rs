//! Checks that compare named sections with each other and with the options outside of them.

use std::collections::BTreeSet;

use super::check;
use super::mistake::{Mistake, Notice};
use super::resolve::Resolved;
use super::sections::{SectionOptions, is_wrong};
use super::spec::Section;
use super::typed::GLOBAL;
use crate::calico::syncers;
use crate::datastore::Pattern;
use crate::generic::documents::{RAW_GROUP, RAW_KIND, RAW_VERSION};
use crate::model::SyncerName;
use crate::model::nearest::{did_you_mean, nearest};

/// Checks all sections together.
pub(super) fn check(
    options: &[Resolved],
    sections: &[SectionOptions],
    mistakes: &mut Vec<Mistake>,
    notices: &mut Vec<Notice>,
) {
    let datastores: Vec<&SectionOptions> = of(sections, Section::Datastore).collect();
    for syncer in of(sections, Section::Syncer) {
        name(syncer, mistakes);
        sources(syncer, options, &datastores, mistakes);
        raw_kinds(syncer, &datastores, mistakes);
        folder(syncer, options, &datastores, notices);
    }
    if !runs_calico(options) && of(sections, Section::Syncer).next().is_none() {
        let option = check::get(options, "CalicoSyncers");
        let (accepted, hint) = ("all, because there is no syncer of another kind", "add a section [syncer \"name\"]");
        let (value, source) = (option.value.to_string(), option.source.clone());
        mistakes.push(Mistake::new(option.spec.name, value, source, accepted, hint));
    }
    // A datastore is not called unused while a name among Sources may be its own, misspelled.
    let all_named = of(sections, Section::Syncer).all(|syncer| !is_wrong(mistakes, &syncer.label("Sources")));
    for datastore in datastores {
        if all_named && !is_source(sections, &datastore.name) {
            notices.push(Notice::warning(format!(
                "{} ({}) is not opened: no syncer has it among its Sources",
                datastore.heading(),
                datastore.source
            )));
        }
    }
}

/// Whether the Kubernetes API is used.
pub(super) fn use_kubernetes(options: &[Resolved], sections: &[SectionOptions]) -> bool {
    let global = runs_calico(options) || is_source(sections, GLOBAL);
    check::uses_kubernetes(options, global)
        || of(sections, Section::Datastore).any(|datastore| datastore.text("Type") == "kubernetes")
}

fn of(sections: &[SectionOptions], kind: Section) -> impl Iterator<Item = &SectionOptions> {
    sections.iter().filter(move |section| section.section == kind)
}

fn runs_calico(options: &[Resolved]) -> bool {
    check::text(options, "CalicoSyncers") != "none"
}

/// Whether a datastore feeds any syncer.
fn is_source(sections: &[SectionOptions], datastore: &str) -> bool {
    of(sections, Section::Syncer).any(|syncer| syncer.list("Sources").iter().any(|source| source == datastore))
}

fn name(syncer: &SectionOptions, mistakes: &mut Vec<Mistake>) {
    if syncers::ALL.iter().any(|calicos| calicos.as_str() == syncer.name) {
        let names = syncers::ALL.map(SyncerName::as_str).join(", ");
        let accepted = format!("another name than those of Calico's syncers: {names}");
        let hint = "agents of Calico would take its data for Calico's";
        mistakes.push(Mistake::new("section", syncer.heading(), syncer.source.clone(), accepted, hint));
    }
}

fn sources(syncer: &SectionOptions, options: &[Resolved], datastores: &[&SectionOptions], mistakes: &mut Vec<Mistake>) {
    let names = || datastores.iter().map(|datastore| &*datastore.name);
    for source in syncer.list("Sources") {
        if source == GLOBAL {
            if check::text(options, "DatastoreType") == "etcdv3" {
                let accepted = "datastores that may hold objects of any kind";
                let hint = "global is an etcd with Calico's objects (DatastoreType); describe other prefixes of it in a section \
                            [datastore \"name\"] with Type = etcdv3";
                mistakes.push(syncer.mistake("Sources", accepted, hint));
            }
        } else if !names().any(|name| name == source) {
            let known: BTreeSet<&str> = names().chain([GLOBAL]).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let suggestion = did_you_mean(nearest(source, names().chain([GLOBAL])));
            let hint = format!("there is no section [datastore {source:?}]; {suggestion}");
            let hint = hint.trim_end_matches([';', ' ']);
            mistakes.push(syncer.mistake("Sources", format!("names of datastore sections: {known}"), hint));
        }
    }
}

/// The datastores that feed a syncer, without those that do not exist.
fn feeding<'a>(
    syncer: &'a SectionOptions,
    datastores: &'a [&SectionOptions],
) -> impl Iterator<Item = &'a SectionOptions> {
    let find = |source: &String| datastores.iter().copied().find(|datastore| datastore.name == *source);
    syncer.list("Sources").iter().filter_map(find)
}

/// A pattern that asks for other kinds than the only one that all sources have.
fn raw_kinds(syncer: &SectionOptions, datastores: &[&SectionOptions], mistakes: &mut Vec<Mistake>) {
    let sources = syncer.list("Sources");
    let raw = feeding(syncer, datastores).filter(|datastore| datastore.text("Format") == "raw").count();
    if sources.is_empty() || raw < sources.len() || is_wrong(mistakes, &syncer.label("Kinds")) {
        return;
    }
    let (group, version, kind) = (RAW_GROUP, RAW_VERSION, RAW_KIND);
    let is_raw = |text: &&String| text.parse::<Pattern>().is_ok_and(|pattern| pattern.matches(group, version, kind));
    let others: Vec<&str> = syncer.list("Kinds").iter().filter(|text| !is_raw(text)).map(String::as_str).collect();
    if !others.is_empty() {
        let accepted = format!("{group}/{version}/{kind}, because all its sources have Format = raw");
        let hint = format!("no source can hold {}", others.join(", "));
        mistakes.push(syncer.mistake("Kinds", accepted, hint));
    }
}

/// `Folder` without a folder among the sources has no effect.
fn folder(syncer: &SectionOptions, options: &[Resolved], datastores: &[&SectionOptions], notices: &mut Vec<Notice>) {
    let global = syncer.list("Sources").iter().any(|source| source == GLOBAL);
    let has_folder = feeding(syncer, datastores).any(|datastore| datastore.text("Type") == "file")
        || (global && check::text(options, "DatastoreType") == "file");
    if !syncer.text("Folder").is_empty() && !has_folder {
        notices.push(Notice::warning(format!(
            "{} has no effect: none of its Sources is a folder",
            syncer.label("Folder")
        )));
    }
}
