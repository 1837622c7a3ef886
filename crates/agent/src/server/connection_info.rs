//! Who is at the other end of a connection.

use std::{net::SocketAddr, sync::Arc};

use super::{client_id::ClientId, open_connections::OpenConnection};
use crate::protocol::Holder;

/// An extension of every request.
#[derive(Debug, Clone)]
pub(super) struct ConnectionInfo {
    pub address: SocketAddr,
    pub client_id: ClientId,
    /// The holder of its certificate, with TLS.
    pub holder: Option<Holder>,
    /// Counts its requests, which keep it from being closed.
    pub open: Arc<OpenConnection>,
}
