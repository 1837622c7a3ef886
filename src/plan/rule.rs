//! What a person decides of a placement: groups that must run on one device, or must not.
//!
//! A rule holds for a group if its pattern (`*` and `?` as in file names) fits the group's name, or that of one of the
//! operators that the group is made of. A group that is split keeps its rules: no shard of it breaks them.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::problem::Cost;

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub kind: Kind,
    /// Which groups it is about.
    pub groups: String,
    /// As `server/device`.
    pub device: String,
}

/// What is to become of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// They run on the device and nowhere else.
    Pin,
    /// They run anywhere but on the device.
    Ban,
}

/// Why rules cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("--{} {text}: expected PATTERN=SERVER/DEVICE, such as 'nn.conv2d*=local/cpu'", .kind.flag())]
    Syntax { kind: Kind, text: String },
    #[error("--{rule}: there is no device {}; there are {devices}", .rule.device)]
    UnknownDevice { rule: Rule, devices: String },
    #[error("--{rule}: no group or operator is called like `{}`; there are {names}", .rule.groups)]
    NoGroup { rule: Rule, names: String },
    #[error("{group} has no device left to run on: {rules}")]
    Contradiction { group: String, rules: String },
}

/// Names that a message lists.
const LISTED: usize = 6;

impl Kind {
    /// Its flag on the command line.
    fn flag(self) -> &'static str {
        match self {
            Kind::Pin => "pin",
            Kind::Ban => "ban",
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}={}", self.kind.flag(), self.groups, self.device)
    }
}

impl Rule {
    /// Reads `PATTERN=SERVER/DEVICE`.
    ///
    /// # Errors
    /// If it is not of that form.
    pub fn parse(kind: Kind, text: &str) -> Result<Rule, RuleError> {
        match text.rsplit_once('=') {
            Some((groups, device)) if !groups.is_empty() && !device.is_empty() => {
                Ok(Rule { kind, groups: groups.to_string(), device: device.to_string() })
            }
            _ => Err(RuleError::Syntax { kind, text: text.to_string() }),
        }
    }

    /// Whether it is about the group called `name`: operators' names joined by `+`.
    pub fn is_about(&self, name: &str) -> bool {
        let pattern = WildMatch::new(&self.groups);
        pattern.matches(name) || name.split('+').any(|operator| pattern.matches(operator))
    }

    /// Whether a group that it is about may run on `device`.
    pub fn allows(&self, device: &str) -> bool {
        (self.kind == Kind::Pin) == (self.device == device)
    }
}

/// Checks that every rule is about one of the groups called `names` at least.
///
/// # Errors
/// With the first that is about none.
pub fn check_groups(rules: &[Rule], names: &[String]) -> Result<(), RuleError> {
    let Some(idle) = rules.iter().find(|rule| !names.iter().any(|name| rule.is_about(name))) else { return Ok(()) };
    let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    Err(RuleError::NoGroup { rule: idle.clone(), names: listed(&known) })
}

/// Checks that the rules name some of `devices`, and leave every group one of them.
///
/// # Errors
/// With the first rule that names another device, or the first group that may run nowhere and the rules to blame.
pub fn check_devices(rules: &[Rule], names: &[String], devices: &[String]) -> Result<(), RuleError> {
    if let Some(lost) = rules.iter().find(|rule| !devices.contains(&rule.device)) {
        let known: Vec<&str> = devices.iter().map(String::as_str).collect();
        return Err(RuleError::UnknownDevice { rule: lost.clone(), devices: listed(&known) });
    }
    for name in names {
        let about: Vec<&Rule> = rules.iter().filter(|rule| rule.is_about(name)).collect();
        if !about.is_empty() && !devices.iter().any(|device| about.iter().all(|rule| rule.allows(device))) {
            let rules: Vec<String> = about.iter().map(|rule| format!("--{rule}")).collect();
            return Err(RuleError::Contradiction { group: name.clone(), rules: rules.join(", ") });
        }
    }
    Ok(())
}

/// Takes from each group's `costs` (a row a group, a column a device) those of devices that it may not run on.
pub fn apply(rules: &[Rule], names: &[String], devices: &[String], costs: &mut [Vec<Option<Cost>>]) {
    for (name, row) in names.iter().zip(costs) {
        for rule in rules.iter().filter(|rule| rule.is_about(name)) {
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
    use crate::units::Micros;

    fn rules(list: &[(Kind, &str)]) -> Vec<Rule> {
        list.iter().map(|(kind, text)| Rule::parse(*kind, text).unwrap()).collect()
    }

    fn names() -> Vec<String> {
        ["nn.conv2d+nn.relu", "nn.dense", "nn.softmax"].map(String::from).to_vec()
    }

    fn devices() -> Vec<String> {
        ["a/cpu", "a/gpu0", "b/cpu"].map(String::from).to_vec()
    }

    #[test]
    fn rules_leave_the_devices_that_they_allow() {
        for (list, want) in [
            (vec![(Kind::Pin, "nn.conv2d*=b/cpu")], ["..x", "xxx", "xxx"]),
            (vec![(Kind::Ban, "nn.relu=a/cpu")], [".xx", "xxx", "xxx"]),
            (vec![(Kind::Ban, "nn.d*=a/cpu"), (Kind::Ban, "*=a/gpu0")], ["x.x", "..x", "x.x"]),
            (vec![(Kind::Pin, "*=a/cpu"), (Kind::Ban, "nn.dense=b/cpu")], ["x..", "x..", "x.."]),
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
    fn what_cannot_be_kept_is_told() {
        for (list, want) in [
            (
                vec![(Kind::Ban, "nn.relu=c/cpu")],
                "--ban nn.relu=c/cpu: there is no device c/cpu; there are a/cpu, a/gpu0",
            ),
            (
                vec![(Kind::Pin, "nn.pool=a/cpu")],
                "no group or operator is called like `nn.pool`; there are nn.conv2d+nn",
            ),
            (
                vec![(Kind::Ban, "nn.d*=a/cpu"), (Kind::Ban, "*=a/gpu0"), (Kind::Ban, "nn.dense=b/cpu")],
                "nn.dense has no device left to run on: --ban nn.d*=a/cpu, --ban *=a/gpu0, --ban nn.dense=b/cpu",
            ),
            (vec![(Kind::Pin, "*=a/cpu"), (Kind::Ban, "nn.softmax=a/cpu")], "nn.softmax has no device left"),
        ] {
            let rules = rules(&list);
            let found = check_groups(&rules, &names()).and_then(|()| check_devices(&rules, &names(), &devices()));
            let found = found.unwrap_err().to_string();
            assert!(found.contains(want), "{found}");
        }
        assert!(Rule::parse(Kind::Ban, "nn.relu").unwrap_err().to_string().starts_with("--ban nn.relu: expected"));
    }
}
