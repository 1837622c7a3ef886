//! The agent itself, without any network: the devices of this server, the sessions that are loaded, and what it is
//! asked to do. The service puts it behind a socket; the embedded agent is called directly.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use smol_str::SmolStr;

use super::{
    clock::Clock, describe::Machine, device::Device, error::HostError, security::Identity, session::Session,
    shutdown::Shutdown,
};
use crate::{
    cluster::{Description, DeviceDescription, DeviceKind, HostLink, LinkCost},
    engine::{CpuEngine, Engine, EngineError, Started, StartedGpu, start_gpus},
    units::{Bytes, Micros},
};

/// How an agent is started.
#[derive(Debug, Default)]
pub struct HostOptions {
    pub name: SmolStr,
    /// Threads to compute with; all that the process may use if not given.
    pub threads: Option<u32>,
    /// What a partition may take of main memory; all that the machine has if not given.
    pub memory: Option<Bytes>,
    /// What to prove oneself with to other agents.
    pub identity: Option<Identity>,
}

/// One server's agent.
pub struct Host {
    name: SmolStr,
    pub(super) identity: Option<Identity>,
    devices: Vec<Arc<Device>>,
    /// What a person should know of the devices.
    notes: Vec<String>,
    clock: Clock,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    shutdown: Shutdown,
}

impl Host {
    /// Looks at the machine and starts a thread for each of its devices.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(options: HostOptions, shutdown: Shutdown) -> std::io::Result<Arc<Host>> {
        let machine = Machine::examine();
        let cpu = DeviceDescription {
            name: SmolStr::new_static("cpu"),
            kind: DeviceKind::Cpu,
            model: machine.cpu.model.clone(),
            engine: CpuEngine::identity().to_string(),
            threads: options.threads.unwrap_or(machine.cpu.threads).max(1),
            memory: options.memory.unwrap_or(machine.memory_total),
            host_link: None,
        };
        let cpu_engine = |threads: u32| Ok(Arc::new(CpuEngine::new(threads as usize)?) as Arc<dyn Engine>);
        let mut devices = vec![Device::start(cpu, Box::new(cpu_engine))?];
        let Started { gpus, notes } = start_gpus();
        for (number, gpu) in gpus.into_iter().enumerate() {
            devices.push(graphics(number, gpu)?);
        }
        Ok(Arc::new(Host {
            name: options.name,
            identity: options.identity,
            devices,
            notes,
            clock: Clock::start(),
            sessions: Mutex::default(),
            shutdown,
        }))
    }

    pub fn name(&self) -> &SmolStr {
        &self.name
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    pub fn describe(&self) -> Description {
        let machine = Machine::examine();
        Description {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            system: machine.system,
            cpu: machine.cpu,
            memory_total: machine.memory_total,
            memory_available: machine.memory_available,
            devices: self.devices.iter().map(|device| device.description().clone()).collect(),
            notes: self.notes.clone(),
        }
    }

    /// # Errors
    /// If this server has no device of that name; the message lists those it has.
    pub fn device(&self, name: &str) -> Result<&Arc<Device>, HostError> {
        let found = self.devices.iter().find(|device| device.description().name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.devices.iter().map(|device| device.description().name.as_str()).collect();
            HostError::NoDevice { device: name.into(), known: known.join(", ") }
        })
    }

    /// The session called `id`, for a peer that sends to it.
    pub fn session(&self, id: &str) -> Result<Arc<Session>, HostError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(id).cloned().ok_or_else(|| HostError::Request(format!("there is no session {id} here")))
    }

    pub(super) fn add_session(&self, session: &Arc<Session>) -> Result<(), HostError> {
        let id = session.setup.session.clone();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.contains_key(&id) {
            return Err(HostError::Request(format!("session {id} is there already")));
        }
        sessions.insert(id, session.clone());
        Ok(())
    }

    pub(super) fn remove_session(&self, session: &Session) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.setup.session);
    }
}

/// Starts the thread of GPU number `number`, whose engine runs already. It computes with all of the card.
fn graphics(number: usize, gpu: StartedGpu) -> std::io::Result<Arc<Device>> {
    let StartedGpu { gpu, engine, free, to_card, from_card } = gpu;
    let link = LinkCost::fit(&to_card).ok().zip(LinkCost::fit(&from_card).ok());
    let multiprocessors = engine.threads() as u32;
    let description = DeviceDescription {
        name: SmolStr::new(format!("gpu{number}")),
        kind: DeviceKind::Gpu,
        model: gpu.description(),
        engine: engine.id().to_string(),
        threads: multiprocessors,
        memory: free,
        host_link: link.map(|(to_device, from_device)| HostLink { to_device, from_device }),
    };
    let same = move |threads: u32| match threads == multiprocessors {
        true => Ok(Arc::clone(&engine)),
        false => Err(EngineError::Other(format!("a GPU computes with all of its {multiprocessors} multiprocessors"))),
    };
    Device::start(description, Box::new(same))
}
