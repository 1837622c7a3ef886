//! How much a command says on stderr, errors and warnings apart: `--quiet` and `--verbose`.

use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressDrawTarget;
use tracing::Level;

/// Flags of all verbs.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Verbosity {
    /// Print no progress and no names of written files on stderr: errors and warnings alone
    #[arg(long, short, global = true, help_heading = "Messages", hide_short_help = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log what is done, on stderr
    #[arg(long, short, global = true, help_heading = "Messages", hide_short_help = true)]
    verbose: bool,
}

static IS_QUIET: AtomicBool = AtomicBool::new(false);

impl Verbosity {
    /// Makes it hold for this process.
    pub fn set(self) {
        IS_QUIET.store(self.quiet, Ordering::Relaxed);
    }

    /// From which level on events are logged, where they are.
    pub fn level(self) -> Level {
        match self {
            Verbosity { verbose: true, .. } => Level::DEBUG,
            Verbosity { quiet: true, .. } => Level::WARN,
            _ => Level::INFO,
        }
    }

    pub fn is_verbose(self) -> bool {
        self.verbose
    }
}

/// Whether progress and the names of written files are unwanted.
pub fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Where progress is drawn: on stderr if it is a terminal, unless that is not wanted.
pub fn draw_target() -> ProgressDrawTarget {
    if is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}
