//! CPUs that are asked to compute with more threads than their process may use.

use std::fmt;

use edgecut_graph::DeviceName;
use smol_str::SmolStr;

use crate::{Cluster, Description, DeviceKind};

/// A CPU with more compute threads than cores. It works, but its times are those of threads that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oversubscribed {
    /// As in messages: `local/cpu`.
    pub device: String,
    pub threads: u32,
    /// Hardware threads that the process may use, under its affinity and CPU quota.
    pub available: u32,
}

impl Oversubscribed {
    /// `threads` threads of this process on this machine, if they are too many.
    pub fn here(threads: u32) -> Option<Oversubscribed> {
        let available = std::thread::available_parallelism().map_or(threads, |n| n.get() as u32);
        Oversubscribed::of("this machine".to_string(), threads, available)
    }

    /// CPUs of an agent, with the threads that it computes with if its clients ask for no others.
    pub fn of_agent(agent: &Description) -> Vec<Oversubscribed> {
        let check = |device: String, threads| Oversubscribed::of(device, threads, agent.cpu.threads);
        let cpus = agent.devices.iter().filter(|device| device.kind == DeviceKind::Cpu);
        cpus.filter_map(|device| {
            check(DeviceName::new(agent.name.as_str(), device.name.as_str()).to_string(), device.threads)
        })
        .collect()
    }

    /// CPUs of a cluster whose servers have described themselves.
    pub fn of_cluster<'a>(
        cluster: &Cluster,
        found: impl Iterator<Item = (&'a SmolStr, &'a Description)>,
    ) -> Vec<Oversubscribed> {
        let mut all = Vec::new();
        for (name, description) in found {
            let Some(server) = cluster.server(name) else { continue };
            for device in description.devices.iter().filter(|device| device.kind == DeviceKind::Cpu) {
                let threads = server.threads_for(&device.name).unwrap_or(device.threads);
                all.extend(Oversubscribed::of(format!("{name}/{}", device.name), threads, description.cpu.threads));
            }
        }
        all
    }

    fn of(device: String, threads: u32, available: u32) -> Option<Oversubscribed> {
        // An agent that does not know its cores reports none.
        (available > 0 && threads > available).then_some(Oversubscribed { device, threads, available })
    }
}

impl fmt::Display for Oversubscribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Oversubscribed { device, threads, available } = self;
        let cores = if *available == 1 { "one core".to_string() } else { format!("{available} cores") };
        write!(
            f,
            "warning: {device} computes with {threads} threads, but its process may use {cores}: threads wait for each \
             other, which times include; ask for at most {available} (option `threads`, or `threads` in the cluster file)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_cores_are_reported() {
        let check = |threads, available| Oversubscribed::of("a/cpu".to_string(), threads, available);
        assert_eq!((check(2, 2), check(1, 2), check(64, 0)), (None, None, None));
        let message = check(64, 2).unwrap().to_string();
        assert!(message.contains("a/cpu computes with 64 threads, but its process may use 2 cores"), "{message}");
        assert!(message.contains("ask for at most 2 (option `threads`"), "{message}");
        assert!(check(2, 1).unwrap().to_string().contains("may use one core"));
        assert_eq!(Oversubscribed::here(1), None);
        assert!(Oversubscribed::here(100_000).is_some());
    }
}
