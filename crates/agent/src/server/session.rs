//! A loaded run: its state behind a lock, shared by the threads and tasks that compute, send and receive.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use smol_str::SmolStr;
use tokio::sync::mpsc;

use super::{
    error::HostError,
    metrics::{DeviceLabels, Metrics},
    run_state::{Effects, MemoryLimit, PendingSend, RunState, RunStateError, ScheduledStage, StageRun, StageTask},
};
use crate::{
    clock::Clock,
    protocol::{
        inference_trace::{DeviceMemory, InferenceTrace, TransferTime},
        run::Start,
        setup::{Setup, ValueId},
    },
    shutdown::Shutdown,
};
use edgecut_engine::cpu_quota;
use edgecut_graph::{
    TensorData,
    units::{Bytes, Micros},
};

/// How long a computing thread polls for its next stage before it sleeps. Waking up a sleeping core takes longer and
/// finds cold caches; other servers rarely need longer for their shard of the same operator, or a client for the next
/// input. The thread yields after every poll, so that receiving threads run first on a shared core.
const SPIN_TIME: Duration = Duration::from_millis(2);

/// A loaded run. It ends with [`Session::stop`], not when it is dropped.
pub(super) struct Session {
    pub setup: Arc<Setup>,
    pub clock: Clock,
    /// Requested when the session ends, for whatever reason.
    pub end: Shutdown,
    state: Mutex<SharedState>,
    /// Signalled when a stage may have become ready, and at the end.
    changed: Condvar,
    /// Counts these signals.
    changes: AtomicU64,
    /// [`SPIN_TIME`]; zero where polling would take processor time that others need.
    spin_time: Duration,
    metrics: Arc<Metrics>,
    reports: mpsc::UnboundedSender<Result<SessionReport, HostError>>,
}

struct SharedState {
    run: RunState,
    /// Queues of values to send, by peer; empty before the links are open and after the end.
    links: Vec<Option<mpsc::UnboundedSender<PendingSend>>>,
}

/// What the session reports to the client.
#[derive(Debug)]
pub(super) enum SessionReport {
    Started {
        inference: u64,
        at: Micros,
    },
    /// With their indices among the sink's values.
    Outputs {
        inference: u64,
        at: Micros,
        outputs: Vec<(u32, TensorData)>,
    },
    Finished(InferenceTrace),
}

impl Session {
    /// A session for a checked setup, and the receiver of its reports. Its threads wait without polling if they share cores
    /// with other agents, as `has_own_cores` says, or have a CPU quota, which polling would use up.
    pub fn new(
        setup: Arc<Setup>,
        clock: Clock,
        end: Shutdown,
        has_own_cores: bool,
        metrics: Arc<Metrics>,
    ) -> (Arc<Session>, mpsc::UnboundedReceiver<Result<SessionReport, HostError>>) {
        let (reports, receiver) = mpsc::unbounded_channel();
        let state = Mutex::new(SharedState { run: RunState::new(&setup), links: Vec::new() });
        let spin_time = if has_own_cores && cpu_quota().is_none() { SPIN_TIME } else { Duration::ZERO };
        let (changed, changes) = (Condvar::new(), AtomicU64::new(0));
        (Arc::new(Session { setup, clock, end, state, changed, changes, spin_time, metrics, reports }), receiver)
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session: device threads return after their current stage, links close.
    pub fn stop(&self) {
        self.end.request();
        self.state().links.clear();
        self.signal_change();
    }

    /// Reports that the run cannot continue.
    pub fn fail(&self, error: HostError) {
        // The receiver is dropped only after the session has ended.
        let _ = self.reports.send(Err(error));
    }

    pub fn set_links(&self, links: Vec<Option<mpsc::UnboundedSender<PendingSend>>>) {
        self.state().links = links;
    }

    pub fn set_parameters(&self, partition: usize, parameters: Bytes, loading: Bytes) {
        self.state().run.set_parameters(partition, parameters, loading);
    }

    /// Adds what its partitions hold to the counts of their devices.
    pub fn add_held(&self, counts: &mut HashMap<SmolStr, Bytes>) {
        for (device, held) in self.state().run.held() {
            *counts.entry(device.clone()).or_default() += held;
        }
    }

    /// As [`RunState::set_limit`].
    pub fn set_limit(&self, holder: usize, limit: MemoryLimit) {
        self.state().run.set_limit(holder, limit);
    }

    pub fn memory(&self) -> Vec<DeviceMemory> {
        self.state().run.memory()
    }

    /// Starts an inference, at the source with its `inputs`.
    pub fn start(&self, start: Start, inputs: &[TensorData]) -> Result<(), RunStateError> {
        let mut state = self.state();
        let now = self.clock.now();
        if self.setup.source.is_some() {
            let _ = self.reports.send(Ok(SessionReport::Started { inference: start.inference, at: now }));
        }
        let effects = state.run.start(start, inputs, now)?;
        self.apply(&state, effects, now);
        Ok(())
    }

    /// The first bytes of a value arrived.
    pub fn begin_receive(&self, inference: u64, value: ValueId) -> Result<(), RunStateError> {
        self.state().run.begin_receive(inference, value, self.clock.now())
    }

    /// A value from another server is complete.
    pub fn finish_receive(&self, inference: u64, value: ValueId, data: TensorData) -> Result<(), RunStateError> {
        let mut state = self.state();
        let now = self.clock.now();
        let effects = state.run.finish_receive(inference, value, data, now)?;
        self.apply(&state, effects, now);
        Ok(())
    }

    /// Counts a part of a value from another server.
    pub fn count_received(&self, bytes: usize) {
        self.metrics.received.inc_by(bytes as u64);
    }

    /// A value was handed to the network.
    pub fn finish_send(&self, send: &PendingSend, time: TransferTime) {
        self.metrics.sent.inc_by(time.bytes.0);
        let mut state = self.state();
        let effects = state.run.finish_send(send.inference, send.send, time);
        self.apply(&state, effects, self.clock.now());
    }

    /// Blocks its thread until `partition` has a stage to run; `None` when the session has ended.
    pub fn wait_for_stage(&self, partition: usize) -> Option<StageTask> {
        let begin = Instant::now();
        let mut state = self.state();
        loop {
            if self.end.is_requested() {
                return None;
            }
            if let Some(task) = state.run.next_stage(partition) {
                return Some(task);
            }
            if begin.elapsed() < self.spin_time {
                let seen = self.changes.load(Ordering::Acquire);
                drop(state);
                while self.changes.load(Ordering::Acquire) == seen && begin.elapsed() < self.spin_time {
                    thread::yield_now();
                }
                state = self.state();
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn signal_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    /// A stage has run. Returns the partition's peak memory so far.
    pub fn finish_stage(&self, partition: usize, stage: ScheduledStage, run: StageRun) -> Result<Bytes, RunStateError> {
        let mut state = self.state();
        let now = run.end;
        self.metrics.stages.get_or_create(&DeviceLabels::of(&self.setup.partitions[partition].device)).inc();
        let effects = state.run.finish_stage(partition, stage, run)?;
        self.apply(&state, effects, now);
        Ok(state.run.peak(partition))
    }

    fn apply(&self, state: &SharedState, effects: Effects, now: Micros) {
        for send in effects.sends {
            let peer = self.setup.sends[send.send].peer as usize;
            match state.links.get(peer) {
                // A link that failed has reported it.
                Some(Some(link)) => drop(link.send(send)),
                _ if self.end.is_requested() => {}
                _ => self.fail(HostError::Request("an inference started before the links were open".to_string())),
            }
        }
        if let Some((inference, outputs)) = effects.outputs {
            let _ = self.reports.send(Ok(SessionReport::Outputs { inference, at: now, outputs }));
        }
        if let Some(trace) = effects.finished {
            self.metrics.inferences.inc();
            let _ = self.reports.send(Ok(SessionReport::Finished(trace)));
        }
        self.signal_change();
    }
}
