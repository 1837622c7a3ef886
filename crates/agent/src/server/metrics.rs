//! What an agent counts and holds, in the text format of OpenMetrics, which Prometheus scrapes.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use smol_str::SmolStr;
use sysinfo::{Components, CpuRefreshKind, RefreshKind, System};

use edgecut_graph::units::Bytes;

/// The metrics of one agent.
pub(super) struct Metrics {
    registry: Registry,
    jobs: Family<JobLabels, Counter>,
    /// Inferences of which this agent's part is complete.
    pub inferences: Counter,
    pub stages: Family<DeviceLabels, Counter>,
    pub sent: Counter,
    pub received: Counter,
    /// Large constants from clients.
    pub weights_received: Counter,
    gauges: Gauges,
    /// One scrape at a time.
    scrape: Mutex<()>,
}

/// What an agent holds at a moment.
pub(super) struct AgentState {
    /// Runs, profiles and measurements of links.
    pub jobs: usize,
    pub is_draining: bool,
    /// What clients have sent and no engine has yet.
    pub pending: Bytes,
    /// What is held of clients' weights between their calls.
    pub weights: Bytes,
    /// Lines of the log that could not be written.
    pub lost_lines: u64,
    pub devices: Vec<DeviceState>,
}

/// The same of one device.
pub(super) struct DeviceState {
    pub name: SmolStr,
    pub is_leased: bool,
    pub queue_length: u32,
    pub memory: Bytes,
    pub memory_limit: Bytes,
}

/// What is looked up when it is asked for.
#[derive(Default)]
struct Gauges {
    running: Gauge,
    leased: Family<DeviceLabels, Gauge>,
    queue: Family<DeviceLabels, Gauge>,
    memory: Family<DeviceLabels, Gauge>,
    memory_limit: Family<DeviceLabels, Gauge>,
    pending: Gauge,
    weights: Gauge,
    lost_lines: Counter,
    is_draining: Gauge,
    resident: Gauge,
    threads: Gauge,
    descriptors: Gauge,
    temperature: Family<SensorLabels, Gauge<f64, AtomicU64>>,
    frequency: Family<CpuLabels, Gauge>,
}

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum JobKind {
    Run,
    Profile,
    Link,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum JobOutcome {
    Done,
    Failed,
    /// The client was gone.
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    kind: JobKind,
    outcome: JobOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DeviceLabels {
    device: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SensorLabels {
    sensor: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CpuLabels {
    cpu: u32,
}

impl DeviceLabels {
    pub fn of(device: &str) -> DeviceLabels {
        DeviceLabels { device: device.to_string() }
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let (jobs, stages) = (Family::default(), Family::default());
        let (inferences, sent, received) = (Counter::default(), Counter::default(), Counter::default());
        let own = registry.sub_registry_with_prefix("edgecut");
        own.register("jobs", "Runs, profiles and measurements of links that have ended", jobs.clone());
        own.register("inferences", "Inferences of which this agent's part is complete", inferences.clone());
        own.register("stages", "Stages that a device has computed", stages.clone());
        own.register_with_unit("sent", "Contents of tensors sent to other agents", Unit::Bytes, sent.clone());
        own.register_with_unit("received", "Contents of tensors from other agents", Unit::Bytes, received.clone());
        let weights_received = Counter::default();
        let help = "Weights received from clients";
        own.register_with_unit("weights_received", help, Unit::Bytes, weights_received.clone());
        let gauges = Gauges::default();
        gauges.register(&mut registry);
        Metrics { registry, jobs, inferences, stages, sent, received, weights_received, gauges, scrape: Mutex::new(()) }
    }

    /// Counts a job that has ended.
    pub fn count_job(&self, kind: JobKind, outcome: JobOutcome) {
        self.jobs.get_or_create(&JobLabels { kind, outcome }).inc();
    }

    /// All metrics of an agent in this state, as text.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn scrape(&self, state: &AgentState) -> Result<String, fmt::Error> {
        let _one = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.gauges.update(state);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Gauges {
    fn register(&self, registry: &mut Registry) {
        let process = registry.sub_registry_with_prefix("process");
        process.register_with_unit("resident_memory", "Resident memory", Unit::Bytes, self.resident.clone());
        process.register("threads", "Threads", self.threads.clone());
        process.register("open_fds", "Open file descriptors", self.descriptors.clone());
        let own = registry.sub_registry_with_prefix("edgecut");
        own.register("jobs_running", "Jobs under way, those that wait for a device among them", self.running.clone());
        own.register("log_lines_lost", "Lines of the log that could not be written", self.lost_lines.clone());
        own.register("draining", "1 once the agent is to stop", self.is_draining.clone());
        own.register("device_leased", "1 while a client has the device", self.leased.clone());
        own.register("device_queue_length", "Clients that wait for the device", self.queue.clone());
        let help = "Parameters and live tensors of loaded plans";
        own.register_with_unit("device_memory", help, Unit::Bytes, self.memory.clone());
        let help = "Limit on parameters, activations and workspace";
        own.register_with_unit("device_memory_limit", help, Unit::Bytes, self.memory_limit.clone());
        let help = "What clients have sent and no engine has yet";
        own.register_with_unit("pending", help, Unit::Bytes, self.pending.clone());
        let help = "Weights of clients in the cache";
        own.register_with_unit("weights", help, Unit::Bytes, self.weights.clone());
        own.register_with_unit("temperature", "Sensors", Unit::Celsius, self.temperature.clone());
        own.register("cpu_frequency_hertz", "Frequency of a logical processor", self.frequency.clone());
    }

    fn update(&self, state: &AgentState) {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.running.set(count(state.jobs as u64));
        self.is_draining.set(i64::from(state.is_draining));
        self.pending.set(count(state.pending.0));
        self.weights.set(count(state.weights.0));
        self.lost_lines.inner().store(state.lost_lines, Ordering::Relaxed);
        for device in &state.devices {
            let labels = DeviceLabels::of(&device.name);
            self.leased.get_or_create(&labels).set(i64::from(device.is_leased));
            self.queue.get_or_create(&labels).set(i64::from(device.queue_length));
            self.memory.get_or_create(&labels).set(count(device.memory.0));
            self.memory_limit.get_or_create(&labels).set(count(device.memory_limit.0));
        }
        if let Some(process) = Process::of_this() {
            self.resident.set(count(process.resident_bytes));
            self.threads.set(count(process.threads));
            self.descriptors.set(count(process.descriptors));
        }
        for component in Components::new_with_refreshed_list().iter().flat_map(|all| all.iter()) {
            let Some(temperature) = component.temperature().filter(|degrees| degrees.is_finite()) else { continue };
            let labels = SensorLabels { sensor: component.label().to_string() };
            self.temperature.get_or_create(&labels).set(f64::from(temperature));
        }
        let kind = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing().with_frequency());
        for (cpu, state) in (0u32..).zip(System::new_with_specifics(kind).iter().flat_map(System::cpus)) {
            self.frequency.get_or_create(&CpuLabels { cpu }).set(count(state.frequency().saturating_mul(1_000_000)));
        }
    }
}

/// What the system tells of this process.
struct Process {
    resident_bytes: u64,
    threads: u64,
    descriptors: u64,
}

impl Process {
    #[cfg(target_os = "linux")]
    fn of_this() -> Option<Process> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Some(Process { resident_bytes: field("VmRSS:")? << 10, threads: field("Threads:")?, descriptors })
    }

    /// Other systems have no such files.
    #[cfg(not(target_os = "linux"))]
    fn of_this() -> Option<Process> {
        None
    }
}
