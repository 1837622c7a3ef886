//! `edgecut man`: manual pages, from the same definitions as `--help`.

use crate::stderr::status;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use crate::{Failure, Outcome, format::print_all, source_file};

/// Print the manual page of edgecut, or write a page for every command into a folder.
#[derive(clap::Args)]
pub struct Manual {
    /// Write edgecut.1 and a page for each command, such as edgecut-plan.1, into this folder
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Manual {
    /// Prints or writes the pages of `root` and its subcommands.
    pub fn run(self, mut root: Command) -> Outcome {
        root.build();
        let Some(folder) = &self.output else { return print_all(&page(&root)?) };
        source_file::check_folder("output", folder)?;
        source_file::create_folder(folder)?;
        let mut commands = vec![&root];
        while let Some(command) = commands.pop() {
            let name = command.get_display_name().unwrap_or_else(|| command.get_name());
            source_file::write(&folder.join(format!("{name}.1")), &page(command)?)?;
            commands.extend(command.get_subcommands());
        }
        status!("manual pages written to {}", folder.display());
        Ok(())
    }
}

/// One command's page in roff.
fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command.clone())
        .render(&mut page)
        .map_err(|error| Failure::unwritable(Path::new("the manual page"), &error))?;
    Ok(page)
}
