//! The input of the planner: the instance, which is what is known, and the goal, which is what is asked.
//!
//! A request is pure data. It is independent of whether its costs were read from files or measured by agents; new
//! measurements make a new request. Code that talks to agents is in `session::pilot`, above this crate.
//!
//! Uses `problem`, `plan_file` for the types that the plan file shares with it, and the options of `search`.
//!
//! | module | what it does |
//! |---|---|
//! | [`instance`] | a model in groups, devices and links, costs of groups and shards |
//! | [`goal`] | objective, targets, what is given of splits, options of the search |
//! | [`options`] | along which axes a group can be split, all its operators alike |
//! | [`split_option`] | one of these ways: what shards read, and what their results are |
//! | `alignment` | options aligned to the grains of adjacent groups |
//! | [`choice`] | which option a group takes, in which ratio |
//! | [`costs`] | what a shard costs, given what the whole costs |
//! | [`ratios`] | ratios by rules that are common elsewhere, to compare with |
//! | [`shard_graphs`] | shards cut out, to be measured |
//! | [`expand`] | a problem in which the shards are groups, with what they exchange |
//! | `pieces` | shares of devices in several shards, the borders first |

mod alignment;
pub mod choice;
pub mod costs;
pub mod expand;
pub mod goal;
pub mod instance;
pub mod options;
pub mod pieces;
pub mod ratios;
pub mod shard_graphs;
pub mod split_option;

use std::sync::Arc;

use self::{costs::ShardCosts, goal::Goal, instance::Instance};
use crate::search::stop::Stop;

/// See the module's head. Requests for other goals share the instance: searches make many, and its tables are large.
#[derive(Debug, Clone)]
pub struct PlanRequest<'a> {
    pub instance: Arc<Instance<'a>>,
    pub goal: Goal,
}

impl<'a> PlanRequest<'a> {
    pub fn new(instance: Instance<'a>, goal: Goal) -> PlanRequest<'a> {
        PlanRequest { instance: Arc::new(instance), goal }
    }

    /// The same for another goal.
    pub fn with_goal(&self, goal: Goal) -> PlanRequest<'a> {
        PlanRequest { instance: Arc::clone(&self.instance), goal }
    }

    /// The same with no group split.
    pub fn unsplit(&self) -> PlanRequest<'a> {
        PlanRequest::new(self.instance.unsplit(), self.goal.clone())
    }

    /// The same with other costs of shards.
    pub fn with_shards(&self, shards: ShardCosts) -> PlanRequest<'a> {
        PlanRequest::new(Instance { shards, ..Instance::clone(&self.instance) }, self.goal.clone())
    }

    /// The same with one of `parts` equal parts of the evaluations, and of the time.
    pub fn with_part(&self, parts: u32) -> PlanRequest<'a> {
        let search = self.goal.search.part(parts, self.instance.names.len());
        self.with_goal(Goal { search, ..self.goal.clone() })
    }

    /// The same, stopped by `stop`.
    pub fn with_stop(&self, stop: Stop) -> PlanRequest<'a> {
        let mut request = self.clone();
        request.goal.search.stop = stop;
        request
    }

    /// The instance, to change it for this request alone.
    pub fn instance_mut(&mut self) -> &mut Instance<'a> {
        Arc::make_mut(&mut self.instance)
    }

    /// Whether devices that are short of memory may follow schedules that need less.
    pub fn may_schedule(&self) -> bool {
        self.goal.is_free() && self.goal.fits_memory && self.instance.is_limited()
    }
}
