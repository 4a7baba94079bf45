//! Tests of the gob codec as a whole.
