//! Why there is no plan: what is missed, what was proved, and what the nearest plan takes.

use super::bound::Bounds;
use crate::problem::{ProblemError, Targets};
use edgecut_graph::{
    DeviceName,
    units::{Bytes, Micros},
};

/// See the module's head.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoPlan {
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error("{}", describe(*.proven, .shortages, .nearest.as_deref()))]
    Targets {
        /// Whether a bound or a complete search says that no plan meets them; otherwise searches found none.
        proven: bool,
        /// What every plan misses if that is proved, else what the nearest one misses.
        shortages: Vec<Shortage>,
        /// The nearest plan that was found: the one that misses limits and targets by the least.
        nearest: Option<Box<Nearest>>,
    },
}

/// The figures of a plan that misses limits or targets, each next to a bound that holds for every plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Nearest {
    pub latency: Micros,
    /// Between results.
    pub interval: Micros,
    /// What the fullest device must have: parameters and arena.
    pub memory: Bytes,
    /// By device, the same.
    pub reserved: Vec<Bytes>,
    pub bounds: Bounds,
    /// What it misses.
    pub shortages: Vec<Shortage>,
}

/// One way in which limits or targets are missed. Groups are called by their [labels](crate::problem::Group::label).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Shortage {
    #[error("{group} runs on no device")]
    Unsupported { group: String },
    #[error("{group} alone needs {need}, which is {short} more than the largest memory that may run it, {device}, has")]
    Group { group: String, need: Bytes, short: Bytes, device: DeviceName },
    #[error("the parameters take {need}, which is {short} more than all memories together")]
    Parameters { need: Bytes, short: Bytes },
    #[error(
        "the chain of {groups} groups from {first} to {last} takes {length} {on}, {excess} more than the latency target of {target}"
    )]
    Chain {
        groups: usize,
        first: String,
        last: String,
        length: Micros,
        /// On which devices its groups take that long.
        on: &'static str,
        target: Micros,
        excess: Micros,
    },
    #[error("the work spread evenly takes {interval} a result, {excess} more than the target of {target}")]
    Work { interval: Micros, target: Micros, excess: Micros },
    #[error(
        "the nearest plan needs {} on {device} while {group} runs, {short} more than its limit of {limit}",
        *.limit + *.short
    )]
    Memory { device: DeviceName, group: String, short: Bytes, limit: Bytes },
    #[error("the nearest plan has a latency of {latency}, {excess} more than the target of {target}")]
    Latency { latency: Micros, target: Micros, excess: Micros },
    #[error("the nearest plan has a result every {interval}, {excess} more than the target of {target}")]
    Interval { interval: Micros, target: Micros, excess: Micros },
}

impl NoPlan {
    /// That no plan meets limits and targets, for these reasons.
    pub(crate) fn proved(shortages: Vec<Shortage>) -> NoPlan {
        NoPlan::Targets { proven: true, shortages, nearest: None }
    }

    /// The nearest plan, if one was found.
    pub fn nearest(&self) -> Option<&Nearest> {
        match self {
            NoPlan::Targets { nearest, .. } => nearest.as_deref(),
            NoPlan::Problem(_) => None,
        }
    }
}

impl Nearest {
    /// The targets that this plan would meet: those given, each as loose as it needs to be.
    pub fn accepting(&self, targets: &Targets) -> Targets {
        Targets {
            latency: targets.latency.map(|target| target.max(self.latency)),
            throughput: targets.throughput.map(|rate| rate.min(1e6 / self.interval.0.max(f64::MIN_POSITIVE))),
        }
    }
}

impl Shortage {
    /// By how much the limit or target is exceeded, relative to it.
    pub fn excess(&self) -> f64 {
        let times = |excess: &Micros, target: &Micros| excess.0 / target.0.max(f64::MIN_POSITIVE);
        let memory = |short: &Bytes, limit: Bytes| short.0 as f64 / (limit.0 as f64).max(1.0);
        match self {
            Shortage::Unsupported { .. } => f64::INFINITY,
            Shortage::Group { need, short, .. } | Shortage::Parameters { need, short } => memory(short, *need - *short),
            Shortage::Memory { short, limit, .. } => memory(short, *limit),
            Shortage::Chain { excess, target, .. }
            | Shortage::Work { excess, target, .. }
            | Shortage::Latency { excess, target, .. }
            | Shortage::Interval { excess, target, .. } => times(excess, target),
        }
    }

    /// Whether it is a target on times that is missed.
    pub fn is_of_time(&self) -> bool {
        !self.is_of_memory() && !matches!(self, Shortage::Unsupported { .. })
    }

    /// Whether it is a memory limit that is exceeded, which agents enforce.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Shortage::Group { .. } | Shortage::Parameters { .. } | Shortage::Memory { .. })
    }
}

/// Most shortages that a message lists.
const LISTED: usize = 4;

/// Between two sentences of a message: each has a line of its own.
const NEXT: &str = "\n";

fn describe(proven: bool, shortages: &[Shortage], nearest: Option<&Nearest>) -> String {
    let mut text = match proven {
        true => format!("no plan can meet the targets at these costs: {}", list(shortages)),
        false => format!("no plan that meets the targets was found: {}", list(shortages)),
    };
    let Some(nearest) = nearest else { return text };
    if proven && !nearest.shortages.is_empty() && nearest.shortages != shortages {
        text += &format!("{NEXT}{}", list(&nearest.shortages));
    }
    if !proven {
        let missed = |is_missed: fn(&Shortage) -> bool| nearest.shortages.iter().any(is_missed);
        let (latency, interval, peak) = (&nearest.bounds.latency, &nearest.bounds.interval, &nearest.bounds.peak);
        if missed(|shortage| matches!(shortage, Shortage::Latency { .. })) {
            text += &format!("{NEXT}at these costs no plan is below {} ({})", latency.value, latency.by);
        }
        if missed(|shortage| matches!(shortage, Shortage::Interval { .. })) {
            text += &format!("{NEXT}at these costs none is below {} between results ({})", interval.value, interval.by);
        }
        if missed(Shortage::is_of_memory) {
            text += &format!("{NEXT}no plan needs less than {} on its fullest device ({})", peak.value, peak.by);
        }
    }
    text
}

fn list(shortages: &[Shortage]) -> String {
    if shortages.is_empty() {
        return "every placement that was tried is impossible".into();
    }
    let shown: Vec<String> = shortages.iter().take(LISTED).map(ToString::to_string).collect();
    let more = shortages.len().saturating_sub(shown.len());
    let tail = if more > 0 { format!("{NEXT}and {more} more") } else { String::new() };
    shown.join(NEXT) + &tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judge::bound::LowerBound,
        request::{PlanRequest, goal::Goal},
        solve::planner::plan,
        testing::{CONVOLUTIONS, WIDE, with_request},
    };
    use edgecut_graph::units::Joules;

    /// Why there is no plan for `request` with so much memory on every device.
    fn said(mut request: PlanRequest<'_>, memory: u64) -> String {
        request.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = Some(Bytes(memory)));
        plan(&request).unwrap_err().to_string()
    }

    #[test]
    fn messages_name_groups_by_number_and_unique_name() {
        let (large, small) = (1 << 40, 64 << 10);
        with_request(WIDE, &[1000.0], |mut request| {
            let text = said(request.clone(), 1 << 10);
            assert!(text.contains("#3 nn.conv2d_3 alone needs 2.0 KiB, which is 1.0 KiB more than"), "{text}");
            let text = said(request.clone(), small);
            let step = text.split_once("while #").and_then(|(_, rest)| rest.split_once(" runs"));
            assert!(step.is_some_and(|(step, _)| step.contains("_") && step.ends_with(']')), "in parts: {text}");
            let text = said(request.with_goal(Goal { fits_memory: false, ..request.goal.clone() }), small);
            assert!(
                ["#0 nn.conv2d_0", "#1 nn.relu_1"].iter().any(|name| text.contains(&format!("while {name} runs"))),
                "{text}"
            );
            request.goal.targets.latency = Some(Micros(1.0));
            let text = said(request.clone(), large);
            assert!(text.contains("the chain of 5 groups from #0 nn.conv2d_0 to #4 tanh_4 takes"), "{text}");
            request.instance_mut().costs[1] = vec![None];
            assert!(said(request, large).contains("#1 nn.relu_1 runs on no device"));
        });
        with_request(CONVOLUTIONS, &[1000.0, 1000.0], |mut request| {
            request.goal.fits_memory = false;
            let text = said(request, 300 << 10);
            assert!(text.contains("while #") && text.contains("[1of2] runs"), "{text}");
        });
    }

    #[test]
    fn a_message_says_what_is_proved_and_what_is_not() {
        let bounds = Bounds {
            latency: LowerBound { value: Micros(18e3), by: "longest chain" },
            interval: LowerBound { value: Micros(9e3), by: "all work" },
            peak: LowerBound { value: Bytes(100), by: "all parameters" },
            energy: LowerBound { value: Joules(1.0), by: "all groups" },
        };
        let missed = Shortage::Latency { latency: Micros(25e3), target: Micros(22e3), excess: Micros(3e3) };
        let nearest = Nearest {
            latency: Micros(25e3),
            interval: Micros(25e3),
            memory: Bytes(200),
            reserved: vec![Bytes(200)],
            bounds,
            shortages: vec![missed.clone()],
        };
        let text = |proven, shortages: &[Shortage]| {
            NoPlan::Targets { proven, shortages: shortages.to_vec(), nearest: Some(Box::new(nearest.clone())) }
                .to_string()
        };
        assert_eq!(
            text(false, std::slice::from_ref(&missed)),
            "no plan that meets the targets was found: the nearest plan has a latency of 25.00 ms, 3.00 ms more than \
             the target of 22.00 ms\nat these costs no plan is below 18.00 ms (longest chain)"
        );
        let proof = Shortage::Work { interval: Micros(9e3), target: Micros(8e3), excess: Micros(1e3) };
        let text = text(true, &[proof]);
        assert!(
            text.starts_with("no plan can meet the targets at these costs: the work spread evenly takes 9.00 ms"),
            "{text}"
        );
        assert!(
            text.ends_with("the nearest plan has a latency of 25.00 ms, 3.00 ms more than the target of 22.00 ms"),
            "{text}"
        );
        let targets = Targets { latency: Some(Micros(22e3)), throughput: Some(50.0) };
        assert_eq!(nearest.accepting(&targets), Targets { latency: Some(Micros(25e3)), throughput: Some(40.0) });
        assert!((missed.excess() - 3.0 / 22.0).abs() < 1e-12);
    }
}
