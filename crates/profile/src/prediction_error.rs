//! How well the cost model predicts each family: the rows of `edgecut report costs`.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::{
    ProfileRow, Signature,
    family::Family,
    family_fit::Work,
    growth::{Growth, Pattern},
    model::CostModel,
};
use edgecut_engine::statistics::quantile;
use edgecut_graph::units::{Bytes, Micros};

/// Prediction errors of one family on one device.
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
    /// Window of a convolution: `3x3`, `3x3 by channel`.
    pub window: String,
    /// Distinct measured signatures.
    pub n: usize,
    /// How many of them are shards.
    #[serde(rename = "parts")]
    pub shards: usize,
    pub pattern: Option<Pattern>,
    /// The variable that time is a function of: FLOPs + bytes · `flops_per_byte`; the latter is empty for bytes alone.
    pub work: &'static str,
    pub flops_per_byte: Option<f64>,
    /// Time of a call without work.
    pub base_us: Option<Micros>,
    /// Microseconds per unit of work; empty for constant and stepped growth.
    pub us_per_unit: Option<f64>,
    /// Of the relative leave-one-out errors; empty for fewer than three points.
    pub error_median: Option<f64>,
    pub error_p90: Option<f64>,
    pub error_worst: Option<f64>,
}

impl CostModel {
    /// The errors of every family, and last of all families together. `rows` are those that the model was fitted to,
    /// all of one device, which is taken from the first.
    pub fn errors(&self, rows: &[&ProfileRow]) -> Vec<FamilyError> {
        let Some(first) = rows.first() else { return Vec::new() };
        let shards = count_shards(rows);
        let empty = FamilyError::empty(first);
        let mut all = Vec::new();
        let mut table: Vec<FamilyError> = Vec::new();
        for (family, fitted) in self.families() {
            all.extend(&fitted.fit.errors);
            let (base_us, us_per_unit) = match &fitted.fit.growth {
                Growth::Constant(time) => (*time, None),
                Growth::Affine { base, per_work } => (*base, Some(*per_work)),
                Growth::Stepped(points) => (points.first().map_or(Micros::ZERO, |point| point.time), None),
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
                shards: shards.get(family).copied().unwrap_or(0),
                pattern: Some(fitted.fit.growth.pattern()),
                work,
                flops_per_byte,
                base_us: Some(base_us),
                us_per_unit,
                ..empty.clone()
            };
            table.push(row.with_errors(&fitted.fit.errors));
        }
        let (n, shards) = (table.iter().map(|row| row.n).sum(), table.iter().map(|row| row.shards).sum());
        table.push(FamilyError { n, shards, ..empty }.with_errors(&all));
        table
    }
}

/// Distinct measured signatures of shards by family, without those measured together with copies.
fn count_shards(rows: &[&ProfileRow]) -> HashMap<Family, usize> {
    let mut shards: HashMap<Family, usize> = HashMap::new();
    let mut counted: HashSet<&Signature> = HashSet::new();
    for row in rows.iter().filter(|row| row.copied_bytes() == Bytes::ZERO && row.cost().is_some()) {
        let is_new_shard = row.shard().is_some() && counted.insert(&row.signature);
        *shards.entry(Family::of_row(row)).or_default() += usize::from(is_new_shard);
    }
    shards
}

impl FamilyError {
    /// The row of all families of the device of `row`, without figures.
    fn empty(row: &ProfileRow) -> FamilyError {
        FamilyError {
            server: row.server.clone(),
            device: row.device.clone(),
            hardware: row.hardware.clone(),
            engine: row.engine.clone(),
            engine_version: row.engine_version.clone(),
            threads: row.threads,
            operator: "(all)".to_string(),
            dtype: String::new(),
            window: String::new(),
            n: 0,
            shards: 0,
            pattern: None,
            work: "",
            flops_per_byte: None,
            base_us: None,
            us_per_unit: None,
            error_median: None,
            error_p90: None,
            error_worst: None,
        }
    }

    fn with_errors(self, errors: &[f64]) -> FamilyError {
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
