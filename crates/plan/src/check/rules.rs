//! Pins and bans of the plan.

use wildmatch::WildMatch;

use super::violation::Violation;
use crate::{plan_file::file::Plan, problem::rule};

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
            let device = plan.device_name(group.device).map(|name| name.to_string()).unwrap_or_default();
            if applies && (device == rule.device) != (rule.kind == rule::RuleKind::Pin) {
                let group = group.name.clone();
                return Err(Violation::Rule { group, device, rule: rule.to_string() });
            }
        }
    }
    Ok(())
}
