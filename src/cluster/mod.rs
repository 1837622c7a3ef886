//! `edgecut cluster`: what makes a cluster file a cluster: the certificates of its agents and operators.

mod certificates;
mod init;
mod revoke;

use clap::Subcommand;

use crate::Outcome;

/// Set up a cluster: certificates for its agents and for those who use them.
#[derive(clap::Args)]
pub struct Cluster {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::Init),
    Revoke(revoke::Revoke),
}

impl Cluster {
    pub fn run(self) -> Outcome {
        match self.verb {
            Verb::Init(verb) => verb.run(),
            Verb::Revoke(verb) => verb.run(),
        }
    }
}
