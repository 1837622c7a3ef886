//! Which group and which tensor of the model the rows of a plan are, or are parts of: so that they join the rows of a
//! profile and of a run, whatever is split or scheduled.

use std::collections::{HashMap, HashSet};

use edgecut_graph::{Graph, TensorId};

use crate::{
    plan_file::file::{GroupPlan, Plan},
    problem::group_names::GroupNames,
};

/// Says of the groups and transfers of `plan` what of `model` they are. `within` has the group of the model of each of its
/// groups, by index into `groups`.
pub(crate) fn mark(plan: &mut Plan, within: &[Option<usize>], groups: &[GroupNames], model: &Graph) {
    let mut taken: HashSet<(Option<u32>, String)> = HashSet::new();
    for (group, of) in plan.groups.iter_mut().zip(within) {
        let names = of.and_then(|of| groups.get(of));
        group.id = names.map(|names| names.id);
        group.layer = names.map(GroupNames::layer).unwrap_or_default();
        let part = names.and_then(|names| group.name.strip_prefix(&names.kind)).map(part_of).unwrap_or_default();
        group.part = untaken(&taken, group, part);
        taken.insert((group.id, group.part.clone()));
    }
    let ids: HashMap<&str, TensorId> = model.tensors().map(|(id, tensor)| (tensor.name.as_str(), id)).collect();
    for transfer in &mut plan.transfers {
        let cuts = std::iter::once(transfer.name.len()).chain(transfer.name.rmatch_indices('[').map(|(at, _)| at));
        let found = cuts.filter_map(|at| Some((*ids.get(&transfer.name[..at])?, at))).next();
        transfer.id = found.map(|(id, _)| id);
        transfer.part = found.map(|(_, at)| part_of(&transfer.name[at..])).unwrap_or_default();
    }
}

/// `[1of2][3of4]` as `1of2 3of4`.
fn part_of(suffix: &str) -> String {
    suffix.trim_start_matches('[').trim_end_matches(']').replace("][", " ")
}

/// `part`, or, if a group of the same number has that, one that says that it is computed again.
fn untaken(taken: &HashSet<(Option<u32>, String)>, group: &GroupPlan, part: String) -> String {
    // Slices and joins have no number to be told apart by.
    if group.id.is_none() {
        return String::new();
    }
    let again = |count: u32| match (part.as_str(), count) {
        (_, 0) => part.clone(),
        ("", 1) => "again".to_string(),
        ("", _) => format!("again {count}"),
        (_, 1) => format!("{part} again"),
        _ => format!("{part} again {count}"),
    };
    (0..).map(again).find(|part| !taken.contains(&(group.id, part.clone()))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        solve::planner::plan,
        testing::{CONVOLUTIONS, WIDE, with_request},
    };
    use edgecut_graph::units::Bytes;

    #[test]
    fn shards_and_slices_name_their_group_and_their_tensor() {
        with_request(CONVOLUTIONS, &[1000.0, 500.0], |request| {
            let plan = plan(&request).unwrap().to_plan(&request).unwrap();
            assert!(!plan.splits.is_empty());
            let model = request.instance.split_options.graph;
            for group in &plan.groups {
                let of = group.id.map(|id| &request.instance.names[id as usize]);
                let shown = match (of, group.part.as_str()) {
                    (None, _) => continue,
                    (Some(kind), "") => kind.clone(),
                    (Some(kind), part) => format!("{kind}[{part}]"),
                };
                assert_eq!(shown, group.name);
            }
            let ids: HashSet<u32> = plan.groups.iter().filter_map(|group| group.id).collect();
            assert_eq!(ids, (0..request.instance.names.len() as u32).collect(), "every group of the model is there");
            assert!(!plan.transfers.is_empty());
            for transfer in &plan.transfers {
                let name = &model.tensor(transfer.id.expect("every transfer is of a tensor of the model")).name;
                assert!(transfer.name.starts_with(name.as_str()), "{transfer:?}");
                assert_eq!(transfer.part.is_empty(), transfer.name == name.as_str());
            }
        });
    }

    #[test]
    fn no_two_steps_of_a_schedule_have_the_same_number_and_part() {
        with_request(WIDE, &[1000.0], |mut request| {
            request.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = Some(Bytes(3 << 20)));
            let plan = plan(&request).unwrap().to_plan(&request).unwrap();
            assert!(!plan.schedules.is_empty());
            let keys: HashSet<(u32, &str)> =
                plan.groups.iter().filter_map(|group| Some((group.id?, group.part.as_str()))).collect();
            let numbered = plan.groups.iter().filter(|group| group.id.is_some()).count();
            assert!(keys.len() == numbered && numbered > request.instance.names.len(), "{:?}", plan.groups);
        });
    }

    #[test]
    fn parts_are_told_by_what_stands_in_brackets() {
        assert_eq!([part_of(""), part_of("[1of2]"), part_of("[0..28][3..4]")], ["", "1of2", "0..28 3..4"]);
    }
}
