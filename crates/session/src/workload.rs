//! Device-placement workloads in the JSON of Tarnawski et al., placed under their cost models.

use std::{collections::BTreeMap, path::Path};

pub use edgecut_interop::placement::solve::Objective;
use edgecut_interop::placement::{
    PlacementSolution, PlacementWorkload,
    solve::{SolveError, SolveOptions, solve},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    file_kind::{self as kind, FileKind},
    input,
};

/// What is optimised, and for how long.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadOptions {
    pub objective: Objective,
    /// The same seed and budget give the same assignment.
    pub seed: u64,
    /// Moves to try, without a time limit. By default, 12 million within 8 s.
    pub budget: Option<u64>,
}

/// The best assignment found of a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Assignment {
    pub objective: f64,
    /// No assignment has a smaller objective.
    pub bound: f64,
    pub gap: f64,
    pub bound_by: &'static str,
    pub assignment: Vec<PlacedOperator>,
    /// By device that is used.
    #[serde(skip)]
    pub devices: BTreeMap<String, DeviceLoad>,
}

/// One operator of an assignment.
#[derive(Debug, Clone, Serialize)]
pub struct PlacedOperator {
    pub id: i64,
    pub device: String,
}

/// The operators on one device.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceLoad {
    pub operators: usize,
    /// In the unit of the workload.
    pub computing: f64,
}

/// Places the operators of the workload in `file` on its accelerators and CPUs.
///
/// # Errors
/// If the file is no workload, or no assignment was found that keeps the limits.
pub fn place(file: &Path, options: &WorkloadOptions) -> Result<Assignment, Error> {
    let text = input::read(file)?;
    let workload = PlacementWorkload::from_json(&text)
        .map_err(|error| kind::mismatch_error(file, &text, FileKind::Workload, error))?;
    let search = SolveOptions { seed: options.seed, budget: options.budget };
    let solution = solve(&workload, options.objective, &search).map_err(|error| match error {
        SolveError::NoAnswer(_) => Error::NoPlan(error.to_string().into()),
        SolveError::Check(_) => Error::failed(error),
    })?;
    Ok(Assignment::of(&workload, &solution))
}

impl Assignment {
    fn of(workload: &PlacementWorkload, solution: &PlacementSolution) -> Assignment {
        let mut devices: BTreeMap<String, DeviceLoad> = BTreeMap::new();
        let mut assignment = Vec::new();
        for (operator, place) in workload.operators.iter().zip(&solution.places) {
            let device = place.to_string();
            let time = if device.starts_with("acc") { operator.accelerator_time } else { operator.cpu_time };
            let load = devices.entry(device.clone()).or_default();
            (load.operators, load.computing) = (load.operators + 1, load.computing + time);
            assignment.push(PlacedOperator { id: operator.id, device });
        }
        Assignment {
            objective: solution.objective,
            bound: solution.bound,
            gap: solution.gap(),
            bound_by: solution.bound_by,
            assignment,
            devices,
        }
    }
}
