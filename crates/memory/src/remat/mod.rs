//! Schedules with less memory: reordering, rematerialisation, copies to the host.
//!
//! | module | contents |
//! |---|---|
//! | [`ScheduleDecision`] | an order, and how each read finds its value: kept, recomputed, copied back from the host |
//! | [`ScheduleExpander`], `execution` | the steps of a decision, with their time and memory |
//! | `precedence`, `candidates` | moves that may lower the peak |
//! | `search` | greedy descent and simulated annealing |
//! | [`ParetoFront`] | the best schedules found, over peak and time |

mod candidates;
mod execution;
mod pareto_front;
mod precedence;
mod remat_options;
mod schedule_decision;
mod schedule_expander;
mod schedule_step;
mod search;

pub use pareto_front::{FrontPoint, ParetoFront, pareto_front};
pub use remat_options::RematOptions;
pub use schedule_decision::{HostTransfer, ReadMode, ScheduleDecision};
pub use schedule_expander::ScheduleExpander;
pub use schedule_step::{ScheduleCost, ScheduleStep};

use crate::program::Program;

/// The result of a search.
#[derive(Debug, Clone, Default)]
pub struct RematResult {
    pub front: ParetoFront,
    /// The number of schedules evaluated.
    pub evaluated: u64,
}

/// Searches the Pareto front of peak and time of a program.
pub fn search_schedules(program: &Program, options: &RematOptions) -> RematResult {
    let mut expander = ScheduleExpander::new(program);
    let mut front = ParetoFront::default();
    let mut search = search::RematSearch::new(&mut expander, &mut front, options);
    search.run();
    let evaluated = search.evaluated;
    RematResult { front, evaluated }
}

/// The fronts of several programs with the same results, and the number of schedules evaluated. The first program gets
/// the share `first` of the budget, the others equal shares of the rest.
pub fn search_variants(programs: &[&Program], first: f64, options: &RematOptions) -> (Vec<ParetoFront>, u64) {
    let others = programs.len().saturating_sub(1);
    let mut evaluated = 0;
    let fronts = programs.iter().enumerate().map(|(index, program)| {
        let share = match (index, others) {
            (0, 0) => 1.0,
            (0, _) => first,
            _ => (1.0 - first) / others as f64,
        };
        let budget = (options.budget as f64 * share) as u64;
        let found = search_schedules(program, &RematOptions { budget, ..*options });
        evaluated += found.evaluated;
        found.front
    });
    (fronts.collect(), evaluated)
}

/// The steps of a decision; `None` if it needs a value that cannot be recomputed.
pub fn expand(program: &Program, decision: &ScheduleDecision) -> Option<Vec<ScheduleStep>> {
    ScheduleExpander::new(program).into_steps(decision)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::program::{Operator, Value};
    use edgecut_graph::units::{Bytes, Micros};

    #[test]
    fn values_for_recomputations_are_retained() {
        // Twice: a chain with large intermediates from 10 bytes to 2 bytes, which are then joined with the 10.
        let operators: [(&[u32], u64); 9] = [
            (&[], 10),
            (&[0], 10),
            (&[1], 20),
            (&[2], 2),
            (&[0, 3], 10),
            (&[4], 10),
            (&[5], 24),
            (&[6], 2),
            (&[4, 7], 10),
        ];
        let mut program = Program::default();
        for (index, (reads, bytes)) in (0..).zip(operators) {
            let writes = [index].into_iter().collect();
            let reads = SmallVec::from_slice(reads);
            program.operators.push(Operator {
                time: Micros(1.0),
                reads,
                writes,
                repeatable: true,
                ..Operator::default()
            });
            let (bytes, producer, result) = (Bytes(bytes), Some(index), index == 8);
            program.values.push(Value { bytes, producer, result, replaces: None, storage: index });
        }
        let found = search_schedules(&program, &RematOptions { seed: 1, budget: 100_000, cut_off: None });
        // The first 2 bytes are retained across the second chain, so that the first chain is not recomputed.
        let least = &found.front.points()[0];
        assert_eq!((least.peak, least.time), (Bytes(36), Micros(12.0)));
        assert_eq!(expand(&program, &least.decision).map(|steps| steps.len()), Some(12));
    }
}
