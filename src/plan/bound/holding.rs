//! What must be in one memory at one time, and what must be in some memory at all.

use super::Bounded;
use crate::plan::{DeviceId, GroupId, Problem};
use crate::units::Bytes;

/// No plan's fullest device holds less.
pub fn peak(problem: &Problem) -> Bounded<Bytes> {
    let groups = problem.group_ids().map(|g| {
        let needs = problem.device_ids().filter_map(|d| alone(problem, g, d));
        needs.min().unwrap_or_default()
    });
    let group = groups.max().unwrap_or_default();
    let share = Bytes(parameters(problem).0.div_ceil(problem.devices.len().max(1) as u64));
    match group >= share {
        true => Bounded { value: group, by: "what the largest group needs at once" },
        false => Bounded { value: share, by: "all parameters spread evenly" },
    }
}

/// What `group` needs on `device` while it runs; `None` where it cannot run.
///
/// Operands and outputs that share bytes count once.
pub fn alone(problem: &Problem, group: GroupId, device: DeviceId) -> Option<Bytes> {
    let cost = problem.cost(group, device)?;
    let parameters: Bytes = problem.group(group).parameters.iter().map(|p| problem.parameters[p.0 as usize]).sum();
    Some(parameters + cost.held + running(problem, group, device)?)
}

/// The part of [`alone`] that is needed only while `group` runs: operands, outputs and workspace.
pub fn running(problem: &Problem, group: GroupId, device: DeviceId) -> Option<Bytes> {
    let cost = problem.cost(group, device)?;
    let group = problem.group(group);
    // An operand that is a view lies inside what it views, which may be another operand; its root's size may differ.
    let roots = |t: &&crate::plan::TensorIndex| problem.tensor(**t).view_of.is_none();
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
