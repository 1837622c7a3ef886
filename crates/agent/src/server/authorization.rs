//! Which client may make which request: commands come from operators, tensors from the agents of a deployment.
//!
//! Without TLS nothing is known of clients, and all may do all.

use super::{connection_info::ConnectionInfo, error::HostError};
use crate::protocol::{Identity, peer::Peer, role::Role};

/// Checks that the client of a request holds a certificate with the role that the request needs, and that it was not
/// revoked since the connection was opened.
///
/// # Errors
/// If it does not.
pub(super) fn authorize(
    connection: Option<&ConnectionInfo>,
    identity: Option<&Identity>,
    needed: Role,
) -> Result<(), HostError> {
    let Some(identity) = identity else { return Ok(()) };
    let holder = connection.and_then(|connection| connection.holder.as_ref()).ok_or(HostError::NoCertificate)?;
    if identity.is_revoked(&holder.serial) {
        return Err(HostError::Revoked { name: holder.name.clone() });
    }
    if holder.role != Some(needed) {
        return Err(HostError::Role { name: holder.name.clone(), is: holder.role_text(), needed });
    }
    Ok(())
}

/// Checks that the sender of tensors holds the certificate of `peer`, which the deployment names.
///
/// # Errors
/// If its certificate was issued for another one.
pub(super) fn check_sender(connection: Option<&ConnectionInfo>, peer: Option<&Peer>) -> Result<(), HostError> {
    let Some(holder) = connection.and_then(|connection| connection.holder.as_ref()) else { return Ok(()) };
    match peer.is_some_and(|peer| peer.check(holder).is_ok()) {
        true => Ok(()),
        false => Err(HostError::NotAPeer { name: holder.name.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        TlsFiles,
        authority::{Authority, Subject},
        protocol::Holder,
        server::{client_id::ClientId, open_connections::OpenConnection},
    };
    use std::time::Instant;
    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

    /// A connection of the holder of a new certificate, and the identity of an agent.
    fn connection(role: Role, host: &str) -> (tempfile::TempDir, Authority, Identity, ConnectionInfo) {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path(), "lab").unwrap();
        let subject = Subject { name: "camera".into(), role, hosts: vec![host.to_string()] };
        authority.issue(&subject, time::Duration::days(365), false).unwrap();
        let (cert, key) = authority.files("camera");
        let crl = Some(authority.revoked_file());
        let files = TlsFiles { ca: authority.certificate_file(), cert: cert.clone(), key, crl };
        let holder = Holder::of(&CertificateDer::from_pem_file(cert).unwrap());
        let address = "127.0.0.1:1".parse().unwrap();
        let client_id = ClientId::Address(None);
        let open = OpenConnection::new(client_id, address, Instant::now()).into();
        let connection = ConnectionInfo { address, client_id, holder, open };
        (folder, authority, Identity::read(&files).unwrap(), connection)
    }

    #[test]
    fn requests_need_a_role() {
        for (role, needed, allowed) in [
            (Role::Operator, Role::Operator, true),
            (Role::Agent, Role::Agent, true),
            (Role::Operator, Role::Agent, false),
            (Role::Agent, Role::Operator, false),
        ] {
            let (_folder, _, identity, connection) = connection(role, "a.lab");
            assert_eq!(authorize(Some(&connection), Some(&identity), needed).is_ok(), allowed, "{role} as {needed}");
            assert!(authorize(None, Some(&identity), needed).is_err(), "without a certificate");
            assert!(authorize(Some(&connection), None, needed).is_ok(), "without TLS");
        }
    }

    #[test]
    fn what_is_revoked_is_refused() {
        let (_folder, mut authority, identity, connection) = connection(Role::Operator, "a.lab");
        authority.revoke("camera").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let error = authorize(Some(&connection), Some(&identity), Role::Operator).unwrap_err();
        assert!(matches!(error, HostError::Revoked { .. }), "{error}");
    }

    #[test]
    fn a_sender_is_the_peer_that_the_deployment_names() {
        let peer = |address: &str, tls_name: Option<&str>| Peer {
            server: "camera".into(),
            address: address.to_string(),
            tls_name: tls_name.map(str::to_string),
        };
        for (host, peer, allowed) in [
            ("camera.lab", Some(peer("camera.lab:7600", None)), true),
            ("10.0.0.1", Some(peer("10.0.0.1:7600", None)), true),
            ("::1", Some(peer("[::1]:7600", None)), true),
            ("camera.lab", Some(peer("10.0.0.1:7600", Some("camera.lab"))), true),
            ("box.lab", Some(peer("camera.lab:7600", None)), false),
            ("10.0.0.1", Some(peer("10.0.0.1:7600", Some("camera.lab"))), false),
            ("camera.lab", Some(Peer { server: "box".into(), ..peer("camera.lab:7600", None) }), false),
            ("camera", Some(Peer { server: "box".into(), ..peer("10.0.0.1:7600", Some("camera")) }), true),
            ("camera.lab", None, false),
        ] {
            let (_folder, _, _, connection) = connection(Role::Agent, host);
            assert_eq!(check_sender(Some(&connection), peer.as_ref()).is_ok(), allowed, "{host}: {peer:?}");
        }
    }
}
