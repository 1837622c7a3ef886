//! Growth of a family's times, memory and parameters, fitted to its measured rows.

use crate::{
    Cost, Item, ProfileRow,
    growth::{Fit, Point},
};
use edgecut_graph::units::{Bytes, Micros};

/// The fitted cost of one family.
#[derive(Debug, Clone)]
pub(super) struct FamilyFit {
    pub work: Work,
    pub fit: Fit,
    /// Number of points.
    pub n: usize,
    /// The least work of a point.
    least_work: f64,
    /// Sum of workspaces over sum of bytes, and sum of held memory over sum of parameters. Ratios of sums, because the
    /// ratios of small items say little about large ones.
    workspace_ratio: f64,
    held_ratio: f64,
}

/// The variable that time is a function of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Work {
    Flops,
    Bytes,
    /// FLOPs plus bytes, with this many FLOPs per byte.
    Both(f64),
}

/// One measured row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    flops: f64,
    bytes: f64,
    parameters: f64,
    cost: Cost,
}

/// FLOPs per byte that are tried.
const FLOPS_PER_BYTE: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Largest mean of the leave-one-out errors of a fit that is relied upon for parts of items.
const GOOD_FIT: f64 = 0.1;

/// Points needed to fit [`Work::Both`], which has a third coefficient.
const MIN_POINTS_FOR_BOTH: usize = 4;

impl Observation {
    pub(super) fn new(row: &ProfileRow, cost: Cost) -> Observation {
        let (flops, bytes, parameters) = (row.flops as f64, row.accessed_bytes.0 as f64, row.parameter_bytes.0 as f64);
        Observation { flops, bytes, parameters, cost }
    }
}

impl FamilyFit {
    /// The best of the fits over FLOPs, over bytes and over both; `None` without observations.
    pub(super) fn of(observations: &[Observation]) -> Option<FamilyFit> {
        let sum = |of: &dyn Fn(&Observation) -> f64| observations.iter().map(of).sum::<f64>();
        let workspace_ratio = sum(&|o| o.cost.workspace.0 as f64) / sum(&|o| o.bytes).max(1.0);
        let parameters = sum(&|o| o.parameters);
        let held_ratio = if parameters > 0.0 { sum(&|o| o.cost.held.0 as f64) / parameters } else { 1.0 };
        let fit = |work: Work| {
            let point = |o: &Observation| Point { work: work.of(o.flops, o.bytes), time: o.cost.time.median };
            let points: Vec<Point> = observations.iter().map(point).collect();
            let least_work = points.iter().map(|point| point.work).fold(f64::INFINITY, f64::min);
            let (fit, n) = (Fit::of(&points)?, points.len());
            Some(FamilyFit { work, fit, n, least_work, workspace_ratio, held_ratio })
        };
        let has_flops = observations.iter().any(|o| o.flops > 0.0);
        let simple = if has_flops { vec![Work::Flops, Work::Bytes] } else { vec![Work::Bytes] };
        let fits_both = has_flops && observations.len() >= MIN_POINTS_FOR_BOTH;
        let both = FLOPS_PER_BYTE.iter().map(|ratio| Work::Both(*ratio)).filter(|_| fits_both);
        let mut best: Option<(f64, FamilyFit)> = None;
        for fitted in simple.into_iter().chain(both).filter_map(fit) {
            let error = fitted.mean_error();
            if best.as_ref().is_none_or(|(least, _)| error < *least) {
                best = Some((error, fitted));
            }
        }
        best.map(|(_, fitted)| fitted)
    }

    /// Mean of the leave-one-out errors, 0 if there are none.
    fn mean_error(&self) -> f64 {
        self.fit.errors.iter().sum::<f64>() / self.fit.errors.len().max(1) as f64
    }

    /// Whether it tells what this many FLOPs and bytes take: it predicts its points well, and some have no more work. Items
    /// of one size say nothing about a part of them.
    pub(super) fn covers(&self, flops: f64, bytes: f64) -> bool {
        let is_good = !self.fit.errors.is_empty() && self.mean_error() <= GOOD_FIT;
        is_good && self.work.of(flops, bytes) >= self.least_work
    }

    /// Predicted time of this many FLOPs and bytes.
    pub(super) fn time(&self, flops: f64, bytes: f64) -> Micros {
        self.fit.growth.at(self.work.of(flops, bytes))
    }

    /// Predicted workspace of `item`.
    pub(super) fn workspace(&self, item: &Item) -> Bytes {
        Bytes((item.bytes.0 as f64 * self.workspace_ratio) as u64)
    }

    /// Predicted memory that the engine holds for the parameters of `item`.
    pub(super) fn held(&self, item: &Item) -> Bytes {
        Bytes((item.parameter_bytes.0 as f64 * self.held_ratio) as u64)
    }
}

impl Work {
    fn of(self, flops: f64, bytes: f64) -> f64 {
        match self {
            Work::Flops => flops,
            Work::Bytes => bytes,
            Work::Both(ratio) => flops + bytes * ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Conditions;
    use edgecut_engine::statistics::Statistics;

    /// An observation whose time is `time`.
    fn observation(flops: f64, bytes: f64, time: f64) -> Observation {
        let time = Micros(time);
        let cost = Cost {
            time: Statistics { n: 5, median: time, mad: Micros::ZERO, min: time, p95: time },
            cpu: time,
            kernels: None,
            workspace: Bytes(10),
            held: Bytes(6),
            disturbed: 0.0,
            energy: None,
            conditions: Conditions::default(),
        };
        Observation { flops, bytes, parameters: 3.0, cost }
    }

    #[test]
    fn the_variable_that_explains_the_times_is_selected() {
        let sizes = [(100.0, 40.0), (200.0, 10.0), (400.0, 90.0), (800.0, 20.0), (900.0, 70.0)];
        for (work, time) in [
            (Work::Flops, (|flops, _| 5.0 + flops / 10.0) as fn(f64, f64) -> f64),
            (Work::Bytes, |_, bytes| 5.0 + bytes / 10.0),
            (Work::Both(8.0), |flops, bytes| 5.0 + (flops + 8.0 * bytes) / 100.0),
        ] {
            let observations: Vec<Observation> =
                sizes.iter().map(|(flops, bytes)| observation(*flops, *bytes, time(*flops, *bytes))).collect();
            let fitted = FamilyFit::of(&observations).unwrap();
            assert_eq!((fitted.work, fitted.n), (work, 5));
            assert!((fitted.time(300.0, 50.0).0 - time(300.0, 50.0)).abs() < 1e-9);
            assert!(fitted.covers(300.0, 50.0) && !fitted.covers(10.0, 1.0));
        }
        assert!(FamilyFit::of(&[]).is_none());
        let without_flops = FamilyFit::of(&[observation(0.0, 4.0, 2.0)]).unwrap();
        assert_eq!(
            (without_flops.work, without_flops.held_ratio, without_flops.workspace_ratio),
            (Work::Bytes, 2.0, 2.5)
        );
        let erratic = [(100.0, 9.0), (200.0, 1.0), (300.0, 7.0)].map(|(flops, time)| observation(flops, 4.0, time));
        assert!(!FamilyFit::of(&erratic).unwrap().covers(200.0, 4.0));
    }
}
