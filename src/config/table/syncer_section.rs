//! Options of a `[syncer "name"]` section: a syncer of any kinds.

use std::path::Component;

use crate::config::options::Options;
use crate::config::spec::Group;
use crate::config::typed::SyncerConfig;
use crate::model::SyncerName;
use crate::validate::filter::OnInvalid;

/// The syncer with this name.
pub(super) fn read(options: &mut Options<'_>, name: SyncerName) -> SyncerConfig {
    options.begin(Group::Syncers);
    SyncerConfig {
        name,
        sources: options
            .datastores(
                "Sources",
                "Names of the datastores that feed it: of an object that several have, the first one's counts. global is the one of the options outside of sections.",
            )
            .required()
            .read(),
        kinds: options
            .patterns(
                "Kinds",
                "The kinds that it serves. group/* is all kinds of a group, each in the version that the datastore prefers.",
            )
            .required()
            .read(),
        namespaces: options.namespaces("Namespaces", "The namespaces whose objects it serves.").read(),
        selector: options.selector("Selector", "The labels that its objects have; empty means any.").read(),
        folder: options
            .inner_path("Folder", "The part of a folder whose files it serves, relative to the folder; empty means all.")
            .read()
            .components()
            .filter(|component| matches!(component, Component::Normal(_)))
            .collect(),
        schemas: options
            .existing_paths("Schemas", "Files and folders with CRDs and JSON Schemas. Objects are checked with them.")
            .read(),
        on_invalid: match options
            .word(
                "OnInvalid",
                &["keep", "drop", "pass"],
                "keep",
                "What agents get when an object is not valid: keep the last valid one, drop it as if it were deleted, or pass it as it is.",
            )
            .refuses_zero()
            .read()
            .as_str()
        {
            "drop" => OnInvalid::Absent,
            "pass" => OnInvalid::Pass,
            _ => OnInvalid::KeepLast,
        },
        quiet: options.seconds("QuietSecs", "0.5", "Changes are published once there was none for this long.").read(),
        max_delay: options.seconds("MaxDelaySecs", "2", "Changes are published after this long at most, however many more come.").read(),
        status: options
            .boolean(
                "Status",
                "false",
                "Whether status, metadata.managedFields and metadata.resourceVersion are sent, and count as changes.",
            )
            .read(),
        ready: options.boolean("Ready", "true", "Whether the program is not ready before it is in sync.").read(),
    }
}
