//! The runtime for communication with agents.

use edgecut_agent::io_priority::raise_io_priority;
use tokio::runtime::Runtime;

use crate::Error;

/// Creates the runtime for network I/O with agents. It runs no computation.
///
/// # Errors
/// If its threads cannot be started.
pub fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(raise_io_priority)
        .enable_all()
        .build()
        .map_err(Error::failed)
}
