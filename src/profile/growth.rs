//! How a time grows with the work: the three patterns that operators show, fitted to measured points.
//!
//! After EOP (Wu et al., "Edge AI inference with operator-level partitioning"): some operators cost the same however
//! large their tensors are, some grow linearly, some in steps. The data choose: the pattern with the smallest
//! leave-one-out error is taken, the simpler one where two are equal.

use serde::{Deserialize, Serialize};

use crate::{statistics::median, units::Micros};

/// One measurement. Work is in FLOPs or bytes; a growth knows only its ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub work: f64,
    pub time: Micros,
}

/// A time as a function of work.
#[derive(Debug, Clone, PartialEq)]
pub enum Growth {
    /// Bound by launching, or nothing is computed at all.
    Constant(Micros),
    /// `base + per_work · work`, both not negative.
    Affine { base: Micros, per_work: f64 },
    /// As long as the next larger step takes: tiles, waves of blocks, cliffs of caches. Ascending by work; beyond the
    /// last step in proportion to it.
    Stepped(Vec<Point>),
}

/// The patterns by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    Constant,
    Affine,
    Stepped,
}

/// A fitted growth, and how well it foretells points that it has not seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub growth: Growth,
    /// For each point the relative error of the growth fitted to the others; empty of fewer than three points.
    pub errors: Vec<f64>,
}

/// Errors that differ by less than this are taken for equal.
const INDIFFERENT: f64 = 0.005;

impl Fit {
    /// The growth that foretells `points` best. `None` of no points.
    pub fn of(points: &[Point]) -> Option<Fit> {
        let mut best: Option<(f64, Fit)> = None;
        for pattern in [Pattern::Constant, Pattern::Affine, Pattern::Stepped] {
            let Some(growth) = pattern.fit(points) else { continue };
            let errors = if points.len() < 3 { Vec::new() } else { left_out(pattern, points) };
            let score = match errors.is_empty() {
                // Too few points to leave one out: the line through them is the usual case.
                true => {
                    if pattern == Pattern::Affine {
                        0.0
                    } else {
                        1.0
                    }
                }
                false => errors.iter().sum::<f64>() / errors.len() as f64,
            };
            if best.as_ref().is_none_or(|(least, _)| score < least - INDIFFERENT) {
                best = Some((score, Fit { growth, errors }));
            }
        }
        best.map(|(_, fit)| fit)
    }
}

/// For each point the relative error at it of `pattern` fitted to all others.
fn left_out(pattern: Pattern, points: &[Point]) -> Vec<f64> {
    let error = |at: usize| {
        let others: Vec<Point> = points.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, p)| *p).collect();
        let growth = pattern.fit(&others)?;
        let point = points.get(at)?;
        Some((growth.at(point.work) - point.time).0.abs() / point.time.0.max(f64::MIN_POSITIVE))
    };
    (0..points.len()).filter_map(error).collect()
}

impl Pattern {
    /// The growth of this pattern that is nearest to `points`, in relative terms. `None` of no points.
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
                // A larger work never takes less: a faster large point lowers what stands before it.
                for i in (1..sorted.len()).rev() {
                    sorted[i - 1].time = Micros(sorted[i - 1].time.0.min(sorted[i].time.0));
                }
                Growth::Stepped(sorted)
            }
        })
    }
}

/// Least squares of relative errors, with base and slope kept from being negative.
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
    fn the_data_choose_the_pattern() {
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
    fn few_points_are_no_reason_to_fail() {
        assert_eq!(Fit::of(&[]), None);
        let one = Fit::of(&[Point { work: 4.0, time: Micros(8.0) }]).unwrap();
        assert_eq!(one.growth.at(2.0), Micros(4.0), "in proportion");
        let same = [Point { work: 4.0, time: Micros(8.0) }; 3];
        assert_eq!(Fit::of(&same).unwrap().growth.at(100.0), Micros(8.0));
    }

    #[test]
    fn a_line_never_runs_below_zero() {
        let bent = [(1.0, 1.0), (2.0, 5.0), (4.0, 14.0)].map(|(work, time)| Point { work, time: Micros(time) });
        let Growth::Affine { base, per_work } = affine(&bent) else { panic!("not affine") };
        assert!(base.0 >= 0.0 && per_work > 0.0);
    }
}
