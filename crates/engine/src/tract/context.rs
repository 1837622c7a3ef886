//! What all executables of one engine share: threads, clocks, the allocation meter and exclusive use of the device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tract_core::{prelude::multithread::Executor, runtime::RunOptions};

use super::overhead::measure_call;
use crate::{AllocationMeter, CpuClock, EngineError, overhead::Overhead, timed};
use edgecut_graph::units::Micros;

/// The state of one [`TractEngine`](super::TractEngine).
#[derive(Debug)]
pub(super) struct TractContext {
    pub threads: usize,
    executor: Executor,
    overhead: Overhead,
    pub meter: Arc<AllocationMeter>,
    /// Held while computing: a device runs one computation at a time, and the meter counts one.
    exclusive: Mutex<()>,
}

impl TractContext {
    /// Starts `threads` threads and measures the overhead of a call.
    ///
    /// # Errors
    /// If the threads cannot be started, or all allocation meters are in use.
    pub(super) fn new(threads: usize) -> Result<TractContext, EngineError> {
        let meter = AllocationMeter::new();
        let meter = Arc::new(meter.ok_or_else(|| EngineError::Other("too many engines in one process".to_string()))?);
        let executor = match threads {
            0 | 1 => Executor::SingleThread,
            _ => {
                let counted = Arc::clone(&meter);
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|i| format!("edgecut-{i}"))
                    .start_handler(move |_| std::mem::forget(counted.join()))
                    .build()
                    .map_err(|e| EngineError::Other(format!("cannot start {threads} threads: {e}")))?;
                // Wait until all threads run: what they allocate when starting is not workspace of a computation.
                pool.broadcast(|_| ());
                Executor::MultiThread(Arc::new(pool))
            }
        };
        let threads = threads.max(1);
        let options = RunOptions { executor: Some(executor.clone()), ..RunOptions::default() };
        let overhead = measure_call(clock(threads), &options);
        let overhead = overhead.map_err(|e| EngineError::Other(format!("cannot measure the overhead: {e:#}")))?;
        Ok(TractContext { threads, executor, overhead, meter, exclusive: Mutex::new(()) })
    }

    pub(super) fn options(&self) -> RunOptions {
        RunOptions { executor: Some(self.executor.clone()), ..RunOptions::default() }
    }

    /// Runs `work`, which calls `plans` plans; returns its wall-clock and CPU time without the overhead of the calls.
    pub(super) fn timed<R>(&self, plans: usize, work: impl FnOnce() -> R) -> (R, Micros, Micros) {
        let (result, wall, cpu) = timed(clock(self.threads), work);
        let (wall, cpu) = self.overhead.subtract(plans, wall, cpu);
        (result, wall, cpu)
    }

    /// Waits for exclusive use of the device.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.exclusive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock for a computation by this many threads.
fn clock(threads: usize) -> CpuClock {
    if threads == 1 { CpuClock::Thread } else { CpuClock::Process }
}
