//! The command line: one file a verb. A verb parses its flags, calls the libraries and prints; no logic lives here.
//!
//! [`main`] is all of it, for the binary and for the command of the Python package. [`stderr_events`] shows progress as it
//! does, for other programs.

mod agent;
mod calibration;
mod cluster;
mod cluster_flag;
mod compare;
mod completions;
mod config;
mod devices;
mod diagnostic;
mod engine;
mod examples;
mod export;
mod failure;
mod flag_text;
mod format;
mod ineffective;
mod inspect;
mod interrupt;
mod log_format;
mod man;
mod memory;
mod model;
mod operators;
mod plan;
mod profile;
mod progress_line;
mod report;
mod run;
mod source_file;
mod stderr;
mod stdout;
mod table;
mod verbosity;
mod workload;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use edgecut_session::Error as Failure;
use failure::Outcome;
use log_format::LogFormat;
pub use stderr::events_of as stderr_events;
use verbosity::Verbosity;

/// Profile ONNX and TVM Relay models on an edge cluster and plan how to split their operators over it.
#[derive(Parser)]
#[command(name = "edgecut", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    verbosity: Verbosity,
}

#[derive(Subcommand)]
enum Verb {
    Inspect(inspect::Inspect),
    Profile(Box<profile::Profile>),
    Plan(Box<plan::Plan>),
    Run(Box<run::Run>),
    Memory(memory::Memory),
    Workload(workload::Workload),
    Export(export::Export),
    Report(report::Report),
    Compare(compare::Compare),
    Operators(operators::Operators),
    Devices(devices::Devices),
    Cluster(cluster::Cluster),
    Agent(agent::Agent),
    Completions(completions::Completions),
    #[command(name = "man")]
    Manual(man::Manual),
}

impl Verb {
    /// Whether models may be computed in this process; the heap then has a single arena. Searches are faster with one arena per thread:
    /// planning a decoder of 22 layers takes 9 s instead of 23 s on two cores.
    fn computes_here(&self) -> bool {
        !matches!(self, Verb::Plan(plan) if plan.computes_elsewhere())
    }
}

/// The command line with the examples of its help.
fn command() -> clap::Command {
    // All other flags of this verb have a heading: clap would print that of --help alone before them.
    let last = clap::Arg::new("help").short('h').long("help").action(clap::ArgAction::Help).help_heading("Output");
    let last = last.help("Print help (see more with '--help')").long_help("Print help (see a summary with '-h')");
    let root = Arguments::command();
    examples::with_examples(root.mut_subcommand("plan", |plan| plan.disable_help_flag(true).arg(last)))
}

/// Parses the command line, whose first word is the program's name, and runs the verb. The exit code is 0 when done,
/// else [`failure::exit_code`].
///
/// For programs that do nothing else, with `edgecut_engine::CountingAllocator` as their allocator: it changes settings of
/// the heap and ends the process on wrong usage and on a broken pipe.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    exit_on_broken_pipe();
    // Paths in messages are to be copied: they stay in one piece. Setting it can only fail the second time.
    let _ = miette::set_hook(Box::new(|_| Box::new(miette::MietteHandlerOpts::new().wrap_lines(false).build())));
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match config::configured(command(), &arguments).and_then(|parser| run(parser, arguments)) {
        Ok(()) => stdout::exit_code(0),
        Err(failure) => {
            failure::print(&failure);
            stdout::exit_code(failure::exit_code(&failure))
        }
    }
}

/// Parses the command line, whose defaults `parser` has, and runs the verb.
fn run(parser: clap::Command, arguments: impl IntoIterator<Item = OsString>) -> Outcome {
    let matches = parser.get_matches_from(arguments);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let verbosity = arguments.verbosity;
    verbosity.set();
    if verbosity.is_verbose() && !matches!(arguments.verb, Verb::Agent(_)) {
        LogFormat::Text.install(verbosity.level());
    }
    // No thread has started yet.
    if arguments.verb.computes_here() {
        edgecut_session::engine::configure_heap();
    }
    match arguments.verb {
        Verb::Inspect(verb) => verb.run(),
        Verb::Profile(verb) => verb.run(),
        Verb::Plan(verb) => verb.run(),
        Verb::Run(verb) => verb.run(),
        Verb::Memory(verb) => verb.run(),
        Verb::Workload(verb) => verb.run(),
        Verb::Export(verb) => verb.run(),
        Verb::Report(verb) => verb.run(),
        Verb::Compare(verb) => verb.run(),
        Verb::Operators(verb) => verb.run(),
        Verb::Devices(verb) => verb.run(),
        Verb::Cluster(verb) => verb.run(),
        Verb::Agent(verb) => verb.run(verbosity),
        Verb::Completions(verb) => verb.run(command()),
        Verb::Manual(verb) => verb.run(command()),
    }
}

/// Exits silently on a broken pipe, as when output goes to `head`. `println!` panics there, as on a full disk, which is
/// reported. The default action of SIGPIPE would also end agents whose client is gone.
fn exit_on_broken_pipe() {
    let report = std::panic::take_hook();
    let gone = std::io::Error::from_raw_os_error(libc::EPIPE).to_string();
    std::panic::set_hook(Box::new(move |panic| {
        let Some(why) = panic.payload_as_str().and_then(|text| text.strip_prefix("failed printing to stdout: ")) else {
            return report(panic);
        };
        if why != gone {
            failure::print(&Failure::Failed(format!("stdout cannot be written: {why}").into()));
        }
        std::process::exit(1);
    }));
}
