//! Placement rules of the user: pins and bans of groups on devices.
//!
//! A rule applies to a group if its pattern (a glob with `*` and `?`) matches one of the [names](GroupNames) of the group.
//! It also applies to all shards of a group that is split.

use serde::{Deserialize, Serialize};

use super::{
    Cost,
    group_names::{GroupNames, meant},
};

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
    #[error("option `{}={text}`: expected GROUP=SERVER/DEVICE, such as '#7=local/cpu' or 'nn.conv2d*=local/cpu'", .kind.option())]
    Syntax { kind: RuleKind, text: String },
    #[error("{}: {what}", .rule.option())]
    UnknownDevice { rule: Rule, what: UnknownDevice },
    #[error("{}: {what}", .rule.option())]
    NoGroup { rule: Rule, what: NoSuchGroup },
    #[error("{group} has no device left to run on: {rules}")]
    Contradiction { group: String, rules: String },
}

/// A pattern that no group is called by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchGroup {
    #[error("there is no group {number}; the model has {groups} groups, from #0 on")]
    Number { number: String, groups: usize },
    #[error("no group, operator or layer is called `{pattern}`{}; the model has {kinds}", suggested(.meant))]
    Name { pattern: String, meant: Option<String>, kinds: String },
}

/// A device that the cluster does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown device {device}{}; the cluster has {devices}", suggested(.meant))]
pub struct UnknownDevice {
    pub device: String,
    /// The devices of that name, or of the server of that name.
    meant: Option<String>,
    devices: String,
}

fn suggested(meant: &Option<String>) -> String {
    meant.as_ref().map_or(String::new(), |meant| format!(" (did you mean {meant}?)"))
}

impl UnknownDevice {
    /// That `device` is none of `devices`.
    pub fn of(device: &str, devices: &[String]) -> UnknownDevice {
        let is_half = |known: &&String| known.split('/').any(|half| half == device);
        let halves: Vec<&str> = devices.iter().filter(is_half).map(String::as_str).collect();
        let known: Vec<&str> = devices.iter().map(String::as_str).collect();
        let meant = (!halves.is_empty()).then(|| halves.join(" or "));
        UnknownDevice { device: device.to_string(), meant, devices: listed(&known) }
    }
}

/// The groups that `pattern` names, by number.
///
/// # Errors
/// If there is none.
pub fn named(pattern: &str, groups: &[GroupNames]) -> Result<Vec<usize>, NoSuchGroup> {
    let found: Vec<usize> = (0..groups.len()).filter(|group| groups[*group].is_called(pattern)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    if pattern.starts_with('#') {
        return Err(NoSuchGroup::Number { number: pattern.to_string(), groups: groups.len() });
    }
    let mut kinds: Vec<&str> = groups.iter().map(|group| group.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let (meant, kinds) = (meant(pattern, groups), listed(&kinds));
    Err(NoSuchGroup::Name { pattern: pattern.to_string(), meant, kinds })
}

/// Limit on the names that a message lists.
const LISTED: usize = 6;

impl RuleKind {
    /// The name of its option.
    fn option(self) -> &'static str {
        match self {
            RuleKind::Pin => "pin",
            RuleKind::Ban => "ban",
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}={}", self.kind.option(), self.groups, self.device)
    }
}

impl Rule {
    /// The option that gives it, for messages.
    pub fn option(&self) -> String {
        format!("option `{}={}={}`", self.kind.option(), self.groups, self.device)
    }

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

    pub(crate) fn applies_to(&self, group: &GroupNames) -> bool {
        group.is_called(&self.groups)
    }

    /// Whether a group that it applies to may run on `device`.
    pub fn allows(&self, device: &str) -> bool {
        (self.kind == RuleKind::Pin) == (self.device == device)
    }
}

/// Checks that every rule applies to at least one of `groups`.
///
/// # Errors
/// The first rule that applies to none.
pub fn check_groups(rules: &[Rule], groups: &[GroupNames]) -> Result<(), RuleError> {
    rules.iter().try_for_each(|rule| match named(&rule.groups, groups) {
        Ok(_) => Ok(()),
        Err(what) => Err(RuleError::NoGroup { rule: rule.clone(), what }),
    })
}

/// Checks that the rules name known devices and leave every group at least one.
///
/// # Errors
/// The first rule with an unknown device, or the first group without a device and the rules that apply to it.
pub fn check_devices(rules: &[Rule], groups: &[GroupNames], devices: &[String]) -> Result<(), RuleError> {
    if let Some(unknown) = rules.iter().find(|rule| !devices.contains(&rule.device)) {
        let what = UnknownDevice::of(&unknown.device, devices);
        return Err(RuleError::UnknownDevice { rule: unknown.clone(), what });
    }
    for group in groups {
        if !rules.is_empty() && !devices.iter().any(|device| is_allowed(rules, group, device)) {
            let applying = rules.iter().filter(|rule| rule.applies_to(group));
            let rules: Vec<String> = applying.map(|rule| rule.option()).collect();
            let group = format!("{} {}", group.number(), group.kind);
            return Err(RuleError::Contradiction { group, rules: rules.join(", ") });
        }
    }
    Ok(())
}

/// Whether `group` may run on `device`. Patterns, which are slow to match, are matched for rules that would forbid it alone.
pub fn is_allowed(rules: &[Rule], group: &GroupNames, device: &str) -> bool {
    rules.iter().all(|rule| rule.allows(device) || !rule.applies_to(group))
}

/// Removes from `costs` (one row per group, one column per device) the devices that a group may not run on.
pub fn apply(rules: &[Rule], groups: &[GroupNames], devices: &[String], costs: &mut [Vec<Option<Cost>>]) {
    for (group, row) in groups.iter().zip(costs) {
        for (device, cost) in devices.iter().zip(row.iter_mut()) {
            *cost = cost.filter(|_| is_allowed(rules, group, device));
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
    use crate::problem::group_names::tests::three;
    use edgecut_graph::units::Micros;

    fn rules(list: &[(RuleKind, &str)]) -> Vec<Rule> {
        list.iter().map(|(kind, text)| Rule::parse(*kind, text).unwrap()).collect()
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
            (vec![(RuleKind::Pin, "#2=b/cpu"), (RuleKind::Pin, "nn.relu_1=a/cpu")], ["x..", "xxx", "..x"]),
            (vec![(RuleKind::Pin, "fc1=a/gpu0")], ["xxx", ".x.", "xxx"]),
        ] {
            let (rules, cost) = (rules(&list), Cost { time: Micros(1.0), ..Cost::default() });
            check_groups(&rules, &three()).unwrap();
            check_devices(&rules, &three(), &devices()).unwrap();
            let mut costs = vec![vec![Some(cost); 3]; 3];
            apply(&rules, &three(), &devices(), &mut costs);
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
                "option `ban=nn.relu=c/cpu`: unknown device c/cpu; the cluster has a/cpu, a/gpu0",
            ),
            (
                vec![(RuleKind::Pin, "*=a")],
                "option `pin=*=a`: unknown device a (did you mean a/cpu or a/gpu0?); the cluster has",
            ),
            (
                vec![(RuleKind::Pin, "image.pool=a/cpu")],
                "no group, operator or layer is called `image.pool`; the model has nn.conv2d+nn",
            ),
            (vec![(RuleKind::Pin, "nn.dens_2=a/cpu")], "is called `nn.dens_2` (did you mean nn.dense_2?); the model"),
            (
                vec![(RuleKind::Pin, "#3=a/cpu")],
                "option `pin=#3=a/cpu`: there is no group #3; the model has 3 groups, from #0",
            ),
            (
                vec![(RuleKind::Ban, "nn.d*=a/cpu"), (RuleKind::Ban, "*=a/gpu0"), (RuleKind::Ban, "nn.dense=b/cpu")],
                "#1 nn.dense has no device left to run on: option `ban=nn.d*=a/cpu`, option `ban=*=a/gpu0`, option `ban=nn.dense=b/cpu`",
            ),
            (vec![(RuleKind::Pin, "*=a/cpu"), (RuleKind::Ban, "nn.softmax=a/cpu")], "nn.softmax has no device left"),
        ] {
            let rules = rules(&list);
            let found = check_groups(&rules, &three()).and_then(|()| check_devices(&rules, &three(), &devices()));
            let found = found.unwrap_err().to_string();
            assert!(found.contains(want), "{found}");
        }
        assert!(
            Rule::parse(RuleKind::Ban, "nn.relu")
                .unwrap_err()
                .to_string()
                .starts_with("option `ban=nn.relu`: expected")
        );
    }
}
