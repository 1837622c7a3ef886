//! Tuning constants of replanning and pilot runs.

use std::time::Duration;

use edgecut_graph::units::Micros;

/// Limits and thresholds of replanning and pilot runs. [`PilotOptions::default`] is tuned on clusters of two to four
/// servers with one CPU each.
#[derive(Debug, Clone, PartialEq)]
pub struct PilotOptions {
    /// Number of rounds of pilot runs: each runs new candidates, the last one the finalists. 0: no pilot runs.
    pub rounds: usize,
    /// Maximum number of times that a plan is recomputed after its shards were measured, without pilot runs.
    pub replans: usize,
    /// The same before pilot runs, which measure shards more accurately.
    pub replans_before_pilots: usize,
    /// With all shards measured, maximum number of times that the search continues from its result.
    pub continuations: usize,
    /// It continues only if the objective's value fell below this fraction of the previous value.
    pub continuation_gain: f64,

    /// Minimum number of recomputations before replanning ends because estimates promise less than `continuation_gain`.
    pub min_replans: usize,
    /// Time before replanning ends so, and before limits on memory give no reason for another search. Until then a plan that is
    /// made again is the same.
    pub patience: Duration,
    /// The part of a time limit after which the search before pilot runs, or before a front, ends: what follows needs the rest.
    /// Also the part of the remaining time that each search within lowered memory limits gets.
    pub search_share: f64,

    /// Target duration of one pilot run; its number of inferences is clamped to the range below.
    pub run_time: Micros,
    pub min_repeats: u64,
    pub max_repeats: u64,
    /// A run slower than predicted by more than this factor is repeated; the fastest counts.
    pub surprise: f64,
    /// Maximum number of runs of a candidate that is slower than predicted.
    pub max_attempts: usize,

    /// Number of finalists, in addition to the best candidate on a single device.
    pub finalists: usize,
    /// Number of runs of each finalist; they are interleaved.
    pub turns: usize,
    /// A candidate slower than the fastest by more than this factor is not a finalist.
    pub finalist_slowdown: f64,
    /// Minimum speed-up of a plan with several devices over the best single device.
    pub second_device_gain: f64,
    /// Number of devices, fastest first, that are tried as the only device.
    pub single_devices: usize,
    /// A search for a further candidate gets 1/`side_search_part` of the evaluations.
    pub side_search_part: u32,

    /// Maximum number of candidates planned with lowered limits when agents refuse all others for lack of memory.
    pub memory_steps: usize,
    /// Number of iterations that adjust the slowdown under contention: another device may become the busiest.
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
            min_replans: 10,
            patience: Duration::from_secs(120),
            search_share: 0.5,
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
            memory_steps: 12,
            contention_steps: 4,
        }
    }
}

impl PilotOptions {
    /// No pilot runs: plans by profiles and measured shards.
    pub fn none() -> PilotOptions {
        PilotOptions { rounds: 0, search_share: 1.0, ..PilotOptions::default() }
    }

    /// Nothing is measured or run: plans by profiles alone.
    pub fn estimates_only() -> PilotOptions {
        PilotOptions { replans: 0, replans_before_pilots: 0, ..PilotOptions::none() }
    }

    /// Maximum number of recomputations of a plan: before pilot runs, if there are any.
    pub(crate) fn replans(&self) -> usize {
        if self.rounds > 0 { self.replans_before_pilots } else { self.replans }
    }
}
