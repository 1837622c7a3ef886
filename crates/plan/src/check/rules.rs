//! Pins and bans of the plan.

use wildmatch::WildMatch;

use super::violation::Violation;
use crate::{
    file::{DevicePlan, Plan},
    rule,
};

/// Checks that all groups satisfy the rules of `plan`. `names` has for each of its groups the name of that group in the
/// model, or of the group that it is a shard of; `None` for slices and joins, which belong to none.
///
/// # Errors
/// The first group that violates a rule.
pub fn rules(plan: &Plan, names: &[Option<&str>]) -> Result<(), Violation> {
    let (found, expected) = (names.len(), plan.groups.len());
    if found != expected {
        return Err(Violation::Count { what: "names of groups", found, expected });
    }
    for rule in &plan.rules {
        let pattern = WildMatch::new(&rule.groups);
        for (group, name) in plan.groups.iter().zip(names) {
            let applies =
                name.is_some_and(|name| std::iter::once(name).chain(name.split('+')).any(|name| pattern.matches(name)));
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
