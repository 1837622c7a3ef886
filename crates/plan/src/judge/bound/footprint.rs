//! Lower bounds on peak memory: the footprint of one group on one device, and all parameters over all devices.

use super::LowerBound;
use crate::problem::{DeviceId, GroupId, Problem};
use edgecut_graph::units::Bytes;

/// Lower bound on the load of the device with the highest one.
pub fn peak(problem: &Problem) -> LowerBound<Bytes> {
    let groups = problem.group_ids().map(|g| {
        let footprints = problem.device_ids().filter_map(|d| group(problem, g, d));
        footprints.min().unwrap_or_default()
    });
    let largest = groups.max().unwrap_or_default();
    let share = Bytes(parameters(problem).0.div_ceil(problem.devices.len().max(1) as u64));
    match largest >= share {
        true => LowerBound { value: largest, by: "what the largest group needs at once" },
        false => LowerBound { value: share, by: "all parameters spread evenly" },
    }
}

/// Parameters and working set of group `id` on `device`; `None` where it cannot run.
pub fn group(problem: &Problem, id: GroupId, device: DeviceId) -> Option<Bytes> {
    let cost = problem.cost(id, device)?;
    let parameters: Bytes = problem.group(id).parameters.iter().map(|p| problem.parameters[p.0 as usize]).sum();
    Some(parameters + cost.held + working_set(problem, id, device)?)
}

/// Operands, outputs and workspace of group `id` while it runs on `device`; `None` where it cannot run.
///
/// Operands and outputs that share storage count once.
pub fn working_set(problem: &Problem, id: GroupId, device: DeviceId) -> Option<Bytes> {
    let cost = problem.cost(id, device)?;
    let group = problem.group(id);
    // An operand that is a view lies inside what it views, which may be another operand, and may differ in size.
    let roots = |t: &&crate::TensorIndex| problem.tensor(**t).view_of.is_none();
    let tensors = group.inputs.iter().chain(&group.outputs).filter(roots);
    let tensors: Bytes = tensors.map(|t| problem.tensor(*t).bytes).sum();
    Some(if cost.time.0 > 0.0 { tensors + cost.workspace } else { Bytes::ZERO })
}

/// All parameters that any group uses, each once.
pub fn parameters(problem: &Problem) -> Bytes {
    let mut used = vec![false; problem.parameters.len()];
    for parameter in problem.groups.iter().flat_map(|g| &g.parameters) {
        used[parameter.0 as usize] = true;
    }
    problem.parameters.iter().zip(used).filter(|(_, used)| *used).map(|(bytes, _)| *bytes).sum()
}
