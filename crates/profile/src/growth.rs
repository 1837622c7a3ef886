//! Time as a function of work: three patterns of growth, fitted to measured points.
//!
//! After EOP (Wu et al., "Edge AI inference with operator-level partitioning"): the time of an operator is constant,
//! affine or stepped in its work. The pattern with the smallest leave-one-out error is selected, and of patterns with
//! equal errors the simplest.

use serde::{Deserialize, Serialize};

use edgecut_engine::statistics::median;
use edgecut_graph::units::Micros;

/// One measurement. Work is in any unit, such as FLOPs or bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub work: f64,
    pub time: Micros,
}

/// A time as a function of work.
#[derive(Debug, Clone, PartialEq)]
pub enum Growth {
    /// Independent of the work: bound by launch overhead, or no computation at all.
    Constant(Micros),
    /// `base + per_work · work`, with both coefficients non-negative.
    Affine { base: Micros, per_work: f64 },
    /// The time of the next larger point: tiles, waves of thread blocks, cache sizes. Ascending by work; beyond the last
    /// point proportional to it.
    Stepped(Vec<Point>),
}

/// The kind of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    Constant,
    Affine,
    Stepped,
}

/// A fitted growth with its leave-one-out errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub growth: Growth,
    /// For each point the relative error of the growth fitted to the others; empty for fewer than three points.
    pub errors: Vec<f64>,
}

/// A pattern replaces a simpler one only if its error is smaller by at least this.
const MIN_IMPROVEMENT: f64 = 0.005;

impl Fit {
    /// The growth that predicts `points` best; `None` without points.
    pub fn of(points: &[Point]) -> Option<Fit> {
        let mut best: Option<(f64, Fit)> = None;
        for pattern in [Pattern::Constant, Pattern::Affine, Pattern::Stepped] {
            let Some(growth) = pattern.fit(points) else { continue };
            let errors = if points.len() < 3 { Vec::new() } else { leave_one_out_errors(pattern, points) };
            let score = match (errors.is_empty(), pattern) {
                // Too few points to leave one out: affine growth is the most common.
                (true, Pattern::Affine) => 0.0,
                (true, _) => 1.0,
                (false, _) => errors.iter().sum::<f64>() / errors.len() as f64,
            };
            if best.as_ref().is_none_or(|(least, _)| score < least - MIN_IMPROVEMENT) {
                best = Some((score, Fit { growth, errors }));
            }
        }
        best.map(|(_, fit)| fit)
    }
}

/// For each point, the relative error of `pattern` fitted to all others.
fn leave_one_out_errors(pattern: Pattern, points: &[Point]) -> Vec<f64> {
    let error = |at: usize| {
        let others: Vec<Point> = points.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, p)| *p).collect();
        let growth = pattern.fit(&others)?;
        let point = points.get(at)?;
        Some((growth.at(point.work) - point.time).0.abs() / point.time.0.max(f64::MIN_POSITIVE))
    };
    (0..points.len()).filter_map(error).collect()
}

impl Pattern {
    /// The growth of this pattern with the least relative error on `points`; `None` without points.
    fn fit(self, points: &[Point]) -> Option<Growth> {
        let mut sorted: Vec<Point> = points.iter().copied().filter(|p| p.time.0 > 0.0 && p.work >= 0.0).collect();
        sorted.sort_by(|a, b| a.work.total_cmp(&b.work).then(a.time.0.total_cmp(&b.time.0)));
        if sorted.is_empty() {
            return None;
        }
        Some(match self {
            Pattern::Constant => {
                let times: Vec<Micros> = sorted.iter().map(|p| p.time).collect();
                Growth::Constant(median(&times))
            }
            Pattern::Affine => affine(&sorted),
            Pattern::Stepped => {
                // Time is monotonic in work: a faster larger point lowers the points before it.
                for i in (1..sorted.len()).rev() {
                    sorted[i - 1].time = Micros(sorted[i - 1].time.0.min(sorted[i].time.0));
                }
                Growth::Stepped(sorted)
            }
        })
    }
}

/// Weighted least squares: minimises the squared relative errors, with base and slope clamped to non-negative values.
fn affine(points: &[Point]) -> Growth {
    let (mut w, mut wx, mut wxx, mut wy, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for point in points {
        let weight = 1.0 / (point.time.0 * point.time.0);
        w += weight;
        wx += weight * point.work;
        wxx += weight * point.work * point.work;
        wy += weight * point.time.0;
        wxy += weight * point.work * point.time.0;
    }
    let determinant = w * wxx - wx * wx;
    let through_origin = || Growth::Affine { base: Micros::ZERO, per_work: if wxx > 0.0 { wxy / wxx } else { 0.0 } };
    if determinant <= 1e-12 * w * wxx {
        return through_origin();
    }
    let (base, per_work) = ((wy * wxx - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant);
    match (base >= 0.0, per_work >= 0.0) {
        (true, true) => Growth::Affine { base: Micros(base), per_work },
        (false, _) => through_origin(),
        (true, false) => Growth::Affine { base: Micros(wy / w), per_work: 0.0 },
    }
}

impl Growth {
    /// The time that `work` takes.
    pub fn at(&self, work: f64) -> Micros {
        match self {
            Growth::Constant(time) => *time,
            Growth::Affine { base, per_work } => Micros(base.0 + per_work * work),
            Growth::Stepped(steps) => match (steps.iter().find(|step| step.work >= work), steps.last()) {
                (Some(step), _) => step.time,
                (None, Some(last)) if last.work > 0.0 => Micros(last.time.0 * work / last.work),
                (None, Some(last)) => last.time,
                (None, None) => Micros::ZERO,
            },
        }
    }

    pub fn pattern(&self) -> Pattern {
        match self {
            Growth::Constant(_) => Pattern::Constant,
            Growth::Affine { .. } => Pattern::Affine,
            Growth::Stepped(_) => Pattern::Stepped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: impl Fn(f64) -> f64) -> Vec<Point> {
        [1.0, 2.0, 4.0, 8.0, 12.0, 16.0].iter().map(|w| Point { work: *w, time: Micros(of(*w)) }).collect()
    }

    #[test]
    fn the_pattern_with_the_least_error_is_selected() {
        for (pattern, of) in [
            (Pattern::Constant, (|_| 5.0) as fn(f64) -> f64),
            (Pattern::Affine, |w| 3.0 + 2.0 * w),
            (Pattern::Affine, |w| 2.0 * w),
        ] {
            let fit = Fit::of(&points(of)).unwrap();
            assert_eq!(fit.growth.pattern(), pattern);
            assert!((fit.growth.at(10.0).0 - of(10.0)).abs() < 1e-9);
            assert!(fit.errors.iter().all(|e| *e < 1e-9), "{:?}", fit.errors);
        }
        let stairs: Vec<Point> =
            (1..=12).map(|w| Point { work: f64::from(w), time: Micros(f64::from((w + 5) / 6 * 6).powi(2)) }).collect();
        let fit = Fit::of(&stairs).unwrap();
        assert_eq!(fit.growth.pattern(), Pattern::Stepped);
        assert_eq!((fit.growth.at(6.5), fit.growth.at(24.0)), (Micros(144.0), Micros(288.0)));
    }

    #[test]
    fn one_point_is_enough() {
        assert_eq!(Fit::of(&[]), None);
        let one = Fit::of(&[Point { work: 4.0, time: Micros(8.0) }]).unwrap();
        assert_eq!(one.growth.at(2.0), Micros(4.0), "proportional to work");
        let same = [Point { work: 4.0, time: Micros(8.0) }; 3];
        assert_eq!(Fit::of(&same).unwrap().growth.at(100.0), Micros(8.0));
    }

    #[test]
    fn coefficients_are_not_negative() {
        let bent = [(1.0, 1.0), (2.0, 5.0), (4.0, 14.0)].map(|(work, time)| Point { work, time: Micros(time) });
        let Growth::Affine { base, per_work } = affine(&bent) else { panic!("not affine") };
        assert!(base.0 >= 0.0 && per_work > 0.0);
    }
}
