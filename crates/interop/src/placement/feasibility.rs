//! Necessary conditions for a feasible assignment, checked before any search.

use super::{PlacementError, PlacementWorkload, bundles::Bundles};

/// Checks that each bundle fits an accelerator, and that all of them fit together. CPUs compute every operator and have no
/// limit.
pub fn check_feasible(workload: &PlacementWorkload, problem: &Bundles) -> Result<(), PlacementError> {
    if problem.cpus > 0 {
        return Ok(());
    }
    for bundle in &problem.bundles {
        let operators = workload.ids(&bundle.operators);
        if !bundle.on_accelerator {
            return Err(PlacementError::NoDevice { operators });
        }
        if bundle.size > problem.memory {
            return Err(PlacementError::TooLarge { operators, need: bundle.size, limit: problem.memory });
        }
    }
    let need: f64 = problem.bundles.iter().map(|b| b.size).sum();
    let room = problem.memory * problem.accelerators as f64;
    if need > room {
        return Err(PlacementError::Memory { need, room, count: workload.accelerators });
    }
    Ok(())
}
