//! Why planning on agents gave no plan.

use edgecut_plan::{check::Violation, problem::ProblemError, solve::NoPlan};

use super::outcome::PilotError;
use crate::run::shards::ShardError;

/// See the module's head.
#[derive(Debug, thiserror::Error)]
pub enum PlanningError {
    #[error(transparent)]
    NoPlan(#[from] NoPlan),
    #[error("at what the agents took in pilot runs, {0}")]
    Missed(NoPlan),
    #[error("no plan that was found fits what the agents have left; --rehearse 0 plans by profiles alone")]
    NoRoom,
    #[error(transparent)]
    Shard(#[from] ShardError),
    #[error(transparent)]
    Pilot(#[from] PilotError),
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error(transparent)]
    Check(#[from] Violation),
}

impl PlanningError {
    /// Whether the targets cannot be met, and nothing went wrong.
    pub fn is_no_plan(&self) -> bool {
        matches!(self, PlanningError::NoPlan(_) | PlanningError::Missed(_) | PlanningError::NoRoom)
    }
}
