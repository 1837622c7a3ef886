//! Mutual TLS from PEM files; without it, an agent listens on loopback only.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig, crypto,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};
use tonic::transport::{Certificate, ClientTlsConfig, Identity as Pem};

use crate::TlsFiles;

/// A party's certificate and key, and the authority that it trusts. An agent uses them as a server for its clients and
/// as a client of other agents.
#[derive(Clone)]
pub struct Identity {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Why an identity or an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("{path}: no `-----BEGIN {expected}-----`: expected a PEM file")]
    NotPem { path: PathBuf, expected: &'static str },
    #[error("the {what} cannot be used for TLS: {cause}")]
    Tls { what: &'static str, cause: String },
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
        let (certificate, key) = (pem(&files.cert, "CERTIFICATE")?, pem(&files.key, "")?);
        Ok(Identity { authority, certificate, key })
    }

    /// For connections to an agent whose certificate is issued to `name`.
    pub fn client(&self, name: &str) -> ClientTlsConfig {
        let own = Pem::from_pem(&self.certificate, &self.key);
        let authority = Certificate::from_pem(&self.authority);
        ClientTlsConfig::new().ca_certificate(authority).identity(own).domain_name(name)
    }

    /// For accepting clients with a certificate of the authority, and no others.
    ///
    /// # Errors
    /// If a certificate or the key is not valid, or they do not belong together.
    pub fn acceptor(&self) -> Result<TlsAcceptor, SecurityError> {
        fn failed<E: ToString>(what: &'static str) -> impl Fn(E) -> SecurityError {
            move |error| SecurityError::Tls { what, cause: error.to_string() }
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.authority) {
            let certificate = certificate.map_err(failed("authority's certificate"))?;
            roots.add(certificate).map_err(failed("authority's certificate"))?;
        }
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let own: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(failed("private key"))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed("protocol"))?
            .with_client_cert_verifier(clients.map_err(failed("authority's certificate"))?)
            .with_single_cert(own.map_err(failed("certificate"))?, key)
            .map_err(failed("certificate"))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
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
