//! From a request to the best candidate.
//!
//! Uses every layer but `what_if`.
//!
//! | module | |
//! |---|---|
//! | [`planner`] | [`plan`](planner::plan), and the nearest candidate where there is no plan |

pub mod planner;
