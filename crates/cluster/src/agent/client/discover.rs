//! Looking for servers: an agent at each address of a name says what it is called.

use smol_str::SmolStr;

use super::{error::AgentError, fleet::Fleet};
use crate::{Cluster, Discovery, Endpoint, Server, TlsFiles, agent::protocol::SecurityError};
use edgecut_engine::EngineOptions;

/// Why servers were not found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error("{name} cannot be looked up: {cause}")]
    Lookup { name: Discovery, cause: std::io::Error },
    #[error("{0} has no address")]
    NoAddress(Discovery),
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl Discovery {
    /// The servers at all addresses of the name, in the order of their own names.
    ///
    /// # Errors
    /// If the name has no address, or an agent does not answer.
    pub async fn discover(&self, tls: Option<&TlsFiles>) -> Result<Vec<Server>, DiscoveryError> {
        let addresses = tokio::net::lookup_host((self.host(), self.port())).await;
        let addresses = addresses.map_err(|cause| DiscoveryError::Lookup { name: self.clone(), cause })?;
        let mut addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
        addresses.sort();
        addresses.dedup();
        // Called by their addresses until they say what they are called.
        let servers: Vec<Server> = addresses.iter().map(|address| self.server(address, address.into())).collect();
        let first = servers.first().ok_or_else(|| DiscoveryError::NoAddress(self.clone()))?.name.clone();
        let cluster =
            Cluster { servers, links: Vec::new(), source: first.clone(), sink: first, tls: tls.cloned(), wait: None };
        let mut found = Vec::new();
        for (member, address) in Fleet::connect(&cluster).await?.members.into_iter().zip(&addresses) {
            let (_, description) = member.agent?;
            found.push(self.server(address, description.name));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn server(&self, address: &str, name: SmolStr) -> Server {
        Server {
            name,
            endpoint: Endpoint::Remote { address: address.to_string(), tls_name: Some(self.host().to_string()) },
            memory: None,
            threads: None,
            engine: None,
            embedded: EngineOptions::default(),
            devices: Vec::new(),
        }
    }
}
