//! A device of this server: one thread that computes, one job at a time.
//!
//! A run or a profile leases the device, so that no other client disturbs its measurements; the lease ends when it is
//! dropped.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::error::HostError;
use crate::{DeviceDescription, MAX_THREADS};
use edgecut_engine::{Engine, EngineChoice, EngineError};

/// How long a client waits for a leased device.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates an engine, the device's own or the one that is asked for, with a number of threads.
pub(super) type EngineFactory = dyn Fn(Option<EngineChoice>, u32) -> Result<Arc<dyn Engine>, EngineError> + Send + Sync;

/// What a client may ask for: an engine, a number of threads.
type EngineKey = (Option<EngineChoice>, u32);

/// A device and its thread.
pub(super) struct Device {
    description: DeviceDescription,
    create_engine: Box<EngineFactory>,
    /// Engines in use, by what was asked for.
    engines: Mutex<HashMap<EngineKey, Arc<dyn Engine>>>,
    jobs: mpsc::Sender<Job>,
    available: Arc<Semaphore>,
    /// The current or last lease, for messages.
    user: Mutex<&'static str>,
}

type Job = Box<dyn FnOnce() + Send>;

/// Exclusive use of a device, until dropped.
pub(super) struct Lease {
    device: Arc<Device>,
    _permit: OwnedSemaphorePermit,
}

impl Device {
    /// Starts the device's thread, which ends when the device is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(description: DeviceDescription, create_engine: Box<EngineFactory>) -> std::io::Result<Arc<Device>> {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name(format!("device-{}", description.name))
            .spawn(move || queue.into_iter().for_each(|job| job()))?;
        let (available, user) = (Arc::new(Semaphore::new(1)), Mutex::new(""));
        let engines = Mutex::default();
        Ok(Arc::new(Device { description, create_engine, engines, jobs, available, user }))
    }

    pub fn description(&self) -> &DeviceDescription {
        &self.description
    }

    /// The engine with `threads` threads; by default the device's own of both.
    pub fn engine(&self, engine: Option<EngineChoice>, threads: Option<u32>) -> Result<Arc<dyn Engine>, HostError> {
        let threads = threads.unwrap_or(self.description.threads);
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (engine, threads);
        if let Some(engine) = engines.get(&key) {
            return Ok(engine.clone());
        }
        if threads == 0 || threads > MAX_THREADS {
            return Err(HostError::Request(format!("{threads} threads: expected 1 to {MAX_THREADS}")));
        }
        // The number of engines that a process can measure is limited.
        engines.retain(|_, engine| Arc::strong_count(engine) > 1);
        let failed = |cause| HostError::Engine { what: format!("device {}", self.description.name), cause };
        let engine = (self.create_engine)(engine, threads).map_err(failed)?;
        engines.insert(key, engine.clone());
        Ok(engine)
    }

    /// Waits up to 5 s for the device and leases it. Clients that are refused meanwhile are told `user`.
    ///
    /// # Errors
    /// If the device stays leased.
    pub async fn lease(self: &Arc<Device>, user: &'static str) -> Result<Lease, HostError> {
        let permit = tokio::time::timeout(LEASE_TIMEOUT, self.available.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let user = *self.user.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(HostError::Busy { device: self.description.name.clone(), user: user.to_string() });
        };
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = user;
        Ok(Lease { device: self.clone(), _permit: permit })
    }
}

impl Lease {
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Runs `job` on the device's thread. A panic, which only a bug in an engine can cause, becomes an error of the
    /// job; the thread survives.
    pub async fn run<T: Send + 'static>(
        &self,
        what: &str,
        job: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let (reply, result) = oneshot::channel();
        let name = what.to_string();
        let job: Job = Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(job))
                .unwrap_or_else(|panic| Err(HostError::Panic { what: name, message: message(&*panic) }));
            // Fails if the client has disconnected and dropped the receiver.
            let _ = reply.send(outcome);
        });
        let lost = || HostError::Request(format!("the thread of device {} has ended", self.device.description.name));
        self.device.jobs.send(job).map_err(|_| lost())?;
        result.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
}
