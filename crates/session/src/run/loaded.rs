//! A deployment that stays loaded on its agents and computes inputs as they come.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot};

use super::{
    error::RunError,
    participants::{Participants, deadline},
    run_progress::RunProgress,
};
use edgecut_agent::{
    client::{Agent, AgentError},
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
    failure: Failure,
}

/// What has ended the runs of a deployment.
type Failure = Arc<OnceLock<Arc<RunError>>>;

/// What a run computes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub phase: Phase,
    /// Its sequence, of as many as runs may be in flight.
    pub sequence: u32,
    /// Whether it reads the states that the run before it left in its sequence.
    pub continues: bool,
    /// Its expected time: it fails if an agent is silent for much longer.
    pub expected: Micros,
}

/// A step, its inputs, and the channel for their outputs.
struct Request {
    step: Step,
    inputs: Vec<TensorData>,
    reply: Reply,
}

/// A failure ends all runs in flight.
type Reply = oneshot::Sender<Result<Vec<TensorData>, Arc<RunError>>>;

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
        let in_flight = deployment.setups.iter().map(|setup| setup.in_flight).max().unwrap_or(1);
        let (requests, received) = mpsc::channel(in_flight.max(1) as usize);
        let (loaded, is_loaded) = oneshot::channel();
        let failure = Failure::default();
        let of_runs = failure.clone();
        tokio::spawn(async move {
            serve((&deployment, &agents), &parameters, loaded, received, &of_runs).await;
        });
        is_loaded.await.map_err(|_| RunError::Unloaded)??;
        Ok(LoadedDeployment { requests, failure })
    }

    /// Computes the values at the sink from `inputs`, the values at the source. Both are in the order of the deployment. As many calls
    /// as the deployment has inputs in flight overlap.
    ///
    /// # Errors
    /// If an agent fails or is lost, in this run or an earlier one.
    pub(super) async fn run(&self, inputs: Vec<TensorData>, step: Step) -> Result<Vec<TensorData>, Arc<RunError>> {
        let (reply, result) = oneshot::channel();
        let unloaded = || self.failure.get().cloned().unwrap_or_else(|| Arc::new(RunError::Unloaded));
        self.requests.send(Request { step, inputs, reply }).await.map_err(|_| unloaded())?;
        result.await.map_err(|_| unloaded())?
    }
}

/// Loads the deployment, then serves requests until a run fails or the requests end.
async fn serve(
    (deployment, agents): (&Deployment, &[Agent]),
    parameters: &BTreeMap<SmolStr, TensorData>,
    mut loaded: oneshot::Sender<Result<(), RunError>>,
    mut requests: mpsc::Receiver<Request>,
    failure: &Failure,
) {
    let silent = |_: RunProgress<'_>| {};
    let connected = tokio::select! {
        connected = Participants::connected(deployment, agents, &[], parameters, &silent) => connected,
        // The caller no longer waits.
        () = loaded.closed() => return,
    };
    let participants = match connected {
        Ok(participants) => participants,
        // The caller may be gone.
        Err(error) => return drop(loaded.send(Err(error))),
    };
    if loaded.send(Ok(())).is_err() {
        return;
    }
    let mut runs = Runs { participants, open: BTreeMap::new(), number: 0, warm: BTreeSet::new(), arriving: None };
    while let Some(next) = runs.next(&mut requests).await {
        let handled = match next {
            Next::Request(request) => runs.begin(request).await,
            Next::Event(event) => runs.handle(event).await,
            Next::Failure(error) => Err(runs.participants.explain(error).await.into()),
            Next::Silence => Err(runs.stuck()),
        };
        if let Err(error) = handled {
            return runs.fail(error, failure);
        }
    }
}

/// What happens next.
enum Next {
    Request(Request),
    Event(RunEvent),
    Failure(AgentError),
    /// No agent has reported anything for much longer than the runs in flight are expected to take.
    Silence,
}

/// The runs of a deployment.
struct Runs<'a> {
    participants: Participants<'a>,
    /// Those in flight, by number.
    open: BTreeMap<u64, Open>,
    /// The number of the next one.
    number: u64,
    /// The phases that are warmed up.
    warm: BTreeSet<Phase>,
    /// The run whose outputs come from the sink now.
    arriving: Option<u64>,
}

/// A run in flight.
struct Open {
    step: Step,
    reply: Reply,
    /// Warm-up runs that take place before it.
    warm_ups: u64,
    /// Number of outputs.
    wanted: usize,
    outputs: BTreeMap<u32, TensorData>,
    has_arrived: bool,
    /// Servers that are not finished with it.
    unfinished: usize,
}

impl Runs<'_> {
    /// An event of an agent, or a request once there is room for it in flight. `None` once the requests end, or nothing waits for a run
    /// in flight: it cannot be cancelled, so the deployment is unloaded.
    async fn next(&mut self, requests: &mut mpsc::Receiver<Request>) -> Option<Next> {
        let setups = &self.participants.deployment.setups;
        let in_flight = setups.iter().map(|setup| setup.in_flight as usize).max().unwrap_or(1);
        let window = setups.iter().map(Setup::window).min().unwrap_or(1);
        let oldest = self.open.keys().next().copied().unwrap_or(self.number);
        // Warm-up runs have the inputs that were sent last.
        let is_warm = self.open.values().all(|open| open.warm_ups == 0);
        let is_within = self.number - oldest + self.participants.warm_ups < window;
        let has_room = self.open.is_empty() || (is_warm && self.open.len() < in_flight && is_within);
        let (is_waiting, deadline) = (!self.open.is_empty(), self.deadline());
        let open = &mut self.open;
        let given_up = poll_fn(|cx| match open.values_mut().any(|open| open.reply.poll_closed(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        tokio::select! {
            received = self.participants.received(deadline), if is_waiting => Some(match received {
                Some((_, Ok(event))) => Next::Event(event),
                Some((_, Err(error))) => Next::Failure(error),
                None => Next::Silence,
            }),
            request = requests.recv(), if has_room => request.map(Next::Request),
            () = given_up => None,
        }
    }

    /// How long agents may be silent.
    fn deadline(&self) -> Duration {
        deadline(self.open.values().map(|open| open.step.expected).fold(Micros::ZERO, |sum, time| sum + time))
    }

    fn stuck(&self) -> RunError {
        let numbers: Vec<String> = self.open.keys().map(u64::to_string).collect();
        RunError::Stuck { waiting: format!("the result of run {}", numbers.join(", ")), after: self.deadline() }
    }

    /// Starts the run that is requested; of the first one of a phase, its warm-up runs.
    async fn begin(&mut self, Request { step, inputs, reply }: Request) -> Result<(), RunError> {
        self.participants.send_contents(step.phase, &inputs, &BTreeMap::new()).await?;
        let setups = &self.participants.deployment.setups;
        let of_sink = |setup: &Setup| setup.sink.as_ref().map_or(0, |sink| setup.values_in(sink, step.phase).len());
        let open = Open {
            step,
            reply,
            warm_ups: if self.warm.insert(step.phase) { self.participants.warm_ups } else { 0 },
            wanted: setups.iter().map(of_sink).sum(),
            outputs: BTreeMap::new(),
            has_arrived: false,
            unfinished: setups.len(),
        };
        self.start(open).await;
        Ok(())
    }

    async fn start(&mut self, open: Open) {
        let Step { phase, sequence, continues, .. } = open.step;
        let start = Start { inference: self.number, phase, sequence, continues };
        self.participants.broadcast(&RunCommand::Start(start)).await;
        self.open.insert(self.number, open);
        self.number += 1;
    }

    /// Records what an agent reports. A run that is finished by it is answered, or starts again after a warm-up run.
    async fn handle(&mut self, event: RunEvent) -> Result<(), RunError> {
        let number = match event {
            RunEvent::Arrived { inference, .. } => *self.arriving.insert(inference),
            // All outputs of a run come after it has arrived, and before another arrives.
            RunEvent::Output { .. } => self.arriving.unwrap_or_default(),
            RunEvent::Measured(ref trace) => trace.inference,
            _ => return Ok(()),
        };
        let Some(open) = self.open.get_mut(&number) else { return Ok(()) };
        match event {
            RunEvent::Arrived { .. } => open.has_arrived = true,
            RunEvent::Output { index, data } => drop(open.outputs.insert(index, data)),
            _ => open.unfinished = open.unfinished.saturating_sub(1),
        }
        if !open.has_arrived || open.unfinished > 0 || open.outputs.len() < open.wanted {
            return Ok(());
        }
        let Some(mut open) = self.open.remove(&number) else { return Ok(()) };
        if open.warm_ups > 0 {
            let unfinished = self.participants.deployment.setups.len();
            let warm_ups = open.warm_ups - 1;
            open.outputs.clear();
            self.start(Open { warm_ups, has_arrived: false, unfinished, ..open }).await;
            return Ok(());
        }
        // A caller that is gone unloads the deployment, as one that leaves during a run does.
        open.reply.send(Ok(open.outputs.into_values().collect())).map_err(|_| RunError::Unloaded)
    }

    /// Answers all runs in flight with `error`, and those that are asked for later by `failure`.
    fn fail(self, error: RunError, failure: &Failure) {
        let error = failure.get_or_init(|| Arc::new(error));
        for open in self.open.into_values() {
            // It may no longer be waited for.
            let _ = open.reply.send(Err(error.clone()));
        }
    }
}
