//! How clients are identified, for limits that apply to each of them.

use std::net::IpAddr;

/// A client: the holder of a certificate, or an address without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// The BLAKE3 hash of its certificate.
    Certificate([u8; 32]),
    Address(Option<IpAddr>),
}
