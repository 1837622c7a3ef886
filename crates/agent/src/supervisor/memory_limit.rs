//! The system's memory limit of a worker, for operators that allocate more than their types suggest.
//!
//! RLIMIT_DATA counts private writable memory, used or not. If an allocation exceeds it, an operator of ONNX Runtime
//! returns an error; elsewhere the worker aborts, and the supervisor starts it again. RLIMIT_AS would count files and
//! libraries too, and a cgroup of its own needs rights that an agent seldom has.

use std::{io, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use edgecut_graph::units::Bytes;

/// Copies of a model in memory while it is loaded: the received one, and that of its engine.
const COPIES: u64 = 2;

/// For the process itself: heap growth, the buffer that flushes caches between samples, messages, idle threads.
const PROCESS: Bytes = Bytes(512 << 20);

/// For each processor: stacks of the compute threads of two engines.
const PROCESSOR: Bytes = Bytes(16 << 20);

/// Limits the memory of this process, a worker that offers `offered` to clients. A lower existing limit is kept.
///
/// # Errors
/// If the system refuses it.
pub fn limit_memory(offered: Bytes) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Data);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let limit = limit(offered, processors as u64).min(current.unwrap_or(u64::MAX));
    Ok(setrlimit(Resource::Data, Rlimit { current: Some(limit), maximum })?)
}

fn limit(offered: Bytes, processors: u64) -> u64 {
    let process = PROCESS.0.saturating_add(PROCESSOR.0.saturating_mul(processors));
    offered.0.saturating_mul(COPIES).saturating_add(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_fits_twice() {
        assert_eq!(limit(Bytes(512 << 20), 2), 1568 << 20);
        assert_eq!(limit(Bytes(u64::MAX), 2), u64::MAX);
    }
}
