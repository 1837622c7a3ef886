//! Placement rules of the user: pins and bans of groups on devices.
//!
//! A rule applies to a group if its pattern (a glob with `*` and `?`) matches the group's name or that of one of its
//! operators. It also applies to all shards of a group that is split.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::problem::Cost;

/// A pin or a ban.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub kind: RuleKind,
    /// The pattern of the groups that it applies to.
    pub groups: String,
    /// As `server/device`.
    pub device: String,
}

/// The effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleKind {
    /// The groups run on the device and on no other.
    Pin,
    /// The groups do not run on the device.
    Ban,
}

/// A rule that cannot be satisfied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("--{} {text}: expected PATTERN=SERVER/DEVICE, such as 'nn.conv2d*=local/cpu'", .kind.flag())]
    Syntax { kind: RuleKind, text: String },
    #[error("--{rule}: unknown device {}; the cluster has {devices}", .rule.device)]
    UnknownDevice { rule: Rule, devices: String },
    #[error("--{rule}: no group or operator matches `{}`; the model has {names}", .rule.groups)]
    NoGroup { rule: Rule, names: String },
    #[error("{group} has no device left to run on: {rules}")]
    Contradiction { group: String, rules: String },
}

/// Limit on the names that a message lists.
const LISTED: usize = 6;

impl RuleKind {
    /// The name of its command-line flag.
    fn flag(self) -> &'static str {
        match self {
            RuleKind::Pin => "pin",
            RuleKind::Ban => "ban",
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}={}", self.kind.flag(), self.groups, self.device)
    }
}

impl Rule {
    /// Parses `PATTERN=SERVER/DEVICE`.
    ///
    /// # Errors
    /// If `text` does not have that form.
    pub fn parse(kind: RuleKind, text: &str) -> Result<Rule, RuleError> {
        match text.rsplit_once('=') {
            Some((groups, device)) if !groups.is_empty() && !device.is_empty() => {
                Ok(Rule { kind, groups: groups.to_string(), device: device.to_string() })
            }
            _ => Err(RuleError::Syntax { kind, text: text.to_string() }),
        }
    }

    /// Whether it applies to the group `name`: names of operators joined by `+`.
    pub fn applies_to(&self, name: &str) -> bool {
        let pattern = WildMatch::new(&self.groups);
        pattern.matches(name) || name.split('+').any(|operator| pattern.matches(operator))
    }

    /// Whether a group that it applies to may run on `device`.
    pub fn allows(&self, device: &str) -> bool {
        (self.kind == RuleKind::Pin) == (self.device == device)
    }
}

/// Checks that every rule applies to at least one of the groups `names`.
///
/// # Errors
/// The first rule that applies to none.
pub fn check_groups(rules: &[Rule], names: &[String]) -> Result<(), RuleError> {
    let Some(unused) = rules.iter().find(|rule| !names.iter().any(|name| rule.applies_to(name))) else { return Ok(()) };
    let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    Err(RuleError::NoGroup { rule: unused.clone(), names: listed(&known) })
}

/// Checks that the rules name known devices and leave every group at least one.
///
/// # Errors
/// The first rule with an unknown device, or the first group without a device and the rules that apply to it.
pub fn check_devices(rules: &[Rule], names: &[String], devices: &[String]) -> Result<(), RuleError> {
    if let Some(unknown) = rules.iter().find(|rule| !devices.contains(&rule.device)) {
        let known: Vec<&str> = devices.iter().map(String::as_str).collect();
        return Err(RuleError::UnknownDevice { rule: unknown.clone(), devices: listed(&known) });
    }
    for name in names {
        let applying: Vec<&Rule> = rules.iter().filter(|rule| rule.applies_to(name)).collect();
        if !applying.is_empty() && !devices.iter().any(|device| applying.iter().all(|rule| rule.allows(device))) {
            let rules: Vec<String> = applying.iter().map(|rule| format!("--{rule}")).collect();
            return Err(RuleError::Contradiction { group: name.clone(), rules: rules.join(", ") });
        }
    }
    Ok(())
}

/// Removes from `costs` (one row per group, one column per device) the devices that a group may not run on.
pub fn apply(rules: &[Rule], names: &[String], devices: &[String], costs: &mut [Vec<Option<Cost>>]) {
    for (name, row) in names.iter().zip(costs) {
        for rule in rules.iter().filter(|rule| rule.applies_to(name)) {
            for (device, cost) in devices.iter().zip(row.iter_mut()) {
                *cost = cost.filter(|_| rule.allows(device));
            }
        }
    }
}

fn listed(names: &[&str]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::Micros;

    fn rules(list: &[(RuleKind, &str)]) -> Vec<Rule> {
        list.iter().map(|(kind, text)| Rule::parse(*kind, text).unwrap()).collect()
    }

    fn names() -> Vec<String> {
        ["nn.conv2d+nn.relu", "nn.dense", "nn.softmax"].map(String::from).to_vec()
    }

    fn devices() -> Vec<String> {
        ["a/cpu", "a/gpu0", "b/cpu"].map(String::from).to_vec()
    }

    #[test]
    fn only_allowed_devices_remain() {
        for (list, want) in [
            (vec![(RuleKind::Pin, "nn.conv2d*=b/cpu")], ["..x", "xxx", "xxx"]),
            (vec![(RuleKind::Ban, "nn.relu=a/cpu")], [".xx", "xxx", "xxx"]),
            (vec![(RuleKind::Ban, "nn.d*=a/cpu"), (RuleKind::Ban, "*=a/gpu0")], ["x.x", "..x", "x.x"]),
            (vec![(RuleKind::Pin, "*=a/cpu"), (RuleKind::Ban, "nn.dense=b/cpu")], ["x..", "x..", "x.."]),
        ] {
            let (rules, cost) = (rules(&list), Cost { time: Micros(1.0), ..Cost::default() });
            check_groups(&rules, &names()).unwrap();
            check_devices(&rules, &names(), &devices()).unwrap();
            let mut costs = vec![vec![Some(cost); 3]; 3];
            apply(&rules, &names(), &devices(), &mut costs);
            let drawn = |row: &Vec<Option<Cost>>| row.iter().map(|c| if c.is_some() { 'x' } else { '.' }).collect();
            let drawn: Vec<String> = costs.iter().map(drawn).collect();
            assert_eq!(drawn, want, "{list:?}");
        }
    }

    #[test]
    fn unsatisfiable_rules_are_reported() {
        for (list, want) in [
            (
                vec![(RuleKind::Ban, "nn.relu=c/cpu")],
                "--ban nn.relu=c/cpu: unknown device c/cpu; the cluster has a/cpu, a/gpu0",
            ),
            (
                vec![(RuleKind::Pin, "nn.pool=a/cpu")],
                "no group or operator matches `nn.pool`; the model has nn.conv2d+nn",
            ),
            (
                vec![(RuleKind::Ban, "nn.d*=a/cpu"), (RuleKind::Ban, "*=a/gpu0"), (RuleKind::Ban, "nn.dense=b/cpu")],
                "nn.dense has no device left to run on: --ban nn.d*=a/cpu, --ban *=a/gpu0, --ban nn.dense=b/cpu",
            ),
            (vec![(RuleKind::Pin, "*=a/cpu"), (RuleKind::Ban, "nn.softmax=a/cpu")], "nn.softmax has no device left"),
        ] {
            let rules = rules(&list);
            let found = check_groups(&rules, &names()).and_then(|()| check_devices(&rules, &names(), &devices()));
            let found = found.unwrap_err().to_string();
            assert!(found.contains(want), "{found}");
        }
        assert!(Rule::parse(RuleKind::Ban, "nn.relu").unwrap_err().to_string().starts_with("--ban nn.relu: expected"));
    }
}
