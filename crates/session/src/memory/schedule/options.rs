//! Options of schedules.

use std::path::PathBuf;

pub use edgecut_memory::target::Limit;
use edgecut_memory::{remat::RematOptions, target::Target};
use serde::Deserialize;

use crate::{
    Error,
    ineffective::GivenOption,
    memory::{effort::steps, subject::SubjectOptions},
    option_values,
};

/// Default number of schedule steps that are tried, in millions, at least.
const EFFORT: u64 = 100;
/// Steps for each pair of operators, if that is more: both the steps of a schedule and the moves that it has grow with
/// the number of operators.
const STEPS_PER_PAIR: u64 = 400;
/// Millions of steps at most.
const MAX_EFFORT: u64 = 1000;
/// Maximum number of seeds.
const MAX_SEEDS: u64 = 1000;

/// What a schedule must keep, and how it is searched. Without a target, all schedules are found that no other one beats
/// in peak and time.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleOptions {
    /// How a model is read, and rules for placing its tensors.
    pub subject: SubjectOptions,
    /// Find the fastest schedule within this peak: a size such as `64MiB`, or a share of the original such as `40%`.
    #[serde(deserialize_with = "option_values::optional")]
    pub limit: Option<Limit>,
    /// Find the smallest schedule within this multiple of the original time.
    pub slowdown: Option<f64>,
    /// Run the schedule of a model, and compare results, memory and time with the model's. Without a target, the schedule
    /// keeps a slowdown of 1.1.
    pub run: bool,
    /// A cluster file. Tensors may wait on the nearest other server, at the link's cost, and the schedule runs on both.
    pub cluster: Option<PathBuf>,
    /// Seed of the search. The same seed and effort give the same result.
    pub seed: u64,
    /// Search a graph from this number of seeds, if there is a target.
    pub seeds: Option<u64>,
    /// Millions of schedule steps to try. By default, 100, and more above 500 operators; 20 take about 1 s.
    pub effort: Option<u64>,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        let SearchOptions { seed, effort } = SearchOptions::default();
        ScheduleOptions {
            subject: SubjectOptions::default(),
            limit: None,
            slowdown: None,
            run: false,
            cluster: None,
            seed,
            seeds: None,
            effort,
        }
    }
}

/// How schedules are searched.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchOptions {
    /// Seed of the search. The same seed and effort give the same result.
    pub seed: u64,
    /// Millions of schedule steps to try. By default, 100, and more above 500 operators; 20 take about 1 s.
    pub effort: Option<u64>,
}

impl Default for SearchOptions {
    fn default() -> SearchOptions {
        SearchOptions { seed: 1, effort: None }
    }
}

impl SearchOptions {
    /// The search's options for a graph of this size.
    pub(super) fn of_graph(&self, operators: usize) -> RematOptions {
        let pairs = (operators as u64).saturating_pow(2);
        let default = (pairs.saturating_mul(STEPS_PER_PAIR) / 1_000_000).clamp(EFFORT, MAX_EFFORT);
        RematOptions { seed: self.seed, budget: steps(self.effort, default), cut_off: None }
    }
}

impl ScheduleOptions {
    /// Checks the ranges of values, and that the options can be used together.
    ///
    /// # Errors
    /// If a value is out of range, or there are two targets.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.subject.check()?;
        let bad = |what: String| Err(Error::BadInput(what.into()));
        if self.limit.is_some() && self.slowdown.is_some() {
            return bad("option `limit` has no effect with option `slowdown`".to_string());
        }
        if let Some(factor) = self.slowdown.filter(|factor| !(*factor >= 1.0 && factor.is_finite())) {
            return bad(format!("option `slowdown={factor}`: expected a factor of 1 or more"));
        }
        if let Some(count) = self.seeds.filter(|count| !(1..=MAX_SEEDS).contains(count)) {
            return bad(format!("option `seeds={count}`: expected a number from 1 to {MAX_SEEDS}"));
        }
        Ok(())
    }

    /// The target, if one was given.
    pub(super) fn target(&self) -> Option<Target> {
        self.limit.map(Target::Limit).or(self.slowdown.map(Target::Slowdown))
    }

    pub(super) fn search(&self) -> SearchOptions {
        SearchOptions { seed: self.seed, effort: self.effort }
    }

    /// The options on where a schedule of a model is executed.
    pub(super) fn of_execution(&self) -> [GivenOption; 2] {
        [("run", self.run), ("cluster", self.cluster.is_some())]
    }

    pub(super) fn of_seeds(&self) -> GivenOption {
        ("seeds", self.seeds.is_some())
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::units::Bytes;

    use super::*;

    #[test]
    fn options_are_read_and_checked() {
        let read = |text| option_values::read::<ScheduleOptions>(text).unwrap();
        assert_eq!(read("{}").target(), None);
        assert_eq!(read(r#"{"limit": "1KiB"}"#).target(), Some(Target::Limit(Limit::Bytes(Bytes(1024)))));
        assert_eq!(read(r#"{"slowdown": 1.5}"#).target(), Some(Target::Slowdown(1.5)));
        assert!(read(r#"{"limit": "40%", "seeds": 3, "subject": {"align": 1}}"#).check().is_ok());
        for text in [r#"{"limit": "40%", "slowdown": 2}"#, r#"{"slowdown": 0.5}"#, r#"{"seeds": 0}"#] {
            assert!(read(text).check().is_err(), "{text}");
        }
    }
}
