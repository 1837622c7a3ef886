//! The cost model of one device: what it was measured at, and estimates for what it was not.
//!
//! Rows of one family (the same operators in the same order, of one dtype, and of one window where they convolve) are
//! points of a [`Growth`] over FLOPs, over bytes, or over both in the ratio that foretells them best. Parts of
//! operators are points as whole ones are. An estimate always says that it is one.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::{
    Item, Row, Signature,
    growth::{Fit, Growth, Pattern, Point},
    measure::Cost,
};
use crate::{
    statistics::{Statistics, quantile},
    units::{Bytes, Micros},
};

/// See the module's head.
#[derive(Debug, Clone, Default)]
pub struct CostModel {
    measured: HashMap<Signature, Cost>,
    families: BTreeMap<Family, Fitted>,
    /// Over all rows, for families that were never seen.
    any: Option<Fitted>,
    /// Families that the device cannot compute, as far as was tried, and why.
    refused: BTreeMap<Family, String>,
}

/// What is expected to grow alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Family {
    /// Joined by `+`.
    operators: String,
    dtype: String,
    /// Of the convolution among them, as `3x3`, `3x3 by channel` where every channel has its own; else empty.
    window: String,
}

/// What a time is seen as a function of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Flops,
    Bytes,
    /// FLOPs and bytes, one byte worth so many FLOPs.
    Both(f64),
}

#[derive(Debug, Clone)]
struct Fitted {
    work: Work,
    fit: Fit,
    n: usize,
    /// Ratio of all workspace to all bytes, and of all that the engine holds to all parameters: of sums, as the ratios of
    /// small items say little of large ones.
    workspace: f64,
    held: f64,
}

/// One measured row.
#[derive(Debug, Clone, Copy)]
struct Seen {
    flops: f64,
    bytes: f64,
    parameters: f64,
    cost: Cost,
}

/// A cost, and where it comes from. What was not measured has one sample: the estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub cost: Cost,
    pub source: Source,
}

/// Where a time comes from, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The very signature was measured on this device.
    Measured,
    /// Others of its family were.
    Family,
    /// Only other families were.
    Guess,
}

/// How well one family of operators is foretold on one device: a row of the table of errors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FamilyError {
    pub server: String,
    pub device: String,
    pub hardware: String,
    pub engine: String,
    pub engine_version: String,
    pub threads: usize,
    /// Joined by `+`; `(all)` in the row of all families together.
    pub operator: String,
    pub dtype: String,
    /// Of a convolution: `3x3`, `3x3 by channel`.
    pub window: String,
    /// Distinct signatures that were measured, and of these parts of operators.
    pub n: usize,
    pub parts: usize,
    pub pattern: Option<Pattern>,
    /// The work that time grows with: FLOPs + bytes · `flops_per_byte`; of bytes alone this is empty.
    pub work: &'static str,
    pub flops_per_byte: Option<f64>,
    /// What a call takes however little there is to do.
    pub base_us: Option<f64>,
    /// Microseconds for each unit of work; empty for a constant and for steps.
    pub us_per_unit: Option<f64>,
    /// Of the relative errors when each signature is foretold from the others; empty for fewer than three.
    pub error_median: Option<f64>,
    pub error_p90: Option<f64>,
    pub error_worst: Option<f64>,
}

impl CostModel {
    /// The model that `rows`, all of one device, give. Parts that were measured with slices and joins are no points.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> CostModel {
        let mut model = CostModel::default();
        let mut seen: BTreeMap<Family, Vec<Seen>> = BTreeMap::new();
        for row in rows {
            let family = Family::new(&row.operator, &row.dtype, &row.shapes);
            let Some(cost) = row.cost() else {
                model.refused.insert(family, row.note.clone());
                continue;
            };
            let is_new = model.measured.insert(row.signature.clone(), cost).is_none();
            if is_new && row.copied_bytes.unwrap_or(0) == 0 {
                let (flops, bytes, parameters) = (row.flops as f64, row.bytes as f64, row.parameter_bytes as f64);
                seen.entry(family).or_default().push(Seen { flops, bytes, parameters, cost });
            }
        }
        model.refused.retain(|family, _| !seen.contains_key(family));
        let all: Vec<Seen> = seen.values().flatten().copied().collect();
        model.any = Fitted::of(&all);
        model.families = seen.into_iter().filter_map(|(family, seen)| Some((family, Fitted::of(&seen)?))).collect();
        model
    }

    /// What `signature` was measured at.
    pub fn measured(&self, signature: &Signature) -> Option<&Cost> {
        self.measured.get(signature)
    }

    /// The cost of `item`: as measured, else as others of its family grow. `None` if nothing was measured at all, or
    /// nothing of its family can be computed.
    pub fn cost(&self, item: &Item) -> Option<Estimate> {
        if let Some(cost) = self.measured(&item.signature) {
            return Some(Estimate { cost: *cost, source: Source::Measured });
        }
        let family = Family::new(&item.name, &item.dtype, &item.shapes);
        let (fitted, source) = match self.families.get(&family) {
            Some(fitted) => (fitted, Source::Family),
            None if self.refused.contains_key(&family) => return None,
            None => (self.any.as_ref()?, Source::Guess),
        };
        let time = fitted.at(item.flops as f64, item.bytes.0 as f64);
        let cost = Cost {
            time: Statistics { n: 1, median: time, mad: Micros::ZERO, min: time, p95: time },
            cpu: time,
            kernels: None,
            workspace: Bytes((item.bytes.0 as f64 * fitted.workspace) as u64),
            held: Bytes((item.parameter_bytes.0 as f64 * fitted.held) as u64),
            disturbed: 0.0,
        };
        Some(Estimate { cost, source })
    }

    /// About how long a `share` of `item`'s work takes, where the whole takes `whole`: the pattern of its family, scaled
    /// to what the whole was measured at. Never less than in proportion, never more than the whole. `None` if nothing of
    /// the family was measured.
    pub fn part(&self, item: &Item, whole: Micros, share: f64) -> Option<Micros> {
        let fitted = self.families.get(&Family::new(&item.name, &item.dtype, &item.shapes))?;
        let (flops, bytes) = (item.flops as f64, item.bytes.0 as f64);
        let (all, part) = (fitted.at(flops, bytes).0, fitted.at(flops * share, bytes * share).0);
        let ratio = if all > 0.0 { part / all } else { share };
        Some(Micros(whole.0 * ratio.clamp(share, 1.0)))
    }

    /// How well every family is foretold, and last all together. `rows` are those of the model, all of one device, which
    /// the table names after the first.
    pub fn errors(&self, rows: &[&Row]) -> Vec<FamilyError> {
        let Some(first) = rows.first() else { return Vec::new() };
        let mut parts: HashMap<Family, usize> = HashMap::new();
        let mut counted: HashSet<&Signature> = HashSet::new();
        for row in rows.iter().filter(|row| row.copied_bytes.unwrap_or(0) == 0 && row.cost().is_some()) {
            let is_part = row.share().is_some() && counted.insert(&row.signature);
            *parts.entry(Family::new(&row.operator, &row.dtype, &row.shapes)).or_default() += usize::from(is_part);
        }
        let empty = FamilyError {
            server: first.server.clone(),
            device: first.device.clone(),
            hardware: first.hardware.clone(),
            engine: first.engine.clone(),
            engine_version: first.engine_version.clone(),
            threads: first.threads,
            operator: "(all)".to_string(),
            dtype: String::new(),
            window: String::new(),
            n: 0,
            parts: 0,
            pattern: None,
            work: "",
            flops_per_byte: None,
            base_us: None,
            us_per_unit: None,
            error_median: None,
            error_p90: None,
            error_worst: None,
        };
        let mut all = Vec::new();
        let mut table: Vec<FamilyError> = Vec::new();
        for (family, fitted) in &self.families {
            all.extend(&fitted.fit.errors);
            let (base_us, us_per_unit) = match &fitted.fit.growth {
                Growth::Constant(time) => (time.0, None),
                Growth::Affine { base, per_work } => (base.0, Some(*per_work)),
                Growth::Stepped(steps) => (steps.first().map_or(0.0, |step| step.time.0), None),
            };
            let (work, flops_per_byte) = match fitted.work {
                Work::Flops => ("flops", Some(0.0)),
                Work::Bytes => ("bytes", None),
                Work::Both(ratio) => ("both", Some(ratio)),
            };
            let row = FamilyError {
                operator: family.operators.clone(),
                dtype: family.dtype.clone(),
                window: family.window.clone(),
                n: fitted.n,
                parts: parts.get(family).copied().unwrap_or(0),
                pattern: Some(fitted.fit.growth.pattern()),
                work,
                flops_per_byte,
                base_us: Some(base_us),
                us_per_unit,
                ..empty.clone()
            };
            table.push(row.with(&fitted.fit.errors));
        }
        let (n, parts) = (table.iter().map(|row| row.n).sum(), table.iter().map(|row| row.parts).sum());
        table.push(FamilyError { n, parts, ..empty }.with(&all));
        table
    }
}

impl FamilyError {
    fn with(self, errors: &[f64]) -> FamilyError {
        let mut errors = errors.to_vec();
        errors.sort_by(f64::total_cmp);
        FamilyError {
            error_median: quantile(&errors, 0.5),
            error_p90: quantile(&errors, 0.9),
            error_worst: errors.last().copied(),
            ..self
        }
    }
}

impl Family {
    fn new(operators: &str, dtype: &str, shapes: &str) -> Family {
        let window = if operators.contains("conv") { window(shapes) } else { String::new() };
        Family { operators: operators.to_string(), dtype: dtype.to_string(), window }
    }
}

/// The window of a convolution by the shape of its weights, as `shapes` of a row has it: the equal dimensions at either
/// end of it.
fn window(shapes: &str) -> String {
    let weights = shapes.split("->").next().unwrap_or_default().split('|').nth(1).unwrap_or_default();
    let dims = weights.split_once('[').and_then(|(_, dims)| dims.split(']').next()).unwrap_or_default();
    let dims: Vec<u64> = dims.split(',').filter_map(|dim| dim.trim().parse().ok()).collect();
    let Some(spatial) = dims.len().checked_sub(2).filter(|spatial| *spatial > 0) else { return String::new() };
    let (first, last) = (&dims[..spatial], &dims[2..]);
    // Channels are rarely as few and as equal as the sides of a window.
    let is_window = |sides: &[u64]| sides.iter().all(|side| *side == sides[0] && *side <= 16);
    let (sides, channels) = match is_window(last) || !is_window(first) {
        true => (last, &dims[..2]),
        false => (first, &dims[spatial..]),
    };
    let sides: Vec<String> = sides.iter().map(u64::to_string).collect();
    let own = if channels.contains(&1) && channels.iter().any(|c| *c > 1) { " by channel" } else { "" };
    format!("{}{own}", sides.join("x"))
}

/// FLOPs that a byte may be worth.
const RATIOS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

impl Fitted {
    fn at(&self, flops: f64, bytes: f64) -> Micros {
        self.fit.growth.at(self.work.of(flops, bytes))
    }

    /// The best of the fits over FLOPs, over bytes and over both; `None` of no points.
    fn of(seen: &[Seen]) -> Option<Fitted> {
        let sum = |of: &dyn Fn(&Seen) -> f64| seen.iter().map(of).sum::<f64>();
        let workspace = sum(&|s| s.cost.workspace.0 as f64) / sum(&|s| s.bytes).max(1.0);
        let parameters = sum(&|s| s.parameters);
        let held = if parameters > 0.0 { sum(&|s| s.cost.held.0 as f64) / parameters } else { 1.0 };
        let fit = |work: Work| {
            let point = |s: &Seen| Point { work: work.of(s.flops, s.bytes), time: s.cost.time.median };
            let points: Vec<Point> = seen.iter().map(point).collect();
            Some(Fitted { work, fit: Fit::of(&points)?, n: points.len(), workspace, held })
        };
        let mean = |fitted: &Fitted| {
            let errors = &fitted.fit.errors;
            errors.iter().sum::<f64>() / errors.len().max(1) as f64
        };
        let computes = seen.iter().any(|s| s.flops > 0.0);
        let simple = if computes { vec![Work::Flops, Work::Bytes] } else { vec![Work::Bytes] };
        // A third constant needs points to be found from.
        let both = RATIOS.iter().map(|ratio| Work::Both(*ratio)).filter(|_| computes && seen.len() >= 4);
        let mut best: Option<(f64, Fitted)> = None;
        for fitted in simple.into_iter().chain(both).filter_map(fit) {
            let mean = mean(&fitted);
            if best.as_ref().is_none_or(|(least, _)| mean < *least) {
                best = Some((mean, fitted));
            }
        }
        best.map(|(_, fitted)| fitted)
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
    use crate::{
        engine::EngineId,
        graph::{Arg, Attrs, DType, Granularity, Graph, Operator, Origin, TensorType},
        profile::{Mode, Place, items},
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
                kernels: None,
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
        let known = model.cost(&items[1]).unwrap();
        assert_eq!((known.cost.time.median, known.source), (Micros(30.0), Source::Measured));
        let estimate = model.cost(&items[4]).unwrap();
        assert_eq!(estimate.source, Source::Family);
        assert!((estimate.cost.time.median.0 - 40.0).abs() < 1e-6);
        assert!((model.part(&items[3], Micros(90.0), 0.5).unwrap().0 - 50.0).abs() < 1e-6, "launching is not halved");
        let errors = model.errors(&rows.iter().collect::<Vec<_>>());
        assert_eq!((errors.len(), errors[0].n, errors[0].pattern), (2, 4, Some(Pattern::Affine)));
        assert_eq!((errors[1].operator.as_str(), errors[1].n), ("(all)", 4));
        assert!(errors[0].error_worst.unwrap() < 1e-6);
        assert!(CostModel::of(&[]).cost(&items[0]).is_none());
    }

    #[test]
    fn what_a_device_refused_is_not_guessed() {
        let items = relus(&[1000, 2000]);
        let mut all = rows(&items, |_| 1.0);
        all[0] = Row { time_us_median: None, note: "no kernel".to_string(), ..all[0].clone() };
        assert!(CostModel::of(&all).cost(&items[0]).is_some(), "another of its family was measured");
        assert!(CostModel::of(&all[..1]).cost(&items[1]).is_none());
    }

    #[test]
    fn windows_are_told_from_channels() {
        for (shapes, want) in [
            ("float32[1,3,9,9]|float32[64,3,7,7]->float32[1,64,3,3]", "7x7"),
            ("float32[1,9,9,3]|float32[3,3,16,64]->float32[1,3,3,64]", "3x3"),
            ("float32[1,32,9,9]|float32[32,1,3,3]->float32[1,32,9,9]", "3x3 by channel"),
            ("float32[1,32,9]|float32[64,32,3]->float32[1,64,9]", "3"),
            ("float32[4]->float32[4]", ""),
        ] {
            assert_eq!(window(shapes), want, "{shapes}");
        }
    }
}
