//! Why there is no plan, in terms of the options.

use edgecut_cluster::run::{pilot::PlanningError, request::RequestError};
use edgecut_graph::units::Bytes;
use edgecut_plan::{
    NoPlan,
    moved::MoveError,
    no_plan::{Nearest, Shortage},
};

use super::options::PlanOptions;
use crate::Error;

/// How much looser than the nearest plan the targets are that are proposed for it.
const ROOM: f64 = 1.02;

impl PlanOptions {
    /// Why planning on agents failed.
    pub(super) fn planning_error(&self, error: PlanningError) -> Error {
        match error.is_no_plan() {
            true => self.no_plan(&error.to_string(), error.no_plan()),
            false if error.is_of_agent() => Error::agent(error),
            false => Error::failed(error),
        }
    }

    /// Why there is no request.
    pub(super) fn request_error(&self, error: RequestError) -> Error {
        match (error, &self.like) {
            (RequestError::Like(error), Some(path)) => {
                Error::BadInput(format!("option `like={}`: {error}", path.display()).into())
            }
            (RequestError::Network(error), _) => Error::failed(error),
            (error, _) => Error::bad_input(error),
        }
    }

    /// Why groups cannot be moved.
    pub(super) fn move_error(&self, error: MoveError) -> Error {
        match (error, &self.like) {
            (MoveError::NoPlan(why), _) => self.no_plan(&why.to_string(), Some(&why)),
            (error @ (MoveError::Like(_) | MoveError::Scheduled { .. } | MoveError::Foreign), Some(path)) => {
                Error::BadInput(format!("option `like={}`: {error}", path.display()).into())
            }
            (error, _) => Error::bad_input(error),
        }
    }

    /// That there is no plan, and which options would accept the nearest one.
    pub fn no_plan(&self, what: &str, why: Option<&NoPlan>) -> Error {
        let accepting = why.and_then(NoPlan::nearest).map(|nearest| self.accepting(nearest)).unwrap_or_default();
        let nearest = match accepting.is_empty() {
            true => String::new(),
            false => format!("\n{} accepts the nearest plan", accepting.join(", ")),
        };
        Error::NoPlan(format!("{what}{nearest}").into())
    }

    /// The options of targets, as loose as `nearest` needs them; empty if it misses something that no option loosens.
    fn accepting(&self, nearest: &Nearest) -> Vec<String> {
        let targets = nearest.accepting(&self.targets());
        let is_over = |limit: Option<Bytes>| limit.is_some_and(|limit| nearest.memory > limit);
        let is_short = nearest.shortages.iter().any(Shortage::is_of_memory);
        if is_short && !is_over(self.memory) {
            return Vec::new();
        }
        // Rounded so that what is printed accepts the plan, also in another minute.
        let latency = targets.latency.filter(|latency| self.latency.is_some_and(|target| *latency > target));
        let latency = latency.map(|latency| format!("option `latency={}us`", (latency.0 * ROOM).ceil()));
        let rate = targets.throughput.filter(|rate| self.throughput.is_some_and(|target| *rate < target));
        let rate = rate.map(|rate| format!("option `throughput={:.3}`", rate / ROOM));
        let memory = is_over(self.memory).then(|| format!("option `memory={}KiB`", nearest.memory.0.div_ceil(1 << 10)));
        latency.into_iter().chain(rate).chain(memory).collect()
    }
}
