//! The agent without the network: this server's devices and the loaded sessions. The gRPC service calls it for remote
//! clients; an embedded agent is called directly.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use smol_str::SmolStr;

use super::{
    client_id::ClientId,
    concurrency_limit::{ConcurrencyLimit, Permit},
    device::Device,
    error::HostError,
    machine::Machine,
    metrics::{AgentState, DeviceState, Metrics},
    received::{DOCUMENT_ROOM, ReceivedBytes},
    session::Session,
    shared_memory::SharedMemory,
    weight_store::WeightStore,
};
use crate::{
    Description, DeviceDescription, DeviceKind, EnergyMetering, HostLink,
    clock::Clock,
    limits::{Limits, MAX_TIME},
    log_queue::LogQueue,
    protocol::Identity,
    shutdown::Shutdown,
    work_log::{DeviceLog, WorkLog},
};
use edgecut_engine::{
    DilatedEngine, Dilation, Engine, EngineChoice, EngineError, EngineId, EngineOptions, StartedGpu, StartedGpus,
    energy::{EnergyMeter, NoEnergySource},
    start_gpus,
};
use edgecut_graph::{
    LinkCost,
    units::{Bytes, Micros},
};
use edgecut_profile::MeteredDevice;

/// Options for starting an agent.
#[derive(Debug, Default)]
pub struct HostOptions {
    pub name: SmolStr,
    /// Number of compute threads; by default all that the process may use.
    pub threads: Option<u32>,
    /// Limit on the main memory of a partition; by default all of the machine's.
    pub memory: Option<Bytes>,
    /// The engine of the CPU, unless a client asks for another.
    pub engine: EngineOptions,
    /// Slows down the processor, for tests; then GPUs are not used.
    pub dilation: Option<Dilation>,
    pub gpus: OfferedGpus,
    /// Certificates for connections to other agents.
    pub identity: Option<Identity>,
    /// What clients can make it do at most.
    pub limits: Limits,
    /// Where it notes what is computed.
    pub log: WorkLog,
    /// Where its process logs; by default nowhere that loses lines.
    pub log_queue: Option<LogQueue>,
    /// What the process before this one computed when it was killed, and how.
    pub crash: Option<String>,
}

/// Which GPUs of its machine an agent offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OfferedGpus {
    /// Those that an engine can be started on.
    #[default]
    Usable,
    /// None, as in tests whose devices are the same on every machine.
    None,
}

/// The name of a server's processor.
const CPU: &str = "cpu";

/// Why a dilated agent offers its processor alone.
const NO_DILATED_GPU: &str = "no GPU: time dilation slows down the processor alone";

/// Why a dilated agent tells no energy.
const NO_DILATED_ENERGY: &str = "time dilation lengthens times, and this machine's power is not the slow device's";

/// One server's agent.
pub struct Host {
    name: SmolStr,
    identity: Option<Identity>,
    /// The processor is the first.
    devices: Vec<Arc<Device>>,
    processor: Arc<Device>,
    /// Whether the processor is slowed down, so that other agents compute on the same cores meanwhile.
    is_dilated: bool,
    /// Notes for the user about the devices, such as why there is no GPU.
    notes: Vec<String>,
    clock: Clock,
    limits: Arc<Limits>,
    jobs: Arc<ConcurrencyLimit>,
    received: Arc<ReceivedBytes>,
    weights: Arc<WeightStore>,
    /// For values of runs in no device's memory.
    shared_memory: Arc<SharedMemory>,
    metrics: Arc<Metrics>,
    log_queue: Option<LogQueue>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    crash: Option<String>,
    shutdown: Shutdown,
}

impl Host {
    /// Detects the machine's devices and starts a thread for each.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(options: HostOptions, shutdown: Shutdown) -> std::io::Result<Arc<Host>> {
        let machine = Machine::detect();
        let (engines, absent) = engines(&options.engine);
        let engine = options.engine.identity().map_err(std::io::Error::other)?;
        let (energy, meter) = match options.dilation {
            Some(_) => (EnergyMetering::Absent(NO_DILATED_ENERGY.to_string()), None),
            None => metering(EnergyMeter::of_processor()),
        };
        let cpu = DeviceDescription {
            name: SmolStr::new_static(CPU),
            kind: DeviceKind::Cpu,
            model: hardware(machine.cpu.model, options.dilation),
            engine,
            engines,
            threads: options.threads.unwrap_or(machine.cpu.threads).max(1),
            memory: options.memory.unwrap_or(machine.memory_total),
            host_link: None,
            energy,
        };
        let (own, dilation) = (options.engine, options.dilation);
        let cpu_engine = move |engine: Option<EngineChoice>, threads: u32| {
            let started = own.with(engine).start(threads as usize)?;
            Ok(match dilation {
                Some(dilation) => Arc::new(DilatedEngine::new(started, dilation)) as Arc<dyn Engine>,
                None => started,
            })
        };
        let memory = cpu.memory;
        let processor = Device::start(cpu, meter, Box::new(cpu_engine), options.log.of_device(0))?;
        let mut devices = vec![processor.clone()];
        let StartedGpus { gpus, mut notes } = match (dilation, options.gpus) {
            (Some(_), _) => StartedGpus { notes: vec![NO_DILATED_GPU.to_string()], ..StartedGpus::default() },
            (None, OfferedGpus::Usable) => start_gpus(),
            (None, OfferedGpus::None) => StartedGpus::default(),
        };
        notes.extend(absent);
        for (number, gpu) in gpus.into_iter().enumerate() {
            devices.push(gpu_device(number, gpu, options.log.of_device(devices.len()))?);
        }
        let (metrics, limits) = (Metrics::new(), &options.limits);
        let (time, received) = (limits.weights_time, metrics.weights_received.clone());
        let weights = WeightStore::new(limits.weights, Bytes(memory.0 / 4), time, received);
        Ok(Arc::new(Host {
            name: options.name,
            identity: options.identity,
            devices,
            processor,
            is_dilated: dilation.is_some(),
            notes,
            clock: Clock::start(),
            received: ReceivedBytes::within(memory + DOCUMENT_ROOM),
            weights,
            shared_memory: Arc::new(SharedMemory::within(memory)),
            jobs: ConcurrencyLimit::new(options.limits.jobs, options.limits.client_jobs),
            limits: Arc::new(options.limits),
            metrics: Arc::new(metrics),
            log_queue: options.log_queue,
            sessions: Mutex::default(),
            crash: options.crash,
            shutdown,
        }))
    }

    pub fn name(&self) -> &SmolStr {
        &self.name
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Time on this agent's clock.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    pub(super) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Another run, profile or measurement of a link of a client.
    ///
    /// # Errors
    /// If there are as many as there may be, or the agent is to stop.
    pub(super) fn begin_job(&self, client_id: ClientId) -> Result<Permit, HostError> {
        if self.shutdown.is_draining() {
            return Err(HostError::ShuttingDown);
        }
        let permit = self.jobs.begin(client_id)?;
        // Who drains looks at the permits: one that came after it looked is given back.
        match self.shutdown.is_draining() {
            true => Err(HostError::ShuttingDown),
            false => Ok(permit),
        }
    }

    /// What is served at the same time.
    pub(super) fn jobs(&self) -> &Arc<ConcurrencyLimit> {
        &self.jobs
    }

    /// What clients have sent, as far as this agent still has it.
    pub(super) fn shared_memory(&self) -> &Arc<SharedMemory> {
        &self.shared_memory
    }

    /// The weights that clients have sent before.
    pub(super) fn weights(&self) -> &Arc<WeightStore> {
        &self.weights
    }

    pub(super) fn received(&self) -> &Arc<ReceivedBytes> {
        &self.received
    }

    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub(super) fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// What it holds at this moment.
    pub(super) fn state(&self) -> AgentState {
        let mut held = HashMap::new();
        for session in self.sessions.lock().unwrap_or_else(PoisonError::into_inner).values() {
            session.add_held(&mut held);
        }
        let device = |device: &Arc<Device>| DeviceState {
            name: device.description().name.clone(),
            is_leased: device.is_leased(),
            queue_length: device.queue_length(),
            memory: held.get(&device.description().name).copied().unwrap_or_default(),
            memory_limit: device.description().memory,
        };
        AgentState {
            jobs: self.jobs.held(),
            is_draining: self.shutdown.is_draining(),
            pending: self.received.held(),
            weights: self.weights.bytes(),
            lost_lines: self.log_queue.as_ref().map_or(0, LogQueue::lost),
            devices: self.devices.iter().map(device).collect(),
        }
    }

    pub(super) fn is_dilated(&self) -> bool {
        self.is_dilated
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// The machine and its devices, with the memory that is available at this moment.
    pub fn describe(&self) -> Description {
        let machine = Machine::detect();
        let left = || self.devices.iter().filter(|device| device.lost().is_none());
        let lost = self.devices.iter().filter_map(|device| {
            let why = device.lost()?;
            Some(format!("{} is lost until the agent starts again: {why}", device.description().name))
        });
        let stopping = self.shutdown.is_draining().then(|| "it is to stop, and takes no new work".to_string());
        let crash = self.crash.iter().map(|crash| format!("its process was {crash}; it has restarted"));
        let used = left().filter_map(|device| {
            let (name, user) = (&device.description().name, device.user()?);
            let waiting = match device.queue_length() {
                0 => String::new(),
                1 => ", and one client waits".to_string(),
                more => format!(", and {more} clients wait"),
            };
            Some(format!("{name} is in use by {user}{waiting}"))
        });
        Description {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            system: machine.system,
            cpu: machine.cpu,
            memory_total: machine.memory_total,
            memory_available: machine.memory_available,
            devices: left().map(|device| device.description().clone()).collect(),
            notes: self.notes.iter().cloned().chain(lost).chain(crash).chain(used).chain(stopping).collect(),
            crash: self.crash.clone(),
        }
    }

    /// The device called `name`.
    ///
    /// # Errors
    /// If this server has no such device; the message lists those it has.
    pub(super) fn device(&self, name: &str) -> Result<&Arc<Device>, HostError> {
        let found = self.devices.iter().find(|device| device.description().name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.devices.iter().map(|device| device.description().name.as_str()).collect();
            HostError::NoDevice { device: name.into(), known: known.join(", ") }
        })
    }

    /// How long a client waits for devices that asks for `asked`.
    pub(super) fn lease_wait(&self, asked: Option<Micros>) -> Duration {
        let asked = asked.and_then(Micros::to_duration);
        asked.unwrap_or(self.limits.lease_wait).min(MAX_TIME)
    }

    /// The processor, which also sends and receives.
    pub(super) fn processor(&self) -> &Arc<Device> {
        &self.processor
    }

    /// The session with this id, for a peer that sends values to it.
    ///
    /// # Errors
    /// If it is not loaded here.
    pub(super) fn session(&self, id: &str) -> Result<Arc<Session>, HostError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(id).cloned().ok_or_else(|| HostError::Request(format!("session {id} is not loaded here")))
    }

    /// Registers a session.
    ///
    /// # Errors
    /// If a session with the same id is loaded.
    pub(super) fn add_session(&self, session: &Arc<Session>) -> Result<(), HostError> {
        let id = session.setup.session.clone();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.contains_key(&id) {
            return Err(HostError::Request(format!("session {id} is already loaded")));
        }
        sessions.insert(id, session.clone());
        Ok(())
    }

    pub(super) fn remove_session(&self, session: &Session) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.setup.session);
    }
}

/// The processor as profiles and plans identify it: its `model`, and the dilation, so that its times are kept apart.
fn hardware(model: String, dilation: Option<Dilation>) -> String {
    dilation.map_or(model.clone(), |dilation| format!("{model}, {dilation}"))
}

/// A meter for profiles and what is told of it.
fn metering(found: Result<EnergyMeter, NoEnergySource>) -> (EnergyMetering, Option<MeteredDevice>) {
    match found {
        Ok(meter) => (EnergyMetering::Source(meter.to_string()), Some(MeteredDevice::new(meter))),
        Err(absent) => (EnergyMetering::Absent(absent.to_string()), None),
    }
}

/// The engines that a CPU has, and a note if ONNX Runtime is not among them.
/// Only what `own` asks for is looked for.
fn engines(own: &EngineOptions) -> (Vec<EngineId>, Option<String>) {
    if !own.look_for_all && own.engine == EngineChoice::Tract {
        return (Vec::new(), None);
    }
    match own.onnx_runtime_identity() {
        Ok(_) => {
            let choices = [EngineChoice::Tract, EngineChoice::OnnxRuntime, EngineChoice::Auto];
            let identities = choices.into_iter().filter_map(|engine| own.with(Some(engine)).identity().ok());
            (identities.collect(), None)
        }
        Err(error) => (Vec::new(), Some(error.to_string())),
    }
}

/// Starts the thread of a GPU, whose engine is running. A GPU always computes with all of its multiprocessors.
fn gpu_device(number: usize, gpu: StartedGpu, log: DeviceLog) -> std::io::Result<Arc<Device>> {
    let StartedGpu { gpu, engine, free, to_device, from_device, energy } = gpu;
    let (energy, meter) = metering(energy);
    let link = LinkCost::fit(&to_device).ok().zip(LinkCost::fit(&from_device).ok());
    let multiprocessors = engine.threads() as u32;
    let description = DeviceDescription {
        name: SmolStr::new(format!("gpu{number}")),
        kind: DeviceKind::Gpu,
        model: gpu.description(),
        engine: engine.id(),
        engines: Vec::new(),
        threads: multiprocessors,
        memory: free,
        host_link: link.map(|(to_device, from_device)| HostLink { to_device, from_device }),
        energy,
    };
    let create = move |_: Option<EngineChoice>, threads: u32| match threads == multiprocessors {
        true => Ok(Arc::clone(&engine)),
        false => Err(EngineError::Other(format!("a GPU computes with all of its {multiprocessors} multiprocessors"))),
    };
    Device::start(description, meter, Box::new(create), log)
}
