//! How YAML is read: one set of limits and one meaning for files, for documents in etcd and for schemas.

use serde_saphyr::Options;

/// Deepest nesting of a document. Kubernetes' own objects stay below 20.
pub const MAX_DEPTH: usize = 64;
/// Most mappings, sequences and scalars in one text: about 30,000 pods, some 200 MB while it is parsed.
pub const MAX_NODES: usize = 2_000_000;
/// Most documents in one text.
pub const MAX_DOCUMENTS: usize = 100_000;
/// Most nodes that aliases may add to a text: 10,000 uses of a block of labels, and few enough that a text that is made to
/// blow up costs some ten milliseconds.
pub const MAX_ALIASED_NODES: usize = 50_000;

/// The reader's options: these limits, and octal numbers as in YAML 1.1, which kubectl reads.
#[must_use]
pub fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_documents: MAX_DOCUMENTS,
            max_recorded_anchor_events: MAX_ALIASED_NODES,
            // One block of labels used by hundreds of objects is no attack; the nodes that aliases add are bounded below.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIASED_NODES,
            max_replay_stack_depth: MAX_DEPTH,
        },
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}
