//! Searches for good placements: one algorithm a file, all on one [`Session`].
//!
//! Uses `problem` and `judge`.
//!
//! | module | algorithm |
//! |---|---|
//! | [`baseline`] | everything on one device; each group on its fastest device |
//! | [`beam`] | beam search over list schedules; exact on chains |
//! | [`chain_partition`] | contiguous segments of program order with balanced loads, for throughput |
//! | [`branch_and_bound`] | all placements and orders, on small problems |
//! | `integer` | a mixed-integer program: its optimum, or a lower bound (feature `exact`) |
//! | [`anneal`] | simulated annealing from the best placement so far |
//!
//! | module | shared by them |
//! |---|---|
//! | [`solve`] | bounds and searches combined |
//! | [`session`] | the incumbent, the bound, the budget |
//! | [`options`] | seed, budget and time limit |
//! | [`deadline`] | the progress of a search, by work and by time |
//! | [`stop`] | a request to give out the best plan so far |
//! | [`order`] | topological orders: upward rank, minimum memory |
//! | [`fast_evaluator`] | the score of a placement |
//! | [`incremental`] | the times of a placement after a move |
//!
//! Work is counted in evaluations of placements: the same problem, seed and budget give the same plan, and the time limit
//! only cuts off.

mod anneal;
pub mod baseline;
mod beam;
mod branch_and_bound;
mod chain_partition;
pub mod deadline;
pub mod fast_evaluator;
pub mod incremental;
#[cfg(feature = "exact")]
pub mod integer;
pub mod options;
pub mod order;
pub mod session;
pub mod solve;
pub mod stop;

pub use options::Options;
pub use session::Session;

/// Runs every algorithm that suits the problem.
pub fn run(session: &mut Session<'_>) {
    baseline::search(session);
    beam::search(session);
    chain_partition::search(session);
    branch_and_bound::search(session);
    #[cfg(feature = "exact")]
    integer::search(session);
    anneal::search(session);
}
