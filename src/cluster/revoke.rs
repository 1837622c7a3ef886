//! `edgecut cluster revoke`: certificates that agents no longer accept.

use super::certificates::{Certificates, failure};
use crate::Outcome;
use edgecut_cluster::authority::Authority;

/// Add certificates to the list of revoked ones, which agents read with --crl.
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
        let mut authority = Authority::existing(&self.certificates.folder()).map_err(failure)?;
        for name in &self.names {
            authority.revoke(name).map_err(failure)?;
            println!("{name}: revoked");
        }
        println!("Copy {} to all servers.", authority.revoked_file().display());
        Ok(())
    }
}
