//! Generated from `proto/edgecut.proto`: messages, client and server; and conversions to this crate's types.

use super::{inference_trace, peer};
use crate as cluster;
use crate::{
    CpuDescription, Description, DeviceDescription, DeviceKind, EnergyMetering, HostLink, printable::printable,
};
use edgecut_graph::{
    EngineId,
    units::{Bytes, Micros, Rate},
};
use edgecut_plan::TransferFormat;

tonic::include_proto!("edgecut.v1");

/// The protocol version. Incremented with every change of a message or of a document in it, which those of one version before
/// must still understand: so agents are upgraded one after the other.
pub const PROTOCOL: u32 = 11;

/// The first version with the phases of a decoder.
pub const PHASES: u32 = 11;

/// Whether a client of this version and an agent of version `found` understand each other: at most one step apart.
pub fn is_compatible(found: u32) -> bool {
    found.abs_diff(PROTOCOL) <= 1
}

impl From<Description> for DescribeReply {
    fn from(from: Description) -> DescribeReply {
        let device = |device: DeviceDescription| Device {
            name: device.name.to_string(),
            kind: match device.kind {
                DeviceKind::Cpu => device::Kind::Cpu as i32,
                DeviceKind::Gpu => device::Kind::Gpu as i32,
            },
            model: device.model,
            engine: device.engine.to_string(),
            engines: device.engines.iter().map(EngineId::to_string).collect(),
            threads: device.threads,
            memory_bytes: device.memory.0,
            from_host: device.host_link.map(|link| link.to_device.into()),
            to_host: device.host_link.map(|link| link.from_device.into()),
            energy_source: device.energy.source().map(str::to_string),
            energy_absent: device.energy.absent().map(str::to_string),
        };
        let cache = |cache: cluster::Cache| Cache { name: cache.name.to_string(), size_bytes: cache.size.0 };
        DescribeReply {
            protocol: PROTOCOL,
            name: from.name.to_string(),
            version: from.version,
            system: from.system,
            cpu: Some(Cpu {
                model: from.cpu.model,
                cores: from.cpu.cores,
                threads: from.cpu.threads,
                architecture: from.cpu.architecture,
                caches: from.cpu.caches.into_iter().map(cache).collect(),
            }),
            memory_total_bytes: from.memory_total.0,
            memory_available_bytes: from.memory_available.0,
            devices: from.devices.into_iter().map(device).collect(),
            notes: from.notes,
            crash: from.crash.unwrap_or_default(),
        }
    }
}

impl From<edgecut_graph::LinkCost> for LinkCost {
    fn from(from: edgecut_graph::LinkCost) -> LinkCost {
        LinkCost { latency_us: from.latency.0, bytes_per_us: from.rate.0 }
    }
}

/// The cost of a link from a message, if its values are valid.
fn link_cost(from: LinkCost) -> Option<edgecut_graph::LinkCost> {
    let sound = from.latency_us.is_finite() && from.latency_us >= 0.0;
    let sound = sound && from.bytes_per_us.is_finite() && from.bytes_per_us > 0.0;
    sound.then_some(edgecut_graph::LinkCost { latency: Micros(from.latency_us), rate: Rate(from.bytes_per_us) })
}

/// A text of another program, as it is printed.
pub(crate) fn text(from: String) -> String {
    printable(&from).into_owned()
}

impl From<DescribeReply> for Description {
    fn from(from: DescribeReply) -> Description {
        let device = |device: Device| DeviceDescription {
            kind: match device.kind() {
                device::Kind::Gpu => DeviceKind::Gpu,
                device::Kind::Cpu | device::Kind::Unspecified => DeviceKind::Cpu,
            },
            name: text(device.name).into(),
            model: text(device.model),
            engine: text(device.engine).into(),
            engines: device.engines.into_iter().map(|engine| text(engine).into()).collect(),
            threads: device.threads,
            memory: Bytes(device.memory_bytes),
            host_link: device
                .from_host
                .and_then(link_cost)
                .zip(device.to_host.and_then(link_cost))
                .map(|(to_device, from_device)| HostLink { to_device, from_device }),
            energy: match (device.energy_source, device.energy_absent) {
                (Some(source), _) => EnergyMetering::Source(text(source)),
                (None, Some(why)) => EnergyMetering::Absent(text(why)),
                (None, None) => EnergyMetering::Unknown,
            },
        };
        let cache = |cache: Cache| cluster::Cache { name: text(cache.name).into(), size: Bytes(cache.size_bytes) };
        let cpu = from.cpu.unwrap_or_default();
        Description {
            name: text(from.name).into(),
            version: text(from.version),
            system: text(from.system),
            cpu: CpuDescription {
                model: text(cpu.model),
                cores: cpu.cores,
                threads: cpu.threads,
                architecture: text(cpu.architecture),
                caches: cpu.caches.into_iter().map(cache).collect(),
            },
            memory_total: Bytes(from.memory_total_bytes),
            memory_available: Bytes(from.memory_available_bytes),
            devices: from.devices.into_iter().map(device).collect(),
            notes: from.notes.into_iter().map(text).collect(),
            crash: Some(text(from.crash)).filter(|crash| !crash.is_empty()),
        }
    }
}

impl From<TransferFormat> for Encoding {
    fn from(from: TransferFormat) -> Encoding {
        match from {
            TransferFormat::Exact => Encoding::Exact,
            TransferFormat::F16 => Encoding::F16,
            TransferFormat::Int8 => Encoding::Int8,
        }
    }
}

impl From<Encoding> for TransferFormat {
    fn from(from: Encoding) -> TransferFormat {
        match from {
            Encoding::Exact => TransferFormat::Exact,
            Encoding::F16 => TransferFormat::F16,
            Encoding::Int8 => TransferFormat::Int8,
        }
    }
}

impl From<peer::Peer> for Peer {
    fn from(from: peer::Peer) -> Peer {
        Peer { name: from.server.to_string(), address: from.address, tls_name: from.tls_name }
    }
}

impl From<Peer> for peer::Peer {
    fn from(from: Peer) -> peer::Peer {
        peer::Peer { server: from.name.into(), address: from.address, tls_name: from.tls_name }
    }
}

impl From<inference_trace::DeviceMemory> for DeviceMemory {
    fn from(from: inference_trace::DeviceMemory) -> DeviceMemory {
        let (parameter_bytes, peak_bytes, loading_bytes) = (from.parameters.0, from.peak.0, from.loading.0);
        DeviceMemory { device: from.device.to_string(), parameter_bytes, peak_bytes, loading_bytes }
    }
}

impl From<DeviceMemory> for inference_trace::DeviceMemory {
    fn from(from: DeviceMemory) -> inference_trace::DeviceMemory {
        let (parameters, peak) = (Bytes(from.parameter_bytes), Bytes(from.peak_bytes));
        inference_trace::DeviceMemory {
            device: from.device.into(),
            parameters,
            peak,
            loading: Bytes(from.loading_bytes),
        }
    }
}

impl From<inference_trace::InferenceTrace> for InferenceTrace {
    fn from(from: inference_trace::InferenceTrace) -> InferenceTrace {
        let step = |step: inference_trace::StepTime| StepTime {
            group: step.group,
            end_us: step.end.0,
            wall_us: step.wall.0,
            cpu_us: step.cpu.0,
            workspace_bytes: step.workspace.0,
        };
        let stage = |stage: inference_trace::StageTime| StageTime {
            device: stage.device.to_string(),
            stage: stage.stage,
            ready_us: stage.ready.0,
            start_us: stage.start.0,
            end_us: stage.end.0,
            steps: stage.steps.into_iter().map(step).collect(),
            engine: stage.engine.to_string(),
            fallbacks: stage.fallbacks,
        };
        let transfer = |transfer: inference_trace::TransferTime| TransferTime {
            value: transfer.value.0,
            to: transfer.to.to_string(),
            ready_us: transfer.ready.0,
            start_us: transfer.start.0,
            end_us: transfer.end.0,
            bytes: transfer.bytes.0,
        };
        let arrival = |arrival: inference_trace::ArrivalTime| ArrivalTime {
            value: arrival.value.0,
            start_us: arrival.start.0,
            end_us: arrival.end.0,
        };
        let energy = |energy: inference_trace::SourceEnergy| SourceEnergy { source: energy.source, j: energy.total.0 };
        InferenceTrace {
            inference: from.inference,
            stages: from.stages.into_iter().map(stage).collect(),
            transfers: from.transfers.into_iter().map(transfer).collect(),
            arrivals: from.arrivals.into_iter().map(arrival).collect(),
            memory: from.memory.into_iter().map(Into::into).collect(),
            energy: from.energy.into_iter().map(energy).collect(),
            machine: from.machine.map(|machine| MachineUse {
                id: machine.id.into(),
                own: machine.busy.own,
                others: machine.busy.others,
            }),
        }
    }
}
