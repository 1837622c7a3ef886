//! The request of a survey, its progress and its errors.

use std::path::{Path, PathBuf};

use edgecut_agent::{client::AgentError, protocol::named_tensors::NamedTensors};
use edgecut_graph::{DeviceName, Granularity, Graph, units::Micros};
use edgecut_profile::{MeasurementMode, ProfileError, ProfiledBinding, Sampling};

/// What to measure on every device.
#[derive(Debug, Clone)]
pub struct SurveyRequest<'a> {
    pub graph: &'a Graph,
    /// The model's name; with the hash it identifies the profile.
    pub model: &'a str,
    /// The hash of the model's file.
    pub model_hash: &'a str,
    /// The sizes of the model's unknown dimensions.
    pub binding: ProfiledBinding,
    pub mode: MeasurementMode,
    pub granularity: Granularity,
    pub sampling: Sampling,
    /// Whether to measure the model as a whole too.
    pub whole: bool,
    /// Time for shards of the items on each device; `None` to measure none.
    pub shard_budget: Option<Micros>,
    /// Whether to discard earlier measurements.
    pub remeasure: bool,
    pub missing: MissingPolicy,
    /// The folder of the profiles.
    pub folder: &'a Path,
    /// Inputs and parameters that are not generated from their names.
    pub contents: NamedTensors,
}

impl<'a> SurveyRequest<'a> {
    /// The groups of a model alone, with the defaults of `edgecut profile`; profiles are kept in `folder`.
    pub fn new(graph: &'a Graph, model: &'a str, model_hash: &'a str, folder: &'a Path) -> SurveyRequest<'a> {
        SurveyRequest {
            graph,
            model,
            model_hash,
            binding: ProfiledBinding::default(),
            mode: MeasurementMode::Isolated,
            granularity: Granularity::Fused,
            sampling: Sampling::default(),
            whole: false,
            shard_budget: None,
            remeasure: false,
            missing: MissingPolicy::Measure,
            folder,
            contents: NamedTensors::new(),
        }
    }
}

/// What to do with items that are not in the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingPolicy {
    #[default]
    Measure,
    /// Leave them without rows.
    Skip,
}

/// The progress on one device.
#[derive(Debug, Clone, Copy)]
pub struct SurveyProgress<'a> {
    pub device: &'a DeviceName,
    pub measured: usize,
    pub items: usize,
    /// The last item measured; empty at the beginning.
    pub item: &'a str,
    /// Who else is measuring on the device's machine, so that nothing is measured yet.
    pub waiting_for: Option<&'a str>,
}

/// Why a survey failed.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error("{cause}; {kept} of {items} rows of {device} are kept in {}: run the command again to continue", path.display())]
    Agent { cause: AgentError, device: DeviceName, kept: usize, items: usize, path: PathBuf },
    #[error(transparent)]
    Store(#[from] ProfileError),
}
