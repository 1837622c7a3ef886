//! `edgecut operators`: the Relay operators that edgecut knows, and the kind of their kernels.

use edgecut_session::operators::operators;

use super::{Outcome, table::table};

/// List the Relay operators that edgecut knows, and the kernel of each
#[derive(clap::Args)]
pub struct Operators {}

impl Operators {
    pub fn run(self) -> Outcome {
        let mut table = table(["operator", "operands", "kernel"]);
        for operator in operators() {
            table.add_row([operator.name, &operator.operands.join(", "), operator.kernel]);
        }
        println!("{table}");
        Ok(())
    }
}
