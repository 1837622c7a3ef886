//! The overhead of shards: the part of an item's time that each of its shards takes whatever its fraction is.
//!
//! A shard of fraction `f` takes `f + overhead · (1 − f)` of the whole's time: smaller matrices fill the tiles of kernels
//! worse, and weights are read by each shard.

use std::collections::{BTreeMap, HashMap};

use crate::{ProfileRow, family::Family};
use edgecut_engine::statistics::quantile;
use edgecut_graph::units::Bytes;

/// Of shards of which no like was measured.
const DEFAULT: f64 = 0.05;
/// Fewest measured shards that an overhead is the median of.
const MIN_SHARDS: usize = 3;

/// Overheads by family, as measured shards have them.
#[derive(Debug, Clone, Default)]
pub(super) struct ShardOverheads {
    families: BTreeMap<Family, f64>,
    /// Of all families together.
    any: Option<f64>,
}

impl ShardOverheads {
    /// From the shards in `rows`, all of one device, but for those that were measured together with copies.
    pub(super) fn of(rows: &[&ProfileRow]) -> ShardOverheads {
        let wholes: HashMap<usize, (Family, f64)> = rows
            .iter()
            .filter(|row| row.shard().is_none())
            .filter_map(|row| Some((row.id, (Family::of_row(row), row.time_us_median?.0))))
            .collect();
        let mut all = Vec::new();
        let mut by_family: BTreeMap<Family, Vec<f64>> = BTreeMap::new();
        for row in rows {
            let (Some(shard), Some((family, whole)), Some(time)) =
                (row.shard(), wholes.get(&row.id), row.time_us_median)
            else {
                continue;
            };
            if shard.copied == Bytes::ZERO && shard.fraction < 1.0 && *whole > 0.0 {
                let overhead = (time.0 / whole - shard.fraction) / (1.0 - shard.fraction);
                all.push(overhead.clamp(0.0, 1.0));
                by_family.entry(family.clone()).or_default().push(overhead.clamp(0.0, 1.0));
            }
        }
        let families = by_family.into_iter().filter_map(|(family, of)| Some((family, median_of_enough(of)?)));
        ShardOverheads { families: families.collect(), any: median_of_enough(all) }
    }

    /// That of a family: as measured, else as in other families.
    pub(super) fn get(&self, family: &Family) -> f64 {
        self.families.get(family).copied().or(self.any).unwrap_or(DEFAULT)
    }
}

fn median_of_enough(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    quantile(&of, 0.5).filter(|_| of.len() >= MIN_SHARDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_shards_say_nothing() {
        assert_eq!(median_of_enough(vec![0.1, 0.2]), None);
        assert_eq!(median_of_enough(vec![0.3, 0.1, 0.2]), Some(0.2));
        assert_eq!(ShardOverheads { any: Some(0.2), ..ShardOverheads::default() }.get(&Family::default()), 0.2);
        assert_eq!(ShardOverheads::default().get(&Family::default()), DEFAULT);
    }
}
