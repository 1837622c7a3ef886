//! Why planning on agents gave no plan.

use edgecut_plan::{NoPlan, adopt::AdoptError, check::Violation, problem::ProblemError};

use super::outcome::PilotError;
use crate::request::shards::ShardError;

/// See the module's head.
#[derive(Debug, thiserror::Error)]
pub enum PlanningError {
    #[error(transparent)]
    NoPlan(#[from] NoPlan),
    #[error("at what the agents took in pilot runs, {0}")]
    Missed(NoPlan),
    /// With what an agent said last.
    #[error(
        "no plan was found that fits the memory that the agents have free (last refusal: {0}); option `rehearse=0` plans from profiles alone"
    )]
    NoRoom(String),
    /// Another plan is not of this model or these devices.
    #[error(transparent)]
    Adopt(AdoptError),
    #[error(transparent)]
    Shard(#[from] ShardError),
    #[error(transparent)]
    Pilot(#[from] PilotError),
    #[error("the plan that was found does not fit what the agents have left, and {0}")]
    LostAfterRefusal(PilotError),
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error(transparent)]
    Check(#[from] Violation),
}

impl From<AdoptError> for PlanningError {
    fn from(error: AdoptError) -> PlanningError {
        match error {
            AdoptError::NoPlan(NoPlan::Problem(error)) => PlanningError::Problem(error),
            AdoptError::NoPlan(why) => PlanningError::NoPlan(why),
            other => PlanningError::Adopt(other),
        }
    }
}

impl PlanningError {
    /// Why there is no plan, if nothing went wrong but that limits or targets are missed.
    pub fn no_plan(&self) -> Option<&NoPlan> {
        match self {
            PlanningError::NoPlan(why) | PlanningError::Missed(why) => Some(why),
            _ => None,
        }
    }

    /// Whether an agent failed or was lost.
    pub fn is_of_agent(&self) -> bool {
        match self {
            PlanningError::Shard(ShardError::Agent(_)) => true,
            PlanningError::Pilot(error) | PlanningError::LostAfterRefusal(error) => error.is_of_agent(),
            _ => false,
        }
    }

    /// Whether the targets cannot be met, and nothing went wrong.
    pub fn is_no_plan(&self) -> bool {
        matches!(self, PlanningError::NoPlan(_) | PlanningError::Missed(_) | PlanningError::NoRoom(_))
    }
}
