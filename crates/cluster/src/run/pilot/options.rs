//! The tuned constants of replanning and pilot runs.

use edgecut_graph::units::Micros;

/// How many pilot runs there are, how long they take, and how their times are read. [`PilotOptions::default`] is tuned
/// on clusters of two to four servers with one CPU each.
#[derive(Debug, Clone, PartialEq)]
pub struct PilotOptions {
    /// Rounds of pilot runs: each runs new candidates, the last one the finalists. 0 plans by profiles alone.
    pub rounds: usize,
    /// How often a plan is made again after its shards were measured: without and with pilot runs, which measure shards
    /// better.
    pub replans: usize,
    pub replans_before_pilots: usize,
    /// With all shards measured the search continues from its result, this many times at most, while the objective's
    /// value falls below this fraction of the value before.
    pub continuations: usize,
    pub continuation_gain: f64,

    /// The inferences of one pilot run take about this much time together, within these numbers of inferences.
    pub run_time: Micros,
    pub min_repeats: u64,
    pub max_repeats: u64,
    /// A run slower than predicted by this factor is repeated, up to this many runs; the fastest counts.
    pub surprise: f64,
    pub max_attempts: usize,

    /// Candidates compared in the end, in addition to the best one on a single device, and the runs of each. A
    /// candidate slower than the fastest by more than this factor is not compared.
    pub finalists: usize,
    pub turns: usize,
    pub finalist_slowdown: f64,
    /// What a second device must gain, as a factor of the time on one device.
    pub second_device_gain: f64,
    /// Of the devices that are fastest alone this many are tried as the only device.
    pub single_devices: usize,
    /// A search for one of the additional candidates gets this part (one over it) of all evaluations.
    pub side_search_part: u32,

    /// If no candidate fits the memory that agents have left, candidates are planned for limits smaller by this
    /// fraction, doubled each time, this many times.
    pub memory_reserve: f64,
    pub memory_reserve_steps: i32,
    /// How often the slowdown of computations under contention is adjusted, because another device may become the
    /// busiest.
    pub contention_steps: usize,
}

impl Default for PilotOptions {
    fn default() -> PilotOptions {
        PilotOptions {
            rounds: 3,
            replans: 24,
            replans_before_pilots: 2,
            continuations: 4,
            continuation_gain: 0.995,
            run_time: Micros(1e6),
            min_repeats: 8,
            max_repeats: 40,
            surprise: 1.1,
            max_attempts: 3,
            finalists: 3,
            turns: 3,
            finalist_slowdown: 1.2,
            second_device_gain: 1.03,
            single_devices: 3,
            side_search_part: 4,
            memory_reserve: 0.01,
            memory_reserve_steps: 3,
            contention_steps: 4,
        }
    }
}

impl PilotOptions {
    /// No pilot runs: plans by profiles and measured shards.
    pub fn none() -> PilotOptions {
        PilotOptions { rounds: 0, ..PilotOptions::default() }
    }

    /// Nothing is measured or run: plans by profiles alone.
    pub fn estimates_only() -> PilotOptions {
        PilotOptions { rounds: 0, replans: 0, replans_before_pilots: 0, ..PilotOptions::default() }
    }

    /// How often a plan is made again before pilot runs, if there are any.
    pub(crate) fn replans(&self) -> usize {
        if self.rounds > 0 { self.replans_before_pilots } else { self.replans }
    }
}
