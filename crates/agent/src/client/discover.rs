//! Looking for servers: an agent at each address of a name says what it is called.

use edgecut_graph::{NameError, check_name};
use smol_str::SmolStr;

use super::{error::AgentError, remote::RemoteAgent};
use crate::{
    Discovery, Endpoint, Server, TlsFiles,
    protocol::{Identity, SecurityError, peer::Peer},
};
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
    #[error("the agent at {address} {error}")]
    Name { address: String, error: NameError },
}

impl Discovery {
    /// The servers at all addresses of the name, in the order of their own names, and why others did not answer: what is known
    /// of a name may be older than the agents.
    ///
    /// # Errors
    /// If the name has no address, no agent answers, or one is called what no server can be.
    pub async fn discover(&self, tls: Option<&TlsFiles>) -> Result<(Vec<Server>, Vec<AgentError>), DiscoveryError> {
        let addresses = tokio::net::lookup_host((self.host(), self.port())).await;
        let addresses = addresses.map_err(|cause| DiscoveryError::Lookup { name: self.clone(), cause })?;
        let mut addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
        addresses.sort();
        addresses.dedup();
        // Called by their addresses until they say what they are called.
        let servers: Vec<Server> = addresses.iter().map(|address| self.server(address, address.into())).collect();
        if servers.is_empty() {
            return Err(DiscoveryError::NoAddress(self.clone()));
        }
        let identity = tls.map(Identity::read).transpose()?;
        let asking = servers.iter().filter_map(Peer::of).map(|peer| {
            let identity = identity.as_ref();
            async move { RemoteAgent::connect_unnamed(&peer, identity).await?.describe().await }
        });
        let (mut found, mut silent): (Vec<Server>, Vec<AgentError>) = (Vec::new(), Vec::new());
        for (description, address) in futures::future::join_all(asking).await.into_iter().zip(&addresses) {
            match description {
                Ok(description) => {
                    let name = check_name(&description.name);
                    let name = name.map_err(|error| DiscoveryError::Name { address: address.clone(), error })?;
                    found.push(self.server(address, name));
                }
                Err(error) => silent.push(error),
            }
        }
        // One agent may have an address of each version of IP.
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| a.name == b.name);
        match (found.is_empty(), silent.first()) {
            (true, Some(error)) => Err(error.clone().into()),
            _ => Ok((found, silent)),
        }
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
