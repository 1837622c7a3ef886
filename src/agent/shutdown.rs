//! The order to stop, given once and heard everywhere.

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A shared flag that work watches. Clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// A shutdown that SIGINT and SIGTERM order. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn on_signal() -> std::io::Result<Shutdown> {
        let shutdown = Shutdown::new();
        let order = shutdown.clone();
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            tokio::spawn(async move {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                order.order();
            });
        }
        #[cfg(not(unix))]
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                order.order();
            }
        });
        Ok(shutdown)
    }

    /// Tells everybody to stop.
    pub fn order(&self) {
        self.0.cancel();
    }

    pub fn is_ordered(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when the order is given.
    pub fn ordered(&self) -> WaitForCancellationFutureOwned {
        self.0.clone().cancelled_owned()
    }

    /// A shutdown of one piece of work: ordered by itself, or by this one.
    pub fn child(&self) -> Shutdown {
        Shutdown(self.0.child_token())
    }
}
