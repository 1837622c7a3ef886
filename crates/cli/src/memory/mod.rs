//! `edgecut memory`: tensors placed in an arena, schedules under a memory limit, buffers packed, liveness reported.

mod files;
mod liveness;
mod pack;
mod place;
mod schedule;
mod subject;
mod times;

use clap::Subcommand;

use crate::Outcome;

/// Place tensors in memory and schedule models within a limit; every result has a lower bound.
#[derive(clap::Args)]
pub struct Memory {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Place(Box<place::Place>),
    Schedule(Box<schedule::Schedule>),
    Pack(pack::Pack),
    Liveness(Box<liveness::Liveness>),
}

impl Memory {
    pub fn run(self) -> Outcome {
        match self.verb {
            Verb::Place(verb) => verb.run(),
            Verb::Schedule(verb) => verb.run(),
            Verb::Pack(verb) => verb.run(),
            Verb::Liveness(verb) => verb.run(),
        }
    }
}
