//! The certificate that the agent of a server shows to its clients.

use smol_str::SmolStr;
use time::OffsetDateTime;
use x509_parser::parse_x509_certificate;

use super::error::AgentError;
use crate::{
    Server,
    protocol::{Holder, Identity, connect::server_certificate, peer::Peer, role::Role},
};

/// Whom a server's certificate was issued to, as what, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// The common name of its subject.
    pub name: SmolStr,
    /// `None` of certificates that no role was issued with.
    pub role: Option<Role>,
    pub until: OffsetDateTime,
}

impl ServerCertificate {
    /// That of `server`, by a connection of its own; `None` if its agent is embedded.
    ///
    /// # Errors
    /// If the agent does not answer, or either side refuses the other's certificate.
    pub async fn of(server: &Server, identity: &Identity) -> Result<Option<ServerCertificate>, AgentError> {
        let Some(peer) = Peer::of(server) else { return Ok(None) };
        let unreachable = |cause: String| AgentError::Unreachable {
            agent: server.name.clone(),
            address: peer.address.clone(),
            cause,
        };
        let certificate = server_certificate(&peer, identity).await.map_err(|error| unreachable(error.to_string()))?;
        let parsed = parse_x509_certificate(&certificate).map_err(|error| unreachable(error.to_string()))?.1;
        let until = parsed.validity().not_after.to_datetime();
        let holder = Holder::of(&certificate).ok_or_else(|| unreachable("its certificate is not of X.509".into()))?;
        Ok(Some(ServerCertificate { name: holder.name, role: holder.role, until }))
    }
}
