//! Options of syncers as a whole.

use crate::config::options::Options;
use crate::config::spec::Group;

/// Whether Calico's syncers run.
pub(super) fn read(options: &mut Options<'_>) -> bool {
    options.begin(Group::Syncers);
    let which = options
        .word(
            "CalicoSyncers",
            &["all", "none"],
            "all",
            "Whether Calico's four syncers run: all of them, or none. With none, only [syncer \"name\"] sections are served, and nothing of Calico is read.",
        )
        .ours()
        .read();
    which != "none"
}
