//! The devices and links of a cluster as the planner's tables.

use edgecut_agent::{DeviceSpec, Endpoint, Inventory};
use edgecut_graph::DeviceName;
use edgecut_graph::units::{Bytes, Micros};
use edgecut_plan::{
    assemble::Network,
    problem::{Device, DeviceId, Handling, HandlingCost, Link, LinkId},
    transfer_format::Coding,
};
use edgecut_profile::Calibration;

/// Why no plan can be made for an inventory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("server {0} is where inputs start or results must arrive, and it offers no device")]
    NoDevice(String),
    #[error("the link from {from} to {to} is neither given nor measured")]
    NoLink { from: String, to: String },
}

/// Every device with its limit, which `memory` tightens, and a route between any two: over the link of their servers;
/// on one server over the links of a device with memory of its own, else free. From one such device to another tensors
/// pass through main memory, at the cost of both ways.
///
/// Of a transfer to a GPU of another server only the network counts: its link is shared, and a hundred times slower.
///
/// # Errors
/// If the source or the sink has no device, or a link is missing.
pub fn network(
    inventory: &Inventory,
    address: impl Fn(&DeviceName) -> Option<Endpoint>,
    memory: Option<Bytes>,
) -> Result<Network, NetworkError> {
    let devices = inventory.devices.iter().map(|device| Device {
        server: device.name.server.to_string(),
        name: device.name.device.to_string(),
        hardware: Some(device.hardware.clone()),
        engine: Some(device.engine.clone()),
        threads: Some(device.threads),
        handling: Handling::default(),
        idle: None,
        address: match address(&device.name) {
            Some(Endpoint::Remote { address, .. }) => Some(address),
            _ => None,
        },
        // The largest number stands for an unknown size.
        memory: Some(memory.map_or(device.memory, |limit| limit.min(device.memory))).filter(|m| m.0 < u64::MAX),
    });
    let links = inventory.links.iter().map(|link| Link {
        name: format!("{} → {}", link.from, link.to),
        cost: link.cost,
        overhead: Micros::ZERO,
        coding: Coding::default(),
    });
    let mut links: Vec<Link> = links.collect();
    let mut route = |from: &DeviceSpec, to: &DeviceSpec| {
        let (start, end) = (&from.name, &to.name);
        if start == end {
            return Ok(None);
        }
        if start.server == end.server {
            let ways = [from.host_link.map(|link| link.from_device), to.host_link.map(|link| link.to_device)];
            let Some(cost) = ways.into_iter().flatten().reduce(|first, second| first.then(&second)) else {
                return Ok(None);
            };
            links.push(Link {
                name: format!("{start} → {end}"),
                cost,
                overhead: Micros::ZERO,
                coding: Coding::default(),
            });
            return Ok(Some(LinkId(links.len() as u32 - 1)));
        }
        let (from, to) = (start, end);
        let found = inventory.links.iter().position(|link| link.from == from.server && link.to == to.server);
        let missing = || NetworkError::NoLink { from: from.server.to_string(), to: to.server.to_string() };
        found.map(|index| Some(LinkId(index as u32))).ok_or_else(missing)
    };
    let mut routes = Vec::with_capacity(inventory.devices.len().pow(2));
    for from in &inventory.devices {
        for to in &inventory.devices {
            routes.push(route(from, to)?);
        }
    }
    let first = |server: &str| {
        let found = inventory.devices.iter().position(|device| device.name.server == server);
        found.map(|index| DeviceId(index as u32)).ok_or_else(|| NetworkError::NoDevice(server.to_string()))
    };
    Ok(Network {
        routes,
        devices: devices.collect(),
        links,
        source: first(&inventory.source)?,
        sink: first(&inventory.sink)?,
    })
}

/// `network` with what transfers take of calibrated devices, and of the time after their last byte.
pub(super) fn calibrated(mut network: Network, calibrations: &[Calibration]) -> Network {
    for (device, calibration) in network.devices.iter_mut().zip(calibrations) {
        let Calibration { send_us, send_us_per_mb, receive_us, receive_us_per_mb, .. } = *calibration;
        device.handling = Handling {
            sending: HandlingCost { each: send_us, per_byte: send_us_per_mb / 1e6 },
            receiving: HandlingCost { each: receive_us, per_byte: receive_us_per_mb / 1e6 },
        };
    }
    let count = network.devices.len();
    for (index, link) in (0u32..).map(LinkId).zip(&mut network.links) {
        // The receiver of a link between servers is the first of its devices.
        let ends = network.routes.iter().position(|route| *route == Some(index)).map(|at| (at / count, at % count));
        let is_remote = |(from, to): &(usize, usize)| network.devices[*from].server != network.devices[*to].server;
        if let Some(calibration) = ends.filter(is_remote).and_then(|(_, to)| calibrations.get(to)) {
            link.overhead += calibration.exchange_us;
            link.cost.latency += calibration.exchange_us;
        }
    }
    network
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_agent::{DeviceKind, HostLink, Link as ServerLink};
    use edgecut_graph::{
        LinkCost,
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
            host_link: None,
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
        assert_eq!((made.links[0].cost, made.devices[0].memory), (cost, Some(Bytes(70))));
        let way = |latency, rate| LinkCost { latency: Micros(latency), rate: Rate(rate) };
        inventory.devices[1].host_link = Some(HostLink { to_device: way(8.0, 10.0), from_device: way(9.0, 20.0) });
        let made = network(&inventory, |_| None, None).unwrap();
        let (up, down) = (Some(LinkId(2)), Some(LinkId(3)));
        assert_eq!(made.routes, [None, up, there, down, None, there, back, back, None]);
        let costs: Vec<_> = made.links[2..].iter().map(|l| (l.name.as_str(), l.cost)).collect();
        assert_eq!(costs, [("a/cpu → a/gpu0", way(8.0, 10.0)), ("a/gpu0 → a/cpu", way(9.0, 20.0))]);
        inventory.links.pop();
        assert!(network(&inventory, |_| None, None).unwrap_err().to_string().contains("from b to a"));
        inventory.links.push(link("b", "a"));
        inventory.sink = "c".into();
        assert!(network(&inventory, |_| None, None).unwrap_err().to_string().contains("server c"));
    }
}
