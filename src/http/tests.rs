//! The pages over real sockets.
