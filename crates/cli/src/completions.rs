//! `edgecut completions`: completion scripts for shells.

use clap::Command;
use clap_complete::Shell;

use crate::{Outcome, format::print_all};

/// Print a completion script for a shell.
///
/// For bash: `edgecut completions bash > ~/.local/share/bash-completion/completions/edgecut`.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell that reads the script
    shell: Shell,
}

impl Completions {
    /// Prints the script for `command`.
    pub fn run(self, mut command: Command) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "edgecut", &mut script);
        print_all(&script)
    }
}
