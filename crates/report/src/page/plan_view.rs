//! A plan for the page: its groups and transfers in columns, what they wait for, its devices, its bound and its targets.

use edgecut_graph::{Granularity, TensorId, units::Bytes};
use edgecut_plan::{
    DeviceId, GroupNames, Plan, Problem,
    file::{GroupPlan, Source},
    problem::Objective,
    rule::Rule,
};
use serde::Serialize;

use super::{
    account,
    causes::{Causes, Event},
    columns::{Dictionary, five_digits, nanoseconds},
    memory_curve::{MemoryCurve, curves},
    operators::DeviceColumn,
};
use crate::subject::{PlanSubject, PlannedModel};

/// Everything that the page shows of one plan. Names are indices into the page's words.
#[derive(Debug, PartialEq, Serialize)]
pub struct PlanView {
    pub name: String,
    pub model: String,
    pub cluster: Option<String>,
    pub granularity: Granularity,
    pub objective: String,
    pub latency_us: f64,
    pub interval_us: f64,
    pub throughput_per_s: f64,
    pub in_flight: u32,
    pub peak_bytes: u64,
    /// Of one run, where the power of devices is known.
    pub energy_j: Option<f64>,
    pub bound: BoundView,
    pub targets: Vec<TargetView>,
    pub rules: Vec<String>,
    pub notes: Vec<String>,
    pub splits: usize,
    pub schedules: usize,
    pub source: u32,
    pub sink: u32,
    pub devices: Vec<PlannedDevice>,
    pub groups: GroupColumns,
    pub transfers: TransferColumns,
    /// The profiles of the page that are of its model.
    pub profiled: Vec<DeviceColumn>,
    /// Memory over time, one a device; `None` without the model.
    pub memory: Option<Vec<MemoryCurve>>,
    /// Why the model is not there.
    pub without_model: Option<String>,
}

/// The lower bound of the objective.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct BoundView {
    /// The objective's value, and the bound: microseconds, bytes or joules.
    pub value: f64,
    pub bound: f64,
    pub by: String,
    pub gap: f64,
}

/// One target, and whether the plan meets it.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct TargetView {
    pub figure: &'static str,
    /// Whose memory it is.
    pub device: Option<String>,
    pub limit: f64,
    pub value: f64,
    pub is_met: bool,
}

/// One device of a plan.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct PlannedDevice {
    pub name: String,
    pub server: String,
    pub groups: usize,
    pub busy_us: f64,
    pub limit_bytes: Option<u64>,
    pub parameter_bytes: u64,
    pub load_bytes: u64,
    pub arena_bytes: u64,
    pub workspace_bytes: u64,
}

/// The groups, one entry of each column a group.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct GroupColumns {
    /// The number in the model; `None` for slices and joins.
    pub id: Vec<Option<u32>>,
    pub name: Vec<u32>,
    pub part: Vec<u32>,
    pub layer: Vec<u32>,
    pub device: Vec<u32>,
    pub start_us: Vec<f64>,
    pub time_us: Vec<f64>,
    pub workspace_bytes: Vec<u64>,
    /// Indices of groups whose times are estimates.
    pub estimated: Vec<usize>,
    /// Indices of groups on the critical chain.
    pub critical: Vec<usize>,
    /// The event whose end a group begins at: a group as its index, a transfer as -1, -2, …
    pub after: Vec<Option<i64>>,
    /// The events that make what a group reads, as in `after`; `None` without the model.
    pub reads: Option<Vec<Vec<i64>>>,
    /// Index of a group and of a rule that names it.
    pub rules: Vec<(usize, usize)>,
}

/// The transfers, one entry of each column a transfer.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct TransferColumns {
    pub name: Vec<u32>,
    pub part: Vec<u32>,
    pub from: Vec<u32>,
    pub to: Vec<u32>,
    pub start_us: Vec<f64>,
    pub time_us: Vec<f64>,
    pub overhead_us: Vec<f64>,
    pub bytes: Vec<u64>,
    /// What is sent for it, where that is not the tensor as it is.
    pub sent_bytes: Vec<Option<u64>>,
    pub critical: Vec<usize>,
    pub after: Vec<Option<i64>>,
}

impl PlanView {
    pub fn of(name: &str, subject: &PlanSubject, words: &mut Dictionary) -> PlanView {
        let plan = &subject.plan;
        let causes = Causes::of(plan);
        let problem = subject.model.as_ref().ok().and_then(|model| account::problem(&model.graph, plan));
        let mut groups = groups(plan, &causes, words);
        groups.reads = problem.as_ref().map(|problem| reads(plan, problem));
        groups.rules = rules(plan, subject.model.as_ref().ok());
        PlanView {
            name: name.to_string(),
            model: plan.model.path.clone(),
            cluster: plan.cluster.clone(),
            granularity: plan.granularity,
            objective: plan.objective.to_string(),
            latency_us: plan.predicted.latency_us.0,
            interval_us: plan.predicted.interval_us.0,
            throughput_per_s: five_digits(plan.predicted.throughput_per_s),
            in_flight: plan.predicted.in_flight,
            peak_bytes: plan.predicted.peak_bytes.0,
            energy_j: plan.predicted.energy_j.map(|energy| five_digits(energy.0)),
            bound: BoundView {
                value: value(plan),
                bound: plan.bound.value,
                by: plan.bound.by.clone(),
                gap: five_digits(plan.gap),
            },
            targets: targets(plan),
            rules: plan.rules.iter().map(Rule::to_string).collect(),
            notes: plan.notes.clone(),
            splits: plan.splits.len(),
            schedules: plan.schedules.len(),
            source: plan.source.0,
            sink: plan.sink.0,
            devices: devices(plan),
            transfers: transfers(plan, &causes, words),
            groups,
            // Known when all subjects are.
            profiled: Vec::new(),
            memory: problem.as_ref().map(|problem| curves(plan, problem)),
            without_model: match (&subject.model, &problem) {
                (Err(why), _) => Some(why.clone()),
                (Ok(_), None) => Some("the plan lists operators that its model does not have".to_string()),
                (Ok(_), Some(_)) => None,
            },
        }
    }
}

/// What the objective comes to.
fn value(plan: &Plan) -> f64 {
    match plan.objective {
        Objective::Latency => plan.predicted.latency_us.0,
        Objective::Throughput => plan.predicted.interval_us.0,
        Objective::Memory => plan.predicted.peak_bytes.0 as f64,
        Objective::Energy => plan.predicted.energy_j.map_or(0.0, |energy| energy.0),
    }
}

fn targets(plan: &Plan) -> Vec<TargetView> {
    let mut targets = Vec::new();
    if let Some(limit) = plan.targets.latency {
        let value = plan.predicted.latency_us.0;
        targets.push(TargetView { figure: "latency", device: None, limit: limit.0, value, is_met: value <= limit.0 });
    }
    if let Some(limit) = plan.targets.throughput {
        let value = plan.predicted.throughput_per_s;
        targets.push(TargetView { figure: "throughput", device: None, limit, value, is_met: value >= limit });
    }
    for device in &plan.devices {
        if let (Some(limit), false) = (device.memory_limit_bytes, device.order.is_empty()) {
            let value = device.memory.parameter_bytes + device.memory.arena_bytes;
            let is_met = value <= limit;
            let (limit, value) = (limit.0 as f64, value.0 as f64);
            targets.push(TargetView {
                figure: "memory",
                device: Some(device.device_name().to_string()),
                limit,
                value,
                is_met,
            });
        }
    }
    targets
}

fn devices(plan: &Plan) -> Vec<PlannedDevice> {
    let device = |device: &edgecut_plan::file::DevicePlan| PlannedDevice {
        name: device.device_name().to_string(),
        server: device.server.clone(),
        groups: device.order.len(),
        busy_us: nanoseconds(device.busy_us.0),
        limit_bytes: device.memory_limit_bytes.map(|limit| limit.0),
        parameter_bytes: device.memory.parameter_bytes.0,
        load_bytes: device.memory.load_bytes.0,
        arena_bytes: device.memory.arena_bytes.0,
        workspace_bytes: device.memory.workspace_bytes.0,
    };
    plan.devices.iter().map(device).collect()
}

fn groups(plan: &Plan, causes: &Causes, words: &mut Dictionary) -> GroupColumns {
    let mut columns = GroupColumns::default();
    for (index, group) in plan.groups.iter().enumerate() {
        columns.id.push(group.id);
        columns.name.push(words.add(&group.name));
        columns.part.push(words.add(&group.part));
        columns.layer.push(words.add(&group.layer));
        columns.device.push(group.device.0);
        columns.start_us.push(nanoseconds(group.start_us.0));
        columns.time_us.push(nanoseconds(group.time_us.0));
        columns.workspace_bytes.push(group.workspace_bytes.0);
        if group.source == Source::Estimated {
            columns.estimated.push(index);
        }
    }
    columns.critical = positions(&causes.critical_groups);
    columns.after = causes.of_groups.iter().map(|cause| cause.map(Event::code)).collect();
    columns
}

fn transfers(plan: &Plan, causes: &Causes, words: &mut Dictionary) -> TransferColumns {
    let mut columns = TransferColumns::default();
    for transfer in &plan.transfers {
        columns.name.push(words.add(&transfer.name));
        columns.part.push(words.add(&transfer.part));
        columns.from.push(transfer.from.0);
        columns.to.push(transfer.to.0);
        columns.start_us.push(nanoseconds(transfer.start_us.0));
        columns.time_us.push(nanoseconds(transfer.time_us.0));
        columns.overhead_us.push(nanoseconds(transfer.overhead_us.0));
        columns.bytes.push(transfer.bytes.0);
        columns.sent_bytes.push(transfer.sent_bytes.map(|Bytes(bytes)| bytes));
    }
    columns.critical = positions(&causes.critical_transfers);
    columns.after = causes.of_transfers.iter().map(|cause| cause.map(Event::code)).collect();
    columns
}

fn positions(flags: &[bool]) -> Vec<usize> {
    flags.iter().enumerate().filter(|(_, flag)| **flag).map(|(index, _)| index).collect()
}

/// By group: the groups and transfers that it has its operands from; operands that are the model's inputs and lie on the
/// device have none.
fn reads(plan: &Plan, problem: &Problem) -> Vec<Vec<i64>> {
    let arrival = |tensor: TensorId, at: DeviceId| {
        plan.transfers.iter().position(|transfer| (transfer.tensor, transfer.to) == (tensor, at)).map(Event::Transfer)
    };
    let of = |(group, planned): (&edgecut_plan::problem::Group, &GroupPlan)| {
        let made = |index: &edgecut_plan::TensorIndex| {
            let tensor = problem.tensor(*index);
            let home = tensor.producer.map_or(plan.source, |by| plan.groups[by.0 as usize].device);
            let local = tensor.producer.filter(|_| home == planned.device).map(|by| Event::Group(by.0 as usize));
            // A transfer between devices of one server may be free, and is then not in the plan.
            let remote = || tensor.producer.map(|by| Event::Group(by.0 as usize));
            local.or_else(|| arrival(tensor.graph, planned.device).or_else(remote))
        };
        let mut events: Vec<i64> = group.inputs.iter().filter_map(made).map(Event::code).collect();
        events.sort_unstable();
        events.dedup();
        events
    };
    problem.groups.iter().zip(&plan.groups).map(of).collect()
}

/// The rules that name each group. Without the model, operators are not known by their unique names.
fn rules(plan: &Plan, model: Option<&PlannedModel>) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (index, group) in plan.groups.iter().enumerate() {
        let Some(id) = group.id else { continue };
        let known = model.and_then(|model| model.names.get(id as usize));
        let names = known.cloned().unwrap_or_else(|| GroupNames {
            id,
            kind: group.name.split('[').next().unwrap_or_default().to_string(),
            operators: Vec::new(),
            layers: group.layer.split('+').filter(|layer| !layer.is_empty()).map(str::to_string).collect(),
        });
        let naming = plan.rules.iter().enumerate().filter(|(_, rule)| names.is_called(&rule.groups));
        found.extend(naming.map(|(rule, _)| (index, rule)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};
    use edgecut_plan::rule::RuleKind;

    #[test]
    fn a_plan_without_its_model_says_so() {
        let mut plan = testing::plan();
        plan.rules.push(Rule { kind: RuleKind::Pin, groups: "tanh".into(), device: "b/cpu".into() });
        let subject = PlanSubject { plan, model: Err("no file".into()) };
        let view = PlanView::of("plan.json", &subject, &mut Dictionary::default());
        assert_eq!((view.groups.device, view.groups.critical), (vec![0, 1, 0], vec![0, 1]));
        assert_eq!((view.groups.after, view.groups.reads), (vec![None, Some(-1), Some(0)], None));
        assert_eq!((view.groups.rules, view.rules), (vec![(1, 0)], vec!["pin tanh=b/cpu".to_string()]));
        assert_eq!((view.memory, view.without_model), (None, Some("no file".to_string())));
        let latency = TargetView { figure: "latency", device: None, limit: 20.0, value: 17.0, is_met: true };
        assert_eq!((view.targets[0].is_met, &view.targets[0]), (true, &latency));
        assert_eq!((view.bound.value, view.bound.bound), (17.0, 15.0));
    }
}
