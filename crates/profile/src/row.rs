//! One row of a profile table: an item, or a shard of one, with its measured cost.

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use time::OffsetDateTime;

use crate::{Conditions, Cost, Energy, Governor, Item, ProfiledDevice, ProfiledShard, Signature};
use edgecut_engine::{EngineId, energy::EnergySource, statistics::Statistics};
use edgecut_graph::{
    Granularity,
    units::{Bytes, Joules, Micros, Watts},
};

/// How items are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasurementMode {
    /// Every distinct signature once, in isolation.
    #[default]
    Isolated,
    /// Every item in context, while the whole model runs.
    InSitu,
}

/// One line of a profile. Times are wall-clock times unless the name says `cpu`.
///
/// Items with the same signature share one measurement in isolated mode. The measured columns are empty if the device
/// cannot compute the item; `note` gives the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileRow {
    pub server: String,
    pub device: String,
    pub hardware: String,
    pub engine: String,
    pub engine_version: String,
    pub threads: usize,
    pub mode: MeasurementMode,
    pub granularity: Granularity,
    /// Position of the item in the model, from 0.
    pub id: usize,
    /// Indices of the operators in the model, joined by `+`.
    pub operators: String,
    /// Names of the operators, joined by `+`.
    pub operator: String,
    pub signature: Signature,
    /// Types of operands and parameters, `->`, types of outputs.
    pub shapes: String,
    pub dtype: String,
    pub flops: u64,
    /// Operands, parameters and outputs.
    pub accessed_bytes: Bytes,
    /// Number of samples behind the statistics.
    pub n: u32,
    pub time_us_median: Option<Micros>,
    pub time_us_mad: Option<Micros>,
    pub time_us_min: Option<Micros>,
    pub time_us_p95: Option<Micros>,
    pub cpu_us_median: Option<Micros>,
    /// On a GPU, from the first to the last kernel, by the device's clock.
    pub gpu_us_median: Option<Micros>,
    pub workspace_bytes: Option<Bytes>,
    pub output_bytes: Bytes,
    /// Parameters as stored in the model.
    pub parameter_bytes: Bytes,
    /// Parameters as held by the engine, in its own layout.
    pub held_bytes: Option<Bytes>,
    /// Fraction of all samples that another process disturbed. They enter the statistics only if `n` would be below 5.
    pub disturbed: f64,
    pub note: String,
    /// Set if the row describes a shard of item `id`. Files may lack this and the next two columns.
    #[serde(default)]
    pub axis: Option<usize>,
    #[serde(default)]
    pub fraction: Option<f64>,
    #[serde(default)]
    pub copied_bytes: Option<Bytes>,
    /// The layers of the operators, joined by `+`. Files may lack this and the next column.
    #[serde(default)]
    pub layer: String,
    /// Indices of the results in the model, joined by `+`.
    #[serde(default)]
    pub tensors: String,
    /// When the item was measured. Files may lack this and the next two columns.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub measured_at: Option<OffsetDateTime>,
    #[serde(default)]
    pub governor: Option<Governor>,
    /// Processors that others kept busy while it was measured.
    #[serde(default)]
    pub load: Option<f64>,
    /// Energy of one run, with what the idle device draws. Files may lack this and the next two columns.
    #[serde(default, deserialize_with = "joules")]
    pub energy_j: Option<Joules>,
    /// Power of the idle device.
    #[serde(default, deserialize_with = "watts")]
    pub idle_w: Option<Watts>,
    #[serde(default)]
    pub energy_source: Option<EnergySource>,
    /// The sizes of unknown dimensions if several bindings of the model are profiled. Otherwise empty, and the column is absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub binding: String,
}

/// People write these columns too.
fn joules<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Joules>, D::Error> {
    Ok(from_zero(from)?.map(Joules))
}

fn watts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Watts>, D::Error> {
    Ok(from_zero(from)?.map(Watts))
}

fn from_zero<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match Option::<f64>::deserialize(from)? {
        Some(number) if !(number.is_finite() && number >= 0.0) => {
            Err(D::Error::custom(format!("`{number}`: expected a finite number from 0")))
        }
        number => Ok(number),
    }
}

impl ProfileRow {
    /// The row of item number `id`, with its cost or the reason why it has none.
    pub fn new(
        device: &ProfiledDevice,
        mode: MeasurementMode,
        granularity: Granularity,
        id: usize,
        item: &Item,
        cost: &Result<Cost, String>,
    ) -> ProfileRow {
        let cost_of = |get: fn(&Cost) -> Micros| cost.as_ref().ok().map(|cost| to_nanoseconds(get(cost)));
        let energy = cost.as_ref().ok().and_then(|cost| cost.energy);
        let conditions = cost.as_ref().map(|cost| cost.conditions).unwrap_or_default();
        ProfileRow {
            server: device.server.clone(),
            device: device.device.clone(),
            hardware: device.hardware.clone(),
            engine: device.engine.name.clone(),
            engine_version: device.engine.version.clone(),
            threads: device.threads,
            mode,
            granularity,
            id,
            operators: indices(item),
            operator: item.name.clone(),
            signature: item.signature.clone(),
            shapes: item.shapes.clone(),
            dtype: item.dtype.clone(),
            flops: item.flops,
            accessed_bytes: item.bytes,
            n: cost.as_ref().map_or(0, |cost| cost.time.n),
            time_us_median: cost_of(|cost| cost.time.median),
            time_us_mad: cost_of(|cost| cost.time.mad),
            time_us_min: cost_of(|cost| cost.time.min),
            time_us_p95: cost_of(|cost| cost.time.p95),
            cpu_us_median: cost_of(|cost| cost.cpu),
            gpu_us_median: cost.as_ref().ok().and_then(|cost| cost.kernels).map(to_nanoseconds),
            workspace_bytes: cost.as_ref().ok().map(|cost| cost.workspace),
            output_bytes: item.output_bytes,
            parameter_bytes: item.parameter_bytes,
            held_bytes: cost.as_ref().ok().map(|cost| cost.held),
            disturbed: cost.as_ref().map_or(0.0, |cost| (cost.disturbed * 1000.0).round() / 1000.0),
            note: cost.as_ref().err().map_or(String::new(), |why| why.replace(['\n', '\r'], " ")),
            axis: None,
            fraction: None,
            copied_bytes: None,
            layer: item.layer.clone(),
            tensors: tensors(item),
            measured_at: conditions.measured_at,
            governor: conditions.governor,
            load: conditions.load,
            // In nanojoules and milliwatts: the rest is noise.
            energy_j: energy.map(|energy| Joules((energy.run.0 * 1e9).round() / 1e9)),
            idle_w: energy.map(|energy| Watts((energy.idle.0 * 1e3).round() / 1e3)),
            energy_source: energy.map(|energy| energy.source),
            binding: String::new(),
        }
    }

    /// Turns the row of a shard's own item into the row of `shard` of item `id`, which as a whole is `whole`.
    pub(super) fn into_shard_of(self, whole: &Item, shard: &ProfiledShard) -> ProfileRow {
        ProfileRow {
            operators: indices(whole),
            layer: whole.layer.clone(),
            tensors: tensors(whole),
            axis: Some(shard.axis),
            fraction: Some(shard.fraction),
            copied_bytes: Some(shard.copied),
            ..self
        }
    }

    /// Fills in what the file that the row was read from does not say of its `item`. Returns whether that is anything.
    pub(super) fn complete(&mut self, item: &Item) -> bool {
        let lacks = self.tensors.is_empty() && !item.outputs.is_empty();
        if lacks {
            (self.layer, self.tensors) = (item.layer.clone(), tensors(item));
        }
        lacks
    }

    /// The device that was measured.
    pub fn profiled_device(&self) -> ProfiledDevice {
        ProfiledDevice {
            server: self.server.clone(),
            device: self.device.clone(),
            hardware: self.hardware.clone(),
            engine: EngineId { name: self.engine.clone(), version: self.engine_version.clone() },
            threads: self.threads,
        }
    }

    /// The shard that the row describes; `None` if it describes a whole item.
    pub fn shard(&self) -> Option<ProfiledShard> {
        let (axis, fraction) = (self.axis?, self.fraction?);
        Some(ProfiledShard { axis, fraction, copied: self.copied_bytes() })
    }

    /// Bytes written by slices and concatenations that were measured with a shard.
    pub(super) fn copied_bytes(&self) -> Bytes {
        self.copied_bytes.unwrap_or(Bytes::ZERO)
    }

    /// The energy in the row; `None` if a column is empty.
    pub fn energy(&self) -> Option<Energy> {
        Some(Energy { run: self.energy_j?, idle: self.idle_w?, source: self.energy_source? })
    }

    /// Whether the row describes `item` as a whole.
    pub fn is_of(&self, item: &Item) -> bool {
        self.shard().is_none() && self.signature == item.signature && self.operators == indices(item)
    }

    /// The cost in the row; `None` if the device cannot compute the item. Columns that an imported row leaves empty
    /// count as zero, and the spread of the time as none.
    pub fn cost(&self) -> Option<Cost> {
        let median = self.time_us_median?;
        Some(Cost {
            time: Statistics {
                n: self.n,
                median,
                mad: self.time_us_mad.unwrap_or(Micros::ZERO),
                min: self.time_us_min.unwrap_or(median),
                p95: self.time_us_p95.unwrap_or(median),
            },
            cpu: self.cpu_us_median.unwrap_or(Micros::ZERO),
            kernels: self.gpu_us_median,
            workspace: self.workspace_bytes.unwrap_or(Bytes::ZERO),
            held: self.held_bytes.unwrap_or(self.parameter_bytes),
            disturbed: self.disturbed,
            energy: self.energy(),
            conditions: Conditions { measured_at: self.measured_at, governor: self.governor, load: self.load },
        })
    }
}

/// The item's operators as in the column `operators`.
fn indices(item: &Item) -> String {
    let indices: Vec<String> = item.operators.iter().map(|id| id.0.to_string()).collect();
    indices.join("+")
}

/// The item's results as in the column `tensors`.
fn tensors(item: &Item) -> String {
    let indices: Vec<String> = item.outputs.iter().map(|id| id.0.to_string()).collect();
    indices.join("+")
}

/// Rounded to nanoseconds, the resolution of the clock.
fn to_nanoseconds(time: Micros) -> Micros {
    Micros((time.0 * 1e3).round() / 1e3)
}
