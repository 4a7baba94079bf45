//! The values that agents' data planes read, and what is needed to make them of objects.
//!
//! Field order is wire order. Processors fill these and serialise them with [`super::gojson`]; nothing else reads them.

pub mod policy;
