//! How an agent logs.

use std::io;

use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use edgecut_agent::LogQueue;

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
    /// Logs events of this process on stderr, from `level` on. Lines that cannot be written are left out.
    pub fn install(self, level: Level) {
        self.install_with(level, io::stderr);
    }

    /// The same without ever waiting for stderr. Returns the queue of lines.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn install_queued(self, level: Level) -> io::Result<LogQueue> {
        let queue = LogQueue::start(io::stderr())?;
        let lines = queue.clone();
        self.install_with(level, move || lines.clone());
        Ok(queue)
    }

    fn install_with<W>(self, level: Level, writer: W)
    where
        W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    {
        // Its own errors it would print by a macro that panics if stderr cannot be written.
        let log = tracing_subscriber::fmt()
            .with_writer(writer)
            .with_max_level(level)
            .with_target(false)
            .with_ansi(false)
            .log_internal_errors(false);
        // A second subscriber would be refused; there is none before.
        let _ = match self {
            LogFormat::Text => log.try_init(),
            LogFormat::Json => log.json().flatten_event(true).try_init(),
        };
    }
}
