//! How busy this process and other workloads keep the machine, from Linux's counters.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// Counters at the beginning of a measurement; see [`MachineLoad::so_far`].
#[derive(Debug, Clone, Copy)]
pub struct MachineLoad {
    since: Instant,
    /// `None` where the system has no such counters.
    begin: Option<Counters>,
}

/// Average numbers of busy processors of a machine over some time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BusyProcessors {
    /// With this process.
    pub own: f64,
    /// With other processes, and with other virtual machines where the system reports what they take.
    pub others: f64,
}

/// Processor time in ticks since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counters {
    /// Of all processes, and stolen by other virtual machines.
    busy: u64,
    /// Of this process.
    own: u64,
}

/// Ticks in a second of `/proc`: USER_HZ, which is 100 on every architecture that Rust's standard library supports.
const TICKS: f64 = 100.0;
/// The counters are too coarse for shorter measurements.
const SHORTEST: Duration = Duration::from_millis(100);

impl MachineLoad {
    pub fn start() -> MachineLoad {
        MachineLoad { since: Instant::now(), begin: Counters::read() }
    }

    /// The processors that were busy since the start; `None` if that is unknown, or the start was less than 0.1 s ago.
    pub fn so_far(&self) -> Option<BusyProcessors> {
        let elapsed = self.since.elapsed();
        if elapsed < SHORTEST {
            return None;
        }
        let (begin, end) = (self.begin?, Counters::read()?);
        Some(end.since(begin, elapsed))
    }
}

impl Counters {
    fn read() -> Option<Counters> {
        let (all, own) = (fs::read_to_string("/proc/stat").ok()?, fs::read_to_string("/proc/self/stat").ok()?);
        Counters::parse(&all, &own)
    }

    /// From the contents of `/proc/stat` and `/proc/self/stat`; see `man 5 proc`.
    fn parse(all: &str, own: &str) -> Option<Counters> {
        let first = all.lines().next()?.strip_prefix("cpu ")?;
        let all: Vec<u64> = first.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; the guests that follow are counted as user time too.
        let busy =
            [0, 1, 2, 5, 6, 7].iter().filter_map(|field| all.get(*field)).fold(0u64, |a, b| a.saturating_add(*b));
        // The name of the process, in parentheses, may contain spaces. Then come state, 10 others, utime and stime.
        let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
        Some(Counters { busy, own: ticks(11)?.saturating_add(ticks(12)?) })
    }

    fn since(self, begin: Counters, elapsed: Duration) -> BusyProcessors {
        let own = self.own.saturating_sub(begin.own);
        let others = self.busy.saturating_sub(begin.busy).saturating_sub(own);
        let processors = |ticks: u64| ticks as f64 / (TICKS * elapsed.as_secs_f64());
        BusyProcessors { own: processors(own), others: processors(others) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_others_is_busy_time_without_the_own() {
        let own = |utime: u64| format!("7 (a ) name) R 1 7 7 0 -1 0 0 0 0 0 {utime} 5 0 0 20 0 1 0 9");
        let all = |user: u64, steal: u64| format!("cpu  {user} 1 10 900 3 2 4 {steal} 50 0\ncpu0 1 2 3\n");
        let begin = Counters::parse(&all(100, 6), &own(40)).unwrap();
        assert_eq!(begin, Counters { busy: 123, own: 45 });
        let end = Counters::parse(&all(160, 16), &own(60)).unwrap();
        let elapsed = Duration::from_millis(250);
        assert_eq!(end.since(begin, elapsed), BusyProcessors { own: 0.8, others: 2.0 });
        assert_eq!(begin.since(end, elapsed), BusyProcessors { own: 0.0, others: 0.0 });
        for (all, own) in [("", "7 (x) R"), ("cpu  1 2 3", "7 (x) R 1 2"), ("intr 1", "1 (a) R")] {
            assert_eq!(Counters::parse(all, own), None, "{all:?} {own:?}");
        }
    }

    #[test]
    fn a_moment_is_too_short_for_the_counters() {
        assert_eq!(MachineLoad::start().so_far(), None);
    }
}
