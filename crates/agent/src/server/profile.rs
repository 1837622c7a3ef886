//! Profiling on this server: the device measures and streams results; it stops when the client leaves.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{
    device::Device,
    device_user::DeviceUser,
    error::HostError,
    host::Host,
    job_log::Client,
    measurement_lock::{MeasurementLock, Processors, Sharing},
};
use crate::{
    protocol::{
        named_tensors::NamedTensors,
        profile::{ProfileEvent, ProfileTask},
        run::Queued,
    },
    shutdown::Shutdown,
};
use edgecut_engine::{Engine, GeneratedContents};
use edgecut_graph::{TensorData, TensorId, units::Bytes};
use edgecut_profile::{
    Measurement, MeasurementMode, items,
    measure::{ProfileTarget, in_situ, isolated, whole_model},
};

/// The part of the budget for the model as a whole, which is one item among many, but the slowest.
const WHOLE_SHARE: f64 = 0.2;
/// Interval between reports that a measurement waits; clients time out after two minutes without an event.
const WAITING_INTERVAL: Duration = Duration::from_secs(30);

impl Host {
    /// Measures what `task` requests and sends each result to `events`, after other processes of this machine that measure;
    /// it says for which one it waits. Stops after the current item when the receiver is
    /// dropped.
    ///
    /// # Errors
    /// If the device does not exist or is busy, a tensor does not fit the graph, or the agent shuts down.
    pub async fn profile(
        self: Arc<Host>,
        task: ProfileTask,
        contents: NamedTensors,
        events: mpsc::Sender<ProfileEvent>,
    ) -> Result<(), HostError> {
        self.profile_for(None, task, contents, events).await
    }

    /// The same for a client in another process.
    ///
    /// # Errors
    /// The same.
    pub(super) async fn profile_for(
        self: Arc<Host>,
        client: Option<Client>,
        task: ProfileTask,
        contents: NamedTensors,
        events: mpsc::Sender<ProfileEvent>,
    ) -> Result<(), HostError> {
        task.sampling.check().map_err(|error| HostError::Request(error.to_string()))?;
        let queued = async |queued: Queued| {
            // The receiver is dropped when the client is gone.
            let _ = events.send(ProfileEvent::WaitingFor(queued.user)).await;
        };
        let device = self.device(&task.device)?;
        let user = DeviceUser::new("profile", client);
        let lease = device.lease(user, Sharing::Exclusive, self.lease_wait(task.wait), queued);
        let lease = tokio::select! {
            lease = lease => lease?,
            () = events.closed() => return Err(HostError::ClientGone),
        };
        let engine = lease.device().engine(task.engine, task.threads)?;
        let shutdown = self.shutdown().clone();
        let processors = Processors::of_agent(self.is_dilated());
        let measuring = lease.run("profiling", {
            let (shutdown, device) = (shutdown.clone(), lease.device().clone());
            move || measure(&device, &*engine, processors, &task, &contents, &events, &shutdown)
        });
        tokio::select! {
            // First: measuring ends well when it is cancelled, and what was not measured must not look measured.
            biased;
            () = shutdown.requested() => Err(HostError::ShuttingDown),
            outcome = measuring => outcome,
        }
    }
}

/// Runs on the device's thread.
fn measure(
    device: &Device,
    engine: &dyn Engine,
    processors: Processors,
    task: &ProfileTask,
    contents: &NamedTensors,
    events: &mpsc::Sender<ProfileEvent>,
    shutdown: &Shutdown,
) -> Result<(), HostError> {
    let mut reported: Option<(String, Instant)> = None;
    let lock = MeasurementLock::of_processors(processors, Sharing::Exclusive, |holder| {
        let is_reported =
            reported.as_ref().is_some_and(|(who, when)| who == holder && when.elapsed() < WAITING_INTERVAL);
        let is_connected = is_reported || events.blocking_send(ProfileEvent::WaitingFor(holder.to_string())).is_ok();
        if !is_reported {
            reported = Some((holder.to_string(), Instant::now()));
        }
        is_connected && !events.is_closed() && !shutdown.is_requested()
    });
    let Ok(_lock) = lock else { return Err(HostError::ClientGone) };
    let failed = |cause| HostError::Engine { what: "profiling".to_string(), cause };
    let graph = &task.graph;
    let items = items(graph, task.granularity);
    let limit = device.description().memory;
    let all: Bytes = graph.inputs().filter_map(|id| graph.tensor(id).ty.bytes()).sum();
    if limit.shortfall(all) > Bytes::ZERO {
        return Err(HostError::Request(format!("the inputs of the model take {all}, the limit is {limit}")));
    }
    let generated = GeneratedContents::of(graph);
    let content = |id: TensorId| {
        let given = contents.get(&graph.tensor(id).name);
        given.map_or_else(|| generated.get(id), |data| Ok(data.clone()))
    };
    let inputs: Vec<TensorData> = graph.inputs().map(content).collect::<Result<_, _>>().map_err(failed)?;
    let is_cancelled = || shutdown.is_requested() || events.is_closed();
    let target = ProfileTarget {
        engine,
        graph,
        items: &items,
        inputs: &inputs,
        parameter: &content,
        memory: Some(limit),
        energy: device.energy(),
        is_cancelled: &is_cancelled,
    };
    let send = |event| match shutdown.is_requested() || events.blocking_send(event).is_err() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let (of_items, of_whole) = match task.items && task.whole {
        true => task.sampling.divided(WHOLE_SHARE),
        false => (task.sampling, task.sampling),
    };
    if task.items {
        let mut each = |measured: Measurement| send(ProfileEvent::Item(measured));
        match task.mode {
            MeasurementMode::Isolated => isolated(&target, &of_items, &task.known, &mut each),
            MeasurementMode::InSitu => in_situ(&target, &of_items, &mut each),
        }
        .map_err(failed)?;
    }
    if task.whole && !is_cancelled() {
        let event = match whole_model(&target, &of_whole, task.cache_flush) {
            Ok(cost) => Some(ProfileEvent::Whole(cost)),
            Err(error) if !task.items => {
                Some(ProfileEvent::Item(Measurement { item: 0, cost: Err(error.to_string()) }))
            }
            // The model does not fit, or holds unsupported operators; the items have reported which.
            Err(_) => None,
        };
        // The last event: whether the client still listens does not matter.
        let _ = event.map(send);
    }
    Ok(())
}
