//! Calibrates the devices of a cluster: profiles a small model on each, runs it on each alone and on pairs of them, and fits
//! what runs take beyond the profiles.

use std::{collections::BTreeMap, path::Path};

use smol_str::SmolStr;

use super::{
    model::CalibrationModel,
    steps::{Known, samples},
};
use crate::{
    pilot::outcome::wake_times,
    request::{DeviceRows, ModelGroups, PlanSettings, RequestError},
    run::perform::{PerformError, RunContext, perform},
    survey::{DeviceProfile, SurveyError, SurveyProgress, SurveyRequest, profiled_device, survey},
};
use edgecut_agent::{
    Cluster, DeviceSpec, Inventory,
    client::Fleet,
    deployment::Deployment,
    results::{Outcome, record::Record},
};
use edgecut_engine::statistics::median;
use edgecut_graph::{DeviceName, Granularity, units::Micros};
use edgecut_plan::{
    DeviceId, NoPlan, Plan, TransferFormat,
    check::Violation,
    file::ModelRef,
    plan,
    problem::{Objective, Targets},
    rule::{Rule, RuleKind},
    search::Options,
    split::ratios::Ratios,
};
use edgecut_profile::{Calibration, CalibrationRow, StepSample};

/// How long each plan runs, and how often at least and at most.
const RUN_TIME: Micros = Micros(1.5e6);
const RUNS: (u64, u64) = (12, 60);
/// Placements that a plan is sought among: the devices are given, only the order is free.
const EVALUATIONS: u64 = 200;
/// Name of the model's profiles.
const MODEL: &str = "calibration";
/// Time for the profile on each device.
const PROFILE_BUDGET: Micros = Micros(10e6);

/// What is calibrated.
pub(crate) struct CalibrationRequest<'a> {
    pub fleet: &'a Fleet,
    pub cluster: &'a Cluster,
    /// With the links.
    pub inventory: &'a Inventory,
    /// The folder of profiles.
    pub folder: &'a Path,
    pub progress: &'a (dyn Fn(&str) + Sync),
}

/// Why devices could not be calibrated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CalibrationError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the calibration's model cannot be planned: {0}")]
    NoPlan(#[from] NoPlan),
    #[error(transparent)]
    Plan(#[from] Violation),
    #[error(transparent)]
    Run(#[from] PerformError),
    #[error("{0}: its agent reported times that no calibration can be fitted to")]
    InvalidTimes(DeviceName),
}

/// Observations of one device.
#[derive(Default)]
struct Seen {
    steps: Vec<StepSample>,
    /// From the arrival of an operand to the start of the step that waited for it.
    exchanges: Vec<Micros>,
}

/// The calibrations of all devices of `request`, in the order of its inventory.
///
/// # Errors
/// If an agent fails, a device cannot compute the model, or no calibration can be fitted to its times.
pub(crate) async fn calibrate(request: &CalibrationRequest<'_>) -> Result<Vec<CalibrationRow>, CalibrationError> {
    let CalibrationModel { graph, sides } = CalibrationModel::new();
    let model = ModelGroups::of(&graph, Granularity::Op);
    let model_hash = blake3::hash(format!("{sides:?} {:?}", model.names).as_bytes()).to_hex();
    let mut wanted = SurveyRequest::new(&graph, MODEL, &model_hash, request.folder);
    wanted.granularity = model.granularity;
    wanted.sampling.budget = PROFILE_BUDGET;
    // Old measurements cannot be compared with runs made now.
    wanted.remeasure = true;
    let told = |now: SurveyProgress<'_>| (request.progress)(&format!("profiling {}", now.device));
    let surveyed = survey(request.fleet, request.cluster, request.inventory, &wanted, &told).await?;
    let devices = &request.inventory.devices;
    let mut seen: Vec<Seen> = devices.iter().map(|_| Seen::default()).collect();
    let alone = (0..devices.len()).map(|device| [device; 2]);
    let places: Vec<[usize; 2]> = alone.chain(pairs(devices)).collect();
    for place in places {
        let names = place.map(|device| devices[device].name.to_string());
        let [first, second] = &names;
        (request.progress)(&if first == second { format!("running on {first}") } else { names.join(" and ") });
        let run = CalibrationRun { request, model: &model, sides: &sides, surveyed: &surveyed };
        run.add(&place.map(|device| devices[device].name.clone()), &mut seen).await?;
    }
    let row = |(seen, device): (Seen, &DeviceSpec)| -> Result<CalibrationRow, CalibrationError> {
        let exchange = if seen.exchanges.is_empty() { Micros::ZERO } else { median(&seen.exchanges) };
        let fitted = Calibration::fit(&seen.steps, exchange);
        let row = CalibrationRow::new(&profiled_device(device), fitted, &seen.steps);
        Some(row).filter(CalibrationRow::is_valid).ok_or_else(|| CalibrationError::InvalidTimes(device.name.clone()))
    };
    seen.into_iter().zip(devices).map(row).collect()
}

/// The pairs of devices that exchange messages, in both roles: of every server the first device, with that of the next one.
fn pairs(devices: &[DeviceSpec]) -> impl Iterator<Item = [usize; 2]> {
    let is_first =
        |device: &usize| devices.iter().position(|d| d.name.server == devices[*device].name.server) == Some(*device);
    let firsts: Vec<usize> = (0..devices.len()).filter(is_first).collect();
    let count = if firsts.len() > 1 { firsts.len() } else { 0 };
    let pair = move |at: usize| [firsts[at], firsts[(at + 1) % firsts.len()]];
    let neighbours: Vec<[usize; 2]> = (0..count).map(pair).collect();
    // Of two devices the ring has both roles already.
    let swapped = if count > 2 { neighbours.clone() } else { Vec::new() };
    neighbours.into_iter().chain(swapped.into_iter().map(|[a, b]| [b, a]))
}

/// The model on the agents.
struct CalibrationRun<'a> {
    request: &'a CalibrationRequest<'a>,
    model: &'a ModelGroups<'a>,
    sides: &'a [usize],
    surveyed: &'a [DeviceProfile],
}

impl CalibrationRun<'_> {
    /// Runs the model with its two sides on these devices, and adds what that shows to `seen`.
    async fn add(&self, place: &[DeviceName; 2], seen: &mut [Seen]) -> Result<(), CalibrationError> {
        let CalibrationRequest { fleet, cluster, inventory, .. } = self.request;
        let server = place[0].server.clone();
        let inventory = Inventory { source: server.clone(), sink: server, ..(*inventory).clone() };
        let profiles: Vec<DeviceRows> = self.surveyed.iter().map(DeviceRows::from).collect();
        let address = |device: &DeviceName| cluster.server(&device.server).map(|server| server.endpoint.clone());
        let settings = self.settings(place);
        let request = settings.request(self.model, &inventory, &profiles, address)?;
        let candidate = plan(&request)?;
        let made = candidate.to_plan(&request)?;
        let given = BTreeMap::new();
        let context = RunContext { fleet, cluster, graph: &candidate.expanded.graph, given: &given };
        let repeat = ((RUN_TIME.0 / made.predicted.latency_us.0.max(1.0)) as u64).clamp(RUNS.0, RUNS.1);
        let (deployment, record) = perform(&context, &made, repeat, 1).await?;
        let known = |group: u32, device: DeviceId| {
            let of = candidate.expanded.of.get(group as usize).copied().flatten()?;
            let cost = request.instance.costs[of][device.0 as usize]?;
            Some(Known { isolated: cost.time, weights: self.model.items[of].parameter_bytes })
        };
        for (device, steps) in samples(&made, &deployment, &record, known) {
            seen[device.0 as usize].steps.extend(steps);
        }
        if place[0] != place[1] {
            self.add_exchanges(&made, &deployment, &record, seen);
        }
        Ok(())
    }

    fn settings(&self, place: &[DeviceName; 2]) -> PlanSettings {
        let pin = |(group, operators): (usize, &Vec<_>)| {
            let side = operators.first().map_or(0, |id: &edgecut_graph::OperatorId| self.sides[id.0 as usize]);
            Rule { kind: RuleKind::Pin, groups: format!("#{group}"), device: place[side].to_string() }
        };
        PlanSettings {
            model: ModelRef::default(),
            cluster: None,
            objective: Objective::Latency,
            targets: Targets::default(),
            transfer: TransferFormat::Exact,
            memory: None,
            rules: self.model.groups.iter().enumerate().map(pin).collect(),
            may_split: false,
            ratios: Ratios::Tuned,
            halo: None,
            like: None,
            fits_memory: false,
            search: Options { budget: Some(EVALUATIONS), ..Options::default() },
        }
    }

    /// How long exchanges took beyond their links' costs: the last byte until the reader starts, and the median of what
    /// transfers took longer than the link's cost.
    fn add_exchanges(&self, plan: &Plan, deployment: &Deployment, record: &Record, seen: &mut [Seen]) {
        let Some(outcome) = Outcome::of(plan, deployment, record) else { return };
        let wakes: BTreeMap<SmolStr, Micros> = wake_times(record);
        for (index, device) in plan.devices.iter().enumerate() {
            let here = outcome.transfers.iter().filter(|transfer| transfer.to == device.server);
            let later: Vec<Micros> = here.filter_map(|t| Some(t.measured_us - t.predicted_us?)).collect();
            let wake = wakes.get(device.server.as_str()).copied();
            if let (Some(wake), false) = (wake, later.is_empty()) {
                seen[index].exchanges.push(wake + median(&later).max(Micros::ZERO));
            }
        }
    }
}
