//! One setup while it is loaded: the board behind a lock, and the ways in and out of it for the threads and tasks
//! that compute, send and receive.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{
    board::{Board, BoardError, Departure, Effects, Ran, Work},
    clock::Clock,
    error::HostError,
    measured::{DeviceMemory, Measured, TransferTime},
    setup::{Setup, ValueId},
    shutdown::Shutdown,
};
use crate::{
    engine::processor_quota,
    graph::TensorData,
    units::{Bytes, Micros},
};

/// How long a thread that computes stays awake for what it waits for while an inference is under way. A core that slept
/// wakes up late and has lost its caches; what other servers compute of the same operator rarely takes longer than this.
/// It yields at every look, so that whoever else can use the core has it, those that receive first of all.
const AWAKE: Duration = Duration::from_millis(2);

/// Shared by everybody who works on one run. Ends when it is stopped, not when it is dropped: see [`Session::stop`].
pub struct Session {
    pub setup: Arc<Setup>,
    pub clock: Clock,
    /// Ordered when the session ends, for whatever reason.
    pub end: Shutdown,
    state: Mutex<State>,
    /// Signalled when a stage may have become ready, and at the end.
    changed: Condvar,
    /// Counts those signals.
    changes: AtomicU64,
    /// [`AWAKE`], or nothing where the processor's time is rationed and waiting would use it up.
    awake: Duration,
    news: mpsc::UnboundedSender<Result<News, HostError>>,
}

struct State {
    board: Board,
    /// Where departures go, by peer; empty before the links are open and after the end.
    links: Vec<Option<mpsc::UnboundedSender<Departure>>>,
}

/// What the client must hear of.
#[derive(Debug)]
pub enum News {
    Started { inference: u64, at: Micros },
    Arrived { inference: u64, at: Micros, outputs: Vec<TensorData> },
    Measured(Measured),
}

impl Session {
    /// A session for a checked setup; what happens is told through the returned channel.
    pub fn new(
        setup: Arc<Setup>,
        clock: Clock,
        end: Shutdown,
    ) -> (Arc<Session>, mpsc::UnboundedReceiver<Result<News, HostError>>) {
        let (news, heard) = mpsc::unbounded_channel();
        let state = Mutex::new(State { board: Board::new(&setup), links: Vec::new() });
        let awake = if processor_quota().is_some() { Duration::ZERO } else { AWAKE };
        let (changed, changes) = (Condvar::new(), AtomicU64::new(0));
        (Arc::new(Session { setup, clock, end, state, changed, changes, awake, news }), heard)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session: device threads return after the stage they are in, links close.
    pub fn stop(&self) {
        self.end.order();
        self.state().links.clear();
        self.tell_changed();
    }

    /// Tells the client that the run cannot go on.
    pub fn fail(&self, error: HostError) {
        // The driver has gone only if the session has ended; then nobody needs to know.
        let _ = self.news.send(Err(error));
    }

    pub fn set_links(&self, links: Vec<Option<mpsc::UnboundedSender<Departure>>>) {
        self.state().links = links;
    }

    pub fn set_parameters(&self, partition: usize, bytes: Bytes, loading: Bytes) {
        self.state().board.set_parameters(partition, bytes, loading);
    }

    pub fn memory(&self) -> Vec<DeviceMemory> {
        self.state().board.memory()
    }

    /// Begins an inference, with the `inputs` if this is the source.
    pub fn start(&self, inference: u64, inputs: &[TensorData]) -> Result<(), BoardError> {
        let mut state = self.state();
        let now = self.clock.now();
        if self.setup.source.is_some() {
            let _ = self.news.send(Ok(News::Started { inference, at: now }));
        }
        let effects = state.board.start(inference, inputs, now)?;
        self.apply(&mut state, effects, now);
        Ok(())
    }

    /// The first bytes of a value came in.
    pub fn arriving(&self, inference: u64, value: ValueId) -> Result<(), BoardError> {
        self.state().board.arriving(inference, value, self.clock.now())
    }

    /// A value from another server is here.
    pub fn arrived(&self, inference: u64, value: ValueId, data: TensorData) -> Result<(), BoardError> {
        let mut state = self.state();
        let now = self.clock.now();
        let effects = state.board.arrived(inference, value, data, now)?;
        self.apply(&mut state, effects, now);
        Ok(())
    }

    /// A departure left.
    pub fn sent(&self, departure: &Departure, time: TransferTime) {
        let mut state = self.state();
        let effects = state.board.sent(departure.inference, departure.send, time);
        let now = self.clock.now();
        self.apply(&mut state, effects, now);
    }

    /// Waits for a stage that `partition` can run; `None` when the session has ended. Blocks its thread.
    pub fn wait_for_work(&self, partition: usize) -> Option<Work> {
        let begin = Instant::now();
        let mut state = self.state();
        loop {
            if self.end.is_ordered() {
                return None;
            }
            if let Some(work) = state.board.next(partition) {
                return Some(work);
            }
            if state.board.is_under_way() && begin.elapsed() < self.awake {
                let seen = self.changes.load(Ordering::Acquire);
                drop(state);
                while self.changes.load(Ordering::Acquire) == seen && begin.elapsed() < self.awake {
                    thread::yield_now();
                }
                state = self.state();
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn tell_changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    /// A stage ran. Returns the most memory that the partition has taken so far.
    pub fn done(&self, partition: usize, work: (u64, usize, Micros), ran: Ran) -> Result<Bytes, BoardError> {
        let mut state = self.state();
        let now = ran.end;
        let effects = state.board.done(partition, work, ran)?;
        self.apply(&mut state, effects, now);
        Ok(state.board.peak(partition))
    }

    fn apply(&self, state: &mut State, effects: Effects, now: Micros) {
        for departure in effects.departures {
            let peer = self.setup.sends[departure.send].peer as usize;
            match state.links.get(peer) {
                // A link that failed has said so itself.
                Some(Some(link)) => drop(link.send(departure)),
                _ if self.end.is_ordered() => {}
                _ => self.fail(HostError::Request("an inference began before the links were open".to_string())),
            }
        }
        if let Some((inference, outputs)) = effects.arrived {
            let _ = self.news.send(Ok(News::Arrived { inference, at: now, outputs }));
        }
        if let Some(measured) = effects.finished {
            let _ = self.news.send(Ok(News::Measured(measured)));
        }
        self.tell_changed();
    }
}
