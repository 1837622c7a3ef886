//! How an agent logs.

use tracing::Level;

/// The form of the lines on stderr.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// A line of text for each event
    #[default]
    Text,
    /// A JSON object for each event
    Json,
}

impl LogFormat {
    /// Logs events of this process from `level` on.
    pub fn install(self, level: Level) {
        let log = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(level)
            .with_target(false)
            .with_ansi(false);
        // A second subscriber would be refused; there is none before.
        let _ = match self {
            LogFormat::Text => log.try_init(),
            LogFormat::Json => log.json().flatten_event(true).try_init(),
        };
    }
}
