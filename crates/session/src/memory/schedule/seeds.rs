//! How far the results of several seeds scatter.

use edgecut_engine::statistics::quantile;
use edgecut_graph::units::{Bytes, Micros};
use edgecut_interop::memory_workload::MemoryWorkload;
use edgecut_memory::target::Target;
use serde::Serialize;

use super::{options::SearchOptions, search};
use crate::{Error, Events};

/// The result of one seed; empty if it found none.
#[derive(Debug, Serialize)]
pub struct SeedRow {
    pub seed: u64,
    pub peak_bytes: Option<Bytes>,
    pub time_us: Option<Micros>,
    /// To those of the original order.
    pub peak_ratio: Option<f64>,
    pub time_ratio: Option<f64>,
}

/// The distribution of a figure over seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeedScatter {
    pub minimum: f64,
    pub median: f64,
    pub maximum: f64,
}

/// The best schedule of each of `count` seeds, from that of `options` on.
pub(super) fn search_seeds(
    workload: &MemoryWorkload,
    target: Target,
    options: &SearchOptions,
    count: u64,
    events: &Events,
) -> Result<Vec<SeedRow>, Error> {
    let mut rows = Vec::new();
    for seed in options.seed..options.seed.saturating_add(count) {
        let solved = search::solve_quietly(workload, &SearchOptions { seed, ..*options }, events)?;
        let best = solved.best(target);
        // Writing a schedule checks it.
        let written = best.map(|best| solved.write(best)).transpose().map_err(Error::failed)?;
        let found = written.map(|written| written.figures);
        rows.push(SeedRow {
            seed,
            peak_bytes: found.map(|f| f.peak_bytes),
            time_us: found.map(|f| f.time_us),
            peak_ratio: found.map(|f| f.peak_bytes.0 as f64 / solved.original.peak_bytes.0 as f64),
            time_ratio: found.map(|f| f.time_us.0 / solved.original.time_us.0),
        });
    }
    Ok(rows)
}

impl SeedScatter {
    /// The distribution of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<SeedScatter> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Some(SeedScatter { minimum: *values.first()?, median: quantile(&values, 0.5)?, maximum: *values.last()? })
    }
}
