//! A deployment that stays loaded on its agents, and computes inputs as they come.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot};

use super::{
    deploy::Deployment,
    error::RunError,
    participants::{Participants, deadline},
    progress::RunProgress,
};
use crate::agent::{
    Agent,
    protocol::run::{RunCommand, RunEvent},
};
use edgecut_graph::{TensorData, units::Micros};

/// A deployment that is loaded. It is unloaded when this is dropped.
#[derive(Debug)]
pub struct LoadedDeployment {
    requests: mpsc::Sender<Request>,
}

/// Inputs, and where their results go.
struct Request {
    inputs: Vec<TensorData>,
    reply: oneshot::Sender<Result<Vec<TensorData>, RunError>>,
}

impl LoadedDeployment {
    /// Loads `deployment`, which must be one with [`ReportedOutputs::All`], on its agents (in the order of its setups).
    /// `expected` is what one run is expected to take: an agent silent for much longer is given up.
    ///
    /// [`ReportedOutputs::All`]: crate::agent::protocol::setup::ReportedOutputs::All
    ///
    /// # Errors
    /// If an agent refuses, fails or is lost.
    pub async fn load(
        deployment: Arc<Deployment>,
        agents: Vec<Agent>,
        parameters: BTreeMap<SmolStr, TensorData>,
        expected: Micros,
    ) -> Result<LoadedDeployment, RunError> {
        let (requests, received) = mpsc::channel(1);
        let (loaded, is_loaded) = oneshot::channel();
        tokio::spawn(async move {
            serve(&deployment, &agents, &parameters, expected, loaded, received).await;
        });
        is_loaded.await.map_err(|_| RunError::Stopped)??;
        Ok(LoadedDeployment { requests })
    }

    /// The values at the sink for `inputs`, the values at the source; both in the order of the deployment.
    ///
    /// # Errors
    /// If an agent fails or is lost, now or in a run before.
    pub async fn run(&self, inputs: Vec<TensorData>) -> Result<Vec<TensorData>, RunError> {
        let (reply, result) = oneshot::channel();
        self.requests.send(Request { inputs, reply }).await.map_err(|_| RunError::Stopped)?;
        result.await.map_err(|_| RunError::Stopped)?
    }
}

/// Loads the deployment, then computes what is requested until a run fails or no more can be requested.
async fn serve(
    deployment: &Deployment,
    agents: &[Agent],
    parameters: &BTreeMap<SmolStr, TensorData>,
    expected: Micros,
    loaded: oneshot::Sender<Result<(), RunError>>,
    mut requests: mpsc::Receiver<Request>,
) {
    let silent = |_: RunProgress<'_>| {};
    let mut participants = match Participants::connected(deployment, agents, &[], parameters, &silent).await {
        Ok(participants) => participants,
        // The caller may be gone.
        Err(error) => return drop(loaded.send(Err(error))),
    };
    if loaded.send(Ok(())).is_err() {
        return;
    }
    let mut next = 0;
    while let Some(Request { inputs, reply }) = requests.recv().await {
        let computed = participants.compute(&inputs, &mut next, expected).await;
        let has_failed = computed.is_err();
        if reply.send(computed).is_err() || has_failed {
            return;
        }
    }
}

impl Participants<'_> {
    /// One inference with `inputs`, the `next`; before the first one, those that warm up.
    async fn compute(
        &mut self,
        inputs: &[TensorData],
        next: &mut u64,
        expected: Micros,
    ) -> Result<Vec<TensorData>, RunError> {
        self.send_contents(inputs, &BTreeMap::new()).await?;
        let last = (*next).max(self.warm_ups);
        let mut outputs = Vec::new();
        while *next <= last {
            outputs = self.infer(*next, expected).await?;
            *next += 1;
        }
        Ok(outputs)
    }

    async fn infer(&mut self, inference: u64, expected: Micros) -> Result<Vec<TensorData>, RunError> {
        self.broadcast(&RunCommand::Start(inference)).await;
        let sinks = self.deployment.setups.iter().filter_map(|setup| setup.sink.as_ref());
        let wanted = sinks.map(|sink| sink.values.len()).sum::<usize>();
        let (mut outputs, mut unfinished, mut has_arrived) =
            (BTreeMap::<u32, TensorData>::new(), self.deployment.setups.len(), false);
        while outputs.len() < wanted || unfinished > 0 || !has_arrived {
            let waiting = || format!("the result of run {inference}");
            match self.next(waiting, deadline(expected)).await?.1 {
                RunEvent::Arrived { .. } => has_arrived = true,
                RunEvent::Output { index, data } => drop(outputs.insert(index, data)),
                RunEvent::Measured(_) => unfinished -= 1,
                RunEvent::Started { .. }
                | RunEvent::Queued(_)
                | RunEvent::Admitted
                | RunEvent::Loaded { .. }
                | RunEvent::Connected => {}
            }
        }
        Ok(outputs.into_values().collect())
    }
}
