//! `--pin` and `--ban`: read, and checked before anything is measured.

use super::Plan;
use crate::{
    cli::{Failure, Outcome},
    cluster::Inventory,
    plan::{
        problem::Device,
        rule::{self, Kind, Rule},
        split::Task,
    },
};

/// The rules of the command line, each about some of the groups called `names`.
pub(super) fn rules(arguments: &Plan, names: &[String]) -> Result<Vec<Rule>, Failure> {
    let pins = arguments.pin.iter().map(|text| Rule::parse(Kind::Pin, text));
    let bans = arguments.ban.iter().map(|text| Rule::parse(Kind::Ban, text));
    let rules = pins.chain(bans).collect::<Result<Vec<_>, _>>().map_err(Failure::bad_input)?;
    rule::check_groups(&rules, names).map_err(Failure::bad_input)?;
    Ok(rules)
}

/// Whether the rules can be kept on the devices that are there.
pub(super) fn check(rules: &[Rule], names: &[String], inventory: &Inventory) -> Outcome {
    let devices: Vec<String> = inventory.devices.iter().map(|device| device.name.to_string()).collect();
    rule::check_devices(rules, names, &devices).map_err(Failure::bad_input)
}

/// Takes from the task what the rules forbid.
pub(super) fn apply(rules: &[Rule], task: &mut Task<'_>) {
    let devices: Vec<String> = task.network.devices.iter().map(Device::full_name).collect();
    rule::apply(rules, &task.names, &devices, &mut task.costs);
}
