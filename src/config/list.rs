//! Reads lists of items that are separated by commas. Pure, except that it looks for files that must exist.

use std::path::Path;

use super::spec::Item;
use crate::datastore::Pattern;
use crate::model::SyncerName;

/// Most items of a list. Each may cost a watch, so that a longer list is a mistake of whatever wrote it.
pub(super) const MAX_ITEMS: usize = 256;
/// Stands for all namespaces.
const ALL_NAMESPACES: &str = "*";

/// Reads a list. Empty items do not count.
///
/// # Errors
/// The reasons why items are not accepted, all of them, in words.
pub(super) fn read(item: Item, text: &str) -> Result<Vec<String>, String> {
    let (mut items, mut reasons) = (Vec::<String>::new(), Vec::new());
    for text in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        if items.len() == MAX_ITEMS {
            reasons.push(format!("it has more than {MAX_ITEMS} items"));
            break;
        }
        if items.iter().any(|item| item == text) {
            reasons.push(format!("{text:?} is there twice"));
        } else if let Err(reason) = check(item, text) {
            reasons.push(reason);
        }
        items.push(text.to_owned());
    }
    if item == Item::Namespace && items.len() > 1 && items.iter().any(|item| item == ALL_NAMESPACES) {
        reasons.push("* stands for all namespaces: write it alone".to_owned());
    }
    if reasons.is_empty() { Ok(items) } else { Err(reasons.join("; ")) }
}

fn check(item: Item, text: &str) -> Result<(), String> {
    match item {
        // An unknown name is a mistake later, with a suggestion.
        Item::Datastore => Ok(()),
        Item::Pattern => text.parse::<Pattern>().map(|_| ()).map_err(|error| error.to_string()),
        Item::Namespace if text == ALL_NAMESPACES || SyncerName::has_form(text) => Ok(()),
        // Names of syncers have the form of a part of a DNS name, as those of namespaces.
        Item::Namespace => Err(format!("{text:?} is no name of a namespace")),
        Item::ExistingPath => existing(text).map_err(|reason| format!("{text}: {reason}")),
    }
}

/// Whether there is something at a path.
pub(super) fn existing(path: &str) -> Result<(), String> {
    match Path::new(path).metadata() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}; check the path and, in a container, that the volume is mounted")),
    }
}
