//! The agents of a whole cluster: reaching all of them at once, and the links between them.

use std::{path::Path, time::Duration};

use smol_str::SmolStr;

use super::{
    client::Agent,
    error::AgentError,
    probe::{LARGEST, ProbeFit},
    security::{Identity, SecurityError},
    setup::Peer,
};
use crate::{
    cluster::{Cluster, Description, Inventory, Link, LinkRow, LinkTable},
    files::write_whole,
};

/// How long one link's large transfers may take; what is slower is judged by smaller ones.
const PROBE_BUDGET: Duration = Duration::from_millis(1500);

/// A server of the cluster and what became of the attempt to reach it.
pub struct Reached {
    pub server: SmolStr,
    pub agent: Result<(Agent, Description), AgentError>,
}

/// The agents of a cluster, in its order.
pub struct Fleet {
    pub reached: Vec<Reached>,
}

impl Fleet {
    /// Reaches all agents at the same time.
    ///
    /// # Errors
    /// If the cluster's own certificates cannot be read. An agent that does not answer is no error here: see
    /// [`Fleet::missing`].
    pub async fn reach(cluster: &Cluster) -> Result<Fleet, SecurityError> {
        let identity = cluster.tls.as_ref().map(Identity::read).transpose()?;
        let reaching = cluster.servers.iter().map(|server| {
            let identity = identity.as_ref();
            async move {
                let agent = async {
                    let agent = Agent::of(server, identity).await?;
                    let description = agent.describe().await?;
                    Ok((agent, description))
                };
                Reached { server: server.name.clone(), agent: agent.await }
            }
        });
        Ok(Fleet { reached: futures::future::join_all(reaching).await })
    }

    /// The agents that answered, with what they said.
    pub fn present(&self) -> impl Iterator<Item = (&SmolStr, &Agent, &Description)> {
        self.reached.iter().filter_map(|r| r.agent.as_ref().ok().map(|(agent, told)| (&r.server, agent, told)))
    }

    /// Why the others did not.
    pub fn missing(&self) -> impl Iterator<Item = &AgentError> {
        self.reached.iter().filter_map(|r| r.agent.as_ref().err())
    }

    /// The agent of a server.
    ///
    /// # Errors
    /// Why it does not answer; `None` if the cluster has no such server.
    pub fn agent(&self, server: &str) -> Option<Result<&Agent, AgentError>> {
        let reached = self.reached.iter().find(|r| r.server == server)?;
        Some(reached.agent.as_ref().map(|(agent, _)| agent).map_err(AgentError::clone))
    }

    /// The links between all servers that answered: as the cluster file gives them, else as `known` has them, else
    /// measured now, one after the other so that none disturbs another. What was measured is added to `known`;
    /// `each` is told before a link is measured.
    ///
    /// # Errors
    /// If an agent does not reach its peer.
    pub async fn links(
        &self,
        cluster: &Cluster,
        known: &mut LinkTable,
        mut each: impl FnMut(&str, &str),
    ) -> Result<Vec<Link>, AgentError> {
        let mut links = Vec::new();
        for (from, agent, _) in self.present() {
            for (to, _, _) in self.present().filter(|(to, _, _)| *to != from) {
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
                each(from, to);
                let samples = agent.probe(&peer, LARGEST, PROBE_BUDGET).await?;
                let fit = ProbeFit::of(&samples)
                    .map_err(|e| AgentError::Refused { agent: from.clone(), message: e.to_string() })?;
                let row = LinkRow {
                    from: from.clone(),
                    from_address: here.place.to_string(),
                    to: to.clone(),
                    to_address: there.place.to_string(),
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

    /// What a plan can be made for: the devices that answered and `links` between their servers.
    pub fn inventory(&self, cluster: &Cluster, links: Vec<Link>) -> Inventory {
        let told: Vec<_> = self.present().map(|(server, _, told)| (server.clone(), told.clone())).collect();
        Inventory::new(cluster, &told, links)
    }
}

/// Reads the table of measured links, empty if there is none yet.
///
/// # Errors
/// If the file is there and is no such table.
pub fn read_links(path: &Path) -> Result<LinkTable, csv::Error> {
    match std::fs::File::open(path) {
        Ok(file) => LinkTable::read(file),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(LinkTable::default()),
        Err(e) => Err(e.into()),
    }
}

/// Writes the table of measured links, by way of a temporary file.
///
/// # Errors
/// If the file cannot be written.
pub fn write_links(path: &Path, table: &LinkTable) -> Result<(), csv::Error> {
    write_whole(path, |file| table.write(file))
}
