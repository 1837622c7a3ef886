//! Cooperative shutdown.

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A request to stop that tasks and threads watch. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// A shutdown that SIGINT and SIGTERM request. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn on_signal() -> std::io::Result<Shutdown> {
        let shutdown = Shutdown::new();
        let signalled = shutdown.clone();
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            tokio::spawn(async move {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                signalled.request();
            });
        }
        #[cfg(not(unix))]
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                signalled.request();
            }
        });
        Ok(shutdown)
    }

    /// Requests the shutdown.
    pub fn request(&self) {
        self.0.cancel();
    }

    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when the shutdown is requested.
    pub fn requested(&self) -> WaitForCancellationFutureOwned {
        self.0.clone().cancelled_owned()
    }

    /// A shutdown of one task, requested by itself or by this one.
    pub fn child(&self) -> Shutdown {
        Shutdown(self.0.child_token())
    }
}
