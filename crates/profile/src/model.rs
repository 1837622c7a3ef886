//! The cost model of one device: measured costs, and estimates for signatures that were not measured.
//!
//! The measured rows of a family are points of a [growth](crate::growth) over FLOPs, over bytes, or over a weighted sum
//! of both, whichever predicts them best. Shards are points like whole operators. Where growth says nothing about parts
//! of an item, shards take what other shards of the family did in proportion ([`crate::shard_overhead`]). Every estimate is
//! marked as one.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::{
    Conditions, Cost, Item, ProfileRow, Signature,
    family::Family,
    family_fit::{FamilyFit, Observation},
    shard_overhead::ShardOverheads,
};
use edgecut_engine::statistics::Statistics;
use edgecut_graph::units::{Bytes, Micros};

/// Predicts the cost of items on one device from its profile.
#[derive(Debug, Clone, Default)]
pub struct CostModel {
    measured: HashMap<Signature, Cost>,
    families: BTreeMap<Family, FamilyFit>,
    /// Fitted to all rows, for families without any.
    any: Option<FamilyFit>,
    shard_overheads: ShardOverheads,
    /// Families of which every measured item failed on the device, and why.
    refused: BTreeMap<Family, String>,
}

/// A cost and its source. An estimate has one sample, and is its own median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub cost: Cost,
    pub source: Source,
}

/// Where a cost comes from, most reliable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The signature was measured on this device.
    Measured,
    /// Other signatures of its family were.
    Family,
    /// Only other families were.
    Guess,
}

impl CostModel {
    /// Fits a model to `rows`, all of one device. Shards measured together with copies are not used as points.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a ProfileRow>) -> CostModel {
        let mut model = CostModel::default();
        let mut observed: BTreeMap<Family, Vec<Observation>> = BTreeMap::new();
        let rows: Vec<&ProfileRow> = rows.into_iter().collect();
        model.shard_overheads = ShardOverheads::of(&rows);
        for row in rows {
            let family = Family::of_row(row);
            let Some(cost) = row.cost() else {
                model.refused.insert(family, row.note.clone());
                continue;
            };
            let is_new = model.measured.insert(row.signature.clone(), cost).is_none();
            if is_new && row.copied_bytes() == Bytes::ZERO {
                observed.entry(family).or_default().push(Observation::new(row, cost));
            }
        }
        model.refused.retain(|family, _| !observed.contains_key(family));
        let all: Vec<Observation> = observed.values().flatten().copied().collect();
        model.any = FamilyFit::of(&all);
        let fitted = observed.into_iter().filter_map(|(family, of)| Some((family, FamilyFit::of(&of)?)));
        model.families = fitted.collect();
        model
    }

    /// The measured cost of `signature`.
    pub fn measured(&self, signature: &Signature) -> Option<&Cost> {
        self.measured.get(signature)
    }

    /// The measured cost of `item`, else an estimate from its family, else from all families. `None` if nothing was
    /// measured, or the device cannot compute the family.
    pub fn cost(&self, item: &Item) -> Option<Estimate> {
        if let Some(cost) = self.measured(&item.signature) {
            return Some(Estimate { cost: *cost, source: Source::Measured });
        }
        let family = Family::of_item(item);
        let (fitted, source) = match self.families.get(&family) {
            Some(fitted) => (fitted, Source::Family),
            None if self.refused.contains_key(&family) => return None,
            None => (self.any.as_ref()?, Source::Guess),
        };
        let time = fitted.time(item.flops as f64, item.bytes.0 as f64);
        let cost = Cost {
            time: Statistics { n: 1, median: time, mad: Micros::ZERO, min: time, p95: time },
            cpu: time,
            kernels: None,
            workspace: fitted.workspace(item),
            held: fitted.held(item),
            disturbed: 0.0,
            energy: None,
            conditions: Conditions::default(),
        };
        Some(Estimate { cost, source })
    }

    /// Estimated time of a shard with this fraction of `item`'s work, where the whole item takes `whole`: the growth of
    /// its family, scaled to `whole`, where that was measured down to so little work; else by the overhead of other shards.
    /// Between `fraction · whole` and `whole`.
    pub fn shard_time(&self, item: &Item, whole: Micros, fraction: f64) -> Micros {
        let family = Family::of_item(item);
        let (flops, bytes) = (item.flops as f64, item.bytes.0 as f64);
        let covering = self.families.get(&family).filter(|fitted| fitted.covers(flops * fraction, bytes * fraction));
        let ratio = covering.map_or_else(
            || fraction + self.shard_overheads.get(&family) * (1.0 - fraction),
            |fitted| {
                let (all, shard) = (fitted.time(flops, bytes).0, fitted.time(flops * fraction, bytes * fraction).0);
                if all > 0.0 { shard / all } else { fraction }
            },
        );
        Micros(whole.0 * ratio.clamp(fraction, 1.0))
    }

    /// The fitted families, in order.
    pub(super) fn families(&self) -> impl Iterator<Item = (&Family, &FamilyFit)> {
        self.families.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MeasurementMode, ProfiledDevice, growth::Pattern, items};
    use edgecut_engine::EngineId;
    use edgecut_graph::{DType, Granularity, Graph, Operator, Origin, TensorType, units::Bytes};

    /// One `nn.relu` for each number of elements.
    fn relus(sizes: &[u64]) -> Vec<Item> {
        let mut graph = Graph::new();
        for size in sizes {
            let ty = TensorType::of(DType::F32, &[*size]);
            let x = graph.add_tensor(format!("x{size}"), ty.clone(), Origin::Input);
            let operator = Operator::new("nn.relu", [x]);
            let id = graph.add_operator(operator, &[ty]);
            graph.outputs.extend(graph.operator(id).outputs.clone());
        }
        items(&graph, Granularity::Op)
    }

    fn rows(items: &[Item], time: impl Fn(&Item) -> f64) -> Vec<ProfileRow> {
        let engine = EngineId { name: "e".into(), version: "1".into() };
        let device =
            ProfiledDevice { server: "s".into(), device: "cpu".into(), hardware: "h".into(), engine, threads: 1 };
        let row = |(id, item): (usize, &Item)| {
            let t = Micros(time(item));
            let cost = Cost {
                time: Statistics { n: 5, median: t, mad: Micros::ZERO, min: t, p95: t },
                cpu: t,
                kernels: None,
                workspace: Bytes::ZERO,
                held: Bytes::ZERO,
                disturbed: 0.0,
                energy: None,
                conditions: Conditions::default(),
            };
            ProfileRow::new(&device, MeasurementMode::Isolated, Granularity::Op, id, item, &Ok(cost))
        };
        items.iter().enumerate().map(row).collect()
    }

    #[test]
    fn costs_that_were_not_measured_are_estimated_and_marked() {
        let items = relus(&[1000, 2000, 4000, 8000, 3000]);
        let rows = rows(&items[..4], |item| 10.0 + item.flops as f64 / 100.0);
        let model = CostModel::of(&rows);
        let known = model.cost(&items[1]).unwrap();
        assert_eq!((known.cost.time.median, known.source), (Micros(30.0), Source::Measured));
        let estimate = model.cost(&items[4]).unwrap();
        assert_eq!(estimate.source, Source::Family);
        assert!((estimate.cost.time.median.0 - 40.0).abs() < 1e-6);
        assert!((model.shard_time(&items[3], Micros(90.0), 0.5).0 - 50.0).abs() < 1e-6, "the base time is not halved");
        let errors = model.errors(&rows.iter().collect::<Vec<_>>());
        assert_eq!((errors.len(), errors[0].n, errors[0].pattern), (2, 4, Some(Pattern::Affine)));
        assert_eq!((errors[1].operator.as_str(), errors[1].n), ("(all)", 4));
        assert!(errors[0].error_worst.unwrap() < 1e-6);
        assert!(CostModel::of(&[]).cost(&items[0]).is_none());
    }

    #[test]
    fn families_that_a_device_cannot_compute_have_no_estimate() {
        let items = relus(&[1000, 2000]);
        let mut all = rows(&items, |_| 1.0);
        all[0] = ProfileRow { time_us_median: None, note: "no kernel".to_string(), ..all[0].clone() };
        assert!(CostModel::of(&all).cost(&items[0]).is_some(), "another item of the family was measured");
        assert!(CostModel::of(&all[..1]).cost(&items[1]).is_none());
    }
}
