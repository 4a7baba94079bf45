//! Data of the kernel about processes and threads: CPU time, memory, and the limit of descriptors.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value};

/// Clock ticks per second in `/proc/<pid>/stat`; fixed on Linux.
const TICKS: f64 = 100.0;
/// Name of our own process in results: it holds the load, the decoding agents and the writer of changes.
const OURSELVES: &str = "load generator";

/// The name in a `stat` file, which may contain blanks and parentheses, and the fields after it.
fn stat(path: &str) -> Option<(String, Vec<String>)> {
    let stat = fs::read_to_string(path).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(').map_or("", |(_, name)| name);
    Some((name.to_owned(), tail.split_whitespace().map(str::to_owned).collect()))
}

/// CPU seconds, user and system, of the fields of a `stat` file.
fn cpu_of(fields: &[String]) -> f64 {
    let ticks = |i: usize| fields.get(i).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

/// CPU seconds (user and system) of a process. 0 if there is no such process.
pub(crate) fn cpu_secs(pid: u32) -> f64 {
    stat(&format!("/proc/{pid}/stat")).map_or(0.0, |(_, fields)| cpu_of(&fields))
}

fn status_kib(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Resident memory now, in MiB.
pub(crate) fn rss_mib(pid: u32) -> f64 {
    status_kib(pid, "VmRSS:") as f64 / 1024.0
}

/// Peak of resident memory, in MiB.
pub(crate) fn peak_mib(pid: u32) -> f64 {
    status_kib(pid, "VmHWM:") as f64 / 1024.0
}

/// Limit of open descriptors of this process.
pub(crate) fn descriptor_limit() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|text| text.parse().ok()).unwrap_or(1024)
}

/// Time of all processors together so far, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineTime {
    /// Time in which they worked or were stolen.
    wanted: f64,
    /// Stolen part of it: the hypervisor gave them to others.
    stolen: f64,
}

impl MachineTime {
    /// Reads the present counts.
    pub(crate) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<f64> =
            stat.lines().next()?.split_whitespace().skip(1).map_while(|text| text.parse().ok()).collect();
        let &[user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = ticks.as_slice() else { return None };
        Some(Self { wanted: user + nice + system + irq + softirq + stolen, stolen })
    }

    /// Percentage of stolen time since `before`, of the time in which processors had work.
    pub(crate) fn stolen_percent(&self, before: &Self) -> f64 {
        100.0 * (self.stolen - before.stolen) / (self.wanted - before.wanted).max(1.0)
    }
}

/// CPU time so far of every process of a run: our children, the server, and ourselves by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTimes {
    processes: BTreeMap<u32, (String, f64)>,
    threads: BTreeMap<String, f64>,
}

impl CpuTimes {
    /// Reads the present counts. `server` need not be a child of ours.
    pub(crate) fn now(server: Option<u32>) -> Self {
        let ourselves = std::process::id();
        let mut times = Self::default();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let Some((name, fields)) = stat(&format!("/proc/{pid}/stat")) else { continue };
            let parent = fields.get(1).and_then(|text| text.parse::<u32>().ok());
            if pid == ourselves {
                times.processes.insert(pid, (OURSELVES.to_owned(), cpu_of(&fields)));
            } else if parent == Some(ourselves) || Some(pid) == server {
                times.processes.insert(pid, (name, cpu_of(&fields)));
            }
        }
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            if let Some((name, fields)) = stat(&format!("{}/stat", entry.path().display())) {
                *times.threads.entry(name).or_default() += cpu_of(&fields);
            }
        }
        times
    }

    /// Seconds of each process since `before`, by name.
    pub(crate) fn by_process(&self, before: &Self) -> Value {
        let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
        for (pid, (name, secs)) in &self.processes {
            *by_name.entry(name).or_default() += secs - before.processes.get(pid).map_or(0.0, |(_, secs)| *secs);
        }
        by_name.into_iter().map(|(name, secs)| (name.to_owned(), rounded(secs))).collect::<Map<_, _>>().into()
    }

    /// Seconds since `before` of our own threads with this name, a part of the load generator.
    pub(crate) fn of_thread(&self, before: &Self, name: &str) -> f64 {
        let secs = |times: &Self| times.threads.get(name).copied().unwrap_or(0.0);
        secs(self) - secs(before)
    }
}

/// Rounds away the noise of floating-point subtraction; the kernel's unit is 10 ms.
fn rounded(secs: f64) -> Value {
    ((secs * TICKS).round() / TICKS).into()
}
