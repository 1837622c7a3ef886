//! Profiles read from files: the devices that they are of, and their measurements.

use std::collections::BTreeMap;

use edgecut_graph::{DeviceName, Granularity, units::Bytes};
use edgecut_profile::{Item, ProfileRow};

use super::DeviceRows;
use edgecut_agent::{Cluster, DeviceKind, DeviceSpec, Inventory, Link};

/// The rows of profiles by device, in the order in which devices occur first.
#[derive(Debug, Clone)]
pub struct RecordedProfiles {
    pub granularity: Granularity,
    pub devices: Vec<DeviceSpec>,
    /// By device.
    pub profiles: Vec<DeviceRows>,
}

/// Rows that no plan can be made with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordedError {
    #[error("the profiles have no rows")]
    Empty,
    #[error("the profiles are of operators and of fused groups: give those of one granularity")]
    Granularity,
    #[error("{0}: the profile has no row of this model's operators: is it of another model, or read with other sizes?")]
    Foreign(DeviceName),
}

impl RecordedProfiles {
    /// Sorts `rows` by device.
    ///
    /// # Errors
    /// If there are none, or they differ in granularity.
    pub fn of(rows: Vec<ProfileRow>) -> Result<RecordedProfiles, RecordedError> {
        let granularity = rows.first().ok_or(RecordedError::Empty)?.granularity;
        if rows.iter().any(|row| row.granularity != granularity) {
            return Err(RecordedError::Granularity);
        }
        let mut found = RecordedProfiles { granularity, devices: Vec::new(), profiles: Vec::new() };
        let mut numbers: BTreeMap<(String, String), usize> = BTreeMap::new();
        for row in rows {
            let number = *numbers.entry((row.server.clone(), row.device.clone())).or_insert_with(|| {
                found.devices.push(device(&row));
                found.profiles.push(DeviceRows::default());
                found.devices.len() - 1
            });
            let profile = &mut found.profiles[number];
            if row.shard().is_some() { profile.shards.push(row) } else { profile.rows.push(row) }
        }
        // Items without rows are estimated from shards too.
        for profile in &mut found.profiles {
            profile.related.clone_from(&profile.shards);
        }
        Ok(found)
    }

    /// Checks that every profile has rows of `items`.
    ///
    /// # Errors
    /// With the first device whose profile has none.
    pub fn check(&self, items: &[Item]) -> Result<(), RecordedError> {
        let is_of = |row: &ProfileRow| items.get(row.id).is_some_and(|item| row.is_of(item));
        let foreign = self.devices.iter().zip(&self.profiles).find(|(_, profile)| !profile.rows.iter().any(is_of));
        foreign.map_or(Ok(()), |(device, _)| Err(RecordedError::Foreign(device.name.clone())))
    }

    /// The devices with the limits and links of `cluster`, and of `measured` where that has none. Inputs start where
    /// `cluster` says, else at the first device.
    pub fn inventory(&self, cluster: Option<&Cluster>, measured: &[Link]) -> Inventory {
        let first = self.devices.first().map(|device| device.name.server.clone()).unwrap_or_default();
        let devices = self.devices.clone();
        let mut inventory = Inventory { devices, links: Vec::new(), source: first.clone(), sink: first };
        if let Some(cluster) = cluster {
            for device in &mut inventory.devices {
                let server = cluster.server(&device.name.server);
                let limit = server.and_then(|server| server.memory_for(&device.name.device));
                device.memory = limit.unwrap_or(device.memory);
            }
            inventory.links.clone_from(&cluster.links);
            (inventory.source, inventory.sink) = (cluster.source.clone(), cluster.sink.clone());
        }
        let is_new = |link: &&Link| inventory.links.iter().all(|l| (&l.from, &l.to) != (&link.from, &link.to));
        let new: Vec<Link> = measured.iter().filter(is_new).cloned().collect();
        inventory.links.extend(new);
        inventory
    }
}

/// The device of a row. A profile does not say how much memory its device has.
fn device(row: &ProfileRow) -> DeviceSpec {
    DeviceSpec {
        name: DeviceName::new(row.server.as_str(), row.device.as_str()),
        kind: if row.device.starts_with("gpu") { DeviceKind::Gpu } else { DeviceKind::Cpu },
        hardware: row.hardware.clone(),
        engine: row.profiled_device().engine,
        threads: row.threads as u32,
        memory: Bytes(u64::MAX),
        host_link: None,
    }
}
