//! The schedules of a model: the Pareto front of peak and time over all its variants.

use super::{unrolled_graph::UnrolledGraph, variant::Variant};
use crate::{
    remat::{FrontPoint, ScheduleDecision, ScheduleStep, expand, pareto_front},
    target::Target,
};
use edgecut_graph::units::{Bytes, Micros};

/// The result of a schedule search.
pub struct ScheduleFront {
    pub(super) variants: Vec<Variant>,
    /// Peak and time of program order with every group computed whole.
    pub original: (Bytes, Micros),
    /// Lower bound on the peak over all schedules of the variants.
    pub peak_bound: Bytes,
    /// The number of schedules evaluated.
    pub evaluated: u64,
}

/// One schedule of a front.
#[derive(Clone, Copy)]
pub struct Schedule<'a> {
    pub peak: Bytes,
    pub time: Micros,
    pub variant: &'a Variant,
    decision: &'a ScheduleDecision,
}

impl ScheduleFront {
    /// The schedules that no other one beats in both peak and time, by increasing peak.
    pub fn front<'a>(&'a self) -> Vec<Schedule<'a>> {
        let mut all: Vec<Schedule<'a>> = Vec::new();
        for variant in &self.variants {
            let points = variant.front.points().iter();
            let schedule = |p: &'a FrontPoint| Schedule { peak: p.peak, time: p.time, variant, decision: &p.decision };
            all.extend(points.map(schedule));
        }
        pareto_front(all, |schedule| (schedule.peak, schedule.time))
    }

    /// The fastest schedule with at most this peak. Monotone: a higher limit never gives a slower schedule.
    pub fn within_memory(&self, peak: Bytes) -> Option<Schedule<'_>> {
        self.front().into_iter().rev().find(|schedule| schedule.peak <= peak)
    }

    /// The schedule of minimum peak that takes at most this time. Monotone: more time never gives a higher peak.
    fn within_time(&self, time: Micros) -> Option<Schedule<'_>> {
        self.front().into_iter().find(|schedule| schedule.time <= time)
    }

    /// The best schedule that is predicted to keep a target.
    pub fn best(&self, target: Target) -> Option<Schedule<'_>> {
        let (original, time) = self.original;
        match target {
            Target::Limit(limit) => self.within_memory(limit.of(original)),
            // A slowdown of 1 allows the original time, in whatever order it was summed.
            Target::Slowdown(factor) => self.within_time(Micros(time.0 * factor * (1.0 + 1e-12))),
        }
    }

    /// The smallest peak that was found; that of program order if there are no schedules.
    pub fn smallest_peak(&self) -> Bytes {
        self.front().first().map_or(self.original.0, |schedule| schedule.peak)
    }
}

impl Schedule<'_> {
    /// The steps in order.
    pub fn steps(&self) -> Vec<ScheduleStep> {
        expand(&self.variant.lowered.program, self.decision).unwrap_or_default()
    }

    /// Indices of the variant's groups in the order in which they run, without copies to the host.
    pub fn groups(&self) -> Vec<usize> {
        let groups = &self.variant.lowered.groups;
        let group = |step: ScheduleStep| match step {
            ScheduleStep::Run(operator) => groups[operator as usize],
            ScheduleStep::Store(_) | ScheduleStep::Load(_) => None,
        };
        self.steps().into_iter().filter_map(group).collect()
    }

    /// Time and workspace of each step of [`Schedule::graph`]; zero for copies.
    pub fn costs(&self) -> Vec<(Micros, Bytes)> {
        let Variant { grouped, lowered, .. } = self.variant;
        let cost = |step: ScheduleStep| match step {
            ScheduleStep::Run(operator) => {
                lowered.groups[operator as usize].map(|at| (grouped.groups[at].time, grouped.groups[at].workspace))
            }
            ScheduleStep::Store(_) | ScheduleStep::Load(_) => Some((Micros::ZERO, Bytes::ZERO)),
        };
        self.steps().into_iter().filter_map(cost).collect()
    }

    /// The schedule as a graph.
    pub fn graph(&self) -> UnrolledGraph {
        self.variant.grouped.unroll(&self.variant.lowered, &self.steps())
    }
}
