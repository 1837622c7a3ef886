//! Failover: a plan for the servers that are left, made of what was measured before.

use edgecut_graph::{DeviceName, Graph};
use edgecut_plan::{
    NoPlan, Plan, Stop,
    check::Violation,
    planner,
    rule::{Rule, RuleKind},
    search::Options,
    split::ratios::Ratios,
};
use smol_str::SmolStr;

use super::request::{DeviceRows, ModelGroups, PlanSettings, RequestError};
use edgecut_agent::{Cluster, DeviceSpec, Inventory, engine_choice};

/// Why there is no plan for the servers that are left.
#[derive(Debug, thiserror::Error)]
pub enum FailoverError {
    #[error("server {0} has the inputs or gets the results, and its agent does not answer")]
    Terminal(SmolStr),
    #[error("{device}: {} of {items} groups have no measurement in the profiles", .items - .rows)]
    NotMeasured { device: DeviceName, rows: usize, items: usize },
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    NoPlan(#[from] Box<NoPlan>),
    /// A bug of the planner.
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl From<NoPlan> for FailoverError {
    fn from(error: NoPlan) -> FailoverError {
        FailoverError::NoPlan(Box::new(error))
    }
}

/// `cluster` with the engines and threads that `plan` was made for, so that devices are those of its profiles.
#[must_use]
pub fn as_planned(cluster: &Cluster, plan: &Plan) -> Cluster {
    let mut cluster = cluster.clone();
    for server in &mut cluster.servers {
        for device in plan.devices.iter().filter(|device| device.server == server.name) {
            if let Some(engine) = device.engine.as_ref().and_then(engine_choice) {
                server.engine = Some(engine);
            }
            if let Some(own) = server.devices.iter_mut().find(|own| own.name == device.device) {
                own.threads = device.threads;
            } else if device.device == "cpu" {
                server.threads = device.threads;
            }
        }
    }
    cluster
}

/// The devices that were measured, and their profiles: others cannot be planned for.
fn measured(
    inventory: &Inventory,
    profiles: &[DeviceRows],
    items: usize,
) -> Result<(Inventory, Vec<DeviceRows>), FailoverError> {
    let all = inventory.devices.iter().zip(profiles);
    let (complete, others): (Vec<_>, Vec<_>) = all.partition(|(_, profile)| profile.rows.len() >= items);
    for terminal in [&inventory.source, &inventory.sink] {
        let is_of = |device: &DeviceSpec| device.name.server == *terminal;
        let lacking = others.iter().find(|(device, _)| is_of(device));
        if let (false, Some((device, profile))) = (complete.iter().any(|(device, _)| is_of(device)), lacking) {
            return Err(FailoverError::NotMeasured { device: device.name.clone(), rows: profile.rows.len(), items });
        }
    }
    let devices = complete.iter().map(|(device, _)| (*device).clone()).collect();
    let profiles = complete.iter().map(|(_, profile)| (*profile).clone()).collect();
    Ok((Inventory { devices, ..inventory.clone() }, profiles))
}

/// A plan with the objective, targets, rules, memory limits and formats of `failed`, of the model's `graph`, for the devices of
/// `inventory`, whose `profiles` are in the same order. Nothing is measured or run: the memory
/// of shards that were not measured is an estimate.
///
/// # Errors
/// If the server of the inputs or of the results is not left, measurements are missing, or no plan meets limits and targets.
pub fn plan_again(
    graph: &Graph,
    failed: &Plan,
    inventory: &Inventory,
    profiles: &[DeviceRows],
    cluster: &Cluster,
    may_split: bool,
    stop: Stop,
) -> Result<Plan, FailoverError> {
    for terminal in [&inventory.source, &inventory.sink] {
        if !inventory.devices.iter().any(|device| device.name.server == *terminal) {
            return Err(FailoverError::Terminal(terminal.clone()));
        }
    }
    let groups = ModelGroups::of(graph, failed.granularity);
    let (inventory, profiles) = &measured(inventory, profiles, groups.items.len())?;
    let mut inventory = inventory.clone();
    for device in &mut inventory.devices {
        let planned =
            failed.devices.iter().find(|of| of.server == device.name.server && of.device == device.name.device);
        if let Some(limit) = planned.and_then(|of| of.memory_limit_bytes) {
            device.memory = device.memory.min(limit);
        }
    }
    // What is gone is not used anyway.
    let is_there = |rule: &&Rule| {
        rule.kind == RuleKind::Pin || inventory.devices.iter().any(|device| device.name.to_string() == rule.device)
    };
    let rules: Vec<Rule> = failed.rules.iter().filter(is_there).cloned().collect();
    let settings = PlanSettings {
        model: failed.model.clone(),
        cluster: failed.cluster.clone(),
        objective: failed.objective,
        targets: failed.targets,
        transfer: failed.transfer,
        memory: None,
        rules,
        may_split,
        ratios: Ratios::default(),
        halo: None,
        like: None,
        fits_memory: true,
        search: Options { seed: failed.seed, stop, ..Options::default() },
    };
    let address = |device: &DeviceName| cluster.server(&device.server).map(|server| server.endpoint.clone());
    let request = settings.request(&groups, &inventory, profiles, address)?;
    let mut plan = planner::plan(&request)?.to_plan(&request)?;
    plan.notes.push("planned again for the servers that were left".to_string());
    Ok(plan)
}
