//! The answer to a workload for an objective, checked.

use std::fmt;

use serde::Deserialize;

use super::{
    PlacementError, PlacementOptions, PlacementSolution, PlacementWorkload,
    check::{self, PlacementViolation},
    latency, throughput,
};

/// What to minimize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The largest load of a device.
    Throughput,
    /// The time until one sample is finished.
    #[default]
    Latency,
}

/// How hard to search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SolveOptions {
    pub seed: u64,
    /// Moves to try, however long they take; without it the default number, cut off after seconds.
    pub budget: Option<u64>,
}

/// Why no solution is returned.
#[derive(Debug, thiserror::Error)]
pub enum SolveError {
    #[error(transparent)]
    NoAnswer(#[from] PlacementError),
    #[error("the assignment does not pass its check: {0}")]
    Check(#[from] PlacementViolation),
}

/// Searches an assignment and checks it.
///
/// # Errors
/// If no assignment keeps within the memory, or the one that was found does not pass the independent check.
pub fn solve(
    workload: &PlacementWorkload,
    objective: Objective,
    options: &SolveOptions,
) -> Result<PlacementSolution, SolveError> {
    let mut search = PlacementOptions { seed: options.seed, ..PlacementOptions::default() };
    if let Some(budget) = options.budget {
        search = PlacementOptions { budget, cut_off: None, ..search };
    }
    let answer = match objective {
        Objective::Throughput => {
            let answer = throughput::solve(workload, &search)?;
            check::throughput(workload, &answer)?;
            answer
        }
        Objective::Latency => {
            let answer = latency::solve(workload, &search)?;
            check::latency(workload, &answer)?;
            answer
        }
    };
    Ok(answer)
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Objective::Throughput => "throughput",
            Objective::Latency => "latency",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::file::Operator;

    fn workload(accelerators: u32, cpus: u32) -> PlacementWorkload {
        let operator = |id| Operator {
            id,
            on_accelerator: true,
            cpu_time: 10.0,
            accelerator_time: 4.0,
            size: 1.0,
            is_backward: false,
            colour: None,
            transfer: 0.0,
        };
        PlacementWorkload {
            operators: vec![operator(0), operator(1)],
            edges: vec![(0, 1)],
            accelerators,
            cpus,
            memory: 1.0,
        }
    }

    #[test]
    fn both_objectives_are_answered_with_a_bound() {
        let options = SolveOptions { seed: 0, budget: Some(1000) };
        for (objective, value) in [(Objective::Throughput, 4.0), (Objective::Latency, 8.0)] {
            let answer = solve(&workload(2, 0), objective, &options).unwrap();
            assert_eq!((answer.objective, answer.gap()), (value, 0.0), "{objective}");
        }
    }

    #[test]
    fn too_little_memory_has_no_answer() {
        let result = solve(&workload(1, 0), Objective::Throughput, &SolveOptions::default());
        assert!(matches!(result, Err(SolveError::NoAnswer(PlacementError::Memory { .. }))), "{result:?}");
    }
}
