//! The cost model of one device: what it was measured at, and estimates for what it was not.
//!
//! Rows of one kind (the same operators in the same order, of one dtype) are points of a [`Growth`] over FLOPs or over
//! bytes, whichever foretells them better. An estimate always says that it is one.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{
    Item, Row, Signature,
    growth::{Fit, Growth, Pattern, Point},
    measure::Cost,
};
use crate::units::Micros;

/// See the module's head.
#[derive(Debug, Clone, Default)]
pub struct CostModel {
    measured: HashMap<Signature, Cost>,
    kinds: BTreeMap<Kind, Fitted>,
    /// Over all rows, for kinds that were never seen.
    any: Option<Fitted>,
}

/// Operators joined by `+`, and the element type.
type Kind = (String, String);

/// What a time is seen as a function of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Feature {
    Flops,
    Bytes,
}

#[derive(Debug, Clone)]
struct Fitted {
    feature: Feature,
    fit: Fit,
    n: usize,
}

/// A time, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub time: Micros,
    pub source: Source,
}

/// Where a time comes from, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The very signature was measured on this device.
    Measured,
    /// Others of its kind were.
    Kind,
    /// Only other kinds were.
    Guess,
}

/// How well one kind of operator is foretold on one device: a row of the table of errors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindError {
    pub device: String,
    pub operator: String,
    pub dtype: String,
    /// Distinct signatures that were measured.
    pub n: usize,
    pub feature: Feature,
    pub pattern: Pattern,
    /// What a call takes however little there is to do.
    pub base_us: f64,
    /// Microseconds for each FLOP or byte; empty for a constant and for steps.
    pub us_per_unit: Option<f64>,
    /// Of the relative errors when each signature is foretold from the others; empty for fewer than three.
    pub error_median: Option<f64>,
    pub error_worst: Option<f64>,
}

impl CostModel {
    /// The model that `rows`, all of one device, give.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> CostModel {
        let mut model = CostModel::default();
        let mut points: BTreeMap<Kind, Vec<(f64, f64, Micros)>> = BTreeMap::new();
        for row in rows {
            let Some(cost) = row.cost() else { continue };
            if model.measured.insert(row.signature.clone(), cost).is_none() {
                let kind = (row.operator.clone(), row.dtype.clone());
                points.entry(kind).or_default().push((row.flops as f64, row.bytes as f64, cost.time.median));
            }
        }
        let all: Vec<(f64, f64, Micros)> = points.values().flatten().copied().collect();
        model.any = fitted(&all);
        model.kinds = points.into_iter().filter_map(|(kind, points)| Some((kind, fitted(&points)?))).collect();
        model
    }

    /// What `signature` was measured at.
    pub fn measured(&self, signature: &Signature) -> Option<&Cost> {
        self.measured.get(signature)
    }

    /// The time of `item`: as measured, else as others of its kind grow. `None` if nothing was measured at all.
    pub fn time(&self, item: &Item) -> Option<Estimate> {
        if let Some(cost) = self.measured(&item.signature) {
            return Some(Estimate { time: cost.time.median, source: Source::Measured });
        }
        let kind = (item.name.clone(), item.dtype.clone());
        let (fitted, source) = match self.kinds.get(&kind) {
            Some(fitted) => (fitted, Source::Kind),
            None => (self.any.as_ref()?, Source::Guess),
        };
        let time = fitted.at(item.flops as f64, item.bytes.0 as f64);
        Some(Estimate { time, source })
    }

    /// About how long a `share` of `item`'s work takes, where the whole takes `whole`: the pattern of its kind, scaled to
    /// what the whole was measured at. Never less than in proportion, never more than the whole.
    pub fn part(&self, item: &Item, whole: Micros, share: f64) -> Micros {
        let kind = (item.name.clone(), item.dtype.clone());
        let Some(fitted) = self.kinds.get(&kind) else { return Micros(whole.0 * share) };
        let (flops, bytes) = (item.flops as f64, item.bytes.0 as f64);
        let (all, part) = (fitted.at(flops, bytes).0, fitted.at(flops * share, bytes * share).0);
        let ratio = if all > 0.0 { part / all } else { share };
        Micros(whole.0 * ratio.clamp(share, 1.0))
    }

    /// How well every kind is foretold, as a table; `device` as the table names it.
    pub fn errors(&self, device: &str) -> Vec<KindError> {
        let row = |((operator, dtype), fitted): (&Kind, &Fitted)| {
            let mut errors = fitted.fit.errors.clone();
            errors.sort_by(f64::total_cmp);
            let (base_us, us_per_unit) = match &fitted.fit.growth {
                Growth::Constant(time) => (time.0, None),
                Growth::Affine { base, per_work } => (base.0, Some(*per_work)),
                Growth::Stepped(steps) => (steps.first().map_or(0.0, |step| step.time.0), None),
            };
            KindError {
                device: device.to_string(),
                operator: operator.clone(),
                dtype: dtype.clone(),
                n: fitted.n,
                feature: fitted.feature,
                pattern: fitted.fit.growth.pattern(),
                base_us,
                us_per_unit,
                error_median: errors.get(errors.len() / 2).copied(),
                error_worst: errors.last().copied(),
            }
        };
        self.kinds.iter().map(row).collect()
    }
}

impl Fitted {
    fn at(&self, flops: f64, bytes: f64) -> Micros {
        let work = if self.feature == Feature::Flops { flops } else { bytes };
        self.fit.growth.at(work)
    }
}

/// The better of the fits over FLOPs and over bytes; `None` of no points.
fn fitted(points: &[(f64, f64, Micros)]) -> Option<Fitted> {
    let fit = |feature: Feature| {
        let work = |p: &(f64, f64, Micros)| if feature == Feature::Flops { p.0 } else { p.1 };
        let points: Vec<Point> = points.iter().map(|p| Point { work: work(p), time: p.2 }).collect();
        Some(Fitted { feature, fit: Fit::of(&points)?, n: points.len() })
    };
    let mean = |fitted: &Fitted| {
        let errors = &fitted.fit.errors;
        errors.iter().sum::<f64>() / errors.len().max(1) as f64
    };
    let computes = points.iter().any(|p| p.0 > 0.0);
    let (flops, bytes) = (fit(Feature::Flops).filter(|_| computes), fit(Feature::Bytes));
    match (flops, bytes) {
        (Some(flops), Some(bytes)) if mean(&bytes) < mean(&flops) => Some(bytes),
        (flops, bytes) => flops.or(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::EngineId,
        graph::{Arg, Attrs, DType, Granularity, Graph, Operator, Origin, TensorType},
        profile::{Mode, Place, Statistics, items},
        units::Bytes,
    };

    /// `nn.relu` on each of these numbers of elements.
    fn relus(sizes: &[u64]) -> Vec<Item> {
        let mut graph = Graph::new();
        for size in sizes {
            let ty = TensorType::of(DType::F32, &[*size]);
            let x = graph.add_tensor(format!("x{size}"), ty.clone(), Origin::Input);
            let operator = Operator {
                name: "nn.relu".into(),
                attrs: Attrs::new(),
                args: vec![Arg::Tensor(x)],
                outputs: Vec::new(),
                tuple_result: false,
                label: None,
                place: None,
            };
            let id = graph.add_operator(operator, &[ty]);
            graph.outputs.extend(graph.operator(id).outputs.clone());
        }
        items(&graph, Granularity::Op)
    }

    fn rows(items: &[Item], time: impl Fn(&Item) -> f64) -> Vec<Row> {
        let engine = EngineId { name: "e".into(), version: "1".into() };
        let place = Place { server: "s".into(), device: "cpu".into(), hardware: "h".into(), engine, threads: 1 };
        let row = |(id, item): (usize, &Item)| {
            let t = Micros(time(item));
            let cost = Cost {
                time: Statistics { n: 5, median: t, mad: Micros::ZERO, min: t, p95: t },
                cpu: t,
                workspace: Bytes::ZERO,
                held: Bytes::ZERO,
                disturbed: 0.0,
            };
            Row::new(&place, Mode::Isolated, Granularity::Op, id, item, &Ok(cost))
        };
        items.iter().enumerate().map(row).collect()
    }

    #[test]
    fn what_was_not_measured_is_estimated_and_marked() {
        let items = relus(&[1000, 2000, 4000, 8000, 3000]);
        let rows = rows(&items[..4], |item| 10.0 + item.flops as f64 / 100.0);
        let model = CostModel::of(&rows);
        assert_eq!(model.time(&items[1]).unwrap(), Estimate { time: Micros(30.0), source: Source::Measured });
        let estimate = model.time(&items[4]).unwrap();
        assert_eq!(estimate.source, Source::Kind);
        assert!((estimate.time.0 - 40.0).abs() < 1e-6);
        assert!((model.part(&items[3], Micros(90.0), 0.5).0 - 50.0).abs() < 1e-6, "launching is not halved");
        let errors = model.errors("s/cpu");
        assert_eq!((errors.len(), errors[0].n, errors[0].pattern), (1, 4, Pattern::Affine));
        assert!(errors[0].error_worst.unwrap() < 1e-6);
        assert_eq!(CostModel::of(&[]).time(&items[0]), None);
    }
}
