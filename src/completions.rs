//! `edgecut completions`: completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Arguments, Outcome, format::print_all};

/// Print a completion script for a shell.
///
/// For bash: `edgecut completions bash > ~/.local/share/bash-completion/completions/edgecut`.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell that reads the script
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "edgecut", &mut script);
        print_all(&script)
    }
}
