//! `edgecut cluster`: what makes machines a cluster: the file that names them, and the certificates of its agents and operators.

mod certificates;
mod check;
mod discover;
mod init;
mod revoke;

use clap::Subcommand;

use crate::Outcome;

/// Set up a cluster: find its agents, make certificates for them and for those who use them, check them.
#[derive(clap::Args)]
pub struct Cluster {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Check(check::Check),
    Discover(discover::Discover),
    Init(init::Init),
    Revoke(revoke::Revoke),
}

impl Cluster {
    pub fn run(self) -> Outcome {
        match self.verb {
            Verb::Check(verb) => verb.run(),
            Verb::Discover(verb) => verb.run(),
            Verb::Init(verb) => verb.run(),
            Verb::Revoke(verb) => verb.run(),
        }
    }
}
