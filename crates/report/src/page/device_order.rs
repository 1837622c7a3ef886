//! The order of devices on the page.

use edgecut_plan::{Plan, file::DevicePlan};

/// Devices are in the order of the plans, the first plan first; then come those of no plan, as they are.
pub(super) struct DeviceOrder {
    names: Vec<String>,
}

impl DeviceOrder {
    pub fn of(plans: &[&Plan]) -> DeviceOrder {
        let devices = plans.iter().flat_map(|plan| &plan.devices).map(DevicePlan::device_name);
        DeviceOrder { names: devices.map(|name| name.to_string()).collect() }
    }

    /// Sorts `devices`, of which `name` gives `server/device`.
    pub fn sort<T>(&self, devices: &mut [T], name: impl Fn(&T) -> String) {
        devices.sort_by_cached_key(|device| {
            let name = name(device);
            self.names.iter().position(|planned| *planned == name).unwrap_or(self.names.len())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};

    #[test]
    fn devices_of_plans_come_first_in_their_order() {
        let mut plan = testing::plan();
        plan.devices.reverse();
        let mut names = vec!["z/cpu", "a/cpu", "c/cpu", "b/cpu"];
        DeviceOrder::of(&[&plan]).sort(&mut names, ToString::to_string);
        assert_eq!(names, ["b/cpu", "a/cpu", "z/cpu", "c/cpu"]);
    }
}
