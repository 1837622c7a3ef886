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
pub use front::{Front, Point};
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

/// The steps that a choice stands for.
pub fn steps(program: &Program, choice: &Choice) -> Option<Vec<Step>> {
    let mut unfold = Unfold::new(program);
    unfold.figures(choice, u64::MAX)?;
    Some(unfold.steps)
}
