//! Splits of another plan of the same model, over the devices of this one: to compare ratios.

use edgecut_graph::{DeviceName, Granularity, OperatorId};

use crate::{
    plan_file::file::{Plan, Split},
    problem::{DeviceId, ProblemError, group_names::GroupNames, rule::Rule},
    request::PlanRequest,
    split::strategy::choices_like,
};

/// Why the splits of a plan cannot be taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LikeError {
    #[error("it is a plan of {0}, which is not the file that is planned now")]
    OtherModel(String),
    #[error("it places the other of single operators and fused groups: give option `granularity`")]
    Granularity,
    #[error("it splits over {missing}, which does not exist; available: {devices}")]
    Device { missing: String, devices: String },
    #[error("it splits {group} over {device}, which {} forbids", .rule.option())]
    Forbidden { group: String, device: String, rule: Rule },
}

impl LikeError {
    /// That `missing` is none of `devices`.
    pub(crate) fn device(missing: Option<DeviceName>, devices: impl IntoIterator<Item = DeviceName>) -> LikeError {
        let missing = missing.map(|name| name.to_string()).unwrap_or_default();
        LikeError::Device { missing, devices: DeviceName::join(devices, ", ") }
    }
}

/// What `other` splits, with devices as numbers of `devices`. `hash` is that of the model planned now.
///
/// # Errors
/// If `other` is of another model or granularity, or splits over a device that is not in `devices`.
pub fn splits_of(
    other: &Plan,
    hash: &str,
    granularity: Granularity,
    devices: &[DeviceName],
) -> Result<Vec<Split>, LikeError> {
    if other.model.blake3 != hash {
        return Err(LikeError::OtherModel(other.model.path.clone()));
    }
    if other.granularity != granularity {
        return Err(LikeError::Granularity);
    }
    let here = |id: &DeviceId| {
        let name = other.device_name(*id);
        let found = (0u32..).zip(devices).find(|(_, here)| Some(*here) == name.as_ref());
        found.map(|(index, _)| DeviceId(index)).ok_or_else(|| LikeError::device(name, devices.iter().cloned()))
    };
    let moved = |split: &Split| {
        let devices = split.devices.iter().map(here).collect::<Result<Vec<_>, LikeError>>()?;
        Ok(Split { devices, ..split.clone() })
    };
    other.splits.iter().map(moved).collect()
}

/// The splits of all operators in the groups that `splits` split, in plans of `request`.
///
/// # Errors
/// If one is of another group than those of `request`, or along an axis that its group is not split along.
pub fn operator_splits(request: &PlanRequest<'_>, splits: &[Split]) -> Result<Vec<Split>, ProblemError> {
    let expanded = request.expanded(&choices_like(&request.instance, splits)?)?;
    Ok(request.instance.splits(&expanded))
}

/// Checks that `splits` use no device that `rules` forbid. `groups` have the operators `operators`, in the same order.
///
/// # Errors
/// The first split that does.
pub fn check_rules(
    splits: &[Split],
    rules: &[Rule],
    groups: &[GroupNames],
    operators: &[Vec<OperatorId>],
    devices: &[String],
) -> Result<(), LikeError> {
    for split in splits {
        let group = operators.iter().position(|group| group.contains(&split.operator));
        let Some(group) = group.and_then(|group| groups.get(group)) else { continue };
        for rule in rules.iter().filter(|rule| rule.applies_to(group)) {
            let names = split.devices.iter().filter_map(|device| devices.get(device.0 as usize));
            if let Some(device) = names.into_iter().find(|device| !rule.allows(device)) {
                let group = format!("{} {}", group.number(), group.kind);
                return Err(LikeError::Forbidden { group, device: device.clone(), rule: rule.clone() });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        request::{goal::Goal, ratios::Ratios},
        testing::{CONVOLUTIONS, with_request},
    };

    #[test]
    fn splits_are_taken_over_to_devices_of_the_same_name() {
        with_request(CONVOLUTIONS, &[1000.0, 500.0], |request| {
            let mut other = crate::plan(&request).unwrap().to_plan(&request).unwrap();
            let split = Split {
                operator: OperatorId(0),
                axis: 0,
                cuts: vec![0, 3, 8],
                tiles: Vec::new(),
                packed: None,
                devices: vec![DeviceId(0), DeviceId(1)],
            };
            other.splits = vec![split.clone()];
            other.model.blake3 = "abc".into();
            let names = |list: &[&str]| -> Vec<DeviceName> { list.iter().map(|name| name.parse().unwrap()).collect() };
            let found = |hash: &str, granularity, devices: &[&str]| {
                splits_of(&other, hash, granularity, &names(devices)).map_err(|error| error.to_string())
            };
            let swapped = Split { devices: vec![DeviceId(2), DeviceId(0)], ..split };
            assert_eq!(found("abc", request.instance.granularity, &["s1/cpu", "new/cpu", "s0/cpu"]), Ok(vec![swapped]));
            for (hash, granularity, devices, want) in [
                ("abd", request.instance.granularity, &["s0/cpu", "s1/cpu"][..], "it is a plan of "),
                ("abc", Granularity::Fused, &["s0/cpu", "s1/cpu"], "give option `granularity`"),
                (
                    "abc",
                    request.instance.granularity,
                    &["s0/cpu", "s2/cpu"],
                    "splits over s1/cpu, which does not exist; available: s0/cpu",
                ),
            ] {
                let error = found(hash, granularity, devices).unwrap_err();
                assert!(error.contains(want), "{error}");
            }
        });
    }

    #[test]
    fn a_plan_like_another_splits_the_same_in_its_own_ratio() {
        with_request(CONVOLUTIONS, &[1000.0, 250.0], |request| {
            let tuned = crate::plan(&request).unwrap();
            assert!(!tuned.splits.is_empty());
            let like = |ratios| {
                let request =
                    request.with_goal(Goal { ratios, like: Some(tuned.splits.clone()), ..request.goal.clone() });
                let plan = crate::plan(&request).unwrap().to_plan(&request).unwrap();
                let axes = |splits: &[Split]| -> Vec<_> { splits.iter().map(|s| (s.operator, s.axis)).collect() };
                assert_eq!(axes(&plan.splits), axes(&tuned.splits), "{ratios}");
                plan.splits
            };
            assert_eq!(like(Ratios::Tuned), tuned.splits);
            for split in like(Ratios::Equal) {
                let (first, all) = (split.cuts[1] as f64, *split.cuts.last().unwrap() as f64);
                assert!((first / all - 0.5).abs() <= 1.0 / all, "{:?}", split.cuts);
            }
        });
    }
}
