//! One run from its setup to its end, on one agent: admit, load, connect, let inputs in, tell what happens, unload.

use std::{collections::BTreeMap, sync::Arc};

use tokio::{sync::mpsc, task::JoinSet};

use super::{
    device::Lease,
    error::HostError,
    execute::{self, Loaded, Ready, Streamed},
    host::Host,
    message::{Command, Event},
    session::{News, Session},
    setup::{Partition, Setup},
    transfer::open_link,
};
use crate::{graph::TensorData, units::Bytes};

/// What the client says and where it listens.
struct Client {
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<Event>,
}

/// A partition with the right to its device.
struct Held {
    index: usize,
    lease: Lease,
    limit: Bytes,
}

impl Host {
    /// Serves one run: ends well when the client closes `commands`.
    ///
    /// # Errors
    /// If the run cannot be loaded or fails, or the agent shuts down. Whatever happens, nothing stays loaded.
    pub async fn run(
        self: Arc<Host>,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<Event>,
    ) -> Result<(), HostError> {
        let mut client = Client { commands, events };
        let shutdown = self.shutdown().clone();
        let outcome = {
            let serving = self.serve_run(&mut client);
            tokio::pin!(serving);
            tokio::select! {
                outcome = &mut serving => outcome,
                () = shutdown.ordered() => Err(HostError::ShuttingDown),
            }
        };
        match outcome {
            Err(HostError::Abandoned) => Ok(()),
            outcome => outcome,
        }
    }

    async fn serve_run(self: &Arc<Host>, client: &mut Client) -> Result<(), HostError> {
        let Command::Setup(setup) = client.next().await? else {
            return Err(HostError::Request("a run begins with its setup".to_string()));
        };
        let held = self.lease_all(&setup).await?;
        for partition in &held {
            execute::admit(&setup.partitions[partition.index], partition.limit)?;
        }
        client.tell(Event::Admitted).await?;
        let streamed = Arc::new(client.parameters(&setup).await?);
        let ready = load_all(&setup, &held, &streamed).await?;
        drop(streamed);
        // The graphs with their constants are loaded and not needed any more.
        let setup = Arc::new(Arc::unwrap_or_clone(setup).without_graphs());

        let (session, news) = Session::new(setup, self.clock(), self.shutdown().child());
        for (partition, ready) in held.iter().zip(&ready) {
            session.set_parameters(partition.index, ready.held, ready.loading);
        }
        self.add_session(&session)?;
        // Ends the session also when this future is dropped.
        let ending = Ending { host: self.clone(), session: session.clone() };
        let mut working = JoinSet::new();
        for (partition, ready) in held.into_iter().zip(ready) {
            working.spawn(compute(session.clone(), partition, ready.stages));
        }
        client.tell(Event::Loaded(session.memory())).await?;
        let outcome = self.attend(client, &session, news).await;
        drop(ending);
        // The devices are free again only when their threads have returned.
        while working.join_next().await.is_some() {}
        outcome
    }

    /// Leases the devices of all partitions, each with the limit that holds for it.
    async fn lease_all(&self, setup: &Setup) -> Result<Vec<Held>, HostError> {
        let mut held = Vec::with_capacity(setup.partitions.len());
        for (index, partition) in setup.partitions.iter().enumerate() {
            let device = self.device(&partition.device)?;
            let own = device.description().memory;
            let limit = partition.memory.map_or(own, |planned| planned.min(own));
            held.push(Held { index, lease: device.lease("another client's run".to_string()).await?, limit });
        }
        Ok(held)
    }

    /// Follows the client's commands and tells the news until the client leaves.
    async fn attend(
        self: &Arc<Host>,
        client: &mut Client,
        session: &Arc<Session>,
        mut news: mpsc::UnboundedReceiver<Result<News, HostError>>,
    ) -> Result<(), HostError> {
        let mut inputs: BTreeMap<u32, TensorData> = BTreeMap::new();
        let wanted = session.setup.source.as_ref().map_or(0, |source| source.values.len());
        loop {
            tokio::select! {
                command = client.commands.recv() => match command {
                    None => return Ok(()),
                    Some(Command::Input { index, data }) => {
                        inputs.insert(index, data);
                    }
                    Some(Command::Connect) => {
                        self.connect_all(session).await?;
                        client.tell(Event::Connected).await?;
                    }
                    Some(Command::Start(_)) if inputs.len() < wanted => {
                        let what = format!("{} of {wanted} inputs were sent before the start", inputs.len());
                        return Err(HostError::Request(what));
                    }
                    Some(Command::Start(inference)) => {
                        let given: Vec<TensorData> = inputs.values().cloned().collect();
                        session.start(inference, &given)?;
                    }
                    Some(Command::Setup(_) | Command::Parameter { .. }) => {
                        return Err(HostError::Request("the setup is complete already".to_string()));
                    }
                },
                Some(happened) = news.recv() => client.report(happened?).await?,
            }
        }
    }

    /// Opens the links to all peers at the same time.
    async fn connect_all(&self, session: &Arc<Session>) -> Result<(), HostError> {
        let setup = &session.setup;
        let opening = (0u32..).zip(&setup.peers).map(|(index, peer)| async move {
            match setup.sends.iter().any(|send| send.peer == index) {
                true => open_link(session, peer, self.identity.as_ref()).await.map(Some),
                false => Ok(None),
            }
        });
        session.set_links(futures::future::try_join_all(opening).await?);
        Ok(())
    }
}

impl Client {
    async fn next(&mut self) -> Result<Command, HostError> {
        self.commands.recv().await.ok_or(HostError::Abandoned)
    }

    async fn tell(&self, event: Event) -> Result<(), HostError> {
        self.events.send(event).await.map_err(|_| HostError::Abandoned)
    }

    /// The contents of all parameters that the setup announces.
    async fn parameters(&mut self, setup: &Setup) -> Result<Streamed, HostError> {
        let mut streamed = Streamed::new();
        while streamed.len() < setup.streamed.len() {
            match self.next().await? {
                Command::Parameter { index, data } => {
                    let announced = setup.streamed.get(index as usize);
                    let name = announced.map(|s| s.name.clone()).unwrap_or_default();
                    streamed.insert(name, data);
                }
                _ => return Err(HostError::Request("parameters were announced and are missing".to_string())),
            }
        }
        Ok(streamed)
    }

    async fn report(&self, news: News) -> Result<(), HostError> {
        match news {
            News::Started { inference, at } => self.tell(Event::Started { inference, at }).await,
            News::Measured(measured) => self.tell(Event::Measured(measured)).await,
            News::Arrived { inference, at, outputs } => {
                let mut hash = blake3::Hasher::new();
                for output in &outputs {
                    hash.update(output.bytes());
                }
                self.tell(Event::Arrived { inference, at, digest: *hash.finalize().as_bytes() }).await?;
                if inference == 0 {
                    for (index, data) in (0u32..).zip(outputs) {
                        self.tell(Event::Output { index, data }).await?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Makes a session end.
struct Ending {
    host: Arc<Host>,
    session: Arc<Session>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.session.stop();
        self.host.remove_session(&self.session);
    }
}

/// Loads all partitions, each on its device's thread.
async fn load_all(setup: &Arc<Setup>, held: &[Held], streamed: &Arc<Streamed>) -> Result<Vec<Ready>, HostError> {
    let loading = held.iter().map(|partition| {
        let (setup, streamed) = (setup.clone(), streamed.clone());
        let (index, limit) = (partition.index, partition.limit);
        let threads = setup.partitions[index].threads;
        async move {
            let engine = partition.lease.device().engine(threads)?;
            let load = move || {
                let partition: &Partition = &setup.partitions[index];
                execute::load(&engine, partition, &streamed, limit)
            };
            partition.lease.run("loading", load).await
        }
    });
    futures::future::try_join_all(loading).await
}

/// Computes a partition until the session ends; a failure is the session's.
async fn compute(session: Arc<Session>, partition: Held, loaded: Loaded) {
    let Held { index, lease, limit } = partition;
    let computing = session.clone();
    let done = lease.run("running", move || execute::execute(&computing, index, loaded, limit)).await;
    if let Err(error) = done {
        session.fail(error);
    }
}
