//! What the items of a model cost on every device, from the rows of profiles; what these lack is estimated: costs by the
//! cost model, power as the mean of what was measured on the device.

use std::collections::BTreeSet;

use super::shards::calibrated;
use edgecut_plan::{DeviceId, problem::Cost};
use edgecut_profile::{
    Calibration, DevicePower, Item, ProfileRow,
    model::{CostModel, Source},
};

/// The table that a plan is made from.
#[derive(Debug, Clone)]
pub struct Costs<'a> {
    items: &'a [Item],
    /// A row an item, with a cost a device; `None` where it cannot run.
    pub rows: Vec<Vec<Option<Cost>>>,
    /// Devices and items that were not measured there.
    pub estimated: BTreeSet<(DeviceId, usize)>,
    /// By device: its power, where the rows have energy.
    pub powers: Vec<Option<DevicePower>>,
    devices: u32,
}

/// There is nothing to estimate from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device}: {missing} of {items} operators or groups were not measured, and nothing else was measured there to \
     estimate them from: profile a model there first"
)]
pub struct NothingKnown {
    device: String,
    missing: usize,
    items: usize,
}

impl<'a> Costs<'a> {
    /// The table without devices.
    pub fn of(items: &'a [Item]) -> Costs<'a> {
        let rows = vec![Vec::new(); items.len()];
        Costs { items, rows, estimated: BTreeSet::new(), powers: Vec::new(), devices: 0 }
    }

    /// Adds a device of which `rows` are the profile. What they lack is estimated from them and from `others`, which
    /// were measured on the same device; energy that they lack, from `power`. `calibration` makes times in runs of them.
    ///
    /// # Errors
    /// If something is lacking, and nothing was measured.
    pub fn add(
        &mut self,
        device: &str,
        rows: &[ProfileRow],
        others: &[ProfileRow],
        power: Option<DevicePower>,
        calibration: &Calibration,
    ) -> Result<(), NothingKnown> {
        let mut own: Vec<Option<&ProfileRow>> = vec![None; self.items.len()];
        for row in rows {
            if let Some(place) = own.get_mut(row.id)
                && row.is_of(&self.items[row.id])
            {
                *place = Some(row);
            }
        }
        let missing = own.iter().filter(|row| row.is_none()).count();
        let model = (missing > 0).then(|| CostModel::of(rows.iter().chain(others)));
        let is_empty = |model: &CostModel| self.items.iter().all(|item| model.cost(item).is_none());
        if missing > 0 && model.as_ref().is_none_or(is_empty) {
            return Err(NothingKnown { device: device.to_string(), missing, items: self.items.len() });
        }
        let id = DeviceId(self.devices);
        self.devices += 1;
        self.powers.push(power);
        for (index, (item, row)) in self.items.iter().zip(own).enumerate() {
            let cost = match (row, &model) {
                (Some(row), _) => row.cost(),
                (None, Some(model)) => {
                    let estimate = model.cost(item);
                    if estimate.is_some_and(|estimate| estimate.source != Source::Measured) {
                        self.estimated.insert((id, index));
                    }
                    estimate.map(|estimate| estimate.cost)
                }
                (None, None) => None,
            };
            self.rows[index].push(cost.map(|mut cost| {
                cost.energy = cost.energy.or(power.map(|power| power.energy(cost.time.median)));
                calibrated(&cost, item.parameter_bytes, calibration)
            }));
        }
        Ok(())
    }
}
