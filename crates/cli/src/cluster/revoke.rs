//! `edgecut cluster revoke`: certificates that agents no longer accept.

use super::certificates::{Certificates, failure};
use crate::{Outcome, stderr};
use edgecut_agent::authority::{Authority, AuthorityError};
use edgecut_session::cluster::read_cluster;

/// Add all certificates of servers and operators to the list of revoked ones, which agents read with --crl.
///
/// An agent reads the list again when it changes: copy it to all servers. `edgecut cluster init` then issues new ones.
#[derive(clap::Args)]
pub struct Revoke {
    #[command(flatten)]
    certificates: Certificates,
    /// Servers and operators whose certificates are revoked
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl Revoke {
    pub fn run(self) -> Outcome {
        let folder = self.certificates.folder();
        let mut authority = Authority::existing(&folder).map_err(failure)?;
        let known = authority.names().map_err(failure)?;
        // All or none.
        if let Some(unknown) = self.names.iter().find(|name| !known.contains(name)) {
            return Err(failure(AuthorityError::NotIssued { name: unknown.clone(), folder }));
        }
        for name in &self.names {
            authority.revoke(name).map_err(failure)?;
            println!("{name}: revoked");
        }
        println!("Copy {} to all servers.", authority.revoked_file().display());
        let file = &self.certificates.file;
        let own = read_cluster(file, &stderr::events()).ok().and_then(|cluster| cluster.tls).map(|tls| tls.cert);
        if let Some(name) = self.names.iter().find(|name| own.as_ref() == Some(&authority.files(name).0)) {
            println!("[tls] of {} names the certificate of {name}: agents refuse it from now on.", file.display());
        }
        Ok(())
    }
}
