//! The best schedules found so far: for every peak the least time.

use super::{choice::Choice, unfold::Figures};

/// A schedule that no other one beats in both peak and time.
#[derive(Debug, Clone)]
pub struct Point {
    /// Bytes.
    pub peak: u64,
    /// Microseconds.
    pub time: f64,
    pub choice: Choice,
}

/// Points by rising peak and falling time.
#[derive(Debug, Clone, Default)]
pub struct Front {
    points: Vec<Point>,
}

impl Front {
    /// Keeps a schedule if none is as good; tells whether it did.
    pub fn offer(&mut self, figures: &Figures, choice: &Choice) -> bool {
        let at = self.points.partition_point(|p| p.peak <= figures.peak);
        // Times are sums in different orders: a millionth is no improvement.
        if at > 0 && self.points[at - 1].time <= figures.time * (1.0 + 1e-9) {
            return false;
        }
        let from = self.points[..at].partition_point(|p| p.peak < figures.peak);
        let beaten = self.points[from..].iter().take_while(|p| p.time >= figures.time).count();
        let point = Point { peak: figures.peak, time: figures.time, choice: choice.clone() };
        self.points.splice(from..from + beaten, [point]);
        true
    }

    /// The fastest schedule that fits.
    pub fn within(&self, peak: u64) -> Option<&Point> {
        let at = self.points.partition_point(|p| p.peak <= peak);
        at.checked_sub(1).map(|at| &self.points[at])
    }

    /// The smallest schedule that is fast enough.
    pub fn before(&self, time: f64) -> Option<&Point> {
        self.points.iter().find(|p| p.time <= time)
    }

    /// By rising peak.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

/// Those of several schedules, with peak and time, that no other one beats in both; by rising peak.
pub fn unbeaten<T>(mut all: Vec<T>, figures: impl Fn(&T) -> (u64, f64)) -> Vec<T> {
    all.sort_by(|a, b| {
        let ((peak, time), (other, other_time)) = (figures(a), figures(b));
        peak.cmp(&other).then(time.total_cmp(&other_time))
    });
    let mut least = f64::INFINITY;
    all.retain(|schedule| {
        let (_, time) = figures(schedule);
        let better = time < least;
        least = least.min(time);
        better
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unbeaten_points_stay() {
        let choice = Choice { order: Vec::new(), modes: Vec::new(), copies: Vec::new(), held: Vec::new() };
        let mut front = Front::default();
        let offers =
            [(10, 5.0, true), (8, 7.0, true), (9, 7.5, false), (9, 6.0, true), (8, 5.5, true), (12, 5.0, false)];
        for (peak, time, kept) in offers {
            assert_eq!(front.offer(&Figures { peak, time, overload: 0.0 }, &choice), kept, "{peak} {time}");
        }
        let found: Vec<_> = front.points().iter().map(|p| (p.peak, p.time)).collect();
        assert_eq!(found, [(8, 5.5), (10, 5.0)]);
        assert_eq!(front.within(9).map(|p| p.peak), Some(8));
        assert_eq!(front.before(5.2).map(|p| p.peak), Some(10));
        assert!(front.within(7).is_none() && front.before(4.0).is_none());
        let all = vec![(10, 5.0), (12, 5.0), (8, 7.0), (8, 6.0), (11, 4.0)];
        assert_eq!(unbeaten(all, |figures| *figures), [(8, 6.0), (10, 5.0), (11, 4.0)]);
    }
}
