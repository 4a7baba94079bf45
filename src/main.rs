//! The `bulrush` binary: allocator, arguments, runtime, exit code.

fn main() {}
