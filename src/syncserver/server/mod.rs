//! The server around its clients: accepts, counts, and ends connections when there are too many or the server stops.

pub(crate) mod accepting;
pub(crate) mod governor;
pub(crate) mod run;
pub(crate) mod slots;
pub(crate) mod tracker;
