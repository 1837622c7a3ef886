//! One run on one agent, from its setup until it is unloaded: admit, load, connect, serve inferences.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, task::JoinSet};

use super::{
    client_id::ClientId,
    device::Lease,
    device_user::DeviceUser,
    error::HostError,
    execute::{self, LoadedPartition},
    host::Host,
    job_log::Client,
    measurement_lock::{MeasurementLock, Processors, Sharing},
    received::Received,
    run_energy::RunEnergy,
    run_load::RunLoad,
    run_state::MemoryLimit,
    session::{Session, SessionReport},
    setup_limits::within_limits,
    transfer::open_link,
};
use crate::protocol::{
    named_tensors::NamedTensors,
    run::{RunCommand, RunEvent},
    setup::{EnforcedLimit, Partition, ReportedOutputs, Setup},
};
use edgecut_engine::{Executable, release_freed};
use edgecut_graph::{TensorData, units::Bytes};

/// How long after a peer the client may end a run here; later it is a failure of the link.
const END_TIME: Duration = Duration::from_secs(1);

/// Links that are opened at a time.
const CONNECTING: usize = 16;

/// The channels to the run's client.
struct ClientChannel {
    commands: mpsc::Receiver<RunCommand>,
    events: mpsc::Sender<RunEvent>,
    remote: Option<Arc<RemoteClient>>,
}

/// What is known of a client in another process.
pub(super) struct RemoteClient {
    /// Counts its messages.
    pub heard: AtomicU64,
    pub received: Received,
    client_id: ClientId,
    client: Client,
}

/// A partition with the lease of its device.
struct LeasedPartition {
    index: usize,
    lease: Lease,
    /// What its stages may hold once they are loaded.
    limit: Bytes,
    /// What a run may hold: [`EnforcedLimit`].
    run_limit: Bytes,
}

impl Host {
    /// Serves one run of a client in this process; returns without error when it closes `commands`.
    ///
    /// # Errors
    /// If the run cannot be loaded or fails, or the agent shuts down. Everything is unloaded in any case.
    pub async fn run(
        self: Arc<Host>,
        commands: mpsc::Receiver<RunCommand>,
        events: mpsc::Sender<RunEvent>,
    ) -> Result<(), HostError> {
        self.run_for(ClientChannel { commands, events, remote: None }).await
    }

    /// The same for a client in another process, which loses its devices when nothing comes from it for
    /// [`Limits::idle_time`](crate::Limits::idle_time).
    ///
    /// # Errors
    /// Also if the client is silent.
    pub(super) async fn run_remote(
        self: Arc<Host>,
        commands: mpsc::Receiver<RunCommand>,
        events: mpsc::Sender<RunEvent>,
        remote: Arc<RemoteClient>,
    ) -> Result<(), HostError> {
        self.run_for(ClientChannel { commands, events, remote: Some(remote) }).await
    }

    async fn run_for(self: Arc<Host>, mut client: ClientChannel) -> Result<(), HostError> {
        let (remote, limit) = (client.remote.clone(), self.limits().idle_time);
        let silence = async {
            match remote {
                Some(remote) => remote.silence(limit).await,
                None => std::future::pending().await,
            }
        };
        let shutdown = self.shutdown().clone();
        let outcome = {
            let serving = self.serve_run(&mut client);
            tokio::pin!(serving);
            tokio::select! {
                outcome = &mut serving => outcome,
                () = shutdown.requested() => Err(HostError::ShuttingDown),
                () = silence => Err(HostError::Silent(limit)),
            }
        };
        match outcome {
            Err(HostError::ClientGone) => Ok(()),
            outcome => outcome,
        }
    }

    async fn serve_run(self: &Arc<Host>, client: &mut ClientChannel) -> Result<(), HostError> {
        let RunCommand::Setup(setup) = client.receive().await? else {
            return Err(HostError::Request("a run must begin with its setup".to_string()));
        };
        let _job = client.remote.as_ref().map(|remote| self.begin_job(remote.client_id)).transpose()?;
        within_limits(&setup, self.limits())?;
        let leased = self.lease_all(&setup, client).await?;
        for partition in &leased {
            let of = &setup.partitions[partition.index];
            let admit = |free: Bytes| execute::admit(&setup, of, partition.limit.min(free), free);
            self.weights().shrink_to(partition.lease.reserve(admit)?);
        }
        client.send(RunEvent::Admitted).await?;
        let streamed = Arc::new(client.parameters(&setup).await?);
        let loaded = load_all(&setup, &leased, &streamed, self.is_dilated(), &client.events).await?;
        drop(streamed);
        if let Some(remote) = &client.remote {
            remote.received.release();
        }
        // The engines have copied the constants of the graphs, or refer to their mapped files.
        let setup = Arc::new(Arc::unwrap_or_clone(setup).without_graphs());
        let _ = tokio::task::spawn_blocking(release_freed).await;

        let energy =
            RunEnergy::start(leased.iter().map(|partition| partition.lease.device()).chain([self.processor()]));
        let (session, reports) =
            Session::new(setup, self.clock(), self.shutdown().child(), !self.is_dilated(), self.metrics().clone());
        for (partition, loaded) in leased.iter().zip(&loaded) {
            session.set_parameters(partition.index, loaded.parameters, loaded.loading);
            session.set_limit(partition.index, MemoryLimit::Own(partition.run_limit));
        }
        session.set_limit(leased.len(), MemoryLimit::Shared(self.shared_memory().clone()));
        self.add_session(&session)?;
        let guard = SessionGuard { host: self.clone(), session: session.clone() };
        let executables = loaded.iter().flat_map(|partition| &partition.stages);
        let warm_up_runs = executables.map(|executable| executable.warm_up_runs()).max().unwrap_or(1);
        let mut computing = JoinSet::new();
        for (partition, loaded) in leased.into_iter().zip(loaded) {
            computing.spawn(compute(session.clone(), partition, loaded.stages));
        }
        client.send(RunEvent::Loaded { memory: session.memory(), warm_up_runs }).await?;
        let outcome = self.serve_inferences(client, &session, reports, (energy, RunLoad::start())).await;
        drop(guard);
        // The leases end when the device threads have returned.
        while computing.join_next().await.is_some() {}
        outcome
    }

    /// Leases the devices of all partitions, with the memory limit of each: in the order of their names, so that no two
    /// clients wait for each other.
    async fn lease_all(&self, setup: &Setup, client: &ClientChannel) -> Result<Vec<LeasedPartition>, HostError> {
        let mut order: Vec<(usize, &Partition)> = setup.partitions.iter().enumerate().collect();
        order.sort_by_key(|(_, partition)| &partition.device);
        let mut leased = Vec::with_capacity(order.len());
        for (index, partition) in order {
            let device = self.device(&partition.device)?;
            // If the client is gone, nothing waits for the lease either.
            let queued = async |queued| drop(client.send(RunEvent::Queued(queued)).await);
            let user = DeviceUser::new("run", client.remote.as_ref().map(|remote| remote.client.clone()));
            let sharing = if setup.is_shared { Sharing::Shared } else { Sharing::Exclusive };
            let lease = device.lease(user, sharing, self.lease_wait(setup.wait), queued);
            let lease = tokio::select! {
                lease = lease => lease?,
                () = client.events.closed() => return Err(HostError::ClientGone),
            };
            let own = device.free_memory();
            let limit = partition.memory.map_or(own, |planned| planned.min(own));
            let run_limit = match partition.enforced {
                EnforcedLimit::Plan => limit,
                EnforcedLimit::PlanWithTransfers => own.min(limit + setup.exchanged(partition)),
            };
            leased.push(LeasedPartition { index, lease, limit, run_limit });
        }
        leased.sort_by_key(|partition| partition.index);
        Ok(leased)
    }

    /// Executes the client's commands and forwards the session's reports until the client closes its side.
    async fn serve_inferences(
        self: &Arc<Host>,
        client: &mut ClientChannel,
        session: &Arc<Session>,
        mut reports: mpsc::UnboundedReceiver<Result<SessionReport, HostError>>,
        (mut energy, mut load): (RunEnergy, RunLoad),
    ) -> Result<(), HostError> {
        let mut inputs: BTreeMap<u32, TensorData> = BTreeMap::new();
        loop {
            tokio::select! {
                command = client.commands.recv() => match command {
                    None => return Ok(()),
                    Some(RunCommand::Input { index, data }) => {
                        inputs.insert(index, data);
                    }
                    Some(RunCommand::Connect) => {
                        self.connect_all(session).await?;
                        client.send(RunEvent::Connected).await?;
                    }
                    Some(RunCommand::Start(start)) => {
                        let source = session.setup.source.iter();
                        let expected = source.flat_map(|source| session.setup.values_in(source, start.phase));
                        let given = expected.map(|(index, _)| inputs.get(&index).cloned());
                        let Some(given) = given.collect::<Option<Vec<TensorData>>>() else {
                            let what = "an inference started without all of its inputs";
                            return Err(HostError::Request(what.to_string()));
                        };
                        session.start(start, &given)?;
                        // The next inputs replace them.
                        if let Some(remote) = &client.remote {
                            remote.received.release();
                        }
                    }
                    Some(RunCommand::Setup(_) | RunCommand::Parameter { .. }) => {
                        return Err(HostError::Request("the run is set up already".to_string()));
                    }
                },
                Some(report) = reports.recv() => {
                    let mut report = match report {
                        Err(ended @ HostError::PeerEnded { .. }) => return ended_by_client(client, ended).await,
                        report => report?,
                    };
                    if let SessionReport::Finished(trace) = &mut report {
                        let now = Instant::now();
                        trace.energy = energy.read(now);
                        trace.machine = load.read(now);
                    }
                    client.report(report, session.setup.reported).await?;
                }
            }
        }
    }

    /// Opens the links to all peers that values are sent to, some at a time.
    async fn connect_all(&self, session: &Arc<Session>) -> Result<(), HostError> {
        let setup = &session.setup;
        let used: BTreeSet<u32> = setup.sends.iter().map(|send| send.peer).collect();
        let opening = (0u32..).zip(&setup.peers).map(|(index, peer)| {
            let is_used = used.contains(&index);
            async move {
                match is_used {
                    true => open_link(session, peer, self.identity()).await.map(Some),
                    false => Ok(None),
                }
            }
        });
        let (mut opening, mut links) = (opening.collect::<Vec<_>>(), Vec::with_capacity(setup.peers.len()));
        while !opening.is_empty() {
            let later = opening.split_off(CONNECTING.min(opening.len()));
            links.extend(futures::future::try_join_all(std::mem::replace(&mut opening, later)).await?);
        }
        session.set_links(links);
        Ok(())
    }
}

impl RemoteClient {
    pub fn new(received: Received, client_id: ClientId, client: Client) -> RemoteClient {
        RemoteClient { heard: AtomicU64::new(0), received, client_id, client }
    }

    /// Ends once no message has come for `limit`.
    async fn silence(&self, limit: Duration) {
        loop {
            let before = self.heard.load(Ordering::Relaxed);
            tokio::time::sleep(limit).await;
            if self.heard.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

impl ClientChannel {
    async fn receive(&mut self) -> Result<RunCommand, HostError> {
        self.commands.recv().await.ok_or(HostError::ClientGone)
    }

    async fn send(&self, event: RunEvent) -> Result<(), HostError> {
        self.events.send(event).await.map_err(|_| HostError::ClientGone)
    }

    /// Receives all parameters that the setup announces.
    async fn parameters(&mut self, setup: &Setup) -> Result<NamedTensors, HostError> {
        let mut streamed = NamedTensors::new();
        while streamed.len() < setup.streamed.len() {
            match self.receive().await? {
                RunCommand::Parameter { index, data } => {
                    let announced = setup.streamed.get(index as usize);
                    let name = announced.map(|s| s.name.clone()).unwrap_or_default();
                    streamed.insert(name, data);
                }
                _ => return Err(HostError::Request("expected the parameters that the setup announces".to_string())),
            }
        }
        Ok(streamed)
    }

    async fn report(&self, report: SessionReport, reported: ReportedOutputs) -> Result<(), HostError> {
        match report {
            SessionReport::Started { inference, at } => self.send(RunEvent::Started { inference, at }).await,
            SessionReport::Finished(trace) => self.send(RunEvent::Measured(trace)).await,
            SessionReport::Outputs { inference, at, outputs } => {
                let mut hash = blake3::Hasher::new();
                for (_, output) in &outputs {
                    hash.update(output.bytes());
                }
                self.send(RunEvent::Arrived { inference, at, digest: *hash.finalize().as_bytes() }).await?;
                if inference == 0 || reported == ReportedOutputs::All {
                    for (index, data) in outputs {
                        self.send(RunEvent::Output { index, data }).await?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Ends the session when dropped, also with the future that holds it.
struct SessionGuard {
    host: Arc<Host>,
    session: Arc<Session>,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.session.stop();
        self.host.remove_session(&self.session);
    }
}

/// Loads all partitions, each on the thread of its lease, while somebody receives `events` and no other partition has failed. Dilated
/// agents learn then how long steps take, one agent of a machine after the other.
async fn load_all(
    setup: &Arc<Setup>,
    leased: &[LeasedPartition],
    streamed: &Arc<NamedTensors>,
    is_dilated: bool,
    events: &mpsc::Sender<RunEvent>,
) -> Result<Vec<LoadedPartition>, HostError> {
    let loading = leased.iter().map(|partition| {
        let (setup, streamed) = (setup.clone(), streamed.clone());
        // Not one that keeps the run's reply open: it ends with the first failure.
        let events = events.downgrade();
        let (index, limit) = (partition.index, partition.limit);
        let (engine, threads) = (setup.partitions[index].engine, setup.partitions[index].threads);
        async move {
            let engine = partition.lease.device().engine(engine, threads)?;
            // The stages of both phases have the same weights.
            let sharing = setup.has_prefill().then(|| engine.sharing_weights()).flatten();
            let engine = sharing.unwrap_or(engine);
            let load = move || {
                let is_over = || events.upgrade().is_none_or(|events| events.is_closed());
                let lock = is_dilated
                    .then(|| MeasurementLock::of_processors(Processors::All, Sharing::Exclusive, |_| !is_over()));
                let loaded = execute::load(&engine, &setup, &setup.partitions[index], &streamed, limit, &is_over);
                drop(lock);
                loaded
            };
            partition.lease.run("loading", load).await
        }
    });
    futures::future::try_join_all(loading).await
}

/// Computes a partition until the session ends; a failure fails the session.
async fn compute(session: Arc<Session>, partition: LeasedPartition, stages: Vec<Box<dyn Executable>>) {
    let LeasedPartition { index, lease, run_limit, .. } = partition;
    let (computing, device) = (session.clone(), lease.device().clone());
    let done = lease.run("running", move || execute::execute(&computing, &device, index, stages, run_limit)).await;
    if let Err(error) = done {
        session.fail(error);
    }
}

/// Waits for the client to end a run that a peer has ended: at the end of a run servers close their links in any order.
///
/// # Errors
/// `ended`, if the client does not.
async fn ended_by_client(client: &mut ClientChannel, ended: HostError) -> Result<(), HostError> {
    match tokio::time::timeout(END_TIME, client.commands.recv()).await {
        Ok(None) => Ok(()),
        _ => Err(ended),
    }
}
