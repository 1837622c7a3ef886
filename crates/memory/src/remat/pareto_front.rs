//! The Pareto front of peak and time.

use super::{schedule_decision::ScheduleDecision, schedule_step::ScheduleCost};
use edgecut_graph::units::{Bytes, Micros};

/// Schedules that no other one beats in both peak and time, by increasing peak and decreasing time.
#[derive(Debug, Clone, Default)]
pub struct ParetoFront {
    points: Vec<FrontPoint>,
}

/// One schedule of a front.
#[derive(Debug, Clone)]
pub struct FrontPoint {
    pub peak: Bytes,
    pub time: Micros,
    pub decision: ScheduleDecision,
}

impl ParetoFront {
    /// Inserts a schedule unless another one dominates it; returns whether it was inserted.
    pub(super) fn offer(&mut self, cost: &ScheduleCost, decision: &ScheduleDecision) -> bool {
        let at = self.points.partition_point(|p| p.peak <= cost.peak);
        // Times are summed in different orders: a relative difference of 10⁻⁹ is not an improvement.
        if at > 0 && self.points[at - 1].time.0 <= cost.time.0 * (1.0 + 1e-9) {
            return false;
        }
        let from = self.points[..at].partition_point(|p| p.peak < cost.peak);
        let dominated = self.points[from..].iter().take_while(|p| p.time >= cost.time).count();
        let point = FrontPoint { peak: cost.peak, time: cost.time, decision: decision.clone() };
        self.points.splice(from..from + dominated, [point]);
        true
    }

    /// The fastest schedule whose peak is at most `peak`.
    pub fn within(&self, peak: Bytes) -> Option<&FrontPoint> {
        let at = self.points.partition_point(|p| p.peak <= peak);
        at.checked_sub(1).map(|at| &self.points[at])
    }

    /// The points by increasing peak.
    pub fn points(&self) -> &[FrontPoint] {
        &self.points
    }
}

/// The schedules that no other one beats in both peak and time, by increasing peak; `cost` gives both.
pub fn pareto_front<T>(mut all: Vec<T>, cost: impl Fn(&T) -> (Bytes, Micros)) -> Vec<T> {
    all.sort_by(|a, b| {
        let ((peak, time), (other, other_time)) = (cost(a), cost(b));
        peak.cmp(&other).then(time.0.total_cmp(&other_time.0))
    });
    let mut least = f64::INFINITY;
    all.retain(|schedule| {
        let (_, time) = cost(schedule);
        let is_better = time.0 < least;
        least = least.min(time.0);
        is_better
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dominated_points_are_dropped() {
        let decision =
            ScheduleDecision { order: Vec::new(), modes: Vec::new(), transfers: Vec::new(), retained: Vec::new() };
        let mut front = ParetoFront::default();
        let offers =
            [(10, 5.0, true), (8, 7.0, true), (9, 7.5, false), (9, 6.0, true), (8, 5.5, true), (12, 5.0, false)];
        for (peak, time, kept) in offers {
            let cost = ScheduleCost { peak: Bytes(peak), time: Micros(time), overload: 0.0 };
            assert_eq!(front.offer(&cost, &decision), kept, "{peak} {time}");
        }
        let found: Vec<_> = front.points().iter().map(|p| (p.peak.0, p.time.0)).collect();
        assert_eq!(found, [(8, 5.5), (10, 5.0)]);
        assert_eq!(front.within(Bytes(9)).map(|p| p.peak), Some(Bytes(8)));
        assert!(front.within(Bytes(7)).is_none());
        let all = vec![(10, 5.0), (12, 5.0), (8, 7.0), (8, 6.0), (11, 4.0)];
        let cost = |&(peak, time): &(u64, f64)| (Bytes(peak), Micros(time));
        assert_eq!(pareto_front(all, cost), [(8, 6.0), (10, 5.0), (11, 4.0)]);
    }
}
