//! Runs a schedule that offloads tensors to a neighbour on the agents of a cluster, and checks results and memory.

use std::collections::BTreeMap;

use edgecut_engine::EngineError;
use edgecut_graph::{
    Granularity, Graph, TensorData, TensorId,
    units::{Bytes, Micros},
};
use edgecut_plan::{
    self as plan, DeviceId, Plan,
    check::Violation,
    file::ModelRef,
    offload::{OffloadDevices, OffloadPlan},
};
use smol_str::SmolStr;

use super::{
    outputs::{OutputError, outputs},
    perform::{PerformError, RunContext, perform},
};
use edgecut_agent::{
    Cluster,
    client::Fleet,
    results::{Difference, Outcome},
};

/// Number of measured runs.
const REPEAT: u64 = 10;

/// Runs offloaded schedules on agents.
pub(crate) struct OffloadRunner<'a> {
    pub fleet: &'a Fleet,
    pub cluster: &'a Cluster,
    pub devices: &'a OffloadDevices<'a>,
    /// The content of an input, parameter or constant of a graph that computes the model.
    pub content: &'a dyn Fn(&Graph, TensorId) -> Result<TensorData, EngineError>,
    /// Contents that agents cannot generate, by name.
    pub given: &'a BTreeMap<SmolStr, TensorData>,
}

/// Measured outputs, time and memory of an offloaded schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct OffloadRun {
    pub outputs: Vec<TensorData>,
    /// Median latency.
    pub time: Micros,
    /// Parameters on the computing device.
    pub parameters: Bytes,
    /// Peak memory of the computing device without parameters.
    pub peak: Bytes,
    /// The largest excess of a step's workspace on the computing device over its prediction.
    pub excess_workspace: Bytes,
    /// Peak memory of the neighbour without parameters.
    pub neighbour_peak: Bytes,
}

/// How the run of an offloaded schedule contradicts its prediction.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OffloadMismatch {
    #[error("the schedule's results differ from the model's: {0}")]
    Results(Difference),
    #[error(
        "the schedule took {peak} of memory; its arena was predicted as {arena}, plus {excess} of unpredicted workspace"
    )]
    Memory { peak: Bytes, arena: Bytes, excess: Bytes },
}

impl OffloadRun {
    /// Checks the run of a schedule that was predicted to fit in `arena`, whose outputs differ from the model's by
    /// `difference`.
    ///
    /// # Errors
    /// If the results differ from the model's beyond tolerance, or the peak exceeds the arena plus the excess
    /// workspace.
    pub fn check(&self, arena: Bytes, difference: Difference) -> Result<(), OffloadMismatch> {
        let (peak, excess) = (self.peak, self.excess_workspace);
        match () {
            () if !difference.is_tolerable() => Err(OffloadMismatch::Results(difference)),
            () if peak > arena + excess => Err(OffloadMismatch::Memory { peak, arena, excess }),
            () => Ok(()),
        }
    }
}

/// Why an offloaded schedule cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum OffloadRunError {
    #[error("the plan does not pass its check: {0}")]
    Check(#[from] Violation),
    #[error(transparent)]
    Perform(#[from] PerformError),
    #[error(transparent)]
    Outputs(#[from] OutputError),
    #[error("no run was measured")]
    NothingMeasured,
}

impl OffloadRunner<'_> {
    /// Runs the plan of an offloaded schedule.
    ///
    /// # Errors
    /// If the plan fails its check, or an agent rejects its part, fails or is lost.
    pub async fn run(&self, offload: &OffloadPlan, seed: u64) -> Result<OffloadRun, OffloadRunError> {
        let (problem, solution) = (&offload.problem, &offload.solution);
        let plan = Plan::new(problem, solution, ModelRef::default(), Granularity::Fused, seed);
        plan::check::plan(problem, &plan)?;
        let context = RunContext { fleet: self.fleet, cluster: self.cluster, graph: &offload.graph, given: self.given };
        let (deployment, record) = perform(&context, &plan, REPEAT, 1).await?;
        let outcome = Outcome::of(&plan, &deployment, &record).ok_or(OffloadRunError::NothingMeasured)?;
        let memory = |device: DeviceId| {
            let name = problem.device(device).device_name().to_string();
            outcome.memory.iter().find(move |memory| memory.device == name)
        };
        let peak = |device: DeviceId| memory(device).map(|m| m.peak_bytes - m.parameter_bytes).unwrap_or_default();
        let here = problem.device(self.devices.device).device_name().to_string();
        let groups = outcome.groups.iter().filter(|group| group.device == here);
        let excess = groups.map(|group| group.predicted_workspace_bytes.shortfall(group.workspace_bytes)).max();
        Ok(OffloadRun {
            outputs: outputs(&deployment.terminals, &record.sink_values, &|id| (self.content)(&offload.graph, id))?,
            time: outcome.latency.median_us,
            parameters: memory(self.devices.device).map(|m| m.parameter_bytes).unwrap_or_default(),
            peak: peak(self.devices.device),
            excess_workspace: excess.unwrap_or_default(),
            neighbour_peak: peak(self.devices.host),
        })
    }
}
