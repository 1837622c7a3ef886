//! The independent checker of plans: it derives everything from the problem and the plan alone, and shares no code with the
//! searches, the simulator or the memory account.
//!
//! A plan is valid if
//! - every group is on one device that can run it, and in that device's order;
//! - every group starts exactly when its device is idle and all its operands are available, and takes its cost and what
//!   the transfers of its device take of it meanwhile;
//! - there is one transfer for each tensor and device that reads but does not produce it, and for each result that is not
//!   produced on the sink; it takes the time that its link takes for its size;
//! - every link carries one transfer at a time, first come first served, and never idles with a request;
//! - latency, interval between results (with the inputs in flight) and memory are those that these times imply;
//! - where the power of devices is known, the energy is idle power · latency and power · cost of every group;
//! - limits and targets are met, and the bound is not above the value.
//!
//! Times that derive from each other are compared to a relative 10⁻⁹, everything else exactly.
//!
//! | module | checks |
//! |---|---|
//! | `checker` | devices and orders |
//! | `timing` | starts, transfers, latency, loads |
//! | `memory` | parameters, peak, arena |
//! | `energy` | idle power, energy of groups and of the run |
//! | `targets` | limits, targets, bound |
//! | `rules` | pins and bans |

mod checker;
mod energy;
mod memory;
mod rules;
mod targets;
mod timing;
mod violation;

pub use rules::rules;
pub use violation::Violation;

use crate::{plan_file::file::Plan, problem::Problem};
use checker::Checker;

/// Checks `plan` against `problem`.
///
/// # Errors
/// The first violation that is found.
pub fn plan(problem: &Problem, plan: &Plan) -> Result<(), Violation> {
    let checker = Checker::new(problem, plan)?;
    let arrivals = checker.transfers()?;
    checker.starts(&arrivals)?;
    checker.links()?;
    checker.figures()?;
    checker.memory(&arrivals)?;
    checker.energy()?;
    checker.targets()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judge::no_plan::NoPlan,
        plan_file::file::{Granularity, ModelRef},
        search::{options::Options, solve::solve},
        test_problems::random,
    };
    use edgecut_graph::units::Bytes;

    /// Whatever is planned under memory limits passes the checker and keeps them with its arenas; else the reason is given.
    #[test]
    fn plans_keep_memory_limits() {
        let (mut planned, mut refused) = (0, 0);
        for seed in 0..60 {
            let mut problem = random(seed, 4 + seed as u32 % 12, 2 + seed as u32 % 2);
            let total: Bytes = problem.parameters.iter().copied().sum();
            let limit = Bytes((total.0 + 3000) * (2 + seed % 9) / 10);
            problem.devices.iter_mut().for_each(|device| device.memory = Some(limit));
            match solve(&problem, &Options { seed, budget: Some(300), cut_off: None, ..Options::default() }) {
                Ok(solution) => {
                    let written = Plan::new(&problem, &solution, ModelRef::default(), Granularity::Op, seed);
                    assert_eq!(plan(&problem, &written), Ok(()), "seed {seed}");
                    for device in &written.devices {
                        assert!(device.memory.parameter_bytes + device.memory.arena_bytes <= limit, "seed {seed}");
                    }
                    planned += 1;
                }
                Err(NoPlan::Targets { shortages, .. }) => {
                    assert!(!shortages.is_empty(), "seed {seed}");
                    refused += 1;
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        assert!(planned > 0 && refused > 0, "{planned} planned, {refused} refused: the limits test nothing");
    }
}
