//! Memory of each device over the time of one input: parameters, live tensors and workspaces at the plan's own times.
//!
//! A tensor is live on a device from its producer's start, or the start of its transfer to the device, to the end of its
//! last use or departure there; a view is the storage of what it views.

use std::collections::HashMap;

use edgecut_plan::{DeviceId, Plan, Problem, TensorIndex};
use serde::Serialize;

use super::columns::nanoseconds;

/// Bytes in use on one device from each instant to the next.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct MemoryCurve {
    pub device: u32,
    pub time_us: Vec<f64>,
    pub bytes: Vec<u64>,
    pub peak_bytes: u64,
    /// The instant of the peak, and the group that runs then.
    pub peak_at_us: f64,
    pub peak_group: Option<usize>,
    /// What is live at the peak, the largest first: names of tensors and workspaces with their bytes.
    pub largest: Vec<(String, u64)>,
}

/// Bytes that are in use between two instants.
struct Use {
    from: f64,
    to: f64,
    bytes: u64,
    tensor: Option<TensorIndex>,
    group: Option<usize>,
}

/// Instants that are closer than this are one: the end of an operator and the start of the next differ by rounding.
const SAME_US: f64 = 1e-4;
/// Limit on the points of a curve; of neighbours that are left out the highest stays.
const POINTS: usize = 800;
/// Limit on the tensors that are listed for a peak.
const LISTED: usize = 6;

/// One curve for each device that computes anything.
pub(crate) fn curves(plan: &Plan, problem: &Problem) -> Vec<MemoryCurve> {
    let readers = problem.consumers();
    let used = plan.devices.iter().enumerate().filter(|(_, device)| !device.order.is_empty());
    used.map(|(index, device)| {
        let uses = uses(plan, problem, DeviceId(index as u32), &readers);
        let parameters = device.memory.parameter_bytes.0;
        curve(index as u32, parameters, &uses, plan, problem)
    })
    .collect()
}

/// The tensors and workspaces of a device.
fn uses(plan: &Plan, problem: &Problem, device: DeviceId, readers: &[Vec<edgecut_plan::GroupId>]) -> Vec<Use> {
    let mut uses = Vec::new();
    let finish = |group: usize| plan.groups[group].start_us.0 + plan.groups[group].time_us.0;
    for (index, group) in plan.groups.iter().enumerate().filter(|(_, group)| group.device == device) {
        let (from, to) = (group.start_us.0, finish(index));
        uses.push(Use { from, to, bytes: group.workspace_bytes.0, tensor: None, group: Some(index) });
    }
    let arrivals: HashMap<u32, (f64, f64)> = plan
        .transfers
        .iter()
        .filter(|transfer| transfer.to == device)
        .map(|transfer| (transfer.tensor.0, (transfer.start_us.0, (transfer.start_us + transfer.time_us).0)))
        .collect();
    let mut departures: HashMap<u32, f64> = HashMap::new();
    for transfer in plan.transfers.iter().filter(|transfer| transfer.from == device) {
        let last = departures.entry(transfer.tensor.0).or_default();
        *last = last.max((transfer.start_us + transfer.time_us).0);
    }
    let home =
        |index: usize| problem.tensors[index].producer.map_or(plan.source, |by| plan.groups[by.0 as usize].device);
    // Views come after what they view: one backward pass carries their last uses to it.
    let mut ends = vec![0.0f64; problem.tensors.len()];
    for index in (0..problem.tensors.len()).rev() {
        let tensor = &problem.tensors[index];
        let read = readers[index].iter().map(|by| by.0 as usize).filter(|by| plan.groups[*by].device == device);
        let made =
            tensor.producer.filter(|by| plan.groups[by.0 as usize].device == device).map(|by| finish(by.0 as usize));
        let sent = departures.get(&tensor.graph.0).copied().filter(|_| home(index) == device);
        let kept = (tensor.is_output && plan.sink == device).then_some(plan.predicted.latency_us.0);
        ends[index] = read.map(finish).chain(made).chain(sent).chain(kept).fold(ends[index], f64::max);
        if let Some(TensorIndex(root)) = tensor.view_of.filter(|_| home(index) == device) {
            ends[root as usize] = ends[root as usize].max(ends[index]);
        }
    }
    for (index, tensor) in problem.tensors.iter().enumerate() {
        let is_home = home(index) == device;
        let from = match arrivals.get(&tensor.graph.0) {
            Some((start, _)) => *start,
            None if !is_home || tensor.view_of.is_some() => continue,
            None => tensor.producer.map_or(0.0, |by| plan.groups[by.0 as usize].start_us.0),
        };
        let arrived = arrivals.get(&tensor.graph.0).map_or(from, |(_, end)| *end);
        let to = ends[index].max(if is_home { from } else { arrived });
        uses.push(Use { from, to, bytes: tensor.bytes.0, tensor: Some(TensorIndex(index as u32)), group: None });
    }
    for used in &mut uses {
        (used.from, used.to) = (snapped(used.from), snapped(used.to));
    }
    uses.retain(|used| used.bytes > 0 && used.from < used.to);
    uses
}

fn snapped(time: f64) -> f64 {
    (time / SAME_US).round() * SAME_US
}

/// At most [`POINTS`] points: of each run of neighbours the highest.
fn thin(curve: &mut MemoryCurve) {
    let each = curve.bytes.len().div_ceil(POINTS);
    if each < 2 {
        return;
    }
    let highest = |run: std::ops::Range<usize>| run.clone().max_by_key(|at| curve.bytes[*at]).unwrap_or(run.start);
    let starts = (0..curve.bytes.len()).step_by(each);
    // The height of the highest point, from the first instant of its run on.
    let (time_us, bytes) = starts
        .map(|start| (curve.time_us[start], curve.bytes[highest(start..(start + each).min(curve.bytes.len()))]))
        .unzip();
    (curve.time_us, curve.bytes) = (time_us, bytes);
}

fn curve(device: u32, parameters: u64, uses: &[Use], plan: &Plan, problem: &Problem) -> MemoryCurve {
    let mut changes: Vec<(f64, i128)> = vec![(0.0, 0)];
    for used in uses {
        changes.push((used.from, i128::from(used.bytes)));
        changes.push((used.to, -i128::from(used.bytes)));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut curve = MemoryCurve { device, peak_bytes: parameters, ..MemoryCurve::default() };
    let mut now = i128::from(parameters);
    let mut changes = changes.into_iter().peekable();
    while let Some((at, change)) = changes.next() {
        now += change;
        if changes.peek().is_some_and(|next| next.0 == at) {
            continue;
        }
        let bytes = u64::try_from(now).unwrap_or(0);
        if curve.bytes.last() != Some(&bytes) {
            curve.time_us.push(nanoseconds(at));
            curve.bytes.push(bytes);
        }
        if bytes > curve.peak_bytes {
            (curve.peak_bytes, curve.peak_at_us) = (bytes, at);
        }
    }
    let at = curve.peak_at_us;
    let mut live: Vec<&Use> = uses.iter().filter(|used| used.from <= at && at < used.to).collect();
    live.sort_by_key(|used| std::cmp::Reverse(used.bytes));
    let name = |used: &Use| match (used.tensor, used.group) {
        (Some(tensor), _) => problem.tensor(tensor).name.clone(),
        (None, group) => format!("workspace of {}", group.map_or("", |group| plan.groups[group].name.as_str())),
    };
    curve.largest = live.iter().take(LISTED).map(|used| (name(used), used.bytes)).collect();
    thin(&mut curve);
    curve.peak_group = plan.groups.iter().position(|group| {
        group.device.0 == device && snapped(group.start_us.0) <= at && at < snapped(group.start_us.0 + group.time_us.0)
    });
    curve
}

#[cfg(test)]
mod tests {
    use super::{
        super::{account, testing},
        *,
    };
    use edgecut_graph::{DType, Graph, Operator, OperatorId, Origin, TensorType, units::Bytes};

    #[test]
    fn tensors_live_from_their_producer_or_arrival_to_their_last_use() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[16]);
        let mut last = graph.add_tensor("x", ty.clone(), Origin::Input);
        for name in ["nn.conv2d", "tanh", "nn.relu"] {
            let operand = if name == "nn.relu" { graph.operator(OperatorId(0)).outputs[0] } else { last };
            let id = graph.add_operator(Operator::new(name, [operand]), std::slice::from_ref(&ty));
            last = graph.operator(id).outputs[0];
        }
        graph.outputs.push(graph.operator(OperatorId(1)).outputs[0]);
        let mut plan = testing::plan();
        for (index, group) in plan.groups.iter_mut().enumerate() {
            group.operators = vec![OperatorId(index as u32)];
        }
        plan.transfers[0].tensor = graph.operator(OperatorId(0)).outputs[0];
        plan.groups[1].workspace_bytes = Bytes(8);
        plan.devices[0].memory.parameter_bytes = Bytes(100);
        let problem = account::problem(&graph, &plan).unwrap();
        let curves = curves(&plan, &problem);
        // `x` and the convolution's result; the result alone until it is sent; nothing.
        assert_eq!((&curves[0].time_us, &curves[0].bytes), (&vec![0.0, 10.0, 12.0], &vec![228, 164, 100]));
        assert_eq!((&curves[1].time_us, &curves[1].bytes), (&vec![0.0, 10.0, 12.0, 17.0], &vec![0, 64, 136, 0]));
        assert_eq!((curves[1].peak_group, curves[1].largest.len()), (Some(1), 3));
        // A plan of another model.
        plan.groups[0].operators = vec![OperatorId(99)];
        assert!(account::problem(&graph, &plan).is_none());
    }
}
