//! Rules for whole objects: what every kind's metadata must satisfy, then the kind's own rules.

use super::Invalid;
use crate::model::resource::Resource;

mod metadata;

/// Checks a whole object.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(resource: &Resource) -> Result<(), Invalid> {
    if let Some(fields) = resource.metadata() {
        metadata::check(fields)?;
    }
    Ok(())
}
