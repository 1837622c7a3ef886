//! `edgecut operators`: the Relay operators that edgecut knows, and the kind of their kernels.

use super::{Outcome, table::table};
use edgecut_ops as ops;
use edgecut_ops::Kernel;

/// List the Relay operators that edgecut knows, and the kernel of each
#[derive(clap::Args)]
pub struct Operators {}

impl Operators {
    pub fn run(self) -> Outcome {
        let mut table = table(["operator", "operands", "kernel"]);
        for def in ops::all() {
            let kernel = match def.kernel {
                Kernel::Wire(_) => "tract",
                Kernel::Host(_) => "own",
                Kernel::None(reason) => reason,
            };
            table.add_row([def.name, &def.operands.join(", "), kernel]);
        }
        println!("{table}");
        Ok(())
    }
}
