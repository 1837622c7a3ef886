//! A device of this server: one thread that computes, one job at a time.
//!
//! A run or a profile leases the device, so that no other client disturbs its measurements; the lease ends when it is
//! dropped. Clients that wait get it in the order in which they came. Plans that stay loaded and are not measured share
//! the device: each has a thread of its own, and [`Device::turn`] lets one of them compute at a time.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{device_user::DeviceUser, error::HostError, logged_engine::LoggedEngine, measurement_lock::Sharing};
use crate::{DeviceDescription, protocol::run::Queued, work_log::DeviceLog};
use edgecut_engine::{Engine, EngineChoice, EngineError, release_freed};
use edgecut_graph::units::Bytes;
use edgecut_profile::MeteredDevice;

/// How many shared leases a device has at most.
const SHARES: u32 = 64;

/// Creates an engine, the device's own or the one that is asked for, with a number of threads.
pub(super) type EngineFactory = dyn Fn(Option<EngineChoice>, u32) -> Result<Arc<dyn Engine>, EngineError> + Send + Sync;

/// What a client may ask for: an engine, a number of threads.
type EngineKey = (Option<EngineChoice>, u32);

/// A device and its thread.
pub(super) struct Device {
    description: DeviceDescription,
    energy: Option<MeteredDevice>,
    create_engine: Box<EngineFactory>,
    /// Engines in use, by what was asked for.
    engines: Mutex<HashMap<EngineKey, Arc<dyn Engine>>>,
    jobs: mpsc::Sender<Job>,
    /// A shared lease takes one permit of [`SHARES`], an exclusive one all.
    available: Arc<Semaphore>,
    /// Held while a stage of a shared lease is computed.
    turn: Mutex<()>,
    /// The memory that the leases have reserved.
    reserved: Mutex<Bytes>,
    /// How many clients wait.
    waiting: Arc<AtomicU32>,
    /// The current or last lease, for messages.
    user: Mutex<String>,
    /// Why it cannot be used any longer.
    lost: Arc<OnceLock<String>>,
    log: DeviceLog,
}

type Job = Box<dyn FnOnce() + Send>;

/// Use of a device, alone or shared, until dropped.
pub(super) struct Lease {
    device: Arc<Device>,
    /// The queue of the device's thread, or of this lease's own.
    jobs: mpsc::Sender<Job>,
    sharing: Sharing,
    held: Arc<Held>,
}

/// What a lease holds of a device; a shared one until its last job has ended, since no queue makes the next client wait for it.
struct Held {
    device: Arc<Device>,
    reserved: Mutex<Bytes>,
    permit: OwnedSemaphorePermit,
}

impl Device {
    /// Starts the device's thread, which ends when the device is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        description: DeviceDescription,
        energy: Option<MeteredDevice>,
        create_engine: Box<EngineFactory>,
        log: DeviceLog,
    ) -> std::io::Result<Arc<Device>> {
        let jobs = start_thread(&description.name)?;
        let (available, user) = (Arc::new(Semaphore::new(SHARES as usize)), Mutex::new(String::new()));
        let engines = Mutex::default();
        let waiting = Arc::default();
        Ok(Arc::new(Device {
            description,
            energy,
            create_engine,
            engines,
            jobs,
            available,
            turn: Mutex::default(),
            reserved: Mutex::default(),
            waiting,
            user,
            lost: Arc::default(),
            log,
        }))
    }

    pub fn description(&self) -> &DeviceDescription {
        &self.description
    }

    /// Its energy meter, if it has one.
    pub fn energy(&self) -> Option<&MeteredDevice> {
        self.energy.as_ref()
    }

    /// The engine with `threads` threads; by default the device's own of both.
    ///
    /// # Errors
    /// If the device offers fewer threads, or not this engine.
    pub fn engine(&self, engine: Option<EngineChoice>, threads: Option<u32>) -> Result<Arc<dyn Engine>, HostError> {
        let threads = threads.unwrap_or(self.description.threads);
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (engine, threads);
        if let Some(engine) = engines.get(&key) {
            return Ok(engine.clone());
        }
        let DeviceDescription { name, threads: offered, .. } = &self.description;
        if !(1..=*offered).contains(&threads) {
            return Err(HostError::Threads { device: name.clone(), threads, offered: *offered });
        }
        // The number of engines that a process can measure is limited.
        engines.retain(|_, engine| Arc::strong_count(engine) > 1);
        let failed = |cause| HostError::Engine { what: format!("device {}", self.description.name), cause };
        let engine = LoggedEngine::of((self.create_engine)(engine, threads).map_err(failed)?, &self.log);
        engines.insert(key, engine.clone());
        Ok(engine)
    }

    /// Leases the device, alone or with others that share it, after a wait of at most `wait`, and logs the lease. Clients
    /// that come meanwhile get `user` as the reason. If there is a wait, `queued` is called with the place in the queue.
    ///
    /// # Errors
    /// If the device stays leased, is lost, or no thread can be started.
    pub async fn lease(
        self: &Arc<Device>,
        user: DeviceUser,
        sharing: Sharing,
        wait: Duration,
        queued: impl AsyncFnOnce(Queued),
    ) -> Result<Lease, HostError> {
        let shares = if sharing == Sharing::Shared { 1 } else { SHARES };
        let permit = match self.available.clone().try_acquire_many_owned(shares) {
            Ok(permit) => permit,
            Err(_) => {
                let place = Waiting::begin(&self.waiting);
                // In the queue before the client is told.
                let waiting = async {
                    let permit = self.available.clone().acquire_many_owned(shares);
                    tokio::join!(biased; permit, queued(self.place(place.ahead))).0
                };
                match tokio::time::timeout(wait, waiting).await {
                    Ok(Ok(permit)) => permit,
                    _ => {
                        let Queued { device, user, .. } = self.place(0);
                        return Err(HostError::Busy { device, user });
                    }
                }
            }
        };
        if let Some(why) = self.lost() {
            return Err(HostError::Lost { device: self.description.name.clone(), why: why.to_string() });
        }
        user.log_lease(&self.description.name);
        let user = user.to_string();
        self.log.set_user(&user);
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = user;
        let name = &self.description.name;
        let no_thread = |error| HostError::Request(format!("no thread can be started for device {name}: {error}"));
        let jobs = match sharing {
            Sharing::Exclusive => self.jobs.clone(),
            Sharing::Shared => start_thread(name).map_err(no_thread)?,
        };
        let held = Held { device: self.clone(), reserved: Mutex::default(), permit };
        Ok(Lease { device: self.clone(), jobs, sharing, held: Arc::new(held) })
    }

    /// Why it cannot be used any longer, if so.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Whether a client has it.
    pub fn is_leased(&self) -> bool {
        self.available.available_permits() < SHARES as usize
    }

    /// Waits until no other stage is computed; others wait until the result is dropped.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        locked(&self.turn)
    }

    /// What its leases have left of its memory.
    pub fn free_memory(&self) -> Bytes {
        self.description.memory - *locked(&self.reserved)
    }

    /// What a client does with it, if one has it.
    pub fn user(&self) -> Option<String> {
        self.is_leased().then(|| self.user.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// How many clients wait for it.
    pub fn queue_length(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    fn place(&self, ahead: u32) -> Queued {
        let user = self.user.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Queued { device: self.description.name.clone(), user, ahead }
    }
}

/// A client that waits, until dropped.
struct Waiting {
    count: Arc<AtomicU32>,
    ahead: u32,
}

impl Waiting {
    fn begin(count: &Arc<AtomicU32>) -> Waiting {
        Waiting { ahead: count.fetch_add(1, Ordering::Relaxed), count: count.clone() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Reserves the memory that `admit` takes of what the leases have left, until this one ends. Returns what is left then.
    ///
    /// # Errors
    /// Those of `admit`.
    pub fn reserve(&self, admit: impl FnOnce(Bytes) -> Result<Bytes, HostError>) -> Result<Bytes, HostError> {
        let mut reserved = locked(&self.device.reserved);
        let free = self.device.description.memory - *reserved;
        let memory = admit(free)?;
        *reserved += memory;
        *locked(&self.held.reserved) += memory;
        Ok(free - memory)
    }

    /// Runs `job` on the device's thread, or the lease's own. A panic, which only a bug in an engine can cause, becomes an error of the
    /// job; the thread survives.
    pub async fn run<T: Send + 'static>(
        &self,
        what: &str,
        job: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let (reply, result) = oneshot::channel();
        let name = what.to_string();
        let is_lost = self.device.lost.clone();
        let held = (self.sharing == Sharing::Shared).then(|| self.held.clone());
        let job: Job = Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(job))
                .unwrap_or_else(|panic| Err(HostError::Panic { what: name, message: message(&*panic) }));
            // Here, since the client may be gone. The first reason is kept.
            if let Err(HostError::Engine { cause: EngineError::DeviceLost(why), .. }) = &outcome {
                let _ = is_lost.set(why.clone());
            }
            drop(held);
            // Fails if the client has disconnected and dropped the receiver.
            let _ = reply.send(outcome);
        });
        let lost = || HostError::Request(format!("the thread of device {} has ended", self.device.description.name));
        self.jobs.send(job).map_err(|_| lost())?;
        result.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Only the last lease of a device returns freed memory: this would delay jobs of other leases.
        if self.device.available.available_permits() + self.permit.num_permits() == SHARES as usize {
            release_freed();
        }
        let mut reserved = locked(&self.device.reserved);
        *reserved = *reserved - *locked(&self.reserved);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread for the jobs of device `name`; it ends with the last sender.
fn start_thread(name: &str) -> std::io::Result<mpsc::Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let compute = move || queue.into_iter().for_each(|job| job());
    thread::Builder::new().name(format!("device-{name}")).spawn(compute).map(|_| jobs)
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{DeviceKind, EnergyMetering};
    use edgecut_graph::units::Bytes;

    /// A device without an engine, with this meter.
    pub fn device(kind: DeviceKind, meter: Option<MeteredDevice>) -> Arc<Device> {
        let description = DeviceDescription {
            name: "d0".into(),
            kind,
            model: String::new(),
            engine: edgecut_engine::EngineId::default(),
            engines: Vec::new(),
            threads: 1,
            memory: Bytes(1),
            host_link: None,
            energy: EnergyMetering::Absent(String::new()),
        };
        let no_engine = Box::new(|_, _| Err(EngineError::Other("none".to_string())));
        Device::start(description, meter, no_engine, DeviceLog::default()).unwrap()
    }

    #[tokio::test]
    async fn a_lost_device_is_not_leased() {
        let device = device(DeviceKind::Gpu, None);
        let lease =
            || device.lease(DeviceUser::new("test", None), Sharing::Exclusive, Duration::from_secs(1), async |_| {});
        let failing = |cause: fn(String) -> EngineError| async move {
            let failed =
                move || Err::<(), _>(HostError::Engine { what: "a step".to_string(), cause: cause("why".to_string()) });
            lease().await.unwrap().run("a step", failed).await.unwrap_err()
        };
        failing(EngineError::Other).await;
        assert!(device.lost().is_none() && lease().await.is_ok());
        let error = failing(EngineError::DeviceLost).await.to_string();
        assert!(error.contains("why; the device is lost"), "{error}");
        let refused = lease().await.err().unwrap().to_string();
        assert_eq!(refused, "device d0 is lost until the agent starts again: why");
    }

    #[tokio::test]
    async fn shared_leases_exclude_an_exclusive_one_and_divide_the_memory() {
        let device = device(DeviceKind::Cpu, None);
        let lease = |sharing| device.lease(DeviceUser::new("test", None), sharing, Duration::ZERO, async |_| {});
        let first = lease(Sharing::Shared).await.unwrap();
        first.reserve(|_| Ok(Bytes(1))).unwrap();
        let second = lease(Sharing::Shared).await.unwrap();
        assert!(device.is_leased() && device.free_memory() == Bytes::ZERO);
        // Each has a thread of its own: one job waits for the other.
        let (sender, receiver) = mpsc::channel();
        let waits = first.run("a job", move || receiver.recv().map_err(|error| HostError::Request(error.to_string())));
        let sends = second.run("a job", move || sender.send(()).map_err(|error| HostError::Request(error.to_string())));
        assert!(matches!(tokio::join!(waits, sends), (Ok(()), Ok(()))));
        assert!(matches!(lease(Sharing::Exclusive).await, Err(HostError::Busy { .. })));
        drop((first, second));
        let alone = lease(Sharing::Exclusive).await.unwrap();
        assert!(device.free_memory() == Bytes(1) && lease(Sharing::Shared).await.is_err());
        drop(alone);
        assert!(!device.is_leased());
    }
}
