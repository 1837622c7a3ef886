//! Makes a program fit into less memory: by another order, by making values again, and by copying them to the host.
//!
//! | module | what it does |
//! |---|---|
//! | [`Choice`] | what is decided: the order, and how every value comes to be there when it is read |
//! | [`Unfold`] | the steps that follow from a choice, their time and memory |
//! | `candidates` | changes that may lower the memory at the fullest step |
//! | `search` | greedy descent and local search |
//! | [`Front`] | the best schedules found: for every peak the least time |

mod candidates;
mod choice;
mod front;
mod search;
mod unfold;

use std::time::Instant;

pub use choice::{Choice, Mode, Transfer};
pub use front::{Front, Point, unbeaten};
pub use unfold::{Figures, Step, Unfold};

use super::program::Program;

/// How much to search.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub seed: u64,
    /// Steps of schedules to look at.
    pub budget: u64,
    /// When to stop in any case; results then depend on the machine.
    pub cut_off: Option<Instant>,
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    pub front: Front,
    /// Schedules looked at.
    pub evaluated: u64,
}

/// The front of peak and time of a program.
pub fn fit(program: &Program, options: &Options) -> Found {
    let mut unfold = Unfold::new(program);
    let mut front = Front::default();
    let mut search = search::Search::new(&mut unfold, &mut front, options.seed, options.budget);
    search.cut_off = options.cut_off;
    search.run();
    let evaluated = search.evaluated;
    Found { front, evaluated }
}

/// The fronts of several programs that compute the same, the first of which gets this part of the budget and the others
/// equal parts of the rest; and how many schedules were looked at.
pub fn fit_variants(programs: &[&Program], first: f64, options: &Options) -> (Vec<Front>, u64) {
    let others = programs.len().saturating_sub(1);
    let mut evaluated = 0;
    let fronts = programs.iter().enumerate().map(|(index, program)| {
        let share = match (index, others) {
            (0, 0) => 1.0,
            (0, _) => first,
            _ => (1.0 - first) / others as f64,
        };
        let budget = (options.budget as f64 * share) as u64;
        let found = fit(program, &Options { budget, ..*options });
        evaluated += found.evaluated;
        found.front
    });
    (fronts.collect(), evaluated)
}

/// The steps that a choice stands for.
pub fn steps(program: &Program, choice: &Choice) -> Option<Vec<Step>> {
    let mut unfold = Unfold::new(program);
    unfold.figures(choice, u64::MAX)?;
    Some(unfold.steps)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::memory::program::{Operator, Value};

    #[test]
    fn what_is_needed_again_is_held() {
        // Twice: something of 10 bytes swells to 30 and more on the way to 2 bytes that join it.
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
            program.operators.push(Operator { time: 1.0, reads, writes, repeatable: true, ..Operator::default() });
            let (producer, result) = (Some(index), index == 8);
            program.values.push(Value { bytes, producer, result, replaces: None, storage: index });
        }
        let found = fit(&program, &Options { seed: 1, budget: 100_000, cut_off: None });
        // The first 2 bytes lie beside the second swell, so that the first one is not gone through again.
        let least = &found.front.points()[0];
        assert_eq!((least.peak, least.time), (36, 12.0));
        assert_eq!(steps(&program, &least.choice).map(|steps| steps.len()), Some(12));
    }
}
