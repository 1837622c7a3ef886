//! The devices and links of a cluster as the planner's tables.

use crate::{
    cluster::{DeviceName, Inventory, Place},
    plan::{
        assemble::Network,
        problem::{Device, DeviceId, Link, LinkId},
    },
    units::Bytes,
};

/// Why no plan can be made for an inventory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("server {0} is where inputs start or results must arrive, and it offers no device")]
    NoDevice(String),
    #[error("the link from {from} to {to} is neither given nor measured")]
    NoLink { from: String, to: String },
}

/// Every device with its limit, which `memory` tightens, and a route between any two: over the link of their servers,
/// or free on one server.
///
/// # Errors
/// If the source or the sink has no device, or a link is missing.
pub fn network(
    inventory: &Inventory,
    address: impl Fn(&DeviceName) -> Option<Place>,
    memory: Option<Bytes>,
) -> Result<Network, NetworkError> {
    let devices = inventory.devices.iter().map(|device| Device {
        server: device.name.server.to_string(),
        name: device.name.device.to_string(),
        address: match address(&device.name) {
            Some(Place::Remote { address, .. }) => Some(address),
            _ => None,
        },
        memory: Some(memory.map_or(device.memory, |limit| limit.min(device.memory))),
    });
    let links = inventory.links.iter().map(|link| Link {
        name: format!("{} → {}", link.from, link.to),
        latency: link.cost.latency,
        per_byte: 1.0 / link.cost.rate.0,
    });
    let route = |from: &DeviceName, to: &DeviceName| {
        if from.server == to.server {
            return Ok(None);
        }
        let found = inventory.links.iter().position(|link| link.from == from.server && link.to == to.server);
        let missing = || NetworkError::NoLink { from: from.server.to_string(), to: to.server.to_string() };
        found.map(|index| Some(LinkId(index as u32))).ok_or_else(missing)
    };
    let names = || inventory.devices.iter().map(|device| &device.name);
    let routes = names().flat_map(|from| names().map(move |to| route(from, to)));
    let first = |server: &str| {
        let found = inventory.devices.iter().position(|device| device.name.server == server);
        found.map(|index| DeviceId(index as u32)).ok_or_else(|| NetworkError::NoDevice(server.to_string()))
    };
    Ok(Network {
        routes: routes.collect::<Result<_, _>>()?,
        devices: devices.collect(),
        links: links.collect(),
        source: first(&inventory.source)?,
        sink: first(&inventory.sink)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::{DeviceKind, DeviceSpec, Link as ServerLink, LinkCost},
        units::{Micros, Rate},
    };

    #[test]
    fn servers_are_linked_and_devices_of_one_server_are_not() {
        let device = |server: &str, name: &str| DeviceSpec {
            name: DeviceName::new(server, name),
            kind: DeviceKind::Cpu,
            hardware: String::new(),
            engine: "tract 1".into(),
            threads: 1,
            memory: Bytes(100),
        };
        let cost = LinkCost { latency: Micros(5.0), rate: Rate(100.0) };
        let link = |from: &str, to: &str| ServerLink { from: from.into(), to: to.into(), cost };
        let mut inventory = Inventory {
            devices: vec![device("a", "cpu"), device("a", "gpu0"), device("b", "cpu")],
            links: vec![link("a", "b"), link("b", "a")],
            source: "b".into(),
            sink: "a".into(),
        };
        let made = network(&inventory, |_| None, Some(Bytes(70))).unwrap();
        assert_eq!((made.source, made.sink), (DeviceId(2), DeviceId(0)));
        let (there, back) = (Some(LinkId(0)), Some(LinkId(1)));
        assert_eq!(made.routes, [None, None, there, None, None, there, back, back, None]);
        assert_eq!((made.links[0].per_byte, made.devices[0].memory), (0.01, Some(Bytes(70))));
        inventory.links.pop();
        assert!(network(&inventory, |_| None, None).unwrap_err().to_string().contains("from b to a"));
        inventory.links.push(link("b", "a"));
        inventory.sink = "c".into();
        assert!(network(&inventory, |_| None, None).unwrap_err().to_string().contains("server c"));
    }
}
