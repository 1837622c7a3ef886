//! What is asked of a plan.

use super::{choice::Halo, ratios::Ratios};
use crate::{
    plan_file::file::Split,
    problem::{Objective, Targets},
    search::options::Options,
};

/// See the module's head. The default is the lowest latency without targets.
#[derive(Debug, Clone)]
pub struct Goal {
    pub objective: Objective,
    pub targets: Targets,
    /// In which ratio the devices of a split group share it.
    pub ratios: Ratios,
    /// How shards get their halos; `None` leaves that to the search.
    pub halo: Option<Halo>,
    /// Splits of another plan, over these devices: then just these groups are split.
    pub like: Option<Vec<Split>>,
    /// Whether a plan that exceeds a memory limit may be replaced by one made for the limit, with schedules if need be.
    pub fits_memory: bool,
    pub search: Options,
}

impl Default for Goal {
    fn default() -> Goal {
        Goal {
            objective: Objective::default(),
            targets: Targets::default(),
            ratios: Ratios::default(),
            halo: None,
            like: None,
            fits_memory: true,
            search: Options::default(),
        }
    }
}

impl Goal {
    /// Whether the planner chooses what is split and in which ratio, and may compare other candidates.
    pub fn is_free(&self) -> bool {
        self.ratios == Ratios::Tuned && self.like.is_none()
    }
}
