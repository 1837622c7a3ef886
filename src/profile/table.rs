//! The profile as a CSV table: one row an operator or fused group.

use serde::{Deserialize, Serialize};

use super::{Item, Signature, measure::Cost};
use crate::{
    engine::EngineId,
    graph::Granularity,
    statistics::Statistics,
    units::{Bytes, Micros},
};

/// How items were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every distinct signature once, alone.
    #[default]
    Isolated,
    /// Every item in its place while the whole model runs.
    InSitu,
}

/// The device that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub server: String,
    /// Name of the device on its server.
    pub device: String,
    /// Model of the hardware.
    pub hardware: String,
    pub engine: EngineId,
    pub threads: usize,
}

/// One line of a profile. Times are of the wall clock unless the name says `cpu`.
///
/// Operators of one signature have equal measurements when measured alone. The measured columns are empty
/// where the device cannot compute the item; `note` says why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub server: String,
    pub device: String,
    pub hardware: String,
    pub engine: String,
    pub engine_version: String,
    pub threads: usize,
    pub mode: Mode,
    pub granularity: Granularity,
    /// Place in the order of the model, from 0.
    pub id: usize,
    /// Indices of the operators in the model, joined by `+`.
    pub operators: String,
    /// Their names, joined by `+`.
    pub operator: String,
    pub signature: Signature,
    /// Types of operands and parameters, `->`, types of outputs.
    pub shapes: String,
    pub dtype: String,
    pub flops: u64,
    /// What must be read and written: operands, parameters, outputs.
    pub bytes: u64,
    /// Samples that the statistics are of.
    pub n: u32,
    pub time_us_median: Option<f64>,
    pub time_us_mad: Option<f64>,
    pub time_us_min: Option<f64>,
    pub time_us_p95: Option<f64>,
    pub cpu_us_median: Option<f64>,
    /// On a GPU, what passed on the card from the first to the last kernel, by its own clock.
    pub gpu_us_median: Option<f64>,
    pub workspace_bytes: Option<u64>,
    pub output_bytes: u64,
    /// Parameters as the model has them.
    pub parameter_bytes: u64,
    /// What the engine holds for the item: parameters in its own layout.
    pub held_bytes: Option<u64>,
    /// Share of all samples that another process disturbed; they count only where `n` would be below 5.
    pub disturbed: f64,
    pub note: String,
    /// What part of item `id` the row is of; empty of an item that is whole. Files may lack the columns.
    #[serde(default)]
    pub axis: Option<usize>,
    #[serde(default)]
    pub fraction: Option<f64>,
    #[serde(default)]
    pub copied_bytes: Option<u64>,
}

/// A part of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The axis that the item is cut along, as the plan file numbers it.
    pub axis: usize,
    /// Of the positions along the axis.
    pub fraction: f64,
    /// What slices and joins write that were measured with it.
    pub copied: Bytes,
}

impl Share {
    /// Whether this is the same part, as far as its cost goes.
    pub fn is(&self, other: &Share) -> bool {
        self.axis == other.axis && (self.fraction - other.fraction).abs() < 1e-9 && self.copied == other.copied
    }
}

impl Row {
    /// The row of item number `id`, which cost `cost` or could not be computed for the reason given.
    pub fn new(
        place: &Place,
        mode: Mode,
        granularity: Granularity,
        id: usize,
        item: &Item,
        cost: &Result<Cost, String>,
    ) -> Row {
        let cost_of = |get: fn(&Cost) -> Micros| cost.as_ref().ok().map(|cost| nanoseconds(get(cost)));
        Row {
            server: place.server.clone(),
            device: place.device.clone(),
            hardware: place.hardware.clone(),
            engine: place.engine.name.clone(),
            engine_version: place.engine.version.clone(),
            threads: place.threads,
            mode,
            granularity,
            id,
            operators: indices(item),
            operator: item.name.clone(),
            signature: item.signature.clone(),
            shapes: item.shapes.clone(),
            dtype: item.dtype.clone(),
            flops: item.flops,
            bytes: item.bytes.0,
            n: cost.as_ref().map_or(0, |cost| cost.time.n),
            time_us_median: cost_of(|cost| cost.time.median),
            time_us_mad: cost_of(|cost| cost.time.mad),
            time_us_min: cost_of(|cost| cost.time.min),
            time_us_p95: cost_of(|cost| cost.time.p95),
            cpu_us_median: cost_of(|cost| cost.cpu),
            gpu_us_median: cost.as_ref().ok().and_then(|cost| cost.kernels).map(nanoseconds),
            workspace_bytes: cost.as_ref().ok().map(|cost| cost.workspace.0),
            output_bytes: item.output_bytes.0,
            parameter_bytes: item.parameter_bytes.0,
            held_bytes: cost.as_ref().ok().map(|cost| cost.held.0),
            disturbed: cost.as_ref().map_or(0.0, |cost| (cost.disturbed * 1000.0).round() / 1000.0),
            note: cost.as_ref().err().map_or(String::new(), |why| why.replace(['\n', '\r'], " ")),
            axis: None,
            fraction: None,
            copied_bytes: None,
        }
    }

    /// The same as the row of a `share` of item `id`: `whole` is the item, and this row is of its part.
    pub fn part_of(self, whole: &Item, share: &Share) -> Row {
        Row {
            operators: indices(whole),
            axis: Some(share.axis),
            fraction: Some(share.fraction),
            copied_bytes: Some(share.copied.0),
            ..self
        }
    }

    /// Which part of its item the row is of; `None` if it is of all of it.
    pub fn share(&self) -> Option<Share> {
        let (axis, fraction) = (self.axis?, self.fraction?);
        Some(Share { axis, fraction, copied: Bytes(self.copied_bytes.unwrap_or(0)) })
    }

    /// Whether this is a row of all of `item`.
    pub fn is_of(&self, item: &Item) -> bool {
        self.share().is_none() && self.signature == item.signature && self.operators == indices(item)
    }

    /// What the row says the item costs; `None` where the device cannot compute it. What an imported row does not say
    /// counts as none, and as no scatter.
    pub fn cost(&self) -> Option<Cost> {
        let median = self.time_us_median?;
        Some(Cost {
            time: Statistics {
                n: self.n,
                median: Micros(median),
                mad: Micros(self.time_us_mad.unwrap_or(0.0)),
                min: Micros(self.time_us_min.unwrap_or(median)),
                p95: Micros(self.time_us_p95.unwrap_or(median)),
            },
            cpu: Micros(self.cpu_us_median.unwrap_or(0.0)),
            kernels: self.gpu_us_median.map(Micros),
            workspace: Bytes(self.workspace_bytes.unwrap_or(0)),
            held: Bytes(self.held_bytes.unwrap_or(self.parameter_bytes)),
            disturbed: self.disturbed,
        })
    }
}

/// The item's operators as the table has them.
fn indices(item: &Item) -> String {
    let indices: Vec<String> = item.operators.iter().map(|id| id.0.to_string()).collect();
    indices.join("+")
}

/// Rounded to what a clock can tell.
fn nanoseconds(time: Micros) -> f64 {
    (time.0 * 1e3).round() / 1e3
}
