//! Cooperative shutdown.

#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A request to stop that tasks and threads watch. Clones share it. Before it there may be one to drain: to finish what is
/// under way and begin nothing new.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    stop: CancellationToken,
}

impl Shutdown {
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// A shutdown that SIGINT requests; SIGTERM requests to drain, and the second one the shutdown. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn on_signal() -> std::io::Result<Shutdown> {
        let shutdown = Shutdown::new();
        #[cfg(unix)]
        shutdown.on(SignalKind::terminate(), SignalKind::interrupt())?;
        #[cfg(not(unix))]
        {
            let signalled = shutdown.clone();
            tokio::spawn(async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    signalled.request();
                }
            });
        }
        Ok(shutdown)
    }

    /// A shutdown that the supervisor of this process requests, as [`Shutdown::on_signal`] otherwise.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    #[cfg(target_os = "linux")]
    pub fn on_supervisor() -> std::io::Result<Shutdown> {
        let shutdown = Shutdown::new();
        let (drain, stop) = super::supervisor::worker_signals()?;
        shutdown.on(drain, stop)?;
        Ok(shutdown)
    }

    #[cfg(unix)]
    fn on(&self, drain: SignalKind, stop: SignalKind) -> std::io::Result<()> {
        let (signalled, mut drain, mut stop) = (self.clone(), signal(drain)?, signal(stop)?);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = stop.recv() => return signalled.request(),
                    _ = drain.recv() => match signalled.is_draining() {
                        false => signalled.drain(),
                        true => return signalled.request(),
                    }
                }
            }
        });
        Ok(())
    }

    /// Requests to drain.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Whether nothing new is to begin.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Completes when it is requested to drain, or to stop.
    pub(crate) fn draining(&self) -> WaitForCancellationFutureOwned {
        self.drain.clone().cancelled_owned()
    }

    /// Requests the shutdown.
    pub fn request(&self) {
        self.drain.cancel();
        self.stop.cancel();
    }

    pub fn is_requested(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Completes when the shutdown is requested.
    pub(crate) fn requested(&self) -> WaitForCancellationFutureOwned {
        self.stop.clone().cancelled_owned()
    }

    /// A shutdown of one task, requested by itself or by this one.
    pub fn child(&self) -> Shutdown {
        Shutdown { drain: self.drain.child_token(), stop: self.stop.child_token() }
    }
}
