//! The parts of Calico v3 resources that processors convert, as users write them; read straight from an object's body.
//!
//! Reading is as lenient as Go's: unknown fields are skipped, `null` is zero, a wrong type refuses the object.

pub mod policy;
pub mod rule;
