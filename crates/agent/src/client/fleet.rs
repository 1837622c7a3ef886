//! The agents of a cluster: connections to all of them, and the links between them.

use edgecut_graph::DeviceName;
use std::time::Duration;

use smol_str::SmolStr;

use super::{agent::Agent, error::AgentError, probe_fit::ProbeFit};
use crate::{
    Cluster, Description, Inventory, Link, LinkRow, LinkTable,
    protocol::{Identity, SecurityError, peer::Peer, probe::MAX_PROBE_SIZE},
};

/// Time for the transfers over one link; a slower link is measured with smaller transfers.
const PROBE_BUDGET: Duration = Duration::from_millis(1500);

/// A server of the cluster, and its agent or why it is unreachable.
pub struct FleetMember {
    pub server: SmolStr,
    pub agent: Result<(Agent, Description), AgentError>,
}

/// The agents of a cluster, in its order.
pub struct Fleet {
    pub members: Vec<FleetMember>,
}

impl Fleet {
    /// Connects to all agents concurrently.
    ///
    /// # Errors
    /// If the cluster's certificates cannot be read. For agents that do not answer, see [`Fleet::unreachable`].
    pub async fn connect(cluster: &Cluster) -> Result<Fleet, SecurityError> {
        let identity = cluster.tls.as_ref().map(Identity::read).transpose()?;
        let reaching = cluster.servers.iter().map(|server| {
            let identity = identity.as_ref();
            async move {
                let agent = async {
                    let agent = Agent::of(server, identity, cluster.wait).await?;
                    let description = agent.describe().await?;
                    Ok((agent, description))
                };
                FleetMember { server: server.name.clone(), agent: agent.await }
            }
        });
        Ok(Fleet { members: futures::future::join_all(reaching).await })
    }

    /// The agents that answered, with their descriptions.
    pub fn connected(&self) -> impl Iterator<Item = (&SmolStr, &Agent, &Description)> {
        self.members
            .iter()
            .filter_map(|r| r.agent.as_ref().ok().map(|(agent, description)| (&r.server, agent, description)))
    }

    /// Why each of the others did not.
    pub fn unreachable(&self) -> impl Iterator<Item = &AgentError> {
        self.members.iter().filter_map(|r| r.agent.as_ref().err())
    }

    /// The agent of a server; `None` if the cluster has no such server.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub fn agent(&self, server: &str) -> Option<Result<&Agent, AgentError>> {
        let members = self.members.iter().find(|r| r.server == server)?;
        Some(members.agent.as_ref().map(|(agent, _)| agent).map_err(AgentError::clone))
    }

    /// The links between all servers that answered: from the cluster file, else from `known`, else measured now and added
    /// to `known`. Links are measured one at a time; `on_measure` is called before each.
    ///
    /// # Errors
    /// If an agent cannot reach its peer.
    pub async fn links(
        &self,
        cluster: &Cluster,
        known: &mut LinkTable,
        mut on_measure: impl FnMut(&str, &str),
    ) -> Result<Vec<Link>, AgentError> {
        let mut links = Vec::new();
        for (from, agent, _) in self.connected() {
            for (to, _, _) in self.connected().filter(|(to, _, _)| *to != from) {
                if let Some(given) = cluster.link(from, to) {
                    links.push(given.clone());
                    continue;
                }
                if let Some(row) = known.find(cluster, from, to) {
                    links.push(row.link());
                    continue;
                }
                let (Some(here), Some(there)) = (cluster.server(from), cluster.server(to)) else { continue };
                let Some(peer) = Peer::of(there) else { continue };
                on_measure(from, to);
                let samples = agent.probe(&peer, MAX_PROBE_SIZE, PROBE_BUDGET).await?;
                let fit = ProbeFit::of(&samples)
                    .map_err(|e| AgentError::Refused { agent: from.clone(), message: e.to_string() })?;
                let row = LinkRow {
                    from: from.clone(),
                    from_address: here.endpoint.to_string(),
                    to: to.clone(),
                    to_address: there.endpoint.to_string(),
                    latency_us: fit.cost.latency,
                    bytes_per_us: fit.cost.rate,
                    fit_error: fit.error,
                    largest_bytes: fit.largest,
                    n: fit.samples as u32,
                };
                links.push(row.link());
                known.insert(row);
            }
        }
        Ok(links)
    }

    /// Why there is no energy source of `device`; `None` if there is one, or its agent does not say.
    pub fn energy_absent(&self, device: &DeviceName) -> Option<&str> {
        let (_, _, told) = self.connected().find(|(server, ..)| **server == device.server)?;
        told.devices.iter().find(|described| described.name == device.device)?.energy.absent()
    }

    /// The devices of the servers that answered, and `links` between them.
    pub fn inventory(&self, cluster: &Cluster, links: Vec<Link>) -> Inventory {
        let descriptions: Vec<_> = self.connected().map(|(server, _, found)| (server.clone(), found.clone())).collect();
        Inventory::new(cluster, &descriptions, links)
    }
}
