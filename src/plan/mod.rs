//! Planning: which device computes which group of operators, in which order, and what that will cost.
//!
//! Tables and graphs in, a [`Plan`] out; never an engine, a socket or a file. The same problem, seed and budget
//! give the same plan, however many threads there are.
//!
//! | module | what it does |
//! |---|---|
//! | [`problem`] | what is asked: groups, tensors, devices, links, targets |
//! | [`assemble`] | a problem from a graph and its costs |
//! | [`strategy`] | how one group is placed |
//! | [`work`] | a placement written out as jobs and pieces of tensors |
//! | [`simulate`] | when everything happens: latency and loads |
//! | [`account`] | what every device holds when: parameters, tensors, workspace, arena |
//! | [`evaluate`] | all figures of a placement, and the score that searches compare |
//! | [`flight`] | what several inputs under way hold |
//! | [`bound`] | what no placement can go below |
//! | [`fitted`] | plans for devices with too little memory, whose groups are scheduled into less |
//! | [`schedule`] | such schedules as changes of the graph |
//! | [`away`] | a schedule with tensors on another device meanwhile, as a plan of both |
//! | [`search`] | good placements: one algorithm a file |
//! | [`solve`] | bounds and searches put together; the reason where there is no plan |
//! | [`workload`] | device-placement problems of others, with their own cost models |
//! | [`file`] | what is answered: `plan.json` |
//! | [`pace`] | how far a search has come, by work and by time |
//! | [`rule`] | what a person decides of a placement: pins and bans |
//! | [`pair`] | two devices that compute one thing at a time, exactly |
//! | [`split`] | the same with groups split over several devices |
//! | [`stages`] | a plan cut into what each device can compute in one go |
//! | [`table`] | the same as rows: `plan.csv` |
//! | [`check`] | judges a plan from problem and plan alone; shares no code with the rest |

pub mod account;
pub mod assemble;
mod at;
pub mod away;
pub mod bound;
pub mod check;
pub mod evaluate;
pub mod file;
pub mod fitted;
pub mod flight;
pub mod pace;
pub mod pair;
pub mod problem;
pub mod rule;
pub mod schedule;
pub mod search;
pub mod simulate;
pub mod solve;
pub mod split;
pub mod stages;
pub mod strategy;
pub mod table;
pub mod work;
pub mod workload;

pub use file::Plan;
pub use problem::{DeviceId, GroupId, Problem, TensorIndex};
pub use strategy::Strategy;
