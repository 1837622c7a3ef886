//! A profile taken here: the device measures, results go to the client as they come, and nothing goes on without it.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    error::HostError,
    host::Host,
    shutdown::Shutdown,
    task::{Contents, ProfileEvent, ProfileTask},
};
use crate::{
    engine::{Engine, EngineError},
    graph::{TensorData, TensorId},
    profile::{
        Mode, items,
        measure::{Measured, Subject, in_situ, isolated, whole},
    },
    units::Bytes,
    values::seeded,
};

impl Host {
    /// Measures what `task` asks for and tells `events` each result. Stops after the item under way when the client
    /// drops its end.
    ///
    /// # Errors
    /// If the device is not there or busy, a content does not fit the graph, or the agent shuts down.
    pub async fn profile(
        self: Arc<Host>,
        task: ProfileTask,
        contents: Contents,
        events: mpsc::Sender<ProfileEvent>,
    ) -> Result<(), HostError> {
        let lease = self.device(&task.device)?.lease("another client's profile".to_string()).await?;
        let engine = lease.device().engine(task.threads)?;
        let limit = lease.device().description().memory;
        let stopping = self.shutdown().clone();
        let measuring = lease.run("profiling", {
            let stopping = stopping.clone();
            move || measure(&*engine, &task, &contents, limit, &events, &stopping)
        });
        tokio::select! {
            outcome = measuring => outcome,
            () = stopping.ordered() => Err(HostError::ShuttingDown),
        }
    }
}

/// The work of the device's thread.
fn measure(
    engine: &dyn Engine,
    task: &ProfileTask,
    contents: &Contents,
    limit: Bytes,
    events: &mpsc::Sender<ProfileEvent>,
    stopping: &Shutdown,
) -> Result<(), HostError> {
    let failed = |cause| HostError::Engine { what: "profiling".to_string(), cause };
    let graph = &task.graph;
    let items = items(graph, task.granularity);
    let content = |id: TensorId| content(task, contents, id);
    let inputs: Vec<TensorData> = graph.inputs().map(content).collect::<Result<_, _>>().map_err(failed)?;
    let subject = Subject { engine, graph, items: &items, inputs: &inputs, parameter: &content, memory: Some(limit) };
    let tell = |event| match stopping.is_ordered() || events.blocking_send(event).is_err() {
        true => std::ops::ControlFlow::Break(()),
        false => std::ops::ControlFlow::Continue(()),
    };
    if task.items {
        let mut each = |measured: Measured| tell(ProfileEvent::Item(measured));
        match task.mode {
            Mode::Isolated => isolated(&subject, &task.sampling, &task.known, &mut each),
            Mode::InSitu => in_situ(&subject, &task.sampling, &mut each),
        }
        .map_err(failed)?;
    }
    if task.whole && !stopping.is_ordered() && !events.is_closed() {
        // Where the model does not fit, or holds what cannot be computed, there is no such time; the items say more.
        let event = match whole(&subject, &task.sampling, task.displaces) {
            Ok(cost) => Some(ProfileEvent::Whole(cost)),
            Err(error) if !task.items => Some(ProfileEvent::Item(Measured { item: 0, cost: Err(error.to_string()) })),
            Err(_) => None,
        };
        // A client that is gone does not need it.
        let _ = event.map(tell);
    }
    Ok(())
}

fn content(task: &ProfileTask, contents: &Contents, id: TensorId) -> Result<TensorData, EngineError> {
    let tensor = task.graph.tensor(id);
    match contents.get(&tensor.name) {
        Some(data) => Ok(data.clone()),
        None => seeded(&tensor.name, &tensor.ty)
            .map_err(|e| EngineError::Tensor { name: tensor.name.to_string(), what: e.to_string() }),
    }
}
