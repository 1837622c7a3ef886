//! Mutual TLS from PEM files; without it, an agent listens on loopback only.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tonic::transport::{Certificate, ClientTlsConfig, Identity as Pem, ServerTlsConfig};

use crate::TlsFiles;

/// A party's certificate and key, and the authority that it trusts. An agent uses them as a server for its clients and
/// as a client of other agents.
#[derive(Clone)]
pub struct Identity {
    authority: Certificate,
    own: Pem,
}

/// Why an identity or an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("{path}: no `-----BEGIN {expected}-----`: expected a PEM file")]
    NotPem { path: PathBuf, expected: &'static str },
    #[error(
        "{0} can be reached from other machines: give --tls-cert, --tls-key and --client-ca, or --insecure to accept \
         any client"
    )]
    Open(SocketAddr),
}

impl Identity {
    /// Reads the three PEM files.
    ///
    /// # Errors
    /// If one cannot be read, or is not a PEM file of its kind.
    pub fn read(files: &TlsFiles) -> Result<Identity, SecurityError> {
        let authority = pem(&files.ca, "CERTIFICATE")?;
        let (cert, key) = (pem(&files.cert, "CERTIFICATE")?, pem(&files.key, "")?);
        Ok(Identity { authority: Certificate::from_pem(authority), own: Pem::from_pem(cert, key) })
    }

    /// For connections to an agent whose certificate is issued to `name`.
    pub fn client(&self, name: &str) -> ClientTlsConfig {
        ClientTlsConfig::new().ca_certificate(self.authority.clone()).identity(self.own.clone()).domain_name(name)
    }

    /// For accepting clients with a certificate of the authority, and no others.
    pub fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new().identity(self.own.clone()).client_ca_root(self.authority.clone())
    }
}

impl std::fmt::Debug for Identity {
    /// Does not print the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// Refuses an address that other machines can reach, unless there is an identity or `insecure` is set.
///
/// # Errors
/// If the address is refused.
pub fn check_address(address: SocketAddr, identity: Option<&Identity>, insecure: bool) -> Result<(), SecurityError> {
    if address.ip().is_loopback() || identity.is_some() || insecure {
        Ok(())
    } else {
        Err(SecurityError::Open(address))
    }
}

/// Reads a file that must hold a PEM section with this label, or, if it is empty, a label that ends in `PRIVATE KEY`.
fn pem(path: &Path, label: &'static str) -> Result<Vec<u8>, SecurityError> {
    let text = fs::read(path).map_err(|cause| SecurityError::File { path: path.to_path_buf(), cause })?;
    let (marker, expected) = match label {
        "" => ("PRIVATE KEY-----".to_string(), "PRIVATE KEY"),
        label => (format!("-----BEGIN {label}-----"), label),
    };
    if memchr::memmem::find(&text, marker.as_bytes()).is_none() {
        return Err(SecurityError::NotPem { path: path.to_path_buf(), expected });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_open_without_tls() {
        for (address, insecure, allowed) in [
            ("127.0.0.1:7", false, true),
            ("[::1]:7", false, true),
            ("0.0.0.0:7", false, false),
            ("10.0.0.2:7", false, false),
            ("[::]:7", false, false),
            ("10.0.0.2:7", true, true),
        ] {
            let found = check_address(address.parse().unwrap(), None, insecure).is_ok();
            assert_eq!(found, allowed, "{address} insecure={insecure}");
        }
    }

    #[test]
    fn a_file_without_the_pem_section_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        fs::write(&path, "-----BEGIN CERTIFICATE-----").unwrap();
        assert!(pem(&path, "CERTIFICATE").is_ok());
        assert!(pem(&path, "").unwrap_err().to_string().contains("PRIVATE KEY"));
        assert!(pem(&folder.path().join("none"), "").unwrap_err().to_string().contains("none"));
    }
}
