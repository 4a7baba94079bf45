//! Looking into a running process: CPU and heap profiles. Served by the debug port; the heap profile also on SIGUSR1.

pub mod cpu;
pub mod heap;
