//! `--like`: what another plan splits, over the devices that are there now.

use miette::Report;

use super::Plan;
use crate::{
    cli::{Failure, kind},
    cluster::Inventory,
    graph::Granularity,
    plan::{
        self, DeviceId,
        file::{DevicePlan, Split},
    },
};

/// What the plan of `--like` splits; `None` without the flag. `hash` is that of the model that is planned now.
pub(super) fn splits(
    arguments: &Plan,
    hash: &str,
    granularity: Granularity,
    inventory: &Inventory,
) -> Result<Option<Vec<Split>>, Failure> {
    let Some(path) = &arguments.like else { return Ok(None) };
    let text = std::fs::read(path).map_err(|error| Failure::unreadable(&path.display().to_string(), &error))?;
    let other = plan::Plan::from_json(&text).map_err(|error| kind::no_plan(path, &text, error))?;
    let bad = |what: String| Failure::BadInput(Report::msg(format!("--like {}: {what}", path.display())));
    if other.model.blake3 != hash {
        return Err(bad(format!("it is a plan of {}, which is not the file that is planned now", other.model.path)));
    }
    if other.granularity != granularity {
        return Err(bad("it places the other of single operators and fused groups: give --granularity".to_string()));
    }
    let names: Vec<String> = inventory.devices.iter().map(|device| device.name.to_string()).collect();
    let here = |id: &DeviceId| {
        let device = other.devices.get(id.0 as usize);
        let name = device.map(DevicePlan::full_name).unwrap_or_default();
        let found = (0u32..).zip(&names).find(|(_, here)| **here == name);
        let missing = || bad(format!("it splits over {name}, which is not there; there are {}", names.join(", ")));
        found.map(|(index, _)| DeviceId(index)).ok_or_else(missing)
    };
    let moved = |split: &Split| {
        let devices = split.devices.iter().map(here).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Split { devices, ..split.clone() })
    };
    other.splits.iter().map(moved).collect::<Result<Vec<_>, Failure>>().map(Some)
}
