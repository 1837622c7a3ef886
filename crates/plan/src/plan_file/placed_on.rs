//! How the plan file writes where a group runs: `{"kind": "whole", "device": 0}`. The shards of a split operator are
//! groups of their own, so that every group runs whole on one device.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::problem::DeviceId;

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum PlacedOn {
    Whole { device: DeviceId },
}

pub(crate) fn serialize<S: Serializer>(device: &DeviceId, serializer: S) -> Result<S::Ok, S::Error> {
    PlacedOn::Whole { device: *device }.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeviceId, D::Error> {
    let PlacedOn::Whole { device } = PlacedOn::deserialize(deserializer)?;
    Ok(device)
}
