//! A deployment that stays loaded on its agents and computes inputs as they come.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot};

use super::{
    error::RunError,
    participants::{Participants, deadline},
    run_progress::RunProgress,
};
use edgecut_agent::{
    client::Agent,
    deployment::Deployment,
    protocol::{
        phase::Phase,
        run::{RunCommand, RunEvent, Start},
        setup::Setup,
    },
};
use edgecut_graph::{TensorData, units::Micros};

/// A loaded deployment. Dropping it unloads it.
#[derive(Debug)]
pub struct LoadedDeployment {
    requests: mpsc::Sender<Request>,
}

/// What a run computes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub phase: Phase,
    /// Whether it reads the states that the run before left.
    pub continues: bool,
    /// Its expected time: it fails if an agent is silent for much longer.
    pub expected: Micros,
}

/// A step, its inputs, and the channel for their outputs.
struct Request {
    step: Step,
    inputs: Vec<TensorData>,
    reply: oneshot::Sender<Result<Vec<TensorData>, RunError>>,
}

impl LoadedDeployment {
    /// Loads `deployment` on `agents`, which are in the order of its setups. The deployment must report
    /// [`ReportedOutputs::All`].
    ///
    /// [`ReportedOutputs::All`]: edgecut_agent::protocol::setup::ReportedOutputs::All
    ///
    /// # Errors
    /// If an agent refuses, fails or is lost.
    pub async fn load(
        deployment: Arc<Deployment>,
        agents: Vec<Agent>,
        parameters: BTreeMap<SmolStr, TensorData>,
    ) -> Result<LoadedDeployment, RunError> {
        let (requests, received) = mpsc::channel(1);
        let (loaded, is_loaded) = oneshot::channel();
        tokio::spawn(async move {
            serve(&deployment, &agents, &parameters, loaded, received).await;
        });
        is_loaded.await.map_err(|_| RunError::Unloaded)??;
        Ok(LoadedDeployment { requests })
    }

    /// Computes the values at the sink from `inputs`, the values at the source. Both are in the order of the deployment.
    ///
    /// # Errors
    /// If an agent fails or is lost, in this run or an earlier one.
    pub(super) async fn run(&self, inputs: Vec<TensorData>, step: Step) -> Result<Vec<TensorData>, RunError> {
        let (reply, result) = oneshot::channel();
        self.requests.send(Request { step, inputs, reply }).await.map_err(|_| RunError::Unloaded)?;
        result.await.map_err(|_| RunError::Unloaded)?
    }
}

/// Loads the deployment, then serves requests until a run fails or the requests end.
async fn serve(
    deployment: &Deployment,
    agents: &[Agent],
    parameters: &BTreeMap<SmolStr, TensorData>,
    mut loaded: oneshot::Sender<Result<(), RunError>>,
    mut requests: mpsc::Receiver<Request>,
) {
    let silent = |_: RunProgress<'_>| {};
    let connected = tokio::select! {
        connected = Participants::connected(deployment, agents, &[], parameters, &silent) => connected,
        // The caller no longer waits.
        () = loaded.closed() => return,
    };
    let mut participants = match connected {
        Ok(participants) => participants,
        // The caller may be gone.
        Err(error) => return drop(loaded.send(Err(error))),
    };
    if loaded.send(Ok(())).is_err() {
        return;
    }
    let (mut next, mut warm) = (0, BTreeSet::new());
    while let Some(Request { step, inputs, mut reply }) = requests.recv().await {
        let computed = tokio::select! {
            computed = participants.compute(&inputs, step, &mut next, warm.insert(step.phase)) => computed,
            // A run in progress cannot be cancelled, so the deployment is unloaded.
            () = reply.closed() => return,
        };
        let has_failed = computed.is_err();
        if reply.send(computed).is_err() || has_failed {
            return;
        }
    }
}

impl Participants<'_> {
    /// Runs inference number `next` with `inputs`. Before the first one of a phase, its warm-up runs take place.
    async fn compute(
        &mut self,
        inputs: &[TensorData],
        Step { phase, continues, expected }: Step,
        next: &mut u64,
        is_first: bool,
    ) -> Result<Vec<TensorData>, RunError> {
        self.send_contents(phase, inputs, &BTreeMap::new()).await?;
        let last = *next + if is_first { self.warm_ups } else { 0 };
        let mut outputs = Vec::new();
        while *next <= last {
            outputs = self.infer(Start { inference: *next, phase, continues }, expected).await?;
            *next += 1;
        }
        Ok(outputs)
    }

    async fn infer(&mut self, start: Start, expected: Micros) -> Result<Vec<TensorData>, RunError> {
        self.broadcast(&RunCommand::Start(start)).await;
        let of_sink = |setup: &Setup| setup.sink.as_ref().map_or(0, |sink| setup.values_in(sink, start.phase).len());
        let wanted: usize = self.deployment.setups.iter().map(of_sink).sum();
        let (mut outputs, mut unfinished, mut has_arrived) =
            (BTreeMap::<u32, TensorData>::new(), self.deployment.setups.len(), false);
        while outputs.len() < wanted || unfinished > 0 || !has_arrived {
            let waiting = || format!("the result of run {}", start.inference);
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
