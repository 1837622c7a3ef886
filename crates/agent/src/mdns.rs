//! Agents on the local network: announced and found by multicast DNS (RFC 6762, RFC 6763).

use edgecut_graph::check_name;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use mdns_sd::{DaemonEvent, IfKind, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};
use smol_str::SmolStr;

/// The service type of agents.
const SERVICE: &str = "_edgecut._tcp.local.";

/// What an announcement says in addition to host and port: the agent's name, and whether it takes connections with mutual TLS alone.
const NAME: &str = "name";
const TLS: &str = "tls";

/// Longest label of a name in the DNS.
const MAX_LABEL: usize = 63;

/// How long an agent that stops waits until its announcement is withdrawn.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_millis(500);

/// An agent on the local network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnouncedAgent {
    pub name: SmolStr,
    /// Where it listens; announced with all addresses of its machine if it listens on all.
    pub address: SocketAddr,
    pub has_tls: bool,
}

/// Why agents cannot be announced or looked for.
#[derive(Debug, thiserror::Error)]
pub enum MdnsError {
    #[error("multicast DNS does not work on this machine: {0}")]
    Service(#[from] mdns_sd::Error),
    #[error("`{0}` cannot be announced: expected a name of at most {MAX_LABEL} bytes (option `name`)")]
    Name(SmolStr),
}

/// An announcement, until it is dropped.
pub struct Announcement {
    daemon: ServiceDaemon,
    service: String,
}

impl Announcement {
    /// Announces `agent`, and answers those who look for agents. A network without multicast is not an error: there is no
    /// one to answer.
    ///
    /// # Errors
    /// If the agent's name is too long, or there is no thread for that.
    pub fn new(agent: &AnnouncedAgent) -> Result<Announcement, MdnsError> {
        let AnnouncedAgent { name, address, has_tls } = agent;
        if name.len() > MAX_LABEL {
            return Err(MdnsError::Name(name.clone()));
        }
        let (ip, port) = (address.ip(), address.port());
        let properties = [(NAME, name.as_str()), (TLS, if *has_tls { "1" } else { "0" })];
        // A label of its own: agents on one machine may listen on different addresses.
        let host = format!("edgecut-{}-{port}.local.", &blake3::hash(name.as_bytes()).to_hex()[..16]);
        let service = match ip.is_unspecified() {
            true => {
                let mut service = ServiceInfo::new(SERVICE, name, &host, (), port, &properties[..])?.enable_addr_auto();
                if ip.is_ipv4() {
                    service.set_interfaces(vec![IfKind::IPv4]);
                }
                service
            }
            false => ServiceInfo::new(SERVICE, name, &host, ip, port, &properties[..])?,
        };
        let daemon = ServiceDaemon::new()?;
        let fullname = service.get_fullname().to_string();
        daemon.register(service)?;
        Ok(Announcement { daemon, service: fullname })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Later it does not answer anyway.
        if let Ok(withdrawn) = self.daemon.unregister(&self.service) {
            let _ = withdrawn.recv_timeout(WITHDRAWAL_TIMEOUT);
        }
        let _ = self.daemon.shutdown();
    }
}

/// The agents that answer within `time`, in the order of their names. Anything on the network can announce anything: what no agent
/// can be called, and what cannot be connected to, is left out.
///
/// # Errors
/// If there is no thread or no socket for that.
pub fn browse(time: Duration) -> Result<Vec<AnnouncedAgent>, MdnsError> {
    let deadline = Instant::now() + time;
    let daemon = ServiceDaemon::new()?;
    let failures = daemon.monitor()?;
    let events = daemon.browse(SERVICE)?;
    let mut found: BTreeMap<String, AnnouncedAgent> = BTreeMap::new();
    while let Ok(event) = events.recv_deadline(deadline) {
        match event {
            // Told again when another address is known.
            ServiceEvent::ServiceResolved(service) => {
                found.extend(announced(&service).map(|agent| (service.fullname.clone(), agent)));
            }
            ServiceEvent::ServiceRemoved(_, fullname) => drop(found.remove(&fullname)),
            _ => {}
        }
    }
    // It ends with this process anyway.
    let _ = daemon.shutdown();
    let failure = failures.try_iter().find_map(|event| match event {
        DaemonEvent::Error(error) => Some(error),
        _ => None,
    });
    // One interface of several may fail.
    if let (true, Some(failure)) = (found.is_empty(), failure) {
        return Err(failure.into());
    }
    let mut agents: Vec<AnnouncedAgent> = found.into_values().collect();
    agents.sort();
    Ok(agents)
}

fn announced(service: &ResolvedService) -> Option<AnnouncedAgent> {
    let name = check_name(service.get_property_val_str(NAME)?).ok()?;
    let ips = service.get_addresses().iter().map(|address| address.to_ip_addr());
    let (_, ip) = ips.filter_map(|ip| Some((distance(&ip)?, ip))).min()?;
    let port = Some(service.get_port()).filter(|port| *port > 0)?;
    let has_tls = service.get_property_val_str(TLS) == Some("1");
    Some(AnnouncedAgent { name, address: SocketAddr::new(ip, port), has_tls })
}

/// From how near an address can be reached only, that of all networks being the least; `None` if it cannot be written down: an
/// address that is local to a link needs the name of an interface here.
fn distance(ip: &IpAddr) -> Option<u8> {
    match ip {
        ip if ip.is_unspecified() || ip.is_multicast() => None,
        ip if ip.is_loopback() => Some(4),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => None,
        IpAddr::V6(_) => Some(1),
        IpAddr::V4(ip) if ip.is_link_local() => Some(3),
        // Networks of containers by default, which exist once on each machine.
        IpAddr::V4(ip) if is_bridge(*ip) => Some(2),
        IpAddr::V4(_) => Some(0),
    }
}

/// Whether an address is of the network 172.17.0.0/16, which Docker gives its bridge.
fn is_bridge(ip: Ipv4Addr) -> bool {
    matches!(ip.octets(), [172, 17, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_can_reach_come_first() {
        let all = [
            "::1",
            "fe80::1",
            "127.0.0.1",
            "fd00::2",
            "169.254.1.1",
            "0.0.0.0",
            "172.17.0.1",
            "192.168.1.7",
            "224.0.0.1",
            "10.0.0.9",
        ];
        let mut ips: Vec<(u8, IpAddr)> =
            all.iter().map(|ip| ip.parse().unwrap()).filter_map(|ip| Some((distance(&ip)?, ip))).collect();
        ips.sort();
        let sorted: Vec<String> = ips.iter().map(|(_, ip)| ip.to_string()).collect();
        let expected = ["10.0.0.9", "192.168.1.7", "fd00::2", "172.17.0.1", "169.254.1.1", "127.0.0.1", "::1"];
        assert_eq!(sorted, expected);
    }

    #[test]
    fn a_name_that_is_no_label_is_not_announced() {
        let agent = |length: usize| AnnouncedAgent {
            name: "n".repeat(length).into(),
            address: "127.0.0.1:7600".parse().unwrap(),
            has_tls: false,
        };
        assert!(matches!(Announcement::new(&agent(64)), Err(MdnsError::Name(_))));
        assert!(Announcement::new(&agent(63)).is_ok());
    }
}
