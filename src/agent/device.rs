//! A device of this server: one thread that computes, one piece of work at a time.
//!
//! Whoever wants to compute leases the device first, so that no measurement is disturbed by another client;
//! the lease ends when it is dropped.

use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::error::HostError;
use crate::{
    cluster::{DeviceDescription, MOST_THREADS},
    engine::{Engine, EngineError},
};

/// How long a client waits for the one before it to leave.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes an engine that computes with a number of threads.
pub type EngineFactory = dyn Fn(u32) -> Result<Arc<dyn Engine>, EngineError> + Send + Sync;

/// What executes operators on this server, and its thread.
pub struct Device {
    description: DeviceDescription,
    make_engine: Box<EngineFactory>,
    /// The engines made so far, by number of threads.
    engines: Mutex<BTreeMap<u32, Arc<dyn Engine>>>,
    jobs: mpsc::Sender<Job>,
    free: Arc<Semaphore>,
    user: Mutex<String>,
}

type Job = Box<dyn FnOnce() + Send>;

/// The right to use a device, until dropped.
pub struct Lease {
    device: Arc<Device>,
    _permit: OwnedSemaphorePermit,
}

impl Device {
    /// Starts the device's thread, which ends when the device is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(description: DeviceDescription, make_engine: Box<EngineFactory>) -> std::io::Result<Arc<Device>> {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name(format!("device-{}", description.name))
            .spawn(move || queue.into_iter().for_each(|job| job()))?;
        let (free, user) = (Arc::new(Semaphore::new(1)), Mutex::new(String::new()));
        let engines = Mutex::default();
        Ok(Arc::new(Device { description, make_engine, engines, jobs, free, user }))
    }

    pub fn description(&self) -> &DeviceDescription {
        &self.description
    }

    /// The device's engine with `threads` threads, or with the device's own number.
    pub fn engine(&self, threads: Option<u32>) -> Result<Arc<dyn Engine>, HostError> {
        let threads = threads.unwrap_or(self.description.threads);
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = engines.get(&threads) {
            return Ok(engine.clone());
        }
        if threads == 0 || threads > MOST_THREADS {
            return Err(HostError::Request(format!("{threads} threads: expected 1 to {MOST_THREADS}")));
        }
        // A process can measure so many engines only.
        engines.retain(|_, engine| Arc::strong_count(engine) > 1);
        let failed = |cause| HostError::Engine { what: format!("device {}", self.description.name), cause };
        let engine = (self.make_engine)(threads).map_err(failed)?;
        engines.insert(threads, engine.clone());
        Ok(engine)
    }

    /// Waits a little for the device to be free, then takes it for `user`, who is named to those refused meanwhile.
    ///
    /// # Errors
    /// If somebody else keeps it.
    pub async fn lease(self: &Arc<Device>, user: String) -> Result<Lease, HostError> {
        let permit = tokio::time::timeout(PATIENCE, self.free.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let with = self.user.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Err(HostError::Busy { device: self.description.name.clone(), with });
        };
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = user;
        Ok(Lease { device: self.clone(), _permit: permit })
    }
}

impl Lease {
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Runs `job` on the device's thread. A panic in it, which only an engine's own fault can cause, is an error of
    /// the job and leaves the thread alive.
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
            // Nobody waits any more if the client is gone; the work was for it alone.
            let _ = reply.send(outcome);
        });
        let lost = || HostError::Request(format!("the thread of device {} has ended", self.device.description.name));
        self.device.jobs.send(job).map_err(|_| lost())?;
        result.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
}
