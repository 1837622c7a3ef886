//! Errors of planning, in terms of the options.

use edgecut_graph::units::Bytes;
use edgecut_plan::{
    NoPlan,
    adopt::AdoptError,
    moved::MoveError,
    no_plan::{Nearest, Shortage},
};

use super::options::PlanOptions;
use crate::{Error, pilot::PlanningError, request::RequestError};

/// Factor by which proposed targets are looser than the nearest plan.
pub(super) const ROOM: f64 = 1.02;

impl PlanOptions {
    /// Converts an error of planning on agents.
    pub(super) fn planning_error(&self, error: PlanningError) -> Error {
        match error.is_no_plan() {
            true => self.no_plan(&error.to_string(), error.no_plan()),
            false if error.is_of_agent() => Error::agent(error),
            false => Error::failed(error),
        }
    }

    /// Converts an error of making a request.
    pub(super) fn request_error(&self, error: RequestError) -> Error {
        match (error, &self.like) {
            (RequestError::Like(error), Some(path)) => {
                Error::BadInput(format!("option `like={}`: {error}", path.display()).into())
            }
            (RequestError::Network(error), _) => Error::failed(error),
            (error, _) => Error::bad_input(error),
        }
    }

    /// Converts an error of moving groups.
    pub(super) fn move_error(&self, error: MoveError) -> Error {
        match (error, &self.like) {
            (MoveError::Adopt(AdoptError::NoPlan(why)), _) => self.no_plan(&why.to_string(), Some(&why)),
            (error @ (MoveError::Adopt(_) | MoveError::Scheduled { .. }), Some(path)) => {
                Error::BadInput(format!("option `like={}`: {error}", path.display()).into())
            }
            (error, _) => Error::bad_input(error),
        }
    }

    /// The error that there is no plan. It lists the options that would accept the nearest plan.
    pub fn no_plan(&self, what: &str, why: Option<&NoPlan>) -> Error {
        let accepting = why.and_then(NoPlan::nearest).map(|nearest| self.accepting(nearest)).unwrap_or_default();
        let nearest = match accepting.is_empty() {
            true => String::new(),
            false => format!("\n{} accepts the nearest plan", accepting.join(", ")),
        };
        Error::NoPlan(format!("{what}{nearest}").into())
    }

    /// The target options, loosened so that they accept `nearest`. Empty if it exceeds a limit that no option sets.
    fn accepting(&self, nearest: &Nearest) -> Vec<String> {
        let targets = nearest.accepting(&self.targets());
        let is_over = |limit: Option<Bytes>| limit.is_some_and(|limit| nearest.memory > limit);
        let is_short = nearest.shortages.iter().any(Shortage::is_of_memory);
        if is_short && !is_over(self.memory) {
            return Vec::new();
        }
        // Rounded and loosened, so that the printed options also accept the plan in a later call.
        let latency = targets.latency.filter(|latency| self.latency.is_some_and(|target| *latency > target));
        let latency = latency.map(|latency| format!("option `latency={}us`", (latency.0 * ROOM).ceil()));
        let rate = targets.throughput.filter(|rate| self.throughput.is_some_and(|target| *rate < target));
        let rate = rate.map(|rate| format!("option `throughput={:.3}`", rate / ROOM));
        let memory = is_over(self.memory).then(|| format!("option `memory={}KiB`", nearest.memory.0.div_ceil(1 << 10)));
        latency.into_iter().chain(rate).chain(memory).collect()
    }
}
