//! Pins and bans of the plan.

use wildmatch::WildMatch;

use super::violation::Violation;
use crate::{
    file::{DevicePlan, Plan},
    rule,
};

/// Checks that all groups satisfy the rules of `plan`. `names` has for each of its groups what that group of the model is
/// called, or the group that it is a part of; nothing for slices and joins, which belong to none.
///
/// # Errors
/// The first group that violates a rule.
pub fn rules(plan: &Plan, names: &[Vec<String>]) -> Result<(), Violation> {
    let (found, expected) = (names.len(), plan.groups.len());
    if found != expected {
        return Err(Violation::Count { what: "names of groups", found, expected });
    }
    for rule in &plan.rules {
        let pattern = WildMatch::new(&rule.groups);
        for (group, names) in plan.groups.iter().zip(names) {
            let applies = names.iter().any(|name| pattern.matches(name));
            let at = plan.devices.get(group.device.0 as usize).map(DevicePlan::full_name);
            let on_it = at.as_deref() == Some(rule.device.as_str());
            if applies && on_it != (rule.kind == rule::RuleKind::Pin) {
                let (group, device) = (group.name.clone(), at.unwrap_or_default());
                return Err(Violation::Rule { group, device, rule: rule.to_string() });
            }
        }
    }
    Ok(())
}
